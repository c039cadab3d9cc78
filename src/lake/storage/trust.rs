//! The connections to a store, and whom they trust.
//!
//! The roots are those that browsers have, built in, so that an image needs none of its own, and beside them the certificates
//! of `caRef`. These are read again with each request: a changed file is in force with the next one.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use futures::stream;
use http::{HeaderMap, Method, Request, Response};
use opendal::raw::{HttpBody, HttpFetch, parse_content_encoding, parse_content_length};
use opendal::{Buffer, ErrorKind};
use reqwest::Client;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::fault::is_untrusted;
use crate::api::worker::SecretRef;
use crate::process::secret::Secrets;
use crate::process::tls;

/// Time until a store must have taken the connection.
const CONNECT: Duration = Duration::from_secs(10);

/// Unused connections are closed before most stores do it.
const IDLE: Duration = Duration::from_secs(30);

/// The client of a store.
pub(super) struct Trust {
    ca: Option<SecretRef>,
    secrets: Secrets,
    /// The certificates of `ca` as they were last read, and the client that trusts them.
    current: Mutex<Option<(Option<String>, Client)>>,
}

impl Trust {
    pub(super) fn new(ca: Option<SecretRef>, secrets: Secrets) -> Self {
        Self {
            ca,
            secrets,
            current: Mutex::new(None),
        }
    }

    /// The client, made anew where the certificates have changed.
    fn client(&self) -> opendal::Result<Client> {
        let failed = |problem: String| opendal::Error::new(ErrorKind::ConfigInvalid, problem);
        let read = self
            .ca
            .as_ref()
            .map(|reference| self.secrets.read(reference))
            .transpose()
            .map_err(|error| failed(format!("sink.catalog.storage.caRef: {error}")))?;
        let text = read.map(|secret| secret.expose().to_owned());
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, client)) = &*current
            && *known == text
        {
            return Ok(client.clone());
        }
        let roots = roots(text.as_deref()).map_err(failed)?;
        let client = client(roots).map_err(failed)?;
        *current = Some((text, client.clone()));
        Ok(client)
    }
}

impl HttpFetch for Trust {
    /// The client of `opendal` 0.57 asks the system for its roots when it is made, and cannot be made without any.
    async fn fetch(&self, request: Request<Buffer>) -> opendal::Result<Response<HttpBody>> {
        let (head, body) = request.into_parts();
        let uri = head.uri.clone();
        let url = uri.to_string();
        let mut sent = self
            .client()?
            .request(head.method.clone(), &url)
            .headers(head.headers);
        if !body.is_empty() {
            sent = sent.body(body.to_bytes());
        }
        let mut answer = sent.send().await.map_err(|error| failed("asked", error))?;
        let length = body_length(&head.method, answer.headers())?;
        let mut response = Response::builder().status(answer.status()).extension(uri);
        if let Some(headers) = response.headers_mut() {
            std::mem::swap(headers, answer.headers_mut());
        }
        let chunks = stream::try_unfold(answer, |mut answer| async {
            let chunk = answer.chunk().await;
            let chunk = chunk.map_err(|error| failed("read", error))?;
            Ok(chunk.map(|chunk| (Buffer::from(chunk), answer)))
        });
        response
            .body(HttpBody::new(Box::pin(chunks), length))
            .map_err(|error| {
                opendal::Error::new(ErrorKind::Unexpected, "an answer of the store")
                    .set_source(error)
            })
    }
}

/// Whether `opendal` 0.57 can be used at all: it makes a client of its own before it takes another one, and one without any
/// certificate of the system ends the program. Goes with the version that asks before.
pub(super) fn has_roots() -> Result<(), &'static str> {
    static MADE: LazyLock<bool> =
        LazyLock::new(|| reqwest_opendal::Client::builder().build().is_ok());
    let missing = "this system has no certificates of authorities, without which no store is opened; \
                   install ca-certificates, or name a file with them in the variable SSL_CERT_FILE";
    MADE.then_some(()).ok_or(missing)
}

/// How long the body is, where that can be held against what comes.
fn body_length(method: &Method, headers: &HeaderMap) -> opendal::Result<Option<u64>> {
    if *method == Method::HEAD || parse_content_encoding(headers)?.is_some() {
        return Ok(None);
    }
    parse_content_length(headers)
}

/// A request that failed on its way may come through the next time; not so where the store is not who it says it is.
fn failed(doing: &'static str, error: reqwest::Error) -> opendal::Error {
    let error = opendal::Error::new(ErrorKind::Unexpected, "the store cannot be reached")
        .with_operation(doing)
        .set_source(error);
    if is_untrusted(&error) {
        error.set_permanent()
    } else {
        error.set_temporary()
    }
}

/// The built-in roots, and these certificates.
fn roots(own: Option<&str>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    let Some(own) = own else {
        return Ok(roots);
    };
    let problem = "sink.catalog.storage.caRef holds no certificates; write them in PEM";
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(own.as_bytes()) {
        let certificate = certificate.map_err(|error| format!("{problem} ({error})"))?;
        let added = roots.add(certificate);
        added.map_err(|error| format!("{problem} ({error})"))?;
        count += 1;
    }
    if count == 0 {
        return Err(problem.to_owned());
    }
    Ok(roots)
}

fn client(roots: RootCertStore) -> Result<Client, String> {
    let tls = tls::client(roots).map_err(|error| error.to_string())?;
    Client::builder()
        .use_preconfigured_tls(tls)
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE)
        .build()
        .map_err(|error| format!("no HTTP client for the store: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_that_are_none_are_told() {
        for text in [
            "",
            "hush",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            let told = roots(Some(text)).unwrap_err();
            assert!(told.contains("caRef") && told.contains("PEM"), "{told}");
            assert!(!told.contains("hush"), "{told}");
        }
        assert!(roots(None).unwrap().len() > 50);
        client(roots(None).unwrap()).unwrap();
    }
}
