//! The core against an oracle that has seen the whole stream.
//!
//! A world of partitions, workers and one table takes random steps: rows with delays within L and D, silent partitions,
//! moved and new ones, topics that leave and come back, batches sealed before the consumer has gone on, rivals that commit on what others left, heads of logs
//! lost, promises and heartbeats of the source, connectors that stop and send everything later, state read back or rebuilt at
//! every commit. The oracle knows every row and judges what was published.
//!
//! The oracle is judged, too: rules that are known to be wrong are planted, and it must find each.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use uuid::Uuid;

use super::*;

const T0: i64 = 1_796_029_200 * SECOND_US;
const TOPIC: &str = "shop.orders";
const SKEW: i64 = SECOND_US / 4;

#[derive(Clone, Debug)]
struct Row {
    event_us: i64,
    record_us: i64,
    position: i64,
    commit_us: i64,
    replay: bool,
    /// No row: the source promises that none with an earlier event time comes behind it.
    promise: bool,
}

impl Row {
    /// Whether it has a say.
    fn counts(&self) -> bool {
        !self.replay && !self.promise
    }
}

#[derive(Clone, Debug)]
enum Step {
    Produce {
        partition: usize,
        wait_ms: i64,
        delay: u8,
        group: u8,
    },
    Redeliver {
        partition: usize,
        back: usize,
    },
    Poll {
        worker: usize,
        rows: usize,
    },
    Seal {
        worker: usize,
    },
    Ask {
        worker: usize,
    },
    Commit {
        worker: usize,
    },
    Move {
        partition: usize,
        worker: usize,
    },
    Add,
    /// A topic with rows of the last seconds is added to what the pipeline reads.
    Join {
        rows: u8,
    },
    /// A topic is taken out of what the pipeline reads.
    Leave {
        topic: u8,
    },
    /// Those that were are named again.
    Return,
    /// Other cells, by a newer revision of the settings.
    Cells {
        seconds: u8,
    },
    /// Some of what is published is taken back.
    Retract {
        back: u8,
    },
    LoseHead {
        partition: usize,
        rows: usize,
    },
    Recall {
        how: u8,
    },
    /// The source promises as much as it can less this part of D, to every partition.
    Promise {
        less: u8,
    },
    /// The connector shows that it is alive.
    Beat,
    /// The connector stops; what happens at the source meanwhile it sends when it is back.
    Stop,
    Start,
    /// The usual day: a row of each partition, each worker reads and commits.
    Flow {
        delay: u8,
    },
    Wait {
        wait_ms: i64,
    },
}

/// A rule that is known to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    None,
    /// No cap by the instant at which the partitions were asked for.
    NoAskedCap,
    /// The consumer's position instead of the end of the batch.
    ConsumerPosition,
    /// The clock after the answer instead of before the question.
    ClockAfterAnswer,
    /// An equal position is a replay.
    EqualIsReplay,
    /// Statistics rounded up.
    RoundedUp,
    /// The least event time alone, without the lateness.
    NoLateness,
    /// A start offset anchored at the clock of long ago.
    AnchorTooEarly,
    /// A low quantile alone, without the lateness.
    QuantileAlone,
    /// A promise that the consumer has read behind the end of the batch.
    PromiseAhead,
    /// A stopped connector looks like a silent one.
    StopUnheard,
    /// The heartbeat that is the newest at the commit, not at the question.
    HeartbeatAtCommit,
    /// A topic that joins is taken for one that was created since.
    JoinIsCreation,
    /// What has left is not remembered.
    LeftForgotten,
}

#[derive(Clone, Debug)]
struct Plan {
    policy: Policy,
    partitions: usize,
    workers: usize,
    latest: bool,
    redeliver: bool,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, Default)]
struct Held {
    /// The batch starts here.
    start: i64,
    /// Consumed up to here.
    position: i64,
    /// The batch ends here.
    sealed: i64,
    rows: Vec<(i64, Row)>,
    positions: SourcePositions,
    asked: Option<AskedEnd>,
}

/// The connector in front of the logs.
#[derive(Clone, Debug, Default)]
struct Connector {
    stopped: bool,
    /// Rows that wait for it, with their partitions.
    waiting: Vec<(usize, Row)>,
    /// Its newest heartbeat.
    beat_us: Option<i64>,
}

struct World {
    plan: Plan,
    wrong: Wrong,
    now_us: i64,
    /// The topic of each partition.
    topics: Vec<String>,
    /// What the pipeline reads, but for what has left.
    names: Vec<String>,
    away: BTreeSet<String>,
    /// Of each log, everything below is in the table or lost.
    read: Vec<i64>,
    logs: Vec<Vec<Row>>,
    connector: Connector,
    log_start: Vec<i64>,
    /// Rows of a log that are never read.
    skipped: Vec<i64>,
    owner: Vec<usize>,
    held: Vec<HashMap<usize, Held>>,
    asked: Vec<Option<AskedPartitions>>,
    table: State,
    properties: HashMap<String, String>,
    lineage: Lineage<'static>,
    commits: u128,
    /// The terms that any claim has rested on.
    evidence: BTreeSet<Term>,
}

type Found = Result<(), String>;

impl World {
    fn new(plan: Plan, wrong: Wrong) -> Self {
        let identity = Identity {
            writer: "shop.orders".to_owned(),
            cluster_id: "cluster".to_owned(),
            installation: "here".to_owned(),
            table_uuid: Uuid::from_u128(7),
            table_ref: "main".to_owned(),
        };
        let (partitions, workers) = (plan.partitions, plan.workers);
        World {
            now_us: T0,
            topics: vec![TOPIC.to_owned(); partitions],
            names: vec![TOPIC.to_owned()],
            away: BTreeSet::new(),
            read: vec![0; partitions],
            logs: vec![Vec::new(); partitions],
            connector: Connector::default(),
            log_start: vec![0; partitions],
            skipped: Vec::new(),
            owner: (0..partitions).map(|p| p % workers).collect(),
            held: vec![HashMap::new(); workers],
            asked: vec![None; workers],
            table: State::new(identity, TOPIC, plan.policy.clone(), T0),
            properties: HashMap::new(),
            lineage: Lineage::default(),
            commits: 0,
            evidence: BTreeSet::new(),
            plan,
            wrong,
        }
    }

