//! What other finalization settings would have cost a table: minutes of delay and late rows.
//!
//! In: the commits that the table has on record. Out: trials of settings around those in force, one of them recommended, and
//! the patch for it. Pure: the commits are taken once more by `watermark`, nothing is asked.
//!
//! A recommendation keeps a reserve: also with half of its bounds no row on record would have been late. A bound is a declaration
//! about the source all the same, and a few hours on record are no proof of it.

mod advice;
pub mod picture;
mod setting;
mod text;

use std::cmp::Reverse;

use serde::{Serialize, Serializer};

pub use advice::Recommendation;
pub use setting::{Field, Setting};
pub use text::text;

use crate::{
    api::quantity::{iso, length},
    watermark::{Cost, Kept, Policy, Rows, Step},
};

const SECOND_US: i64 = 1_000_000;

/// Partitions in commits that all trials together may look at: some seconds of work.
const BUDGET: usize = 20_000_000;

/// An improvement below this is none.
const WORTH_US: i64 = 30 * SECOND_US;

/// How long after its end a cell became final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Delay {
    /// In seconds.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub us: i64,
    /// It was not final by the newest commit: the delay is at least this.
    pub at_least: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn seconds<S: Serializer>(us: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_i64(us.div_euclid(SECOND_US))
}

impl std::fmt::Display for Delay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let least = if self.at_least { "≥ " } else { "" };
        write!(f, "{least}{}", length(self.us / SECOND_US * SECOND_US))
    }
}

/// What one setting would have cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trial {
    /// The setting.
    pub setting: Setting,
    /// The delay that half of the judged cells did not exceed.
    pub median: Delay,
    /// The greatest delay of a judged cell.
    pub worst: Delay,
    /// Rows that would have come below the claim.
    pub late: Late,
}

/// Rows within bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Late {
    /// At least.
    pub least: u64,
    /// By the digests.
    pub likely: u64,
    /// At most.
    pub most: u64,
}

impl From<Rows> for Late {
    fn from(rows: Rows) -> Self {
        Self {
            least: rows.least,
            likely: rows.likely,
            most: rows.most,
        }
    }
}

impl std::fmt::Display for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.least == self.most {
            return write!(f, "{}", self.most);
        }
        write!(f, "{} ({} to {})", self.likely, self.least, self.most)
    }
}

/// Trials that differ in one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Series {
    /// Which.
    pub field: Field,
    /// In the order of its values.
    pub trials: Vec<Trial>,
}

/// A table with its trials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tuning {
    /// The table.
    pub table: String,
    /// Commits that were taken once more.
    pub commits: usize,
    /// The first of them that counts: from there on every trial had what it needs.
    #[serde(rename = "from", with = "iso")]
    pub from_us: i64,
    /// The newest commit.
    #[serde(rename = "before", with = "iso")]
    pub before_us: i64,
    /// Source partitions.
    pub partitions: usize,
    /// Rows in those commits.
    pub rows: u64,
    /// The cells that ended since and are final.
    pub cells: Vec<String>,
    /// The setting in force, and what it would have cost.
    pub in_force: Trial,
    /// One field varied at a time.
    pub series: Vec<Series>,
    /// The recommended setting.
    pub recommended: Recommendation,
}

/// Why nothing can be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooLittle {
    /// No commit of ours.
    #[error("no commit of Tidemark that can be read is on record")]
    NoCommits,
    /// No cell ended and became final.
    #[error(
        "no cell has ended and become final within the commits on record; look again when some have, or keep snapshots for longer"
    )]
    NoCells,
}

/// The commits on record, and from where on they are judged.
struct Bench<'a> {
    kept: &'a Kept,
    policy: &'a Policy,
    from: usize,
    cells: usize,
    newest_us: i64,
}

