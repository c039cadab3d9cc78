//! News that cannot be committed on the base they were brought to.

use uuid::Uuid;

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
    /// The anchor was not derived from what the table remembers: the partition left it meanwhile, or is back through another
    /// worker.
    #[error(
        "partition {topic}/{partition}: it was anchored without regard to the offset at which it left the table, {next_offset:?}; look again"
    )]
    Left {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// Where it left; `None`: the table does not remember it.
        next_offset: Option<i64>,
    },
    /// The topic joins, and the table no longer knows each topic that has left.
    #[error(
        "topic \"{topic}\" may have been read before: the table no longer knows each topic that has left"
    )]
    Forgotten {
        /// The topic.
        topic: String,
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
    /// A stretch is to be retracted of which nothing is published.
    #[error(
        "nothing is published from {} on: the table claims {}; retract a stretch that begins before that",
        super::super::contract::iso(*.from_us),
        .claim_us.map_or_else(|| "nothing".to_owned(), |us| format!("what lies before {}", super::super::contract::iso(us)))
    )]
    NotPublished {
        /// Where the stretch begins.
        from_us: i64,
        /// The claim.
        claim_us: Option<i64>,
    },
    /// A stretch is to be retracted whose end no row has reached yet.
    #[error(
        "{} is still to come; retract a stretch that ends at {} at the latest",
        super::super::contract::iso(*.before_us),
        super::super::contract::iso(*.latest_us)
    )]
    StillToCome {
        /// Where the stretch ends.
        before_us: i64,
        /// Where it may end at the latest.
        latest_us: i64,
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
