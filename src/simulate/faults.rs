//! What happens to rows, workers and the table.

use std::sync::Arc;

use super::broker::{LogId, Order, Truth, What};
use super::oracle::Found;
use super::pipeline::Pipeline;
use super::plan::{Event, Foreign, Kind, MOST_PARTITIONS};
use super::tally::Seen;
use super::worker::Life;
use super::world::World;
use crate::kafka::TopicPartition;
use crate::watermark::{Accepted, Asker, Obstacle, Term, contract, stand};

impl World {
    pub(super) fn produce(
        &mut self,
        log: LogId,
        rows: u8,
        delay: u8,
        kind: Kind,
        transaction: bool,
    ) {
        let order = Order {
            now_us: self.now_us,
            sent_us: self.now_us,
            rows,
            delay,
            kind,
            transaction,
        };
        if self.stopped_us.is_none() {
            self.append(log, &order);
        } else if kind == Kind::Change {
            self.pending.push((log, order));
        }
    }

    /// The heartbeat that the source sent last.
    pub(super) fn beat_us(&self) -> Option<i64> {
        (self.settings.heartbeats > 0).then(|| self.stopped_us.unwrap_or(self.now_us))
    }

    /// The connector stops, or sends all that the source did meanwhile.
    pub(super) fn connector(&mut self, runs: bool) {
        if !runs {
            self.stopped_us = self.stopped_us.or(Some(self.now_us));
            return;
        }
        self.stopped_us = None;
        for (log, mut order) in std::mem::take(&mut self.pending) {
            order.sent_us = self.now_us;
            self.append(log, &order);
            self.note.see(Seen::ConnectorStopped);
        }
    }

    fn append(&mut self, log: LogId, order: &Order) {
        let before = self.broker.logs[log].records.len();
        self.broker.logs[log].produce(order, &self.settings);
        let mut newest_us = i64::MIN;
        for record in &self.broker.logs[log].records[before..] {
            let What::Row(row) = record.what else {
                let signal = matches!(record.what, What::Signal);
                self.note.see(if signal {
                    Seen::Signal
                } else {
                    Seen::RowUndecodable
                });
                continue;
            };
            let age_us = self.now_us.saturating_sub(row.event_us);
            match row.truth {
                Truth::Counts if age_us < 0 => self.note.see(Seen::RowAhead),
                Truth::Counts if age_us * 2 > self.settings.delay_ms * 1000 => {
                    self.note.see(Seen::RowDelayed);
                }
                Truth::Counts | Truth::Replay => {}
                Truth::Outlaw => self.note.see(Seen::RowBeyondBounds),
                Truth::Excluded(Kind::Timeless) => self.note.see(Seen::RowTimeless),
                Truth::Excluded(Kind::Future) => self.note.see(Seen::RowFuture),
                Truth::Excluded(Kind::Old) => self.note.see(Seen::RowOld),
                Truth::Excluded(_) => self.note.see(Seen::RowOfSnapshot),
            }
            newest_us = newest_us.max(row.event_us);
        }
        let earlier = self.broker.logs[log].records[..before].iter();
        let disordered = earlier.filter_map(|record| match record.what {
            What::Row(row) if row.truth == Truth::Counts => Some(row.event_us),
            _ => None,
        });
        if newest_us > i64::MIN && disordered.max() > Some(newest_us) {
            self.note.see(Seen::RowDisordered);
        }
    }

