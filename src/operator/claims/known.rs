//! What is known of one pipeline's table, and the verdict on a question about it.
//!
//! Comes in: the pipeline's status, and on the leader what a worker last said. Goes out: a [`Reading`] as `tidemark wait` has it
//! of the table itself, judged by the same function.
//!
//! A claim that is told here is a copy as of a commit: it may be behind the table, never ahead of it. Unknown is never ready:
//! - a claim whose worker says that it is void is held;
//! - terms that this version does not know are accepted by nobody who names terms;
//! - cells that are withheld are not yet.

use std::{collections::BTreeSet, sync::Arc};

use super::super::{Key, index::Kept, status};
use crate::{
    api::{
        Reason,
        quantity::{parse_instant_us, parse_length_us},
        status::{GapStatus, IngestionPipelineStatus},
        worker::{ClaimProgress, Interval, PipelineProgress},
    },
    sensor::{Question, Reading, Standing, TableClaim, Verdict, verdict::Accepted},
    watermark::{Amended, AmendedCell, Claim, CompleteFrom, Gaps, Grid, Term},
};

/// What is known of one pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// Which pipeline.
    pub key: Key,
    /// What it asks for.
    pub kept: Arc<Kept>,
    /// Its status: the newest that was derived, or the one that the object has.
    pub status: Arc<IngestionPipelineStatus>,
    /// What a worker last said, where this replica asks them.
    pub progress: Option<Arc<PipelineProgress>>,
}

impl Known {
    /// What a worker said of the claim, where it is the one that the status tells.
    #[must_use]
    pub fn fresh(&self) -> Option<&ClaimProgress> {
        let claim = self.progress.as_ref()?.claim.as_ref()?;
        let told = us(self.status.finalized_before.as_ref().map(|text| &text.0));
        let same = self.status.epoch == Some(claim.epoch)
            && told.is_some()
            && claim.finalized_before_us == told;
        same.then_some(claim)
    }

    /// The table as a reader sees it.
    #[must_use]
    pub fn reading(&self) -> Reading {
        let standing = match (self.claim(), self.void()) {
            (_, Some(why)) => Standing::Held(why),
            (Some(claim), None) => Standing::Claimed(Box::new(claim)),
            (None, None) => Standing::Unclaimed,
        };
        Reading {
            table: self.kept.table.clone(),
            snapshot_id: None,
            standing,
            taken_back: None,
            foreign: Vec::new(),
        }
    }

    /// The answer to a question.
    #[must_use]
    pub fn judge(&self, question: &Question) -> Verdict {
        let reading = self.reading();
        let asked = question.interval(self.grid());
        match reading.judge(question) {
            Verdict::Ready | Verdict::OtherEvidence if self.is_withheld(asked) => Verdict::NotYet,
            verdict => verdict,
        }
    }

    /// The table's cells, where they are known.
    #[must_use]
    pub fn grid(&self) -> Option<Grid> {
        let cell_us = parse_length_us(&self.status.cell.as_ref()?.0)?;
        Grid::in_zone(cell_us, self.status.zone.as_deref()).ok()
    }

    /// Before which instant the table is complete, µs.
    #[must_use]
    pub fn finalized_before_us(&self) -> Option<i64> {
        us(self.status.finalized_before.as_ref().map(|text| &text.0))
    }

    fn is_withheld(&self, asked: Interval) -> bool {
        let withheld = stretches(&self.status.withheld);
        withheld.within(asked.from_us, asked.before_us).is_some()
    }

    /// Why the claim does not count, where a worker said so.
    fn void(&self) -> Option<String> {
        let ready = status::condition(&self.status, "Ready")?;
        let is_void = Reason::of_label(&ready.reason).voids_claim();
        (is_void && self.status.finalized_before.is_none())
            .then(|| format!("{}: {}", ready.reason, ready.message))
    }

