//! No claim rests on a digest.
//!
//! A commit's digest is an estimate, and useless on times made to hurt it. So it may be wrong, damaged or gone: what is published, what a
//! rebuild comes to and what a reader counts on stay the same. What comes of a digest into a term, the ladder of its low quantiles, is
//! bounded by the greatest event time, which is exact.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::contract::{EVENT_TIME_DIGEST, EVENT_TIME_P50, EVENT_TIME_P99, state_property};
use super::testing::{TOPIC, Table, WRITER, at, news, policy};
use super::*;

/// What a commit brings: its partition, how many minutes before it each row happened, and whether it asks.
type Turn = (i32, Vec<i64>, bool);

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let rows = prop::collection::vec(0_i64..70, 0..6);
    prop::collection::vec((0..2_i32, rows, any::<bool>()), 1..24)
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let rungs = prop::option::of(prop::sample::select(LADDER.to_vec()));
    rungs.prop_map(|quantile| {
        let mut terms: BTreeSet<Term> = [Term::Minimum, Term::CaughtUp].into();
        terms.extend(quantile.map(|_| Term::Percentile));
        Policy {
            terms,
            quantile,
            ..policy()
        }
    })
}

/// A commit every four minutes from 09:04 on.
fn contributions(turns: &[Turn]) -> Vec<Contribution> {
    let time = |minute: i64| format!("{:02}:{:02}", minute / 60, minute % 60);
    let mut next = [0_i64; 2];
    let mut all = Vec::new();
    for (turn, (partition, ages, asks)) in turns.iter().enumerate() {
        let minute = 540 + 4 * (i64::try_from(turn).unwrap() + 1);
        let now = time(minute);
        let times: Vec<String> = ages.iter().map(|age| time(minute - age)).collect();
        let times: Vec<&str> = times.iter().map(String::as_str).collect();
        let own = usize::try_from(*partition).unwrap();
        let mut news = news(&now).rows(*partition, next[own], &times);
        next[own] += i64::try_from(ages.len()).unwrap();
        if *asks {
            let other = 1 - *partition;
            let end = next[usize::try_from(other).unwrap()];
            let proof = news.rows(other, end, &[]).end(&now, end);
            news = proof.asked(&now, 2);
        }
        all.push(news);
    }
    all
}

fn anchored(policy: &Policy) -> Table {
    let mut table = Table::new(policy.clone());
    table.commit(news("09:00").anchor(0, 0).anchor(1, 0));
    table
}

/// Whose digest it may be: nobody's, or that of other rows.
fn another(times: &[i64]) -> Option<Sketch> {
    let mut digest = Digest::default();
    digest.extend(times);
    digest.finish()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The way forward.
    #[test]
    fn prop_another_digest_changes_nothing_that_is_published(
        policy in any_policy(),
        turns in turns(),
        times in prop::collection::vec(any::<i32>().prop_map(|us| i64::from(us) * 1_000_000), 0..5),
    ) {
        let (mut table, mut twin) = (anchored(&policy), anchored(&policy));
        for news in contributions(&turns) {
            let mut other = news.clone();
            other.event_times = another(&times);
            let (next, twin) = (table.commit(news), twin.commit(other));
            prop_assert_eq!(&next.state, &twin.state);
            prop_assert_eq!((next.claim, next.hold), (twin.claim, twin.hold));
            prop_assert_eq!((next.late, next.record), (twin.late, twin.record));
        }
        prop_assert_eq!(&table.properties, &twin.properties);
    }

    /// The way back, from the summaries alone, and that of a reader.
    #[test]
    fn prop_a_damaged_digest_changes_nothing_that_is_read(
        policy in any_policy(),
        turns in turns(),
        text in prop::option::of(".{0,40}"),
    ) {
        let mut table = anchored(&policy);
        for news in contributions(&turns) {
            table.commit(news);
        }
        table.properties.remove(&state_property(WRITER));
        let asker = Asker::new(WRITER, at("23:00"));
        let (before, claim) = (stand(&asker, &table.view()), read_claim(&table.view()));
        for snapshot in &mut table.lineage.snapshots {
            let summary = snapshot.summary.to_mut();
            for name in [EVENT_TIME_DIGEST, EVENT_TIME_P50, EVENT_TIME_P99] {
                match &text {
                    Some(text) => drop(summary.insert(name.to_owned(), text.clone())),
                    None => drop(summary.remove(name)),
                }
            }
        }
        prop_assert!(matches!(before, Ok(Standing::GoesOn(_))));
        prop_assert_eq!(stand(&asker, &table.view()), before);
        prop_assert_eq!(read_claim(&table.view()), claim);
    }

    /// A ladder is read off a digest. Whatever it says, no frontier by it lies above the exact greatest event time less the lateness.
    #[test]
    fn prop_no_ladder_carries_a_frontier_above_the_exact_bound(
        ladder in prop::array::uniform3(any::<i32>().prop_map(|s| i64::from(s) * SECOND_US)),
        rung in prop::sample::select(LADDER.to_vec()),
        commits in 1_u32..4,
    ) {
        let policy = Policy {
            terms: [Term::Percentile].into(),
            quantile: Some(rung),
            window_commits: commits,
            ..policy()
        };
        let mut table = Table::new(policy.clone());
        table.commit(news("09:00").anchor(0, 0));
        for turn in 0..i64::from(commits) {
            let mut rows = news("10:00").rows(0, turn, &["09:50"]);
            rows.partitions[0].stats.as_mut().unwrap().ladder_us = ladder;
            table.commit(rows);
        }
        let known = table.state.partition(TOPIC, 0).unwrap();
        let frontier = table.state.view().frontier(known).unwrap();
        prop_assert!(frontier.value_us <= at("09:45"), "{frontier:?}");
    }
}
