//! One run of a pipeline from opening its table to the first error or the stop.
//!
//! ```text
//! open: table ─▶ state ─▶ cluster and topics are the same? ─▶ first anchors ─▶ read from the table's offsets
//! turn: poll, decode ─▶ due? ask the cluster ─▶ answered? seal ─▶ commit beside the reading ─▶ note what became of it
//! ```
//!
//! The thread polls without waiting for anything else: questions and commits run on the runtime and are looked at once a turn.
//! At most one question and one errand are under way. While a batch is on its way, the next one fills; it is worth nothing
//! unless the one before arrives, so any failure of the way ends the session and both are read again.
//!
//! Rebalances are the exception: a partition is handed over only when what was read of it is on the table or dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::buffer::{Cadence, FILES_DUE};
use super::commit::{Errand, Outcome, Success, TableSide};
use super::identity::{self, Seen};
use super::ingest::{CHUNK, Ingest, Parts};
use super::pipeline::Context;
use super::question::{Answer, PATIENCE, Question, anchors, asked_partitions, known, partitions};
use super::{Error, open};
use crate::api::worker::{CommitProgress, EventTime, RunState};
use crate::cdc::Rows;
use crate::kafka::{
    self, DeadLetters, Event, Inquirer, Mode, Position, Source, StartFrom, TopicPartition,
};
use crate::lake::maintain::Maintainer;
use crate::lake::writer::{TableWriter, WriterSettings};
use crate::lake::{catalog, raw, table};
use crate::process::clock::{JUMP_TOLERANCE, JumpWatch};
use crate::watermark::{Contribution, Identity, PartitionNews, Policy, State, advance};

/// How long a poll waits for the first message, at most.
const POLL: Duration = Duration::from_millis(100);

/// How often it is worked out whether the rows at hand could close a cell.
const OUTLOOK_EVERY: Duration = Duration::from_secs(1);

/// How long reading may go on after an answer, to reach the ends that it names.
const CATCH_UP: Duration = Duration::from_secs(2);

/// How long what was read of a revoked partition may take to be committed: half of librdkafka's default rebalance time-out.
const HAND_OVER: Duration = Duration::from_secs(150);

/// An open pipeline.
pub(super) struct Session<'c> {
    context: &'c Context,
    side: Arc<TableSide>,
    state: State,
    inquirer: Arc<Inquirer>,
    source: Source,
    ingest: Ingest,
    cadence: Cadence,
    maintainer: Option<Arc<Mutex<Maintainer>>>,
    asking: Option<Asking>,
    answer: Option<(Answer, Duration)>,
    under_way: Option<UnderWay>,
    watch: JumpWatch,
    looked: Duration,
    outlooked: Duration,
    was_closable: bool,
    resting: bool,
}

struct Asking {
    task: JoinHandle<Result<Answer, kafka::Error>>,
    /// The wall clock jumped meanwhile: the answer's instants mean nothing.
    void: bool,
}

struct UnderWay {
    task: JoinHandle<Result<Outcome, Error>>,
    news: Vec<PartitionNews>,
    excluded: crate::watermark::Excluded,
    started: Duration,
}

impl<'c> Session<'c> {
    /// Opens table and source, and commits the anchors of partitions that the table does not know.
    ///
    /// # Errors
    /// Something is missing, or is not what it was.
    pub(super) fn open(context: &'c Context) -> Result<Self, Error> {
        let runtime = context.runtime.clone();
        let settings = open::kafka_settings(&context.spec, &context.worker);
        let inquirer = Arc::new(Inquirer::create(&settings)?);
        let opened = runtime.block_on(open_table(context, &inquirer))?;
        let (side, table, mut state) = (Arc::new(opened.side), opened.table, opened.state);
        state = settle_start(context, &side, &inquirer, state)?;
        let (schema, decoder) = open::decoder(&context.spec, &table)?;
        let dead_letters = context.spec.source.dead_letter.as_ref();
        let dead_letters = dead_letters
            .map(|topic| DeadLetters::create(&settings, topic))
            .transpose()?;
        let creates_only = matches!(
            context.spec.event_time,
            EventTime::Column {
                creates_only: true,
                ..
            }
        );
        let ingest = Ingest::new(Parts {
            decoder,
            rows: Rows::new(&schema, super::ingest::ROWS_A_FLUSH),
            writer: TableWriter::new(&table, WriterSettings::default(), runtime.clone())?,
            dead_letters,
            accumulators: context.accumulators.clone(),
            policy: side.policy.clone(),
            creates_only,
            budget: context.budget,
        });
        let mode = if context.spec.worker.replicas > 1 {
            Mode::Group
        } else {
            Mode::Assign
        };
        let source = Source::create(&settings, mode, known(&state).len())?;
        let seed = seed(&context.worker, &context.spec.uid);
        let mut cadence = Cadence::new(
            open::commit_interval(&context.spec),
            context.spec.worker.replicas,
            seed,
        );
        let now = context.clock.monotonic();
        cadence.start(now);
        let maintainer = open::maintain_settings(&context.spec)
            .map(|settings| Arc::new(Mutex::new(Maintainer::new(settings, Some(opened.raw)))));
        let mut session = Self {
            context,
            side,
            state,
            inquirer,
            source,
            ingest,
            cadence,
            maintainer,
            asking: None,
            answer: None,
            under_way: None,
            watch: JumpWatch::new(JUMP_TOLERANCE),
            looked: now,
            outlooked: now,
            was_closable: false,
            resting: false,
        };
        session.start_reading(&table)?;
        Ok(session)
    }