    fn claim(&self) -> Option<TableClaim> {
        let status = &*self.status;
        let finalized_before_us = self.finalized_before_us()?;
        let evidence = status.evidence.as_deref().unwrap_or_default();
        let grid = self.grid();
        let accepted = status.accepted.iter().filter_map(|set| {
            Some(Accepted {
                terms: terms(&set.terms)?,
                finalized_before_us: Some(parse_instant_us(&set.before.0)?),
            })
        });
        let commit_id = status.commit_id.unwrap_or_default().to_string();
        Some(TableClaim {
            claim: Claim {
                epoch: status.epoch.unwrap_or_default(),
                finalized_before_us: Some(finalized_before_us),
                complete_from: us(status.complete_from.as_ref().map(|text| &text.0))
                    .map_or(CompleteFrom::Unbounded, CompleteFrom::From),
                gaps: stretches(&status.gaps),
                evidence: terms(evidence).unwrap_or_else(|| Term::ALL.into()),
                margin_us: None,
                reopened: None,
                amended: self.amended(),
                retracted: Vec::new(),
            },
            finalized_before_us,
            accepted: accepted.collect(),
            bounds: String::new(),
            last_final_cell: grid.map(|grid| grid.last_final(finalized_before_us)),
            grid,
            policy_revision: 0,
            commit_id,
            hold: None,
            undecodable: 0,
        })
    }

    /// The cells with late rows: a status names those only that are withheld.
    fn amended(&self) -> Amended {
        let cells = self.fresh().into_iter().flat_map(|claim| &claim.amended);
        let cells = cells.map(|one| AmendedCell {
            from_us: one.cell.from_us,
            before_us: one.cell.before_us,
            revision: one.revision,
            rows: one.rows,
            at_us: one.at_us,
            withheld: one.withheld,
        });
        Amended::of(cells.collect(), None, None).unwrap_or_default()
    }
}

/// An instant of a status; one that cannot be read is none.
fn us(text: Option<&String>) -> Option<i64> {
    parse_instant_us(text?)
}

fn stretches(all: &[GapStatus]) -> Gaps {
    let mut gaps = Gaps::default();
    for one in all {
        match (
            parse_instant_us(&one.from.0),
            parse_instant_us(&one.before.0),
        ) {
            (Some(from_us), Some(before_us)) => gaps.add(from_us, before_us),
            // A gap that cannot be read might be anywhere.
            _ => gaps.add(i64::MIN, i64::MAX),
        }
    }
    gaps
}

/// Terms by their names, separated by commas; `None` where one is not known.
fn terms(names: &str) -> Option<BTreeSet<Term>> {
    let names = names.split(',').filter(|name| !name.is_empty());
    names.map(Term::from_label).collect()
}

#[cfg(test)]
pub(in crate::operator) mod tests {
    use super::*;
    use crate::api::{
        pipeline::{InstantText, LengthText},
        schema::{ConditionStatus, StatusCondition},
        status::AcceptedStatus,
    };

    pub(in crate::operator) fn today(time: &str) -> String {
        format!("2026-11-30T{time}:00Z")
    }

    /// `shop/orders`, complete from 08:00 to before 12:00 by both terms; caught-up alone gets to 11:00.
    pub(in crate::operator) fn orders() -> Known {
        let text = |time: &str| InstantText(today(time));
        let status = IngestionPipelineStatus {
            finalized_before: Some(text("12:00")),
            complete_from: Some(text("08:00")),
            evidence: Some("minimum,caught-up".into()),
            epoch: Some(1),
            cell: Some(LengthText("1h".into())),
            accepted: vec![AcceptedStatus {
                terms: "caught-up".into(),
                before: text("11:00"),
            }],
            ..IngestionPipelineStatus::default()
        };
        Known {
            key: Key::new("shop", "orders"),
            kept: Arc::new(kept("u", "a", "shop.orders")),
            status: Arc::new(status),
            progress: None,
        }
    }

