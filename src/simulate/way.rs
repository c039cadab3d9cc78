//! The way of an errand onto the table, in steps: load and derive, then send; and what is noted of it.
//!
//! Between the two anybody may commit. What becomes of the sending is the catalog's: it takes effect or not, and its answer
//! arrives or not.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use uuid::Uuid;

use super::broker::LogId;
use super::content::{Committed, Move, Range};
use super::oracle::{Breach, Found, breach};
use super::plan::Fate;
use super::start::Stood;
use super::tally::Seen;
use super::worker::{Ready, UnderWay};
use super::world::{InFlight, World};
use crate::sink::errand::Bearer;
use crate::sink::fence::Verdict;
use crate::sink::finalize::{Plan, publish};
use crate::watermark::{
    CompleteFrom, EmptyCommit, HeldBy, JumpKind, Misfit, Opening, Order, Origin, State, Term,
    advance, should_commit_empty,
};

/// How an attempt to commit goes on.
enum Attempted {
    /// Later, with the same files.
    On,
    /// It is on the table, or nothing needed to be.
    Done(Box<State>),
    /// The batch is lost: the session begins anew.
    Over,
}

impl World {
    /// One step of what is under way: to load and derive, or to send.
    pub(super) fn step(&mut self, worker: usize) -> Found {
        let Some(session) = &mut self.workers[worker].session else {
            return Ok(());
        };
        let Some(mut under_way) = session.under_way.take() else {
            return Ok(());
        };
        let attempted = match under_way.ready.take() {
            None => self.derive(worker, &mut under_way),
            Some(ready) => self.commit(&mut under_way, ready)?,
        };
        let now = self.monotonic();
        match attempted {
            Attempted::Over => self.end_session(worker),
            Attempted::On => {
                if let Some(session) = &mut self.workers[worker].session {
                    session.under_way = Some(under_way);
                }
            }
            Attempted::Done(state) => {
                let session = self.workers[worker].session.as_mut().expect("seen above");
                if state.commit_id == under_way.commit_id || under_way.lost_answer {
                    session.tracks.advance_starts(&under_way.errand.news);
                    session.cadence.committed(now, Duration::from_millis(200));
                }
                session.state = *state;
                self.assign();
                self.take_over(worker);
            }
        }
        Ok(())
    }

    /// Loads the table, and derives what would be committed on it.
    fn derive(&mut self, worker: usize, under_way: &mut UnderWay) -> Attempted {
        let Some(stood) = self.stand(worker) else {
            return Attempted::Over;
        };
        let reopens = stood.opening.as_ref().is_some_and(Opening::reopens);
        let errand = &under_way.errand;
        if !errand.is_for(stood.opening) || self.is_gone(&stood, errand.derived_from) {
            // What was found belongs to another history.
            return Attempted::Over;
        }
        let (loaded, state) = (stood.loaded, stood.state);
        if self.table.leads_to(under_way.commit_id) {
            return Attempted::Done(Box::new(state));
        }
        match self.rules.judge(errand, &state, under_way.lost_answer) {
            Verdict::Go => {}
            Verdict::Done => return Attempted::Done(Box::new(state)),
            Verdict::Fenced(_) => {
                self.note.see(Seen::Fenced);
                return Attempted::Over;
            }
        }
        let now_us = self.clock_us(worker);
        let pipeline = self.workers[worker].pipeline;
        let subscription = self.subscription(pipeline);
        let own = &self.workers[worker];
        let bearer = Bearer {
            commit_id: under_way.commit_id,
            worker: &own.name,
            subscription: &subscription,
            policy: &own.policy,
            now_us,
        };
        let contribution = errand.contribution_to(&state, reopens, &bearer);
        let data = errand.batch.is_some();
        let Some(mut contribution) = contribution else {
            return Attempted::Done(Box::new(state));
        };
        let moves = !errand.anchors.is_empty() || !errand.jumps.is_empty();
        let settles = moves || !errand.retired.is_empty() || errand.opening.is_some();
        if !data && !settles && !self.rules.may_commit_empty(&state) {
            return Attempted::Done(Box::new(state));
        }
        if !data && let Some(why) = should_commit_empty(&state, &own.policy, &contribution) {
            self.note.see(worth(why));
        }
        let session = own.session.as_ref();
        let delivered = session.map_or_else(Vec::new, |session| session.tracks.delivered());
        self.rules.contribution(&mut contribution, &delivered);
        let advanced = match advance(&state, &own.policy, &contribution) {
            Ok(advanced) => advanced,
            Err(Misfit::Anchored { .. } | Misfit::JumpedAlready { .. } | Misfit::Left { .. }) => {
                return Attempted::Done(Box::new(state));
            }
            Err(_) => return Attempted::Over,
        };
        let advanced = self.rules.advanced(&contribution, advanced);
        let mut plan = Plan::default();
        publish(advanced, &contribution, &mut plan);
        under_way.ready = Some(Ready {
            pipeline,
            base_id: loaded.main_id,
            plan,
            contribution,
            logs: Rc::clone(&under_way.logs),
            read: Rc::clone(&under_way.read),
        });
        Attempted::On
    }

