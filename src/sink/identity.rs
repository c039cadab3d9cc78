//! Whether cluster, topics and positions are still what they were when the table was last written.
//!
//! In: the table's state, what the cluster says, what the specification accepts. Out: nothing, the first mismatch with its
//! reason, or, where the specification says so (`source.onGap: Continue`, `source.accept`), the jumps that go on elsewhere.
//!
//! Never is a difference taken for a fresh start.

use std::collections::BTreeMap;

use regex::Regex;
use uuid::Uuid;

use super::Error;
use super::question::PATIENCE;
use crate::api::worker::{OnGap, Topics};
use crate::api::{EffectiveSpec, Reason};
use crate::kafka::{self, Inquirer, TopicInfo, TopicPartition};
use crate::process::clock::Clock;
use crate::watermark::{Jump, JumpKind, State};

/// What the cluster says of itself.
pub(super) struct Seen<'a> {
    /// Its id, when it was asked.
    pub cluster_id: Option<&'a str>,
    /// The pipeline's topics.
    pub topics: &'a [TopicInfo],
    /// Ids of recreated topics that reading may go on with; none while it is under way: it has to begin anew first.
    pub accept: &'a [Uuid],
}

/// Compares cluster and topics with the table.
///
/// # Errors
/// The first that differs and is not accepted.
pub(super) fn check(state: &State, seen: &Seen<'_>, spec: &EffectiveSpec) -> Result<(), Error> {
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
                spec.source.bootstrap_servers
            ),
        ));
    }
    check_incarnations(&incarnations(state), seen.topics, seen.accept)?;
    if let Some(name) = state.topics.keys().find(|name| {
        !seen.topics.is_empty()
            && !seen.topics.iter().any(|topic| topic.name == **name)
            && names(spec, name)
    }) {
        return Err(Error::refused(
            Reason::PartitionGone,
            format!("topic \"{name}\": the table has rows of it, the broker no longer names it"),
        ));
    }
    for topic in seen.topics {
        let Some(known) = state.topics.get(&topic.name) else {
            continue;
        };
        let named = |partition: &&i32| topic.partitions.contains(partition);
        if let Some(partition) = known.partitions.keys().find(|partition| !named(partition)) {
            let name = &topic.name;
            return Err(Error::refused(
                Reason::PartitionGone,
                format!(
                    "topic \"{name}\", partition {partition}: the table has rows of it, the broker no longer names it"
                ),
            ));
        }
    }
    Ok(())
}

/// Whether the specification names a topic.
pub(super) fn names(spec: &EffectiveSpec, topic: &str) -> bool {
    match &spec.source.topics {
        Topics::List(list) => list.iter().any(|name| name == topic),
        // What is no regular expression was refused before anything was read.
        Topics::Pattern(pattern) => {
            Regex::new(&format!("^(?:{pattern})$")).is_ok_and(|regex| regex.is_match(topic))
        }
    }
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
    spec: &EffectiveSpec,
    clock: &Clock,
    truncated: &BTreeMap<TopicPartition, i64>,
) -> Result<Vec<Jump>, Error> {
    let next: BTreeMap<TopicPartition, i64> = state
        .partitions()
        .filter(|(topic, ..)| names(spec, topic))
        .map(|(topic, partition, known)| (TopicPartition::new(topic, partition), known.next_offset))
        .collect();
    if next.is_empty() {
        return Ok(Vec::new());
    }
    let all: Vec<TopicPartition> = next.keys().cloned().collect();
    let recreated = recreated_topics(state, inquirer, spec)?;
    let starts = inquirer.log_starts(&all, PATIENCE)?;
    let mut ends = inquirer.high_watermarks(&all, PATIENCE)?;
    let at_us = clock.now_us();
    let mut jumps = Vec::new();
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
fn recreated_topics(
    state: &State,
    inquirer: &Inquirer,
    spec: &EffectiveSpec,
) -> Result<BTreeMap<String, Uuid>, Error> {
    if spec.source.accept.topic_ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let topics = inquirer.topics(&super::open::topics(spec), PATIENCE)?;
    let changed = topics.into_iter().filter_map(|topic| {
        let (table, broker) = (state.topics.get(&topic.name)?.id?, topic.id?);
        (table != broker && spec.source.accept.topic_ids.contains(&broker))
            .then_some((topic.name, broker))
    });
    Ok(changed.collect())
}
