//! One round of questions to the cluster: which partitions there are, where their logs end, where unknown ones begin.
//!
//! In go the positions that the consumer had delivered when the question left, and the clock before it left; out comes one
//! value that a commit can use. A topic in error is no answer at all; a partition whose leader does not answer is left out,
//! and what is left out holds the claim.
//!
//! It waits for brokers and runs off the polling thread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::heartbeat::SourceHeartbeat;
use crate::kafka::{Error, Inquirer, StartFrom, TopicInfo, TopicPartition, Topics};
use crate::process::clock::{Clock, JUMP_TOLERANCE, JumpWatch};
use crate::watermark::{Anchor, AskedEnd, AskedPartitions, Origin, State};

/// How long each question may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// What the cluster said.
#[derive(Debug)]
pub(crate) struct Answer {
    /// All partitions, and the clock before the question left; `None` where the wall clock jumped meanwhile.
    pub asked: Option<AskedPartitions>,
    /// The topics with their ids.
    pub topics: Vec<TopicInfo>,
    /// The ends of the partitions that were asked for.
    pub ends: BTreeMap<TopicPartition, AskedEnd>,
    /// Partitions that the table does not know, with their first offset.
    pub unknown: Vec<Anchor>,
    /// Partitions that were asked for and have no answer.
    pub silent: Vec<(TopicPartition, Error)>,
    /// Why the source's heartbeat could not be read.
    pub unheard: Option<Error>,
}

impl Answer {
    /// Nothing was heard.
    #[must_use]
    pub(crate) fn none() -> Self {
        Self {
            asked: None,
            topics: Vec::new(),
            ends: BTreeMap::new(),
            unknown: Vec::new(),
            silent: Vec::new(),
            unheard: None,
        }
    }
}

/// What to ask.
pub(super) struct Question {
    /// The client to ask with.
    pub inquirer: Arc<Inquirer>,
    /// The heartbeat of the source, where it has one.
    pub heartbeat: Option<Arc<Mutex<SourceHeartbeat>>>,
    /// The topics of the pipeline.
    pub topics: Topics,
    /// The clock.
    pub clock: Clock,
    /// This worker's partitions, and the position delivered of each.
    pub delivered: Vec<(TopicPartition, i64)>,
    /// The partitions that the table knows.
    pub known: BTreeSet<TopicPartition>,
    /// Where unknown partitions begin: as the specification says at the first commit, at their first offset later.
    pub start_from: StartFrom,
}

impl Question {
    /// Asks, and waits for the answers.
    ///
    /// # Errors
    /// The partitions of some topic could not be found out.
    pub(super) fn ask(self) -> Result<Answer, Error> {
        let mut watch = JumpWatch::new(JUMP_TOLERANCE * self.clock.factor());
        watch.look(&self.clock);
        // Read before anything is asked for: what was sent before it lies below the ends, and it is no later than the answers.
        let heartbeat = self.heartbeat.as_ref().map_or(Ok(None), |source| {
            let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
            source.newest_us()
        });
        let (heartbeat_us, unheard) = match heartbeat {
            Ok(heartbeat_us) => (heartbeat_us, None),
            Err(error) => (None, Some(error)),
        };
        let at_us = self.clock.now_us();
        let topics = self.inquirer.topics(&self.topics, PATIENCE)?;
        let all = partitions(&topics);
        let own: Vec<TopicPartition> = self.delivered.iter().map(|(at, _)| at.clone()).collect();
        // Asked anew: the clock of the ends may be later than the one of the partitions, never earlier than their question.
        let ends_at_us = self.clock.now_us();
        let answers = if own.is_empty() {
            BTreeMap::new()
        } else {
            self.inquirer.high_watermarks(&own, PATIENCE)?
        };
        let delivered: BTreeMap<TopicPartition, i64> = self.delivered.into_iter().collect();
        let mut ends = BTreeMap::new();
        let mut silent = Vec::new();
        for (at, answer) in answers {
            match answer {
                Ok(high_watermark) => {
                    let delivered = delivered.get(&at).copied().unwrap_or(0);
                    let end = AskedEnd {
                        at_us: ends_at_us,
                        heartbeat_us,
                        high_watermark,
                        delivered,
                    };
                    ends.insert(at, end);
                }
                Err(error) => silent.push((at, error)),
            }
        }
        let unknown: Vec<TopicPartition> = all
            .iter()
            .filter(|at| !self.known.contains(*at))
            .cloned()
            .collect();
        let unknown = anchors(
            &self.inquirer,
            &topics,
            &unknown,
            self.start_from,
            &self.clock,
        )?;
        let jumped = watch.look(&self.clock).is_some();
        if jumped {
            ends.clear();
        }
        let asked = (!jumped).then(|| asked_partitions(&topics, at_us));
        Ok(Answer {
            asked,
            topics,
            ends,
            unknown,
            silent,
            unheard,
        })
    }
}

/// The partitions as a claim ranges over them.
#[must_use]
pub(crate) fn asked_partitions(topics: &[TopicInfo], at_us: i64) -> AskedPartitions {
    let topics = topics
        .iter()
        .map(|topic| {
            (
                topic.name.clone(),
                topic.partitions.iter().copied().collect(),
            )
        })
        .collect();
    AskedPartitions { at_us, topics }
}

/// All partitions of these topics.
#[must_use]
pub(crate) fn partitions(topics: &[TopicInfo]) -> Vec<TopicPartition> {
    let of_topic = |topic: &TopicInfo| {
        let name: Arc<str> = topic.name.as_str().into();
        let partitions = topic.partitions.clone().into_iter();
        partitions.map(move |partition| TopicPartition::new(Arc::clone(&name), partition))
    };
    topics.iter().flat_map(of_topic).collect()
}

/// The partitions that a state knows.
#[must_use]
pub(crate) fn known(state: &State) -> BTreeSet<TopicPartition> {
    state
        .partitions()
        .map(|(topic, partition, _)| TopicPartition::new(topic, partition))
        .collect()
}

/// Where reading begins in partitions that the table does not know.
///
/// # Errors
/// One of them has no answer: an anchor is never guessed.
pub(super) fn anchors(
    inquirer: &Inquirer,
    topics: &[TopicInfo],
    unknown: &[TopicPartition],
    start_from: StartFrom,
    clock: &Clock,
) -> Result<Vec<Anchor>, Error> {
    if unknown.is_empty() {
        return Ok(Vec::new());
    }
    let ids: BTreeMap<&str, Option<uuid::Uuid>> = topics
        .iter()
        .map(|topic| (topic.name.as_str(), topic.id))
        .collect();
    let offsets = inquirer.start_offsets(unknown, start_from, PATIENCE)?;
    let at_us = clock.now_us();
    let anchor = |(at, offset): (TopicPartition, Result<i64, Error>)| {
        Ok(Anchor {
            topic_id: ids.get(&*at.topic).copied().flatten(),
            topic: at.topic.to_string(),
            partition: at.partition,
            offset: offset?,
            origin: Origin::New,
            at_us,
        })
    };
    offsets.into_iter().map(anchor).collect()
}