    fn start_reading(&mut self, table: &iceberg::table::Table) -> Result<(), Error> {
        let context = self.context;
        match self.source.mode() {
            Mode::Assign => {
                let all: Vec<TopicPartition> = known(&self.state).into_iter().collect();
                self.take_over(&all)?;
            }
            Mode::Group => {
                let topics: Vec<String> = self.state.topics.keys().cloned().collect();
                self.source.subscribe(&topics)?;
            }
        }
        context.status.enter(RunState::Running);
        self.show();
        tracing::info!(
            pipeline = %context.spec.id(), table = %context.spec.sink.table, partitions = known(&self.state).len(),
            policy_revision = self.side.policy.revision, "reading",
        );
        let (side, table) = (Arc::clone(&self.side), table.clone());
        context
            .runtime
            .spawn(async move { side.tell_processors(&table).await });
        Ok(())
    }

    /// Reads and commits until an error or the stop. `committed` tells whether anything reached the table.
    ///
    /// # Errors
    /// Why the session cannot go on. What was read and not committed is given up.
    pub(super) fn run(mut self, committed: &mut bool) -> Result<(), Error> {
        let ended = self.turns(committed);
        if ended.is_err() {
            self.ingest.give_up();
        }
        for (at, _) in self.ingest.delivered() {
            self.context.metrics.forget(&at);
        }
        ended
    }

    fn turns(&mut self, committed: &mut bool) -> Result<(), Error> {
        loop {
            if self.context.stop.is_cancelled() {
                return self.leave(committed);
            }
            self.rest_if_far_ahead()?;
            self.read(committed)?;
            self.turn(committed)?;
        }
    }

    /// Takes what the source has.
    fn read(&mut self, committed: &mut bool) -> Result<(), Error> {
        let wait = POLL.min(self.context.clock.real(self.cadence.interval()) / 4);
        let chunk = self.source.poll_chunk(CHUNK, wait);
        let now_us = self.context.clock.now_us();
        let mut poison = None;
        for message in chunk.messages() {
            if let Err(error) = self.ingest.take(&message, now_us) {
                poison = Some(error);
                break;
            }
        }
        let events = chunk.into_events();
        if let Some(error) = poison {
            // What came before it is good: it is committed, and the table then stands exactly at the record.
            self.commit_rest(committed, PATIENCE)?;
            return Err(error);
        }
        for event in events {
            self.take_event(event, committed)?;
        }
        self.ingest.flush_if_full(now_us)
    }

    fn take_event(&mut self, event: Event, committed: &mut bool) -> Result<(), Error> {
        match event {
            Event::EndOfPartition { slot, offset, .. } => {
                self.ingest.end_of_partition(slot, offset)
            }
            Event::Assigned(partitions) => self.take_over(&partitions)?,
            Event::Revoked { partitions, lost } => self.hand_over(&partitions, lost, committed)?,
            Event::GroupOffsetsCommitted(Err(code)) => {
                tracing::debug!(%code, "group offsets are not committed")
            }
            Event::GroupOffsetsCommitted(Ok(())) => {}
            Event::Failed(error) => match error.next() {
                // librdkafka goes on trying; the partitions it cannot read hold the claim.
                kafka::Next::Later if !matches!(error, kafka::Error::Fatal { .. }) => {
                    self.fail(&Error::Kafka(error))
                }
                _ => return Err(self.explain(error)),
            },
        }
        Ok(())
    }