    fn clock(&self, worker: usize) -> i64 {
        match worker {
            0 => self.now_us,
            1 => self.now_us + SKEW,
            _ => self.now_us - SKEW,
        }
    }

    fn run(mut self) -> Result<World, String> {
        let steps = std::mem::take(&mut self.plan.steps);
        // What lies there before the first commit may never be read.
        let early = steps.len() / 8;
        for step in &steps[..early] {
            if let Step::Produce { .. } | Step::Wait { .. } = step {
                self.step(step)?;
            }
        }
        self.anchor()?;
        for step in &steps[early..] {
            self.step(step)?;
        }
        self.drain()?;
        Ok(self)
    }

    fn step(&mut self, step: &Step) -> Found {
        let partitions = self.logs.len();
        match *step {
            Step::Wait { wait_ms } => self.now_us += wait_ms * 1000,
            Step::Produce {
                partition,
                wait_ms,
                delay,
                group,
            } => self.produce(partition % partitions, wait_ms, delay, group),
            Step::Redeliver { partition, back } => self.redeliver(partition % partitions, back),
            Step::Poll { worker, rows } => return self.poll(worker % self.plan.workers, rows),
            Step::Seal { worker } => self.seal(worker % self.plan.workers),
            Step::Ask { worker } => self.ask(worker % self.plan.workers),
            Step::Commit { worker } => return self.commit(worker % self.plan.workers),
            Step::Move { partition, worker } => {
                let partition = partition % partitions;
                // What the last owner holds stays with it: a zombie, should it come back.
                self.owner[partition] = worker % self.plan.workers;
            }
            // Behind a connector that stops D holds no longer for partitions that nobody has asked for.
            Step::Add if partitions < 6 && !self.may_stop() => {
                self.add(TOPIC.to_owned(), Vec::new());
            }
            Step::Join { rows } if partitions < 6 && !self.may_stop() => self.join(rows % 16),
            Step::Add | Step::Join { .. } => {}
            Step::Leave { topic } => return self.leave(usize::from(topic)),
            Step::Return => return self.come_back(),
            Step::Cells { seconds } => {
                let cell = [1, 2, 4, 5][usize::from(seconds % 4)];
                self.plan.policy.grid = Grid::new(cell * SECOND_US).unwrap();
                self.plan.policy.revision += 1;
            }
            Step::Retract { back } => return self.retract(back),
            Step::LoseHead { partition, rows } => self.lose_head(partition % partitions, rows),
            Step::Recall { how } => return self.recall(how),
            Step::Promise { less } => self.promise(less),
            Step::Beat => self.beat(),
            Step::Stop => self.connector.stopped = self.may_stop(),
            Step::Start => self.start(),
            Step::Flow { delay } => {
                for partition in 0..partitions {
                    self.produce(partition, 50, delay, 0);
                }
                for worker in 0..self.plan.workers {
                    self.poll(worker, usize::MAX)?;
                    self.seal(worker);
                    self.commit(worker)?;
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, topic: String, log: Vec<Row>) {
        self.owner.push(self.logs.len() % self.plan.workers);
        self.topics.push(topic);
        self.logs.push(log);
        self.log_start.push(0);
        self.read.push(0);
    }

    /// A row a second, up to now.
    fn join(&mut self, rows: u8) {
        let topic = format!("shop.joined-{}", self.logs.len());
        if self.wrong != Wrong::JoinIsCreation {
            self.names.push(topic.clone());
        }
        // A changed specification is a new session: nothing was asked under it yet.
        self.asked.fill(None);
        let row = |ago: u8| {
            let at_us = self.now_us - i64::from(ago) * SECOND_US;
            Row {
                event_us: at_us,
                record_us: at_us,
                position: i64::from(rows - ago),
                commit_us: at_us,
                replay: false,
                promise: false,
            }
        };
        let log = (0..rows).rev().map(row).collect();
        self.add(topic, log);
    }

    /// Its source positions are forgotten, so that what is sent again could not be told from news.
    fn leave(&mut self, topic: usize) -> Found {
        let known = self.table.topics.keys();
        let reading: Vec<&String> = known.filter(|topic| !self.away.contains(*topic)).collect();
        if reading.len() < 2 || self.plan.redeliver {
            return Ok(());
        }
        let leaves = reading[topic % reading.len()].clone();
        self.away.insert(leaves.clone());
        self.settle(vec![leaves])
    }

    fn come_back(&mut self) -> Found {
        if std::mem::take(&mut self.away).is_empty() {
            return Ok(());
        }
        self.settle(Vec::new())
    }

    /// A changed specification is a new session: it commits what has to be on the table before anything is read.
    fn settle(&mut self, retired: Vec<String>) -> Found {
        let now_us = self.clock(0);
        self.asked.fill(None);
        let mut news = self.empty(now_us);
        news.retired = retired;
        news.asked = Some(self.named(now_us));
        for partition in (0..self.logs.len()).filter(|partition| self.is_read(*partition)) {
            if self.next_offset(partition).is_none() {
                news.anchors.push(self.anchor_of(partition, now_us));
            }
        }
        self.note_lost(&news)?;
        self.land(&news, &[])
    }

    /// Where reading begins in a partition that the table does not have.
    fn anchor_of(&self, partition: usize, at_us: i64) -> Anchor {
        let (topic, number) = self.place(partition);
        let start = self.log_start[partition];
        let left = self.table.left.next_offset(topic, None, number);
        Anchor {
            topic: topic.to_owned(),
            topic_id: None,
            partition: number,
            offset: left.map_or(start, |from| from.max(start)),
            origin: left.map_or(Origin::New, |from| Origin::Back { from }),
            at_us,
        }
    }

    fn is_read(&self, partition: usize) -> bool {
        !self.away.contains(&self.topics[partition])
    }

    fn named(&self, at_us: i64) -> AskedPartitions {
        let mut topics: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
        for partition in (0..self.logs.len()).filter(|partition| self.is_read(*partition)) {
            let (topic, number) = self.place(partition);
            topics.entry(topic.to_owned()).or_default().insert(number);
        }
        AskedPartitions { at_us, topics }
    }

    /// Keeps account of what is never read, and finds what would be read again.
    fn note_lost(&mut self, news: &Contribution) -> Found {
        let jumps = news.jumps.iter();
        let jumps = jumps.map(|jump| (jump.partition, jump.offset));
        let anchors = news.anchors.iter();
        let anchors = anchors.map(|anchor| (anchor.partition, anchor.offset));
        for (partition, offset) in jumps.chain(anchors) {
            let partition = usize::try_from(partition).unwrap();
            let read = self.read[partition];
            if offset < read {
                return Err(format!("rows {offset}..{read} would be read again"));
            }
            let lost = usize::try_from(read).unwrap()..usize::try_from(offset).unwrap();
            let lost = self.logs[partition][lost].iter();
            self.skipped
                .extend(lost.filter(|row| row.counts()).map(|row| row.event_us));
            self.read[partition] = offset;
        }
        Ok(())
    }

    fn retract(&mut self, back: u8) -> Found {
        let Some(claim_us) = self.table.published.finalized_before_us else {
            return Ok(());
        };
        let from_us = claim_us - (1 + i64::from(back % 8)) * SECOND_US;
        let retraction = Retraction::new(from_us, claim_us, "by the oracle")?;
        let mut news = self.empty(self.clock(0));
        news.order = Some(Order::Retract(retraction));
        self.land(&news, &[])
    }

    /// The source partition of a log.
    fn place(&self, partition: usize) -> (&str, i32) {
        (&self.topics[partition], i32::try_from(partition).unwrap())
    }

    fn known(&self, partition: usize) -> Option<&PartitionState> {
        let (topic, number) = self.place(partition);
        self.table.partition(topic, number)
    }

    fn subscription(&self) -> String {
        let read = self.names.iter().filter(|name| !self.away.contains(*name));
        read.map(String::as_str).collect::<Vec<_>>().join(",")
    }

    fn empty(&self, now_us: i64) -> Contribution {
        let claim_us = self.table.published.finalized_before_us;
        Contribution {
            subscription: self.subscription(),
            cells: CellCounts::new(self.plan.policy.grid, claim_us),
            ..empty(self.commits + 1, now_us, self.plan.policy.grid)
        }
    }

    /// Rows with event times no older than D less the skew of the clocks, no newer than S, and within L of each other.
    fn produce(&mut self, partition: usize, wait_ms: i64, delay: u8, group: u8) {
        self.now_us += wait_ms * 1000;
        let bounds = &self.plan.policy.bounds;
        let waiting = self.connector.waiting.iter();
        let waiting = waiting
            .filter(|(of, _)| *of == partition)
            .map(|(_, row)| row);
        let sent = self.logs[partition].iter();
        let promised = sent
            .clone()
            .filter(|row| row.promise)
            .map(|row| row.event_us)
            .max();
        let sent = sent.chain(waiting).filter(|row| row.counts());
        let newest = sent.clone().map(|row| row.event_us).max();
        let (most, least) = (
            bounds.max_delay_us - 2 * SKEW,
            -(bounds.max_future_skew_us - 2 * SKEW),
        );
        let delay_us = least + (most - least) * i64::from(delay) / 255;
        let floor = newest.map_or(i64::MIN, |newest| newest - bounds.allowed_lateness_us);
        let event_us = (self.now_us - delay_us)
            .max(floor)
            .max(promised.unwrap_or(i64::MIN));
        let position = sent.map(|row| row.position).max().unwrap_or(0) + 1;
        let row = Row {
            event_us,
            record_us: self.now_us,
            position,
            commit_us: self.now_us,
            replay: false,
            promise: false,
        };
        let rows = std::iter::repeat_n(row, usize::from(group % 3) + 1);
        if self.connector.stopped {
            self.connector
                .waiting
                .extend(rows.map(|row| (partition, row)));
        } else {
            self.logs[partition].extend(rows);
        }
    }

    /// Whether the settings can tell a stopped connector, or a wrong rule says that they can.
    fn may_stop(&self) -> bool {
        self.plan.policy.heartbeats != Heartbeats::None || self.wrong == Wrong::StopUnheard
    }

    fn beat(&mut self) {
        if !self.connector.stopped {
            self.connector.beat_us = Some(self.now_us);
        }
    }

    fn start(&mut self) {
        self.connector.stopped = false;
        for (partition, row) in std::mem::take(&mut self.connector.waiting) {
            let record_us = self.now_us;
            self.logs[partition].push(Row { record_us, ..row });
        }
    }

    /// What comes later is not older, whatever its delay. A promise may be older than the one before.
    fn promise(&mut self, less: u8) {
        if self.connector.stopped || !self.plan.policy.terms.contains(&Term::Resolved) {
            return;
        }
        let less_us = self.plan.policy.bounds.max_delay_us * i64::from(less) / 255;
        for log in &mut self.logs {
            log.push(Row {
                event_us: self.now_us - less_us,
                record_us: self.now_us,
                position: 0,
                commit_us: self.now_us,
                replay: false,
                promise: true,
            });
        }
    }

    fn redeliver(&mut self, partition: usize, back: usize) {
        let log = &mut self.logs[partition];
        let greatest = log.iter().map(|row| row.position).max().unwrap_or(0);
        let again: Vec<Row> = log
            .iter()
            .filter(|row| row.counts() && row.position < greatest)
            .rev()
            .take(back)
            .cloned()
            .collect();
        if self.plan.redeliver && !self.plan.latest && !self.connector.stopped {
            log.extend(again.into_iter().rev().map(|row| Row {
                record_us: self.now_us,
                replay: true,
                ..row
            }));
        }
    }

    fn lose_head(&mut self, partition: usize, rows: usize) {
        if self.plan.redeliver {
            return;
        }
        let start = self.log_start[partition];
        let start = (start + i64::try_from(rows).unwrap())
            .min(i64::try_from(self.logs[partition].len()).unwrap());
        self.log_start[partition] = start;
    }

    fn next_offset(&self, partition: usize) -> Option<i64> {
        Some(self.known(partition)?.next_offset)
    }

    fn owned(&self, worker: usize) -> Vec<usize> {
        (0..self.logs.len())
            .filter(|p| self.owner[*p] == worker && self.is_read(*p))
            .collect()
    }

    /// Takes up a partition where the table says, where that still exists.
    fn hold(&mut self, worker: usize, partition: usize) -> Option<&mut Held> {
        let next = self.next_offset(partition)?;
        if !self.held[worker].contains_key(&partition) {
            if next < self.log_start[partition] {
                return None;
            }
            let known = self.known(partition)?;
            let held = Held {
                start: next,
                position: next,
                sealed: next,
                positions: known.positions.clone(),
                ..Held::default()
            };
            self.held[worker].insert(partition, held);
        }
        self.held[worker].get_mut(&partition)
    }

    fn poll(&mut self, worker: usize, rows: usize) -> Found {
        for partition in self.owned(worker) {
            let now_us = self.clock(worker);
            let bounds = self.plan.policy.bounds.clone();
            let log: Vec<Row> = self.logs[partition].clone();
            let start = self.log_start[partition];
            let Some(held) = self.hold(worker, partition) else {
                continue;
            };
            if held.position < start {
                self.held[worker].remove(&partition);
                continue;
            }
            for _ in 0..rows {
                let Some(row) = log.get(usize::try_from(held.position).unwrap()) else {
                    break;
                };
                held.rows.push((held.position, row.clone()));
                held.position += 1;
                if !row.promise && bounds.say(&time_of(row, false), now_us) != Say::Yes {
                    return Err(format!("a row within the bounds has no say: {row:?}"));
                }
            }
        }
        Ok(())
    }

    fn seal(&mut self, worker: usize) {
        for held in self.held[worker].values_mut() {
            held.sealed = held.position;
        }
    }

    fn ask(&mut self, worker: usize) {
        self.asked[worker] = Some(self.named(self.clock(worker)));
        let at_us = self.clock(worker);
        let heartbeat_us = self.connector.beat_us;
        for partition in self.owned(worker) {
            let high_watermark = i64::try_from(self.logs[partition].len()).unwrap();
            if let Some(held) = self.hold(worker, partition) {
                held.asked = Some(AskedEnd {
                    at_us,
                    heartbeat_us,
                    high_watermark,
                    delivered: held.position,
                });
            }
        }
    }

    fn contribution(&self, worker: usize) -> (Contribution, Vec<(usize, Vec<Row>, i64)>) {
        let now_us = self.clock(worker);
        let mut news = self.empty(now_us);
        news.asked.clone_from(&self.asked[worker]);
        if let (Wrong::NoAskedCap, Some(asked)) = (self.wrong, &mut news.asked) {
            asked.at_us = now_us + self.plan.policy.bounds.max_delay_us;
        }
        let mut taken = Vec::new();
        for partition in self.owned(worker) {
            let (topic, number) = self.place(partition);
            let Some(next) = self.next_offset(partition) else {
                news.anchors.push(self.anchor_of(partition, now_us));
                continue;
            };
            let Some(held) = self.held[worker].get(&partition) else {
                if next < self.log_start[partition] {
                    news.jumps.push(Jump {
                        topic: topic.to_owned(),
                        partition: number,
                        kind: JumpKind::Forward,
                        from: next,
                        before: None,
                        offset: self.log_start[partition],
                        at_us: now_us,
                    });
                }
                continue;
            };
            let (own, rows) = self.partition_news(partition, held, now_us, &mut news);
            news.partitions.push(own);
            taken.push((partition, rows, held.sealed));
        }
        (news, taken)
    }

    fn partition_news(
        &self,
        partition: usize,
        held: &Held,
        now_us: i64,
        news: &mut Contribution,
    ) -> (PartitionNews, Vec<Row>) {
        let batch = held
            .rows
            .iter()
            .filter(|(offset, _)| *offset < held.sealed)
            .map(|(_, row)| row.clone());
        let batch: Vec<Row> = batch.collect();
        let mut positions = held.positions.clone();
        let mut digest = Digest::default();
        for row in batch.iter().filter(|row| !row.promise) {
            let before = positions.incarnations().first().map(|known| known.position);
            let mut replayed = positions
                .judge("db/1", row.position, Some(row.commit_us))
                .replayed;
            replayed |= self.wrong == Wrong::EqualIsReplay && before == Some(row.position);
            let time = RowTime {
                backfill_before_us: self.known(partition).and_then(|own| own.backfill_before_us),
                ..time_of(row, replayed)
            };
            let say = self.plan.policy.bounds.say(&time, now_us);
            news.excluded.count(say);
            if say == Say::Yes {
                digest.push(row.event_us);
                news.cells.count(row.event_us);
            }
        }
        let sketch = digest.finish();
        let mut stats = sketch.as_ref().map(Sketch::stats);
        if let Some(stats) = &mut stats {
            match self.wrong {
                Wrong::RoundedUp => {
                    stats.least_us += SECOND_US;
                    stats.greatest_us += SECOND_US;
                }
                Wrong::NoLateness | Wrong::QuantileAlone => {
                    stats.greatest_us += self.plan.policy.bounds.allowed_lateness_us;
                }
                _ => {}
            }
        }
        let mut asked_end = held.asked;
        if let Some(end) = &mut asked_end {
            match self.wrong {
                Wrong::HeartbeatAtCommit => end.heartbeat_us = self.connector.beat_us,
                Wrong::ConsumerPosition if held.position >= end.high_watermark => {
                    (end.high_watermark, end.delivered) = (held.sealed, 0);
                }
                Wrong::ClockAfterAnswer => {
                    end.at_us = now_us;
                    news.asked.iter_mut().for_each(|asked| asked.at_us = now_us);
                }
                _ => {}
            }
        }
        news.rows += batch.iter().filter(|row| !row.promise).count() as u64;
        news.event_times = Sketch::merge(news.event_times.iter().chain(&sketch));
        let (topic, number) = self.place(partition);
        let own = PartitionNews {
            topic: topic.to_owned(),
            partition: number,
            start_offset: held.start,
            end_offset: held.sealed,
            before: None,
            leader_epoch: Some(3),
            stats,
            positions: (!batch.is_empty()).then_some(positions),
            newest_change: None,
            resolved_us: self.promised(held),
            asked_end,
        };
        (own, batch)
    }

    /// The newest promise in the batch.
    fn promised(&self, held: &Held) -> Option<i64> {
        let batch = held
            .rows
            .iter()
            .filter(|(offset, _)| *offset < held.sealed || self.wrong == Wrong::PromiseAhead);
        let promises = batch.filter(|(_, row)| row.promise);
        let newest = promises.map(|(_, row)| row.event_us).max();
        newest.filter(|_| held.sealed > held.start)
    }

    fn anchor(&mut self) -> Found {
        let mut news = self.empty(self.clock(0));
        let ago = if self.wrong == Wrong::AnchorTooEarly {
            20 * SECOND_US
        } else {
            0
        };
        for partition in 0..self.logs.len() {
            let end = i64::try_from(self.logs[partition].len()).unwrap();
            let offset = if self.plan.latest { end } else { 0 };
            self.read[partition] = offset;
            self.skipped.extend(
                self.logs[partition][..usize::try_from(offset).unwrap()]
                    .iter()
                    .filter(|row| row.counts())
                    .map(|row| row.event_us),
            );
            news.anchors.push(Anchor {
                topic: TOPIC.to_owned(),
                topic_id: Some(Uuid::from_u128(9)),
                partition: i32::try_from(partition).unwrap(),
                offset,
                origin: Origin::New,
                at_us: self.clock(0) - ago,
            });
        }
        self.land(&news, &[])
    }

    fn commit(&mut self, worker: usize) -> Found {
        let (news, taken) = self.contribution(worker);
        let data = news
            .partitions
            .iter()
            .any(|own| own.end_offset > own.start_offset);
        if !data && should_commit_empty(&self.table, &self.plan.policy, &news).is_none() {
            return Ok(());
        }
        if let Err(Misfit::Offset { partition, .. }) =
            advance(&self.table, &self.plan.policy, &news)
        {
            self.held[worker].remove(&usize::try_from(partition).unwrap());
            return Ok(());
        }
        self.note_lost(&news)?;
        let mut rows: Vec<Row> = taken.iter().flat_map(|(_, rows, _)| rows.clone()).collect();
        let true_replays = rows.iter().filter(|row| row.replay).count() as u64;
        if news.excluded.replayed != true_replays {
            return Err(format!(
                "{} replays, {true_replays} in truth",
                news.excluded.replayed
            ));
        }
        // The claim does not speak of what a topic that is backfilled has below it.
        rows = taken
            .iter()
            .flat_map(|(partition, rows, _)| {
                let before_us = self
                    .known(*partition)
                    .and_then(|own| own.backfill_before_us);
                rows.iter()
                    .filter(move |row| before_us.is_none_or(|us| row.event_us >= us))
                    .cloned()
            })
            .collect();
        self.land(&news, &rows)?;
        for (partition, rows, sealed) in taken {
            let held = self.held[worker].get_mut(&partition).unwrap();
            for row in rows.into_iter().filter(|row| !row.promise) {
                held.positions
                    .judge("db/1", row.position, Some(row.commit_us));
            }
            held.rows.retain(|(offset, _)| *offset >= sealed);
            held.start = sealed;
            self.read[partition] = sealed;
        }
        Ok(())
    }

    /// Commits, and judges what is published.
    fn land(&mut self, news: &Contribution, rows: &[Row]) -> Found {
        let base = self.table.published.clone();
        let next =
            advance(&self.table, &self.plan.policy, news).map_err(|misfit| misfit.to_string())?;
        let says: Vec<i64> = rows
            .iter()
            .filter(|row| row.counts())
            .map(|row| row.event_us)
            .collect();
        // What the clock alone carries is its owner's word: the rows that break it are counted.
        let vouched = base.evidence.contains(&Term::Clock);
        if let Some(claim_us) = base.finalized_before_us.filter(|_| !vouched)
            && let Some(early) = says.iter().find(|us| **us < claim_us)
        {
            return Err(format!(
                "{} was published, then came {}",
                contract::iso(claim_us),
                contract::iso(*early)
            ));
        }
        let early = |us: &&i64| Some(**us) < base.finalized_before_us;
        if next.late.rows() != says.iter().filter(early).count() as u64 {
            return Err(format!("the late rows are others: {:?}", next.late));
        }
        self.evidence.extend(&next.claim.evidence);
        let (before, after) = (&base, &next.state.published);
        if after.epoch == before.epoch && after.finalized_before_us < before.finalized_before_us {
            return Err("the claim fell".to_owned());
        }
        if after.epoch != before.epoch && news.anchors.is_empty() && news.order.is_none() {
            return Err("an epoch without a cause".to_owned());
        }
        self.commits += 1;
        if self.wrong != Wrong::None {
            // A planted rule shows in what is published; reading back is left to the right ones.
            self.judge_edges(&next)?;
            self.table = next.state;
            if self.wrong == Wrong::LeftForgotten {
                self.table.left = Left::default();
            }
            return Ok(());
        }
        let decoded = State::decode(&next.state_text).map_err(|e| e.to_string())?;
        if decoded != next.state {
            return Err(format!(
                "the state comes back as another: {decoded:?} for {:?}",
                next.state
            ));
        }
        self.table = decoded;
        let changes = contract::properties(&next);
        self.properties.extend(changes.set);
        for name in changes.remove {
            self.properties.remove(&name);
        }
        let snapshot_id = i64::try_from(self.commits).unwrap();
        let ancestor = Ancestor {
            snapshot_id,
            parent_id: Some(snapshot_id - 1),
            summary: Cow::Owned(contract::summary(&next, news).into_iter().collect()),
            picked: None,
        };
        self.lineage.snapshots.insert(0, ancestor);
        self.judge_edges(&next)?;
        self.judge_reader(&next)
    }

    /// No row that is never read lies where completeness is claimed.
    fn judge_edges(&self, next: &Advanced) -> Found {
        let lost = self.skipped.iter().find(|us| {
            let outside =
                matches!(next.claim.complete_from, CompleteFrom::From(from) if **us < from);
            let in_gap = next.claim.gaps.within(**us, **us + 1).is_some();
            !outside && !in_gap
        });
        match lost {
            None => Ok(()),
            Some(us) => Err(format!(
                "{} was never read, yet {:?} claims it",
                contract::iso(*us),
                next.claim
            )),
        }
    }

    fn judge_reader(&self, next: &Advanced) -> Found {
        match read_claim(&self.view(&self.lineage)) {
            Reading::Claim(read) if read.claim == next.claim => Ok(()),
            other => Err(format!(
                "a reader sees {other:?}, published was {:?}",
                next.claim
            )),
        }
    }

    fn view<'a>(&'a self, lineage: &'a Lineage<'_>) -> TableView<'a> {
        TableView {
            table_uuid: Uuid::from_u128(7),
            table_ref: "main",
            properties: &self.properties,
            lineage,
        }
    }

    /// Workers go on from the state as it is found: whole, rebuilt, or rebuilt from a part.
    fn recall(&mut self, how: u8) -> Found {
        if self.wrong != Wrong::None {
            return Ok(());
        }
        let state_name = contract::state_property("shop.orders");
        let foreign = Ancestor {
            snapshot_id: -1,
            parent_id: None,
            summary: Cow::Owned(HashMap::from([(
                "operation".to_owned(),
                "replace".to_owned(),
            )])),
            picked: None,
        };
        let keep = 1 + usize::from(how / 4);
        if how % 4 == 3 && !self.plan.redeliver && self.lineage.snapshots.len() > keep {
            self.lineage.snapshots.truncate(keep);
            self.lineage.broken = true;
        }
        let mut lineage = self.lineage.clone();
        lineage
            .snapshots
            .insert(lineage.snapshots.len().min(1), foreign);
        let mut view = self.view(&lineage);
        let without: HashMap<String, String> = self
            .properties
            .iter()
            .filter(|(name, _)| **name != state_name)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        if !how.is_multiple_of(4) {
            view.properties = &without;
        }
        let standing =
            stand(&Asker::new("shop.orders", self.now_us), &view).map_err(|e| e.to_string())?;
        let Standing::GoesOn(standing) = standing else {
            return Err("nothing to stand on".to_owned());
        };
        if !self.lineage.broken && standing.state != self.table {
            return Err(format!(
                "rebuilt {:?} is not {:?}",
                standing.state, self.table
            ));
        }
        if standing.state.published.finalized_before_us != self.table.published.finalized_before_us
        {
            return Err("the rebuilt claim is another".to_owned());
        }
        self.table = standing.state;
        // What a worker holds it took from the state before; after a cut it starts anew.
        if self.lineage.broken {
            self.held.iter_mut().for_each(HashMap::clear);
        }
        Ok(())
    }

    /// Everything is read, nothing more comes: every cell up to now less D must be published in a few rounds.
    fn drain(&mut self) -> Found {
        self.start();
        for _ in 0..6 {
            for worker in 0..self.plan.workers {
                self.poll(worker, usize::MAX)?;
                self.seal(worker);
                self.commit(worker)?;
            }
        }
        let bounds = &self.plan.policy.bounds;
        self.now_us += bounds.max_delay_us + 2 * self.plan.policy.grid.cell_us();
        for _ in 0..4 {
            self.beat();
            self.promise(0);
            for worker in 0..self.plan.workers {
                self.poll(worker, usize::MAX)?;
                self.seal(worker);
                self.ask(worker);
                self.commit(worker)?;
            }
        }
        let of_window = BTreeSet::from([Term::Minimum, Term::Percentile]);
        if !self.plan.policy.terms.is_subset(&of_window) {
            self.judge_due(0)?;
        }
        self.flow()
    }

    /// Rows everywhere, more commits than a window has: every cell up to now less D and L must be published.
    fn flow(&mut self) -> Found {
        if self.wrong != Wrong::None {
            return Ok(());
        }
        self.now_us += self.plan.policy.window_duration_us + 2 * SECOND_US;
        for _ in 0..4 {
            for partition in 0..self.logs.len() {
                self.produce(partition, 0, 255, 0);
            }
            self.beat();
            self.promise(0);
            for worker in 0..self.plan.workers {
                self.poll(worker, usize::MAX)?;
                self.seal(worker);
                self.ask(worker);
                self.commit(worker)?;
            }
        }
        self.judge_due(self.plan.policy.bounds.allowed_lateness_us)
    }

    fn judge_due(&self, less_us: i64) -> Found {
        let bounds = &self.plan.policy.bounds;
        let due = self.now_us - SKEW - SECOND_US - bounds.max_delay_us - less_us;
        let due = self.plan.policy.grid.floor(due);
        if self.table.published.finalized_before_us >= Some(due) {
            return Ok(());
        }
        Err(format!(
            "{} should be published, {:?} is: {:?}",
            contract::iso(due),
            self.table.published.finalized_before_us.map(contract::iso),
            self.table.hold(true)
        ))
    }
}

fn time_of(row: &Row, replayed: bool) -> RowTime {
    RowTime {
        event_time_us: Some(row.event_us),
        record_time_us: Some(row.record_us),
        snapshot: false,
        replayed,
        backfill_before_us: None,
    }
}

fn empty(commit: u128, now_us: i64, grid: Grid) -> Contribution {
    Contribution::empty((Uuid::from_u128(commit), "worker"), TOPIC, grid, now_us)
}

fn step() -> impl Strategy<Value = Step> {
    let (partition, worker) = (0_usize..6, 0_usize..3);
    prop_oneof![
        10 => (partition.clone(), 0_i64..1500, any::<u8>(), any::<u8>())
            .prop_map(|(partition, wait_ms, delay, group)| Step::Produce { partition, wait_ms, delay, group }),
        1 => (partition.clone(), 1_usize..5).prop_map(|(partition, back)| Step::Redeliver { partition, back }),
        6 => (worker.clone(), 1_usize..8).prop_map(|(worker, rows)| Step::Poll { worker, rows }),
        4 => worker.clone().prop_map(|worker| Step::Seal { worker }),
        4 => worker.clone().prop_map(|worker| Step::Ask { worker }),
        6 => worker.clone().prop_map(|worker| Step::Commit { worker }),
        1 => (partition.clone(), worker).prop_map(|(partition, worker)| Step::Move { partition, worker }),
        3 => Just(Step::Add),
        1 => any::<u8>().prop_map(|rows| Step::Join { rows }),
        1 => any::<u8>().prop_map(|topic| Step::Leave { topic }),
        1 => Just(Step::Return),
        1 => any::<u8>().prop_map(|seconds| Step::Cells { seconds }),
        1 => any::<u8>().prop_map(|back| Step::Retract { back }),
        1 => (partition, 1_usize..6).prop_map(|(partition, rows)| Step::LoseHead { partition, rows }),
        1 => any::<u8>().prop_map(|how| Step::Recall { how }),
        10 => any::<u8>().prop_map(|delay| Step::Flow { delay }),
        2 => (0_i64..3000).prop_map(|wait_ms| Step::Wait { wait_ms }),
        1 => any::<u8>().prop_map(|less| Step::Promise { less }),
        2 => Just(Step::Beat),
        1 => Just(Step::Stop),
        2 => Just(Step::Start),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    let cell = prop_oneof![Just(1_i64), Just(5)];
    let terms = prop_oneof![
        1 => Just((vec![Term::Minimum], Heartbeats::None)),
        1 => Just((vec![Term::CaughtUp], Heartbeats::None)),
        3 => Just((vec![Term::Minimum, Term::CaughtUp], Heartbeats::None)),
        1 => Just((vec![Term::Percentile], Heartbeats::None)),
        1 => Just((vec![Term::Minimum, Term::CaughtUp, Term::Percentile], Heartbeats::None)),
        1 => Just((vec![Term::CaughtUp], Heartbeats::Connector)),
        1 => Just((vec![Term::Minimum, Term::CaughtUp], Heartbeats::Connector)),
        1 => Just((vec![Term::Heartbeat], Heartbeats::Table)),
        1 => Just((vec![Term::Minimum, Term::Heartbeat], Heartbeats::Table)),
        1 => Just((vec![Term::Resolved], Heartbeats::None)),
        1 => Just((vec![Term::Resolved, Term::Minimum, Term::Heartbeat], Heartbeats::Table)),
        1 => Just((vec![Term::Minimum, Term::Clock], Heartbeats::None)),
    ];
    let quantile = prop::sample::select(LADDER.to_vec());
    let lengths = (0_i64..4000, 1000_i64..6000, 1000_i64..4000);
    (
        cell,
        lengths,
        1_u32..4,
        prop_oneof![Just(0_i64), Just(10)],
        (terms, quantile, any::<bool>()),
    )
        .prop_map(
            |(
                cell,
                (lateness_ms, delay_ms, skew_ms),
                window_commits,
                duration,
                (terms, quantile, backfill),
            )| Policy {
                revision: 1,
                grid: Grid::new(cell * SECOND_US).unwrap(),
                bounds: Bounds {
                    allowed_lateness_us: lateness_ms * 1000,
                    max_delay_us: delay_ms * 1000,
                    max_future_skew_us: skew_ms * 1000,
                    max_age_us: None,
                },
                window_commits,
                window_duration_us: duration * SECOND_US,
                quantile: terms.0.contains(&Term::Percentile).then_some(quantile),
                terms: terms.0.into_iter().collect::<BTreeSet<_>>(),
                heartbeats: terms.1,
                complete_from: FromRule::Derived,
                late_data: LateData::Notify,
                on_join: if backfill {
                    OnJoin::Backfill
                } else {
                    OnJoin::Reopen
                },
            },
        )
}

fn plan() -> impl Strategy<Value = Plan> {
    (
        policy(),
        1_usize..4,
        1_usize..4,
        any::<bool>(),
        any::<bool>(),
        prop::collection::vec(step(), 10..120),
    )
        .prop_map(
            |(policy, partitions, workers, latest, redeliver, steps)| Plan {
                policy,
                partitions,
                workers,
                latest,
                redeliver,
                steps,
            },
        )
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(120) })]

    /// Nothing too early, nothing backwards, nothing held for ever, and the same from the lineage as from the state.
    #[test]
    fn prop_what_is_published_is_true_of_the_whole_stream(plan in plan()) {
        let run = World::new(plan, Wrong::None).run();
        prop_assert!(run.is_ok(), "{}", run.err().unwrap_or_default());
    }
}