/// Tries settings on a table's commits.
///
/// # Errors
/// There is too little on record.
pub fn tune(table: &str, kept: Option<&Kept>) -> Result<Tuning, TooLittle> {
    let kept = kept.ok_or(TooLittle::NoCommits)?;
    let policy = &kept.newest().record.policy;
    let in_force = Setting::of(policy);
    let mut bench = Bench {
        kept,
        policy,
        from: 0,
        cells: 0,
        newest_us: kept.newest().record.committed_at_us,
    };
    let settings: Vec<(Field, Vec<Setting>)> = Field::ALL
        .into_iter()
        .map(|field| (field, in_force.varied(field)))
        .collect();
    let all = settings.iter().flat_map(|(_, settings)| settings);
    let begins: Vec<(Setting, usize)> = all
        .filter_map(|setting| Some((*setting, bench.begins(*setting)?)))
        .collect();
    // What needs more than half of the record would leave too little to compare.
    let latest = kept.commits.len() / 2;
    let own = begins.iter().find(|(setting, _)| *setting == in_force);
    let own = own.map(|(_, begins)| *begins).ok_or(TooLittle::NoCells)?;
    let able = |begins: &usize| *begins <= latest.max(own);
    let starts = begins.iter().map(|(_, begins)| *begins).filter(able);
    bench.from = starts.max().unwrap_or(own);
    let steps = bench.steps(in_force);
    let delays = kept.cost(&steps, bench.from).delays_us;
    bench.cells = delays.iter().take_while(|delay| delay.is_some()).count();
    if bench.cells == 0 {
        return Err(TooLittle::NoCells);
    }
    let usable = |setting: &Setting| {
        begins
            .iter()
            .any(|(other, begins)| other == setting && able(begins))
    };
    let series: Vec<Series> = settings
        .iter()
        .filter(|(_, settings)| !settings.is_empty())
        .map(|(field, settings)| Series {
            field: *field,
            trials: settings
                .iter()
                .copied()
                .filter(usable)
                .map(|s| bench.trial(s))
                .collect(),
        })
        .collect();
    let trial = bench.trial(in_force);
    let recommended = bench.recommend(&trial, &series);
    Ok(bench.tuning(table, trial, series, recommended))
}

