//! What other settings would have cost: the commits on record taken once more, under another policy.
//!
//! In: the commits and a policy in place of theirs. Out: the claim after each, when each cell would have become final, and how many
//! rows would have come too late for it. The functions are those of the worker: the settings in force give the claims that the
//! table published.
//!
//! The commits stay where they were made. Under other settings a worker would have asked and committed at other instants, so a
//! delay is no finer than the commits are apart.
//!
//! Late rows are counted by the least event time, the ladder and the greatest event time of each partition in each commit:
//! a lower and an upper bound, the digest's estimate in between. A ladder is read off a digest, so a rung counts with its
//! error of rank.

use super::contract::OwnSummary;
use super::digest::Sketch;
use super::frontier::{LADDER, PartitionStats, Policy};
use super::grid::Grid;
use super::kept::{Kept, KeptCommit};

/// The greatest error of rank of a rung; `digest` promises a quarter of a percent.
const RANK_ERROR: f64 = 0.0025;

/// Where the table would have stood after a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When the commit was made.
    pub committed_at_us: i64,
    /// What would have been published.
    pub claim_us: Option<i64>,
    /// How far the least frontier and both caps had got; `None`: unknown.
    pub reached_us: Option<i64>,
}

/// How many rows, when that is known within bounds only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// At least so many.
    pub least: u64,
    /// By the digests so many.
    pub likely: u64,
    /// At most so many.
    pub most: u64,
}

/// What settings would have cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// How long after its end each judged cell would have become final, in order; `None`: not by the newest commit.
    pub delays_us: Vec<Option<i64>>,
    /// Rows below the claim that would have stood when they came.
    pub late: Rows,
}

impl Kept {
    /// The claim after each commit under other settings. `change` makes them from those in force with each commit.
    #[must_use]
    pub fn retrace(&self, change: impl Fn(&Policy) -> Policy) -> Vec<Step> {
        let mut state = self.before(&change(&self.oldest().record.policy));
        let mut steps = Vec::with_capacity(self.commits.len());
        let mut before_us = None;
        for (at, commit) in self.commits.iter().enumerate() {
            let OwnSummary {
                record,
                published,
                offsets,
                ..
            } = &commit.summary;
            let mut record = record.clone();
            record.policy = change(&record.policy);
            let rule_kept = at > 0 && state.policy.complete_from == record.policy.complete_from;
            self.step(&mut state, &record, offsets);
            // Only a step of the epoch lets a claim fall, and not each one does.
            if published.finalized_before_us < before_us {
                state.published.finalized_before_us = None;
            }
            before_us = published.finalized_before_us;
            state.publish(true, rule_kept);
            steps.push(Step {
                committed_at_us: state.committed_at_us,
                claim_us: state.published.finalized_before_us,
                reached_us: state.limit(&state.view()).reached_us,
            });
        }
        steps
    }

    /// What was published, in the same form.
    #[must_use]
    pub fn published(&self) -> Vec<Step> {
        let step = |commit: &KeptCommit| Step {
            committed_at_us: commit.summary.record.committed_at_us,
            claim_us: commit.summary.published.finalized_before_us,
            reached_us: None,
        };
        self.commits.iter().map(step).collect()
    }

    /// What a course of claims would have cost from the commit number `from` on: the cells that ended since, and the rows that came.
    #[must_use]
    pub fn cost(&self, steps: &[Step], from: usize) -> Cost {
        let grid = self.newest().record.policy.grid;
        let mut late = Rows::default();
        for at in from.max(1)..steps.len() {
            if let Some(claim_us) = steps[at - 1].claim_us {
                late.add(self.commits[at].below(claim_us));
            }
        }
        Cost {
            delays_us: delays_us(steps, from, grid),
            late,
        }
    }
}

fn delays_us(steps: &[Step], from: usize, grid: Grid) -> Vec<Option<i64>> {
    let (Some(first), Some(last)) = (steps.get(from), steps.last()) else {
        return Vec::new();
    };
    let mut end_us = grid.ceil(first.committed_at_us);
    let mut delays = Vec::new();
    // A later cell is never reached by an earlier commit.
    let mut left = steps[from..].iter().peekable();
    while end_us <= last.committed_at_us {
        while left.next_if(|step| step.claim_us < Some(end_us)).is_some() {}
        let reached = left.peek();
        delays.push(reached.map(|step| step.committed_at_us.saturating_sub(end_us)));
        end_us = grid.end(end_us);
    }
    delays
}

