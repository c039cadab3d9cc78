//! One history, played: a cluster, a table, workers and what happens to them.
//!
//! Time passes between the events and within them; nothing here waits. After the last event all faults end, and everything
//! must come to rest: every record read, every cell closed that can be.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::broker::{Broker, LogId, Order};
use super::oracle::{Found, Oracle};
use super::pipeline::Pipeline;
use super::plan::{Event, Fate, Kind, Plan, Settings};
use super::rules::Rules;
use super::table::Table;
use super::tally::{Note, Seen};
use super::worker::{Life, Ready, Worker};
use crate::kafka::TopicPartition;
use crate::watermark::{SECOND_US, Term, contract};

/// A commit whose worker is gone.
pub(super) struct InFlight {
    pub ready: Ready,
    pub files: Vec<(LogId, i64)>,
}

/// The world of one history.
pub(super) struct World {
    pub settings: Settings,
    pub rules: Box<dyn Rules>,
    pub start_us: i64,
    pub now_us: i64,
    pub broker: Broker,
    pub table: Table,
    pub oracle: Oracle,
    pub note: Note,
    pub workers: Vec<Worker>,
    /// Who reads what, in a group.
    pub owners: BTreeMap<TopicPartition, usize>,
    pub pipelines: Vec<Pipeline>,
    pub fates: VecDeque<Fate>,
    pub in_flight: Vec<InFlight>,
    pub replays_certain: bool,
    /// The snapshot that the table's owner agreed to go on from last.
    pub accepted: Option<i64>,
    /// Since when the connector stands still, and what it will send.
    pub stopped_us: Option<i64>,
    pub pending: Vec<(LogId, Order)>,
    /// The highest claim so far.
    pub highest_us: Option<i64>,
    ids: u128,
}

/// Plays a history; tells what it held, and what was broken in it.
pub(super) fn play(plan: &Plan, rules: Box<dyn Rules>) -> (Note, Found) {
    let mut world = World::new(plan, rules);
    let found = world.run(&plan.events);
    let mut note = world.note;
    note.streams = world.broker.logs.len() as u64;
    note.records = world
        .broker
        .logs
        .iter()
        .map(|log| log.records.len() as u64)
        .sum();
    (note, found)
}

impl World {
    fn new(plan: &Plan, rules: Box<dyn Rules>) -> Self {
        let settings = plan.settings.clone();
        let policy = settings.policy();
        let pipelines = Pipeline::all(&settings);
        let first = settings.workers.max(1);
        // The second pipeline has one, which is yet to come.
        let worker = |number: usize| Worker {
            number,
            pipeline: usize::from(number >= first),
            name: format!("worker-{number}"),
            life: if number < first {
                Life::Running
            } else {
                Life::ToCome
            },
            policy: policy.clone(),
            session: None,
            lost: false,
            cuts: BTreeMap::new(),
        };
        let workers = first + pipelines.len() - 1;
        let logs = [
            &settings.partitions[..],
            &[settings.joining],
            &settings.second,
        ];
        World {
            start_us: settings.start_us(),
            now_us: settings.start_us(),
            broker: Broker::new(&logs.concat()),
            pipelines,
            table: Table::new(),
            oracle: Oracle::default(),
            note: Note::default(),
            workers: (0..workers).map(worker).collect(),
            owners: BTreeMap::new(),
            fates: VecDeque::new(),
            in_flight: Vec::new(),
            replays_certain: !settings.latest,
            accepted: None,
            stopped_us: None,
            pending: Vec::new(),
            highest_us: None,
            ids: 0,
            rules,
            settings,
        }
    }

    pub(super) fn next_commit(&mut self) -> u128 {
        self.ids += 1;
        self.ids
    }

    fn run(&mut self, events: &[Event]) -> Found {
        // What lies there before the first commit may never be read.
        self.flow(100, 0)?;
        for event in events {
            self.now_us += 1_000;
            self.happen(*event)?;
        }
        self.calm()?;
        if self.settings.zone > 0 {
            self.note.see(Seen::DaysInZone);
        }
        for pipeline in 0..self.pipelines.len() {
            self.judge_rebuilt(pipeline)?;
        }
        let active = self.active();
        let topics = active.iter().flat_map(|at| &self.pipelines[*at].topics);
        let topics: BTreeSet<usize> = topics.copied().collect();
        self.oracle
            .judge_content(self.table.main_id, &self.broker, &topics)?;
        // Where the clock is a term, the claims are their owner's word.
        if self.settings.terms().contains(&Term::Clock) {
            return Ok(());
        }
        self.oracle.judge_claims(&self.broker)
    }

    pub(super) fn worker(&self, worker: u8) -> usize {
        usize::from(worker) % self.workers.len()
    }

    pub(super) fn log(&self, partition: u8) -> LogId {
        let present = self.broker.present();
        present[usize::from(partition) % present.len()]
    }