impl Bench<'_> {
    fn steps(&self, setting: Setting) -> Vec<Step> {
        self.kept.retrace(|_| setting.on(self.policy))
    }

    /// The first commit at which every partition has a frontier.
    fn begins(&self, setting: Setting) -> Option<usize> {
        self.steps(setting)
            .iter()
            .position(|step| step.reached_us.is_some())
    }

    fn cost(&self, setting: Setting) -> Cost {
        self.kept.cost(&self.steps(setting), self.from)
    }

    fn trial(&self, setting: Setting) -> Trial {
        let cost = self.cost(setting);
        let delays = self.delays(&cost);
        let greatest = delays.iter().map(|delay| delay.us).max();
        Trial {
            setting,
            median: delays[(delays.len() - 1) / 2],
            worst: Delay {
                us: greatest.unwrap_or_default(),
                at_least: delays.iter().any(|delay| delay.at_least),
            },
            late: cost.late.into(),
        }
    }

    /// The delays of the judged cells, the least first. A cell that is still open has waited since its end.
    fn delays(&self, cost: &Cost) -> Vec<Delay> {
        let grid = self.policy.grid;
        let mut end_us = self.first_end_us();
        let mut delays = Vec::with_capacity(self.cells);
        for delay in &cost.delays_us[..self.cells] {
            delays.push(match delay {
                Some(us) => Delay {
                    us: *us,
                    at_least: false,
                },
                None => Delay {
                    us: self.newest_us.saturating_sub(end_us),
                    at_least: true,
                },
            });
            end_us = grid.end(end_us);
        }
        delays.sort_by_key(|delay| (delay.at_least, delay.us));
        delays
    }

    fn first_end_us(&self) -> i64 {
        let from = &self.kept.commits[self.from].summary.record;
        self.policy.grid.ceil(from.committed_at_us)
    }

    fn total_us(&self, cost: &Cost) -> i64 {
        let delays = self.delays(cost);
        delays
            .iter()
            .fold(0, |sum: i64, delay| sum.saturating_add(delay.us))
    }

    /// Every combination of the values tried, or only those next to the ones in force where that would take too long.
    fn combinations(&self, in_force: Setting, series: &[Series]) -> Vec<Setting> {
        let of = |field: Field| {
            let trials = series.iter().filter(move |series| series.field == field);
            trials.flat_map(|series| series.trials.iter().map(|trial| trial.setting))
        };
        let quantiles = || {
            let tried: Vec<_> = of(Field::Quantile)
                .map(|setting| setting.quantile)
                .collect();
            if tried.is_empty() { vec![None] } else { tried }
        };
        let product = || {
            let mut all = Vec::new();
            for commits in of(Field::WindowCommits) {
                for lateness in of(Field::AllowedLateness) {
                    for delay in of(Field::MaxDelay) {
                        all.extend(quantiles().into_iter().map(|quantile| Setting {
                            window_commits: commits.window_commits,
                            allowed_lateness_us: lateness.allowed_lateness_us,
                            max_delay_us: delay.max_delay_us,
                            quantile,
                        }));
                    }
                }
            }
            all
        };
        let partitions = self.kept.newest().offsets.next.len();
        let all = product();
        // Each one is tried with half of its bounds as well.
        if all.len() * 2 * self.kept.commits.len() * partitions.max(1) <= BUDGET {
            return all;
        }
        let alone = |setting: &Setting| setting.changed(&in_force).len() <= 1;
        all.into_iter().filter(alone).collect()
    }

    fn recommend(&self, in_force: &Trial, series: &[Series]) -> Recommendation {
        let own = in_force.setting;
        let own_us = self.total_us(&self.cost(own));
        let own_is_late = in_force.late.most > 0;
        let mut best: Option<(Setting, i64)> = None;
        for setting in self.combinations(own, series) {
            let cost = self.cost(setting);
            let total_us = self.total_us(&cost);
            let worse = !own_is_late && total_us > own_us - self.worth_us();
            if cost.late.most > 0 || worse || self.cost(setting.halved()).late.most > 0 {
                continue;
            }
            // The least delay; of equals the nearest to what is in force, then the widest bounds.
            let rank = |(setting, total_us): &(Setting, i64)| {
                let wide = (
                    setting.allowed_lateness_us,
                    setting.max_delay_us,
                    setting.window_commits,
                );
                (*total_us, setting.changed(&own).len(), Reverse(wide))
            };
            let next = (setting, total_us);
            if best.as_ref().is_none_or(|best| rank(&next) < rank(best)) {
                best = Some(next);
            }
        }
        let trial = best.map_or_else(|| in_force.clone(), |(setting, _)| self.trial(setting));
        let writer = &self.kept.newest().writer;
        advice::recommendation(in_force, trial, writer, self.rows())
    }

    /// What all judged cells together must gain.
    fn worth_us(&self) -> i64 {
        WORTH_US.saturating_mul(i64::try_from(self.cells).unwrap_or(i64::MAX))
    }

    fn rows(&self) -> u64 {
        self.kept.commits[self.from..]
            .iter()
            .map(|commit| commit.rows)
            .sum()
    }

    fn tuning(
        &self,
        table: &str,
        in_force: Trial,
        series: Vec<Series>,
        recommended: Recommendation,
    ) -> Tuning {
        let grid = self.policy.grid;
        let ends =
            std::iter::successors(Some(self.first_end_us()), |end_us| Some(grid.end(*end_us)));
        Tuning {
            table: table.to_owned(),
            commits: self.kept.commits.len() - self.from,
            from_us: self.kept.commits[self.from].summary.record.committed_at_us,
            before_us: self.newest_us,
            partitions: self.kept.newest().offsets.next.len(),
            rows: self.rows(),
            cells: ends
                .take(self.cells)
                .map(|end_us| grid.last_final(end_us))
                .collect(),
            in_force,
            series,
            recommended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensor::testing::{Table, policy};

    /// A commit every four minutes for some hours, of one partition after the other in turn of two; each commit has rows between
    /// `age` and one minute old.
    fn flow(policy: Policy, age: i64) -> Table {
        let mut table = Table::anchored(policy, 2);
        for turn in 1..75 {
            let now = 540 + 4 * turn;
            let partition = i32::try_from(turn % 2).unwrap();
            table.commit(
                now,
                &[(partition, vec![now - age, now - 1])],
                &[1 - partition],
            );
        }
        table
    }

    /// What a writer's commits would have claimed follows from its own rows alone.
    #[test]
    fn of_several_writers_each_is_tried_for_itself() {
        let mut table = flow(policy(), 2);
        let tuning = |table: &Table, writer: Option<&str>| {
            let kept = Kept::of(&table.record.view(), writer);
            tune("shop.orders", kept.as_ref()).unwrap()
        };
        let alone = tuning(&table, None);
        table.write_as("shop.west");
        table.begin(840, 1);
        for turn in 1..60 {
            let now = 840 + 4 * turn;
            table.commit(now, &[(0, vec![now - 3, now - 1])], &[]);
        }
        assert_eq!(tuning(&table, Some("shop.orders")), alone);
        let west = tuning(&table, Some("shop.west"));
        assert_eq!((west.partitions, west.commits < 60), (1, true));
        assert_eq!(tuning(&table, None), west, "the one that committed last");
    }

    #[test]
    fn settings_in_force_cost_what_they_did() {
        let table = flow(policy(), 2);
        let kept = table.kept();
        let tuning = tune("shop.orders", Some(&kept)).unwrap();
        let published = kept.published();
        let cost = kept.cost(&published, kept.commits.len() - tuning.commits);
        let mut delays: Vec<i64> = cost.delays_us.iter().flatten().copied().collect();
        delays.sort_unstable();
        assert_eq!(tuning.cells.len(), delays.len());
        assert_eq!(tuning.in_force.worst.us, delays[delays.len() - 1]);
        assert_eq!(tuning.in_force.late.most, 0);
        for series in &tuning.series {
            let own = series
                .trials
                .iter()
                .filter(|trial| **trial == tuning.in_force);
            assert_eq!(own.count(), 1, "{:?}", series.field);
        }
    }

    /// A recommendation that its own trial contradicts would be worse than none.
    #[test]
    fn recommended_setting_is_no_slower_and_keeps_its_reserve() {
        let mut slow = policy();
        slow.bounds.allowed_lateness_us = 30 * 60 * SECOND_US;
        slow.bounds.max_delay_us = 30 * 60 * SECOND_US;
        let table = flow(slow, 2);
        let tuning = tune("shop.orders", Some(&table.kept())).unwrap();
        let advised = &tuning.recommended;
        assert!(!advised.changes.is_empty());
        assert!(advised.trial.median < tuning.in_force.median);
        assert_eq!(advised.trial.late.most, 0);
        let command = advised.command.as_deref().unwrap();
        assert!(
            command.starts_with("kubectl patch ipl orders -n shop --type merge -p '{"),
            "{command}"
        );
        let manifest: serde_json::Value =
            serde_yaml::from_str(advised.manifest.as_deref().unwrap()).unwrap();
        for field in &advised.changes {
            assert!(
                !manifest["spec"]["finalization"][field.name()].is_null(),
                "{field:?}"
            );
        }
    }

    #[test]
    fn late_rows_ask_for_wider_bounds() {
        let mut table = flow(policy(), 2);
        // 13:00 is claimed; one partition brings a row of 12:50.
        table.commit(860, &[(0, vec![770, 859])], &[1]);
        let tuning = tune("shop.orders", Some(&table.kept())).unwrap();
        assert!(tuning.in_force.late.least >= 1, "{:?}", tuning.in_force);
        let sentence = &tuning.recommended.sentence;
        let wider =
            tuning.recommended.trial.late.most == 0 && !tuning.recommended.changes.is_empty();
        assert!(
            wider || sentence.starts_with("Keep the settings in force"),
            "{sentence}"
        );
    }

    #[test]
    fn quantile_is_tried_where_its_term_is_admitted() {
        let mut wide = policy();
        wide.terms.insert(crate::watermark::Term::Percentile);
        wide.quantile = Some(crate::watermark::Quantile::Percent);
        let table = flow(wide, 2);
        let tuning = tune("shop.orders", Some(&table.kept())).unwrap();
        let values = |field: Field| {
            let mut series = tuning.series.iter();
            let found = series.find(|series| series.field == field);
            found.map(|found| {
                let trials = found.trials.iter();
                trials
                    .map(|trial| trial.setting.value(field))
                    .collect::<Vec<_>>()
            })
        };
        let tried = ["0.001", "0.01", "0.05"].map(str::to_owned).to_vec();
        assert_eq!(values(Field::Quantile), Some(tried));
        let without = tune("shop.orders", Some(&flow(policy(), 2).kept())).unwrap();
        assert!(
            without
                .series
                .iter()
                .all(|series| series.field != Field::Quantile)
        );
    }

    #[test]
    fn too_little_on_record_is_said() {
        assert_eq!(tune("shop.orders", None), Err(TooLittle::NoCommits));
        let mut table = Table::anchored(policy(), 1);
        table.commit(544, &[(0, vec![543])], &[]);
        assert_eq!(
            tune("shop.orders", Some(&table.kept())),
            Err(TooLittle::NoCells)
        );
    }

    #[test]
    fn picture_is_whole_and_shows_every_trial() {
        let mut table = flow(policy(), 2);
        table.record.table = "a<b".to_owned();
        let tuning = tune("a<b & c", Some(&table.kept())).unwrap();
        let svg = picture::svg(&tuning);
        assert!(
            svg.contains("a&lt;b &amp; c: what") && !svg.contains("<b &"),
            "{svg}"
        );
        let trials: usize = tuning.series.iter().map(|series| series.trials.len()).sum();
        assert!(svg.matches("width=\"22\"").count() >= trials);
        assert!(svg.ends_with("</svg>\n"));
    }
}
