//! A real REST catalog behind TLS and tokens: rows once through wrong authorities, other hosts, certificates that are exchanged and
//! tokens that end, and what is refused by its name.

use std::{
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};

use super::support::{
    agent::Agent,
    catalog::{Catalog, request},
    certificates::{Certificates, SecretFolder},
    kafka::Broker,
    pipeline::{total_records, write},
    proxy::{Fate, Proxy},
    server::own_name,
    store::{Encrypted, Key, Store},
    worker::{Worker, manifest_of_rows},
};

/// How long a worker may take for anything on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// A topic, a namespace, and a worker between them.
struct Scene {
    broker: &'static Broker,
    name: String,
    topic: String,
    namespace: String,
    secrets: SecretFolder,
}

impl Scene {
    fn new(test: &str) -> Self {
        let broker = Broker::shared();
        Self {
            broker,
            name: own_name(test),
            topic: broker.topic(test, 1),
            namespace: Catalog::shared().namespace(test),
            secrets: SecretFolder::new(),
        }
    }

    fn write(&self, ids: std::ops::Range<u64>) {
        write(self.broker, &self.topic, 0, ids);
    }

    /// A pipeline of key-value rows; `catalog` are the fields of its catalog beside the type.
    fn manifest(&self, catalog: &str) -> String {
        let (bootstrap, topic) = (self.broker.bootstrap(), &self.topic);
        manifest_of_rows(
            &self.name,
            &format!("bootstrapServers: '{bootstrap}', topics: [{topic}]"),
            &format!("type: Rest, {catalog}"),
            &format!("{}.rows", self.namespace),
        )
    }

    fn run(&self, catalog: &str) -> Worker {
        let folder = self.secrets.path().display().to_string();
        let variables = [("TIDEMARK_SECRETS", folder.as_str())];
        Worker::run((&self.name, "one"), &self.manifest(catalog), &variables)
    }

    /// Waits until the table has so many rows, and holds that it has no more.
    fn wait_for_rows(&self, worker: &Worker, wanted: u64) {
        let found = worker.wait_for_rows(wanted, PATIENCE, || {
            Some(total_records(
                &Catalog::shared().table(&self.namespace, "rows")?,
            ))
        });
        assert_eq!(found, wanted);
    }

    /// A reader's command with these arguments.
    fn get(&self, arguments: &[&str]) -> Output {
        let table = format!("{}.rows", self.namespace);
        Command::new(env!("CARGO_BIN_EXE_tidemark"))
            .args(["get", &table])
            .args(arguments)
            .env("TIDEMARK_SECRETS", self.secrets.path())
            .output()
            .unwrap()
    }
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// From no authority over a wrong one to the right one; then the server shows a certificate of another, as after a rotation that
/// nobody prepared; each row once. Readers' commands trust what a manifest or a flag names.
#[test]
fn a_catalog_is_asked_where_its_certificate_is_trusted_and_nowhere_else() {
    let scene = Scene::new("catalog_tls");
    let upstream = Catalog::shared().address();
    let (ours, theirs) = (Certificates::make(), Certificates::make());
    let mut server = Encrypted::start(upstream, &ours);
    let fields = format!(
        "uri: '{}', caRef: {{name: catalog-ca, key: ca.crt}}",
        server.uri()
    );
    let show = |text: &str| scene.secrets.write("catalog-ca", "ca.crt", text);
    scene.write(0..100);
    let worker = scene.run(&fields);
    worker.wait_for_reason("SecretMissing", PATIENCE);
    show("no certificate");
    worker.wait_for_reason("SecretInvalid", PATIENCE);
    show(&theirs.read("ca.pem"));
    worker.wait_for_reason("CertificateUntrusted", PATIENCE);
    show(&ours.read("ca.pem"));
    scene.wait_for_rows(&worker, 100);

    server.show(upstream, &theirs);
    scene.write(100..200);
    worker.wait_for_reason("CertificateUntrusted", PATIENCE);
    show(&format!("{}{}", ours.read("ca.pem"), theirs.read("ca.pem")));
    scene.wait_for_rows(&worker, 200);
    let log = std::fs::read_to_string(worker.log()).unwrap();
    assert!(
        log.contains("sink.catalog.caRef"),
        "the field is not named in {}",
        worker.log().display()
    );
    assert!(worker.terminate().success());

    let manifest = scene.secrets.path().join("pipeline.yaml");
    std::fs::write(&manifest, scene.manifest(&fields)).unwrap();
    let got = scene.get(&["--file", &manifest.display().to_string()]);
    assert!(got.status.success(), "{}", told(&got));
    let uri = server.uri();
    let file = |of: &Certificates| of.folder().join("ca.pem").display().to_string();
    let got = scene.get(&["--catalog-uri", &uri, "--ca-file", &file(&theirs)]);
    assert!(got.status.success(), "{}", told(&got));
    for (arguments, words) in [
        (vec!["--catalog-uri", &uri], "--ca-file"),
        (
            vec!["--catalog-uri", &uri, "--ca-file", &file(&ours)],
            "signed by nobody",
        ),
        (
            vec!["--catalog-uri", &uri, "--ca-file", "/nowhere"],
            "/nowhere",
        ),
    ] {
        let refused = scene.get(&arguments);
        assert_eq!(refused.status.code(), Some(7), "{}", told(&refused));
        assert!(told(&refused).contains(words), "{}", told(&refused));
    }
}

/// The certificate is for 127.0.0.1, and in order but for that.
#[test]
fn a_catalog_by_another_name_than_its_certificate_s_is_not_asked() {
    let scene = Scene::new("catalog_host");
    let ours = Certificates::make();
    let server = Encrypted::start(Catalog::shared().address(), &ours);
    scene
        .secrets
        .write("catalog-ca", "ca.crt", &ours.read("ca.pem"));
    let uri = server.uri().replace("127.0.0.1", "localhost");
    let worker = scene.run(&format!(
        "uri: '{uri}', caRef: {{name: catalog-ca, key: ca.crt}}"
    ));
    worker.wait_for_reason("HostMismatch", PATIENCE);
}

/// A server of tokens, and a catalog that takes the newest of them for a while.
struct Tokens {
    /// How many have been given.
    given: AtomicU32,
    /// Whether clients are known.
    knows: AtomicBool,
    /// What it says of how long one lasts.
    lasts_s: AtomicU32,
}

impl Tokens {
    /// Gives a token to the client `tidemark`, as RFC 6749 has it.
    fn answer(&self, body: &str) -> (u16, String) {
        let known = "client_id=tidemark&client_secret=hush-client&scope=lake";
        let asked = body.contains("grant_type=client_credentials") && body.contains(known);
        if !asked || !self.knows.load(Ordering::SeqCst) {
            let refusal = json!({"error": "invalid_client", "error_description": "nobody we know"});
            return (401, refusal.to_string());
        }
        let number = self.given.fetch_add(1, Ordering::SeqCst) + 1;
        let mut given =
            json!({"access_token": format!("hush-token-{number}"), "token_type": "bearer"});
        match self.lasts_s.load(Ordering::SeqCst) {
            0 => {}
            seconds => given["expires_in"] = seconds.into(),
        }
        (200, given.to_string())
    }

