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
use crate::watermark::{Anchor, Before, Jump, JumpKind, Origin, State};

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
        Some(at) => Err(Error::PartitionGone { at: at.clone() }),
    }
}

/// Compares topics that the table does not have now with what it remembers of those that have left. `subscription`: the topics as the
/// specification names them.
///
/// # Errors
/// One has been made anew since, or may have been read before, and is not accepted.
pub(crate) fn check_left(
    state: &State,
    topics: &[TopicInfo],
    subscription: &str,
    accept: &[Uuid],
) -> Result<(), Error> {
    let joins = !state.is_new() && state.subscription != subscription;
    for topic in topics {
        if state.topics.contains_key(&topic.name) || topic.id.is_some_and(|id| accept.contains(&id))
        {
            continue;
        }
        match (state.left.topics().get(&topic.name), topic.id) {
            (Some(left), Some(broker)) if !left.is(Some(broker)) && !left.gone => {
                return Err(recreated(&topic.name, left.id.unwrap_or_default(), broker));
            }
            (None, id) if joins && state.left.forgotten() => {
                return Err(forgotten(&topic.name, id));
            }
            _ => {}
        }
    }
    Ok(())
}

fn forgotten(name: &str, id: Option<Uuid>) -> Error {
    let way_on = match id {
        Some(id) => format!(
            "if none of its rows are there, source.accept.topicIds: [{id}] reads it from its first record"
        ),
        None => {
            "and its broker tells no topic id: read it by a pipeline with another table".to_owned()
        }
    };
    Error::refused(
        Reason::TopicForgotten,
        format!(
            "topic \"{name}\" may have been read before, because more topics have left than the table remembers; {way_on}"
        ),
    )
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
            before: Before::of(state, &at.topic, at.partition),
            offset,
            at_us: context.clock.now_us(),
        });
    }
    let recreated = recreated_topics(state, seen.topics, spec);
    let truncated = context.memory.take_truncations();
    for log in logs(next.keys(), inquirer, context)? {
        let next = next[&log.at];
        let recreated = recreated.get(&*log.at.topic).copied();
        let truncated = truncated.get(&log.at) == Some(&next);
        let Some((kind, offset)) = log.moved(next, recreated, truncated, context)? else {
            continue;
        };
        jumps.push(Jump {
            topic: log.at.topic.to_string(),
            partition: log.at.partition,
            kind,
            from: next,
            before: Before::of(state, &log.at.topic, log.at.partition),
            offset,
            at_us: log.at_us,
        });
    }
    Ok(jumps)
}

/// Where reading goes on in partitions that have left the table and are back.
///
/// # Errors
/// A position is lost and gaps stop the pipeline, or a log does not answer.
pub(super) fn returns(
    state: &State,
    back: &[TopicPartition],
    topics: &[TopicInfo],
    inquirer: &Inquirer,
    context: &Context,
) -> Result<Vec<Anchor>, Error> {
    let mut anchors = Vec::new();
    for log in logs(back.iter(), inquirer, context)? {
        let id = topic_id(topics, &log.at.topic);
        let Some(from) = state.left.next_offset(&log.at.topic, id, log.at.partition) else {
            continue;
        };
        let moved = log.moved(from, None, false, context)?;
        anchors.push(Anchor {
            topic: log.at.topic.to_string(),
            topic_id: id,
            partition: log.at.partition,
            offset: moved.map_or(from, |(_, offset)| offset),
            origin: Origin::Back { from },
            at_us: log.at_us,
        });
    }
    Ok(anchors)
}

/// The id of a topic, where the broker tells one.
pub(crate) fn topic_id(topics: &[TopicInfo], name: &str) -> Option<Uuid> {
    topics.iter().find(|topic| topic.name == name)?.id
}

/// Where a log begins and ends.
struct LogBounds {
    at: TopicPartition,
    offsets: std::ops::Range<i64>,
    /// The clock after the answer.
    at_us: i64,
}

/// The bounds of the logs that answer. A partition that nobody answers for must not keep the others from being read; a position that
/// is really lost shows when it is read.
fn logs<'a>(
    all: impl Iterator<Item = &'a TopicPartition>,
    inquirer: &Inquirer,
    context: &Context,
) -> Result<Vec<LogBounds>, Error> {
    let all: Vec<TopicPartition> = all.cloned().collect();
    if all.is_empty() {
        return Ok(Vec::new());
    }
    let starts = inquirer.log_starts(&all, PATIENCE)?;
    let mut ends = inquirer.high_watermarks(&all, PATIENCE)?;
    let at_us = context.clock.now_us();
    let mut logs = Vec::with_capacity(all.len());
    for (at, start) in starts {
        match (start, ends.remove(&at)) {
            (Ok(start), Some(Ok(end))) => logs.push(LogBounds {
                at,
                offsets: start..end,
                at_us,
            }),
            (Err(error), _) | (_, Some(Err(error))) => {
                tracing::warn!(pipeline = %context.spec.id(), topic = %at.topic, partition = at.partition, %error, "a log does not answer");
            }
            (Ok(_), None) => {}
        }
    }
    Ok(logs)
}

impl LogBounds {
    /// Why reading cannot go on at `next`, and where it does instead; `None`: it can.
    fn moved(
        &self,
        next: i64,
        recreated: Option<Uuid>,
        truncated: bool,
        context: &Context,
    ) -> Result<Option<(JumpKind, i64)>, Error> {
        let (at, spec) = (&self.at, &context.spec);
        let jump = jump_of(at, next, self.offsets.clone(), recreated, truncated);
        let Some((kind, lost)) = jump else {
            return Ok(None);
        };
        if let Some(lost) = lost.filter(|_| spec.source.on_gap == OnGap::Stop) {
            return Err(lost.into());
        }
        let offset = goes_on_at(kind, next, &self.offsets);
        tracing::warn!(pipeline = %spec.id(), topic = %at.topic, partition = at.partition, from = next, offset, "reading goes on behind a gap, which becomes part of the claim");
        Ok(Some((kind, offset)))
    }
}

/// Where reading goes on in a log of these offsets that it cannot go on in at `next`.
pub(crate) fn goes_on_at(kind: JumpKind, next: i64, log: &std::ops::Range<i64>) -> i64 {
    if kind == JumpKind::Truncated {
        next.min(log.end)
    } else {
        log.start
    }
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
