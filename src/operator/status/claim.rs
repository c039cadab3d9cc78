//! Which claim is told of a pipeline whose workers have answered several, and how it stands in the status.
//!
//! The claim of the newest commit counts. Which one that is:
//! - Of one table the greater epoch is newer, and within an epoch the greater claim: both only rise along the table's history, and
//!   nothing else about a commit is told from outside. The commit ids, which begin with the clock of their workers, decide
//!   between equals only: that clock may be wrong, epoch and claim are not.
//! - A table that was made again counts its epochs anew. Of two tables the one of the newest commit is meant: a worker that holds
//!   the old one stops.
//!
//! A worker that says why the claim is void speaks for the table, even beside one that has not seen it yet: it is withdrawn until
//! nobody says so any more, or a later epoch is claimed.

use uuid::Uuid;

use super::{Workers, accepted, gap, text};
use crate::api::{
    pipeline::LengthText,
    quantity::parse_instant_us,
    status::{AcceptedStatus, GapStatus, IngestionPipelineStatus},
    worker::{ClaimProgress, Interval, ReopenedProgress},
};

/// How many gaps, and how many withheld stretches, a status names.
pub(super) const MOST_STRETCHES: usize = 16;

/// How many sets of terms a status names: all that three admitted terms can form.
pub(super) const MOST_SETS: usize = 7;

/// What is told of the claim.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Told<'a> {
    /// What stands in the status: no answer is newer.
    AsBefore,
    /// The claim of this answer.
    Claim(&'a ClaimProgress),
    /// No claim any more.
    Withdrawn,
}

/// How a claim is compared: the table, then what rises along its history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Age {
    epoch: u64,
    before_us: Option<i64>,
    commit_id: Uuid,
}

/// Picks the claim to tell.
pub(super) fn told<'a>(
    workers: &'a Workers,
    old: &IngestionPipelineStatus,
    now_us: i64,
) -> Told<'a> {
    let void = void(workers, old, now_us);
    let counts = |claim: &&ClaimProgress| {
        let of_void = |void: &Void| void.is_of(claim.table_uuid) && claim.epoch <= void.epoch;
        !void.iter().any(of_void)
    };
    let commit = old.commit_id.unwrap_or_default();
    let newest = workers
        .claims(now_us)
        .filter(counts)
        .max_by_key(|claim| claim.commit_id)
        .filter(|claim| claim.commit_id >= commit);
    // The table of the newest commit of all.
    let table = newest.map_or(old.table_uuid, |claim| claim.table_uuid.or(old.table_uuid));
    let is_meant = |of: Option<Uuid>| of.is_none() || table.is_none() || of == table;
    let answer = workers
        .claims(now_us)
        .filter(counts)
        .filter(|claim| is_meant(claim.table_uuid))
        .max_by_key(|claim| age(claim));
    match answer {
        Some(claim) if !is_meant(old.table_uuid) || Some(age(claim)) >= age_of(old) => {
            Told::Claim(claim)
        }
        _ if !void.is_empty() => Told::Withdrawn,
        _ => Told::AsBefore,
    }
}

/// What a worker says does not count: the claims of a table up to an epoch. One that has not seen the table speaks of the one that
/// was told.
struct Void {
    table_uuid: Option<Uuid>,
    epoch: u64,
}

impl Void {
    /// Whether it is about this table; one that is not known may be any.
    fn is_of(&self, table_uuid: Option<Uuid>) -> bool {
        self.table_uuid.is_none() || table_uuid.is_none() || self.table_uuid == table_uuid
    }

    /// Whether what was told is among it. One that has not seen a later epoch yet speaks of the one before.
    fn touches(&self, old: &IngestionPipelineStatus) -> bool {
        self.is_of(old.table_uuid) && Some(self.epoch) >= old.epoch
    }
}

/// What workers say does not count, where that touches what was told.
fn void(workers: &Workers, old: &IngestionPipelineStatus, now_us: i64) -> Vec<Void> {
    let void = workers.iter().filter_map(|(_, worker)| {
        let progress = worker.progress(now_us)?;
        let error = progress.last_error.as_ref()?;
        let claim = progress.claim.as_ref();
        let seen = claim.map(|claim| claim.epoch);
        error.reason.voids_claim().then(|| Void {
            table_uuid: claim.and_then(|claim| claim.table_uuid).or(old.table_uuid),
            epoch: seen.or(old.epoch).unwrap_or(u64::MAX),
        })
    });
    void.filter(|void| void.touches(old)).collect()
}

fn age(claim: &ClaimProgress) -> Age {
    Age {
        epoch: claim.epoch,
        before_us: claim.finalized_before_us,
        commit_id: claim.commit_id,
    }
}