    /// Whether this is the newest one.
    fn takes(&self, authorization: Option<&str>) -> bool {
        let newest = self.given.load(Ordering::SeqCst);
        authorization == Some(&format!("Bearer hush-token-{newest}"))
    }
}

/// Tokens end while rows come: they are exchanged before their end where it is known, and after a refusal where it is not. A client
/// that is no longer known is told by its name, and goes on once it is.
#[test]
fn a_client_s_tokens_are_exchanged_anew_while_rows_go_on() {
    let scene = Scene::new("catalog_tokens");
    let tokens = Arc::new(Tokens {
        given: AtomicU32::new(0),
        knows: AtomicBool::new(true),
        lasts_s: AtomicU32::new(2),
    });
    let giver = Arc::clone(&tokens);
    let oauth = Agent::start(move |request| giver.answer(&String::from_utf8_lossy(&request.body)));
    let refusals = Arc::new(AtomicU32::new(0));
    let (taker, refused) = (Arc::clone(&tokens), Arc::clone(&refusals));
    let proxy = Proxy::start(Catalog::shared().address(), move |request| {
        if taker.takes(request.header("authorization")) {
            Fate::Pass
        } else {
            refused.fetch_add(1, Ordering::SeqCst);
            Fate::Refused(401)
        }
    });
    scene
        .secrets
        .write("catalog", "credential", "tidemark:hush-client");
    let worker = scene.run(&format!(
        "uri: '{}', credentialRef: {{name: catalog, key: credential}}, properties: {{oauth2-server-uri: '{}/token', scope: lake}}",
        proxy.uri(),
        oauth.uri()
    ));
    let mut rows = 0;
    let mut more = || {
        scene.write(rows..rows + 10);
        rows += 10;
        rows
    };
    while tokens.given.load(Ordering::SeqCst) < 4 {
        scene.wait_for_rows(&worker, more());
    }
    tokens.lasts_s.store(0, Ordering::SeqCst);
    let before = refusals.load(Ordering::SeqCst);
    // What was in hand is worth nothing from now on.
    tokens.given.fetch_add(1, Ordering::SeqCst);
    scene.wait_for_rows(&worker, more());
    assert!(refusals.load(Ordering::SeqCst) > before);
    let log = std::fs::read_to_string(worker.log()).unwrap();
    assert!(
        !log.contains("CredentialsRefused"),
        "see {}",
        worker.log().display()
    );

    tokens.knows.store(false, Ordering::SeqCst);
    tokens.given.fetch_add(1, Ordering::SeqCst);
    let rows = more();
    worker.wait_for_reason("CredentialsRefused", PATIENCE);
    tokens.knows.store(true, Ordering::SeqCst);
    scene.wait_for_rows(&worker, rows);
    let log = std::fs::read_to_string(worker.log()).unwrap();
    assert!(
        log.contains("invalid_client"),
        "see {}",
        worker.log().display()
    );
    worker.assert_hidden(&["hush-client", "hush-token"]);
    assert!(worker.terminate().success());
}

/// A credential without a colon is the token itself, and a right that is missing is not a token that is wrong.
#[test]
fn a_token_is_shown_as_it_is() {
    let scene = Scene::new("catalog_bearer");
    let forbids = Arc::new(AtomicBool::new(true));
    let decides = Arc::clone(&forbids);
    let proxy = Proxy::start(Catalog::shared().address(), move |request| {
        match request.header("authorization") {
            Some("Bearer hush-right") if decides.load(Ordering::SeqCst) => Fate::Refused(403),
            Some("Bearer hush-right") => Fate::Pass,
            _ => Fate::Refused(401),
        }
    });
    scene.write(0..50);
    let fields = format!(
        "uri: '{}', credentialRef: {{name: catalog, key: credential}}",
        proxy.uri()
    );
    scene.secrets.write("catalog", "credential", "hush-wrong");
    let worker = scene.run(&fields);
    worker.wait_for_reason("CredentialsRefused", PATIENCE);
    scene.secrets.write("catalog", "credential", "hush-right");
    worker.wait_for_reason("CatalogRefused", PATIENCE);
    forbids.store(false, Ordering::SeqCst);
    scene.wait_for_rows(&worker, 50);
    worker.assert_hidden(&["hush-wrong", "hush-right"]);
    let got = Command::new(env!("CARGO_BIN_EXE_tidemark"))
        .args([
            "get",
            &format!("{}.rows", scene.namespace),
            "--catalog-uri",
            &proxy.uri(),
        ])
        .env("TIDEMARK_CATALOG_CREDENTIAL", "hush-right")
        .output()
        .unwrap();
    assert!(got.status.success(), "{}", told(&got));
}

/// What a catalog gives for a part of a store: its keys stand in a list beside others, which open nothing here.
fn in_a_list(mut answer: Value, location: &str) -> Value {
    let Some(config) = answer["config"].as_object_mut() else {
        return answer;
    };
    let mut own = serde_json::Map::new();
    for name in ["s3.access-key-id", "s3.secret-access-key"] {
        own.extend(config.remove(name).map(|value| (name.to_owned(), value)));
    }
    if own.is_empty() {
        return answer;
    }
    let wrong = json!({"s3.access-key-id": "nobody", "s3.secret-access-key": "nothing"});
    answer["storage-credentials"] = json!([
        {"prefix": "s3", "config": wrong},
        {"prefix": location, "config": own},
        {"prefix": format!("{location}-of-others"), "config": wrong},
        {"prefix": &location[..location.len() - 3], "config": wrong},
    ]);
    answer
}

/// The keys that fit the table's location best open its files.
#[test]
fn keys_for_a_part_of_a_store_open_the_tables_in_it() {
    let scene = Scene::new("vended_parts");
    let store = Store::shared();
    let bucket = store.bucket("parts");
    let catalog = Catalog::start_own_with(&[
        &format!("s3={}", store.uri()),
        &format!("bucket={bucket}"),
        "vends=1",
    ]);
    let address = catalog.address();
    let agent = Agent::start(move |asked| {
        let body = String::from_utf8_lossy(&asked.body);
        let Some((status, body)) = request(address, &asked.method, &asked.path, &body) else {
            return (502, String::new());
        };
        let Ok(answer) = serde_json::from_str::<Value>(&body) else {
            return (status, body);
        };
        let location = answer["metadata"]["location"].as_str().map(str::to_owned);
        let answer = match location {
            Some(location) => in_a_list(answer, &location),
            None => answer,
        };
        (status, answer.to_string())
    });
    scene.write(0..100);
    let worker = scene.run(&format!(
        "uri: '{}', storage: {{endpoint: '{}', region: us-east-1, pathStyleAccess: true}}",
        agent.uri(),
        store.uri()
    ));
    let found = || Some(total_records(&catalog.table(&scene.namespace, "rows")?));
    let rows = |wanted: u64| worker.wait_for_rows(wanted, PATIENCE, found);
    assert_eq!(rows(100), 100);
    scene.write(100..150);
    assert_eq!(rows(150), 150);
    assert!(!store.objects(&bucket, ".parquet").is_empty());
    worker.assert_hidden(&[Key::USUAL.secret]);
    assert!(worker.terminate().success());
}
