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

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::buffer::{Cadence, FILES_DUE, Turn};
use super::commit::{Outcome, TableSide};
use super::errand::Errand;
use super::heartbeat::SourceHeartbeat;
use super::identity::{self, Seen};
use super::ingest::{CHUNK, Ingest};
use super::pipeline::{Context, SECRET_LOOK, chain};
use super::progress::{Proof, Trouble};
use super::question::{Answer, PATIENCE, Question, known};
use super::{Error, open};
use crate::kafka::{self, Event, Inquirer, Source, StartFrom, TopicPartition, Topics};
use crate::lake::maintain::Maintainer;
use crate::process::clock::JumpWatch;
use crate::process::secret::State;
use crate::watermark::{self, Contribution, Excluded, PartitionNews, would_raise};

use opening::settle_start;

mod errands;
mod handover;
mod opening;

/// How long a poll waits for the first message, at most.
const POLL: Duration = Duration::from_millis(100);

/// How long reading may go on after an answer, to reach the ends that it names.
const CATCH_UP: Duration = Duration::from_secs(2);

/// An open pipeline.
pub(super) struct Session<'c> {
    context: &'c Context,
    side: Arc<TableSide>,
    state: watermark::State,
    inquirer: Arc<Inquirer>,
    heartbeat: Option<Arc<std::sync::Mutex<SourceHeartbeat>>>,
    source: Source,
    ingest: Ingest,
    cadence: Cadence,
    maintainer: Option<Arc<Mutex<Maintainer>>>,
    asking: Option<Asking>,
    answer: Option<(Answer, Duration)>,
    under_way: Option<UnderWay>,
    watch: JumpWatch,
    /// The ends of this worker's partitions, as last heard.
    ends: BTreeMap<TopicPartition, i64>,
    /// The topics that the group was joined for.
    subscribed: Vec<String>,
    resting: bool,
    /// A record was met that ends the session.
    poisoned: bool,
    /// Whether anything of this session is on the table.
    committed: bool,
    /// Cancelled: errands under way are given up after their present attempt.
    limit: CancellationToken,
    /// What the secrets were before they were read, and when that was last compared.
    secrets: (State, Duration),
}

struct Asking {
    task: JoinHandle<Result<Answer, kafka::Error>>,
    /// The wall clock jumped meanwhile: the answer's instants mean nothing.
    void: bool,
}

struct UnderWay {
    task: JoinHandle<Result<Outcome, Error>>,
    news: Vec<PartitionNews>,
    excluded: Excluded,
    started: Duration,
    /// Cancelled: it is given up.
    limit: CancellationToken,
}

