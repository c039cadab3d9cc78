//! The tables of the model: every table that any way leads to, once, with what the real code reads from it.
//!
//! A commit is what the sink does in one attempt: judge the batch, ask whether an empty one is wanted, advance, write summary
//! and properties. A table is made of nothing but those, and read back from them. What the oracle says of a table (how
//! far each partition is held) is counted beside it and never read from it.

use std::{borrow::Cow, collections::HashMap};

use tidemark::{
    kafka::TopicPartition,
    sink::{OffsetRange, Verdict, judge},
    watermark::{
        Advanced, Ancestor, Anchor, AskedEnd, AskedPartitions, Asker, Bounds, Contribution, Digest,
        FromRule, GoingOn, Grid, Heartbeats, Identity, LateData, Lineage, Misfit, NewestChange,
        OnJoin, Origin, PartitionNews, Policy, Reading, SECOND_US, Sketch, Standing, State,
        TableView, Term, advance, contract, read_claim, should_commit_empty, stand,
    },
};
use uuid::Uuid;

use super::logs::{DELAY, LATENESS};

pub(super) const PARTITIONS: usize = 2;

/// Seconds of a cell, the least there is.
pub(super) const CELL: u8 = 1;

const TOPIC: &str = "t";
const WRITER: &str = "model.t";
const TABLE: Uuid = Uuid::from_u128(7);

/// The edge of a cell from which the model counts its seconds.
const START_S: i64 = 1_796_029_200;

fn us(second: u8) -> i64 {
    (START_S + i64::from(second)) * SECOND_US
}

fn second(us: i64) -> i64 {
    us.div_euclid(SECOND_US) - START_S
}

/// An answer of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Answer {
    pub(super) at: u8,
    /// How many partitions it names.
    pub(super) partitions: usize,
    /// Of the partitions that are read: high watermark, and what was delivered by then.
    pub(super) ends: [Option<(u8, u8)>; PARTITIONS],
}

/// What a batch holds of one partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Range {
    pub(super) start: u8,
    pub(super) end: u8,
    /// The event times of its rows.
    pub(super) rows: Vec<u8>,
}

/// What a worker wants on the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Errand {
    pub(super) ranges: [Option<Range>; PARTITIONS],
    pub(super) answer: Option<Answer>,
    /// An attempt with it was never answered.
    pub(super) lost: bool,
}

impl Errand {
    fn has_rows(&self) -> bool {
        let mut ranges = self.ranges.iter().flatten();
        ranges.any(|range| !range.rows.is_empty())
    }

    fn offsets(&self) -> Vec<OffsetRange> {
        let numbered = (0..).zip(&self.ranges);
        numbered
            .filter_map(|(partition, range)| {
                let range = range.as_ref()?;
                Some(OffsetRange {
                    at: TopicPartition::new(TOPIC, partition),
                    start: range.start.into(),
                    end: range.end.into(),
                })
            })
            .collect()
    }
}

/// Who commits, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    pub(super) now: u8,
    /// Which of the two settings.
    pub(super) setting: u8,
    pub(super) revision: u64,
}

/// What became of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// This table is the one after it.
    Landed(u32),
    /// Nothing was worth a commit, or another worker anchored first.
    Looked,
    /// It is on the table already.
    Done,
    /// Another worker has the partitions, or the table is not one to go on from.
    Dropped,
}

/// One table.
struct Table {
    properties: HashMap<String, String>,
    lineage: Lineage<'static>,
    /// As the real code reads it; `None` where it does not go on from it.
    state: Option<State>,
    /// It was rolled back, and no commit has said so yet.
    reopens: bool,
    /// What a reader counts on, in seconds.
    claim: Option<i64>,
    /// Newest first, a snapshot each: how far the partitions are held once it is there, counted by the oracle.
    held: Vec<[u8; PARTITIONS]>,
    /// The errands that are on it, newest first.
    errands: Vec<Errand>,
}

/// All tables.
pub(super) struct Tables {
    all: Vec<Table>,
    landed: HashMap<(u32, Attempt, Errand), Outcome>,
    cut: HashMap<(u32, Cut), u32>,
}

/// What happens to a table from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cut {
    /// Main is set back to the snapshot before the newest.
    RolledBack,
    /// Every snapshot but the newest is expired.
    Expired,
}

