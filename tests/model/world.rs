//! Two workers, two logs and a table: what each may do next, and what must hold.
//!
//! Brokers, catalog and clock are the model's; what is decided is decided by the product's own functions (`tables`). Time
//! passes in whole seconds, and every clock shows the same.

use super::{
    explore::Model,
    logs::{DELAY, Entry, Log},
    tables::{Answer, Attempt, CELL, Cut, Errand, Outcome, PARTITIONS, Range, Tables},
};

const WORKERS: usize = 2;

/// Rounds of two workers that are left alone, after which everything is published.
const ROUNDS: u8 = 5;

/// What does not happen every minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A transaction opens; it may be committed or aborted.
    Transaction,
    /// A partition is added.
    Partition,
    /// A worker takes what another one reads, which does not hear of it.
    Move,
    /// A commit takes effect, at once, later or never, and nobody hears of it.
    LostReply,
    /// A worker begins anew with nothing in memory.
    Crash,
    /// Main is set back by a snapshot.
    RollBack,
    /// All snapshots but the newest expire.
    Expiry,
    /// A worker is given other settings.
    Policy,
}

/// How far it is explored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) seconds: u8,
    pub(super) rows: u8,
    /// How many of the events.
    pub(super) events: u8,
    /// Which.
    pub(super) of: &'static [Event],
}

/// A rule that is known to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Planted {
    /// The last stable offset stands for the high watermark.
    StableOffset,
    /// The consumer's position stands for the end of the batch.
    ConsumerPosition,
    /// A partition counts once the table knows it, not once the broker names it.
    KnownPartitions,
    /// A batch that begins before the table's next offset is moved there.
    MovedBatch,
}

/// What one worker has in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Worker {
    setting: u8,
    session: Option<Session>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Session {
    revision: u64,
    /// Of each partition that is read: where the open batch begins, and the position.
    tracks: [Option<(u8, u8)>; PARTITIONS],
    answer: Option<Answer>,
    errand: Option<Errand>,
}

/// One state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    now: u8,
    rows_left: u8,
    events_left: u8,
    logs: Vec<Log>,
    /// In order, for workers of the same kind are the same.
    workers: [Worker; WORKERS],
    table: u32,
    /// A commit that was sent and never answered: its base, and the table that it would make.
    flying: Option<(u32, u32)>,
}

/// What may be done next, in words, and where it leads. A number names a worker or a partition, a time is in seconds.
type Steps = Vec<(String, World)>;

/// The protocol.
pub(super) struct Protocol {
    limits: Limits,
    planted: Option<Planted>,
    pub(super) tables: Tables,
    /// States from which it was shown that everything is published.
    pub(super) settled: usize,
}

impl Protocol {
    pub(super) fn new(limits: Limits, planted: Option<Planted>) -> Self {
        Self {
            limits,
            planted,
            tables: Tables::new(),
            settled: 0,
        }
    }

    /// One partition, no worker, nothing on the table.
    pub(super) fn first(&self) -> World {
        World {
            now: 0,
            rows_left: self.limits.rows,
            events_left: self.limits.events,
            logs: vec![Log::default()],
            workers: Default::default(),
            table: 0,
            flying: None,
        }
    }

    /// Whether an event may still happen.
    fn may(&self, from: &World, event: Event) -> bool {
        from.events_left > 0 && self.limits.of.contains(&event)
    }

    fn log_steps(&self, from: &World, steps: &mut Steps) {
        if from.now < self.limits.seconds {
            let mut next = from.clone();
            next.now += 1;
            steps.push(("a second passes".to_owned(), next));
        }
        for (partition, log) in from.logs.iter().enumerate() {
            let is_open = log.has_open_transaction();
            let times = log.event_times(from.now).into_iter();
            for time in times.filter(|_| from.rows_left > 0) {
                let mut next = from.clone();
                next.rows_left -= 1;
                if self.may(from, Event::Transaction) && !is_open {
                    let mut next = next.clone();
                    next.events_left -= 1;
                    next.logs[partition].append(Entry::Pending(time));
                    steps.push((
                        format!("a transaction opens on {partition} with a row of {time}"),
                        next,
                    ));
                }
                next.logs[partition].append(Entry::Row(time));
                steps.push((format!("a row of {time} on {partition}"), next));
            }
            for commit in [true, false].into_iter().filter(|_| is_open) {
                let mut next = from.clone();
                next.logs[partition].end_transaction(commit);
                steps.push((
                    format!("the transaction on {partition} ends, committed: {commit}"),
                    next,
                ));
            }
        }
        if self.may(from, Event::Partition) && from.logs.len() < PARTITIONS {
            let mut next = from.clone();
            next.events_left -= 1;
            next.logs.push(Log::default());
            steps.push(("a partition is added".to_owned(), next));
        }
    }

