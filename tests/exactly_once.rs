//! Exactly once under fire: the real program is killed, cut off from its servers, raced and reshuffled, round after round.
//!
//! Each test keeps a load running over many rounds. A round is one fault, at random or at the worst moment, and then the
//! pipeline has to commit again by itself. At the end every row has to be there once, and no claim ever above the truth. How
//! often a fault fell on the moments that matter is counted and printed; a kind of moment hit too seldom fails the test.
//!
//! `make faults` runs many more rounds: `TIDEMARK_FAULTS` multiplies their number.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    catalog::{Catalog, request},
    kafka::Broker,
    proxy::{Fate, Request},
    trial::{ANSWER, CONFLICT, REBALANCE, RECOVERY, Setup, TRANSACTION, Trial, ZOMBIE},
    wait::{pause, some_moment, within},
};

fn rounds(in_ci: usize) -> usize {
    let times = std::env::var("TIDEMARK_FAULTS")
        .ok()
        .and_then(|times| times.parse().ok())
        .unwrap_or(1);
    in_ci * times
}

/// One in `of` chances.
fn chance(of: u32) -> bool {
    fastrand::u32(0..of) == 0
}

/// A third of the answers to commits come late, so that something can happen before them.
fn slow_commits(request: &Request) -> Fate {
    if request.is_commit() && chance(3) {
        Fate::LateAnswer(Duration::from_millis(400))
    } else {
        Fate::Pass
    }
}

/// SIGKILL at random points, while a commit is on its way, and beside a second copy that should not be there: both copies read
/// all partitions, and the table sends one of them away.
#[test]
fn killed_and_doubled_worker_goes_on_where_the_table_stands() {
    let rounds = rounds(16);
    let mut trial = Setup::new("killed_worker").start(slow_commits);
    let (mut running, mut other) = (0, 1);
    for round in 0..rounds {
        match round % 4 {
            1 => some_moment(Duration::from_secs(2)),
            3 => {
                let fenced = trial.times_fenced();
                trial.start_worker(other);
                within(RECOVERY, "a copy sent away", || {
                    (trial.times_fenced() > fenced).then_some(())
                });
            }
            _ => within(RECOVERY, "a commit on its way", || {
                (trial.proxy.commits_in_flight() > 0).then_some(())
            }),
        }
        trial.kill_worker(running);
        if round % 4 == 3 {
            (running, other) = (other, running);
        } else {
            trial.start_worker(running);
        }
        trial.await_commits(1);
    }
    trial.finish(&[ANSWER, TRANSACTION, ZOMBIE], rounds);
}

/// Requests and answers get lost, the catalog refuses, and a stranger commits just before us.
#[test]
fn lost_answers_and_rivals_neither_lose_nor_double_rows() {
    let rounds = rounds(24);
    let catalog = Catalog::shared().address();
    let rivals = Arc::new(AtomicUsize::new(0));
    let counted = rivals.clone();
    // Ten cards, shuffled anew when all are drawn: in any order, but each fate comes in its turn.
    let cards = Mutex::new(Vec::new());
    let draw = move || {
        let mut cards = cards.lock().expect("no panic under this lock");
        if cards.is_empty() {
            cards.extend(0..10);
            fastrand::shuffle(&mut cards);
        }
        cards.pop()
    };
    let decide = move |request: &Request| match draw_for(request, &draw) {
        Some(0) => Fate::LostRequest,
        Some(1 | 2) => Fate::LostAnswer,
        Some(3) => Fate::Refused(503),
        Some(4 | 5) => {
            counted.fetch_add(
                usize::from(rival(catalog, &request.path)),
                Ordering::Relaxed,
            );
            Fate::Pass
        }
        _ => Fate::Pass,
    };
    let mut trial = Setup::new("lost_answers").start(decide);
    let faults = |trial: &Trial<'_>| {
        let fates = trial.proxy.fates();
        fates
            .iter()
            .filter(|(fate, _)| *fate != "Pass")
            .map(|(_, times)| times)
            .sum::<usize>()
            + rivals.load(Ordering::Relaxed)
    };
    within(RECOVERY * 3, "enough faults", || {
        (faults(&trial) >= rounds).then_some(())
    });
    trial.await_commits(2);
    let fates = trial.proxy.fates();
    for fate in ["LostRequest", "LostAnswer", "Refused"] {
        let times = fates.get(fate).copied().unwrap_or(0);
        assert!(times > 0, "no commit met {fate}: {fates:?}");
    }
    let lost = fates.get("LostAnswer").copied().unwrap_or(0);
    trial.hits.insert(ANSWER, lost);
    trial.hits.insert(CONFLICT, rivals.load(Ordering::Relaxed));
    trial.finish(&[ANSWER, CONFLICT], rounds);
}

