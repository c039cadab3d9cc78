//! What every client of ours that speaks TLS by itself has in common: whom it trusts, and what is wrong where it does not.
//!
//! Trusted are the authorities that browsers know, built in, so that an image needs none of its own, and beside them those of
//! a secret or a file. These are read again with each connection: a changed one is in force with the next.

use std::error::Error as StdError;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fmt, fs, io};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore,
    SignatureScheme,
};

use super::secret::Secrets;
use crate::api::worker::SecretRef;

/// Time until a server must have taken the connection.
const CONNECT: Duration = Duration::from_secs(10);

/// Unused connections are closed before most servers do it.
const IDLE: Duration = Duration::from_secs(30);

/// Why the certificate of a server is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is signed by nobody who is trusted, or its time is over.
    #[error("it is signed by nobody who is trusted, or its time is over: {0}")]
    Untrusted(String),
    /// It is in order, and that of another host.
    #[error("it is made for another host: {0}")]
    OtherHost(String),
    /// What it should be held against holds no certificates.
    #[error("{0}")]
    Unusable(String),
}

/// Where certificates of authorities are, in PEM, and the field that says so.
#[derive(Debug, Clone)]
pub struct Authorities {
    field: &'static str,
    place: Place,
}

#[derive(Debug, Clone)]
enum Place {
    Secret(SecretRef, Secrets),
    File(PathBuf),
}

impl Authorities {
    /// Those of a secret that a field of a specification names.
    #[must_use]
    pub fn of_secret(field: &'static str, reference: &SecretRef, secrets: &Secrets) -> Self {
        let place = Place::Secret(reference.clone(), secrets.clone());
        Self { field, place }
    }

    /// Those of a file that a flag names.
    #[must_use]
    pub fn of_file(flag: &'static str, path: PathBuf) -> Self {
        let place = Place::File(path);
        Self { field: flag, place }
    }

    fn read(&self) -> Result<String, Fault> {
        let field = self.field;
        match &self.place {
            Place::Secret(reference, secrets) => secrets
                .read(reference)
                .map(|secret| secret.expose().to_owned())
                .map_err(|error| Fault::Unusable(format!("{field}: {error}"))),
            Place::File(path) => fs::read_to_string(path).map_err(|error| {
                let path = path.display();
                Fault::Unusable(format!("{field}: \"{path}\" cannot be read: {error}"))
            }),
        }
    }

    /// The authorities that browsers know, and those of `text`.
    fn roots(&self, text: &str) -> Result<RootCertStore, Fault> {
        let mut roots = known();
        let unusable = |detail: String| {
            let field = self.field;
            Fault::Unusable(format!(
                "{field} holds no certificates{detail}; write them in PEM"
            ))
        };
        let before = roots.len();
        for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
            let certificate = certificate.map_err(|error| unusable(format!(" ({error})")))?;
            let added = roots.add(certificate);
            added.map_err(|error| unusable(format!(" ({error})")))?;
        }
        if roots.len() == before {
            return Err(unusable(String::new()));
        }
        Ok(roots)
    }
}

/// The authorities that browsers know.
fn known() -> RootCertStore {
    RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The settings of a client that trusts these and has no certificate of its own.
///
/// # Errors
/// The provider knows no version of the protocol that is safe.
pub(crate) fn client(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    Ok(ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

/// The settings of a client that trusts the authorities that browsers know, and these beside them.
///
/// # Errors
/// As [`client`].
fn trusting(own: Option<Authorities>) -> Result<ClientConfig, rustls::Error> {
    let mut settings = client(known())?;
    if let Some(authorities) = own {
        let verifier = Verifier {
            authorities,
            provider: provider(),
            current: Mutex::new(None),
        };
        settings
            .dangerous()
            .set_certificate_verifier(Arc::new(verifier));
        // A session that is taken up again is not looked at again: authorities that were taken away would stay trusted.
        settings.resumption = rustls::client::Resumption::disabled();
    }
    Ok(settings)
}

/// An HTTP client that is yet to be made, which trusts these beside the authorities that browsers know.
///
/// # Errors
/// As [`client`].
pub(crate) fn http(own: Option<Authorities>) -> Result<reqwest::ClientBuilder, rustls::Error> {
    Ok(reqwest::Client::builder()
        .use_preconfigured_tls(trusting(own)?)
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE))
}

/// The usual verifier of certificates, made anew where the authorities have changed.
struct Verifier {
    authorities: Authorities,
    provider: Arc<CryptoProvider>,
    /// The certificates as they were last read, and what trusts them.
    current: Mutex<Option<(String, Arc<WebPkiServerVerifier>)>>,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("authorities", &self.authorities)
            .finish_non_exhaustive()
    }
}

impl Verifier {
    fn current(&self) -> Result<Arc<WebPkiServerVerifier>, Fault> {
        let text = self.authorities.read()?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, verifier)) = &*current
            && *known == text
        {
            return Ok(Arc::clone(verifier));
        }
        let roots = Arc::new(self.authorities.roots(&text)?);
        let made = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&self.provider));
        let verifier = made
            .build()
            .map_err(|error| Fault::Unusable(format!("{}: {error}", self.authorities.field)))?;
        *current = Some((text, Arc::clone(&verifier)));
        Ok(verifier)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verifier = self.current();
        let verifier = verifier.map_err(|fault| rustls::Error::Other(OtherError(Arc::new(fault))));
        verifier?.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let known = &self.provider.signature_verification_algorithms;
        known.supported_schemes()
    }
}

