//! The course of one demo: changes flow, the last ones are committed, and all the while there is a picture of it.
//!
//! The picture is made of the worker's progress, which everybody can read, and of the sender's record.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use uuid::Uuid;

use crate::{
    api::{
        Reason,
        worker::{ClaimProgress, HoldProgress, PipelineProgress, RunState},
    },
    demo::{
        Error, FACTOR, Ingest, MINUTE_US, PATIENCE, Span, TICK, TICKS_A_PICTURE,
        broker::lock,
        feed::Feed,
        generator::PARTITIONS,
        picture::{Hour, Partition, Picture, Stage, clock},
        record::Record,
        screen::Screen,
    },
    process::clock::Clock,
};

/// One run, and what has been seen of it.
pub(super) struct Show {
    span: Span,
    clock: Clock,
    stage: Stage,
    /// When each hour was first seen final, by its first instant.
    final_at_us: BTreeMap<i64, i64>,
    last_commit: Option<Uuid>,
    commits: u64,
    cut_short: bool,
}

impl Show {
    /// A run over `span`, which begins now on `clock`.
    #[must_use]
    pub(super) fn new(span: Span, clock: Clock) -> Self {
        Self {
            span,
            clock,
            stage: Stage::Starting,
            final_at_us: BTreeMap::new(),
            last_commit: None,
            commits: 0,
            cut_short: false,
        }
    }

    /// Runs until the last change is in the table, or patience ends; the last picture comes back.
    ///
    /// # Errors
    /// [`Error`] when broker, worker or screen fail.
    pub(super) async fn run(
        mut self,
        feed: &mut Feed,
        ingest: &Ingest,
        screen: &mut Screen<'_>,
    ) -> Result<Picture, Error> {
        let record = feed.shared_record();
        let mut ticks = tokio::time::interval(TICK);
        let mut give_up = Duration::MAX;
        for tick in 0u32.. {
            ticks.tick().await;
            let progress = ingest.progress();
            self.note(&progress);
            if self.stage != Stage::Draining {
                feed.send_due(|partition| next_offset(&progress, partition))?;
                self.cut_short = screen.wants_to_quit()?;
                if self.cut_short || self.clock.now_us() >= self.span.flow_end_us() {
                    feed.finish().await?;
                    self.stage = Stage::Draining;
                    give_up = self.clock.monotonic() + PATIENCE * FACTOR;
                }
            }
            let caught_up = self.stage == Stage::Draining && is_complete(&progress, &record);
            let over = caught_up || self.clock.monotonic() > give_up;
            if over || tick % TICKS_A_PICTURE == 0 {
                let picture = self.picture(&progress, &record, feed.is_waiting());
                screen.show(&picture)?;
                if over {
                    return Ok(picture);
                }
            }
            if progress.state == RunState::Stopped {
                let problem = progress
                    .last_error
                    .map(|error| error.message)
                    .unwrap_or_default();
                return Err(Error::Worker { problem });
            }
        }
        unreachable!("a demo of 2^32 ticks would take 6 years")
    }

    /// Notes what progress shows for the first time.
    fn note(&mut self, progress: &PipelineProgress) {
        if self.stage == Stage::Starting && progress.state == RunState::Running {
            self.stage = Stage::Flowing;
        }
        let commit = progress.last_commit.as_ref().map(|commit| commit.commit_id);
        if commit.is_some() && commit != self.last_commit {
            self.last_commit = commit;
            self.commits += 1;
        }
        let claim = progress.claim.as_ref().and_then(covered);
        let before_us = claim.map(|(_, before_us)| before_us);
        for hour in self.span.hours() {
            if before_us >= Some(hour.end_us()) {
                self.final_at_us
                    .entry(hour.start_us)
                    .or_insert(self.clock.now_us());
            }
        }
    }

    fn picture(
        &self,
        progress: &PipelineProgress,
        record: &Mutex<Record>,
        waiting: bool,
    ) -> Picture {
        let claim = progress.claim.as_ref();
        let mut picture = Picture {
            stage: self.stage,
            now_us: self.clock.now_us(),
            span_us: (self.span.start_us, self.span.end_us),
            factor: FACTOR,
            hours: self.span.hours(),
            partitions: partitions(progress),
            claim: claim.and_then(covered),
            evidence: claim
                .filter(|claim| covered(claim).is_some())
                .map(|claim| evidence(&claim.evidence, claim.margin_ms))
                .unwrap_or_default(),
            hold: progress
                .hold
                .as_ref()
                .map(|held| hold(held, progress))
                .unwrap_or_default(),
            commits: self.commits,
            late: 0,
            trouble: progress
                .last_error
                .as_ref()
                .map(|error| error.message.clone())
                .unwrap_or_default(),
            cut_short: self.cut_short,
        };
        for hour in &mut picture.hours {
            hour.final_at_us = self.final_at_us.get(&hour.start_us).copied();
        }
        count(&mut picture, &lock(record), progress);
        if waiting && picture.trouble.is_empty() {
            "the generator waits: the worker is 3 MiB behind".clone_into(&mut picture.trouble);
        }
        picture
    }
}

