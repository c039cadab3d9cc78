//! Whether a table told the truth: what its producer sent, against what the table held and claimed after each commit.
//!
//! The producer's own record goes in, and the table's history as somebody else's reader sees it; no code of the product is used, and no
//! clock is read. A row that broke a declared bound (it came out of order or late by more than allowed) has no claim to have been
//! waited for; how many did so is part of the verdict, because a run of nothing else proves nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// Where a record lies in Kafka: topic, partition, offset.
pub(crate) type Place = (String, i32, i64);

/// One event as its producer knows it.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// The producer's own number of it.
    pub(crate) number: u64,
    pub(crate) place: Place,
    pub(crate) event_time_us: i64,
    /// When the broker had acknowledged it.
    pub(crate) delivered_us: i64,
    /// Its transaction was aborted: no reader may ever see it.
    pub(crate) aborted: bool,
}

/// What one commit on the table brought and said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Commit {
    pub(crate) rows: Vec<(Place, Option<i64>)>,
    pub(crate) epoch: u64,
    /// The interval said to be complete, `[from, before)`, while there is a claim.
    pub(crate) complete: Option<(i64, i64)>,
    /// What of it is not.
    pub(crate) gaps: Vec<(i64, i64)>,
}

/// The bounds that the pipeline declares.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "the unit comes last in a name")]
pub(crate) struct Bounds {
    pub(crate) lateness_us: i64,
    pub(crate) delay_us: i64,
    pub(crate) cell_us: i64,
}

/// What was found. Faults come first; `assert_true` says what a good run is.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// Sent, and not in the table.
    pub(crate) missing: Vec<Place>,
    /// More than once in the table.
    pub(crate) doubled: Vec<Place>,
    /// In the table and never sent, aborted, or with another event time.
    pub(crate) foreign: Vec<Place>,
    /// Rows that came to the table after a commit that said their time was complete.
    pub(crate) early: Vec<Place>,
    /// Commits whose claim is below one before it in the same epoch.
    pub(crate) fallen: Vec<usize>,
    /// How many rows broke a bound and were not waited for.
    pub(crate) unbound: usize,
    /// How many rows were sent in all, without the aborted ones.
    pub(crate) sent: usize,
    /// How many cells the claim moved by, from its first value to its last.
    pub(crate) cells: i64,
    /// How many rows lay within the allowed lateness of a claim that was published.
    pub(crate) at_an_edge: usize,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sent,
            unbound,
            cells,
            at_an_edge,
            ..
        } = self;
        write!(
            f,
            "{sent} rows, {unbound} of them not bound; {cells} cells closed, {at_an_edge} rows at their edges"
        )
    }
}

impl Verdict {
    /// Fails unless every row is there once and no claim was ever above the truth.
    #[track_caller]
    pub(crate) fn assert_true(&self) {
        let faults = [&self.missing, &self.doubled, &self.foreign, &self.early];
        assert!(
            faults.iter().all(|fault| fault.is_empty()) && self.fallen.is_empty(),
            "{self:#?}"
        );
        assert!(
            self.unbound * 2 <= self.sent,
            "most rows broke a bound, so the run proves little: {self:?}"
        );
    }

    /// Fails unless no row is there twice or without having been sent, and every claim was true: a row that is missing lies where
    /// none of them says complete.
    #[track_caller]
    pub(crate) fn assert_no_lie(&self, sent: &[Sent], commits: &[Commit]) {
        let faults = [&self.doubled, &self.foreign, &self.early];
        assert!(
            faults.iter().all(|fault| fault.is_empty()) && self.fallen.is_empty(),
            "{self:#?}"
        );
        let missing: BTreeSet<&Place> = self.missing.iter().collect();
        let lie = sent
            .iter()
            .filter(|one| missing.contains(&one.place))
            .find(|one| {
                let mut said = commits.iter();
                said.any(|commit| says_complete(commit, one.event_time_us))
            });
        assert!(lie.is_none(), "said to be complete, and missing: {lie:?}");
    }

    /// Fails unless the claim moved by so many cells, with rows at the edges of what it closed.
    #[track_caller]
    pub(crate) fn assert_moved(&self, cells: i64) {
        assert!(
            self.cells >= cells,
            "the claim was to move by {cells} cells: {self:?}"
        );
        assert!(
            self.at_an_edge > 0,
            "no row lay near an edge, so no edge was tried: {self:?}"
        );
    }
}