/// The first way in which some plan shows a wrong rule.
fn find(wrong: Wrong) -> Option<String> {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    (0..1_000).find_map(|_| {
        let mut plan = plan().new_tree(&mut runner).unwrap().current();
        // Where the rule matters most: small cells, and the term that it belongs to alone.
        plan.policy.grid = Grid::new(SECOND_US).unwrap();
        let (term, heartbeats) = match wrong {
            Wrong::ConsumerPosition | Wrong::ClockAfterAnswer | Wrong::StopUnheard => {
                (Term::CaughtUp, Heartbeats::None)
            }
            Wrong::HeartbeatAtCommit => (Term::Heartbeat, Heartbeats::Table),
            Wrong::PromiseAhead => (Term::Resolved, Heartbeats::None),
            Wrong::QuantileAlone => (Term::Percentile, Heartbeats::None),
            _ => (Term::Minimum, Heartbeats::None),
        };
        plan.policy.terms = BTreeSet::from([term]);
        plan.policy.heartbeats = heartbeats;
        plan.policy.quantile = (term == Term::Percentile).then_some(Quantile::FivePercent);
        if matches!(
            wrong,
            Wrong::RoundedUp | Wrong::NoLateness | Wrong::QuantileAlone
        ) {
            plan.policy.window_commits = 1;
        }
        if wrong == Wrong::RoundedUp {
            plan.policy.bounds.allowed_lateness_us = 0;
        }
        if let Some(steps) = occasion(wrong) {
            (plan.partitions, plan.workers) = (1, 1);
            plan.steps.extend(steps);
        }
        World::new(plan, wrong).run().err()
    })
}