impl KeptCommit {
    /// Rows of it below a claim.
    #[must_use]
    pub fn below(&self, claim_us: i64) -> Rows {
        let mut rows = Rows::default();
        for stats in self
            .summary
            .record
            .partitions
            .values()
            .filter_map(|news| news.stats)
        {
            let (least, most) = below(&stats, claim_us);
            rows.add(Rows {
                least,
                likely: 0,
                most,
            });
        }
        let likely = self
            .times
            .as_ref()
            .map(|times| likely_below(times, claim_us));
        rows.likely = likely.unwrap_or(rows.most).clamp(rows.least, rows.most);
        rows
    }
}

impl Rows {
    fn add(&mut self, other: Rows) {
        self.least = self.least.saturating_add(other.least);
        self.likely = self.likely.saturating_add(other.likely);
        self.most = self.most.saturating_add(other.most);
    }
}

/// The bounds of the rows of a partition below an instant. Times are kept in whole seconds rounded down, and so is a claim: what
/// is below by its second is below.
fn below(stats: &PartitionStats, claim_us: i64) -> (u64, u64) {
    if claim_us <= stats.least_us {
        return (0, 0);
    }
    if stats.greatest_us < claim_us {
        return (stats.rows, stats.rows);
    }
    // The least row is below, the greatest is not.
    let (mut least, mut most) = (1, stats.rows.saturating_sub(1).max(1));
    // A ladder that had no room in the summary is the least event time in every rung and says nothing.
    if stats.ladder_us == [stats.least_us; 3] {
        return (least, most);
    }
    for (rung, rung_us) in LADDER.into_iter().zip(stats.ladder_us) {
        let share = rung.share();
        if rung_us < claim_us {
            least = least.max(part(stats.rows, share - RANK_ERROR));
        } else {
            most = most.min(part(stats.rows, share + RANK_ERROR).saturating_add(1));
        }
    }
    (least.min(most), most)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate; float casts saturate"
)]
fn part(rows: u64, share: f64) -> u64 {
    (rows as f64 * share).floor() as u64
}

