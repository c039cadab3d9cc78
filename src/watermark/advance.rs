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
//!   after a change of it the topic may be older, and is refused. A changed one becomes the table's with the first answer
//!   under it that names no topic but those that the table knows.
//! - A topic that the specification no longer names leaves without a step of the epoch. The claim may rise with it; what was
//!   never read of it stays outside of complete-from and in the gaps.
//! - A partition created later that does not begin at offset 0 has lost rows before it was first read; they cannot lie below
//!   what was claimed then, so its gap begins at the claim.
//! - A log cut back voids what was known of the partition, as a new incarnation does; a log start that passed the reader
//!   does not, since what is still to come keeps its order.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::cells::{CellCounts, LateCells};
use super::claim::{Claim, Hold};
use super::digest::Sketch;
use super::event_time::{Excluded, SECOND_US, ceil_second, floor_second};
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
    /// The table's next offset that the jump was derived from: on any other base it is void.
    pub from: i64,
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
    /// Where the batch starts: the table's next offset, or the batch is a zombie's.
    pub start_offset: i64,
    /// Where the batch ends, exclusive. The same as the start: there is no batch, and the table's next offset counts.
    pub end_offset: i64,
    /// The leader epoch of the record before the end of the batch; `None`, too, where the position has passed its last row.
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
    /// Topics that the pipeline no longer reads although the state, or its last answer about the partitions, has them. They
    /// leave both with this commit.
    pub retired: Vec<String>,
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
    /// The partition is no longer where the jump was derived from: another worker jumped, or went on.
    #[error("partition {topic}/{partition}: moved on to {next_offset} already; go on from there")]
    JumpedAlready {
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
    /// It takes topics out that are no longer read.
    Retires,
    /// It raises the claim.
    Raises,
    /// One of its partitions held the lowest open cell and no longer does.
    Releases,
    /// Offsets without rows have not been committed for long.
    Moved,
}

/// How long offsets without rows wait for a commit with rows. Deletions, signals and markers of transactions fill a log as rows do;
/// once retention has passed the table's offset a restart could not tell them from lost rows. An hour is far below any
/// retention in use (Kafka's default is seven days), and 24 empty commits a day are few.
const MOVED_AFTER_US: i64 = 3_600 * SECOND_US;

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