    fn table_steps(&mut self, from: &World, steps: &mut Steps) -> Result<(), String> {
        if let Some((base, made)) = from.flying {
            let mut next = from.clone();
            next.flying = None;
            if base == from.table {
                next.table = made;
            }
            steps.push((
                "the unanswered commit lands, or never will".to_owned(),
                next,
            ));
        }
        let may_be_cut = self.tables.snapshots(from.table) > 1 && self.tables.goes_on(from.table);
        for (event, cut) in [
            (Event::RollBack, Cut::RolledBack),
            (Event::Expiry, Cut::Expired),
        ] {
            if !(may_be_cut && self.may(from, event)) {
                continue;
            }
            let mut next = from.clone();
            next.events_left -= 1;
            next.table = self.tables.cut(from.table, cut)?;
            steps.push((format!("the table is {cut:?}"), next));
        }
        Ok(())
    }

    fn worker_steps(
        &mut self,
        from: &World,
        worker: usize,
        steps: &mut Steps,
    ) -> Result<(), String> {
        let mut anew = from.clone();
        anew.events_left = from.events_left.saturating_sub(1);
        let had_session = anew.workers[worker].session.take().is_some();
        if self.may(from, Event::Policy) {
            let mut next = anew.clone();
            next.workers[worker].setting ^= 1;
            steps.push((format!("{worker} gets another policy"), next));
        }
        if self.may(from, Event::Crash) && had_session {
            steps.push((format!("{worker} crashes"), anew));
        }
        let Some(session) = &from.workers[worker].session else {
            return self.starts(from, worker, steps);
        };
        for partition in 0..from.logs.len() {
            let untracked = session.tracks[partition].is_none();
            if untracked && let Some(next) = self.take(from, worker, partition) {
                steps.push((format!("{worker} takes {partition}"), next));
            }
        }
        let mut next = from.clone();
        if next.fetch(worker) {
            steps.push((format!("{worker} fetches"), next));
        }
        if session.answer.is_none() && session.errand.is_none() {
            let mut next = from.clone();
            self.ask(&mut next, worker);
            steps.push((format!("{worker} asks"), next));
        }
        // What is sealed is what was read: a step of others between the seal and the attempt could as well come before both.
        let mut sealed = from.clone();
        if session.errand.is_none() && !sealed.seal(worker) {
            return Ok(());
        }
        let mut next = sealed.clone();
        self.commit(&mut next, worker, false)?;
        steps.push((format!("{worker} commits"), next));
        let may_lose = self.may(from, Event::LostReply) && from.flying.is_none();
        if may_lose && self.commit(&mut sealed, worker, true)? {
            sealed.events_left -= 1;
            steps.push((format!("{worker} commits and hears nothing"), sealed));
        }
        Ok(())
    }

    fn starts(&mut self, from: &World, worker: usize, steps: &mut Steps) -> Result<(), String> {
        for mask in 1..1_usize << from.logs.len() {
            let chosen = (0..from.logs.len()).filter(|partition| mask >> partition & 1 == 1);
            let partitions: Vec<usize> = chosen.collect();
            let mut next = from.clone();
            if partitions.iter().any(|partition| from.is_read(*partition)) {
                if !self.may(from, Event::Move) {
                    continue;
                }
                next.events_left -= 1;
            }
            if self.start(&mut next, worker, &partitions)? {
                steps.push((format!("{worker} starts on {partitions:?}"), next));
            }
        }
        Ok(())
    }

    /// A session begins: the table is loaded, partitions that it does not know are anchored, and reading begins.
    fn start(
        &mut self,
        world: &mut World,
        worker: usize,
        partitions: &[usize],
    ) -> Result<bool, String> {
        let setting = world.workers[worker].setting;
        let attempt = Attempt {
            now: world.now,
            setting,
            revision: self.tables.revision(world.table, setting),
        };
        let known = |tables: &Tables, table: u32, partition: usize| {
            tables.next_offset(table, partition).is_some()
        };
        if !(0..world.logs.len()).all(|partition| known(&self.tables, world.table, partition)) {
            let errand = Errand {
                ranges: Default::default(),
                answer: Some(Answer {
                    at: world.now,
                    partitions: world.logs.len(),
                    ends: Default::default(),
                }),
                lost: false,
            };
            match self.tables.attempt(world.table, attempt, &errand)? {
                Outcome::Landed(next) => world.table = next,
                Outcome::Looked | Outcome::Done => {}
                Outcome::Dropped => return Ok(false),
            }
        }
        let mut tracks = [None; PARTITIONS];
        for partition in partitions {
            let next = self.tables.next_offset(world.table, *partition);
            tracks[*partition] = next.map(|next| (next, next));
        }
        world.workers[worker].session = Some(Session {
            revision: attempt.revision,
            tracks,
            answer: None,
            errand: None,
        });
        // A member of a group that has more workers than partitions asks and looks all the same.
        Ok(partitions.is_empty() || tracks.iter().any(Option::is_some))
    }