impl Tables {
    /// The empty table, whose number is 0.
    pub(super) fn new() -> Self {
        let state = State::new(identity(), TOPIC, policy(0, 1), us(0));
        let empty = Table {
            properties: HashMap::new(),
            lineage: Lineage::default(),
            state: Some(state),
            reopens: false,
            claim: None,
            held: Vec::new(),
            errands: Vec::new(),
        };
        Self {
            all: vec![empty],
            landed: HashMap::new(),
            cut: HashMap::new(),
        }
    }

    fn table(&self, number: u32) -> &Table {
        &self.all[number as usize]
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// How many snapshots a table has.
    pub(super) fn snapshots(&self, number: u32) -> usize {
        self.table(number).lineage.snapshots.len()
    }

    /// Whether workers go on from a table by themselves.
    pub(super) fn goes_on(&self, number: u32) -> bool {
        self.table(number).state.is_some()
    }

    /// What a reader counts on, in seconds.
    pub(super) fn claim(&self, number: u32) -> Option<i64> {
        self.table(number).claim
    }

    /// How far a partition is held by the oracle's count.
    pub(super) fn held(&self, number: u32, partition: usize) -> u8 {
        let newest = self.table(number).held.first();
        newest.map_or(0, |held| held[partition])
    }

    /// Where the table says that a partition goes on; `None`: it does not know it.
    pub(super) fn next_offset(&self, number: u32, partition: usize) -> Option<u8> {
        let state = self.table(number).state.as_ref()?;
        let known = state.partition(TOPIC, i32::try_from(partition).unwrap())?;
        Some(u8::try_from(known.next_offset).unwrap())
    }

    /// The revision under which a setting goes on on a table.
    pub(super) fn revision(&self, number: u32, setting: u8) -> u64 {
        let state = self.table(number).state.as_ref();
        let on_table = state.filter(|state| !state.is_new());
        policy(setting, 0).revision_on(on_table.map(|state| &state.policy))
    }

    /// One attempt, on this table and no other.
    ///
    /// # Errors
    /// A broken promise.
    pub(super) fn attempt(
        &mut self,
        base: u32,
        attempt: Attempt,
        errand: &Errand,
    ) -> Result<Outcome, String> {
        let key = (base, attempt, errand.clone());
        if let Some(known) = self.landed.get(&key) {
            return Ok(known.clone());
        }
        let outcome = self.decide(base, attempt, errand)?;
        self.landed.insert(key, outcome.clone());
        Ok(outcome)
    }

    fn decide(&mut self, base: u32, attempt: Attempt, errand: &Errand) -> Result<Outcome, String> {
        let table = self.table(base);
        let Some(state) = table.state_at(attempt.now) else {
            return Ok(Outcome::Dropped);
        };
        let state = &*state;
        if errand.lost && table.errands.iter().any(|known| is_same(known, errand)) {
            return Ok(Outcome::Done);
        }
        let next = |at: &TopicPartition| {
            let known = state.partition(&at.topic, at.partition);
            known.map(|known| known.next_offset)
        };
        match judge(&errand.offsets(), next, errand.lost) {
            Verdict::Go => {}
            Verdict::Done => return Ok(Outcome::Done),
            Verdict::Fenced(_) => return Ok(Outcome::Dropped),
        }
        let policy = policy(attempt.setting, attempt.revision);
        let commit_id = Uuid::from_u128(1 + self.landed.len() as u128);
        let news = contribution(state, attempt, errand, commit_id, &policy);
        let worth = errand.has_rows()
            || table.reopens
            || should_commit_empty(state, &policy, &news).is_some();
        if !worth {
            return Ok(Outcome::Looked);
        }
        let advanced = match advance(state, &policy, &news) {
            Ok(advanced) => advanced,
            Err(Misfit::Anchored { .. } | Misfit::JumpedAlready { .. } | Misfit::Left { .. }) => {
                return Ok(Outcome::Looked);
            }
            Err(_) => return Ok(Outcome::Dropped),
        };
        let next = self.write(base, &advanced, &news, errand)?;
        Ok(Outcome::Landed(next))
    }

    fn write(
        &mut self,
        base: u32,
        advanced: &Advanced,
        news: &Contribution,
        errand: &Errand,
    ) -> Result<u32, String> {
        let table = self.table(base);
        let mut held = table.held.first().copied().unwrap_or_default();
        for (held, range) in held.iter_mut().zip(&errand.ranges) {
            if let Some(range) = range {
                if *held != range.start {
                    return Err(format!("I5: held up to {held}, and {range:?} is committed"));
                }
                *held = range.end;
            }
        }
        let changes = contract::properties(advanced);
        let mut properties = table.properties.clone();
        properties.extend(changes.set);
        for name in changes.remove {
            properties.remove(&name);
        }
        let number = i64::try_from(self.all.len()).unwrap();
        let mut lineage = table.lineage.clone();
        let parent_id = lineage.snapshots.first().map(|parent| parent.snapshot_id);
        let ancestor = Ancestor {
            snapshot_id: number,
            parent_id,
            summary: Cow::Owned(contract::summary(advanced, news).into_iter().collect()),
            picked: None,
        };
        lineage.snapshots.insert(0, ancestor);
        let before = (table.claim, table.state.as_ref().map(epoch));
        let next = self.add(Table {
            held: [vec![held], table.held.clone()].concat(),
            errands: [vec![errand.clone()], table.errands.clone()].concat(),
            properties,
            lineage,
            state: None,
            reopens: false,
            claim: None,
        })?;
        let after = self.table(next);
        let Some(state) = &after.state else {
            return Err("a worker does not go on from its own commit".to_owned());
        };
        if *state != advanced.state {
            return Err(format!(
                "I3: {state:?} is read where {:?} was written",
                advanced.state
            ));
        }
        if before.1 == Some(epoch(state)) && after.claim < before.0 {
            return Err(format!("I4: {:?} after {:?}", after.claim, before.0));
        }
        Ok(next)
    }

    /// Reads a table as workers and readers do, and as a rebuild from its lineage would.
    fn add(&mut self, mut table: Table) -> Result<u32, String> {
        let going_on = go_on(&table.properties, &table.lineage, 0);
        table.reopens = going_on
            .as_ref()
            .is_some_and(|going_on| going_on.rolled_back.is_some());
        table.state = going_on.map(|going_on| going_on.state);
        if let Some(state) = &table.state {
            let mut bare = table.properties.clone();
            bare.remove(&contract::state_property(WRITER));
            let rebuilt = go_on(&bare, &table.lineage, 0).map(|going_on| going_on.state);
            // Behind an expired parent less is known, and what a lost commit had published is said by its state alone.
            let less_known = table.lineage.broken || table.reopens;
            let agrees = rebuilt.as_ref().is_some_and(|rebuilt| {
                *rebuilt == *state || (less_known && is_as_far(rebuilt, state))
            });
            if !agrees {
                return Err(format!("I3: {rebuilt:?} is rebuilt where {state:?} stands"));
            }
        }
        table.claim = match read_claim(&view(&table.properties, &table.lineage)) {
            Reading::Claim(claim) => claim.claim.finalized_before_us.map(second),
            Reading::Nothing | Reading::Held { .. } => None,
        };
        self.all.push(table);
        Ok(u32::try_from(self.all.len() - 1).unwrap())
    }

    /// What a cut leaves of a table.
    ///
    /// # Errors
    /// A broken promise.
    pub(super) fn cut(&mut self, number: u32, cut: Cut) -> Result<u32, String> {
        if let Some(known) = self.cut.get(&(number, cut)) {
            return Ok(*known);
        }
        let table = self.table(number);
        let mut next = Table {
            properties: table.properties.clone(),
            lineage: table.lineage.clone(),
            state: None,
            reopens: false,
            claim: None,
            held: table.held.clone(),
            errands: table.errands.clone(),
        };
        match cut {
            Cut::RolledBack => {
                next.lineage.snapshots.remove(0);
                next.held.remove(0);
                next.errands.remove(0);
            }
            Cut::Expired => {
                next.lineage.snapshots.truncate(1);
                next.lineage.broken = true;
                next.held.truncate(1);
                next.errands.truncate(1);
            }
        }
        let next = self.add(next)?;
        self.cut.insert((number, cut), next);
        Ok(next)
    }
}

/// Where a worker goes on, if it does so by itself.
fn go_on(
    properties: &HashMap<String, String>,
    lineage: &Lineage<'_>,
    now: u8,
) -> Option<Box<GoingOn>> {
    match stand(&Asker::new(WRITER, us(now)), &view(properties, lineage)) {
        Ok(Standing::GoesOn(going_on)) => Some(going_on),
        Ok(Standing::Begins(_)) | Err(_) => None,
    }
}

impl Table {
    /// The state that an attempt goes on from. A roll-back is taken up with a step of the epoch, which has its time.
    fn state_at(&self, now: u8) -> Option<Cow<'_, State>> {
        if self.reopens {
            let going_on = go_on(&self.properties, &self.lineage, now)?;
            return Some(Cow::Owned(going_on.state));
        }
        self.state.as_ref().map(Cow::Borrowed)
    }
}

