//! The workers of all pipelines, as far as an operator sees them: one server, an address of 127.0.0.0/8 each.
//!
//! A worker commits once a minute, in its own phase, and answers `/progress` with what its last commit knew, in the project's own
//! types. Everything about it follows from its number and the time, so that ten thousand cost what they are asked.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Json, Router,
    extract::{ConnectInfo, State, connect_info::Connected},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
    serve::IncomingStream,
};
use tidemark::{
    api::{
        Reason,
        worker::{
            AcceptedProgress, ClaimProgress, CommitProgress, HoldProgress, LagSummary,
            PartitionProgress, PipelineProgress, Progress, RunState,
        },
    },
    operator::Key,
    process::{clock::Clock, http::ADMIN_PORT},
};
use tokio::net::TcpListener;
use uuid::{Builder, Uuid};

/// A cell.
pub(crate) const HOUR_US: i64 = 3_600_000_000;

/// How often a worker commits.
pub(crate) const INTERVAL_US: i64 = 60_000_000;

/// How many source partitions each pipeline has.
const PARTITIONS: i32 = 6;

/// One pipeline's worker.
pub(crate) struct Worker {
    /// Its pipeline.
    pub(crate) key: Key,
    /// The uid of the pipeline.
    pub(crate) uid: String,
    table: String,
    /// The hash of the specification that it runs.
    runs: Mutex<String>,
    pod: Mutex<String>,
    up: AtomicBool,
}

/// All of them.
pub(crate) struct Workers {
    all: Vec<Worker>,
    numbers: HashMap<String, usize>,
    /// The time by which they commit.
    pub(crate) clock: Clock,
    /// Before which instant every table is complete at first.
    first_us: i64,
    /// From when on commits close another hour.
    turns: Mutex<Vec<i64>>,
}

impl Worker {
    /// A worker in a pod.
    pub(crate) fn new(key: Key, (uid, table): (String, String), runs: String, pod: String) -> Self {
        Self {
            key,
            uid,
            table,
            runs: Mutex::new(runs),
            pod: Mutex::new(pod),
            up: AtomicBool::new(true),
        }
    }

    /// The name of its pod.
    pub(crate) fn pod(&self) -> String {
        let pod = self.pod.lock().unwrap_or_else(PoisonError::into_inner);
        pod.clone()
    }

    /// The hash of the specification that it runs.
    pub(crate) fn runs(&self) -> String {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.clone()
    }

    /// It has loaded another specification.
    pub(crate) fn load(&self, runs: String) {
        *self.runs.lock().unwrap_or_else(PoisonError::into_inner) = runs;
    }

    /// Its pod is gone; it answers nobody.
    pub(crate) fn end(&self) {
        self.up.store(false, Ordering::Release);
    }

    /// It runs in a pod of this name.
    pub(crate) fn start(&self, pod: String) {
        *self.pod.lock().unwrap_or_else(PoisonError::into_inner) = pod;
        self.up.store(true, Ordering::Release);
    }
}

impl Workers {
    /// Workers whose tables are complete up to an instant some hours before now, so that there are hours left to be closed.
    pub(crate) fn new(all: Vec<Worker>, first_us: i64, clock: Clock) -> Self {
        let numbers = all.iter().enumerate();
        Self {
            numbers: numbers
                .map(|(number, worker)| (worker.uid.clone(), number))
                .collect(),
            all,
            clock,
            first_us,
            turns: Mutex::default(),
        }
    }

    /// The workers, by number.
    pub(crate) fn all(&self) -> &[Worker] {
        &self.all
    }

    /// The worker of a pipeline.
    pub(crate) fn of(&self, uid: &str) -> Option<&Worker> {
        Some(self.find(uid)?.1)
    }

    /// The same with its number.
    pub(crate) fn find(&self, uid: &str) -> Option<(usize, &Worker)> {
        let number = *self.numbers.get(uid)?;
        Some((number, self.all.get(number)?))
    }

