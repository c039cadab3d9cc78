//! What the table claims, and what holds it.
//!
//! In: a state, an instant. Out: the candidate, what is published, the evidence and margin it rests on, and what keeps the
//! next cell open. The same functions serve the worker that commits and a reader that accepts fewer terms.
//!
//! A claim never falls within an epoch, and it lies below both caps: what was asked of the broker and the clock of the
//! commit. Everything that is unknown holds.
//!
//! Decided here, where the rules leave it open:
//! - A claim ranges over the partitions that the broker named **and** those in the table: more can only hold it longer.
//! - Where no term of a partition reaches the published claim any more (a window slid, terms were taken out), the evidence
//!   of before stays beside what the others show.
//! - Complete-from does not rise when a bound is widened later; it does when its owner changes the rule for it.

use std::collections::BTreeSet;

use super::amended::Amended;
use super::epoch::Reopened;
use super::frontier::{FromRule, Term, TermValue, View};
use super::gaps::Gaps;
use super::order::Retracted;
use super::state::{CompleteFrom, State, missed_until};

/// What keeps the next cell open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldBy {
    /// The broker was never asked for its partitions.
    NotAsked,
    /// The topics have no partition.
    NoPartition,
    /// No term is admitted.
    NoTerm,
    /// The broker names a partition whose start offset is not anchored yet.
    Unanchored {
        /// Its topic.
        topic: String,
        /// Its number.
        partition: i32,
    },
    /// The least frontier.
    Partition {
        /// Its topic.
        topic: String,
        /// Its number.
        partition: i32,
        /// The term it rests on; `None`: no admitted term is known yet.
        term: Option<Term>,
    },
    /// The last answer about the partitions, less the greatest delay.
    Asked,
    /// The clock of the last commit.
    Clock,
    /// Another writer of the table.
    Writer {
        /// Its name.
        writer: String,
    },
    /// This worker's settings are older than the table's.
    Policy {
        /// The revision on the table.
        revision: u64,
    },
}

/// What holds the next open cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The start of the lowest open cell; `None` while nothing is claimed.
    pub cell_us: Option<i64>,
    /// What holds it.
    pub by: HeldBy,
    /// How far that has got; `None`: unknown.
    pub reached_us: Option<i64>,
    /// Since when: the last news that moved it.
    pub since_us: i64,
}

/// What a commit publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Steps back happen only between epochs.
    pub epoch: u64,
    /// Complete before this instant; `None`: no claim.
    pub finalized_before_us: Option<i64>,
    /// Complete from here on.
    pub complete_from: CompleteFrom,
    /// What is left out in between.
    pub gaps: Gaps,
    /// The terms it rests on.
    pub evidence: BTreeSet<Term>,
    /// How much disorder beyond the bounds it survives; `None` without a claim or when a partition has no term left.
    pub margin_us: Option<i64>,
    /// Cells that were final in an earlier epoch and are open again.
    pub reopened: Option<Reopened>,
    /// Cells that got rows after they were final.
    pub amended: Amended,
    /// The stretches that were retracted last; all of them are among the gaps.
    pub retracted: Vec<Retracted>,
}

/// The least of everything a claim depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    /// How far; `None`: unknown, no candidate.
    pub(super) reached_us: Option<i64>,
    /// By whom.
    pub(super) by: HeldBy,
    /// Since when.
    pub(super) since_us: i64,
}