    /// Whether another worker has taken up a roll-back behind what was found.
    pub(super) fn is_gone(&self, stood: &Stood, derived_from: Option<Uuid>) -> bool {
        let is_left = |id: Uuid| !stood.loaded.broken || self.table.oldest() < Some(id);
        let known = derived_from.filter(|id| !id.is_nil() && *id != stood.state.commit_id);
        known.is_some_and(|id| is_left(id) && !self.table.leads_to(id))
    }

    fn commit(&mut self, under_way: &mut UnderWay, ready: Ready) -> Result<Attempted, Breach> {
        match self.fates.pop_front() {
            Some(Fate::Outage) => {
                self.note.see(Seen::Outage);
                return Ok(Attempted::On);
            }
            Some(Fate::LostUnanswered) => {
                self.note.see(Seen::AnswerLostNotApplied);
                under_way.lost_answer = true;
                return Ok(Attempted::On);
            }
            Some(Fate::AppliedUnanswered) => {
                if self.land(&ready, &under_way.files)? {
                    self.note.see(Seen::AnswerLostApplied);
                }
                under_way.lost_answer = true;
                return Ok(Attempted::On);
            }
            None => {}
        }
        if !self.land(&ready, &under_way.files)? {
            self.note.see(Seen::Conflict);
            return Ok(Attempted::On);
        }
        let advanced = ready.plan.advanced.expect("planned");
        Ok(Attempted::Done(Box::new(advanced.state)))
    }

    /// A commit reaches the catalog; tells whether it took effect.
    pub(super) fn land(&mut self, ready: &Ready, files: &[(LogId, i64)]) -> Result<bool, Breach> {
        let parent_id = self.table.main_id;
        let told = self.is_told_of(ready.pipeline);
        let Some(snapshot_id) = self.table.commit(ready.base_id, &ready.plan) else {
            return Ok(false);
        };
        self.note_commit(ready);
        let news = &ready.contribution;
        let moves = self.moves(ready, parent_id)?;
        // Where rows were passed over, or positions forgotten, one that is sent again may come for the first time.
        self.replays_certain &= moves.iter().all(|step| step.offset == 0);
        let ranges = ranges(ready)?;
        let summary = Rc::clone(&self.table.snapshots[&snapshot_id].summary);
        let late = self.oracle.late;
        let own = &self.pipelines[ready.pipeline];
        let topics = own.topics.iter().chain(&own.left);
        let topics = topics.map(|topic| self.broker.topics[*topic].name.to_string());
        let topics: BTreeSet<String> = topics.collect();
        self.oracle.commit(
            &Committed {
                snapshot_id,
                parent_id,
                summary: &summary,
                properties: &self.table.properties,
                moves,
                retired: &news.retired,
                forgotten: topics.iter().filter(|_| !told).cloned().collect(),
                topics,
                drains: match &news.order {
                    Some(Order::Drain) => Some(true),
                    Some(Order::Undrain) => Some(false),
                    _ => None,
                },
                retracted: match &news.order {
                    Some(Order::Retract(stretch)) => Some((stretch.from_us, stretch.before_us)),
                    _ => None,
                },
                backfill: self.settings.backfill,
                ranges,
                files,
                cells_changed: self.note.seen.contains(&Seen::CellsChanged),
                replays_certain: self.replays_certain,
            },
            &self.broker,
        )?;
        if self.oracle.late > late {
            self.note.see(Seen::RowLate);
        }
        self.judge_reader()?;
        self.judge_edge()?;
        Ok(true)
    }

