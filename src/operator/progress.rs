//! Asks the workers what they do: every one about every 20 s, at its own moment, a bounded number at once.
//!
//! Comes in: the addresses of ready pods, as the index has them at that moment. Goes out: what each said of its pipelines, by uid.
//!
//! Nothing that a worker answers is trusted: an answer has a greatest length and a greatest duration, what cannot be read of one
//! pipeline hides no other, fields and reasons of other versions are borne, and a claim beyond the present is none.

use std::{
    collections::{BTreeMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use reqwest::header::CONNECTION;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    counts::{Counts, Polled},
    status::Said,
};
use crate::{api::worker::PipelineProgress, process::clock::Clock, sensor::chain};

/// How often every worker is asked where nothing else is said, and at least.
pub const ROUND: Duration = Duration::from_secs(20);

/// How long a worker may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How many workers are asked at once: ten thousand in 20 s are 500 a second, of 100 ms each.
const AT_ONCE: usize = 64;

/// Up to so many workers each keep a connection from one round to the next. With more of them none does: to connect anew costs a
/// little time, but a pod has 1,024 descriptors where its runtime says nothing else, and readers need some.
const KEPT: usize = 400;

/// The longest answer: a thousand pipelines with a hundred partitions each.
const LONGEST: usize = 16 << 20;

/// How far beyond the present a claim may lie before its worker's clock, or the worker, is wrong.
const SKEW_US: i64 = 5 * 60 * 1_000_000;

/// Every epoch that a table can have counted up to, and a JSON number can hold.
const GREATEST_EPOCH: u64 = 1 << 53;

/// How many terms a claim may name.
const MOST_TERMS: usize = 16;

/// A worker to ask.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// The namespace of its pod.
    pub namespace: String,
    /// The name of its pod.
    pub worker: String,
    /// Where its admin server is.
    pub address: SocketAddr,
}

/// What came of asking one.
#[derive(Debug, Clone)]
pub struct Heard {
    /// Whom.
    pub target: Target,
    /// When, µs.
    pub at_us: i64,
    /// What it said of each pipeline that it has loaded, by uid; `None`: it did not answer.
    pub said: Option<BTreeMap<String, Said>>,
}

/// Why a worker's answer is none.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("no connection, or no answer in time")]
    Unreachable(#[source] reqwest::Error),
    #[error("HTTP status {0}")]
    Refused(u16),
    #[error("an answer of more than {LONGEST} bytes")]
    TooLong,
    #[error("an answer that is no progress")]
    Unreadable(#[source] serde_json::Error),
}

impl Error {
    fn outcome(&self) -> Polled {
        match self {
            Self::Unreachable(_) => Polled::Unreachable,
            Self::Refused(_) => Polled::Refused,
            Self::TooLong | Self::Unreadable(_) => Polled::Unreadable,
        }
    }
}

/// What is read of an answer.
#[derive(Deserialize)]
struct Answer {
    pipelines: BTreeMap<String, PipelineProgress>,
}

/// The same where some of it cannot be read: of each pipeline whatever is there, so that one hides no other.
#[derive(Deserialize)]
struct Pieces {
    pipelines: BTreeMap<String, Value>,
}

/// Whom to ask, as it is at this moment.
pub type Targets = Arc<dyn Fn() -> Vec<Target> + Send + Sync>;

/// Asks workers.
#[derive(Clone)]
pub struct Poller {
    client: reqwest::Client,
    clock: Clock,
    counts: Counts,
    every: Duration,
    /// Those who have been asked and have not answered yet.
    asked: Arc<Mutex<HashSet<SocketAddr>>>,
    /// Whether connections are kept from one round to the next.
    keeps: Arc<AtomicBool>,
}

impl std::fmt::Debug for Poller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Poller")
    }
}