    /// A partition that the table knows is taken over, from another worker or not.
    fn take(&self, from: &World, worker: usize, partition: usize) -> Option<World> {
        let next_offset = self.tables.next_offset(from.table, partition)?;
        let mut next = from.clone();
        if from.is_read(partition) {
            if !self.may(from, Event::Move) {
                return None;
            }
            next.events_left -= 1;
        }
        let session = next.workers[worker].session.as_mut()?;
        session.tracks[partition] = Some((next_offset, next_offset));
        Some(next)
    }

    fn ask(&self, world: &mut World, worker: usize) {
        let named = match self.planted {
            Some(Planted::KnownPartitions) => (0..world.logs.len())
                .filter(|partition| self.tables.next_offset(world.table, *partition).is_some())
                .count(),
            _ => world.logs.len(),
        };
        let planted = self.planted;
        let World { logs, workers, .. } = world;
        let Some(session) = &mut workers[worker].session else {
            return;
        };
        let mut ends = [None; PARTITIONS];
        for ((end, track), log) in ends.iter_mut().zip(session.tracks).zip(&*logs) {
            let high_watermark = match planted {
                Some(Planted::StableOffset) => log.stable_end(),
                _ => log.end(),
            };
            *end = track.map(|(_, position)| (high_watermark, position));
        }
        session.answer = Some(Answer {
            at: world.now,
            partitions: named,
            ends,
        });
    }

    /// One attempt; `lost`: it is sent, and no answer comes. Whether anything was sent.
    fn commit(&mut self, world: &mut World, worker: usize, lost: bool) -> Result<bool, String> {
        let World {
            now,
            logs,
            workers,
            table,
            flying,
            ..
        } = world;
        let setting = workers[worker].setting;
        let Some(session) = &mut workers[worker].session else {
            return Ok(false);
        };
        let Some(mut errand) = session.errand.clone() else {
            return Ok(false);
        };
        self.plant(*now, logs, *table, session, &mut errand);
        let attempt = Attempt {
            now: *now,
            setting,
            revision: session.revision,
        };
        let outcome = self.tables.attempt(*table, attempt, &errand)?;
        if let Outcome::Landed(next) = outcome {
            for (range, log) in errand.ranges.iter().zip(&*logs) {
                let Some(range) = range else { continue };
                if range.rows != log.rows(range.start, range.end) {
                    return Err(format!("I5: {range:?} holds other rows than {log:?}"));
                }
            }
            if lost {
                *flying = Some((*table, next));
                session.errand = Some(Errand {
                    lost: true,
                    ..errand
                });
                return Ok(true);
            }
            *table = next;
        } else if lost {
            return Ok(false);
        }
        match outcome {
            Outcome::Landed(_) | Outcome::Done => {
                for (track, range) in session.tracks.iter_mut().zip(&errand.ranges) {
                    if let (Some((start, _)), Some(range)) = (track, range) {
                        *start = range.end.max(*start);
                    }
                }
                session.errand = None;
            }
            Outcome::Looked => session.errand = None,
            Outcome::Dropped => workers[worker].session = None,
        }
        Ok(true)
    }

    fn plant(&self, now: u8, logs: &[Log], table: u32, session: &Session, errand: &mut Errand) {
        for (partition, log) in logs.iter().enumerate() {
            let Some(range) = &mut errand.ranges[partition] else {
                continue;
            };
            match self.planted {
                Some(Planted::ConsumerPosition) => {
                    let reached = session.tracks[partition];
                    let caught_up = reached.is_some_and(|(_, position)| position >= log.end());
                    if let Some(answer) = errand.answer.as_mut().filter(|_| caught_up) {
                        answer.at = now;
                        answer.ends[partition] = Some((range.end, range.end));
                    }
                }
                Some(Planted::MovedBatch) => {
                    let next = self.tables.next_offset(table, partition);
                    range.start = next.unwrap_or(range.start).min(range.end);
                }
                _ => {}
            }
        }
    }