    /// Lets the commits from now on close the next hour; says when that is, and the claim that comes of it.
    pub(crate) fn turn(&self) -> (i64, i64) {
        let (now_us, claim_us) = (self.clock.now_us(), self.next());
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.push(now_us);
        (now_us, claim_us)
    }

    /// The claim that the next turn brings.
    pub(crate) fn next(&self) -> i64 {
        let turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let hours = i64::try_from(turns.len() + 1).unwrap_or(i64::MAX);
        self.first_us + hours * HOUR_US
    }

    /// What a worker says at an instant.
    pub(crate) fn progress(&self, number: usize, now_us: i64) -> Progress {
        let worker = &self.all[number];
        Progress {
            worker: worker.pod(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            memory_held_bytes: 20 << 20,
            pipelines: [(worker.uid.clone(), self.pipeline(number, now_us))].into(),
        }
    }

    /// What it says of its pipeline.
    pub(crate) fn pipeline(&self, number: usize, now_us: i64) -> PipelineProgress {
        let worker = &self.all[number];
        let commit_us = commit_after(number, now_us - INTERVAL_US + 1);
        let claim = self.claim(number, commit_us);
        let held_us = claim.finalized_before_us.unwrap_or_default();
        let behind = lag(number, commit_us);
        let rows = commit_us.div_euclid(1_000_000).unsigned_abs() * 40;
        PipelineProgress {
            pipeline: worker.key.to_string(),
            table: worker.table.clone(),
            state: RunState::Running,
            state_since_us: held_us,
            spec_hash: worker.runs(),
            policy_revision: Some(1),
            hold: Some(HoldProgress {
                cell_end_us: Some(held_us + HOUR_US),
                partition: Some(format!("{}/{}", worker.table, number % 6)),
                term: None,
                reason: Reason::CellOpen,
                since_us: held_us,
            }),
            partitions: partitions(&worker.table, (behind, rows), commit_us),
            lag: Some(LagSummary {
                offsets: behind,
                partitions_behind: 3,
            }),
            last_commit: Some(CommitProgress {
                commit_id: claim.commit_id,
                snapshot_id: commit_us * 7,
                at_us: commit_us,
                rows: 2_400,
                elapsed_ms: 340,
            }),
            claim: Some(claim),
            rows,
            excluded: [("snapshot".to_owned(), 1_204_221)].into(),
            ..PipelineProgress::default()
        }
    }

    fn claim(&self, number: usize, commit_us: i64) -> ClaimProgress {
        let turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let closed = turns.iter().filter(|turn| **turn <= commit_us).count();
        drop(turns);
        let before_us = self.first_us + i64::try_from(closed).unwrap_or(i64::MAX) * HOUR_US;
        let evidence: &[&str] = if number % 10 < 7 {
            &["minimum"]
        } else {
            &["minimum", "caught-up"]
        };
        let accepted = |term: &str, behind_us: i64| AcceptedProgress {
            terms: vec![term.to_owned()],
            before_us: Some(before_us - behind_us),
        };
        ClaimProgress {
            finalized_before_us: Some(before_us),
            complete_from_us: Some(before_us - before_us.rem_euclid(24 * HOUR_US) - 720 * HOUR_US),
            gaps: Vec::new(),
            evidence: evidence.iter().map(|term| (*term).to_owned()).collect(),
            margin_ms: Some(240_000),
            epoch: 1,
            reopened: None,
            commit_id: commit_id(number, commit_us),
            table_uuid: Some(table_uuid(number)),
            cell: Some("1h".to_owned()),
            zone: None,
            accepted: vec![accepted("caught-up", HOUR_US), accepted("minimum", 0)],
            amended: Vec::new(),
        }
    }
}

fn partitions(topic: &str, (behind, rows): (u64, u64), commit_us: i64) -> Vec<PartitionProgress> {
    let next = rows.cast_signed() / i64::from(PARTITIONS);
    let of = |partition: i32| PartitionProgress {
        topic: topic.to_owned(),
        partition,
        next_offset: next,
        end_offset: Some(next + behind.cast_signed() / i64::from(PARTITIONS)),
        frontier_us: Some(commit_us - i64::from(partition) * 1_000_000),
    };
    (0..PARTITIONS).map(of).collect()
}

/// When the first commit of a worker is that is not before an instant.
pub(crate) fn commit_after(number: usize, at_us: i64) -> i64 {
    at_us + (phase_us(number) - at_us).rem_euclid(INTERVAL_US)
}

/// When within the interval a worker commits: spread evenly, and neighbours far from each other.
fn phase_us(number: usize) -> i64 {
    let number = u32::try_from(number).unwrap_or_default();
    (i64::from(number.wrapping_mul(0x9E37_79B9)) * INTERVAL_US) >> 32
}

/// Some hundreds of rows; one of a hundred pipelines has a burst every twenty minutes.
fn lag(number: usize, commit_us: i64) -> u64 {
    let commit = commit_us.div_euclid(INTERVAL_US).unsigned_abs();
    let bursts = number.is_multiple_of(100) && (commit + number as u64 / 100).is_multiple_of(20);
    if bursts {
        5_000
    } else {
        1 + (commit * 37 + number as u64 * 11) % 900
    }
}

fn commit_id(number: usize, commit_us: i64) -> Uuid {
    let at_ms = commit_us.div_euclid(1_000).unsigned_abs();
    Builder::from_unix_timestamp_millis(at_ms, &tail(number)).into_uuid()
}

/// What tells the table of a pipeline from others.
pub(crate) fn table_uuid(number: usize) -> Uuid {
    Builder::from_unix_timestamp_millis(1_700_000_000_000, &tail(number)).into_uuid()
}

fn tail(number: usize) -> [u8; 10] {
    let mut bytes = [0; 10];
    bytes[2..].copy_from_slice(&(number as u64).to_be_bytes());
    bytes
}

/// The address of the pod with a number.
pub(crate) fn address(number: usize) -> IpAddr {
    let part = |value: usize| u8::try_from(value).expect("numbers stay below 60,000");
    Ipv4Addr::new(127, 1, part(number / 250), part(number % 250 + 1)).into()
}

fn number_of(address: IpAddr) -> Option<usize> {
    let IpAddr::V4(address) = address else {
        return None;
    };
    let [127, 1, hundreds, ones] = address.octets() else {
        return None;
    };
    Some(usize::from(hundreds) * 250 + usize::from(ones).checked_sub(1)?)
}

/// Which address somebody has called.
#[derive(Debug, Clone, Copy)]
struct Called(SocketAddr);

impl Connected<IncomingStream<'_, TcpListener>> for Called {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        Self(stream.io().local_addr().expect("a connected socket"))
    }
}

/// Takes the port that every worker has, on every address.
pub(crate) async fn listen() -> TcpListener {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, ADMIN_PORT)).await;
    listener.expect("the port of the workers' admin servers, free on every address of this machine")
}

/// Answers for all workers.
pub(crate) async fn serve(listener: TcpListener, workers: Arc<Workers>) {
    let routes = Router::new()
        .route("/progress", get(progress))
        .with_state(workers)
        .into_make_service_with_connect_info::<Called>();
    axum::serve(listener, routes).await.expect("a listener");
}

async fn progress(
    ConnectInfo(Called(address)): ConnectInfo<Called>,
    State(workers): State<Arc<Workers>>,
) -> Response {
    let number = number_of(address.ip()).filter(|number| {
        let worker = workers.all.get(*number);
        worker.is_some_and(|worker| worker.up.load(Ordering::Acquire))
    });
    match number {
        Some(number) => Json(workers.progress(number, workers.clock.now_us())).into_response(),
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}
