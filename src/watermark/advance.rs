//! One commit attempt: the table's state and a worker's news in, the next state and claim out.
//!
//! Pure, and called anew on each attempt with the base of that attempt. A worker brings only its own partitions; the others
//! stand as the table has them.
//!
//! Whatever the news, the claim does not fall, an offset does not run back except by a declared jump, and a worker with
//! older settings carries the claim forward without raising it.
//!
//! Decided here, where the rules leave it open:
//! - Two workers with one revision and different settings: the second counts as the older one.
//! - A topic that the table does not know counts as created since while the pipeline's list or pattern is the table's;
//!   after a change of it the topic may be older, and is refused.
//! - A partition created later that does not begin at offset 0 has lost rows before it was first read; they cannot lie below
//!   what was claimed then, so its gap begins at the claim.
//! - A log cut back voids what was known of the partition, as a new incarnation does; a log start that passed the reader
//!   does not, since what is still to come keeps its order.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::cells::{CellCounts, LateCells};
use super::claim::{Claim, Hold};
use super::digest::Sketch;
use super::event_time::{Excluded, ceil_second, floor_second};
use super::frontier::{
    NewestChange, OpenGap, PartitionState, PartitionStats, Policy, TermValue, View,
};
use super::source_position::SourcePositions;
use super::state::{AskedPartitions, PartitionRecord, Record, State};

/// A partition's start offset, anchored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Its topic.
    pub topic: String,
    /// The id of the topic, where the broker tells one.
    pub topic_id: Option<Uuid>,
    /// Its number.
    pub partition: i32,
    /// The first offset that will be read.
    pub offset: i64,
    /// The clock **after** that offset was answered.
    pub at_us: i64,
}

/// Why a partition goes on somewhere else than the table says, as its owner allowed (`onGap: Continue`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JumpKind {
    /// The log's start passed the table's next offset.
    Forward,
    /// The log was cut back and written anew below the table's next offset.
    Truncated,
    /// The topic is a new one of the same name.
    Recreated {
        /// Its id, where the broker tells one.
        topic_id: Option<Uuid>,
    },
}

/// A partition that goes on somewhere else than the table says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jump {
    /// Its topic.
    pub topic: String,
    /// Its number.
    pub partition: i32,
    /// Why.
    pub kind: JumpKind,
    /// The first offset that will be read now.
    pub offset: i64,
    /// The clock after that offset was answered.
    pub at_us: i64,
}

/// A leader's answer about the end of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedEnd {
    /// The clock **before** the question left.
    pub at_us: i64,
    /// The high watermark in the answer, not the last stable offset.
    pub high_watermark: i64,
    /// The position that the consumer had reached by then. A watermark below it proves nothing.
    pub delivered: i64,
}

/// What a worker knows that is new of one of its partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionNews {
    /// Its topic.
    pub topic: String,
    /// Its number.
    pub partition: i32,
    /// Where the batch starts: the table's next offset. Without a batch, too.
    pub start_offset: i64,
    /// Where the batch ends, exclusive; the start where there is no batch.
    pub end_offset: i64,
    /// The leader epoch of its last row.
    pub leader_epoch: Option<i32>,
    /// What its rows with a say showed; `None`: there was none.
    pub stats: Option<PartitionStats>,
    /// Its source positions after the batch.
    pub positions: Option<SourcePositions>,
    /// The newest change in the batch, with a say or without.
    pub newest_change: Option<NewestChange>,
    /// The newest answer about its end.
    pub asked_end: Option<AskedEnd>,
}

/// What a worker brings to a commit. An empty one is a commit without data.
#[derive(Clone, Debug)]
pub struct Contribution {
    /// The commit's id, a `UUIDv7`.
    pub commit_id: Uuid,
    /// Who commits, for people.
    pub worker: String,
    /// The worker's clock at this attempt.
    pub now_us: i64,
    /// Which topics the worker reads, as its owner wrote it: a list or a pattern.
    pub subscription: String,
    /// Start offsets of partitions that the table does not know: in the first commit of all there are, later of those that
    /// were created since.
    pub anchors: Vec<Anchor>,
    /// Partitions that go on somewhere else.
    pub jumps: Vec<Jump>,
    /// News of the worker's partitions.
    pub partitions: Vec<PartitionNews>,
    /// The newest answer about which partitions there are; complete: an error for one topic is no answer.
    pub asked: Option<AskedPartitions>,
    /// Rows written.
    pub rows: u64,
    /// Those of them without a say, and messages that no decoder understood.
    pub excluded: Excluded,
    /// Rows with a say by cell.
    pub cells: CellCounts,
    /// The event times of the rows with a say.
    pub event_times: Option<Sketch>,
}