impl Poller {
    /// A poller without connections. `every`: how often each worker is asked.
    ///
    /// # Errors
    /// The HTTP client cannot be set up.
    pub fn new(clock: Clock, counts: Counts, every: Duration) -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder()
            .connect_timeout(clock.real(CONNECT_TIMEOUT))
            .timeout(clock.real(ANSWER_TIMEOUT))
            // A connection outlives a round, so that each worker keeps one, where they are not too many.
            .pool_idle_timeout(clock.real(ROUND * 3))
            .pool_max_idle_per_host(1)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()?;
        Ok(Self {
            client,
            clock,
            counts,
            every,
            asked: Arc::default(),
            keeps: Arc::new(AtomicBool::new(true)),
        })
    }

    /// Asks all that `targets` names, round after round, until `stop`.
    pub async fn run(self, targets: Targets, heard: mpsc::Sender<Heard>, stop: CancellationToken) {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        loop {
            let began = self.clock.monotonic();
            let targets = targets();
            self.keeps.store(targets.len() <= KEPT, Ordering::Relaxed);
            for (moment, target) in moments(targets, self.every) {
                let wait = (began + moment).saturating_sub(self.clock.monotonic());
                let place = tokio::select! {
                    () = stop.cancelled() => return,
                    place = async {
                        if !wait.is_zero() {
                            self.clock.sleep(wait).await;
                        }
                        Arc::clone(&places).acquire_owned().await
                    } => place,
                };
                if !self.asks(target.address) {
                    continue;
                }
                let (poller, heard) = (self.clone(), heard.clone());
                tokio::spawn(async move {
                    let answer = poller.ask(&target).await;
                    poller.has_asked(target.address);
                    // Whoever listened has gone: so does the poller, soon.
                    let _ = heard.send(answer).await;
                    drop(place);
                });
            }
            let left = (began + self.every).saturating_sub(self.clock.monotonic());
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.clock.sleep(left) => {}
            }
        }
    }

    /// Asks one.
    pub async fn ask(&self, target: &Target) -> Heard {
        let fetched = self.fetch(target.address).await;
        let at_us = self.clock.now_us();
        let said = match fetched.and_then(|body| read(&body, at_us)) {
            Ok(said) => {
                self.counts.polled(Polled::Answered);
                Some(said)
            }
            Err(error) => {
                self.counts.polled(error.outcome());
                let (worker, error) = (&target.worker, chain(&error));
                debug!(worker, error, "a worker does not say what it does");
                None
            }
        };
        Heard {
            target: target.clone(),
            at_us,
            said,
        }
    }

    async fn fetch(&self, address: SocketAddr) -> Result<Vec<u8>, Error> {
        let url = format!("http://{address}/progress");
        let mut asked = self.client.get(url);
        if !self.keeps.load(Ordering::Relaxed) {
            asked = asked.header(CONNECTION, "close");
        }
        let sent = asked.send().await;
        let mut response = sent.map_err(Error::Unreachable)?;
        if !response.status().is_success() {
            return Err(Error::Refused(response.status().as_u16()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(Error::Unreachable)? {
            if body.len() + chunk.len() > LONGEST {
                return Err(Error::TooLong);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn asks(&self, address: SocketAddr) -> bool {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.insert(address)
    }

    fn has_asked(&self, address: SocketAddr) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.remove(&address);
    }
}

/// Each worker's own moment within a round, in order: spread over it, and the same in every round.
fn moments(targets: Vec<Target>, round: Duration) -> Vec<(Duration, Target)> {
    let mut moments: Vec<(Duration, Target)> = targets
        .into_iter()
        .map(|target| {
            let mut hasher = DefaultHasher::new();
            target.hash(&mut hasher);
            // A little less than a round: the last ones still end in it.
            (
                round.mul_f64(0.95).mul_f64(fraction(hasher.finish())),
                target,
            )
        })
        .collect();
    moments.sort_by_key(|(moment, _)| *moment);
    moments
}

/// A hash as a number from 0 up to 1.
fn fraction(hash: u64) -> f64 {
    f64::from(u32::try_from(hash >> 32).unwrap_or(u32::MAX)) / f64::from(u32::MAX)
}

/// Reads an answer: what it says of each pipeline.
fn read(body: &[u8], now_us: i64) -> Result<BTreeMap<String, Said>, Error> {
    if let Ok(answer) = serde_json::from_slice::<Answer>(body) {
        let said = answer.pipelines.into_iter();
        return Ok(said
            .map(|(uid, progress)| (uid, plausible(progress, now_us)))
            .collect());
    }
    // Only now is it taken apart: to read everything twice costs more than to ask for it.
    let answer: Pieces = serde_json::from_slice(body).map_err(Error::Unreadable)?;
    let said = answer.pipelines.into_iter().map(|(uid, value)| {
        let said = match serde_json::from_value::<PipelineProgress>(value) {
            Ok(progress) => plausible(progress, now_us),
            Err(error) => Said::Unreadable(error.to_string()),
        };
        (uid, said)
    });
    Ok(said.collect())
}

/// Drops what nobody here looks at, and what cannot be.
fn plausible(mut progress: PipelineProgress, now_us: i64) -> Said {
    progress.partitions = Vec::new();
    progress.excluded = BTreeMap::new();
    if let Some(claim) = &mut progress.claim {
        if claim.finalized_before_us > Some(now_us.saturating_add(SKEW_US)) {
            return Said::Unreadable("it claims what lies in the future".to_owned());
        }
        if claim.epoch > GREATEST_EPOCH {
            return Said::Unreadable("its claim has an epoch beyond all bounds".to_owned());
        }
        let is_term = |term: &String| {
            term.len() <= 32 && term.chars().all(|c| c.is_ascii_lowercase() || c == '-')
        };
        if claim.evidence.len() > MOST_TERMS || !claim.evidence.iter().all(is_term) {
            return Said::Unreadable("its claim names terms that are none".to_owned());
        }
        claim
            .accepted
            .retain(|set| set.terms.len() <= MOST_TERMS && set.terms.iter().all(is_term));
        let is_length = |text: &String| text.len() <= 16;
        claim.cell = claim.cell.take().filter(is_length);
        claim.zone = claim.zone.take().filter(|zone| zone.len() <= 64);
        // It is kept until the next answer: lists that grew while they were read have room to spare.
        claim.evidence.shrink_to_fit();
        claim.accepted.shrink_to_fit();
        for set in &mut claim.accepted {
            set.terms.shrink_to_fit();
        }
    }
    Said::Progress(Arc::new(progress))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::{
        Router,
        body::{Body, Bytes},
        http::StatusCode,
        response::{IntoResponse, Response},
        routing::get,
    };
    use futures::stream;
    use tokio::net::TcpListener;

    use super::*;

    const UID: &str = "0c5e1a3e-6c1c-4d57-a4d8-3d1d5b7f5a10";

    async fn target(router: Router) -> Target {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Target {
            namespace: "shop".into(),
            worker: "w-0".into(),
            address,
        }
    }

    async fn ask(answer: fn() -> Response) -> Option<BTreeMap<String, Said>> {
        let poller = Poller::new(Clock::system(), Counts::default(), ROUND).unwrap();
        let router = Router::new().route("/progress", get(move || async move { answer() }));
        poller.ask(&target(router).await).await.said
    }

    fn pipeline(fields: &str) -> String {
        format!("{{\"worker\": \"w-0\", \"pipelines\": {{\"{UID}\": {{{fields}}}}}}}")
    }

    fn said(body: &str) -> Said {
        read(body.as_bytes(), 0).unwrap().remove(UID).unwrap()
    }

    /// An upgrade has workers of both versions for a while, in either order.
    #[test]
    fn other_versions_are_understood_as_far_as_they_go() {
        let later = pipeline(
            r#""pipeline": "shop/orders", "state": "Running", "colour": {"is": ["new"]},
               "claim": {"finalizedBefore": "1970-01-01T00:00:00Z", "epoch": 2, "commitId": "0c5e1a3e-6c1c-4d57-a4d8-3d1d5b7f5a10", "shape": 1},
               "lastError": {"reason": "MoonPhase", "message": "m", "remedy": "r", "since": "1970-01-01T00:00:00Z"}"#,
        );
        let Said::Progress(progress) = said(&later) else {
            unreachable!("{later}")
        };
        assert_eq!(progress.claim.as_ref().unwrap().epoch, 2);
        assert_eq!(
            progress.last_error.as_ref().unwrap().reason,
            crate::api::Reason::Unrecognized
        );
    }

    #[test]
    fn pipeline_that_cannot_be_read_hides_no_other() {
        let body = r#"{"pipelines": {"a": {"state": "Flying"}, "b": 7, "c": {"pipeline": "shop/orders", "state": "Running"}}}"#;
        let said = read(body.as_bytes(), 0).unwrap();
        assert!(matches!(said["a"], Said::Unreadable(_)));
        assert!(matches!(said["b"], Said::Unreadable(_)));
        assert!(matches!(said["c"], Said::Progress(_)));
    }

    /// A status that the API server refuses would hide everything that is true about the pipeline.
    #[test]
    fn claim_that_cannot_be_is_none() {
        let claim = |claim: &str| {
            said(&pipeline(&format!(
                "\"claim\": {{{claim}, \"commitId\": \"{UID}\"}}"
            )))
        };
        for claim_text in [
            r#""finalizedBefore": "1970-01-01T01:00:00Z", "epoch": 1"#,
            r#""finalizedBefore": null, "epoch": 18446744073709551615"#,
            r#""finalizedBefore": null, "epoch": 1, "evidence": ["Robert'); DROP"]"#,
        ] {
            assert!(
                matches!(claim(claim_text), Said::Unreadable(_)),
                "{claim_text}"
            );
        }
        assert!(matches!(
            claim(r#""finalizedBefore": null, "epoch": 1"#),
            Said::Progress(_)
        ));
    }

    #[tokio::test]
    async fn hostile_answers_are_no_answers() {
        let hostile: [fn() -> Response; 5] = [
            || "[".repeat(1_000_000).into_response(),
            || StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            || (StatusCode::FOUND, [("location", "http://127.0.0.1:1/")]).into_response(),
            || vec![0xff_u8; 1_000].into_response(),
            || {
                let spaces = stream::iter(
                    (0..300).map(|_| Ok::<_, Infallible>(Bytes::from(vec![b' '; 1 << 16]))),
                );
                Body::from_stream(spaces).into_response()
            },
        ];
        for answer in hostile {
            assert!(ask(answer).await.is_none());
        }
    }

    #[tokio::test]
    async fn silent_worker_holds_nobody_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let target = Target {
            namespace: "shop".into(),
            worker: "w-0".into(),
            address,
        };
        // Twenty times as fast, so that the time-out is 250 ms.
        let poller = Poller::new(
            Clock::scaled(20, Duration::from_secs(1)),
            Counts::default(),
            ROUND,
        )
        .unwrap();
        assert!(poller.ask(&target).await.said.is_none());
    }

    /// Ten thousand workers that are asked at the same moment would make a peak of load every 20 s.
    #[test]
    fn workers_have_their_own_moments() {
        let targets = (0..10_000).map(|at| Target {
            namespace: "shop".into(),
            worker: format!("w-{at}"),
            address: ([127, 0, 0, 1], 8080).into(),
        });
        let moments = moments(targets.collect(), ROUND);
        assert!(moments.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        for second in 0..19 {
            let within = moments
                .iter()
                .filter(|(moment, _)| moment.as_secs() == second)
                .count();
            assert!((400..=650).contains(&within), "{within} in second {second}");
        }
    }
}