    pub(super) fn write(&mut self, event: Event) {
        match event {
            Event::Produce {
                partition,
                rows,
                delay,
                kind,
            } => self.produce(self.log(partition), rows, delay, kind, false),
            Event::Transact {
                partition,
                rows,
                delay,
            } => self.produce(self.log(partition), rows, delay, Kind::Change, true),
            Event::End {
                partition,
                committed,
            } => {
                let log = self.log(partition);
                if self.broker.logs[log].end_transaction(committed) {
                    self.note.see(if committed {
                        Seen::TransactionCommitted
                    } else {
                        Seen::TransactionAborted
                    });
                }
            }
            Event::Connector { runs } => self.connector(runs),
            Event::Resolve { topic } if self.stopped_us.is_none() => {
                let topic = usize::from(topic) % self.broker.topics.len();
                for log in self.broker.topics[topic].logs.clone() {
                    self.broker.logs[log].resolve(self.now_us, &self.settings);
                    self.note.see(Seen::Promise);
                }
            }
            Event::Replay { partition, rows } if self.stopped_us.is_none() => {
                let log = self.log(partition);
                if self.broker.logs[log].replay(rows, self.now_us, &self.settings) > 0 {
                    self.note.see(Seen::Replay);
                }
            }
            Event::Failover { partition } if self.stopped_us.is_none() => {
                let log = self.log(partition);
                self.broker.logs[log].failover();
                self.note.see(Seen::SourceFailover);
            }
            _ => {}
        }
    }

    pub(super) fn add_partition(&mut self, topic: usize) {
        self.connector(true);
        let topic = topic % self.broker.topics.len();
        if self.broker.topics[topic].logs.len() < MOST_PARTITIONS {
            self.broker.add_partition(topic);
            self.note.see(Seen::PartitionAdded);
        }
    }

    pub(super) fn cut(&mut self, partition: u8, records: u8) {
        self.connector(true);
        let log = self.log(partition);
        if self.broker.cut(log, records) {
            self.replays_certain = false;
            self.note.see(Seen::LogCut);
        }
    }

    pub(super) fn kill(&mut self, worker: usize) -> Found {
        if self.workers[worker].life == Life::Dead {
            self.start(worker);
            return Ok(());
        }
        self.note.see(Seen::WorkerDied);
        self.get_ready(worker)?;
        self.leave_in_flight(worker);
        self.workers[worker].life = Life::Dead;
        self.assign();
        Ok(())
    }

    /// A worker goes on until it has something to send: it may die or stand still just then.
    pub(super) fn get_ready(&mut self, worker: usize) -> Found {
        for _ in 0..4 {
            let session = self.workers[worker].session.as_ref();
            let under_way = session.and_then(|session| session.under_way.as_ref());
            if under_way.is_some_and(|under_way| under_way.ready.is_some()) {
                break;
            }
            if under_way.is_none() {
                self.fetch(worker, usize::MAX)?;
            }
            self.turn(worker)?;
        }
        Ok(())
    }

    pub(super) fn start(&mut self, worker: usize) {
        let own = &mut self.workers[worker];
        own.life = Life::Running;
        own.policy = self.pipelines[own.pipeline].policy.clone();
        own.session = None;
        own.lost = false;
        own.cuts.clear();
        self.assign();
    }

    pub(super) fn stall(&mut self, worker: usize) -> Found {
        if self.workers[worker].life == Life::Running {
            self.get_ready(worker)?;
            self.workers[worker].life = Life::Stalled;
            self.workers[worker].lost = !self.settings.copies;
            self.note.see(Seen::WorkerStalled);
            self.assign();
        }
        Ok(())
    }

    pub(super) fn wake(&mut self, worker: usize) {
        match self.workers[worker].life {
            Life::Running => {}
            Life::Stalled => self.workers[worker].life = Life::Running,
            Life::Dead | Life::ToCome => self.start(worker),
        }
    }

    /// The owner commits what it has read, and gives the partition to another.
    pub(super) fn hand_over(&mut self, log: LogId, to: usize) -> Found {
        let known = &self.broker.logs[log];
        let topic = &self.broker.topics[known.topic].name;
        let at = TopicPartition::new(Arc::clone(topic), known.partition);
        let from = self.owners.get(&at).copied();
        let runs = |worker: usize| self.workers[worker].life == Life::Running;
        let Some(from) = from.filter(|from| *from != to && runs(*from) && runs(to)) else {
            return Ok(());
        };
        if self.settings.copies || self.workers[from].lost || self.workers[to].lost {
            return Ok(());
        }
        self.settle(from)?;
        if let Some(session) = &mut self.workers[from].session {
            session.answer = None;
            session.asking = None;
            if session.reading && session.waiting().rows > 0 {
                self.send(from);
                self.settle(from)?;
            }
        }
        if let Some(session) = &mut self.workers[from].session {
            if session.under_way.is_some() {
                // Not in the time that it had: the session ends, and what it sent is found or not.
                self.end_session(from);
            } else {
                session.tracks.end(&at);
            }
        }
        self.owners.insert(at, to);
        self.note.see(Seen::HandedOver);
        self.take_over(to);
        Ok(())
    }

