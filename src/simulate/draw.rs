//! Histories from seeds.
//!
//! The same seed draws the same history. What is common in production is common here; each fault is rare enough to leave
//! the others room and frequent enough to meet every other one within a few thousand histories.

use fastrand::Rng;

use super::plan::{
    Event, Fate, Foreign, Kind, MOST_PARTITIONS, MOST_WORKERS, Plan, Settings, ZONES,
};

/// Lengths of cells, in milliseconds.
const CELLS_MS: [i64; 4] = [5_000, 60_000, 900_000, 3_600_000];

/// Draws a history.
pub(super) fn draw(seed: u64) -> Plan {
    let mut rng = Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let settings = settings(&mut rng);
    // One history in four is short, and half of it faults of any kind: three of them that meet once are found there.
    let dense = seed % 4 == 1;
    let length = if dense {
        rng.usize(6..22)
    } else {
        rng.usize(16..40)
    };
    // A few faults per history, each several times: two that meet are worth more than ten that pass each other by.
    let faults: Vec<u8> = if dense {
        (0..FAULTS).collect()
    } else {
        (0..rng.usize(2..7)).map(|_| rng.u8(0..FAULTS)).collect()
    };
    let events = (0..length).map(|_| {
        if dense && rng.bool() {
            let drawn = faults[rng.usize(0..faults.len())];
            return fault(&mut rng, drawn);
        }
        event(&mut rng, &faults)
    });
    Plan {
        seed,
        settings,
        events: events.collect(),
    }
}

/// A day.
const DAY_MS: i64 = 86_400_000;

fn settings(rng: &mut Rng) -> Settings {
    let zone = if rng.u8(0..12) == 0 {
        rng.usize(1..ZONES.len())
    } else {
        0
    };
    let cell_ms = match zone {
        0 => CELLS_MS[rng.usize(0..CELLS_MS.len())],
        _ => DAY_MS,
    };
    let share = |rng: &mut Rng, from: i64, to: i64| cell_ms * rng.i64(from..to) / 100;
    let topics = rng.usize(1..3);
    let (terms, heartbeats) = &TERMS[rng.usize(0..TERMS.len())];
    Settings {
        cell_ms,
        zone,
        lateness_ms: if rng.u8(0..4) == 0 {
            0
        } else {
            share(rng, 1, 150)
        },
        delay_ms: share(rng, 10, 150).max(1_000),
        skew_ms: share(rng, 10, 100).max(1_000),
        age_ms: if rng.u8(0..3) == 0 {
            share(rng, 1_000, 2_000)
        } else {
            0
        },
        window_commits: rng.u32(1..4),
        window_ms: if rng.bool() { 0 } else { share(rng, 10, 200) },
        terms: terms.iter().map(|label| (*label).to_owned()).collect(),
        quantile: rng.usize(0..3),
        heartbeats: *heartbeats,
        late: rng.u8(0..3),
        interval_ms: share(rng, 10, 40).max(500),
        partitions: (0..topics).map(|_| rng.usize(1..MOST_PARTITIONS)).collect(),
        joining: rng.usize(1..MOST_PARTITIONS),
        second: if rng.u8(0..5) == 0 {
            let topics = rng.usize(1..3);
            (0..topics).map(|_| rng.usize(1..MOST_PARTITIONS)).collect()
        } else {
            Vec::new()
        },
        backfill: rng.u8(0..3) == 0,
        workers: rng.usize(1..=MOST_WORKERS),
        copies: rng.u8(0..5) == 0,
        latest: rng.u8(0..4) == 0,
        keep_offsets: rng.u8(0..3) == 0,
    }
}

/// Admitted terms, and the heartbeats of the source.
const TERMS: [(&[&str], u8); 12] = [
    (&["minimum"], 0),
    (&["caught-up"], 0),
    (&["minimum", "caught-up"], 0),
    (&["minimum", "caught-up"], 0),
    (&["minimum", "caught-up"], 1),
    (&["caught-up"], 1),
    (&["percentile", "caught-up"], 0),
    (&["percentile"], 0),
    (&["minimum", "heartbeat"], 2),
    (&["heartbeat"], 2),
    (&["resolved", "caught-up"], 0),
    (&["minimum", "clock"], 0),
];

/// How many kinds of faults there are.
const FAULTS: u8 = 28;