fn is_same(known: &Errand, errand: &Errand) -> bool {
    known.ranges == errand.ranges && known.answer == errand.answer
}

fn epoch(state: &State) -> u64 {
    state.published.epoch
}

/// Whether two states stand at the same offsets and publish the same.
fn is_as_far(rebuilt: &State, state: &State) -> bool {
    let offsets = |state: &State| -> Vec<(i32, i64)> {
        let partitions = state.partitions();
        partitions
            .map(|(_, partition, known)| (partition, known.next_offset))
            .collect()
    };
    offsets(rebuilt) == offsets(state)
        && epoch(rebuilt) == epoch(state)
        && rebuilt.published.finalized_before_us == state.published.finalized_before_us
}

fn view<'a>(properties: &'a HashMap<String, String>, lineage: &'a Lineage<'_>) -> TableView<'a> {
    TableView {
        table_uuid: TABLE,
        table_ref: "main",
        properties,
        lineage,
    }
}

fn identity() -> Identity {
    Identity {
        writer: WRITER.to_owned(),
        cluster_id: "cluster".to_owned(),
        installation: "here".to_owned(),
        table_uuid: TABLE,
        table_ref: "main".to_owned(),
    }
}

/// The first setting wants one commit on record, the second two.
fn policy(setting: u8, revision: u64) -> Policy {
    Policy {
        revision,
        grid: Grid::new(i64::from(CELL) * SECOND_US).unwrap(),
        bounds: Bounds {
            allowed_lateness_us: i64::from(LATENESS) * SECOND_US,
            max_delay_us: i64::from(DELAY) * SECOND_US,
            max_future_skew_us: SECOND_US,
            max_age_us: None,
        },
        window_commits: 1 + u32::from(setting),
        window_duration_us: 0,
        terms: [Term::Minimum, Term::CaughtUp].into(),
        complete_from: FromRule::Derived,
        late_data: LateData::Notify,
        on_join: OnJoin::Reopen,
        quantile: None,
        heartbeats: Heartbeats::None,
    }
}