    pub(in crate::operator) fn kept(uid: &str, team: &str, table: &str) -> Kept {
        let text = format!(
            "
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata: {{name: orders, namespace: shop, uid: {uid}, labels: {{team: {team}}}}}
spec:
  source: {{format: DebeziumJson, kafka: {{bootstrapServers: 'k:1', topics: [a]}}}}
  sink: {{table: {table}, catalog: {{type: Rest, uri: 'http://c'}}}}
"
        );
        Kept::of(&serde_yaml::from_str(&text).unwrap())
    }

    pub(in crate::operator) fn change(
        known: &mut Known,
        change: impl FnOnce(&mut IngestionPipelineStatus),
    ) {
        change(Arc::make_mut(&mut known.status));
    }

    fn ask(known: &Known, before: &str, accept: &[Term]) -> Verdict {
        known.judge(&Question {
            from_us: None,
            before_us: parse_instant_us(&today(before)).unwrap(),
            accept: (!accept.is_empty()).then(|| accept.iter().copied().collect()),
            foreign: BTreeSet::new(),
        })
    }

    #[test]
    fn status_answers_as_the_table_would() {
        let mut known = orders();
        assert_eq!(ask(&known, "12:00", &[]), Verdict::Ready);
        assert_eq!(ask(&known, "13:00", &[]), Verdict::NotYet);
        assert!(matches!(ask(&known, "08:00", &[]), Verdict::Incomplete(_)));
        assert_eq!(
            ask(&known, "12:00", &[Term::CaughtUp]),
            Verdict::OtherEvidence
        );
        assert_eq!(ask(&known, "11:00", &[Term::CaughtUp]), Verdict::Ready);
        change(&mut known, |status| {
            status.gaps = vec![GapStatus {
                from: InstantText(today("09:00")),
                before: InstantText(today("10:00")),
            }];
        });
        assert!(matches!(ask(&known, "10:00", &[]), Verdict::Incomplete(_)));
        assert_eq!(ask(&known, "11:00", &[]), Verdict::Ready);
    }

    #[test]
    fn unknown_is_never_ready() {
        let mut known = orders();
        change(&mut known, |status| {
            status.evidence = Some("minimum,moon".into());
        });
        assert_eq!(ask(&known, "12:00", &[]), Verdict::Ready);
        assert_eq!(
            ask(&known, "12:00", &[Term::Minimum, Term::CaughtUp]),
            Verdict::OtherEvidence
        );
        change(&mut known, |status| {
            status.withheld = vec![GapStatus {
                from: InstantText(today("10:00")),
                before: InstantText(today("11:00")),
            }];
        });
        assert_eq!(ask(&known, "11:00", &[]), Verdict::NotYet);
        assert_eq!(ask(&known, "10:00", &[]), Verdict::Ready);
        change(&mut known, |status| {
            status.gaps = vec![GapStatus {
                from: InstantText("soon".into()),
                before: InstantText("later".into()),
            }];
        });
        assert!(matches!(ask(&known, "10:00", &[]), Verdict::Incomplete(_)));
    }

    #[test]
    fn claim_that_a_worker_calls_void_is_held() {
        let mut known = orders();
        change(&mut known, |status| {
            status.finalized_before = None;
            status.conditions = vec![StatusCondition {
                kind: "Ready".into(),
                status: ConditionStatus::False,
                reason: "LineageUnknown".into(),
                message: "snapshot 5".into(),
                last_transition_time: today("12:00"),
                observed_generation: None,
            }];
        });
        assert_eq!(
            ask(&known, "10:00", &[]),
            Verdict::Held("LineageUnknown: snapshot 5".into())
        );
        // Without a claim, and for another reason, there is none yet.
        change(&mut known, |status| {
            status.conditions[0].reason = "BrokerUnreachable".into();
        });
        assert_eq!(ask(&known, "10:00", &[]), Verdict::NotYet);
    }
}