/// What a commit attempt writes.
#[derive(Clone, Debug)]
pub struct Advanced {
    /// The state after the commit.
    pub state: State,
    /// The same as the property's value.
    pub state_text: String,
    /// What it claims.
    pub claim: Claim,
    /// What holds the next cell.
    pub hold: Hold,
    /// Rows of this commit below the base's claim.
    pub late: LateCells,
    /// What changed, for the summary.
    pub record: Record,
}

/// News that do not fit the base they were brought to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
pub enum Misfit {
    /// Another worker has committed for the partition, or nobody anchored it: the batch is a zombie's.
    #[error(
        "partition {topic}/{partition}: the batch starts at {start_offset}, the table goes on at {next_offset:?}; drop the batch"
    )]
    Offset {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// Where the batch starts.
        start_offset: i64,
        /// Where the table goes on; `None`: it does not know the partition.
        next_offset: Option<i64>,
    },
    /// A batch that ends before it starts.
    #[error(
        "partition {topic}/{partition}: the batch ends at {end_offset}, before its start {start_offset}"
    )]
    Backwards {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// Where the batch starts.
        start_offset: i64,
        /// Where it ends.
        end_offset: i64,
    },
    /// The partition has an anchor already: another worker came first.
    #[error("partition {topic}/{partition}: anchored already at {next_offset}; go on from there")]
    Anchored {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// Where the table goes on.
        next_offset: i64,
    },
    /// The topic has another id than the table knows.
    #[error(
        "topic \"{topic}\": the table counts offsets of topic id {table}, the broker names {broker}"
    )]
    TopicId {
        /// The topic.
        topic: String,
        /// The id on the table.
        table: Uuid,
        /// The id at the broker.
        broker: Uuid,
    },
    /// A topic that may be older than the claim would join a table that is claimed without it.
    #[error(
        "topic \"{topic}\" was added to what the pipeline reads; its rows may be older than the table's claim"
    )]
    Joins {
        /// The topic.
        topic: String,
    },
    /// A recreated topic begins anew in all its partitions at once.
    #[error(
        "topic \"{topic}\" was recreated: partition {partition} must begin anew in the same commit"
    )]
    Recreated {
        /// The topic.
        topic: String,
        /// A partition that is left out.
        partition: i32,
    },
    /// More partitions than one state can hold.
    #[error(
        "the state of {partitions} partitions needs {bytes} bytes, {limit} fit; split the topics over several pipelines"
    )]
    TooBig {
        /// How many there are.
        partitions: usize,
        /// What they need at least.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}

/// Why a commit without data is worth it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyCommit {
    /// It anchors partitions.
    Anchors,
    /// It raises the claim.
    Raises,
    /// One of its partitions held the lowest open cell and no longer does.
    Releases,
}

/// Derives what a commit on `base` writes.
///
/// # Errors
/// When the news do not fit the base; nothing may be committed then.
///
/// # Panics
/// If the claim would fall within an epoch.
pub fn advance(base: &State, policy: &Policy, news: &Contribution) -> Result<Advanced, Misfit> {
    let (mut state, record) = apply(base, policy, news)?;
    // Before publishing: the claim is derived from what the table will hold.
    state.fit()?;
    publish(base, policy, &mut state);
    assert!(
        state.published.epoch == base.published.epoch
            && state.published.finalized_before_us >= base.published.finalized_before_us,
        "a claim never falls within an epoch"
    );
    Ok(Advanced {
        claim: state.claim(),
        hold: state.hold(is_current(base, policy)),
        state_text: state.encode()?,
        late: news.cells.below(base.published.finalized_before_us),
        record,
        state,
    })
}