/// What the sink makes of an errand.
fn contribution(
    base: &State,
    attempt: Attempt,
    errand: &Errand,
    commit_id: Uuid,
    policy: &Policy,
) -> Contribution {
    let answer = errand.answer.as_ref();
    let named = 0..answer.map_or(0, |answer| i32::try_from(answer.partitions).unwrap());
    let anchors = answer.into_iter().flat_map(|answer| {
        let unknown = named
            .clone()
            .filter(|partition| base.partition(TOPIC, *partition).is_none());
        unknown.map(|partition| Anchor {
            topic: TOPIC.to_owned(),
            topic_id: Some(Uuid::from_u128(9)),
            partition,
            offset: 0,
            origin: Origin::New,
            at_us: us(answer.at),
        })
    });
    let mut news = Contribution {
        anchors: anchors.collect(),
        asked: answer.map(|answer| AskedPartitions {
            at_us: us(answer.at),
            topics: [(TOPIC.to_owned(), named.clone().collect())].into(),
        }),
        ..Contribution::empty((commit_id, "worker"), TOPIC, policy.grid, us(attempt.now))
    };
    for (place, range) in errand.ranges.iter().enumerate() {
        let Some(range) = range else { continue };
        let times: Vec<i64> = range.rows.iter().map(|time| us(*time)).collect();
        let mut digest = Digest::default();
        digest.extend(&times);
        news.cells.extend(&times);
        news.rows += times.len() as u64;
        let sketch = digest.finish();
        let asked_end = answer.and_then(|answer| {
            let (high_watermark, delivered) = answer.ends[place]?;
            Some(AskedEnd {
                at_us: us(answer.at),
                high_watermark: high_watermark.into(),
                delivered: delivered.into(),
                heartbeat_us: None,
            })
        });
        news.partitions.push(PartitionNews {
            topic: TOPIC.to_owned(),
            partition: i32::try_from(place).unwrap(),
            start_offset: range.start.into(),
            end_offset: range.end.into(),
            before: None,
            leader_epoch: None,
            stats: sketch.as_ref().map(Sketch::stats),
            positions: None,
            newest_change: sketch.is_some().then_some(NewestChange {
                record_time_us: us(attempt.now),
                snapshot: false,
            }),
            resolved_us: None,
            asked_end,
        });
    }
    news
}