    /// A lost position has a cause that the broker can tell.
    fn explain(&self, error: kafka::Error) -> Error {
        if let kafka::Error::PositionLost {
            topic,
            partition,
            offset,
            ..
        } = &error
        {
            let at = TopicPartition::new(Arc::clone(topic), *partition);
            if let Ok(explained) = self.inquirer.explain(&at, *offset, PATIENCE) {
                return explained.into();
            }
        }
        error.into()
    }

    /// Where a batch has been on its way for long and files pile up, reading rests; the group still hears of us.
    fn rest_if_far_ahead(&mut self) -> Result<(), Error> {
        let far = self.under_way.is_some() && self.ingest.waiting().closed_files >= FILES_DUE;
        if far != self.resting {
            let own: Vec<TopicPartition> = self
                .ingest
                .delivered()
                .into_iter()
                .map(|(at, _)| at)
                .collect();
            if far {
                self.source.pause(&own)?
            } else {
                self.source.resume(&own)?
            }
            self.resting = far;
        }
        Ok(())
    }

    /// Looks at what is under way, and begins what is due.
    fn turn(&mut self, committed: &mut bool) -> Result<(), Error> {
        let now = self.context.clock.monotonic();
        if let Some(jump_us) = self.watch.look(&self.context.clock) {
            tracing::warn!(pipeline = %self.context.spec.id(), jump_ms = jump_us / 1000, "the wall clock jumped; questions are asked again");
            self.answer = None;
            if let Some(asking) = &mut self.asking {
                asking.void = true;
            }
        }
        self.hear(now)?;
        if self
            .under_way
            .as_ref()
            .is_some_and(|under_way| under_way.task.is_finished())
        {
            self.arrive(committed)?;
        }
        if self.under_way.is_some() || self.asking.is_some() {
            return Ok(());
        }
        if self.answer.is_some() {
            if self.has_caught_up(now) {
                return self.send(now);
            }
        } else if self.is_due(now) {
            self.ask();
        }
        Ok(())
    }

    fn is_due(&mut self, now: Duration) -> bool {
        let now_us = self.context.clock.now_us();
        let open_end_us = self.state.open_cell_end_us();
        let closable = open_end_us
            .is_none_or(|end_us| now_us - self.side.policy.bounds.max_delay_us >= end_us);
        let just_closable = closable && !self.was_closable;
        self.was_closable = closable;
        if just_closable || self.cadence.look_due(now, self.looked) {
            return true;
        }
        let waiting = self.ingest.waiting();
        let outlook_due =
            now.saturating_sub(self.outlooked) >= OUTLOOK_EVERY.min(self.cadence.interval() / 4);
        let could_close =
            closable && waiting.rows > 0 && outlook_due && self.could_close(now, now_us);
        self.cadence.due(now, waiting, could_close)
    }

    /// Whether the rows at hand would raise the claim, if the broker still named the same partitions.
    fn could_close(&mut self, now: Duration, now_us: i64) -> bool {
        self.outlooked = now;
        let asked = self.state.asked.clone().map(|mut asked| {
            asked.at_us = now_us;
            asked
        });
        let outlook = Errand {
            news: self.ingest.outlook(),
            asked,
            ..Errand::default()
        };
        let contribution: Contribution = self.side.contribution(&outlook, Uuid::nil());
        let next = advance(&self.state, &self.side.policy, &contribution);
        next.is_ok_and(|next| {
            next.claim.finalized_before_us > self.state.published.finalized_before_us
        })
    }

    fn ask(&mut self) {
        let question = Question {
            inquirer: Arc::clone(&self.inquirer),
            topics: open::topics(&self.context.spec),
            clock: self.context.clock.clone(),
            delivered: self.ingest.delivered(),
            known: known(&self.state),
            start_from: StartFrom::Earliest,
        };
        let task = self.context.runtime.spawn_blocking(move || question.ask());
        self.asking = Some(Asking { task, void: false });
    }