/// Judges a table's history, the oldest commit first, by its producer's record.
pub(crate) fn judge(sent: &[Sent], commits: &[Commit], bounds: Bounds) -> Verdict {
    let mut verdict = Verdict::default();
    let came = arrivals(sent, commits, &mut verdict);
    let unbound = unbound(sent, bounds);
    let edges: BTreeSet<i64> = commits
        .iter()
        .filter_map(|commit| Some(commit.complete?.1))
        .collect();
    for one in sent.iter().filter(|one| !one.aborted) {
        verdict.sent += 1;
        let near = one.event_time_us - bounds.lateness_us..one.event_time_us + bounds.lateness_us;
        verdict.at_an_edge += usize::from(edges.range(near).next().is_some());
        let Some(&arrival) = came.get(&one.place) else {
            verdict.missing.push(one.place.clone());
            continue;
        };
        if unbound.contains(&one.place) {
            verdict.unbound += 1;
        } else if commits[..arrival]
            .iter()
            .any(|commit| says_complete(commit, one.event_time_us))
        {
            verdict.early.push(one.place.clone());
        }
    }
    verdict.fallen = fallen(commits);
    if let (Some(first), Some(last)) = (edges.first(), edges.last()) {
        verdict.cells = (last - first) / bounds.cell_us;
    }
    verdict
}

/// The commit that each row came with; rows that should not be there, or not twice, go to the verdict.
fn arrivals(sent: &[Sent], commits: &[Commit], verdict: &mut Verdict) -> BTreeMap<Place, usize> {
    let known: BTreeMap<&Place, &Sent> = sent.iter().map(|one| (&one.place, one)).collect();
    assert_eq!(
        known.len(),
        sent.len(),
        "the producer's own record names a place twice"
    );
    let mut came = BTreeMap::new();
    for (index, commit) in commits.iter().enumerate() {
        for (place, event_time_us) in &commit.rows {
            if !known
                .get(place)
                .is_some_and(|one| !one.aborted && Some(one.event_time_us) == *event_time_us)
            {
                verdict.foreign.push(place.clone());
            }
            if came.insert(place.clone(), index).is_some() {
                verdict.doubled.push(place.clone());
            }
        }
    }
    came
}

/// Rows that came to Kafka later than the greatest delay, or out of order by more than the allowed lateness.
fn unbound(sent: &[Sent], bounds: Bounds) -> BTreeSet<Place> {
    let mut ordered: Vec<_> = sent.iter().filter(|one| !one.aborted).collect();
    ordered.sort_by(|a, b| a.place.cmp(&b.place));
    let mut newest: BTreeMap<(&str, i32), i64> = BTreeMap::new();
    let mut broke = BTreeSet::new();
    for one in ordered {
        let newest = newest
            .entry((&one.place.0, one.place.1))
            .or_insert(i64::MIN);
        *newest = one.event_time_us.max(*newest);
        if one.event_time_us < *newest - bounds.lateness_us
            || one.delivered_us - one.event_time_us > bounds.delay_us
        {
            broke.insert(one.place.clone());
        }
    }
    broke
}

fn says_complete(commit: &Commit, event_time_us: i64) -> bool {
    let within = |&(from, before): &(i64, i64)| (from..before).contains(&event_time_us);
    commit.complete.as_ref().is_some_and(within) && !commit.gaps.iter().any(within)
}