/// Whether a certificate is in order but for the host, which is another one.
pub(crate) fn is_other_host(problem: &CertificateError) -> bool {
    matches!(
        problem,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
    )
}

/// An error and what caused it, one after the other.
pub(crate) fn causes<'e>(
    error: &'e (dyn StdError + 'static),
) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error: &&'e (dyn StdError + 'static)| {
        (*error).source()
    })
}

/// What is wrong with the certificate of a server, where that is among the causes of an error.
#[must_use]
pub fn fault(error: &(dyn StdError + 'static)) -> Option<Fault> {
    causes(error).find_map(fault_of)
}

fn fault_of(cause: &(dyn StdError + 'static)) -> Option<Fault> {
    let mut cause = cause;
    // What comes up from a connection is packed into an `io::Error`, even twice, which does not name its content as its cause.
    while let Some(inner) = cause
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref)
    {
        cause = inner;
    }
    if let Some(fault) = cause.downcast_ref::<Fault>() {
        return Some(fault.clone());
    }
    match cause.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(problem) if is_other_host(problem) => {
            Some(Fault::OtherHost(problem.to_string()))
        }
        rustls::Error::InvalidCertificate(problem) => Some(Fault::Untrusted(problem.to_string())),
        rustls::Error::Other(OtherError(other)) => other.downcast_ref::<Fault>().cloned(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authorities(folder: &std::path::Path) -> Authorities {
        let reference = SecretRef {
            name: "ca".into(),
            key: "ca.crt".into(),
        };
        Authorities::of_secret("sink.caRef", &reference, &Secrets::in_folder(folder))
    }

    #[test]
    fn certificates_that_are_none_are_told() {
        let authorities = authorities(std::path::Path::new("/nowhere"));
        for text in [
            "",
            "hush",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            let told = authorities.roots(text).unwrap_err().to_string();
            assert!(
                told.contains("sink.caRef") && told.contains("PEM"),
                "{told}"
            );
            assert!(!told.contains("hush"), "{told}");
        }
        let told = authorities.read().unwrap_err().to_string();
        assert!(told.contains("/nowhere/ca/ca.crt"), "{told}");
        assert!(known().len() > 50);
        http(None).unwrap().build().unwrap();
    }

    /// As reqwest's client packs it.
    #[test]
    fn a_fault_is_found_however_deep_it_is_packed() {
        let packed = |error: rustls::Error| {
            let inner = io::Error::new(io::ErrorKind::InvalidData, error);
            io::Error::other(io::Error::other(inner))
        };
        let issuer = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        assert!(matches!(fault(&packed(issuer)), Some(Fault::Untrusted(_))));
        let host = rustls::Error::InvalidCertificate(CertificateError::NotValidForName);
        assert!(matches!(fault(&packed(host)), Some(Fault::OtherHost(_))));
        let unusable = Fault::Unusable("none".into());
        let own = rustls::Error::Other(OtherError(Arc::new(unusable.clone())));
        assert_eq!(fault(&packed(own)), Some(unusable));
        assert_eq!(fault(&packed(rustls::Error::HandshakeNotComplete)), None);
    }
}