    /// Left alone, the workers publish everything: the cell that is open now, and all before it.
    fn settle(&mut self, from: &World) -> Result<(), String> {
        if !self.tables.goes_on(from.table) {
            return Ok(());
        }
        let goal = (from.now / CELL + 1) * CELL;
        let mut world = from.clone();
        world.flying = None;
        // One specification for all, once it has arrived.
        let setting = world.workers[WORKERS - 1].setting;
        for worker in &mut world.workers {
            if worker.setting != setting {
                worker.setting = setting;
                worker.session = None;
            }
        }
        for log in &mut world.logs {
            if log.has_open_transaction() {
                log.end_transaction(true);
            }
        }
        world.now = goal + DELAY;
        for _ in 0..ROUNDS {
            for worker in 0..WORKERS {
                self.work(&mut world, worker)?;
            }
            self.check(&world)?;
            if self.tables.claim(world.table) >= Some(goal.into()) {
                self.settled += 1;
                return Ok(());
            }
            world.now += 1;
        }
        Err(format!(
            "I2: {:?} is all that is published before {goal}: {world:?}",
            self.tables.claim(world.table)
        ))
    }

    /// What a worker does by itself in one interval.
    fn work(&mut self, world: &mut World, worker: usize) -> Result<(), String> {
        self.commit(world, worker, false)?;
        let free: Vec<usize> = (0..world.logs.len())
            .filter(|partition| !world.is_read(*partition))
            .collect();
        let is_new = world.workers[worker].session.is_none();
        if is_new && !self.start(world, worker, &free)? {
            return Ok(());
        }
        for partition in free {
            if let Some(taken) = self.take(world, worker, partition) {
                *world = taken;
            }
        }
        for _ in 0..2 {
            world.fetch(worker);
            if world.seal(worker) {
                self.commit(world, worker, false)?;
            }
            self.ask(world, worker);
        }
        Ok(())
    }
}

impl World {
    fn is_read(&self, partition: usize) -> bool {
        let sessions = self.workers.iter().filter_map(|one| one.session.as_ref());
        sessions
            .into_iter()
            .any(|session| session.tracks[partition].is_some())
    }

    /// Takes everything that a reader gets; whether there was anything.
    fn fetch(&mut self, worker: usize) -> bool {
        let Some(session) = &mut self.workers[worker].session else {
            return false;
        };
        let mut moved = false;
        for (track, log) in session.tracks.iter_mut().zip(&self.logs) {
            if let Some((_, position)) = track
                && *position < log.stable_end()
            {
                *position = log.stable_end();
                moved = true;
            }
        }
        moved
    }

    /// Seals what is read, with the answer that is at hand; whether there was anything to send.
    fn seal(&mut self, worker: usize) -> bool {
        let Some(session) = &mut self.workers[worker].session else {
            return false;
        };
        let mut ranges: [Option<Range>; PARTITIONS] = Default::default();
        for ((range, track), log) in ranges.iter_mut().zip(session.tracks).zip(&self.logs) {
            *range = track.map(|(start, end)| Range {
                start,
                end,
                rows: log.rows(start, end),
            });
        }
        let has_rows = ranges.iter().flatten().any(|range| !range.rows.is_empty());
        if session.errand.is_some() || !(has_rows || session.answer.is_some()) {
            return false;
        }
        for (start, position) in session.tracks.iter_mut().flatten().filter(|_| has_rows) {
            *start = *position;
        }
        session.errand = Some(Errand {
            ranges,
            answer: session.answer.take(),
            lost: false,
        });
        true
    }
}

impl Model for Protocol {
    type State = World;
    type Action = String;

    fn steps(&mut self, from: &World) -> Result<Steps, String> {
        let mut steps = Vec::new();
        self.log_steps(from, &mut steps);
        self.table_steps(from, &mut steps)?;
        for worker in 0..WORKERS {
            // Two that are the same do the same.
            if worker == 0 || from.workers[worker] != from.workers[worker - 1] {
                self.worker_steps(from, worker, &mut steps)?;
            }
        }
        for (_, next) in &mut steps {
            next.workers.sort();
        }
        // Whoever is stuck before is still stuck when nothing but time has passed.
        if from.now == self.limits.seconds {
            self.settle(from)?;
        }
        Ok(steps)
    }

    fn check(&mut self, state: &World) -> Result<(), String> {
        let Some(claim) = self.tables.claim(state.table) else {
            return Ok(());
        };
        let unread = state.logs.iter().enumerate();
        let unread = unread.filter_map(|(partition, log)| {
            log.least_from(self.tables.held(state.table, partition))
        });
        // What is still to come is at most the delay old.
        let to_come = i64::from(state.now) - i64::from(DELAY);
        let bound = unread.map(i64::from).fold(to_come, i64::min);
        if claim <= bound {
            return Ok(());
        }
        Err(format!(
            "I1: complete before {claim} is published, and rows from {bound} on may still come: {state:?}"
        ))
    }
}
