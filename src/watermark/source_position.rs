//! How far the sources of one Kafka partition have got, to tell a replay from news.
//!
//! Starts from what the table holds and runs along with the rows. When a batch is dropped, start again from the table's.
//!
//! In doubt a row is news: a false replay would take a row out of the claim, a missed one only shows as late.

/// Incarnations kept a partition. A forgotten one means "not a replay".
pub const MAX_INCARNATIONS: usize = 16;

/// Among the sources, the name under which the greatest resolved position is kept.
const RESOLVED: &str = "resolved";

/// The greatest position of one incarnation of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incarnation {
    /// The source: connector name and server or cluster id.
    pub source: String,
    /// How often its positions have begun anew, as far as this partition knows.
    pub counter: u32,
    /// The greatest position seen.
    pub position: i64,
    /// The source commit time there, exact: a rounded one would mark replays wrongly.
    pub commit_time_us: Option<i64>,
}

/// What [`SourcePositions::judge`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The incarnation of the row: it goes into the row's position.
    pub counter: u32,
    /// Whether the source delivered the row before.
    pub replayed: bool,
}

impl Judged {
    /// Of the first incarnation, and new.
    pub const NEWS: Judged = Judged {
        counter: 0,
        replayed: false,
    };
}

/// The greatest position of each incarnation, the last used first. Where a source's changes do not come in the order of their
/// positions, the greatest one that it has resolved, as an incarnation of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourcePositions {
    incarnations: Vec<Incarnation>,
}

impl SourcePositions {
    /// From what was kept: last used first; more than [`MAX_INCARNATIONS`] are cut off.
    #[must_use]
    pub fn from_incarnations(mut incarnations: Vec<Incarnation>) -> Self {
        incarnations.truncate(MAX_INCARNATIONS);
        SourcePositions { incarnations }
    }

    /// The incarnations, last used first.
    #[must_use]
    pub fn incarnations(&self) -> &[Incarnation] {
        &self.incarnations
    }

    /// Keeps only the `len` last used.
    pub fn truncate(&mut self, len: usize) {
        self.incarnations.truncate(len);
    }

    /// Judges the next row of the partition and remembers it. Cheap: the last used incarnation is compared first, and only
    /// a new incarnation allocates.
    ///
    /// A replay lies **strictly below** the greatest position of its incarnation and its source commit time is not later
    /// than that one's; equal is news, since a key change, a multi-row insert and a transaction share one position. A
    /// position that goes back while the commit time goes forward begins an incarnation. Without commit times nothing is
    /// a replay.
    #[inline]
    pub fn judge(&mut self, source: &str, position: i64, commit_time_us: Option<i64>) -> Judged {
        if let Some(last) = self.incarnations.first_mut()
            && last.source == source
            && last.advance(position, commit_time_us)
        {
            return Judged {
                counter: last.counter,
                replayed: false,
            };
        }
        self.judge_slowly(source, position, commit_time_us)
    }

    /// The source says that it has delivered everything below `position`, whose commit time is `time_us`. Never goes back.
    pub fn resolve(&mut self, position: i64, time_us: i64) {
        let known = self.resolved_at();
        if known.is_some_and(|at| self.incarnations[at].position >= position) {
            return;
        }
        match known {
            Some(at) => self.incarnations[..=at].rotate_right(1),
            None => drop(self.begin(RESOLVED, 0, position, None)),
        }
        self.incarnations[0].position = position;
        self.incarnations[0].commit_time_us = Some(time_us);
    }

    /// Judges a row of a source whose changes a partition does not have in the order of their positions, and remembers nothing:
    /// a replay lies **strictly below** a position that was resolved before it. Without one nothing is a replay.
    #[must_use]
    pub fn judge_resolved(&self, position: i64) -> Judged {
        let resolved = self.resolved_at().map(|at| self.incarnations[at].position);
        Judged {
            replayed: resolved.is_some_and(|resolved| position < resolved),
            ..Judged::NEWS
        }
    }

    fn resolved_at(&self) -> Option<usize> {
        let mut known = self.incarnations.iter();
        known.position(|known| known.source == RESOLVED)
    }

    fn judge_slowly(&mut self, source: &str, position: i64, commit_time_us: Option<i64>) -> Judged {
        let newest = self
            .incarnations
            .iter()
            .enumerate()
            .filter(|(_, known)| known.source == source)
            .max_by_key(|(_, known)| known.counter);
        let Some((at, newest)) = newest else {
            return self.begin(source, 0, position, commit_time_us);
        };
        // The newest first: what advances it is news whatever older ones say.
        if !newest.is_advanced_by(position, commit_time_us)
            && let Some(replayed) = self.replayed(source, position, commit_time_us)
        {
            return replayed;
        }
        let begins = match (commit_time_us, newest.commit_time_us) {
            (Some(row), Some(greatest)) => position < newest.position && row > greatest,
            _ => false,
        };
        if begins {
            return self.begin(
                source,
                newest.counter.saturating_add(1),
                position,
                commit_time_us,
            );
        }
        self.incarnations[..=at].rotate_right(1);
        let known = &mut self.incarnations[0];
        if position >= known.position {
            known.reach(position, commit_time_us);
        }
        Judged {
            counter: known.counter,
            replayed: false,
        }
    }

    /// The newest incarnation of the source in which the row is a replay.
    fn replayed(&self, source: &str, position: i64, commit_time_us: Option<i64>) -> Option<Judged> {
        let row = commit_time_us?;
        self.incarnations
            .iter()
            .filter(|known| known.source == source && position < known.position)
            .filter(|known| known.commit_time_us.is_some_and(|greatest| row <= greatest))
            .map(|known| known.counter)
            .max()
            .map(|counter| Judged {
                counter,
                replayed: true,
            })
    }

