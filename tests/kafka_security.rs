//! A real broker with listeners for TLS, SASL and both: rows come through each, faults have their names, and changed secrets
//! are taken up by what runs.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use tidemark::api::Reason;
use tidemark::api::worker::{
    KafkaSasl, KafkaSecurity, KafkaTls, Protocol, SaslMechanism, SecretRef,
};
use tidemark::kafka::{
    DeadLetters, Inquirer, Rejected, Security, Settings, TopicPartition, Topics,
};
use tidemark::process::secret::Secrets;
use tidemark::sink;

use super::support::{
    catalog::Catalog,
    certificates::{Certificates, SecretFolder},
    kafka::Broker,
    pipeline::{total_records, write},
    readers::python,
    server::own_name,
    wait::within,
    worker::{Worker, manifest_of_rows},
};

const PATIENCE: Duration = Duration::from_mins(2);

/// How long a question waits: what is refused is known much earlier, and told when the time is over.
const ASK: Duration = Duration::from_secs(5);

/// One broker with its certificates for all of these tests.
struct Secure {
    broker: Broker,
    certificates: Certificates,
    others: Certificates,
}

fn secure() -> &'static Secure {
    static SECURE: OnceLock<Secure> = OnceLock::new();
    SECURE.get_or_init(|| {
        let certificates = Certificates::make();
        let pki = format!("secure={}", certificates.folder().display());
        Secure {
            broker: Broker::start_own(&[&pki]),
            certificates,
            others: Certificates::make(),
        }
    })
}

impl Secure {
    /// The address of a listener by its place behind the plain one.
    fn listener(&self, place: u16) -> String {
        let bootstrap = self.broker.bootstrap();
        let (host, port) = bootstrap.rsplit_once(':').unwrap();
        format!("{host}:{}", port.parse::<u16>().unwrap() + place)
    }

    fn set_password(&self, user: &str, password: &str) {
        python("users.py", &[&self.broker.bootstrap(), user, password]);
    }

    /// What a pod would have: both authorities, the client's certificate, a password.
    fn secrets(&self) -> SecretFolder {
        let secrets = SecretFolder::new();
        secrets.write("kafka", "ca.crt", &self.certificates.read("ca.pem"));
        secrets.write("kafka", "other-ca.crt", &self.others.read("ca.pem"));
        secrets.write("kafka", "tls.crt", &self.certificates.read("client.crt"));
        secrets.write("kafka", "tls.key", &self.certificates.read("client.key"));
        secrets.write("kafka", "other.crt", &self.others.read("client.crt"));
        secrets.write("kafka", "other.key", &self.others.read("client.key"));
        secrets.write("kafka", "plain", "plain-secret");
        secrets.write("kafka", "wrong", "hush-wrong");
        secrets
    }
}

fn reference(key: &str) -> SecretRef {
    SecretRef {
        name: "kafka".into(),
        key: key.into(),
    }
}

fn tls(ca: &str, client: Option<&str>) -> KafkaTls {
    KafkaTls {
        ca_ref: Some(reference(ca)),
        certificate_ref: client.map(|client| reference(&format!("{client}.crt"))),
        key_ref: client.map(|client| reference(&format!("{client}.key"))),
        key_password_ref: None,
    }
}

fn sasl(mechanism: SaslMechanism, username: &str, password: &str) -> KafkaSasl {
    KafkaSasl {
        mechanism,
        username: username.into(),
        password_ref: reference(password),
    }
}

/// Encrypted, without credentials.
fn ssl(tls: KafkaTls) -> KafkaSecurity {
    KafkaSecurity {
        protocol: Protocol::Ssl,
        tls: Some(tls),
        sasl: None,
    }
}

/// In plain text, with credentials.
fn with_sasl(sasl: KafkaSasl) -> KafkaSecurity {
    KafkaSecurity {
        protocol: Protocol::SaslPlaintext,
        tls: None,
        sasl: Some(sasl),
    }
}

/// Encrypted and with credentials.
fn both(ca: &str, sasl: KafkaSasl) -> KafkaSecurity {
    KafkaSecurity {
        protocol: Protocol::SaslSsl,
        tls: Some(tls(ca, None)),
        sasl: Some(sasl),
    }
}

fn settings(bootstrap: &str, security: &KafkaSecurity, secrets: &SecretFolder) -> Settings {
    let secrets = Secrets::in_folder(secrets.path());
    Settings {
        bootstrap_servers: bootstrap.to_owned(),
        group_id: "secure".into(),
        member: "tests".into(),
        security: Security::read(Some(security), &secrets).unwrap(),
        properties: BTreeMap::new(),
        memory_budget_bytes: 64 << 20,
    }
}