fn fallen(commits: &[Commit]) -> Vec<usize> {
    let mut highest: BTreeMap<u64, i64> = BTreeMap::new();
    let mut fallen = Vec::new();
    for (index, commit) in commits.iter().enumerate() {
        let claim = commit.complete.map_or(i64::MIN, |(_, before)| before);
        let highest = highest.entry(commit.epoch).or_insert(claim);
        if claim < *highest {
            fallen.push(index);
        }
        *highest = claim.max(*highest);
    }
    fallen
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        lateness_us: 10,
        delay_us: 20,
        cell_us: 50,
    };

    /// A record of partition 0 that reached Kafka at its own event time.
    fn sent(offset: i64, event_time_us: i64) -> Sent {
        Sent {
            number: 0,
            place: place(offset),
            event_time_us,
            delivered_us: event_time_us,
            aborted: false,
        }
    }

    fn place(offset: i64) -> Place {
        ("orders".to_owned(), 0, offset)
    }

    fn commit(complete: Option<(i64, i64)>, rows: &[(i64, i64)]) -> Commit {
        let rows = rows
            .iter()
            .map(|&(offset, time)| (place(offset), Some(time)))
            .collect();
        Commit {
            rows,
            complete,
            ..Commit::default()
        }
    }

    #[test]
    fn good_run_passes() {
        let log = [sent(0, 10), sent(1, 48), sent(2, 120)];
        let history = [
            commit(None, &[(0, 10)]),
            commit(Some((0, 50)), &[(1, 48)]),
            commit(Some((0, 100)), &[(2, 120)]),
        ];
        let verdict = judge(&log, &history, BOUNDS);
        verdict.assert_true();
        verdict.assert_moved(1);
        assert_eq!((verdict.sent, verdict.cells, verdict.at_an_edge), (3, 1, 1));
    }

    #[test]
    fn missing_doubled_foreign_and_altered_rows_are_told_apart() {
        let mut log = [sent(0, 10), sent(1, 11), sent(2, 12), sent(3, 13)];
        log[3].aborted = true;
        let history = [
            commit(None, &[(1, 11), (2, 99), (3, 13), (7, 7)]),
            commit(None, &[(1, 11)]),
        ];
        let verdict = judge(&log, &history, BOUNDS);
        assert_eq!(verdict.missing, [place(0)]);
        assert_eq!(verdict.doubled, [place(1)]);
        assert_eq!(verdict.foreign, [place(2), place(3), place(7)]);
    }

    #[test]
    fn row_below_an_earlier_claim_is_early() {
        let log = [sent(0, 50), sent(1, 49)];
        let history = [
            commit(Some((0, 50)), &[(0, 50)]),
            commit(Some((0, 50)), &[(1, 49)]),
        ];
        assert_eq!(judge(&log, &history, BOUNDS).early, [place(1)]);
        // The commit that brings a row may say that its time is complete with it.
        let history = [commit(None, &[(0, 50)]), commit(Some((0, 50)), &[(1, 49)])];
        assert_eq!(judge(&log, &history, BOUNDS).early, [] as [Place; 0]);
    }

    #[test]
    fn nothing_is_said_below_complete_from_or_in_a_gap() {
        let log = [sent(0, 95), sent(1, 90)];
        let mut history = [
            commit(Some((95, 100)), &[(0, 95)]),
            commit(Some((0, 100)), &[(1, 90)]),
        ];
        assert_eq!(judge(&log, &history, BOUNDS).early, [] as [Place; 0]);
        history[0].complete = Some((0, 100));
        assert_eq!(judge(&log, &history, BOUNDS).early, [place(1)]);
        history[0].gaps = vec![(90, 91)];
        assert_eq!(judge(&log, &history, BOUNDS).early, [] as [Place; 0]);
    }

    #[test]
    fn row_that_broke_a_bound_was_not_to_be_waited_for() {
        // 10 of lateness are allowed: 39 is one too many behind 50. 20 of delay: so is 21.
        let mut log = [sent(0, 50), sent(1, 39), sent(2, 51)];
        log[2].delivered_us = 72;
        let history = [
            commit(Some((0, 100)), &[(0, 50)]),
            commit(Some((0, 100)), &[(1, 39), (2, 51)]),
        ];
        let verdict = judge(&log, &history, BOUNDS);
        assert_eq!((verdict.early.len(), verdict.unbound), (0, 2));
        log[1].event_time_us = 40;
        log[2].delivered_us = 71;
        let history = [
            commit(Some((0, 100)), &[(0, 50)]),
            commit(Some((0, 100)), &[(1, 40), (2, 51)]),
        ];
        assert_eq!(judge(&log, &history, BOUNDS).early.len(), 2);
    }

    #[test]
    fn claim_falls_only_with_an_epoch() {
        let mut history = [
            commit(Some((0, 100)), &[]),
            commit(Some((0, 50)), &[]),
            commit(None, &[]),
        ];
        assert_eq!(judge(&[], &history, BOUNDS).fallen, [1, 2]);
        history[1].epoch = 1;
        history[2].epoch = 2;
        assert_eq!(judge(&[], &history, BOUNDS).fallen, [] as [usize; 0]);
    }
}
