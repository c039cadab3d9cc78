//! The client of the API server: every call counted, and held to a rate and a number at once.
//!
//! kube has no limit of its own, and one operator that starts with ten thousand pipelines would have the API server's queue for
//! itself. A call that is refused is not repeated here: whoever made it has its own back-off, and sees the refusal.

use std::{
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::http::{Method, Request, Response, StatusCode};
use futures::{FutureExt, future::BoxFuture};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder},
};
use tokio::sync::Semaphore;
use tower::{BoxError, Layer, Service};

use super::metrics::OperatorMetrics;
use crate::process::clock::Clock;

/// How long a call may take to be answered; a watch is answered by its first byte.
const TIMEOUT: Duration = Duration::from_mins(1);

/// How fast the API server may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// How many calls a second on average.
    pub rate: u32,
    /// How many at once after a pause.
    pub burst: u32,
    /// How many may be unanswered at the same time.
    pub concurrency: usize,
}

/// A client that counts its calls and keeps to a pace.
///
/// # Errors
/// The configuration cannot be used.
pub fn paced_client(
    mut config: Config,
    pace: Pace,
    clock: &Clock,
    metrics: &OperatorMetrics,
) -> Result<Client, kube::Error> {
    name_crypto_provider();
    config.default_retry = false;
    let limit = PacedLayer {
        gate: Arc::new(Gate {
            clock: clock.clone(),
            seats: Semaphore::new(pace.concurrency),
            bucket: Mutex::new(Bucket::new(pace)),
            metrics: metrics.clone(),
        }),
    };
    Ok(ClientBuilder::try_from(config)?.with_layer(&limit).build())
}

/// Two providers are linked, by the table's libraries and by this client, so one has to be named.
pub fn name_crypto_provider() {
    // The second call finds the choice of the first.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Calls that may be made at once, filled up at a rate.
#[derive(Debug)]
struct Bucket {
    rate: f64,
    burst: f64,
    /// Below nothing: so many have been promised a turn.
    tokens: f64,
    at: Duration,
}

impl Bucket {
    fn new(pace: Pace) -> Self {
        Self {
            rate: f64::from(pace.rate.max(1)),
            burst: f64::from(pace.burst.max(1)),
            tokens: f64::from(pace.burst.max(1)),
            at: Duration::ZERO,
        }
    }

    /// How long the next call has to wait for its turn.
    fn take(&mut self, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * self.rate).min(self.burst) - 1.0;
        self.at = now;
        Duration::from_secs_f64((-self.tokens / self.rate).max(0.0))
    }
}

struct Gate {
    clock: Clock,
    seats: Semaphore,
    bucket: Mutex<Bucket>,
    metrics: OperatorMetrics,
}

#[derive(Clone)]
struct PacedLayer {
    gate: Arc<Gate>,
}

impl<S> Layer<S> for PacedLayer {
    type Service = Paced<S>;

    fn layer(&self, inner: S) -> Paced<S> {
        Paced {
            inner,
            gate: Arc::clone(&self.gate),
        }
    }
}

struct Paced<S> {
    inner: S,
    gate: Arc<Gate>,
}

impl<S, B> Service<Request<Body>> for Paced<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let gate = Arc::clone(&self.gate);
        let (verb, kind) = told(
            request.method(),
            request.uri().path(),
            request.uri().query(),
        );
        // The request is sent when this is first polled, not before.
        let sent = self.inner.call(request);
        async move {
            let turn = {
                let mut bucket = gate.bucket.lock().unwrap_or_else(PoisonError::into_inner);
                bucket.take(gate.clock.monotonic())
            };
            gate.clock.sleep(turn).await;
            let _seat = gate.seats.acquire().await?;
            let answer = tokio::time::timeout(TIMEOUT, sent).await;
            let answer = answer.unwrap_or_else(|_| Err("no answer in time".into()));
            gate.metrics.call(verb, &kind, outcome(&answer));
            answer
        }
        .boxed()
    }
}

fn outcome<B>(answer: &Result<Response<B>, BoxError>) -> &'static str {
    match answer.as_ref().map(Response::status) {
        Ok(status) if status.is_success() => "ok",
        Ok(StatusCode::NOT_FOUND) => "not_found",
        Ok(StatusCode::CONFLICT) => "conflict",
        Ok(StatusCode::GONE) => "gone",
        Ok(StatusCode::TOO_MANY_REQUESTS) => "too_many_requests",
        Ok(status) if status.is_client_error() => "refused",
        Ok(_) => "server_error",
        Err(_) => "no_answer",
    }
}

/// The verb and the kind of a call, as its address says them: `/apis/apps/v1/namespaces/shop/deployments/orders`.
fn told(method: &Method, path: &str, query: Option<&str>) -> (&'static str, String) {
    let mut parts = path.trim_matches('/').split('/');
    // The version stands behind the group; the core has none.
    let skipped = if parts.next() == Some("apis") { 2 } else { 1 };
    let mut rest: Vec<&str> = parts.skip(skipped).collect();
    if rest.first() == Some(&"namespaces") && rest.len() > 2 {
        rest.drain(..2);
    }
    let kind = match rest.as_slice() {
        [resource, _, subresource, ..] => format!("{resource}/{subresource}"),
        [resource, ..] => (*resource).to_owned(),
        [] => String::new(),
    };
    let watches = query.is_some_and(|query| query.split('&').any(|part| part == "watch=true"));
    let verb = match *method {
        Method::GET if watches => "watch",
        Method::GET if rest.len() > 1 => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    };
    (verb, kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_apart_by_verb_and_kind() {
        let cases = [
            (
                Method::GET,
                "/apis/tidemark.dev/v1alpha1/ingestionpipelines",
                Some("limit=500"),
                "list",
                "ingestionpipelines",
            ),
            (
                Method::GET,
                "/api/v1/pods",
                Some("watch=true&timeoutSeconds=290"),
                "watch",
                "pods",
            ),
            (
                Method::GET,
                "/api/v1/namespaces",
                None,
                "list",
                "namespaces",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/shop",
                None,
                "get",
                "namespaces",
            ),
            (
                Method::PATCH,
                "/apis/apps/v1/namespaces/shop/deployments/orders",
                Some("fieldManager=tidemark"),
                "patch",
                "deployments",
            ),
            (
                Method::PATCH,
                "/apis/tidemark.dev/v1alpha1/namespaces/shop/ingestionpipelines/orders/status",
                None,
                "patch",
                "ingestionpipelines/status",
            ),
            (
                Method::POST,
                "/api/v1/namespaces/shop/events",
                None,
                "create",
                "events",
            ),
            (
                Method::DELETE,
                "/api/v1/namespaces/shop/configmaps/a",
                None,
                "delete",
                "configmaps",
            ),
        ];
        for (method, path, query, verb, kind) in cases {
            assert_eq!(
                told(&method, path, query),
                (verb, kind.to_owned()),
                "{path}"
            );
        }
    }

    #[test]
    fn burst_goes_at_once_and_the_rest_at_the_rate() {
        let pace = Pace {
            rate: 10,
            burst: 3,
            concurrency: 1,
        };
        let mut bucket = Bucket::new(pace);
        let mut waits = || {
            (0..5)
                .map(|_| bucket.take(Duration::from_secs(1)).as_millis())
                .collect::<Vec<_>>()
        };
        assert_eq!(waits(), [0, 0, 0, 100, 200]);
        assert_eq!(waits(), [300, 400, 500, 600, 700]);
    }
}
