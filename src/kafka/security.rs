//! How the brokers are reached: encrypted or not, and as whom.
//!
//! Comes in: what a specification says, its secrets read. Goes out: options of librdkafka, and what its errors mean: it has one
//! code for every certificate that it does not take, so that the broker is asked once more for its certificate where it matters
//! which.
//!
//! A secret is never part of an error: librdkafka is handed each by a call that says nothing of its value.

use std::fmt;
use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConnection, RootCertStore};

use super::{Code, Error};
use crate::api::worker::{self, Protocol, SaslMechanism, SecretRef};
use crate::process::secret::{self, Secret, Secrets};
use crate::process::tls::{self, is_other_host};

/// How long a broker may take to show its certificate, when it is asked only for that.
const SHOW: Duration = Duration::from_secs(3);

/// How the brokers are reached, with every secret read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Security {
    protocol: Protocol,
    ca: Option<Secret>,
    certificate: Option<Secret>,
    key: Option<Secret>,
    key_password: Option<Secret>,
    sasl: Option<Sasl>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Sasl {
    mechanism: SaslMechanism,
    username: String,
    password: Secret,
}

impl Default for Security {
    /// In plain text, as nobody.
    fn default() -> Self {
        Self {
            protocol: Protocol::Plaintext,
            ca: None,
            certificate: None,
            key: None,
            key_password: None,
            sasl: None,
        }
    }
}

impl Security {
    /// What a specification says, its secrets where this process has them now.
    ///
    /// # Errors
    /// The first secret that cannot be read.
    pub fn read(
        security: Option<&worker::KafkaSecurity>,
        secrets: &Secrets,
    ) -> Result<Self, secret::Error> {
        let Some(security) = security else {
            return Ok(Self::default());
        };
        let read = |reference: &Option<SecretRef>| {
            let reference = reference.as_ref();
            reference
                .map(|reference| secrets.read(reference))
                .transpose()
        };
        let tls = security.tls.clone().unwrap_or_default();
        let sasl = security.sasl.as_ref().map(|sasl| {
            Ok(Sasl {
                mechanism: sasl.mechanism,
                username: sasl.username.clone(),
                password: secrets.read(&sasl.password_ref)?,
            })
        });
        Ok(Self {
            protocol: security.protocol,
            ca: read(&tls.ca_ref)?,
            certificate: read(&tls.certificate_ref)?,
            key: read(&tls.key_ref)?,
            key_password: read(&tls.key_password_ref)?,
            sasl: sasl.transpose()?,
        })
    }

    /// Puts everything into a client's options.
    pub(super) fn apply(&self, config: &mut ClientConfig) {
        let protocol = match self.protocol {
            // Nothing to say: librdkafka's own default.
            Protocol::Plaintext => return,
            Protocol::Ssl => "ssl",
            Protocol::SaslPlaintext => "sasl_plaintext",
            Protocol::SaslSsl => "sasl_ssl",
        };
        config.set("security.protocol", protocol);
        let secrets = [
            ("ssl.ca.pem", &self.ca),
            ("ssl.certificate.pem", &self.certificate),
            ("ssl.key.pem", &self.key),
            ("ssl.key.password", &self.key_password),
        ];
        for (name, secret) in secrets {
            if let Some(secret) = secret {
                config.set(name, secret.expose());
            }
        }
        if let Some(sasl) = &self.sasl {
            let mechanism = match sasl.mechanism {
                SaslMechanism::Plain => "PLAIN",
                SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
                SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
            };
            config
                .set("sasl.mechanisms", mechanism)
                .set("sasl.username", &sasl.username)
                .set("sasl.password", sasl.password.expose());
        }
    }