/// What has to happen for a rule to show that seldom matters: the oldest row that may be waits behind what was read or sent.
fn occasion(wrong: Wrong) -> Option<Vec<Step>> {
    let oldest = || Step::Produce {
        partition: 0,
        wait_ms: 0,
        delay: 255,
        group: 0,
    };
    let all = || Step::Poll {
        worker: 0,
        rows: usize::MAX,
    };
    let long = || std::iter::repeat_n(Step::Wait { wait_ms: 3_000 }, 3);
    let (seal, ask) = (Step::Seal { worker: 0 }, Step::Ask { worker: 0 });
    let commit = || Step::Commit { worker: 0 };
    let mut steps = vec![Step::Start, Step::Beat, Step::Flow { delay: 128 }];
    match wrong {
        Wrong::PromiseAhead => {
            steps.extend([oldest(), all(), seal, oldest()]);
            steps.extend(long());
            steps.extend([Step::Promise { less: 0 }, all(), ask, commit()]);
        }
        Wrong::StopUnheard => {
            steps.extend([Step::Stop, oldest()]);
            steps.extend(long());
            steps.extend([ask, commit()]);
        }
        Wrong::HeartbeatAtCommit => {
            steps.extend([Step::Stop, oldest()]);
            steps.extend(long());
            steps.extend([ask, Step::Start, Step::Beat, commit()]);
        }
        Wrong::LeftForgotten => {
            let flow = || Step::Flow { delay: 128 };
            steps.extend([Step::Join { rows: 5 }, flow(), flow()]);
            steps.extend([Step::Leave { topic: 1 }, flow(), Step::Return]);
        }
        _ => return None,
    }
    Some(steps)
}

