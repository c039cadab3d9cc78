//! The identity of a pod in a real store: keys that an agent of the container, a token service or the node's own metadata hands out,
//! renewed before they end while rows go on.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use iceberg::TableIdent;
use jiff::{Timestamp, ToSpan};
use serde_json::json;

use super::object_storage::{rows_of, settings, write_key};
use super::support::{
    agent::Agent,
    certificates::{Certificates, SecretFolder},
    kafka::Broker,
    pipeline::write,
    proxy::Request,
    server::own_name,
    store::{Encrypted, Key, Store},
    worker::{Worker, manifest_of_rows},
};

/// How long a worker may take for anything on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// The key after the usual one.
const NEXT: Key = Key {
    id: "next",
    secret: "next-secret",
};

/// The role of the pod.
const ROLE: &str = "arn:aws:iam::123456789012:role/lake";

/// When a key ends that is to be renewed in a few seconds: two minutes before their end they are stale.
fn soon() -> Timestamp {
    Timestamp::now() + 126.seconds()
}

/// A store of its own, and who hands out its keys: the usual one to the first token of the pod, the next one to the second.
struct Stage {
    store: Store,
    /// How many keys have been handed out.
    given: Arc<AtomicU32>,
    /// The token by which the pod is known.
    token: tempfile::NamedTempFile,
}

impl Stage {
    fn new() -> Self {
        let token = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(token.path(), "hush-first\n").unwrap();
        Self {
            store: Store::start_own(Key::USUAL),
            given: Arc::default(),
            token,
        }
    }

    /// The key that somebody with this token is given.
    fn hands_out(&self) -> impl Fn(Option<&str>) -> Option<Key> + use<> {
        let given = Arc::clone(&self.given);
        move |token| {
            let key = match token? {
                "hush-first" => Key::USUAL,
                "hush-second" => NEXT,
                _ => return None,
            };
            given.fetch_add(1, Ordering::SeqCst);
            Some(key)
        }
    }

    fn token(&self) -> String {
        self.token.path().display().to_string()
    }

    /// Nobody gives a stranger keys, and the node is not asked for its own instead; then as [`Self::play`].
    fn play_after_a_refusal(
        &self,
        test: &str,
        storage: &str,
        secrets: &Path,
        variables: &[(&str, &str)],
    ) {
        let node_asked = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&node_asked);
        let node = Agent::start(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            (404, String::new())
        });
        let uri = node.uri();
        let metadata = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", uri.as_str())];
        std::fs::write(self.token.path(), "hush-stranger\n").unwrap();
        self.play(test, storage, secrets, &[variables, &metadata].concat());
        assert_eq!(node_asked.load(Ordering::SeqCst), 0, "the node was asked");
    }

    /// Rows come, the first key ends and with it the first token, and rows go on, each once. `storage` are the fields of the store.
    fn play(&self, test: &str, storage: &str, secrets: &Path, variables: &[(&str, &str)]) {
        let broker = Broker::shared();
        let (bucket, folder) = (self.store.bucket(test), tempfile::tempdir().unwrap());
        let (name, topic) = (own_name(test), broker.topic(test, 1));
        let manifest = manifest_of_rows(
            &name,
            &format!(
                "bootstrapServers: '{}', topics: [{topic}]",
                broker.bootstrap()
            ),
            &format!(
                "type: Sql, uri: 'sqlite://{}/catalog.db', warehouse: 's3://{bucket}/warehouse', \
                 storage: {{region: us-east-1, pathStyleAccess: true, {storage}}}",
                folder.path().display()
            ),
            "pod.rows",
        );
        let secrets = secrets.display().to_string();
        let variables = [variables, &[("TIDEMARK_SECRETS", secrets.as_str())]].concat();
        write(broker, &topic, 0, 0..100);
        let worker = Worker::run((&name, "one"), &manifest, &variables);
        let keys = SecretFolder::new();
        write_key(&keys, Key::USUAL);
        let own = settings(folder.path(), &bucket, &self.store.uri(), &keys);
        let table = TableIdent::from_strs(["pod", "rows"]).unwrap();
        let rows = |wanted: u64| {
            let found = worker.wait_for_rows(wanted, PATIENCE, || rows_of(&own, &table));
            assert_eq!(found, wanted);
        };
        if std::fs::read_to_string(self.token.path()).unwrap() == "hush-stranger\n" {
            worker.wait_for_reason("CredentialsRefused", PATIENCE);
            std::fs::write(self.token.path(), "hush-first\n").unwrap();
        }
        rows(100);
        std::fs::write(self.token.path(), "hush-second\n").unwrap();
        self.store.take_only(NEXT);
        write_key(&keys, NEXT);
        write(broker, &topic, 0, 100..200);
        rows(200);
        // A file each would be hundreds.
        let given = self.given.load(Ordering::SeqCst);
        assert!((2..60).contains(&given), "{given} keys");
        worker.assert_hidden(&["hush-", Key::USUAL.secret, NEXT.secret]);
        assert!(worker.terminate().success());
    }
}

/// As the agent of EKS Pod Identity and that of ECS answer.
fn of_container(key: Key) -> String {
    let answer = json!({
        "AccessKeyId": key.id, "SecretAccessKey": key.secret, "Token": "session",
        "Expiration": soon().to_string(),
    });
    answer.to_string()
}