impl Session<'_> {
    /// Reads and commits until an error or the stop; tells whether anything reached the table.
    ///
    /// The error says why the session cannot go on. What was read and not committed is given up, and nothing is under way any
    /// more.
    pub(super) fn run(mut self) -> (bool, Result<(), Error>) {
        let ended = self.turns();
        self.limit.cancel();
        if let Some(under_way) = self.under_way.take() {
            // Whatever becomes of it, the next session finds it on the table.
            drop(self.context.runtime.block_on(under_way.task));
        }
        if ended.is_err() {
            self.ingest.give_up();
        }
        self.forget_ends();
        (self.committed, ended)
    }

    fn turns(&mut self) -> Result<(), Error> {
        loop {
            self.context.beat();
            if self.context.stop.is_cancelled() {
                return self.leave();
            }
            if self.has_new_secret() {
                self.commit_rest(PATIENCE)?;
                return Err(Error::SecretChanged);
            }
            self.rest_if_far_ahead()?;
            self.read()?;
            self.turn()?;
        }
    }

    /// Whether a secret is another than when the session began. Looked at every few seconds.
    fn has_new_secret(&mut self) -> bool {
        let (state, looked) = self.secrets;
        let now = self.context.clock.monotonic();
        if self.context.clock.real(now.saturating_sub(looked)) < SECRET_LOOK {
            return false;
        }
        self.secrets.1 = now;
        self.context.session_secrets() != state
    }

    /// Takes what the source has.
    fn read(&mut self) -> Result<(), Error> {
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
            // What came before a bad record is good: it is committed, and the table then stands exactly at the record. After
            // any other failure, as of the dead-letter topic, the batch is worth nothing.
            self.poisoned = true;
            if matches!(error, Error::Undecodable { .. })
                && let Err(rest) = self.commit_rest(PATIENCE)
            {
                tracing::warn!(pipeline = %self.context.spec.id(), error = %rest, "what came before a bad record is read again");
            }
            return Err(error);
        }
        for event in events {
            self.take_event(event)?;
        }
        self.ingest.flush_if_full(now_us)
    }

    fn take_event(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::EndOfPartition { slot, offset, .. } => {
                self.ingest.end_of_partition(slot, offset);
            }
            Event::Assigned(partitions) => self.take_over(&partitions)?,
            Event::Revoked { partitions, lost } => self.hand_over(&partitions, lost)?,
            Event::GroupOffsetsCommitted(Err(code)) => {
                tracing::debug!(%code, "group offsets are not committed");
            }
            Event::GroupOffsetsCommitted(Ok(())) => {}
            Event::Failed(error) => match error.next() {
                // librdkafka goes on trying; the partitions it cannot read hold the claim.
                kafka::Next::Later if !matches!(error, kafka::Error::Fatal { .. }) => {
                    self.fail(&error);
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
            // A topic made anew has other offsets as well, and the id tells it from a log that was cut.
            let names = Topics::List(vec![topic.to_string()]);
            let known = identity::incarnations(&self.state);
            if let Ok(topics) = self.inquirer.topics(&names, PATIENCE)
                && let Err(recreated) = identity::check_incarnations(&known, &topics, &[])
            {
                return recreated;
            }
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
                self.source.pause(&own)?;
            } else {
                self.source.resume(&own)?;
            }
            self.resting = far;
        }
        Ok(())
    }

    /// Looks at what is under way, and begins what is due.
    fn turn(&mut self) -> Result<(), Error> {
        let now = self.context.clock.monotonic();
        if self.context.status.is_kept() {
            self.forget_ends();
        }
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
            self.arrive(Duration::ZERO)?;
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
        let waiting = self.ingest.waiting();
        match self.cadence.turn(now, waiting, closable) {
            Turn::Rest => false,
            Turn::Ask => true,
            Turn::Outlook => {
                let could_close = self.could_close(now_us);
                self.cadence.due(now, waiting, could_close)
            }
        }
    }

    /// Whether the rows at hand would raise the claim, if the broker still named the same partitions.
    fn could_close(&self, now_us: i64) -> bool {
        let asked = self.state.asked.clone().map(|mut asked| {
            asked.at_us = now_us;
            asked
        });
        let outlook = Errand {
            news: self.ingest.outlook(),
            asked,
            ..Errand::default()
        };
        let contribution: Contribution = outlook.contribution(&self.side.bearer(Uuid::nil()));
        would_raise(&self.state, &self.side.policy, &contribution)
    }

    fn ask(&mut self) {
        let question = Question {
            inquirer: Arc::clone(&self.inquirer),
            heartbeat: self.heartbeat.clone(),
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
            Ok(Ok(mut answer)) => {
                match answer.unheard.take() {
                    None => self.context.status.heal(Proof::Answered),
                    Some(error) => self.fail(&error),
                }
                answer
            }
            Ok(Err(error)) => {
                self.fail(&error);
                Answer::none()
            }
            Err(error) => return Err(Error::crashed(&error)),
        };
        if asking.void {
            answer.asked = None;
            answer.ends.clear();
        }
        let seen = Seen {
            cluster_id: None,
            topics: &answer.topics,
            accept: &[],
            gone: &[],
        };
        identity::check(&self.state, &seen, self.context)?;
        for (at, error) in &answer.silent {
            tracing::warn!(pipeline = %self.context.spec.id(), topic = %at.topic, partition = at.partition, %error, "the end of a partition is not known; it holds the claim");
        }
        let heartbeats = answer.ends.values().filter_map(|end| end.heartbeat_us);
        if let Some(heartbeat_us) = heartbeats.max() {
            self.context.metrics.heartbeat(heartbeat_us);
        }
        self.hear_ends(&answer);
        self.take_back(&mut answer)?;
        self.answer = Some((answer, now));
        Ok(())
    }

    /// Topics that left the table and are named again go on where they stood, if they still can: looked at as at the opening.
    fn take_back(&mut self, answer: &mut Answer) -> Result<(), Error> {
        let left = self.state.left.topics();
        let named = answer.unknown.len();
        answer
            .unknown
            .retain(|anchor| !left.contains_key(&anchor.topic));
        if answer.unknown.len() == named {
            return Ok(());
        }
        let loaded = self.load_further()?;
        if loaded.is_for_opening() {
            return Err(self.side.rolled_back());
        }
        self.state = settle_start(self.context, &self.side, &self.inquirer, loaded)?;
        self.read_further()
    }

    /// Whether everything below the ends of the answer is read, or enough time was given to it.
    fn has_caught_up(&self, now: Duration) -> bool {
        let Some((answer, heard)) = &self.answer else {
            return true;
        };
        let most = CATCH_UP.min(self.context.clock.real(self.cadence.interval()) / 2);
        if self.context.clock.real(now.saturating_sub(*heard)) >= most
            || !self.cadence.is_closable()
        {
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

    /// Something outside is missing, and it is tried again by itself: said once.
    fn fail(&self, error: &impl Trouble) {
        if self.context.status.fail(error, self.context.clock.now_us()) {
            tracing::warn!(pipeline = %self.context.spec.id(), reason = error.reason().label(), error = chain(error), "it is tried again");
        }
    }

    fn show(&self) {
        self.context.status.claimed(&self.state, &self.side.policy);
        self.context
            .metrics
            .claim(self.state.published.finalized_before_us);
        self.show_partitions();
    }

    /// Takes in how far the partitions reach. Of one whose leader is silent the last answer tells nothing any more.
    fn hear_ends(&mut self, answer: &Answer) {
        self.forget_ends();
        let heard = answer.ends.iter();
        self.ends = heard
            .map(|(at, end)| (at.clone(), end.high_watermark))
            .collect();
        self.show_partitions();
    }

    /// What was heard of the partitions' ends is no longer what is true of them.
    fn forget_ends(&mut self) {
        for at in std::mem::take(&mut self.ends).into_keys() {
            self.context.metrics.forget(&at);
        }
    }

    fn show_partitions(&self) {
        let own = self.ingest.delivered();
        self.context
            .status
            .partitions(&self.state, &self.ends, &own);
        for (at, _) in &own {
            let known = self.state.partition(&at.topic, at.partition);
            if let (Some(known), Some(end)) = (known, self.ends.get(at)) {
                let lag = (end - known.next_offset).max(0);
                self.context.metrics.lag(at, lag);
            }
        }
    }
}