/// An oracle that lets a wrong rule pass proves nothing of the right ones.
#[test]
fn the_oracle_finds_every_planted_rule() {
    let wrongs = [
        (Wrong::NoAskedCap, "was published, then came"),
        (Wrong::ConsumerPosition, "was published, then came"),
        (Wrong::ClockAfterAnswer, "was published, then came"),
        (Wrong::EqualIsReplay, "replays"),
        (Wrong::RoundedUp, "was published, then came"),
        (Wrong::NoLateness, ""),
        (Wrong::AnchorTooEarly, "was never read"),
        (Wrong::QuantileAlone, "was published, then came"),
        (Wrong::PromiseAhead, "was published, then came"),
        (Wrong::StopUnheard, "was published, then came"),
        (Wrong::HeartbeatAtCommit, "was published, then came"),
        (Wrong::JoinIsCreation, "was published, then came"),
        (Wrong::LeftForgotten, "would be read again"),
    ];
    for (wrong, way) in wrongs {
        let found = find(wrong);
        assert!(
            found.as_ref().is_some_and(|found| found.contains(way)),
            "{wrong:?} is found as {found:?}"
        );
    }
}

/// A stream in which a term never carries a claim says nothing about that term.
#[test]
fn every_term_carries_some_claim() {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut seen = BTreeSet::new();
    for _ in 0..100 {
        let plan = plan().new_tree(&mut runner).unwrap().current();
        let world = World::new(plan, Wrong::None).run();
        seen.extend(world.map(|world| world.evidence).unwrap_or_default());
    }
    assert_eq!(seen, Term::ALL.into());
}
