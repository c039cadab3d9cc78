//! The readers' HTTP API, on every replica: claims as JSON, and waiting for one.
//!
//! Comes in: requests, and the [`Claims`] that this replica knows. Goes out: `GET /v1/claims`, `/v1/claims/{namespace}/{name}`,
//! `…/ready`, `/openapi.json`. It reads and never writes; nothing is asked of a worker, a catalog or the API server for a request's
//! sake.
//!
//! The verdicts are those of `tidemark wait`. Ready and incomplete are settled and end a wait; held, other evidence and not yet may
//! change, and are the answer when the time is over.
//!
//! A request that waits costs a timer and a place in the list of those that wait for the same pipeline. Ten thousand may.

pub(super) mod answers;
mod openapi;
mod query;

use std::{io, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{Path, Query, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::sync::CancellationToken;

use self::{
    answers::{ClaimAnswer, Gist, Item, Page, Problem, ReadyAnswer},
    query::{Ask, Listing},
};
use super::{
    Key,
    claims::{Claims, Known},
    counts::Counts,
    status,
};
use crate::{process::clock::Clock, sensor::Verdict};

pub use openapi::document;

/// The port of the readers' API where no other is asked for.
pub const READERS_PORT: u16 = 8090;

/// How many requests may wait at once: every pipeline of the largest fleet, twice.
const MOST_WAITING: usize = 20_000;

/// How long answers under way may take once the server stops.
const CLOSING: Duration = Duration::from_secs(2);

/// What readers are answered from.
#[derive(Debug, Clone)]
pub struct Readers {
    claims: Claims,
    counts: Counts,
    clock: Clock,
    places: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Readers {
    /// Answers from these claims until `stop`: requests that wait are then answered as things stand.
    #[must_use]
    pub fn new(claims: Claims, (counts, clock): (Counts, Clock), stop: CancellationToken) -> Self {
        Self {
            claims,
            counts,
            clock,
            places: Arc::new(Semaphore::new(MOST_WAITING)),
            stop,
        }
    }
}

/// Serves until the readers are stopped; answers under way are finished, as far as two seconds go.
///
/// # Errors
/// The listener fails.
pub async fn serve(listener: TcpListener, readers: Readers) -> Result<(), io::Error> {
    let stop = readers.stop.clone();
    let closed = async {
        stop.cancelled().await;
        tokio::time::sleep(CLOSING).await;
    };
    let served = axum::serve(listener, routes(readers.clone()))
        .with_graceful_shutdown(readers.stop.clone().cancelled_owned());
    tokio::select! {
        ended = served.into_future() => ended,
        () = closed => Ok(()),
    }
}

fn routes(readers: Readers) -> Router {
    Router::new()
        .route("/v1/claims", get(list))
        .route("/v1/claims/{namespace}/{name}", get(claim))
        .route("/v1/claims/{namespace}/{name}/ready", get(ready))
        .route("/openapi.json", get(async || Json(document())))
        .fallback(async || {
            let remedy = "there are /v1/claims, /v1/claims/{namespace}/{name}, its /ready, and /openapi.json";
            refuse(StatusCode::NOT_FOUND, Problem::plain("there is no such path", remedy))
        })
        .with_state(readers)
}

type Pairs = Query<Vec<(String, String)>>;

async fn list(State(readers): State<Readers>, Query(pairs): Pairs) -> Response {
    let listing = match Listing::of(pairs) {
        Ok(listing) => listing,
        Err(problem) => return refuse(StatusCode::BAD_REQUEST, problem),
    };
    // One more than fits tells whether there is another page.
    let found = readers
        .claims
        .page(listing.after.as_ref(), listing.limit + 1, |known| {
            is_wanted(known, &listing)
        });
    let more = found.len() > listing.limit;
    let shown = &found[..found.len().min(listing.limit)];
    let go_on = shown
        .last()
        .filter(|_| more)
        .map(|last| last.key.to_string());
    let items = shown.iter().map(|known| Item {
        verdict: listing
            .question
            .as_ref()
            .map(|question| known.judge(question).word()),
        claim: ClaimAnswer::of(known),
    });
    let items = items.collect();
    Json(Page { items, go_on }).into_response()
}

fn is_wanted(known: &Known, listing: &Listing) -> bool {
    let same = |wanted: Option<&String>, is: &str| wanted.is_none_or(|wanted| wanted == is);
    let condition = listing.condition.as_ref().is_none_or(|(kind, answer)| {
        let found = status::condition(&known.status, kind);
        found.is_some_and(|found| format!("{:?}", found.status) == *answer)
    });
    let verdict = || match (&listing.verdict, &listing.question) {
        (Some(verdict), Some(question)) => known.judge(question).word() == verdict,
        _ => true,
    };
    same(listing.namespace.as_ref(), &known.key.namespace)
        && same(listing.table.as_ref(), &known.kept.table)
        && listing.labels.matches(&known.kept.labels)
        && condition
        && verdict()
}

async fn claim(
    State(readers): State<Readers>,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let key = Key::new(&namespace, &name);
    let Some(known) = readers.claims.get(&key) else {
        return refuse(StatusCode::NOT_FOUND, missing(&key));
    };
    let answer = ClaimAnswer::of(&known);
    let tag = tag(&answer);
    if is_known(named(&headers).as_ref(), &tag) {
        return unchanged(&tag);
    }
    tagged(StatusCode::OK, &tag, &answer)
}

async fn ready(
    State(readers): State<Readers>,
    Path((namespace, name)): Path<(String, String)>,
    Query(pairs): Pairs,
    headers: HeaderMap,
) -> Response {
    let ask = match Ask::of(pairs) {
        Ok(ask) => ask,
        Err(problem) => return refuse(StatusCode::BAD_REQUEST, problem),
    };
    let key = Key::new(&namespace, &name);
    let Some(mut known) = readers.claims.subscribe(&key) else {
        return refuse(StatusCode::NOT_FOUND, missing(&key));
    };
    let named = named(&headers);
    // They hold on to what the connection has read: 8 KB for each request that waits.
    drop(headers);
    let until = readers.clock.monotonic() + ask.wait;
    let mut place = None;
    loop {
        let left = until.saturating_sub(readers.clock.monotonic());
        let is_over = left.is_zero() || readers.stop.is_cancelled();
        // Nothing of the answer is kept while the request waits.
        let now = Arc::clone(&known.borrow_and_update());
        if let Some(response) = answer(&now, &ask, named.as_ref(), is_over) {
            return response;
        }
        drop(now);
        if place.is_none() {
            let Ok(taken) = Arc::clone(&readers.places).try_acquire_owned() else {
                let problem = Problem::plain(
                    "too many requests wait",
                    "ask again in a while, or without wait",
                );
                return refuse(StatusCode::SERVICE_UNAVAILABLE, problem);
            };
            place = Some((taken, readers.counts.waits()));
        }
        tokio::select! {
            changed = known.changed() => if changed.is_err() {
                return refuse(StatusCode::NOT_FOUND, missing(&key));
            },
            () = readers.clock.sleep(left) => {}
            () = readers.stop.cancelled() => {}
        }
    }
}

/// The answer as things stand, unless it is to be waited for another one.
fn answer(
    known: &Known,
    ask: &Ask,
    named: Option<&Vec<String>>,
    is_over: bool,
) -> Option<Response> {
    let (verdict, answer) = ReadyAnswer::of(known, &ask.question);
    let tag = tag(&Gist(&answer));
    let is_known = is_known(named, &tag);
    let is_settled = matches!(verdict, Verdict::Ready | Verdict::Incomplete(_));
    // Who knows the answer waits for another one; who does not, for one that is settled.
    let is_told = if named.is_some() {
        !is_known
    } else {
        is_settled
    };
    (is_told || is_over).then(|| {
        if is_known {
            unchanged(&tag)
        } else {
            tagged(code(&verdict), &tag, &answer)
        }
    })
}

fn code(verdict: &Verdict) -> StatusCode {
    match verdict {
        Verdict::Ready => StatusCode::OK,
        Verdict::NotYet | Verdict::OtherEvidence => StatusCode::ACCEPTED,
        Verdict::Incomplete(_) | Verdict::Held(_) => StatusCode::CONFLICT,
    }
}

fn missing(key: &Key) -> Problem {
    let short = key.to_string().chars().take(520).collect::<String>();
    Problem::plain(
        &format!("there is no pipeline \"{short}\""),
        "/v1/claims lists those there are; tidemark wait asks a table that no pipeline here writes",
    )
}

fn refuse(status: StatusCode, problem: Problem) -> Response {
    (status, Json(problem)).into_response()
}

/// The name of an answer.
fn tag(answer: &impl Serialize) -> String {
    let text = serde_json::to_vec(answer).unwrap_or_default();
    let hash = Sha256::digest(text);
    format!("\"{}\"", URL_SAFE_NO_PAD.encode(&hash[..12]))
}

/// The answers that whoever asks knows already, by their names; `None`: nothing is said of that.
fn named(headers: &HeaderMap) -> Option<Vec<String>> {
    headers.contains_key(header::IF_NONE_MATCH).then(|| {
        let named = headers.get_all(header::IF_NONE_MATCH).iter();
        let named = named
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','));
        let bare = named.map(|one| one.trim().trim_start_matches("W/").to_owned());
        bare.collect()
    })
}

fn is_known(named: Option<&Vec<String>>, tag: &str) -> bool {
    let mut named = named.into_iter().flatten();
    named.any(|one| one == tag || one == "*")
}

fn unchanged(tag: &str) -> Response {
    (StatusCode::NOT_MODIFIED, headers(tag)).into_response()
}

fn tagged(status: StatusCode, tag: &str, answer: &impl Serialize) -> Response {
    (status, headers(tag), Json(answer)).into_response()
}

/// A cache on the way may keep an answer, and has to ask whether it still holds.
fn headers(tag: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(tag) = HeaderValue::from_str(tag) {
        headers.insert(header::ETAG, tag);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers
}

#[cfg(test)]
mod tests;