/// Fills in what the record knows: rows by hour and by partition, sent and in the table.
fn count(picture: &mut Picture, record: &Record, progress: &PipelineProgress) {
    for partition in &mut picture.partitions {
        let next_offset = next_offset(progress, partition.number);
        let behind = record.end_offset(partition.number) - next_offset;
        partition.behind = u64::try_from(behind).unwrap_or(0);
    }
    for (number, receipt) in record.rows() {
        let is_stored = receipt.offset < next_offset(progress, number);
        picture.late += u64::from(receipt.late);
        let hour = picture
            .hours
            .iter_mut()
            .find(|hour| (hour.start_us..hour.end_us()).contains(&receipt.event_time_us));
        if let Some(hour) = hour {
            hour.sent += 1;
            hour.stored += u64::from(is_stored);
        }
        let partition = picture
            .partitions
            .iter_mut()
            .find(|partition| partition.number == number);
        if let Some(partition) = partition {
            partition.stored += u64::from(is_stored);
            partition.last_row_us = Some(receipt.stored_us);
        }
    }
}

fn partitions(progress: &PipelineProgress) -> Vec<Partition> {
    let partition = |number| Partition {
        number,
        frontier_us: frontier_us(progress, number),
        ..Partition::default()
    };
    (0..PARTITIONS).map(partition).collect()
}

fn frontier_us(progress: &PipelineProgress, number: i32) -> Option<i64> {
    let partition = progress
        .partitions
        .iter()
        .find(|partition| partition.partition == number)?;
    partition.frontier_us
}

/// The next offset of a partition in the table; 0 before the first commit.
fn next_offset(progress: &PipelineProgress, number: i32) -> i64 {
    let partition = progress
        .partitions
        .iter()
        .find(|partition| partition.partition == number);
    partition.map_or(0, |partition| partition.next_offset)
}

fn is_complete(progress: &PipelineProgress, record: &Arc<Mutex<Record>>) -> bool {
    let record = lock(record);
    (0..PARTITIONS).all(|number| next_offset(progress, number) >= record.end_offset(number))
}

fn evidence(terms: &[String], margin_ms: Option<i64>) -> String {
    let by = if terms.is_empty() {
        String::new()
    } else {
        format!("by {}", terms.join(" and "))
    };
    match margin_ms {
        Some(ms) if ms >= 60_000 => format!("{by}, with {} min to spare", ms / 60_000),
        _ => by,
    }
}

/// From when until when the table says that it is complete; a claim that ends where it begins says nothing yet.
fn covered(claim: &ClaimProgress) -> Option<(Option<i64>, i64)> {
    let before_us = claim.finalized_before_us?;
    let says_something = claim
        .complete_from_us
        .is_none_or(|from_us| from_us < before_us);
    says_something.then_some((claim.complete_from_us, before_us))
}

fn hold(hold: &HoldProgress, progress: &PipelineProgress) -> String {
    let cell = hold.cell_end_us.map(|us| clock(us, false));
    let cell = cell.unwrap_or_else(|| "the first hour".to_owned());
    if progress.is_kept() {
        return format!("{cell} waits: {}", hold.reason);
    }
    let text = match &hold.partition {
        Some(name) => {
            let number = name
                .rsplit('/')
                .next()
                .and_then(|number| number.parse().ok());
            let known_us = number.and_then(|number| frontier_us(progress, number));
            let known = known_us.map_or_else(
                || "not known at all yet".to_owned(),
                |us| format!("known to {}", clock(us, true)),
            );
            let term = hold
                .term
                .map(|term| format!(" by {term}"))
                .unwrap_or_default();
            format!(
                "{cell} waits for partition {}: {known}{term}",
                name.rsplit('/').next().unwrap_or(name)
            )
        }
        None => format!(
            "{cell} waits for the clock: no claim is nearer to the present than the declared delay"
        ),
    };
    match hold.reason {
        Reason::CellOpen => text,
        reason => format!("{text} ({reason})"),
    }
}

impl Hour {
    fn end_us(&self) -> i64 {
        self.start_us + 60 * MINUTE_US
    }
}