impl State {
    /// The view of the state's own policy at the instant of its commit.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View {
            policy: &self.policy,
            terms: &self.policy.terms,
            now_us: self.committed_at_us,
            snapshot: self.newest_change.is_some_and(|change| change.snapshot),
        }
    }

    /// How far a claim could go that rests on the accepted terms alone, as of the state's commit: at most what is published.
    #[must_use]
    pub fn accepted(&self, terms: &BTreeSet<Term>) -> Option<i64> {
        let terms = self.policy.terms.intersection(terms).copied().collect();
        let view = View {
            terms: &terms,
            ..self.view()
        };
        let candidate = self.candidate(&view)?;
        Some(candidate.min(self.published.finalized_before_us?))
    }

    /// The greatest cell edge that everything has passed.
    pub(super) fn candidate(&self, view: &View<'_>) -> Option<i64> {
        self.limit(view)
            .reached_us
            .map(|us| self.policy.grid.floor(us))
    }

    /// The least of all frontiers and both caps; the first unknown one if there is any.
    pub(super) fn limit(&self, view: &View<'_>) -> Limit {
        let unknown = |by: HeldBy, since_us: i64| Limit {
            reached_us: None,
            by,
            since_us,
        };
        let Some(asked) = &self.asked else {
            return unknown(HeldBy::NotAsked, self.anchored_at_us);
        };
        if view.terms.is_empty() {
            return unknown(HeldBy::NoTerm, self.committed_at_us);
        }
        for (topic, partitions) in &asked.topics {
            if let Some(partition) = partitions
                .iter()
                .find(|p| self.partition(topic, **p).is_none())
            {
                let by = HeldBy::Unanchored {
                    topic: topic.clone(),
                    partition: *partition,
                };
                return unknown(by, asked.at_us);
            }
        }
        let mut limit = Limit {
            reached_us: Some(self.committed_at_us),
            by: HeldBy::Clock,
            since_us: self.committed_at_us,
        };
        let asked_cap = asked.at_us.saturating_sub(self.policy.bounds.max_delay_us);
        if limit.reached_us.is_some_and(|us| asked_cap <= us) {
            limit = Limit {
                reached_us: Some(asked_cap),
                by: HeldBy::Asked,
                since_us: asked.at_us,
            };
        }
        self.least_frontier(view, limit)
    }

    fn least_frontier(&self, view: &View<'_>, mut limit: Limit) -> Limit {
        let mut any = false;
        for (topic, partition, state) in self.partitions() {
            any = true;
            let frontier = view.frontier(state);
            let reached_us = frontier.map(|value| value.value_us);
            if reached_us.is_some() && reached_us > limit.reached_us {
                continue;
            }
            let newest = state
                .window
                .entries
                .first()
                .map(|entry| entry.committed_at_us);
            let since_us = match frontier {
                Some(value) => match value.term {
                    Term::Minimum | Term::Percentile => newest,
                    Term::Resolved | Term::Heartbeat | Term::CaughtUp | Term::Clock => {
                        Some(value.basis_us)
                    }
                },
                None => newest.max(state.anchor_us),
            };
            limit = Limit {
                reached_us,
                by: HeldBy::Partition {
                    topic: topic.to_owned(),
                    partition,
                    term: frontier.map(|value| value.term),
                },
                since_us: since_us.unwrap_or(self.anchored_at_us),
            };
            if reached_us.is_none() {
                return limit;
            }
        }
        if !any {
            limit.by = HeldBy::NoPartition;
            limit.reached_us = None;
        }
        limit
    }

    /// Publishes what the state allows: called once a commit, after its record was applied. `edge_kept`:
    /// complete-from does not rise but by a gap, since neither its owner's rule has changed nor a topic joined.
    pub(super) fn publish(&mut self, may_raise: bool, edge_kept: bool) {
        let before_us = self.published.finalized_before_us;
        if may_raise && let Some(candidate) = self.candidate(&self.view()) {
            self.published.finalized_before_us = before_us.max(Some(candidate));
        }
        assert!(
            self.published.finalized_before_us >= before_us,
            "a claim never falls within an epoch"
        );
        let derived = self.derive_complete_from();
        let kept = if edge_kept {
            derived.min(self.published.complete_from)
        } else {
            derived
        };
        self.published.complete_from = match self.lost_before_us() {
            Some(lost_us) => kept.max(CompleteFrom::From(lost_us)),
            None => kept,
        };
        if let Some(claim_us) = self.published.finalized_before_us {
            self.published.evidence = self.evidence(claim_us);
        }
        let claimed = self.claimed_us();
        self.published.close_reopened(claimed);
    }

    fn derive_complete_from(&self) -> CompleteFrom {
        let policy = &self.policy;
        match policy.complete_from {
            FromRule::Unbounded => return CompleteFrom::Unbounded,
            FromRule::Instant(us) => return CompleteFrom::From(policy.grid.ceil(us)),
            FromRule::Derived => {}
        }
        let ends = self.partitions().filter_map(|(_, _, state)| {
            let anchored_us = state.anchor_us?;
            Some(missed_until(policy, anchored_us, state.first_least_us))
        });
        CompleteFrom::From(
            ends.max()
                .unwrap_or_else(|| missed_until(policy, self.anchored_at_us, None)),
        )
    }

    /// The first term of each partition that reaches the claim.
    fn used(&self, claim_us: i64) -> impl Iterator<Item = Option<TermValue>> {
        let view = self.view();
        self.partitions()
            .map(move |(_, _, state)| view.values(state).find(|value| value.value_us >= claim_us))
    }

    fn evidence(&self, claim_us: i64) -> BTreeSet<Term> {
        let mut terms = BTreeSet::new();
        for used in self.used(claim_us) {
            match used {
                Some(value) => {
                    terms.insert(value.term);
                }
                None => terms.extend(&self.published.evidence),
            }
        }
        terms
    }

    /// What this writer publishes for itself.
    #[must_use]
    pub fn own_claim(&self) -> Claim {
        let claimed = self.published.finalized_before_us;
        let margin_us = claimed.and_then(|claim_us| {
            let bases = self
                .used(claim_us)
                .map(|used| used.map(|value| value.basis_us.saturating_sub(claim_us)));
            // One partition without a term, and nothing can be said.
            bases.min().flatten()
        });
        Claim {
            epoch: self.published.epoch,
            finalized_before_us: claimed,
            complete_from: self.published.complete_from,
            gaps: self.gaps(),
            evidence: self.published.evidence.clone(),
            margin_us,
            reopened: self.published.reopened,
            amended: self.published.amended.clone(),
            retracted: self.published.retracted.clone(),
        }
    }

    /// What holds the next open cell. `current`: whether the one who asks may raise the claim ([`super::is_current`]); a
    /// reader says `true`.
    #[must_use]
    pub fn hold(&self, current: bool) -> Hold {
        let limit = self.limit(&self.view());
        let claimed = self.published.finalized_before_us;
        let cell_us = claimed.map(|us| self.policy.grid.floor(us));
        let next_us = cell_us.map(|us| self.policy.grid.end(us));
        if let Some(peer) = self.held_by_peer() {
            let reached_us = peer.claim.finalized_before_us;
            return Hold {
                cell_us: reached_us.map(|us| self.policy.grid.floor(us)),
                by: HeldBy::Writer {
                    writer: peer.writer.clone(),
                },
                reached_us,
                since_us: self.committed_at_us,
            };
        }
        if !current
            && limit
                .reached_us
                .is_some_and(|us| next_us.is_none_or(|next| us >= next))
        {
            return Hold {
                cell_us,
                by: HeldBy::Policy {
                    revision: self.policy.revision,
                },
                reached_us: limit.reached_us,
                since_us: self.committed_at_us,
            };
        }
        Hold {
            cell_us,
            by: limit.by,
            reached_us: limit.reached_us,
            since_us: limit.since_us,
        }
    }

    /// The end of the lowest open cell; `None` while nothing is claimed.
    #[must_use]
    pub fn open_cell_end_us(&self) -> Option<i64> {
        self.published
            .finalized_before_us
            .map(|us| self.policy.grid.end(us))
    }
}