    /// What is under way comes to its end.
    pub(super) fn settle(&mut self, worker: usize) -> Found {
        for _ in 0..6 {
            let session = self.workers[worker].session.as_ref();
            if session.is_none_or(|session| session.under_way.is_none()) {
                break;
            }
            self.step(worker)?;
        }
        Ok(())
    }

    /// The owner of a pipeline changes its settings; workers take them one after the other.
    pub(super) fn change(&mut self, how: u8) {
        let pipeline = usize::from(how / 21) % self.pipelines.len();
        let mut policy = self.pipelines[pipeline].policy.clone();
        let settings = self.settings.clone();
        let us = |ms: i64| ms * 1000;
        match how % 7 {
            0 => policy.window_commits = 1 + u32::from(how / 7 % 3),
            1 => policy.window_duration_us = us(settings.cell_ms * i64::from(how / 7 % 3) / 2),
            // A bound may be declared wider than the rows need it, never narrower.
            2 => {
                policy.bounds.allowed_lateness_us = us(settings.lateness_ms + settings.cell_ms / 2);
            }
            3 => policy.bounds.max_delay_us = us(settings.delay_ms + settings.cell_ms / 2),
            4 => {
                policy.grid = settings.other_grid(how / 7);
                self.note.see(Seen::CellsChanged);
            }
            5 => {
                let terms: Vec<Term> = settings.terms().into_iter().collect();
                policy.terms = [terms[usize::from(how / 7) % terms.len()]].into();
            }
            _ => policy.terms = settings.terms(),
        }
        let stood = self.stand_as(pipeline, self.now_us, true);
        let table = stood.as_ref().filter(|stood| !stood.state.is_new());
        policy.revision = policy.revision_on(table.map(|stood| &stood.state.policy));
        self.pipelines[pipeline].policy = policy;
        self.note.see(Seen::PolicyChanged);
        let first = usize::from(how) % self.workers.len();
        self.adopt(first);
    }

    /// The session ends with what it has read, and begins under the new settings.
    pub(super) fn adopt(&mut self, worker: usize) {
        if self.workers[worker].life == Life::Running {
            self.leave_in_flight(worker);
            self.start(worker);
        }
    }

    pub(super) fn expire(&mut self, keep: usize) {
        let restored = |own: &Pipeline| self.oracle.restored(own.writer, self.table.main_id);
        let restored: Vec<i64> = self.pipelines.iter().filter_map(restored).collect();
        let before = self.table.ancestors();
        if self.table.expire(keep) {
            self.note.see(Seen::Expired);
        }
        // The others count one more step of a writer once nothing tells that what it was rolled back to is there.
        let after = self.table.ancestors();
        let gone = |id: &i64| before.contains(id) && !after.contains(id);
        if restored.iter().any(gone) {
            self.oracle.may_step();
        }
    }

    pub(super) fn foreign(&mut self, foreign: Foreign) {
        let (seen, operation) = match foreign {
            Foreign::Replace => (Seen::ForeignReplace, "replace"),
            Foreign::Append => (Seen::ForeignAppend, "append"),
        };
        let parent_id = self.table.main_id;
        let summary = [("operation".to_owned(), operation.to_owned())];
        let snapshot_id = self.table.append(summary.into());
        self.oracle.foreign(snapshot_id, parent_id);
        self.note.see(seen);
    }

    /// What keeps a writer from going on by itself.
    pub(super) fn obstacle(&mut self, pipeline: usize) -> Option<Obstacle> {
        let asker = Asker {
            accept: Accepted {
                table_uuid: None,
                snapshot_id: self.accepted,
            },
            ..Asker::new(self.pipelines[pipeline].writer, self.now_us)
        };
        let lineage = self.table.lineage();
        stand(&asker, &self.table.view(&lineage)).err()
    }