    /// Takes the answer of the cluster, if it is there.
    fn hear(&mut self, now: Duration) -> Result<(), Error> {
        let Some(asking) = self.asking.take_if(|asking| asking.task.is_finished()) else {
            return Ok(());
        };
        let mut answer = match self.context.runtime.block_on(asking.task) {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                self.fail(&Error::Kafka(error));
                Answer::none()
            }
            Err(_) => return Err(Error::Stopping),
        };
        if asking.void {
            answer.asked = None;
            answer.ends.clear();
        }
        let seen = Seen {
            cluster_id: None,
            topics: &answer.topics,
        };
        identity::check(&self.state, &seen, &self.context.spec)?;
        for (at, error) in &answer.silent {
            tracing::warn!(pipeline = %self.context.spec.id(), topic = %at.topic, partition = at.partition, %error, "the end of a partition is not known; it holds the claim");
        }
        self.show_partitions(&answer);
        self.answer = Some((answer, now));
        Ok(())
    }

    /// Whether everything below the ends of the answer is read, or enough time was given to it.
    fn has_caught_up(&self, now: Duration) -> bool {
        let Some((answer, heard)) = &self.answer else {
            return true;
        };
        let most = CATCH_UP.min(self.context.clock.real(self.cadence.interval()) / 2);
        if self.context.clock.real(now.saturating_sub(*heard)) >= most || !self.was_closable {
            return true;
        }
        let delivered = self.ingest.delivered();
        delivered.iter().all(|(at, next)| {
            answer
                .ends
                .get(at)
                .is_none_or(|end| *next >= end.high_watermark)
        })
    }

    /// Sends what is read, or only the answers, on its way to the table.
    fn send(&mut self, now: Duration) -> Result<(), Error> {
        let answer = self.answer.take().map(|(answer, _)| answer);
        let errand = self.errand(answer)?;
        self.looked = now;
        let (side, abandon, status) = (
            Arc::clone(&self.side),
            self.context.abandon.clone(),
            self.context.status.clone(),
        );
        let clock = self.context.clock.clone();
        let news = errand.news.clone();
        let excluded = errand
            .batch
            .as_ref()
            .map(|batch| batch.times.excluded)
            .unwrap_or_default();
        let task = self.context.runtime.spawn(async move {
            let told = |error: &crate::lake::Error| {
                let wrapped = super::of_lake(error);
                status.fail(wrapped, error.to_string(), clock.now_us());
            };
            side.settle(&errand, &abandon, &told).await
        });
        self.under_way = Some(UnderWay {
            task,
            news,
            excluded,
            started: now,
        });
        Ok(())
    }

    fn errand(&mut self, answer: Option<Answer>) -> Result<Errand, Error> {
        let now_us = self.context.clock.now_us();
        let mut errand = Errand::default();
        if self.ingest.waiting().rows > 0 {
            let batch = self.ingest.seal(now_us)?;
            errand.news.clone_from(&batch.news);
            errand.batch = Some(batch);
        } else {
            errand.news = self.ingest.outlook();
        }
        self.context.metrics.held(self.ingest.held_bytes());
        let counted = self.ingest.take_counted();
        for name in &counted.new_unknown_fields {
            tracing::warn!(pipeline = %self.context.spec.id(), field = name, "the table has no column for a field; its values are left out");
        }
        self.context.metrics.read(&counted);
        self.context
            .status
            .write(|progress| progress.dead_letters += counted.dead_letters);
        if let Some(answer) = answer {
            for news in &mut errand.news {
                let at = TopicPartition::new(news.topic.as_str(), news.partition);
                news.asked_end = answer.ends.get(&at).copied();
            }
            errand.asked = answer.asked;
            errand.anchors = answer.unknown;
        }
        Ok(errand)
    }

    /// Takes what became of the errand under way; waits for it if need be.
    fn arrive(&mut self, committed: &mut bool) -> Result<(), Error> {
        let Some(under_way) = self.under_way.take() else {
            return Ok(());
        };
        let outcome = self
            .context
            .runtime
            .block_on(under_way.task)
            .map_err(|_| Error::Stopping)??;
        let now = self.context.clock.monotonic();
        self.context.status.heal();
        match outcome {
            Outcome::Looked(state) => self.state = *state,
            Outcome::Committed(success) => {
                *committed = true;
                self.ingest.advance_starts(&under_way.news);
                self.cadence.committed(now, success.attempt);
                let elapsed = self
                    .context
                    .clock
                    .real(now.saturating_sub(under_way.started));
                self.note(*success, &under_way.excluded, elapsed)?;
            }
        }
        if self.source.mode() == Mode::Assign {
            let reading: BTreeSet<TopicPartition> = self
                .ingest
                .delivered()
                .into_iter()
                .map(|(at, _)| at)
                .collect();
            let new: Vec<TopicPartition> =
                known(&self.state).difference(&reading).cloned().collect();
            if !new.is_empty() {
                self.take_over(&new)?;
            }
        }
        self.show();
        Ok(())
    }

    fn note(
        &mut self,
        success: Success,
        excluded: &crate::watermark::Excluded,
        elapsed: Duration,
    ) -> Result<(), Error> {
        let context = self.context;
        let before = self.state.published.finalized_before_us;
        let now_us = context.clock.now_us();
        let late = success
            .advanced
            .as_ref()
            .map_or(0, |advanced| advanced.late.rows());
        context.metrics.put(success.rows, excluded, late);
        let commit = CommitProgress {
            commit_id: success.commit_id,
            snapshot_id: success.snapshot_id,
            at_us: now_us,
            rows: success.rows,
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        };
        context.status.committed(commit, excluded);
        self.state = success.state;
        let claim = self.state.published.finalized_before_us;
        tracing::info!(
            pipeline = %context.spec.id(), table = %context.spec.sink.table, commit_id = %success.commit_id,
            snapshot_id = success.snapshot_id, rows = success.rows, elapsed_ms = elapsed.as_millis(), "committed",
        );
        if let Some(claim_us) = claim.filter(|_| claim > before) {
            let evidence = super::progress::evidence(&self.state);
            tracing::info!(
                pipeline = %context.spec.id(), table = %context.spec.sink.table,
                finalized_before = crate::watermark::contract::iso(claim_us), evidence, "claim advanced",
            );
        }
        let offsets: Vec<(TopicPartition, i64)> = self
            .ingest
            .delivered()
            .into_iter()
            .filter_map(|(at, _)| {
                Some((
                    at.clone(),
                    self.state.partition(&at.topic, at.partition)?.next_offset,
                ))
            })
            .collect();
        self.source.commit_group_offsets(&offsets)?;
        self.after_commit(success.table);
        Ok(())
    }

    /// Processors and maintenance, beside the reading.
    fn after_commit(&self, table: iceberg::table::Table) {
        let side = Arc::clone(&self.side);
        let maintainer = self.maintainer.clone().filter(|_| self.owns_maintenance());
        let now_ms = self.context.clock.now_us() / 1000;
        self.context.runtime.spawn(async move {
            side.tell_processors(&table).await;
            let Some(maintainer) = maintainer else { return };
            // One at a time; what one run leaves, the next one finds.
            let Ok(mut maintainer) = maintainer.try_lock() else {
                return;
            };
            match maintainer.run(&*side.catalog, &table, now_ms).await {
                Ok(report) => tracing::debug!(
                    expired = report.expired,
                    deleted = report.deleted,
                    "maintained"
                ),
                Err(error) => {
                    tracing::debug!(%error, "maintenance comes again with the next commit")
                }
            }
        });
    }

    /// One worker maintains the table: the one that reads the first partition.
    fn owns_maintenance(&self) -> bool {
        let first = known(&self.state).into_iter().next();
        first.is_some_and(|first| self.ingest.delivered().iter().any(|(at, _)| *at == first))
    }

    /// Begins to read partitions where the table stands.
    fn take_over(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        let mut state = self.context.runtime.block_on(self.side.load())?.state;
        let missing = |state: &State| {
            partitions
                .iter()
                .any(|at| state.partition(&at.topic, at.partition).is_none())
        };
        if missing(&state) {
            state = settle_start(self.context, &self.side, &self.inquirer, state)?;
        }
        let starts: Vec<(TopicPartition, Position)> = partitions
            .iter()
            .filter_map(|at| {
                let known = state.partition(&at.topic, at.partition)?;
                let position = Position {
                    next_offset: known.next_offset,
                    leader_epoch: known.leader_epoch,
                };
                Some((at.clone(), position))
            })
            .collect();
        if starts.len() < partitions.len() {
            return Err(kafka::Error::Unreachable {
                bootstrap_servers: self.context.spec.source.bootstrap_servers.clone(),
                question: "the partitions that the group assigned",
                waited: PATIENCE,
            }
            .into());
        }
        self.source.assign(&starts)?;
        for (at, position) in &starts {
            if let Some(slot) = self.source.slot(at) {
                self.ingest.begin(slot, at, *position, &state);
            }
        }
        self.state = state;
        self.show();
        Ok(())
    }

    /// Gives partitions up: what was read of them is committed first, unless they are lost already.
    fn hand_over(
        &mut self,
        partitions: &[TopicPartition],
        lost: bool,
        committed: &mut bool,
    ) -> Result<(), Error> {
        if lost {
            // Others may have committed for them already; the fence decides about what is under way.
            self.arrive(committed)?;
            self.ingest.give_up();
        } else {
            self.commit_rest(committed, HAND_OVER)?;
        }
        self.answer = None;
        self.asking = None;
        self.source.release(partitions)?;
        for at in partitions {
            self.ingest.end(at);
            self.context.metrics.forget(at);
        }
        if lost {
            self.rewind()?;
        }
        self.show();
        Ok(())
    }

    /// Reads what is left again from where the table stands.
    fn rewind(&mut self) -> Result<(), Error> {
        let state = self.context.runtime.block_on(self.side.load())?.state;
        let mut positions = Vec::new();
        for (at, _) in self.ingest.delivered() {
            let Some(known) = state.partition(&at.topic, at.partition) else {
                continue;
            };
            let position = Position {
                next_offset: known.next_offset,
                leader_epoch: known.leader_epoch,
            };
            positions.push((at, position));
        }
        self.source.seek(&positions)?;
        for (at, position) in &positions {
            if let Some(slot) = self.source.slot(at) {
                self.ingest.begin(slot, at, *position, &state);
            }
        }
        self.state = state;
        Ok(())
    }

    /// Waits for what is under way, then commits everything that is read.
    fn commit_rest(&mut self, committed: &mut bool, patience: Duration) -> Result<(), Error> {
        self.asking = None;
        let limit = CancellationToken::new();
        let guard = {
            let (limit, abandon) = (limit.clone(), self.context.abandon.clone());
            self.context.runtime.spawn(async move {
                tokio::select! {
                    () = tokio::time::sleep(patience) => {}
                    () = abandon.cancelled() => {}
                }
                limit.cancel();
            })
        };
        let ended = self
            .arrive(committed)
            .and_then(|()| self.commit_now(committed, &limit));
        guard.abort();
        ended
    }

    fn commit_now(&mut self, committed: &mut bool, limit: &CancellationToken) -> Result<(), Error> {
        if self.ingest.waiting().rows == 0 {
            return Ok(());
        }
        let answer = self.answer.take().map(|(answer, _)| answer);
        let errand = self.errand(answer)?;
        let started = self.context.clock.monotonic();
        let excluded = errand
            .batch
            .as_ref()
            .map(|batch| batch.times.excluded)
            .unwrap_or_default();
        let outcome = self
            .context
            .runtime
            .block_on(self.side.settle(&errand, limit, &|_| {}))?;
        if let Outcome::Committed(success) = outcome {
            *committed = true;
            let now = self.context.clock.monotonic();
            self.cadence.committed(now, success.attempt);
            let elapsed = self.context.clock.real(now.saturating_sub(started));
            self.note(*success, &excluded, elapsed)?;
        }
        self.show();
        Ok(())
    }

    /// The stop: what is read is committed, then the group is left.
    fn leave(&mut self, committed: &mut bool) -> Result<(), Error> {
        let patience = super::worker::GRACE;
        self.commit_rest(committed, patience)?;
        tracing::info!(pipeline = %self.context.spec.id(), "stopped; everything read is committed");
        Ok(())
    }

    fn fail(&self, error: &Error) {
        tracing::warn!(pipeline = %self.context.spec.id(), reason = error.reason().label(), %error, "it is tried again");
        self.context.status.fail(
            error.reason(),
            error.to_string(),
            self.context.clock.now_us(),
        );
    }

    fn show(&self) {
        let now_us = self.context.clock.now_us();
        self.context
            .status
            .claimed(&self.state, &self.side.policy, now_us);
        self.context
            .metrics
            .claim(self.state.published.finalized_before_us, now_us);
    }

    fn show_partitions(&self, answer: &Answer) {
        let ends: BTreeMap<TopicPartition, i64> = answer
            .ends
            .iter()
            .map(|(at, end)| (at.clone(), end.high_watermark))
            .collect();
        let own = self.ingest.delivered();
        self.context.status.partitions(&self.state, &ends, &own);
        for (at, _) in &own {
            let next = self
                .state
                .partition(&at.topic, at.partition)
                .map(|known| known.next_offset);
            if let (Some(next), Some(end)) = (next, ends.get(at)) {
                self.context.metrics.lag(at, (end - next).max(0));
            }
        }
    }
}