    /// Where a commit lets reading begin, or go on elsewhere.
    fn moves(&mut self, ready: &Ready, parent_id: Option<i64>) -> Result<Vec<Move>, Breach> {
        let news = &ready.contribution;
        let log = |topic: &str, partition: i32| {
            let found = ready.logs.get(&(topic.to_owned(), partition)).copied();
            found.ok_or_else(|| breach("I5", format!("{topic}/{partition} is not there")))
        };
        let mut moves = Vec::new();
        for anchor in &news.anchors {
            let now = log(&anchor.topic, anchor.partition)?;
            let name = (anchor.topic.clone(), anchor.partition);
            // Offsets that are kept of a topic that nobody names are those of the log that it was, whatever became of it.
            let away = !self.names(ready.pipeline, &anchor.topic);
            let counted = self.oracle.held(parent_id, &name).map(|(log, _)| log);
            let counted = counted.filter(|log| self.broker.same_below(*log, now).is_some());
            let meant = anchor.topic_id;
            let meant = meant.and_then(|id| self.broker.of_incarnation(now, id));
            moves.push(Move {
                name,
                log: counted.filter(|_| away).or(meant).unwrap_or(now),
                offset: anchor.offset,
                back: matches!(anchor.origin, Origin::Back { .. }),
            });
        }
        for jump in &news.jumps {
            moves.push(Move {
                name: (jump.topic.clone(), jump.partition),
                log: log(&jump.topic, jump.partition)?,
                offset: jump.offset,
                back: false,
            });
            if jump.kind == JumpKind::Truncated && jump.offset < jump.from {
                self.note.see(Seen::WentBack);
            }
        }
        Ok(moves)
    }

    pub(super) fn note_commit(&mut self, ready: &Ready) {
        let Some(advanced) = &ready.plan.advanced else {
            return;
        };
        self.note.commits += 1;
        let state = &advanced.state;
        match &advanced.hold.by {
            HeldBy::Partition { term: None, .. } => self.note.see(Seen::HeldUnknown),
            HeldBy::Partition { .. } => self.note.see(Seen::HeldPartition),
            HeldBy::Asked => self.note.see(Seen::HeldAsked),
            HeldBy::Writer { .. } => self.note.see(Seen::HeldWriter),
            HeldBy::Policy { .. } => self.note.see(Seen::HeldPolicy),
            _ => {}
        }
        for term in &state.published.evidence {
            self.note.see(match term {
                Term::Minimum => Seen::TermMinimum,
                Term::CaughtUp => Seen::TermCaughtUp,
                Term::Percentile => Seen::TermPercentile,
                Term::Heartbeat => Seen::TermHeartbeat,
                Term::Resolved => Seen::TermResolved,
                Term::Clock => Seen::TermClock,
            });
        }
        if !state.peers.is_empty() {
            self.note.see(Seen::WriterJoined);
        }
        if advanced.claim.reopened.is_some() {
            self.note.see(Seen::Reopened);
        }
        if !advanced.claim.gaps.is_empty() {
            self.note.see(Seen::Gap);
        }
        if matches!(advanced.claim.complete_from, CompleteFrom::From(_)) {
            self.note.see(Seen::CompleteFrom);
        }
        let claim_us = state.claimed_us();
        if let Some(claim_us) = claim_us
            && claim_us > self.highest_us.unwrap_or(i64::MIN)
        {
            self.note.raises += 1;
            let cell_us = self.settings.cell_ms * 1000;
            let cells = self
                .highest_us
                .map_or(1, |before| (claim_us - before) / cell_us);
            self.note.cells += cells.unsigned_abs();
            self.highest_us = Some(claim_us);
        }
    }

    /// What a dying worker had sent may still arrive.
    pub(super) fn leave_in_flight(&mut self, worker: usize) {
        let session = self.workers[worker].session.take();
        let under_way = session.and_then(|session| session.under_way);
        if let Some(under_way) = under_way
            && let Some(ready) = under_way.ready
        {
            self.in_flight.push(InFlight {
                ready,
                files: under_way.files,
            });
        }
    }

    pub(super) fn arrive_late(&mut self) -> Found {
        for flight in std::mem::take(&mut self.in_flight) {
            if self.land(&flight.ready, &flight.files)? {
                self.note.see(Seen::CommitAfterDeath);
            }
        }
        Ok(())
    }
}

/// What a commit without rows is worth, as the tally has it.
fn worth(why: EmptyCommit) -> Seen {
    match why {
        EmptyCommit::Raises => Seen::EmptyRaises,
        EmptyCommit::Releases => Seen::EmptyReleases,
        EmptyCommit::Moved => Seen::EmptyMoved,
        _ => Seen::EmptyAnchors,
    }
}

/// The offsets that a commit brings, with the logs that they were read from.
fn ranges(ready: &Ready) -> Result<Vec<Range>, Breach> {
    let with_offsets = ready
        .contribution
        .partitions
        .iter()
        .filter(|own| own.end_offset > own.start_offset);
    let ranges = with_offsets.map(|own| {
        let name = (own.topic.clone(), own.partition);
        let log = ready.read.get(&name).copied();
        let log = log.ok_or_else(|| breach("I5", format!("{name:?} was not read")))?;
        Ok(Range {
            name,
            log,
            start: own.start_offset,
            end: own.end_offset,
        })
    });
    ranges.collect()
}