/// A user of SCRAM, made for one test.
fn reader(secure: &Secure, secrets: &SecretFolder) -> String {
    let user = own_name("reader");
    secure.set_password(&user, "scram-secret");
    secrets.write("kafka", "scram", "scram-secret");
    user
}

/// Questions and dead letters get through each listener.
#[test]
fn listeners_open_to_whom_they_should() {
    let secure = secure();
    let secrets = secure.secrets();
    let user = reader(secure, &secrets);
    let topic = secure.broker.topic("secure_listeners", 1);
    let topics = Topics::List(vec![topic.clone()]);
    let scram = |mechanism| both("ca.crt", sasl(mechanism, &user, "scram"));
    let open = [
        (2, ssl(tls("ca.crt", Some("tls")))),
        (3, with_sasl(sasl(SaslMechanism::Plain, "plain", "plain"))),
        (4, scram(SaslMechanism::ScramSha256)),
        (4, scram(SaslMechanism::ScramSha512)),
    ];
    for (place, security) in open {
        let settings = settings(&secure.listener(place), &security, &secrets);
        let inquirer = Inquirer::create(&settings).unwrap();
        let found = inquirer.topics(&topics, PATIENCE).unwrap();
        assert_eq!(found[0].partitions, [0], "{security:?}");
        let mut letters = DeadLetters::create(&settings, &topic).unwrap();
        let at = TopicPartition::new(topic.as_str(), 0);
        let rejected = Rejected {
            at: &at,
            offset: 0,
            timestamp_us: None,
            key: None,
            value: Some(b"x"),
            reason: "test",
            error: "test",
        };
        letters.send(&rejected, std::iter::empty()).unwrap();
        assert_eq!(letters.flush(PATIENCE).unwrap(), 1, "{security:?}");
    }
}

/// Who is refused is told why, the first time and every other, and no secret is shown.
#[test]
fn whoever_is_refused_is_told_why() {
    use Reason::{CertificateUntrusted, CredentialsRefused, HostMismatch, ProtocolMismatch};
    let secure = secure();
    let secrets = secure.secrets();
    let user = reader(secure, &secrets);
    let topic = secure.broker.topic("secure_refusals", 1);
    let topics = Topics::List(vec![topic]);
    let scram = |password: &str| sasl(SaslMechanism::ScramSha512, &user, password);
    let plain = |password: &str| sasl(SaslMechanism::Plain, "plain", password);
    let by_other_name = secure.listener(4).replace("127.0.0.1", "localhost");
    let at = |place| secure.listener(place);
    let refused = [
        (at(4), both("ca.crt", scram("wrong")), CredentialsRefused),
        (at(3), with_sasl(plain("wrong")), CredentialsRefused),
        (at(2), ssl(tls("ca.crt", None)), CredentialsRefused),
        (at(2), ssl(tls("ca.crt", Some("other"))), CredentialsRefused),
        (
            at(4),
            both("other-ca.crt", scram("scram")),
            CertificateUntrusted,
        ),
        (by_other_name, both("ca.crt", scram("scram")), HostMismatch),
        (at(0), ssl(tls("ca.crt", None)), ProtocolMismatch),
        (at(3), both("ca.crt", scram("scram")), ProtocolMismatch),
        (at(4), with_sasl(scram("scram")), ProtocolMismatch),
    ];
    // All at once: each waits for its own time.
    std::thread::scope(|scope| {
        for (bootstrap, security, reason) in &refused {
            let (secrets, topics) = (&secrets, &topics);
            scope.spawn(move || {
                let inquirer = Inquirer::create(&settings(bootstrap, security, secrets)).unwrap();
                for _ in 0..2 {
                    let error = inquirer.topics(topics, ASK).unwrap_err();
                    let told = format!("{security:?} at {bootstrap}: {error}");
                    assert!(!told.contains("hush-wrong"), "{told}");
                    assert_eq!(sink::Error::from(error).reason(), *reason, "{told}");
                }
            });
        }
    });
    // What is no certificate at all is told before a broker is asked.
    let none = ssl(tls("plain", None));
    let error = Inquirer::create(&settings(&at(2), &none, &secrets));
    let error = sink::Error::from(error.err().unwrap());
    assert_eq!(error.reason(), Reason::SecretInvalid);
}