    fn happen(&mut self, event: Event) -> Found {
        self.arrive_late()?;
        match event {
            Event::Wait(thousandths) => {
                self.now_us += self.settings.cell_ms * i64::from(thousandths);
            }
            Event::Flow { delay, silent } => self.flow(delay, silent)?,
            Event::Quiet { partition } => self.quiet(self.log(partition))?,
            Event::Produce { .. }
            | Event::Transact { .. }
            | Event::End { .. }
            | Event::Replay { .. }
            | Event::Resolve { .. }
            | Event::Connector { .. }
            | Event::Failover { .. } => self.write(event),
            Event::Fetch { worker, records } => {
                self.fetch(self.worker(worker), usize::from(records))?;
            }
            Event::Turn { worker } => drop(self.turn(self.worker(worker))?),
            Event::Work { worker } => self.work(self.worker(worker))?,
            Event::Fate(fate) => self.fates.push_back(fate),
            Event::Kill { worker } => self.kill(self.worker(worker))?,
            Event::Stall { worker } => self.stall(self.worker(worker))?,
            Event::Wake { worker } => self.wake(self.worker(worker)),
            Event::Rebalance { partition, worker } => {
                let (log, worker) = (self.log(partition), self.worker(worker));
                self.hand_over(log, worker)?;
            }
            Event::Change { how } => self.change(how),
            Event::Adopt { worker } => self.adopt(self.worker(worker)),
            _ => self.meddle(event)?,
        }
        Ok(())
    }

    /// Events of the cluster and the table.
    pub(super) fn meddle(&mut self, event: Event) -> Found {
        match event {
            Event::AddPartition { topic } => self.add_partition(usize::from(topic)),
            Event::Join => self.join(),
            Event::Leave { topic } => self.leave(usize::from(topic)),
            Event::Return { topic } => self.come_back(usize::from(topic)),
            Event::Recreate { topic } => {
                self.connector(true);
                let topic = usize::from(topic) % self.broker.topics.len();
                self.broker.recreate(topic);
                self.note.see(Seen::TopicRecreated);
            }
            Event::Cut { partition, records } => self.cut(partition, records),
            Event::Retain { partition, records } => {
                let log = self.log(partition);
                self.broker.logs[log].retain(records);
            }
            Event::Unanswered { questions } => self.broker.unanswered += questions,
            Event::Foreign(foreign) => self.foreign(foreign),
            Event::Expire { keep } => self.expire(usize::from(keep)),
            Event::Overrun => return self.overrun(),
            Event::Pick { which } => return self.pick(usize::from(which)),
            Event::Accept => self.accept(),
            Event::Rollback { back } => return self.roll_back(usize::from(back)),
            Event::Drain { pipeline, drained } => return self.drain(pipeline, drained),
            Event::Retract { back, cells } => return self.retract(back, cells),
            Event::Copy => return self.judge_copy(),
            Event::ForgetState => self.forget_state(),
            _ => {}
        }
        Ok(())
    }

    /// The state of the first writer that goes on by one is lost.
    fn forget_state(&mut self) {
        for pipeline in 0..self.pipelines.len() {
            let name = contract::state_property(self.pipelines[pipeline].writer);
            if self.table.properties.contains_key(&name) && self.goes_on(pipeline) {
                self.table.properties.remove(&name);
                self.table.touch();
                self.note.see(Seen::Rebuilt);
                self.replays_certain &= !self.table.lineage().broken;
                return;
            }
        }
    }

    /// The usual: rows everywhere but in silent partitions, and everybody works.
    pub(super) fn flow(&mut self, delay: u8, silent: u8) -> Found {
        self.now_us += self.settings.cell_ms * 200;
        for (at, log) in self.broker.present().into_iter().enumerate() {
            if silent & (1 << (at % 8)) != 0 {
                self.note.see(Seen::SilentPartition);
                continue;
            }
            let rows = 1 + u8::try_from(at % 3).expect("below three");
            self.produce(log, rows, delay, Kind::Change, false);
        }
        for worker in 0..self.workers.len() {
            self.work(worker)?;
        }
        Ok(())
    }

    /// Offsets without rows wait for long.
    fn quiet(&mut self, log: LogId) -> Found {
        const LONG_US: i64 = 3_700 * SECOND_US;
        self.produce(log, 2, 0, Kind::Signal, false);
        for worker in 0..self.workers.len() {
            self.work(worker)?;
        }
        self.now_us += LONG_US;
        for worker in 0..self.workers.len() {
            self.work(worker)?;
        }
        Ok(())
    }

    pub(super) fn work(&mut self, worker: usize) -> Found {
        for _ in 0..8 {
            self.fetch(worker, usize::MAX)?;
            if !self.turn(worker)? {
                break;
            }
        }
        Ok(())
    }
}
