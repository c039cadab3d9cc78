//! Whether cluster, topics and positions are still what they were when the table was last written.
//!
//! In: the table's state, what the cluster says, what the specification accepts. Out: nothing, the first mismatch with its
//! reason, or, where the specification says so (`source.onGap: Continue`, `source.accept`), the jumps that go on elsewhere.
//!
//! Never is a difference taken for a fresh start.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;
use uuid::Uuid;

use super::Error;
use super::pipeline::Context;
use super::question::PATIENCE;
use crate::api::worker::{self, OnGap};
use crate::api::{EffectiveSpec, Reason};
use crate::kafka::{self, Inquirer, TopicInfo, TopicPartition};
use crate::watermark::{Jump, JumpKind, State};

/// The topics that a specification names.
#[derive(Debug)]
pub(crate) enum Names {
    List(BTreeSet<String>),
    /// `None`: no regular expression, which is refused before anything is read.
    Pattern(Option<Regex>),
}

impl Names {
    /// Of a specification.
    #[must_use]
    pub(super) fn of(spec: &EffectiveSpec) -> Self {
        match &spec.source.topics {
            worker::Topics::List(list) => Self::List(list.iter().cloned().collect()),
            worker::Topics::Pattern(pattern) => {
                Self::Pattern(Regex::new(&format!("^(?:{pattern})$")).ok())
            }
        }
    }

    /// Whether the specification names a topic.
    #[must_use]
    pub(super) fn contains(&self, topic: &str) -> bool {
        match self {
            Self::List(list) => list.contains(topic),
            Self::Pattern(regex) => regex.as_ref().is_some_and(|regex| regex.is_match(topic)),
        }
    }
}

/// What the cluster says of itself.
pub(super) struct Seen<'a> {
    /// Its id, when it was asked.
    pub cluster_id: Option<&'a str>,
    /// The pipeline's topics.
    pub topics: &'a [TopicInfo],
    /// Ids of recreated topics that reading may go on with; none while it is under way: it has to begin anew first.
    pub accept: &'a [Uuid],
    /// Partitions that are gone, and are gone on without.
    pub gone: &'a [TopicPartition],
}

/// Compares cluster and topics with the table.
///
/// # Errors
/// The first that differs and is not accepted.
pub(super) fn check(state: &State, seen: &Seen<'_>, context: &Context) -> Result<(), Error> {
    if state.is_new() {
        return Ok(());
    }
    if let Some(cluster_id) = seen
        .cluster_id
        .filter(|id| **id != state.identity.cluster_id)
    {
        let table = &state.identity.cluster_id;
        return Err(Error::refused(
            Reason::ClusterChanged,
            format!(
                "the table counts offsets of cluster \"{table}\", {} is cluster \"{cluster_id}\"",
                context.spec.source.bootstrap_servers
            ),
        ));
    }
    check_incarnations(&incarnations(state), seen.topics, seen.accept)?;
    let missing = missing(state, seen.topics, &context.names);
    match missing.iter().find(|at| !seen.gone.contains(at)) {
        None => Ok(()),
        Some(at) => Err(Error::refused(
            Reason::PartitionGone,
            format!(
                "topic \"{}\", partition {}: the table has rows of it, the broker no longer names it",
                at.topic, at.partition
            ),
        )),
    }
}

/// The partitions that the table has and the broker does not name, although the specification names their topics.
pub(crate) fn missing(state: &State, topics: &[TopicInfo], names: &Names) -> Vec<TopicPartition> {
    if topics.is_empty() {
        return Vec::new();
    }
    let there = |topic: &str, partition: i32| {
        let mut of_topic = topics.iter().filter(|known| known.name == topic);
        of_topic.any(|known| known.partitions.contains(&partition))
    };
    let all = state
        .partitions()
        .map(|(topic, partition, _)| (topic, partition));
    all.filter(|(topic, partition)| names.contains(topic) && !there(topic, *partition))
        .map(|(topic, partition)| TopicPartition::new(topic, partition))
        .collect()
}

/// The ids of the topics whose offsets the table counts, where they have one.
pub(crate) fn incarnations(state: &State) -> BTreeMap<String, Uuid> {
    let ids = state
        .topics
        .iter()
        .filter_map(|(name, topic)| Some((name.clone(), topic.id?)));
    ids.collect()
}

/// Compares the ids of topics alone: the same name with another id is another topic.
///
/// # Errors
/// The first that differs and is not accepted.
pub(crate) fn check_incarnations(
    known: &BTreeMap<String, Uuid>,
    topics: &[TopicInfo],
    accept: &[Uuid],
) -> Result<(), Error> {
    for topic in topics {
        if let (Some(table), Some(broker)) = (known.get(&topic.name), topic.id)
            && *table != broker
            && !accept.contains(&broker)
        {
            return Err(recreated(&topic.name, *table, broker));
        }
    }
    Ok(())
}