/// A pipeline of key-value rows through a listener; `security` are the fields of the way to it.
fn manifest(
    name: &str,
    (bootstrap, catalog): (String, String),
    topic: &str,
    security: &str,
    namespace: &str,
) -> String {
    let kafka =
        format!("bootstrapServers: '{bootstrap}', topics: [{topic}], security: {{{security}}}");
    let catalog = format!("type: Rest, uri: '{catalog}'");
    manifest_of_rows(name, &kafka, &catalog, &format!("{namespace}.rows"))
}

/// From a missing password over a wrong one to a right one, then to the next one while it runs: each row once, and no secret is shown.
#[test]
fn a_changed_password_is_taken_up_by_a_running_pipeline() {
    let secure = secure();
    let catalog = Catalog::shared();
    let test = "a_changed_password";
    let user = own_name("writer");
    secure.set_password(&user, "hush-first");
    let (topic, namespace) = (secure.broker.topic(test, 1), catalog.namespace(test));
    let secrets = secure.secrets();
    let name = own_name(test);
    let place = (secure.listener(4), catalog.uri());
    let security = format!(
        "protocol: SaslSsl, tls: {{caRef: {{name: kafka, key: ca.crt}}}}, \
         sasl: {{mechanism: ScramSha512, username: {user}, passwordRef: {{name: kafka, key: password}}}}"
    );
    let manifest = manifest(&name, place, &topic, &security, &namespace);
    write(&secure.broker, &topic, 0, 0..100);
    let folder = secrets.path().display().to_string();
    let worker = Worker::run((&name, "one"), &manifest, &[("TIDEMARK_SECRETS", &folder)]);
    let wait_for = |reason: &str| worker.wait_for_reason(reason, PATIENCE);
    let rows = || Some(total_records(&catalog.table(&namespace, "rows")?));
    let total = |wanted: u64| worker.wait_for_rows(wanted, PATIENCE, rows);
    wait_for("SecretMissing");
    secrets.write("kafka", "password", "hush-wrong");
    wait_for("CredentialsRefused");
    secrets.write("kafka", "password", "hush-first");
    total(100);
    // The broker asks whoever connects anew; what is connected stays. So the change itself makes new clients.
    secure.set_password(&user, "hush-second");
    secrets.write("kafka", "password", "hush-second");
    within(
        PATIENCE,
        &format!("a new session, see {}", worker.log().display()),
        || {
            let log = std::fs::read_to_string(worker.log()).unwrap();
            log.contains("a secret has changed").then_some(())
        },
    );
    write(&secure.broker, &topic, 0, 100..200);
    total(200);
    worker.assert_hidden(&["hush-wrong", "hush-first", "hush-second"]);
    assert!(worker.terminate().success());
    let table = catalog.table(&namespace, "rows").unwrap();
    assert_eq!(total_records(&table), 200);
}

/// A running pipeline shows the certificate that the secret holds now, and trusts the authority that it holds now; each row once.
#[test]
fn changed_certificates_are_taken_up_by_a_running_pipeline() {
    let secure = secure();
    let catalog = Catalog::shared();
    let test = "changed_certificates";
    let (topic, namespace) = (secure.broker.topic(test, 1), catalog.namespace(test));
    let secrets = secure.secrets();
    let name = own_name(test);
    let place = (secure.listener(2), catalog.uri());
    let security = "protocol: Ssl, tls: {caRef: {name: client, key: ca.crt}, \
                    certificateRef: {name: client, key: tls.crt}, keyRef: {name: client, key: tls.key}}";
    let show = |authority: &Certificates, client: &Certificates| {
        secrets.write("client", "ca.crt", &authority.read("ca.pem"));
        secrets.write("client", "tls.key", &client.read("client.key"));
        secrets.write("client", "tls.crt", &client.read("client.crt"));
    };
    let (ours, theirs) = (&secure.certificates, &secure.others);
    show(ours, ours);
    write(&secure.broker, &topic, 0, 0..100);
    let folder = secrets.path().display().to_string();
    let worker = Worker::run(
        (&name, "one"),
        &manifest(&name, place, &topic, security, &namespace),
        &[("TIDEMARK_SECRETS", &folder)],
    );
    let total = |wanted: u64| {
        let rows = || Some(total_records(&catalog.table(&namespace, "rows")?));
        assert_eq!(worker.wait_for_rows(wanted, PATIENCE, rows), wanted);
    };
    total(100);
    show(ours, theirs);
    worker.wait_for_reason("CredentialsRefused", PATIENCE);
    write(&secure.broker, &topic, 0, 100..200);
    show(theirs, ours);
    worker.wait_for_reason("CertificateUntrusted", PATIENCE);
    show(ours, ours);
    total(200);
    assert!(worker.terminate().success());
}
