//! The connections to a store.

use std::sync::LazyLock;

use futures::stream;
use http::{HeaderMap, Method, Request, Response};
use opendal::raw::{HttpBody, HttpFetch, parse_content_encoding, parse_content_length};
use opendal::{Buffer, ErrorKind};
use reqwest::Client;

use crate::process::tls::{self, Authorities};

/// The client of a store; or why there is none.
pub(super) struct Connections(Result<Client, String>);

impl Connections {
    /// Connections to whoever is trusted by browsers, or by these.
    pub(super) fn trusting(own: Option<Authorities>) -> Self {
        let made = tls::http(own).map_err(|error| error.to_string());
        Self(made.and_then(|client| client.build().map_err(|error| error.to_string())))
    }

    fn client(&self) -> opendal::Result<&Client> {
        self.0.as_ref().map_err(|problem| {
            let problem = format!("no HTTP client for the store: {problem}");
            opendal::Error::new(ErrorKind::ConfigInvalid, problem)
        })
    }
}

impl HttpFetch for Connections {
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
    if tls::fault(&error).is_some() {
        error.set_permanent()
    } else {
        error.set_temporary()
    }
}