    /// Certificates and a key that librdkafka cannot take make no client; the values are not shown.
    pub(super) fn faults(&self) -> Option<Error> {
        let unfit =
            |field: &'static str, problem: &'static str| Error::SecretInvalid { field, problem };
        let pem = |secret: &Option<Secret>, mark: &str| {
            secret
                .as_ref()
                .is_some_and(|secret| !secret.expose().contains(mark))
        };
        if pem(&self.ca, "-----BEGIN CERTIFICATE-----") {
            return Some(unfit("tls.caRef", "holds no certificate in PEM"));
        }
        if pem(&self.certificate, "-----BEGIN CERTIFICATE-----") {
            return Some(unfit("tls.certificateRef", "holds no certificate in PEM"));
        }
        if pem(&self.key, "PRIVATE KEY-----") {
            return Some(unfit("tls.keyRef", "holds no private key in PEM"));
        }
        let password = self.sasl.as_ref().map(|sasl| &sasl.password);
        let all = [
            ("tls.caRef", self.ca.as_ref()),
            ("tls.certificateRef", self.certificate.as_ref()),
            ("tls.keyRef", self.key.as_ref()),
            ("tls.keyPasswordRef", self.key_password.as_ref()),
            ("sasl.passwordRef", password),
        ];
        let zero = |(_, secret): &&(&str, Option<&Secret>)| {
            secret.is_some_and(|secret| secret.expose().contains('\0'))
        };
        let (field, _) = all.iter().find(zero)?;
        Some(unfit(field, "holds a zero byte, which no client takes"))
    }

    /// What is wrong with the certificate of the first broker that shows one. `None`: it is in order, or nobody shows one.
    pub(super) fn certificate_fault(&self, bootstrap_servers: &str) -> Option<CertificateFault> {
        let mut roots = RootCertStore::empty();
        match &self.ca {
            Some(ca) => {
                for certificate in CertificateDer::pem_slice_iter(ca.expose().as_bytes()).flatten()
                {
                    roots.add(certificate).ok();
                }
            }
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        }
        shown(bootstrap_servers, roots)
    }

    /// Whether a broker shows a certificate where this client speaks in plain text: it then answers nothing at all.
    pub(super) fn meets_tls(&self, bootstrap_servers: &str) -> bool {
        let (encrypted, _) = self.protocol.asks_for();
        // Nobody is trusted here, so that any certificate is a fault.
        !encrypted && shown(bootstrap_servers, RootCertStore::empty()).is_some()
    }
}

/// What is wrong with the first certificate that a broker shows to somebody who trusts these.
fn shown(bootstrap_servers: &str, roots: RootCertStore) -> Option<CertificateFault> {
    let config = Arc::new(tls::client(roots).ok()?);
    bootstrap_servers
        .split(',')
        .find_map(|address| show(address.trim(), &config))
}

/// What is wrong with a broker's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateFault {
    /// It is another host's.
    OtherHost,
    /// Its time is over, or has not come.
    Outdated,
    /// It is signed by nobody who is trusted, or not as it should be.
    Unknown,
}

impl fmt::Display for CertificateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherHost => "it is made for another host",
            Self::Outdated => "its time is over, or has not come yet",
            Self::Unknown => "it is signed by nobody who is trusted",
        })
    }
}

/// Asks one broker for its certificate. One that shows none says nothing about others.
fn show(address: &str, config: &Arc<rustls::ClientConfig>) -> Option<CertificateFault> {
    let (host, _) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned()).ok()?;
    let place = address.to_socket_addrs().ok()?.next()?;
    let mut stream = TcpStream::connect_timeout(&place, SHOW).ok()?;
    stream.set_read_timeout(Some(SHOW)).ok()?;
    stream.set_write_timeout(Some(SHOW)).ok()?;
    let mut connection = ClientConnection::new(Arc::clone(config), name).ok()?;
    while connection.is_handshaking() {
        let error = match connection.complete_io(&mut stream) {
            Ok(_) => continue,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => error,
        };
        let inner = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        let rustls::Error::InvalidCertificate(fault) = inner else {
            return None;
        };
        return Some(match fault {
            fault if is_other_host(fault) => CertificateFault::OtherHost,
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => CertificateFault::Outdated,
            _ => CertificateFault::Unknown,
        });
    }
    None
}