struct Opened {
    side: TableSide,
    table: iceberg::table::Table,
    state: State,
    raw: Arc<dyn raw::RawCommitter>,
}

/// Opens the table and reads its state.
async fn open_table(context: &Context, inquirer: &Arc<Inquirer>) -> Result<Opened, Error> {
    let spec = &context.spec;
    let settings = open::catalog_settings(&spec.sink.catalog)?;
    let catalog = catalog::open(&settings).await?;
    let raw = raw::open_raw(&settings).await?;
    let ident = open::table_ident(spec)?;
    let opened = table::open_or_create(&*catalog, &ident, &open::table_spec(spec)).await?;
    if opened.created {
        tracing::info!(table = %ident, "table created");
    }
    for column in &opened.added {
        tracing::info!(table = %ident, column, "column added");
    }
    let asked = Arc::clone(inquirer);
    let cluster_id = tokio::task::spawn_blocking(move || asked.cluster_id(PATIENCE))
        .await
        .map_err(|_| Error::Stopping)??;
    let mut side = TableSide {
        catalog,
        ident,
        identity: Identity {
            writer: spec.writer_id.clone(),
            cluster_id,
            installation: context.installation.clone(),
            table_uuid: opened.table.metadata().uuid(),
            table_ref: "main".to_owned(),
        },
        subscription: open::subscription(spec),
        accept: spec.sink.accept.clone(),
        accept_cluster: spec.source.accept.cluster_id.clone(),
        policy: open::policy(spec)?,
        processors: context.processors.clone(),
        worker: context.worker.clone(),
        clock: context.clock.clone(),
        metrics: context.metrics.clone(),
        handled: std::sync::Mutex::default(),
    };
    let loaded = side.load().await?;
    let table_policy: Option<&Policy> = (!loaded.state.is_new()).then_some(&loaded.state.policy);
    side.policy.revision = side.policy.revision_on(table_policy);
    Ok(Opened {
        side,
        table: opened.table,
        state: loaded.state,
        raw,
    })
}

