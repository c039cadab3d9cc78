//! The rules of `spec.finalization`: what a claim rests on.
//!
//! A term comes with what it needs, and a cell divides a day. Nothing is corrected silently, but for one thing: a heartbeat table
//! takes the place of what is caught up.

use std::collections::BTreeSet;

use super::{DAY_US, Rules, SECOND_US};
use crate::api::{
    pipeline::FinalizationSpec,
    quantity::parse_instant_us,
    worker::{AlsoWrite, CompleteFrom, EventTime, Finalization, Format, Heartbeat, Source, Term},
};
use crate::watermark::Grid;

impl Rules {
    pub(super) fn finalization(
        &mut self,
        spec: &FinalizationSpec,
        source: &Source,
        event_time: &EventTime,
    ) -> Finalization {
        let at = |field: &str| format!("spec.finalization.{field}");
        let week = [0, 7 * DAY_US];
        let cell_us = self.length_us(&at("cell"), spec.cell.as_ref(), [SECOND_US, DAY_US]);
        if let (Some(cell_us), Some(text)) = (cell_us, &spec.cell)
            && Grid::new(cell_us).is_err()
        {
            self.refuse(
                &at("cell"),
                &text.0,
                "is no whole number of seconds that divides a day",
                "write such a length, as 15m, 1h or 1d",
            );
        }
        if let Some(zone) = &spec.zone {
            if cell_us.is_some_and(|cell_us| cell_us != DAY_US) {
                self.refuse_pair(
                    [&at("zone"), &at("cell")],
                    "zone goes with cell: 1d",
                    "write cell: 1d, or leave the zone out",
                );
            }
            if Grid::in_zone(DAY_US, Some(zone)).is_err() {
                self.refuse(
                    &at("zone"),
                    zone,
                    "is no zone of the tz database",
                    "write a name as Europe/Berlin, or leave it out for UTC",
                );
            }
        }
        Finalization {
            cell_us: cell_us.unwrap_or_default(),
            zone: spec.zone.clone(),
            allowed_lateness_us: self
                .length_us(&at("allowedLateness"), spec.allowed_lateness.as_ref(), week)
                .unwrap_or_default(),
            max_delay_us: self
                .length_us(&at("maxDelay"), spec.max_delay.as_ref(), week)
                .unwrap_or_default(),
            max_future_skew_us: self
                .length_us(&at("maxFutureSkew"), spec.max_future_skew.as_ref(), week)
                .unwrap_or_default(),
            max_age_us: self.length_us(
                &at("maxAge"),
                spec.max_age.as_ref(),
                [SECOND_US, 10_000 * DAY_US],
            ),
            window_commits: spec.window_commits.unwrap_or_default(),
            window_duration_us: self.length_us(
                &at("windowDuration"),
                spec.window_duration.as_ref(),
                [SECOND_US, DAY_US],
            ),
            terms: self.terms(spec, source, event_time),
            quantile: spec.quantile,
            complete_from: spec
                .complete_from
                .as_deref()
                .and_then(|text| self.complete_from(text)),
            late_data: spec.late_data.expect("the built-in defaults name one"),
            on_join: spec.on_join.expect("the built-in defaults name one"),
        }
    }

    /// The admitted terms; a heartbeat table takes the place of what is caught up.
    fn terms(
        &mut self,
        spec: &FinalizationSpec,
        source: &Source,
        event_time: &EventTime,
    ) -> Vec<Term> {
        let mut terms = spec.terms.clone().unwrap_or_default();
        let path = "spec.finalization.terms";
        if terms.iter().collect::<BTreeSet<_>>().len() < terms.len() {
            let text: Vec<&str> = terms.iter().map(Into::into).collect();
            self.refuse(
                path,
                &text.join(", "),
                "names a term twice",
                "name each once",
            );
        }
        let by_table = matches!(source.heartbeat, Some(Heartbeat::Table(_)));
        if by_table && !terms.contains(&Term::Heartbeat) {
            let caught_up = terms.iter_mut().filter(|term| **term == Term::CaughtUp);
            caught_up.for_each(|term| *term = Term::Heartbeat);
        } else if by_table {
            terms.retain(|term| *term != Term::CaughtUp);
        }
        let has = |term| terms.contains(&term);
        let by_connector = matches!(source.heartbeat, Some(Heartbeat::Connector(_)));
        let carried = matches!(
            source.format,
            Format::TicdcDebeziumJson | Format::TicdcSimpleJson | Format::CanalJson
        );
        let committed = *event_time == EventTime::SourceCommit;
        let rules = [
            (
                has(Term::Percentile) == spec.quantile.is_some(),
                "spec.finalization.quantile",
                "write Percentile in terms and a quantile, or neither",
            ),
            (
                has(Term::Heartbeat) == by_table,
                "spec.source.heartbeatTable",
                "write Heartbeat in terms and source.heartbeatTable, or neither",
            ),
            (
                has(Term::CaughtUp) || !by_connector,
                "spec.source.heartbeatTopic",
                "write CaughtUp in terms, which the heartbeats cap, or leave the topic out",
            ),
            (
                carried || !has(Term::Resolved),
                "spec.source.format",
                "Resolved is in the formats of TiCDC alone: leave it out",
            ),
            (
                committed || !has(Term::Resolved),
                "spec.eventTime.from",
                "Resolved speaks of commit times: take SourceCommit, or leave it out",
            ),
        ];
        for (_, other, remedy) in rules.into_iter().filter(|(fits, _, _)| !fits) {
            self.refuse_pair([path, other], "do not go together", remedy);
        }
        terms
    }

    pub(super) fn also_write(&mut self, spec: &FinalizationSpec) -> BTreeSet<AlsoWrite> {
        let systems = spec.also_write.clone().unwrap_or_default();
        let names: BTreeSet<AlsoWrite> = systems.iter().copied().collect();
        if names.len() < systems.len() {
            let text: Vec<&str> = systems.iter().map(Into::into).collect();
            self.refuse(
                "spec.finalization.alsoWrite",
                &text.join(", "),
                "names a system twice",
                "name each once",
            );
        }
        names
    }

    fn complete_from(&mut self, text: &str) -> Option<CompleteFrom> {
        if text == "Unbounded" {
            return Some(CompleteFrom::Unbounded);
        }
        let instant = parse_instant_us(text);
        if instant.is_none() {
            let remedy = "write Unbounded or an instant, as 2026-11-30T10:00:00Z";
            self.refuse(
                "spec.finalization.completeFrom",
                text,
                "is no instant",
                remedy,
            );
        }
        instant.map(CompleteFrom::Instant)
    }
}
