//! The protocol, exhaustively: every way in which two workers, two partitions and a few rows can meet.
//!
//! What is decided on the way (the fence, whether to commit empty, the advance of the claim, what is written, what workers and
//! readers make of a table) is decided by the product's own functions; brokers, catalog and clock are the model's. In every
//! state it is checked against the model's own count of rows and offsets that no claim is early (I1), that state, rebuild
//! and reader agree (I3), that a claim never falls within an epoch (I4), and that ranges tile (I5); and from the states
//! that workers can go on from, that they publish everything once they are left alone (I2).
//!
//! Wrong rules are planted, too, and each must be found.

mod explore;
mod logs;
mod tables;
mod world;

use explore::{Explored, explore};
use tidemark::process::clock::Clock;
use world::{Event, Limits, Planted, Protocol};

fn run(limits: Limits, planted: Option<Planted>) -> Result<Explored, String> {
    let clock = Clock::system();
    let mut protocol = Protocol::new(limits, planted);
    let first = protocol.first();
    let explored = explore(&mut protocol, first);
    if let Ok(explored) = &explored {
        eprintln!(
            "{limits:?}: {} states, {} steps, {} deep, {} tables, {} settled, {:.1} s",
            explored.states,
            explored.steps,
            explored.depth,
            protocol.tables.count(),
            protocol.settled,
            clock.monotonic().as_secs_f64()
        );
    }
    explored
}

const ALL: &[Event] = &[
    Event::Transaction,
    Event::Partition,
    Event::Move,
    Event::LostReply,
    Event::Crash,
    Event::RollBack,
    Event::Expiry,
    Event::Policy,
];

/// Wider limits for a longer look: `TIDEMARK_MODEL=<seconds>,<rows>,<events>`, and the places of the events in [`ALL`] where it is
/// not all of them, as `2,1,2,023`.
fn asked_for() -> Option<Limits> {
    let text = std::env::var("TIDEMARK_MODEL").ok()?;
    let parts: Vec<&str> = text.split(',').collect();
    let number = |at: usize| parts.get(at)?.parse().ok();
    let of: Vec<Event> = match parts.get(3) {
        None => ALL.to_vec(),
        Some(places) => places
            .chars()
            .filter_map(|place| ALL.get(usize::try_from(place.to_digit(10)?).ok()?))
            .copied()
            .collect(),
    };
    let asked = (number(0), number(1), number(2));
    let (Some(seconds), Some(rows), Some(events)) = asked else {
        panic!("TIDEMARK_MODEL \"{text}\": write seconds, rows and events, as 2,1,2");
    };
    Some(Limits {
        seconds,
        rows,
        events,
        of: of.leak(),
    })
}

/// What is explored at each run, and how many states there are at least: no change makes it smaller without a word.
const EXPLORED: [(Limits, usize); 7] = [
    (
        Limits {
            seconds: 2,
            rows: 1,
            events: 1,
            of: &[Event::Transaction],
        },
        6_500,
    ),
    (
        Limits {
            seconds: 1,
            rows: 1,
            events: 2,
            of: &[Event::Move, Event::LostReply],
        },
        40_000,
    ),
    (
        Limits {
            seconds: 1,
            rows: 1,
            events: 1,
            of: &[Event::RollBack, Event::Expiry],
        },
        4_500,
    ),
    (
        Limits {
            seconds: 1,
            rows: 1,
            events: 1,
            of: &[Event::Policy],
        },
        2_200,
    ),
    (
        Limits {
            seconds: 1,
            rows: 1,
            events: 1,
            of: &[Event::LostReply, Event::Crash],
        },
        2_400,
    ),
    (
        Limits {
            seconds: 1,
            rows: 0,
            events: 1,
            of: &[Event::Partition],
        },
        1_500,
    ),
    (
        Limits {
            seconds: 0,
            rows: 1,
            events: 1,
            of: &[Event::Partition],
        },
        2_600,
    ),
];

#[test]
fn every_reachable_state_keeps_the_promises() {
    if let Some(limits) = asked_for() {
        run(limits, None).unwrap_or_else(|broken| panic!("{broken}"));
        return;
    }
    for (limits, least) in EXPLORED {
        let explored = run(limits, None).unwrap_or_else(|broken| panic!("{broken}"));
        assert!(explored.states >= least, "{limits:?}: {explored:?}");
    }
}

fn assert_found(planted: Planted, event: &'static [Event], promise: &str) {
    let limits = Limits {
        seconds: 4,
        rows: 2,
        events: 1,
        of: event,
    };
    let broken = run(limits, Some(planted)).expect_err("a wrong rule that nothing finds");
    assert!(broken.starts_with(promise), "{broken}");
}

/// A row of an open transaction lies below the high watermark and behind the last stable offset.
#[test]
fn last_stable_offset_for_the_high_watermark_is_found() {
    assert_found(Planted::StableOffset, &[Event::Transaction], "I1");
}

#[test]
fn consumer_position_for_the_end_of_the_batch_is_found() {
    assert_found(Planted::ConsumerPosition, &[Event::LostReply], "I1");
}

#[test]
fn partition_that_counts_only_once_the_table_knows_it_is_found() {
    assert_found(Planted::KnownPartitions, &[Event::Partition], "I1");
}

#[test]
fn batch_that_is_moved_to_the_offset_of_the_table_is_found() {
    assert_found(Planted::MovedBatch, &[Event::Move], "I5");
}