/// What an error of librdkafka means that comes from how the brokers are reached; `None`: it is something else.
///
/// Codes say it where they can. Where one code stands for several faults, OpenSSL's own number of an error and the words that
/// librdkafka 2.12 adds are looked for; without them the fault stays what the code says.
pub(super) fn fault(code: Code, detail: &str) -> Option<Error> {
    let detail = detail.to_owned();
    let says = |words: &str| detail.contains(words);
    if code.is_authentication() {
        return Some(Error::CredentialsRefused { detail });
    }
    // The broker has looked at the client's certificate, or misses it, and answers by an alert: with TLS 1.3 only after the handshake.
    let alerted = says("SSL alert number") || says("client SSL authentication");
    let is_tls = [Code::SSL, Code::TRANSPORT].contains(&code);
    if is_tls && alerted {
        return Some(Error::CredentialsRefused { detail });
    }
    if is_tls {
        // The client has looked at the broker's certificate and does not take it.
        if says("0A000086") || says("certificate verify failed") {
            return Some(Error::Untrusted {
                detail,
                fault: None,
            });
        }
        // Bytes that are no TLS at all.
        if says("wrong version number") || says("0A00010B") || says("packet length too long") {
            return Some(Error::OtherProtocol { detail });
        }
    }
    let mismatch = says("security.protocol") || says("PLAINTEXT broker listener");
    (code == Code::TRANSPORT && mismatch).then_some(Error::OtherProtocol { detail })
}

/// Whether an error only says once more, in fewer words, that it goes on as before: no broker is left, or one has ended a connection
/// before it was agreed how to speak on it. It does not take back what was told of that.
pub(super) fn follows(code: Code, detail: &str) -> bool {
    code == Code::ALL_BROKERS_DOWN || detail.contains("in state SSL_HANDSHAKE")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(protocol: Protocol) -> Security {
        Security {
            protocol,
            ca: Some(Secret::new("-----BEGIN CERTIFICATE-----")),
            certificate: None,
            key: None,
            key_password: None,
            sasl: Some(Sasl {
                mechanism: SaslMechanism::ScramSha512,
                username: "reader".into(),
                password: Secret::new("hush"),
            }),
        }
    }

    #[test]
    fn security_becomes_options_and_shows_no_secret() {
        let security = said(Protocol::SaslSsl);
        let mut config = ClientConfig::new();
        security.apply(&mut config);
        let options = [
            "security.protocol",
            "sasl.mechanisms",
            "sasl.username",
            "sasl.password",
        ]
        .map(|name| config.get(name).unwrap());
        assert_eq!(options, ["sasl_ssl", "SCRAM-SHA-512", "reader", "hush"]);
        assert!(!format!("{security:?}").contains("hush"));
        let mut plain = ClientConfig::new();
        Security::default().apply(&mut plain);
        assert_eq!(plain.get("security.protocol"), None);
    }

    /// A client that cannot be made says only what OpenSSL thinks of it.
    #[test]
    fn secrets_of_the_wrong_kind_are_named_by_their_field() {
        let mut security = said(Protocol::SaslSsl);
        assert!(security.faults().is_none());
        security.key = Some(Secret::new("hush"));
        let told = security.faults().unwrap().to_string();
        assert!(told.contains("keyRef") && !told.contains("hush"), "{told}");
        security.key = None;
        if let Some(sasl) = &mut security.sasl {
            sasl.password = Secret::new("hu\0sh");
        }
        let told = security.faults().unwrap().to_string();
        assert!(told.contains("passwordRef"), "{told}");
    }

    #[test]
    fn errors_of_the_way_to_the_brokers_have_names() {
        let named = |code: Code, detail: &str| {
            let found = fault(code, detail);
            found.map(|error| error.reason())
        };
        assert_eq!(
            named(Code::AUTHENTICATION, "SASL authentication error"),
            Some("CredentialsRefused")
        );
        assert_eq!(
            named(
                Code::SSL,
                "SSL handshake failed: error:0A000086:SSL routines::certificate verify failed"
            ),
            Some("Untrusted")
        );
        assert_eq!(
            named(
                Code::SSL,
                "ssl/record: error:0A000412:SSL routines::ssl/tls alert bad certificate: SSL alert number 42"
            ),
            Some("CredentialsRefused")
        );
        assert_eq!(
            named(
                Code::TRANSPORT,
                "ssl/record/rec_layer_s3.c:907: error:0A00045C:SSL routines::tlsv13 alert certificate required: SSL alert number 116"
            ),
            Some("CredentialsRefused")
        );
        assert_eq!(named(Code::TRANSPORT, "Connection refused"), None);
        assert_eq!(
            named(
                Code::TRANSPORT,
                "Disconnected while requesting ApiVersion: might be caused by incorrect security.protocol configuration"
            ),
            Some("OtherProtocol")
        );
    }
}