/// Whether, and why, a worker without data should commit. `None`, too, where the news do not fit the base.
#[must_use]
pub fn should_commit_empty(
    base: &State,
    policy: &Policy,
    news: &Contribution,
) -> Option<EmptyCommit> {
    if !news.anchors.is_empty() || !news.jumps.is_empty() {
        return Some(EmptyCommit::Anchors);
    }
    let (mut next, _) = apply(base, policy, news).ok()?;
    publish(base, policy, &mut next);
    if next.published.finalized_before_us > base.published.finalized_before_us {
        return Some(EmptyCommit::Raises);
    }
    let open_end_us = base.open_cell_end_us();
    let passed = |value: Option<TermValue>| match (value, open_end_us) {
        (Some(value), Some(end_us)) => value.value_us >= end_us,
        (value, None) => value.is_some(),
        (None, _) => false,
    };
    // Both with the eyes of the next commit: only the news make the difference, not the hour.
    let view = next.view();
    let stored = View {
        snapshot: base.view().snapshot,
        ..view
    };
    let releases = news.partitions.iter().any(|own| {
        let before = base.partition(&own.topic, own.partition);
        let after = next.partition(&own.topic, own.partition);
        let frontier = |view: &View<'_>, known: Option<&PartitionState>| {
            known.and_then(|known| view.frontier(known))
        };
        !passed(frontier(&stored, before)) && passed(frontier(&view, after))
    });
    releases.then_some(EmptyCommit::Releases)
}

fn apply(base: &State, policy: &Policy, news: &Contribution) -> Result<(State, Record), Misfit> {
    let record = derive_record(base, policy, news)?;
    let mut state = base.clone();
    state.apply(&record, None);
    Ok((state, record))
}

fn publish(base: &State, policy: &Policy, state: &mut State) {
    let rule_kept = !base.is_new() && base.policy.complete_from == state.policy.complete_from;
    state.publish(is_current(base, policy), rule_kept);
}

/// Whether a worker with this policy may raise the claim of a state.
#[must_use]
pub fn is_current(base: &State, policy: &Policy) -> bool {
    base.is_new() || policy.revision > base.policy.revision || *policy == base.policy
}

fn derive_record(base: &State, policy: &Policy, news: &Contribution) -> Result<Record, Misfit> {
    let newer = base.is_new() || policy.revision > base.policy.revision;
    let changes = news.partitions.iter().filter_map(|own| own.newest_change);
    let mut record = Record {
        commit_id: news.commit_id,
        committed_at_us: floor_second(news.now_us),
        policy: if newer { policy } else { &base.policy }.clone(),
        asked: newer_answer(base.asked.as_ref(), news.asked.as_ref()),
        newest_change: changes.fold(base.newest_change, |newest, change| {
            let change = NewestChange {
                record_time_us: change.record_time_us.div_euclid(1000) * 1000,
                ..change
            };
            Some(newest.map_or(change, |newest| newest.newer(change)))
        }),
        topic_ids: BTreeMap::new(),
        partitions: BTreeMap::new(),
    };
    for anchor in &news.anchors {
        derive_anchor(base, &mut record, news, anchor)?;
    }
    for jump in &news.jumps {
        derive_jump(base, &mut record, jump)?;
    }
    check_recreated(base, &news.jumps)?;
    for own in &news.partitions {
        derive_partition(base, &mut record, own)?;
    }
    Ok(record)
}

/// The answer in force: the newer one, and a set that only grows.
fn newer_answer(
    table: Option<&AskedPartitions>,
    fresh: Option<&AskedPartitions>,
) -> Option<AskedPartitions> {
    let Some(fresh) = fresh.filter(|fresh| table.is_none_or(|table| fresh.at_us > table.at_us))
    else {
        return table.cloned();
    };
    let mut topics = fresh.topics.clone();
    for (topic, partitions) in table.iter().flat_map(|table| &table.topics) {
        topics
            .entry(topic.clone())
            .or_insert_with(BTreeSet::new)
            .extend(partitions);
    }
    let at_us = floor_second(fresh.at_us);
    let at_us = table.map_or(at_us, |table| at_us.max(table.at_us));
    Some(AskedPartitions { at_us, topics })
}

fn derive_anchor(
    base: &State,
    record: &mut Record,
    news: &Contribution,
    anchor: &Anchor,
) -> Result<(), Misfit> {
    if let Some(known) = base.partition(&anchor.topic, anchor.partition) {
        return Err(Misfit::Anchored {
            topic: anchor.topic.clone(),
            partition: anchor.partition,
            next_offset: known.next_offset,
        });
    }
    let known = base.topics.get(&anchor.topic);
    if !base.is_new() && known.is_none() && news.subscription != base.subscription {
        return Err(Misfit::Joins {
            topic: anchor.topic.clone(),
        });
    }
    let table = known.and_then(|topic| topic.id);
    if let (Some(table), Some(broker)) = (table, anchor.topic_id)
        && table != broker
    {
        return Err(Misfit::TopicId {
            topic: anchor.topic.clone(),
            table,
            broker,
        });
    }
    if let Some(id) = anchor.topic_id {
        record.topic_ids.insert(anchor.topic.clone(), id);
    }
    let at_us = ceil_second(anchor.at_us);
    let mut own = PartitionRecord {
        next_offset: anchor.offset,
        ..PartitionRecord::default()
    };
    if base.is_new() {
        own.anchor_us = Some(at_us);
    } else if anchor.offset > 0 {
        own.gap = Some(OpenGap {
            from_us: base.published.finalized_before_us,
            restart_us: at_us,
        });
    }
    record
        .partitions
        .insert((anchor.topic.clone(), anchor.partition), own);
    Ok(())
}