/// Compares the cluster with the table, and commits the anchors of partitions that the table does not know. Waits for both.
fn settle_start(
    context: &Context,
    side: &TableSide,
    inquirer: &Inquirer,
    state: State,
) -> Result<State, Error> {
    let spec = &context.spec;
    let at_us = context.clock.now_us();
    let topics = inquirer.topics(&open::topics(spec), PATIENCE)?;
    let seen = Seen {
        cluster_id: Some(&side.identity.cluster_id),
        topics: &topics,
    };
    identity::check(&state, &seen, spec)?;
    let known = known(&state);
    let jumps = identity::jumps(&state, inquirer, spec, &context.clock)?;
    let unknown: Vec<TopicPartition> = partitions(&topics)
        .into_iter()
        .filter(|at| !known.contains(at))
        .collect();
    if unknown.is_empty() && jumps.is_empty() && !state.is_new() {
        return Ok(state);
    }
    let start_from = if state.is_new() {
        open::start_from(spec)
    } else {
        StartFrom::Earliest
    };
    let errand = Errand {
        anchors: anchors(inquirer, &topics, unknown, start_from, &context.clock)?,
        jumps,
        asked: Some(asked_partitions(&topics, at_us)),
        ..Errand::default()
    };
    let outcome = context
        .runtime
        .block_on(side.settle(&errand, &context.stop, &|error| {
            context.status.fail(
                super::of_lake(error),
                error.to_string(),
                context.clock.now_us(),
            );
        }))?;
    match outcome {
        Outcome::Committed(success) => Ok(success.state),
        Outcome::Looked(_) => Ok(context.runtime.block_on(side.load())?.state),
    }
}

/// Spreads workers over the interval: the same worker has the same place.
fn seed(worker: &str, uid: &str) -> u64 {
    use sha2::Digest as _;
    let digest = sha2::Sha256::new()
        .chain_update(worker)
        .chain_update(uid)
        .finalize();
    u64::from_be_bytes(digest[..8].try_into().expect("the digest has 32 bytes"))
}
