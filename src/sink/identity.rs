//! Whether cluster, topics and positions are still what they were when the table was last written.
//!
//! In: the table's state, what the cluster says, what the specification accepts. Out: nothing, the first mismatch with its
//! reason, or, where the specification says so (`source.onGap: Continue`, `source.accept`), the jumps that go on elsewhere.
//!
//! Never is a difference taken for a fresh start.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::Error;
use super::question::PATIENCE;
use crate::api::worker::OnGap;
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

/// The ids of the topics whose offsets the table counts, where they have one.
pub(super) fn incarnations(state: &State) -> BTreeMap<String, Uuid> {
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
pub(super) fn check_incarnations(
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
) -> Result<Vec<Jump>, Error> {
    let next: BTreeMap<TopicPartition, i64> = state
        .partitions()
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
        let (start, next) = (start?, next[&at]);
        let end = ends.remove(&at).transpose()?.unwrap_or(next);
        let (topic, partition) = (at.topic.clone(), at.partition);
        let (kind, lost) = if let Some(topic_id) = recreated.get(&*at.topic) {
            (
                JumpKind::Recreated {
                    topic_id: Some(*topic_id),
                },
                None,
            )
        } else if next < start {
            let log_start = start;
            (
                JumpKind::Forward,
                Some(kafka::Error::LogStartMoved {
                    topic,
                    partition,
                    offset: next,
                    log_start,
                }),
            )
        } else if next > end {
            (
                JumpKind::Truncated,
                Some(kafka::Error::LogTruncated {
                    topic,
                    partition,
                    offset: next,
                    log_end: end,
                }),
            )
        } else {
            continue;
        };
        if let Some(lost) = lost.filter(|_| spec.source.on_gap == OnGap::Stop) {
            return Err(lost.into());
        }
        let offset = if kind == JumpKind::Truncated {
            end
        } else {
            start
        };
        tracing::warn!(pipeline = %spec.id(), topic = %at.topic, partition = at.partition, from = next, offset, "reading goes on behind a gap, which becomes part of the claim");
        jumps.push(Jump {
            topic: at.topic.to_string(),
            partition: at.partition,
            kind,
            offset,
            at_us,
        });
    }
    Ok(jumps)
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