fn age_of(status: &IngestionPipelineStatus) -> Option<Age> {
    Some(Age {
        epoch: status.epoch?,
        before_us: status
            .finalized_before
            .as_ref()
            .and_then(|text| parse_instant_us(&text.0)),
        commit_id: status.commit_id.unwrap_or_default(),
    })
}

impl Told<'_> {
    /// Writes it into a status. `old` is what stood there.
    pub(super) fn write(&self, old: &IngestionPipelineStatus, new: &mut IngestionPipelineStatus) {
        new.table_uuid = old.table_uuid;
        new.epoch = old.epoch;
        new.cell.clone_from(&old.cell);
        new.zone.clone_from(&old.zone);
        match self {
            Told::Withdrawn => {}
            Told::AsBefore => {
                new.finalized_before.clone_from(&old.finalized_before);
                new.complete_from.clone_from(&old.complete_from);
                new.gaps.clone_from(&old.gaps);
                new.withheld.clone_from(&old.withheld);
                new.accepted.clone_from(&old.accepted);
                new.evidence.clone_from(&old.evidence);
                new.commit_id = old.commit_id;
            }
            Told::Claim(claim) => write_claim(claim, new),
        }
    }

    /// Before which instant the table is shown to be complete, µs. `old` is what stood there.
    pub(super) fn shown_us(&self, old: &IngestionPipelineStatus) -> Option<i64> {
        match self {
            Told::Withdrawn => None,
            Told::AsBefore => parse_instant_us(&old.finalized_before.as_ref()?.0),
            Told::Claim(claim) => claim.finalized_before_us,
        }
    }

    /// What was final before and is open again; `None`: what was said of it before still holds.
    pub(super) fn reopened(&self) -> Option<(Option<ReopenedProgress>, Option<i64>)> {
        match self {
            Told::Claim(claim) => Some((claim.reopened, claim.finalized_before_us)),
            Told::AsBefore | Told::Withdrawn => None,
        }
    }
}

fn write_claim(claim: &ClaimProgress, new: &mut IngestionPipelineStatus) {
    new.epoch = Some(claim.epoch);
    new.commit_id = Some(claim.commit_id);
    new.table_uuid = claim.table_uuid.or(new.table_uuid);
    if let Some(cell) = &claim.cell {
        new.cell = Some(LengthText(cell.clone()));
        new.zone.clone_from(&claim.zone);
    }
    let Some(before_us) = claim.finalized_before_us else {
        return;
    };
    new.finalized_before = Some(text(before_us));
    new.complete_from = claim.complete_from_us.map(text);
    new.gaps = few(claim.gaps.iter().copied());
    let withheld = claim.amended.iter().filter(|cell| cell.withheld);
    new.withheld = few(withheld.map(|cell| cell.cell));
    new.accepted = sets(claim);
    new.evidence = (!claim.evidence.is_empty()).then(|| claim.evidence.join(","));
}

/// The sets of terms that carry the claim anywhere: those of the fewest terms, in the order of their names.
fn sets(claim: &ClaimProgress) -> Vec<AcceptedStatus> {
    let mut sets: Vec<_> = claim
        .accepted
        .iter()
        .filter_map(|set| Some((set.terms.len(), &set.terms, set.before_us?)))
        .collect();
    sets.sort();
    let few = sets.into_iter().take(MOST_SETS);
    few.map(|(_, terms, before_us)| accepted(terms, before_us))
        .collect()
}

/// At most [`MOST_STRETCHES`] that cover all of these: those that lie closest become one, so that more is covered, never less.
pub(super) fn few(stretches: impl Iterator<Item = Interval>) -> Vec<GapStatus> {
    let mut apart: Vec<Interval> = Vec::new();
    let mut sorted: Vec<Interval> = stretches
        .filter(|stretch| stretch.from_us < stretch.before_us)
        .collect();
    sorted.sort();
    for stretch in sorted {
        match apart.last_mut() {
            Some(last) if stretch.from_us <= last.before_us => {
                last.before_us = last.before_us.max(stretch.before_us);
            }
            _ => apart.push(stretch),
        }
    }
    while apart.len() > MOST_STRETCHES {
        let distance = |at: &usize| apart[at + 1].from_us.abs_diff(apart[*at].before_us);
        let closest = (0..apart.len() - 1).min_by_key(distance).unwrap_or(0);
        let absorbed = apart.remove(closest + 1);
        apart[closest].before_us = absorbed.before_us;
    }
    apart
        .into_iter()
        .map(|stretch| gap(stretch.from_us, stretch.before_us))
        .collect()
}