fn recreated(name: &str, table: Uuid, broker: Uuid) -> Error {
    Error::refused(
        Reason::TopicRecreated,
        format!(
            "topic \"{name}\": the table counts offsets of topic id {table}, the topic of this name now has id {broker}"
        ),
    )
}

/// Compares the table's offsets with the logs, and says where reading goes on instead if the specification allows it.
///
/// # Errors
/// A position is lost and gaps stop the pipeline, or a log does not answer.
pub(super) fn jumps(
    state: &State,
    inquirer: &Inquirer,
    seen: &Seen<'_>,
    context: &Context,
) -> Result<Vec<Jump>, Error> {
    let spec = &context.spec;
    let mut next: BTreeMap<TopicPartition, i64> = state
        .partitions()
        .filter(|(topic, ..)| context.names.contains(topic))
        .map(|(topic, partition, known)| (TopicPartition::new(topic, partition), known.next_offset))
        .collect();
    let mut jumps = Vec::new();
    for at in seen.gone {
        let Some(offset) = next.remove(at) else {
            continue;
        };
        tracing::warn!(pipeline = %spec.id(), topic = %at.topic, partition = at.partition, from = offset, "a partition is gone; what was not read of it becomes a gap in the claim");
        jumps.push(Jump {
            topic: at.topic.to_string(),
            partition: at.partition,
            kind: JumpKind::Gone,
            from: offset,
            offset,
            at_us: context.clock.now_us(),
        });
    }
    if next.is_empty() {
        return Ok(jumps);
    }
    let all: Vec<TopicPartition> = next.keys().cloned().collect();
    let recreated = recreated_topics(state, seen.topics, spec);
    let truncated = context.memory.take_truncations();
    let starts = inquirer.log_starts(&all, PATIENCE)?;
    let mut ends = inquirer.high_watermarks(&all, PATIENCE)?;
    let at_us = context.clock.now_us();
    for (at, start) in starts {
        let next = next[&at];
        let (start, end) = match (start, ends.remove(&at)) {
            (Ok(start), Some(Ok(end))) => (start, end),
            // A partition that nobody answers for must not keep the others from being read; a position that is really lost
            // shows when it is read.
            (Err(error), _) | (_, Some(Err(error))) => {
                tracing::warn!(pipeline = %spec.id(), topic = %at.topic, partition = at.partition, %error, "a log does not answer");
                continue;
            }
            (Ok(_), None) => continue,
        };
        let recreated = recreated.get(&*at.topic).copied();
        let truncated = truncated.get(&at) == Some(&next);
        let Some((kind, lost)) = jump_of(&at, next, start..end, recreated, truncated) else {
            continue;
        };
        if let Some(lost) = lost.filter(|_| spec.source.on_gap == OnGap::Stop) {
            return Err(lost.into());
        }
        let offset = if kind == JumpKind::Truncated {
            next.min(end)
        } else {
            start
        };
        tracing::warn!(pipeline = %spec.id(), topic = %at.topic, partition = at.partition, from = next, offset, "reading goes on behind a gap, which becomes part of the claim");
        jumps.push(Jump {
            topic: at.topic.to_string(),
            partition: at.partition,
            kind,
            from: next,
            offset,
            at_us,
        });
    }
    Ok(jumps)
}

/// Why reading cannot go on at `next` in a log of these offsets, and what is lost there; `None`: it can.
pub(crate) fn jump_of(
    at: &TopicPartition,
    next: i64,
    log: std::ops::Range<i64>,
    recreated: Option<Uuid>,
    truncated: bool,
) -> Option<(JumpKind, Option<kafka::Error>)> {
    let (topic, partition, offset) = (at.topic.clone(), at.partition, next);
    if recreated.is_some() {
        return Some((
            JumpKind::Recreated {
                topic_id: recreated,
            },
            None,
        ));
    }
    if next < log.start {
        let log_start = log.start;
        let lost = kafka::Error::LogStartMoved {
            topic,
            partition,
            offset,
            log_start,
        };
        return Some((JumpKind::Forward, Some(lost)));
    }
    if next > log.end || truncated {
        let log_end = log.end;
        let lost = kafka::Error::LogTruncated {
            topic,
            partition,
            offset,
            log_end,
        };
        return Some((JumpKind::Truncated, Some(lost)));
    }
    None
}

/// Topics whose new id the specification accepts.
fn recreated_topics<'t>(
    state: &State,
    topics: &'t [TopicInfo],
    spec: &EffectiveSpec,
) -> BTreeMap<&'t str, Uuid> {
    let changed = topics.iter().filter_map(|topic| {
        let (table, broker) = (state.topics.get(&topic.name)?.id?, topic.id?);
        (table != broker && spec.source.accept.topic_ids.contains(&broker))
            .then_some((topic.name.as_str(), broker))
    });
    changed.collect()
}