    /// Whether a writer goes on by itself, and has committed.
    pub(super) fn goes_on(&mut self, pipeline: usize) -> bool {
        let stood = self.stand_as(pipeline, self.now_us, true);
        stood.is_some_and(|stood| !stood.state.is_new())
    }

    /// A worker that cannot go on takes the claim away from the properties.
    pub(super) fn withdraw(&mut self) {
        let Some(changes) = contract::withdrawal(&self.table.properties) else {
            return;
        };
        for name in &changes.remove {
            self.table.properties.remove(name);
        }
        let parent_id = self.table.main_id;
        let reason = (contract::WITHDRAWN.to_owned(), "an obstacle".to_owned());
        let snapshot_id = self.table.append([reason].into());
        self.oracle.foreign(snapshot_id, parent_id);
        self.note.see(Seen::Withdrawn);
    }

    /// Somebody else commits, and expires everything before.
    pub(super) fn overrun(&mut self) -> Found {
        let mut whole = 0..self.pipelines.len();
        if whole.any(|at| self.obstacle(at).is_some() || self.is_new_or_rebuilt(at)) {
            return Ok(());
        }
        self.foreign(Foreign::Append);
        self.table.expire_to_newest();
        self.note.see(Seen::Overrun);
        self.judge_reader()
    }

    /// Whether a state could not be told from nothing once the snapshots are gone.
    fn is_new_or_rebuilt(&self, pipeline: usize) -> bool {
        let name = contract::state_property(self.pipelines[pipeline].writer);
        !self.table.properties.contains_key(&name)
    }

    /// Whether anything on the table tells what a pipeline has read.
    pub(super) fn is_told_of(&self, pipeline: usize) -> bool {
        let writer = self.pipelines[pipeline].writer;
        let lineage = self.table.lineage();
        let mut snapshots = lineage.snapshots.iter();
        !self.is_new_or_rebuilt(pipeline) || snapshots.any(|snapshot| snapshot.is_of(writer))
    }

    /// A person repeats a commit that is no longer there.
    pub(super) fn pick(&mut self, which: usize) -> Found {
        let aside = self.table.aside();
        let Some(source_id) = aside.get(which % aside.len().max(1)).copied() else {
            return Ok(());
        };
        let parent_id = self.table.main_id;
        let snapshot_id = self.table.pick(source_id);
        self.oracle.pick(snapshot_id, parent_id, source_id);
        self.note.see(Seen::CherryPicked);
        self.judge_reader()
    }

    /// The owner agrees to go on from the table as it is.
    pub(super) fn accept(&mut self) {
        let mut accepts = false;
        for at in 0..self.pipelines.len() {
            if self.obstacle(at).is_some() {
                self.oracle.may_begin(self.pipelines[at].writer);
                accepts = true;
            }
        }
        if accepts {
            self.accepted = self.table.main_id;
            self.table.touch();
            self.note.see(Seen::LineageAccepted);
        }
    }

    /// A person rolls the table back, to where some commit of ours is still there.
    pub(super) fn roll_back(&mut self, back: usize) -> Found {
        let ancestors = self.table.ancestors();
        let to = ancestors.get(back).copied();
        if self
            .oracle
            .own(to)
            .is_none_or(|own| !ancestors.contains(&own))
        {
            return Ok(());
        }
        // Not while somebody is just sending: on the very snapshot that the person goes back to, that would be a good commit.
        self.in_flight.clear();
        let sessions = self
            .workers
            .iter_mut()
            .filter_map(|own| own.session.as_mut());
        for under_way in sessions.filter_map(|session| session.under_way.as_mut()) {
            under_way.ready = None;
        }
        self.table.point(to);
        self.replays_certain &= !self.table.lineage().broken;
        self.oracle.may_step();
        self.note.see(Seen::RolledBack);
        self.judge_reader()
    }
}