    fn begin(
        &mut self,
        source: &str,
        counter: u32,
        position: i64,
        commit_time_us: Option<i64>,
    ) -> Judged {
        self.incarnations.truncate(MAX_INCARNATIONS - 1);
        let begun = Incarnation {
            source: source.to_owned(),
            counter,
            position,
            commit_time_us,
        };
        self.incarnations.insert(0, begun);
        Judged {
            counter,
            replayed: false,
        }
    }
}

impl Incarnation {
    /// Takes a row that goes forward in both, the usual case.
    #[inline]
    fn advance(&mut self, position: i64, commit_time_us: Option<i64>) -> bool {
        let forward = self.is_advanced_by(position, commit_time_us);
        if forward {
            self.reach(position, commit_time_us);
        }
        forward
    }

    #[inline]
    fn is_advanced_by(&self, position: i64, commit_time_us: Option<i64>) -> bool {
        position >= self.position && commit_time_us >= self.commit_time_us
    }

    #[inline]
    fn reach(&mut self, position: i64, commit_time_us: Option<i64>) {
        // On the same position the greater time stays; a greater position brings its own.
        self.commit_time_us = if position == self.position {
            self.commit_time_us.max(commit_time_us)
        } else {
            commit_time_us
        };
        self.position = position;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(counter: u32, replayed: bool) -> Judged {
        Judged { counter, replayed }
    }

    #[test]
    fn strictly_below_and_not_later_is_a_replay() {
        let mut known = SourcePositions::default();
        known.judge("db/1", 100, Some(10));
        assert_eq!(known.judge("db/1", 99, Some(10)), judged(0, true));
        assert_eq!(known.judge("db/1", 99, Some(9)), judged(0, true));
        assert_eq!(
            known.judge("db/1", 100, Some(10)),
            judged(0, false),
            "equal is news"
        );
        assert_eq!(
            known.judge("db/1", 101, Some(9)),
            judged(0, false),
            "a later position is news"
        );
    }

    /// Taken for a replay, the first hour after a reset of the source's log would have no say.
    #[test]
    fn a_position_that_goes_back_in_later_time_begins_an_incarnation() {
        let mut known = SourcePositions::default();
        known.judge("db/1", 1_000, Some(10));
        assert_eq!(known.judge("db/1", 4, Some(11)), judged(1, false));
        assert_eq!(known.judge("db/1", 5, Some(12)), judged(1, false));
        assert_eq!(
            known.judge("db/1", 900, Some(9)),
            judged(0, true),
            "of the old incarnation"
        );
        assert_eq!(known.judge("db/1", 6, Some(13)), judged(1, false));
    }

    #[test]
    fn without_commit_times_nothing_is_a_replay() {
        let mut known = SourcePositions::default();
        known.judge("db/1", 100, None);
        assert_eq!(known.judge("db/1", 50, None), judged(0, false));
        assert_eq!(known.judge("db/1", 50, Some(1)), judged(0, false));
        assert_eq!(known.incarnations()[0].position, 100, "the greatest stays");
    }

    #[test]
    fn sources_do_not_judge_each_other() {
        let mut known = SourcePositions::default();
        known.judge("db/1", 100, Some(10));
        assert_eq!(known.judge("db/2", 5, Some(5)), judged(0, false));
        assert_eq!(known.judge("db/1", 50, Some(5)), judged(0, true));
    }

    #[test]
    fn the_seventeenth_source_forgets_the_one_unused_longest() {
        let mut known = SourcePositions::default();
        for i in 0..MAX_INCARNATIONS {
            known.judge(&format!("db/{i}"), 100, Some(10));
        }
        known.judge("db/0", 101, Some(11));
        known.judge("db/new", 1, Some(1));
        assert_eq!(known.incarnations().len(), MAX_INCARNATIONS);
        assert_eq!(
            known.judge("db/1", 5, Some(5)),
            judged(0, false),
            "forgotten: not a replay"
        );
        assert_eq!(known.judge("db/0", 5, Some(5)), judged(0, true));
    }

    /// Taken from the order of positions, rows of another table of the same topic would be replays.
    #[test]
    fn without_an_order_only_what_is_below_a_resolved_position_is_a_replay() {
        let mut known = SourcePositions::default();
        assert_eq!(known.judge_resolved(100), judged(0, false));
        assert_eq!(known.judge_resolved(50), judged(0, false), "no order");
        known.resolve(100, 10);
        assert_eq!(known.judge_resolved(99), judged(0, true));
        assert_eq!(known.judge_resolved(100), judged(0, false), "equal is news");
        known.resolve(90, 9);
        assert_eq!(known.judge_resolved(95), judged(0, true), "never goes back");
        known.resolve(120, 12);
        let kept = SourcePositions::from_incarnations(known.incarnations().to_vec());
        assert_eq!(kept.judge_resolved(119), judged(0, true));
        assert_eq!(kept.incarnations().len(), 1);
    }

    /// A topic that had another format before.
    #[test]
    fn a_resolved_position_and_ordered_ones_do_not_judge_each_other() {
        let mut known = SourcePositions::default();
        known.judge("db/1", 100, Some(10));
        known.resolve(1_000, 100);
        assert_eq!(known.judge("db/1", 150, Some(15)), judged(0, false));
        assert_eq!(known.judge("db/1", 99, Some(9)), judged(0, true));
        assert_eq!(known.judge_resolved(999), judged(0, true));
    }
}
