//! The newest record of a topic that means something: for topics in which only what was said last counts, as heartbeats.
//!
//! Comes in: a reader of records. Goes out: what it made of the newest record of each partition, read from the end of the log,
//! as far back as a few thousand offsets. A consumer of its own without a group; nothing is remembered between two calls.
//!
//! An answer is whole or an error: a partition that cannot be read is never passed over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{
    Error, Event, Inquirer, Message, Mode, Position, Settings, Source, TopicPartition, Topics,
};

/// How far back the first look goes: a heartbeat and the marker of its transaction, a few times over.
const FIRST: i64 = 16;

/// By how much each further look goes further back, and how far the last one goes: a topic of heartbeats has nothing else in it,
/// and one that is something else is not read as a whole.
const FURTHER: i64 = 16;
const LAST: i64 = 4_096;

/// Records taken from the client at once, and how long to wait for the first.
const CHUNK: usize = 100;
const POLL: Duration = Duration::from_millis(50);

/// Reads the end of one topic. Belongs to one thread at a time.
pub struct Tail {
    source: Source,
    inquirer: Arc<Inquirer>,
    topic: Topics,
}

impl Tail {
    /// Makes the consumer; no broker is asked yet.
    ///
    /// # Errors
    /// A refused or unknown property, or a client that cannot be created.
    pub fn create(
        settings: &Settings,
        inquirer: Arc<Inquirer>,
        topic: &str,
    ) -> Result<Self, Error> {
        let settings = Settings {
            // The least there is: a heartbeat has some dozen bytes.
            memory_budget_bytes: 0,
            ..settings.clone()
        };
        Ok(Self {
            source: Source::create(&settings, Mode::Assign, 1)?,
            inquirer,
            topic: Topics::List(vec![topic.to_owned()]),
        })
    }

    /// What `read` makes of the newest record of each partition of which it makes something. The log is looked at up to its end
    /// at the time of the call; records of open transactions are not there yet. Waits up to `timeout` for each step.
    ///
    /// # Errors
    /// The topic does not exist, or one of its partitions cannot be read in time.
    pub fn newest<T>(
        &mut self,
        timeout: Duration,
        mut read: impl FnMut(Message<'_>) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        let partitions = self.inquirer.topics(&self.topic, timeout)?;
        let named = |topic: super::TopicInfo| {
            let name: Arc<str> = topic.name.into();
            let numbers = topic.partitions.into_iter();
            numbers.map(move |partition| TopicPartition::new(Arc::clone(&name), partition))
        };
        let partitions: Vec<TopicPartition> = partitions.into_iter().flat_map(named).collect();
        let starts = offsets(self.inquirer.log_starts(&partitions, timeout)?)?;
        let ends = offsets(self.inquirer.high_watermarks(&partitions, timeout)?)?;
        let mut found = Vec::new();
        let mut missing: Vec<TopicPartition> = partitions
            .into_iter()
            .filter(|at| ends[at] > starts[at])
            .collect();
        let mut back = FIRST;
        while !missing.is_empty() && back <= LAST {
            let from = |at: &TopicPartition| Position::at((ends[at] - back).max(starts[at]));
            let reading: Vec<_> = missing.iter().map(|at| (at.clone(), from(at))).collect();
            self.source.assign(&reading)?;
            let newest = self.read_to(&ends, timeout, &mut read);
            // Whatever became of it, the next look begins anew.
            self.source.release(&missing)?;
            let newest = newest?;
            missing.retain(|at| {
                let whole = from(at).next_offset == starts[at];
                !newest.contains_key(at) && !whole
            });
            found.extend(newest.into_values());
            back *= FURTHER;
        }
        Ok(found)
    }

    /// Reads what is assigned up to these ends. An end-of-partition event alone would never come where records arrive faster
    /// than the broker lets a fetch wait; without it the position would never pass a transaction's marker, or an open one.
    fn read_to<T>(
        &mut self,
        ends: &BTreeMap<TopicPartition, i64>,
        timeout: Duration,
        read: &mut impl FnMut(Message<'_>) -> Option<T>,
    ) -> Result<BTreeMap<TopicPartition, T>, Error> {
        let mut newest = BTreeMap::new();
        let mut ended = BTreeSet::new();
        let mut patience = timeout;
        loop {
            let chunk = self.source.poll_chunk(CHUNK, POLL);
            let mut silent = true;
            for message in chunk.messages() {
                silent = false;
                if let Some(told) = read(message) {
                    newest.insert(message.at().clone(), told);
                }
            }
            for event in chunk.into_events() {
                silent = false;
                match event {
                    Event::EndOfPartition { slot, .. } => drop(ended.insert(slot)),
                    // The client as a whole heals by itself; what it cannot read in time is an error below.
                    Event::Failed(Error::Client { .. }) => {}
                    Event::Failed(error) => return Err(error),
                    _ => {}
                }
            }
            let mut positions = self.source.positions();
            let read_whole = |(slot, at, position): (u32, &TopicPartition, Position)| {
                ended.contains(&slot) || position.next_offset >= ends[at]
            };
            if positions.all(read_whole) {
                return Ok(newest);
            }
            if silent {
                patience = patience.saturating_sub(POLL);
            }
            if patience.is_zero() {
                return Err(self.inquirer.unreachable("the end of a topic", timeout));
            }
        }
    }
}

fn offsets(answers: super::Answers) -> Result<BTreeMap<TopicPartition, i64>, Error> {
    let answers = answers.into_iter();
    answers
        .map(|(at, offset)| Ok((at, offset?)))
        .collect::<Result<_, Error>>()
}