/// Whether a commit of these news on `base` would raise the claim. Far cheaper than [`advance`]: nothing is packed, and where
/// neither clock nor answer has passed the open cell no partition is looked at. `false`, too, where the news do not fit.
#[must_use]
pub fn would_raise(base: &State, policy: &Policy, news: &Contribution) -> bool {
    is_within_reach(base, policy, news)
        && apply(base, policy, news).is_ok_and(|(next, _)| raises(base, policy, &next))
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
    let named = base.asked.iter().flat_map(|asked| asked.topics.keys());
    let mut there = base.topics.keys().chain(named);
    if there.any(|topic| news.retired.contains(topic)) {
        return Some(EmptyCommit::Retires);
    }
    let (next, _) = apply(base, policy, news).ok()?;
    if raises(base, policy, &next) {
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
    if releases {
        return Some(EmptyCommit::Releases);
    }
    let moved = news
        .partitions
        .iter()
        .any(|own| own.end_offset > own.start_offset);
    let waited_us = news.now_us.saturating_sub(base.committed_at_us);
    (moved && waited_us >= MOVED_AFTER_US).then_some(EmptyCommit::Moved)
}

/// Whether both caps of the claim have passed the end of the open cell.
fn is_within_reach(base: &State, policy: &Policy, news: &Contribution) -> bool {
    let table_us = base.asked.as_ref().map(|asked| asked.at_us);
    let fresh_us = news.asked.as_ref().map(|asked| asked.at_us);
    let policy = policy_in_force(base, policy);
    let caps = table_us.max(fresh_us).map(|asked_us| {
        let asked_cap_us = asked_us.saturating_sub(policy.bounds.max_delay_us);
        policy.grid.floor(asked_cap_us.min(news.now_us))
    });
    caps > base.published.finalized_before_us
}

fn raises(base: &State, policy: &Policy, next: &State) -> bool {
    is_current(base, policy) && next.candidate(&next.view()) > base.published.finalized_before_us
}

fn policy_in_force<'p>(base: &'p State, policy: &'p Policy) -> &'p Policy {
    if base.is_new() || policy.revision > base.policy.revision {
        policy
    } else {
        &base.policy
    }
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

/// Whether a worker with this policy may raise the claim of a state: with the table's settings, whatever their revision, or with
/// newer ones.
#[must_use]
pub fn is_current(base: &State, policy: &Policy) -> bool {
    base.is_new() || policy.revision > base.policy.revision || policy.same_settings(&base.policy)
}

fn derive_record(base: &State, policy: &Policy, news: &Contribution) -> Result<Record, Misfit> {
    let is_retired = |topic: &String| news.retired.contains(topic);
    let changes = news.partitions.iter().filter_map(|own| own.newest_change);
    let mut record = Record {
        commit_id: news.commit_id,
        committed_at_us: floor_second(news.now_us),
        policy: policy_in_force(base, policy).clone(),
        subscription: derive_subscription(base, news),
        topics: base
            .topics
            .keys()
            .filter(|topic| !is_retired(topic))
            .cloned()
            .collect(),
        asked: newer_answer(base.asked.as_ref(), news.asked.as_ref()).map(|mut asked| {
            asked.topics.retain(|topic, _| !is_retired(topic));
            asked
        }),
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
    check_retired(news)?;
    for own in &news.partitions {
        derive_partition(base, &mut record, own)?;
    }
    Ok(record)
}

/// What the table may take for granted of topics that appear: the subscription under which an answer named no topic but those
/// that it knows. Topics that match it and appear later were created later. With no such answer the one before stays; after
/// a topic has left it would let that one in again, so that none does.
fn derive_subscription(base: &State, news: &Contribution) -> String {
    let left = |topic: &String| news.retired.contains(topic);
    let known = |topic: &String| base.topics.contains_key(topic) && !left(topic);
    let fresh = news.asked.as_ref().filter(|fresh| {
        let table = base.asked.as_ref();
        table.is_none_or(|table| fresh.at_us > table.at_us)
    });
    if base.is_new() || fresh.is_some_and(|fresh| fresh.topics.keys().all(known)) {
        news.subscription.clone()
    } else if base.topics.keys().any(left) {
        String::new()
    } else {
        base.subscription.clone()
    }
}

/// The answer in force: the newer one, and a set that only grows; only the specification takes a topic out.
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
    record.topics.insert(anchor.topic.clone());
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
    let table = base.topics.get(&jump.topic).and_then(|topic| topic.id);
    // Both incarnations of a topic may stand at the same offset.
    let renewed =
        matches!(jump.kind, JumpKind::Recreated { topic_id: Some(id) } if table == Some(id));
    if known.next_offset != jump.from || renewed {
        return Err(Misfit::JumpedAlready {
            topic: jump.topic.clone(),
            partition: jump.partition,
            next_offset: known.next_offset,
        });
    }
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

/// Nothing is read any more of a topic that leaves.
fn check_retired(news: &Contribution) -> Result<(), Misfit> {
    let own = news.partitions.iter();
    let batches = own.map(|own| (&own.topic, own.partition, own.start_offset));
    let anchors = news.anchors.iter();
    let anchors = anchors.map(|anchor| (&anchor.topic, anchor.partition, anchor.offset));
    let jumps = news.jumps.iter();
    let jumps = jumps.map(|jump| (&jump.topic, jump.partition, jump.offset));
    let mut all = batches.chain(anchors).chain(jumps);
    match all.find(|(topic, _, _)| news.retired.contains(topic)) {
        None => Ok(()),
        Some((topic, partition, start_offset)) => Err(Misfit::Offset {
            topic: topic.clone(),
            partition,
            start_offset,
            next_offset: None,
        }),
    }
}

fn derive_partition(base: &State, record: &mut Record, own: &PartitionNews) -> Result<(), Misfit> {
    let known = base.partition(&own.topic, own.partition);
    let key = (own.topic.clone(), own.partition);
    let moved = record.partitions.get(&key).map(|moved| moved.next_offset);
    let next_offset = moved.or(known.map(|known| known.next_offset));
    let batch =
        own.end_offset != own.start_offset || own.stats.is_some() || own.positions.is_some();
    // Without a batch the position is the table's: a worker may prove for a partition what it has not read itself.
    let (start_offset, end_offset) = match next_offset {
        Some(next_offset) if !batch => (next_offset, next_offset),
        _ => (own.start_offset, own.end_offset),
    };
    if next_offset != Some(start_offset) {
        return Err(Misfit::Offset {
            topic: own.topic.clone(),
            partition: own.partition,
            start_offset,
            next_offset,
        });
    }
    if end_offset < start_offset {
        return Err(Misfit::Backwards {
            topic: own.topic.clone(),
            partition: own.partition,
            start_offset,
            end_offset,
        });
    }
    let caught_up_us = own
        .asked_end
        .filter(|end| proves(end, end_offset))
        .map(|end| floor_second(end.at_us));
    let known_us = known.and_then(|known: &PartitionState| known.caught_up_us);
    let fresher = caught_up_us > known_us || moved.is_some();
    if !batch && !fresher {
        return Ok(());
    }
    let entry = record.partitions.entry(key).or_default();
    entry.next_offset = end_offset;
    // Without a batch it is that of the worker's position, which the table may not share.
    entry.leader_epoch = own.leader_epoch.filter(|_| end_offset > start_offset);
    entry.stats = own.stats.map(round_stats);
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

#[cfg(test)]
mod tests {
    use super::super::claim::HeldBy;
    use super::super::frontier::{FromRule, Term};
    use super::super::state::CompleteFrom;
    use super::super::testing::{TOPIC, Table, at, news, policy};
    use super::*;

    fn complete_from(table: &Table) -> CompleteFrom {
        table.state.published.complete_from
    }

    fn from(time: &str) -> CompleteFrom {
        CompleteFrom::From(at(time))
    }

    fn gap(from: &str, to: &str) -> Vec<(i64, i64)> {
        vec![(at(from), at(to))]
    }

    /// Two partitions that flow until 10:40, by two workers.
    fn flowing() -> Table {
        let mut table = Table::anchored("09:00", 2);
        table.commit(
            news("10:20")
                .rows(0, 0, &["10:10", "10:15"])
                .asked("10:19", 2),
        );
        table.commit(news("10:21").rows(1, 0, &["10:12", "10:16"]));
        table.commit(
            news("10:40")
                .rows(0, 2, &["10:30", "10:39"])
                .asked("10:39", 2),
        );
        table.commit(news("10:41").rows(1, 2, &["10:33", "10:36"]));
        table
    }

    #[test]
    fn the_first_commit_anchors_and_claims_nothing() {
        let table = Table::anchored("09:10", 2);
        assert_eq!(table.claim(), None);
        assert_eq!(
            complete_from(&table),
            from("10:00"),
            "09:10 plus the skew of five minutes, rounded up"
        );
        assert_eq!(table.state.hold(true).by, HeldBy::NotAsked);
    }

    #[test]
    fn a_claim_needs_the_window_of_every_partition() {
        let mut table = Table::anchored("09:00", 2);
        table.commit(news("10:20").rows(0, 0, &["10:10"]).asked("10:19", 2));
        table.commit(news("10:40").rows(0, 1, &["10:30"]));
        let hold = table.commit(news("10:41").rows(1, 0, &["10:35"])).hold;
        assert_eq!(table.claim(), None);
        let by = HeldBy::Partition {
            topic: TOPIC.to_owned(),
            partition: 1,
            term: None,
        };
        assert_eq!(
            (hold.by, hold.reached_us, hold.since_us),
            (by, None, at("10:41"))
        );
        table.commit(news("10:42").rows(1, 1, &["10:36"]));
        assert_eq!(
            table.claim().as_deref(),
            Some("2026-11-30T10:00:00Z"),
            "10:10 less five minutes, the least of all"
        );
    }

    #[test]
    fn the_least_of_the_frontiers_and_both_caps_is_floored_to_a_cell() {
        let mut table = flowing();
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T10:00:00Z"));
        table.commit(news("11:08").rows(0, 4, &["11:06"]));
        table.commit(news("11:08").rows(1, 4, &["11:06"]));
        table.commit(news("11:09").rows(0, 5, &["11:07"]));
        let hold = table.commit(news("11:09").rows(1, 5, &["11:08"])).hold;
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T10:00:00Z"));
        assert_eq!(
            (hold.by, hold.reached_us),
            (HeldBy::Asked, Some(at("10:29"))),
            "asked at 10:39, less D"
        );
        let next = table.commit(news("11:10").asked("11:10", 2));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T11:00:00Z"));
        assert_eq!(
            next.claim.margin_us,
            Some(7 * 60 * super::super::SECOND_US),
            "the least greatest event time less the claim"
        );
    }

    #[test]
    fn a_silent_partition_is_released_by_proof_only() {
        let mut table = flowing();
        table.commit(news("12:00").rows(0, 4, &["11:50"]).asked("11:59", 2));
        table.commit(news("12:20").rows(0, 5, &["12:15"]).asked("12:19", 2));
        assert_eq!(
            table.claim().as_deref(),
            Some("2026-11-30T10:00:00Z"),
            "silence is no consent"
        );
        let behind = news("12:21").rows(1, 4, &[]).end("12:20", 5);
        assert_eq!(
            should_commit_empty(&table.state, &table.policy, &behind),
            None,
            "a record waits there"
        );
        let caught_up = news("12:21").rows(1, 4, &[]).end("12:20", 4);
        assert_eq!(
            should_commit_empty(&table.state, &table.policy, &caught_up),
            Some(EmptyCommit::Raises)
        );
        let next = table.commit(caught_up);
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T11:00:00Z"));
        assert_eq!(
            next.claim.evidence,
            BTreeSet::from([Term::Minimum, Term::CaughtUp])
        );
    }

    #[test]
    fn a_worker_releases_its_partition_even_while_another_holds() {
        let mut table = flowing();
        table.commit(news("11:30").asked("11:30", 2));
        let own = news("11:30").rows(1, 4, &[]).end("11:30", 4);
        assert_eq!(
            should_commit_empty(&table.state, &table.policy, &own),
            Some(EmptyCommit::Releases)
        );
        table.commit(own.clone());
        let again = news("11:31").rows(1, 4, &[]).end("11:31", 4);
        assert_eq!(
            should_commit_empty(&table.state, &table.policy, &again),
            None,
            "once a cell"
        );
    }

    /// A watermark below what was delivered comes from a truncated log, or an answer to somebody else.
    #[test]
    fn an_answer_below_what_was_delivered_proves_nothing() {
        let mut table = flowing();
        let mut own = news("11:30").rows(1, 4, &[]).end("11:30", 3);
        own.partitions[0].asked_end.as_mut().unwrap().delivered = 4;
        table.commit(own);
        assert_eq!(table.state.partition(TOPIC, 1).unwrap().caught_up_us, None);
    }

    #[test]
    fn caught_up_does_not_count_while_a_snapshot_goes_on() {
        let change = |time: &str, snapshot: bool| {
            Some(NewestChange {
                record_time_us: at(time),
                snapshot,
            })
        };
        let mut table = Table::anchored("09:00", 1);
        let mut rows = news("11:30")
            .rows(0, 0, &[])
            .end("11:30", 0)
            .asked("11:30", 1);
        rows.partitions[0].newest_change = change("11:29", true);
        table.commit(rows.clone());
        assert_eq!(table.claim(), None);
        rows.partitions[0].newest_change = change("11:29", false);
        table.commit(rows);
        assert_eq!(
            table.claim().as_deref(),
            Some("2026-11-30T11:00:00Z"),
            "the last row of it shares its time"
        );
    }

    #[test]
    fn the_clock_of_the_commit_caps_rows_from_the_future() {
        let mut table = Table::anchored("09:00", 1);
        table.commit(news("09:58").rows(0, 0, &["10:03"]).asked("09:58", 1));
        let next = table.commit(news("09:59").rows(0, 1, &["10:04"]).asked("10:30", 1));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T09:00:00Z"));
        assert!(next.claim.finalized_before_us <= Some(at("09:59")));
    }

    #[test]
    fn a_named_partition_without_an_anchor_holds() {
        let mut table = flowing();
        table.commit(news("11:30").rows(0, 4, &["11:20"]).asked("11:30", 3));
        let by = HeldBy::Unanchored {
            topic: TOPIC.to_owned(),
            partition: 2,
        };
        assert_eq!(table.state.hold(true).by, by);
        let later = news("11:31").anchor(2, 0);
        assert_eq!(
            should_commit_empty(&table.state, &table.policy, &later),
            Some(EmptyCommit::Anchors)
        );
        let before = complete_from(&table);
        table.commit(later);
        assert_eq!(
            complete_from(&table),
            before,
            "created later: no rows were missed"
        );
        assert!(table.state.gaps().is_empty());
    }

    #[test]
    fn complete_from_falls_with_the_first_rows() {
        let mut table = Table::anchored("09:58", 2);
        assert_eq!(complete_from(&table), from("11:00"));
        table.commit(news("10:05").rows(0, 0, &["09:50"]));
        assert_eq!(
            complete_from(&table),
            from("11:00"),
            "the other partition has shown none"
        );
        table.commit(news("10:06").rows(1, 0, &["09:49", "10:05"]));
        assert_eq!(
            complete_from(&table),
            from("10:00"),
            "09:50 and L, and the second that the rounding may hide"
        );
        table.commit(news("10:07").rows(1, 2, &["08:00"]));
        assert_eq!(
            complete_from(&table),
            from("10:00"),
            "by the first commit of each"
        );
    }

    #[test]
    fn the_owner_may_vouch_for_what_lies_before() {
        for (rule, expected) in [
            (FromRule::Unbounded, CompleteFrom::Unbounded),
            (FromRule::Instant(at("07:30")), from("08:00")),
        ] {
            let mut table = Table::new(Policy {
                complete_from: rule,
                ..policy()
            });
            table.commit(news("09:00").anchor(0, 0));
            assert_eq!(complete_from(&table), expected);
        }
    }

    #[test]
    fn a_log_that_lost_its_head_leaves_a_gap_that_closes_with_the_next_rows() {
        let mut table = flowing();
        table.commit(news("12:30").jump(1, 4, 50, JumpKind::Forward));
        assert_eq!(
            table.state.gaps().stretches(),
            gap("10:00", "13:00"),
            "from 10:28, up to the restart and the skew"
        );
        table.commit(news("12:31").rows(1, 50, &["11:40"]));
        assert_eq!(
            table.state.gaps().stretches(),
            gap("10:00", "12:00"),
            "up to 11:40 and L"
        );
        assert_eq!(table.state.partition(TOPIC, 1).unwrap().next_offset, 51);
        assert_eq!(
            table
                .state
                .partition(TOPIC, 1)
                .unwrap()
                .window
                .entries
                .len(),
            2,
            "the order goes on"
        );
    }

    /// Two workers see the same loss. The second would begin again behind rows that the first has read since.
    #[test]
    fn a_jump_counts_only_on_the_offset_it_was_derived_from() {
        let mut table = flowing();
        let jump = |now: &str| news(now).jump(1, 4, 50, JumpKind::Forward);
        table.commit(jump("12:30"));
        table.commit(news("12:31").rows(1, 50, &["12:30", "12:31"]));
        let before = table.state.clone();
        let already = Misfit::JumpedAlready {
            topic: TOPIC.to_owned(),
            partition: 1,
            next_offset: 52,
        };
        assert_eq!(table.try_commit(jump("12:32")).unwrap_err(), already);
        assert_eq!(table.state, before);
    }

    /// The new topic may stand at the very offset of the old one.
    #[test]
    fn a_recreated_topic_begins_anew_once() {
        let mut table = Table::anchored("09:00", 1);
        let topic_id = Some(Uuid::from_u128(10));
        let again = || news("12:30").jump(0, 0, 0, JumpKind::Recreated { topic_id });
        table.commit(again());
        let already = Misfit::JumpedAlready {
            topic: TOPIC.to_owned(),
            partition: 0,
            next_offset: 0,
        };
        assert_eq!(table.try_commit(again()).unwrap_err(), already);
    }

    #[test]
    fn a_commit_that_would_raise_the_claim_is_told_from_one_that_would_not() {
        let mut table = flowing();
        let would = |table: &Table, news: &Contribution| {
            let would = would_raise(&table.state, &table.policy, news);
            let next = advance(&table.state, &table.policy, news).unwrap();
            let raised = next.claim.finalized_before_us > table.state.published.finalized_before_us;
            assert_eq!(would, raised);
            would
        };
        table.commit(
            news("11:20")
                .rows(0, 4, &["11:10"])
                .rows(1, 4, &["11:10"])
                .asked("10:50", 2),
        );
        let rows = || news("11:21").rows(0, 5, &["11:20"]).rows(1, 5, &["11:19"]);
        assert!(!would(&table, &rows()), "asked too long ago");
        assert!(!would(&table, &rows().asked("11:05", 2)), "less D");
        assert!(would(&table, &rows().asked("11:10", 2)));
        assert!(
            !would(&table, &rows().asked("11:10", 3)),
            "one more is named"
        );
        let one = news("11:21").rows(0, 5, &["11:20"]).asked("11:21", 2);
        assert!(!would(&table, &one), "the other holds");
        let unfit = news("11:21").rows(0, 4, &["11:20"]).asked("11:21", 2);
        assert!(!would_raise(&table.state, &table.policy, &unfit));
        table.policy.bounds.max_delay_us = 0;
        assert!(!would(&table, &rows().asked("11:10", 2)), "other settings");
    }

    #[test]
    fn a_recreated_topic_begins_anew_and_completeness_with_it() {
        let mut table = flowing();
        let id = Some(Uuid::from_u128(10));
        let kind = JumpKind::Recreated { topic_id: id };
        let partly = table
            .try_commit(news("12:30").jump(0, 4, 0, kind))
            .unwrap_err();
        assert_eq!(
            partly,
            Misfit::Recreated {
                topic: TOPIC.to_owned(),
                partition: 1
            }
        );
        table.commit(news("12:30").jump(0, 4, 0, kind).jump(1, 4, 0, kind));
        assert_eq!(
            complete_from(&table),
            from("13:00"),
            "what was lost has no known beginning"
        );
        assert_eq!(table.state.topics[TOPIC].id, id);
        assert_eq!(
            table.claim().as_deref(),
            Some("2026-11-30T10:00:00Z"),
            "carried on"
        );
        assert_eq!(table.state.partition(TOPIC, 0).unwrap().window.entries, []);
    }

    #[test]
    fn a_partition_created_later_whose_head_is_gone_leaves_a_gap_at_the_claim() {
        let mut table = flowing();
        table.commit(news("11:31").anchor(2, 5));
        assert_eq!(table.state.gaps().stretches(), gap("10:00", "12:00"));
    }

    #[test]
    fn a_batch_that_does_not_start_where_the_table_goes_on_is_a_zombies() {
        let mut table = flowing();
        let misfit = table
            .try_commit(news("10:50").rows(0, 3, &["10:45"]))
            .unwrap_err();
        assert_eq!(
            misfit,
            Misfit::Offset {
                topic: TOPIC.to_owned(),
                partition: 0,
                start_offset: 3,
                next_offset: Some(4)
            }
        );
        let unknown = table
            .try_commit(news("10:50").rows(7, 0, &["10:45"]))
            .unwrap_err();
        assert!(matches!(
            unknown,
            Misfit::Offset {
                next_offset: None,
                ..
            }
        ));
        let anchored = table.try_commit(news("10:50").anchor(0, 0)).unwrap_err();
        assert!(matches!(anchored, Misfit::Anchored { next_offset: 4, .. }));
    }

    /// Else a worker that lost an idle partition to a peer would have to drop what it read of the others.
    #[test]
    fn a_partition_without_a_batch_is_proved_by_the_tables_offset() {
        let mut table = flowing();
        table.commit(news("11:30").rows(1, 0, &[]).end("11:30", 4));
        let known = table.state.partition(TOPIC, 1).unwrap();
        assert_eq!(
            (known.next_offset, known.caught_up_us),
            (4, Some(at("11:30")))
        );
        table.commit(news("11:40").rows(1, 9, &[]).end("11:40", 5));
        let known = table.state.partition(TOPIC, 1).unwrap();
        assert_eq!(
            (known.next_offset, known.caught_up_us),
            (4, Some(at("11:30"))),
            "its own position counts for nothing"
        );
    }

    #[test]
    fn a_topic_that_may_be_older_than_the_claim_is_refused() {
        let mut table = flowing();
        let mut joins = news("10:50").anchor(0, 0);
        joins.anchors[0].topic = "shop.items".to_owned();
        table.try_commit(joins.clone()).unwrap();
        joins.anchors[0].topic = "shop.users".to_owned();
        joins.subscription = "shop.orders,shop.users".to_owned();
        let refused = table.try_commit(joins).unwrap_err();
        assert_eq!(
            refused,
            Misfit::Joins {
                topic: "shop.users".to_owned()
            }
        );
    }

    fn with_epoch(mut news: Contribution, leader_epoch: Option<i32>) -> Contribution {
        let own = news.partitions.iter_mut();
        own.for_each(|own| own.leader_epoch = leader_epoch);
        news
    }

    /// After control records of a newer leader the broker would answer the older epoch with an earlier end: a false truncation.
    #[test]
    fn a_leader_epoch_is_kept_for_its_own_offset_only() {
        let mut table = flowing();
        let epoch = |table: &Table| table.state.partition(TOPIC, 0).unwrap().leader_epoch;
        table.commit(with_epoch(news("10:50").rows(0, 4, &["10:45"]), Some(3)));
        assert_eq!(epoch(&table), Some(3));
        let proof = news("10:51").rows(0, 9, &[]).end("10:51", 5);
        table.commit(with_epoch(proof, Some(7)));
        assert_eq!(epoch(&table), Some(3), "of another position");
        let mut markers = news("10:52").rows(0, 5, &[]);
        markers.partitions[0].end_offset = 7;
        table.commit(markers);
        assert_eq!(epoch(&table), None);
        table.commit(with_epoch(news("10:53").rows(0, 7, &["10:50"]), Some(4)));
        assert_eq!(epoch(&table), Some(4));
        table.commit(news("12:30").jump(0, 8, 50, JumpKind::Forward));
        assert_eq!(epoch(&table), None, "a jump follows no record");
    }

    /// Else retention passes the offsets, and a restart says that rows are lost.
    #[test]
    fn offsets_without_rows_are_committed_after_an_hour() {
        let mut table = flowing();
        let moved = |now: &str| {
            let mut moved = news(now).rows(0, 4, &[]);
            moved.partitions[0].end_offset = 9;
            moved
        };
        let why = |table: &Table, news: &Contribution| {
            should_commit_empty(&table.state, &table.policy, news)
        };
        assert_eq!(why(&table, &moved("11:40")), None);
        assert_eq!(why(&table, &news("11:41").rows(0, 4, &[])), None);
        assert_eq!(why(&table, &moved("11:41")), Some(EmptyCommit::Moved));
        table.commit(moved("11:41"));
        assert_eq!(table.state.partition(TOPIC, 0).unwrap().next_offset, 9);
        assert_eq!(why(&table, &moved("13:00")), None, "it does not fit");
    }

    /// Revisions are counted by each that edits: two may reach the same settings by different ways.
    #[test]
    fn the_tables_settings_are_current_whatever_their_revision() {
        let mut table = flowing();
        table.policy.revision = 3;
        table.commit(news("10:45").asked("10:45", 2));
        table.policy.revision = 2;
        assert!(is_current(&table.state, &table.policy));
        for partition in [0, 1] {
            table.commit(
                news("11:30")
                    .rows(partition, 4, &["11:20"])
                    .asked("11:30", 2),
            );
            table.commit(news("11:31").rows(partition, 5, &["11:21"]));
        }
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T11:00:00Z"));
        assert_eq!(table.state.policy.revision, 3);
    }

    fn joins(topic: &str) -> Misfit {
        Misfit::Joins {
            topic: topic.to_owned(),
        }
    }

    /// Else every topic created after a change of the pattern would be refused for ever.
    #[test]
    fn a_changed_subscription_is_taken_once_an_answer_names_no_unknown_topic() {
        let mut table = flowing();
        let created = || {
            news("10:55")
                .anchor(0, 0)
                .of("shop.items")
                .reading("shop.*")
        };
        table.commit(news("10:50").rows(0, 4, &["10:45"]).reading("shop.*"));
        assert_eq!(
            table.try_commit(created()).unwrap_err(),
            joins("shop.items"),
            "rows alone do not show what the new pattern matches"
        );
        table.commit(
            news("10:51")
                .asked("10:51", 2)
                .and_asked("shop.items", 1)
                .reading("shop.*"),
        );
        assert_eq!(
            table.try_commit(created()).unwrap_err(),
            joins("shop.items"),
            "it was there before"
        );
        let mut table = flowing();
        table.commit(news("10:52").asked("10:39", 2).reading("shop.*"));
        assert_eq!(table.state.subscription, TOPIC, "an answer of before");
        table.commit(news("10:53").asked("10:53", 2).reading("shop.*"));
        assert_eq!(table.state.subscription, "shop.*");
        table.commit(created());
    }

    /// `flowing`, with another topic that has no rows yet and holds the claim.
    fn with_items() -> Table {
        let mut table = flowing();
        let both = || news("10:50").asked("10:50", 2).and_asked("shop.items", 1);
        table.commit(both().anchor(0, 0).of("shop.items"));
        for partition in [0, 1] {
            table.commit(news("11:20").rows(partition, 4, &["11:10", "11:20"]));
            table.commit(news("11:21").rows(partition, 6, &["11:11", "11:21"]));
        }
        table.commit(news("11:22").asked("11:22", 2));
        table
    }

    #[test]
    fn a_topic_out_of_the_specification_leaves_and_lets_the_claim_go() {
        let mut table = with_items();
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T10:00:00Z"));
        let retires = || news("11:23").retire("shop.items").reading("other");
        assert_eq!(
            should_commit_empty(&table.state, &table.policy, &retires()),
            Some(EmptyCommit::Retires)
        );
        assert!(would_raise(&table.state, &table.policy, &retires()));
        table.commit(retires());
        assert_eq!(
            should_commit_empty(&table.state, &table.policy, &retires()),
            None,
            "once"
        );
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T11:00:00Z"));
        assert_eq!(table.state.published.epoch, 1);
        assert_eq!(table.state.partition("shop.items", 0), None);
        let asked = table.state.asked.clone().unwrap();
        assert!(asked.topics.keys().eq([TOPIC]));
        assert_eq!(asked.at_us, at("11:22"));
        let late = news("11:24").rows(0, 0, &["11:20"]).of("shop.items");
        assert!(matches!(
            table.try_commit(late).unwrap_err(),
            Misfit::Offset {
                next_offset: None,
                ..
            }
        ));
        for subscription in [TOPIC, "other"] {
            let back = news("11:24").anchor(0, 0).of("shop.items");
            assert_eq!(
                table.try_commit(back.reading(subscription)).unwrap_err(),
                joins("shop.items"),
                "it is older than the claim now"
            );
        }
    }

    /// A worker that was not told yet may have named it again since.
    #[test]
    fn a_topic_that_only_an_answer_names_leaves_as_well() {
        let mut table = flowing();
        table.commit(news("10:50").asked("10:50", 2).and_asked("shop.users", 1));
        table.commit(news("10:51").retire("shop.users"));
        assert!(
            table
                .state
                .asked
                .as_ref()
                .unwrap()
                .topics
                .keys()
                .eq([TOPIC])
        );
        assert_eq!(table.state.subscription, TOPIC, "it never was in the state");
        let zombie = news("10:52")
            .anchor(0, 0)
            .of("shop.users")
            .retire("shop.users");
        assert!(matches!(
            table.try_commit(zombie).unwrap_err(),
            Misfit::Offset { .. }
        ));
    }

    /// The claim of before was made over its rows, too: it may not grow over those that were never read.
    #[test]
    fn a_topic_that_leaves_takes_no_edge_of_the_claim_with_it() {
        let mut table = Table::new(policy());
        let mut first = news("09:00").anchor(0, 0);
        let items = news("09:57").anchor(0, 0).of("shop.items");
        first.anchors.extend(items.anchors);
        table.commit(first);
        assert_eq!(complete_from(&table), from("11:00"), "09:57 and the skew");
        table.commit(
            news("11:30")
                .jump(0, 0, 7, JumpKind::Forward)
                .of("shop.items"),
        );
        table.commit(news("11:40").rows(0, 0, &["09:10"]));
        assert_eq!(complete_from(&table), from("12:00"), "lost from ever on");
        table.commit(news("11:50").retire("shop.items"));
        assert_eq!(complete_from(&table), from("12:00"));

        let mut table = with_items();
        let rows = |offset: i64| news("11:23").rows(0, offset, &["10:10"]).of("shop.items");
        table.commit(rows(0));
        table.commit(rows(1));
        table.commit(
            news("12:30")
                .jump(0, 2, 7, JumpKind::Forward)
                .of("shop.items"),
        );
        let gaps = table.state.gaps();
        assert_eq!(gaps.stretches(), gap("10:00", "13:00"));
        let before = complete_from(&table);
        table.commit(news("12:31").retire("shop.items"));
        assert_eq!(table.state.gaps(), gaps);
        assert_eq!(complete_from(&table), before);
    }

    #[test]
    fn older_settings_carry_the_claim_forward_and_do_not_raise_it() {
        let mut table = flowing();
        table.policy.revision = 2;
        table.policy.bounds.allowed_lateness_us = 0;
        table.commit(news("10:45").asked("10:45", 2));
        table.policy = policy();
        for partition in [0, 1] {
            table.commit(
                news("11:30")
                    .rows(partition, 4, &["11:20"])
                    .asked("11:30", 2),
            );
            table.commit(news("11:31").rows(partition, 5, &["11:21"]));
        }
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T10:00:00Z"));
        assert_eq!(table.state.hold(false).by, HeldBy::Policy { revision: 2 });
        table.policy = table.state.policy.clone();
        table.commit(news("11:32"));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T11:00:00Z"));
    }

    #[test]
    fn one_revision_with_two_settings_does_not_raise() {
        let mut table = flowing();
        let other = Policy {
            window_commits: 1,
            ..policy()
        };
        assert!(is_current(&table.state, &policy()) && !is_current(&table.state, &other));
        assert_eq!(other.revision_on(Some(&table.state.policy)), 2);
        assert_eq!(policy().revision_on(Some(&table.state.policy)), 1);
        table.policy = other;
        table.commit(news("10:50"));
        assert_eq!(table.state.policy, policy());
    }

    #[test]
    fn settings_that_hold_more_never_lower_the_claim() {
        let mut table = flowing();
        table.policy = Policy {
            revision: 2,
            window_commits: 9,
            terms: BTreeSet::from([Term::Minimum]),
            ..policy()
        };
        let next = table.commit(news("10:50"));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T10:00:00Z"));
        assert_eq!(
            next.claim.evidence,
            BTreeSet::from([Term::Minimum]),
            "kept from before"
        );
        assert_eq!(next.claim.margin_us, None, "nothing left to measure it by");
    }

    #[test]
    fn rows_below_the_claim_of_the_base_are_late() {
        let mut table = flowing();
        let next = table.commit(news("10:50").rows(0, 4, &["09:59", "10:00", "08:10"]));
        assert_eq!(next.late.cells, [(at("08:00"), 1), (at("09:00"), 1)]);
        assert_eq!(
            table.claim().as_deref(),
            Some("2026-11-30T10:00:00Z"),
            "never lowered"
        );
    }

    #[test]
    fn a_reader_that_accepts_fewer_terms_gets_the_smaller_claim() {
        let mut table = flowing();
        table.commit(
            news("12:21")
                .rows(0, 4, &[])
                .end("12:20", 4)
                .asked("12:20", 2),
        );
        table.commit(news("12:21").rows(1, 4, &[]).end("12:20", 4));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T12:00:00Z"));
        let accepted = |term: Term| table.state.accepted(&BTreeSet::from([term]));
        assert_eq!(accepted(Term::CaughtUp), Some(at("12:00")));
        assert_eq!(accepted(Term::Minimum), Some(at("10:00")));
        assert_eq!(table.state.accepted(&BTreeSet::new()), None);
    }

    #[test]
    fn a_set_of_partitions_only_grows_and_an_older_answer_changes_nothing() {
        let mut table = flowing();
        table.commit(news("10:50").asked("10:50", 1));
        let asked = table.state.asked.clone().unwrap();
        assert_eq!((asked.at_us, asked.topics[TOPIC].len()), (at("10:50"), 2));
        table.commit(news("10:51").asked("10:30", 9));
        assert_eq!(table.state.asked, Some(asked));
    }
}
