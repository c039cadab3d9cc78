//! What is asked of a world: of readers and copies at any time, of everything once all faults have ended.
//!
//! I2 liveness, I3 agreement, I6 copies; the oracle judges the others.

use super::oracle::{Breach, Found, breach, iso, read};
use super::plan::{CLOCKS_US, Kind};
use super::table::WRITER;
use super::tally::Seen;
use super::world::World;
use crate::watermark::{
    Asker, Grid, Reading, SECOND_US, Standing, State, TableView, Term, contract, stand,
};

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

    /// The state rebuilt from the summaries is the state that was written.
    pub(super) fn judge_rebuilt(&mut self) -> Found {
        let lineage = self.table.lineage();
        let asker = Asker::new(WRITER, self.now_us);
        let mut bare = self.table.properties.clone();
        bare.remove(&contract::state_property(WRITER));
        let view = self.table.view(&lineage);
        let without = TableView {
            properties: &bare,
            ..view
        };
        let (written, rebuilt) = (stand(&asker, &view), stand(&asker, &without));
        let (Ok(Standing::GoesOn(written)), Ok(Standing::GoesOn(rebuilt))) = (&written, &rebuilt)
        else {
            let text = format!("nobody can go on: {written:?}, rebuilt {rebuilt:?}");
            return Err(breach("I3", text));
        };
        let (written, rebuilt) = (&written.state, &rebuilt.state);
        let claims = |state: &State| (state.published.finalized_before_us, state.published.epoch);
        let same = if lineage.broken {
            claims(written) == claims(rebuilt)
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
        for worker in 0..self.workers.len() {
            self.wake(worker);
            if self.workers[worker].policy != self.policy {
                self.adopt(worker);
            }
        }
        // A row of the stream ends an initial snapshot.
        for log in self.broker.present() {
            self.produce(log, 1, 200, Kind::Change, false);
        }
        self.rounds(3)?;
        let grid = Grid::new(self.settings.cell_ms * 1000).expect("made at the start");
        let bounds = self.policy.bounds.clone();
        self.now_us += bounds.max_delay_us + 2 * grid.cell_us();
        let quiet = [Term::CaughtUp, Term::Heartbeat, Term::Clock];
        if quiet.iter().any(|term| self.policy.terms.contains(term)) {
            self.close(bounds.max_delay_us)?;
        }
        // Rows everywhere, more commits than a window has.
        self.now_us += self.policy.window_duration_us + 2 * SECOND_US;
        for _ in 0..=self.policy.window_commits {
            self.now_us += self.round_us();
            for log in self.broker.present() {
                self.produce(log, 1, 200, Kind::Change, false);
                self.broker.logs[log].resolve(self.now_us, &self.settings);
            }
            self.rounds(1)?;
        }
        // A window reaches back over its commits, two intervals apart, and its time.
        let commits = i64::from(self.policy.window_commits) + 2;
        let window_us = self.policy.window_duration_us + commits * 2 * self.round_us();
        self.close(bounds.max_delay_us + bounds.allowed_lateness_us + window_us)?;
        // What came last is below no claim and may be on its way still.
        self.rounds(4)
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
                self.work(worker)?;
            }
        }
        Ok(())
    }

    /// Within a few intervals everything up to now, less this, is published.
    pub(super) fn close(&mut self, less_us: i64) -> Found {
        let due_us = self.now_us - CLOCKS_US - SECOND_US - less_us;
        let grid = Grid::new(self.settings.cell_ms * 1000).expect("made at the start");
        let due_us = grid.floor(due_us);
        for _ in 0..8 {
            self.rounds(1)?;
            if self.claim_us()? >= Some(due_us) {
                return Ok(());
            }
        }
        let said = read(&self.table.properties)?;
        let hold = self.stand(0).map(|stood| stood.state.hold(true));
        Err(breach(
            "I2",
            format!("{} should be published, {said:?} is: {hold:?}", iso(due_us)),
        ))
    }

    pub(super) fn claim_us(&self) -> Result<Option<i64>, Breach> {
        Ok(read(&self.table.properties)?.before_us)
    }
}