/// The digest's estimate of the values below an instant: the rank at which its quantile passes it.
fn likely_below(times: &Sketch, claim_us: i64) -> u64 {
    if times.least_us() >= claim_us {
        return 0;
    }
    if times.greatest_us() < claim_us {
        return times.count();
    }
    let (mut low, mut high) = (0.0, 1.0);
    // A millionth of the rows: far finer than the digest.
    for _ in 0..20 {
        let middle = f64::midpoint(low, high);
        if times.quantile(middle) < claim_us {
            low = middle;
        } else {
            high = middle;
        }
    }
    part(times.count(), high)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::SECOND_US;
    use super::super::testing::{Table, at, news};
    use super::*;

    const MINUTE_US: i64 = 60 * SECOND_US;

    /// Minute of the day as `10:05`.
    fn time(minute: i64) -> String {
        format!("{:02}:{:02}", minute / 60, minute % 60)
    }

    /// What a commit brings: its partition, how many minutes before it each row happened, and whether it asks.
    type Turn = (i32, Vec<i64>, bool);

    /// A commit every four minutes from 09:04 on, of one of two partitions; a question proves the other one caught up.
    fn table(turns: &[Turn]) -> Table {
        let mut table = Table::anchored("09:00", 2);
        let mut next = [0_i64; 2];
        for (turn, (partition, ages, asks)) in turns.iter().enumerate() {
            let minute = 540 + 4 * (i64::try_from(turn).unwrap() + 1);
            let now = time(minute);
            let times: Vec<String> = ages.iter().map(|age| time(minute - age)).collect();
            let times: Vec<&str> = times.iter().map(String::as_str).collect();
            let at = usize::try_from(*partition).unwrap();
            let mut news = news(&now).rows(*partition, next[at], &times);
            next[at] += i64::try_from(ages.len()).unwrap();
            if *asks {
                let other = 1 - *partition;
                let end = next[usize::try_from(other).unwrap()];
                news = news.rows(other, end, &[]).end(&now, end).asked(&now, 2);
            }
            table.commit(news);
        }
        table
    }

    fn turns() -> impl Strategy<Value = Vec<Turn>> {
        let rows = prop::collection::vec(0_i64..70, 0..6);
        prop::collection::vec((0..2_i32, rows, any::<bool>()), 1..40)
    }

    fn kept(turns: &[Turn]) -> Kept {
        Kept::of(&table(turns).view(), None).unwrap()
    }

    fn lateness(us: i64) -> impl Fn(&Policy) -> Policy {
        move |policy| {
            let mut policy = policy.clone();
            policy.bounds.allowed_lateness_us = us;
            policy
        }
    }

    fn claims(steps: &[Step]) -> Vec<Option<i64>> {
        steps.iter().map(|step| step.claim_us).collect()
    }

    proptest! {
        // A case is up to forty commits, packed and unpacked.
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Else the comparison of settings would compare with a table that never was.
        #[test]
        fn prop_settings_in_force_give_the_claims_that_were_published(turns in turns()) {
            let kept = kept(&turns);
            prop_assert_eq!(claims(&kept.retrace(Clone::clone)), claims(&kept.published()));
        }

        /// Rows that the commits counted as late lie within the bounds of the estimate.
        #[test]
        fn prop_late_rows_that_were_counted_lie_within_their_bounds(turns in turns()) {
            let kept = kept(&turns);
            let counted: u64 = kept.commits.iter().map(|commit| commit.late.rows()).sum();
            let cost = kept.cost(&kept.published(), 0);
            prop_assert!(
                cost.late.least <= counted && counted <= cost.late.most,
                "{counted} in {:?}", cost.late
            );
        }

        #[test]
        fn prop_greater_lateness_gives_no_more_late_rows_and_no_earlier_cell(
            turns in turns(), less in 0_i64..30, more in 0_i64..60
        ) {
            let kept = kept(&turns);
            let cost = |us: i64| kept.cost(&kept.retrace(lateness(us)), 0);
            let (short, long) = (cost(less * MINUTE_US), cost((less + more) * MINUTE_US));
            prop_assert!(long.late.least <= short.late.least);
            prop_assert!(long.late.likely <= short.late.likely);
            prop_assert!(long.late.most <= short.late.most);
            for (short, long) in short.delays_us.iter().zip(&long.delays_us) {
                // Never final is later than any delay.
                prop_assert!(long.is_none() || (short.is_some() && short <= long));
            }
        }

        #[test]
        fn prop_wider_window_and_longer_delay_give_no_more_late_rows(
            turns in turns(), commits in 1_u32..5, delay in 0_i64..30
        ) {
            let kept = kept(&turns);
            let cost = |commits: u32, delay: i64| {
                let steps = kept.retrace(|policy| {
                    let mut policy = policy.clone();
                    policy.window_commits = commits;
                    policy.bounds.max_delay_us = delay * MINUTE_US;
                    policy
                });
                kept.cost(&steps, 0).late
            };
            let base = cost(commits, delay);
            for late in [cost(commits + 1, delay), cost(commits, delay + 7)] {
                prop_assert!(late.least <= base.least && late.most <= base.most);
            }
        }
    }

    #[test]
    fn delay_is_from_the_end_of_a_cell_to_the_commit_that_made_it_final() {
        // A commit every four minutes, rows up to a minute old: 10:05 and later after N commits.
        let turns: Vec<Turn> = (0..20).map(|turn| (turn % 2, vec![1, 0], true)).collect();
        let kept = kept(&turns);
        let cost = kept.cost(&kept.published(), 0);
        assert_eq!(
            cost.delays_us.len(),
            2,
            "09:00 as well: it was open when the first commit came"
        );
        let reached = kept
            .published()
            .into_iter()
            .find(|step| step.claim_us == Some(at("10:00")));
        let delay_us = reached.map(|step| step.committed_at_us - at("10:00"));
        assert_eq!(cost.delays_us[1], delay_us);
        assert!(delay_us.is_some());
        let cost = kept.cost(&kept.retrace(lateness(90 * MINUTE_US)), 0);
        assert_eq!(cost.late, Rows::default());
    }

    #[test]
    fn rows_below_a_claim_are_bounded_by_the_ladder() {
        let stats = PartitionStats {
            rows: 10_000,
            least_us: at("10:00"),
            ladder_us: [at("10:10"), at("10:20"), at("10:30")],
            greatest_us: at("11:00"),
        };
        let below = |time: &str| below(&stats, at(time));
        assert_eq!(below("10:00"), (0, 0));
        assert_eq!(
            below("10:05"),
            (1, 36),
            "less than p0.1, and a quarter of a percent for the rung"
        );
        assert_eq!(below("10:15"), (1, 126), "from p0.1 to p1");
        assert_eq!(below("10:25"), (75, 526), "from p1 to p5");
        assert_eq!(below("10:45"), (475, 9_999));
        assert_eq!(below("11:01"), (10_000, 10_000));
        let bare = PartitionStats {
            ladder_us: [at("10:00"); 3],
            ..stats
        };
        assert_eq!(
            super::below(&bare, at("10:45")),
            (1, 9_999),
            "a ladder that had no room"
        );
    }
}