#[test]
fn keys_of_the_container_s_agent_open_a_store() {
    let stage = Stage::new();
    let hands_out = stage.hands_out();
    let agent = Agent::start(move |request| {
        let asked = request.path == "/v1/credentials";
        let token = request.header("authorization").filter(|_| asked);
        match hands_out(token) {
            Some(key) => (200, of_container(key)),
            None => (403, String::new()),
        }
    });
    let (uri, token) = (format!("{}/v1/credentials", agent.uri()), stage.token());
    let endpoint = format!("endpoint: '{}'", stage.store.uri());
    let variables = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", uri.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.as_str()),
    ];
    stage.play_after_a_refusal("pod_agent", &endpoint, Path::new("/nowhere"), &variables);
}

#[test]
fn keys_of_the_node_s_metadata_open_a_store() {
    let stage = Stage::new();
    let (hands_out, token) = (stage.hands_out(), stage.token());
    let agent = Agent::start(move |request| {
        let folder = "/latest/meta-data/iam/security-credentials/";
        let known = request.header("x-aws-ec2-metadata-token") == Some("session");
        match (request.method.as_str(), request.path.strip_prefix(folder)) {
            ("PUT", _) if request.path == "/latest/api/token" => (200, "session".to_owned()),
            ("GET", Some("")) if known => (200, "lake".to_owned()),
            ("GET", Some("lake")) if known => {
                // The node knows its pods by nothing.
                let token = std::fs::read_to_string(&token).unwrap();
                let key = hands_out(Some(token.trim())).unwrap();
                let answer = json!({
                    "Code": "Success", "Type": "AWS-HMAC", "LastUpdated": Timestamp::now().to_string(),
                    "AccessKeyId": key.id, "SecretAccessKey": key.secret, "Token": "session",
                    "Expiration": soon().to_string(),
                });
                (200, answer.to_string())
            }
            _ => (401, String::new()),
        }
    });
    let uri = agent.uri();
    let endpoint = format!("endpoint: '{}'", stage.store.uri());
    let variables = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", uri.as_str())];
    stage.play(
        "node_metadata",
        &endpoint,
        Path::new("/nowhere"),
        &variables,
    );
}

/// As STS answers.
fn of_sts(request: &Request, hands_out: impl Fn(Option<&str>) -> Option<Key>) -> (u16, String) {
    let body = String::from_utf8_lossy(&request.body);
    let said = |name: &str| {
        body.split('&')
            .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    };
    let asked = said("Action") == Some("AssumeRoleWithWebIdentity")
        && said("RoleArn") == Some(&ROLE.replace(':', "%3A").replace('/', "%2F"));
    let token = said("WebIdentityToken").filter(|_| asked);
    let Some(key) = hands_out(token) else {
        let refusal = "<ErrorResponse><Error><Code>InvalidIdentityToken</Code><Message>nobody we know</Message></Error></ErrorResponse>";
        return (400, refusal.to_owned());
    };
    let answer = format!(
        "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleWithWebIdentityResult>\
         <Credentials><AccessKeyId>{}</AccessKeyId><SecretAccessKey>{}</SecretAccessKey><SessionToken>session</SessionToken>\
         <Expiration>{}</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>",
        key.id,
        key.secret,
        soon(),
    );
    (200, answer)
}

/// A proxy for encrypted connections that leads to `upstream`, whatever host is named; and which hosts were.
fn tunnel(upstream: SocketAddr) -> (String, Arc<std::sync::Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let hosts = Arc::<std::sync::Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&hosts);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let seen = Arc::clone(&seen);
            std::thread::spawn(move || drop(lead(&client, upstream, &seen)));
        }
    });
    (format!("http://{address}"), hosts)
}

fn lead(
    client: &TcpStream,
    upstream: SocketAddr,
    seen: &std::sync::Mutex<Vec<String>>,
) -> std::io::Result<()> {
    // Nothing is sent before the proxy has answered, so that the reader takes no more than the head.
    let mut reader = BufReader::new(client);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let host = line.split(' ').nth(1).unwrap_or_default().to_owned();
    while line.trim_end() != "" {
        line.clear();
        reader.read_line(&mut line)?;
    }
    seen.lock().unwrap().push(host);
    let server = TcpStream::connect(upstream)?;
    (&*client).write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
    std::io::copy(&mut &*client, &mut &server)?;
    Ok(())
}

/// The token service of a region is asked by its own name, here by way of a proxy; the store is asked directly.
#[test]
fn keys_for_a_web_identity_open_a_store() {
    let stage = Stage::new();
    let hands_out = stage.hands_out();
    let sts = Agent::start(move |request| of_sts(request, &hands_out));
    let authority = Certificates::make();
    let host = "sts.eu-central-1.amazonaws.com";
    authority.sign("sts", &format!("subjectAltName=DNS:{host}"));
    let encrypted_sts = Encrypted::start_as("sts", sts.address(), &authority);
    let encrypted_store = Encrypted::start(stage.store.address(), &authority);
    let (proxy, hosts) = tunnel(encrypted_sts.address());
    let secrets = SecretFolder::new();
    secrets.write("lake-ca", "ca.crt", &authority.read("ca.pem"));
    let storage = format!(
        "endpoint: '{}', caRef: {{name: lake-ca, key: ca.crt}}",
        encrypted_store.uri()
    );
    let token = stage.token();
    let variables = [
        ("AWS_ROLE_ARN", ROLE),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token.as_str()),
        ("AWS_STS_REGIONAL_ENDPOINTS", "regional"),
        ("AWS_REGION", "eu-central-1"),
        ("HTTPS_PROXY", proxy.as_str()),
        ("NO_PROXY", "127.0.0.1"),
    ];
    stage.play_after_a_refusal("web_identity", &storage, &secrets.path(), &variables);
    let hosts = hosts.lock().unwrap();
    assert!(
        hosts.len() >= 2 && hosts.iter().all(|seen| *seen == format!("{host}:443")),
        "{hosts:?}"
    );
}