fn event(rng: &mut Rng, faults: &[u8]) -> Event {
    match rng.u8(0..20) {
        0..=7 => Event::Flow {
            delay: rng.u8(..),
            silent: if rng.u8(0..3) == 0 { rng.u8(..) } else { 0 },
        },
        8 => Event::Wait(rng.u16(0..2_000)),
        9..=10 => Event::Produce {
            partition: rng.u8(..),
            rows: rng.u8(1..6),
            delay: rng.u8(..),
            kind: Kind::Change,
        },
        11 => Event::Fetch {
            worker: rng.u8(..),
            records: rng.u8(1..8),
        },
        12..=13 => Event::Turn { worker: rng.u8(..) },
        14 => Event::Work { worker: rng.u8(..) },
        _ => {
            let drawn = faults[rng.usize(0..faults.len())];
            fault(rng, drawn)
        }
    }
}

fn fault(rng: &mut Rng, fault: u8) -> Event {
    let (partition, worker) = (rng.u8(..), rng.u8(..));
    let produce = |rng: &mut Rng, kind: Kind| Event::Produce {
        partition,
        rows: rng.u8(1..4),
        delay: rng.u8(..),
        kind,
    };
    match fault {
        0 => match rng.u8(0..3) {
            0 => Event::End {
                partition,
                committed: rng.bool(),
            },
            _ => Event::Transact {
                partition,
                rows: rng.u8(1..5),
                delay: rng.u8(..),
            },
        },
        1 => match rng.u8(0..4) {
            0 => Event::Failover { partition },
            _ => Event::Replay {
                partition,
                rows: rng.u8(1..6),
            },
        },
        2 => Event::Fate([Fate::AppliedUnanswered, Fate::LostUnanswered][rng.usize(0..2)]),
        3 => Event::Fate(Fate::Outage),
        4 => Event::Kill { worker },
        5 if rng.bool() => Event::Stall { worker },
        5 => Event::Wake { worker },
        6 => Event::Rebalance { partition, worker },
        7 => Event::AddPartition { topic: partition },
        8 if rng.u8(0..3) == 0 => Event::Recreate { topic: partition },
        8 | 9 => Event::Retain {
            partition,
            records: rng.u8(1..8),
        },
        10 => Event::Unanswered {
            questions: rng.u8(1..4),
        },
        11 => Event::Foreign([Foreign::Replace, Foreign::Append][rng.usize(0..2)]),
        12 => Event::Expire { keep: rng.u8(1..6) },
        13 if rng.bool() => Event::Change { how: rng.u8(..) },
        13 => Event::Adopt { worker },
        14 => Event::Rollback { back: rng.u8(1..5) },
        15 => Event::Copy,
        16 => Event::ForgetState,
        _ => rare(rng, fault, produce),
    }
}

fn rare(rng: &mut Rng, fault: u8, produce: impl Fn(&mut Rng, Kind) -> Event) -> Event {
    let partition = rng.u8(..);
    match fault {
        17 => {
            let kinds = [Kind::Timeless, Kind::Future, Kind::Old, Kind::Undecodable];
            let kind = kinds[rng.usize(0..kinds.len())];
            produce(rng, kind)
        }
        18 => {
            let kinds = [Kind::Snapshot, Kind::LastOfSnapshot, Kind::Signal];
            let kind = kinds[rng.usize(0..kinds.len())];
            produce(rng, kind)
        }
        19 => Event::Quiet { partition },
        20 => Event::Resolve { topic: partition },
        21 => Event::Connector { runs: rng.bool() },
        22 => match rng.u8(0..4) {
            0 => Event::Leave { topic: partition },
            1 => Event::Return { topic: partition },
            _ => Event::Join,
        },
        23 if rng.bool() => Event::Leave { topic: partition },
        23 => Event::Return { topic: partition },
        26 => match rng.u8(0..6) {
            0 => Event::Overrun,
            1 => Event::Rollback { back: rng.u8(1..5) },
            2 | 3 => Event::Pick { which: partition },
            _ => Event::Accept,
        },
        25 => Event::Cut {
            partition,
            records: rng.u8(1..8),
        },
        24 if rng.bool() => Event::Drain {
            pipeline: partition,
            drained: rng.u8(0..3) > 0,
        },
        24 => Event::Retract {
            back: rng.u8(..),
            cells: rng.u8(..),
        },
        _ => produce(rng, Kind::Outlaw),
    }
}