fn derive_jump(base: &State, record: &mut Record, jump: &Jump) -> Result<(), Misfit> {
    let Some(known) = base.partition(&jump.topic, jump.partition) else {
        return Err(Misfit::Offset {
            topic: jump.topic.clone(),
            partition: jump.partition,
            start_offset: jump.offset,
            next_offset: None,
        });
    };
    let recreated = matches!(jump.kind, JumpKind::Recreated { .. });
    if let JumpKind::Recreated { topic_id: Some(id) } = jump.kind {
        record.topic_ids.insert(jump.topic.clone(), id);
    }
    let frontier = if recreated {
        None
    } else {
        base.view().frontier(known)
    };
    let own = PartitionRecord {
        next_offset: jump.offset,
        reset: !matches!(jump.kind, JumpKind::Forward),
        gap: Some(OpenGap {
            from_us: frontier.map(|value| floor_second(value.value_us)),
            restart_us: ceil_second(jump.at_us),
        }),
        ..PartitionRecord::default()
    };
    record
        .partitions
        .insert((jump.topic.clone(), jump.partition), own);
    Ok(())
}

/// The offsets of a partition that is left out would be taken for those of the new topic.
fn check_recreated(base: &State, jumps: &[Jump]) -> Result<(), Misfit> {
    let recreated = |jump: &&Jump| matches!(jump.kind, JumpKind::Recreated { .. });
    let topics: BTreeSet<&str> = jumps
        .iter()
        .filter(recreated)
        .map(|jump| jump.topic.as_str())
        .collect();
    for (topic, partition, _) in base.partitions() {
        let jumped = |jump: &Jump| jump.topic == topic && jump.partition == partition;
        if topics.contains(topic) && !jumps.iter().any(jumped) {
            return Err(Misfit::Recreated {
                topic: topic.to_owned(),
                partition,
            });
        }
    }
    Ok(())
}

fn derive_partition(base: &State, record: &mut Record, own: &PartitionNews) -> Result<(), Misfit> {
    let known = base.partition(&own.topic, own.partition);
    let key = (own.topic.clone(), own.partition);
    let moved = record.partitions.get(&key).map(|moved| moved.next_offset);
    let next_offset = moved.or(known.map(|known| known.next_offset));
    if next_offset != Some(own.start_offset) {
        return Err(Misfit::Offset {
            topic: own.topic.clone(),
            partition: own.partition,
            start_offset: own.start_offset,
            next_offset,
        });
    }
    if own.end_offset < own.start_offset {
        return Err(Misfit::Backwards {
            topic: own.topic.clone(),
            partition: own.partition,
            start_offset: own.start_offset,
            end_offset: own.end_offset,
        });
    }
    let stats = own.stats.map(round_stats);
    let caught_up_us = own
        .asked_end
        .filter(|end| proves(end, own.end_offset))
        .map(|end| floor_second(end.at_us));
    let known_us = known.and_then(|known: &PartitionState| known.caught_up_us);
    let fresher = caught_up_us > known_us || moved.is_some();
    let news = own.end_offset > own.start_offset || stats.is_some() || own.positions.is_some();
    if !news && !fresher {
        return Ok(());
    }
    let entry = record.partitions.entry(key).or_default();
    entry.next_offset = own.end_offset;
    entry.leader_epoch = own.leader_epoch;
    entry.stats = stats;
    entry.caught_up_us = caught_up_us.filter(|_| fresher);
    entry.positions.clone_from(&own.positions);
    Ok(())
}

/// Whether everything below an answered high watermark is in the table once a batch that ends at `end_offset` is.
fn proves(end: &AskedEnd, end_offset: i64) -> bool {
    end.high_watermark >= end.delivered && end_offset >= end.high_watermark
}

fn round_stats(stats: PartitionStats) -> PartitionStats {
    PartitionStats {
        rows: stats.rows.max(1),
        least_us: floor_second(stats.least_us),
        ladder_us: stats.ladder_us.map(floor_second),
        greatest_us: floor_second(stats.greatest_us),
    }
}