/// A card for each commit, none for other requests.
fn draw_for(request: &Request, draw: &impl Fn() -> Option<u32>) -> Option<u32> {
    request.is_commit().then(draw).flatten()
}

/// Puts a snapshot of a stranger's on a table, one that changes no rows. Whether it could.
fn rival(catalog: SocketAddr, path: &str) -> bool {
    let Some((200, text)) = request(catalog, "GET", path, "") else {
        return false;
    };
    let table: Value = serde_json::from_str(&text).expect("the catalog's JSON");
    let metadata = &table["metadata"];
    let current = &metadata["current-snapshot-id"];
    let Some(snapshot) = metadata["snapshots"]
        .as_array()
        .and_then(|all| all.iter().find(|one| one["snapshot-id"] == *current))
    else {
        return false;
    };
    let mut ours = snapshot.clone();
    ours["snapshot-id"] = json!(fastrand::i64(1..i64::MAX));
    ours["parent-snapshot-id"] = current.clone();
    ours["sequence-number"] =
        json!(metadata["last-sequence-number"].as_i64().expect("a number") + 1);
    let total = snapshot["summary"]["total-records"].clone();
    ours["summary"] = json!({"operation": "append", "rival": "true", "total-records": total});
    let commit = json!({
        "requirements": [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": current}],
        "updates": [
            {"action": "add-snapshot", "snapshot": ours},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": ours["snapshot-id"]},
        ],
    });
    request(catalog, "POST", path, &commit.to_string()).is_some_and(|(status, _)| status == 200)
}

/// Three workers share the partitions; they die, stop answering, come back and leave in the middle of a reshuffle.
#[test]
fn workers_that_come_and_go_share_the_work_without_a_trace() {
    let rounds = rounds(12);
    let mut trial = Setup {
        workers: 3,
        ..Setup::new("come_and_go")
    }
    .start(slow_commits);
    for round in 0..rounds {
        let (one, other) = (round % 3, (round + 1) % 3);
        match round % 4 {
            // Dead, and missed only after a while.
            0 => {
                within(RECOVERY, "a commit on its way", || {
                    (trial.proxy.commits_in_flight() > 0).then_some(())
                });
                trial.kill_worker(one);
                trial.await_commits(1);
                trial.start_worker(one);
            }
            // A zombie: its partitions go to others, and then it goes on with the rows it holds.
            1 => {
                some_moment(Duration::from_secs(1));
                trial.note_moment();
                trial.worker(one).signal(Signal::SIGSTOP);
                pause(Duration::from_secs(5));
                trial.await_commits(2);
                trial.worker(one).signal(Signal::SIGCONT);
            }
            // One comes back, and another dies while the partitions are on their way.
            _ => {
                trial.workers[one]
                    .take()
                    .expect("a running worker")
                    .terminate();
                trial.start_worker(one);
                within(RECOVERY, "a rebalance", || {
                    (!trial.group_is_stable()).then_some(())
                });
                trial.kill_worker(other);
                trial.start_worker(other);
            }
        }
        trial.await_commits(2);
    }
    trial.finish(&[ANSWER, REBALANCE, TRANSACTION], rounds);
}

/// The broker dies, stops and hangs, with transactions open, and partitions are added meanwhile.
#[test]
fn broker_that_goes_away_comes_back_to_the_same_rows() {
    let rounds = rounds(8);
    let broker = Broker::start_own(&[]);
    let mut trial = Setup {
        broker: &broker,
        ..Setup::new("broker_goes")
    }
    .start(|_| Fate::Pass);
    let mut partitions = 3;
    for round in 0..rounds {
        some_moment(Duration::from_secs(1));
        if round % 2 == 0 {
            within(RECOVERY, "an open transaction", || {
                trial.ledgers[1].in_a_transaction().then_some(())
            });
        }
        trial.note_moment();
        match round % 4 {
            0 => {
                broker.kill();
                broker.start();
            }
            1 => {
                broker.stop();
                broker.start();
            }
            2 => {
                broker.hang();
                some_moment(Duration::from_secs(4));
                broker.resume();
            }
            _ => {
                partitions += 1;
                broker.add_partitions(
                    &trial.pipeline.topics[0],
                    usize::try_from(partitions).expect("a few"),
                );
                trial.ledgers[0].set_partitions(partitions);
            }
        }
        trial.await_commits(2);
    }
    trial.finish(&[TRANSACTION], rounds);
}
