//! One consumer: records in chunks, ends of partitions, rebalances as values.
//!
//! Comes in: which partitions to read from where. Goes out: a [`Chunk`] of borrowed messages and the events behind them.
//! It is made for one plain thread, which owns it; questions that wait for brokers belong to the `Inquirer`.
//!
//! Nothing that was queued before a partition was moved or given up is ever handed out: librdkafka drops it by its version
//! barrier, the source by the offset it waits for, and the generation on every message and event lets the caller check.

use std::time::Duration;

use rdkafka::TopicPartitionList;
use rdkafka::consumer::Consumer as _;

use super::desk::{Desk, Slot, index};
use super::notice::fill;
use super::sys::{self, Headers, RawMessage};
use super::{Code, Error, Position, Settings, TopicPartition};

/// A seek is acknowledged by librdkafka's own thread, no broker is asked: longer means that it is overloaded.
const SEEK_TIMEOUT: Duration = Duration::from_secs(1);

/// How a source comes to its partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The caller assigns all of them; nobody else reads for this pipeline. No membership, no rebalance.
    Assign,
    /// The group shares them out (cooperative-sticky); the caller answers its rebalances.
    Group,
}

/// What happened besides messages.
#[derive(Debug)]
pub enum Event {
    /// Everything up to `offset` (exclusive) has been delivered: aborted records, control records and compacted ones among
    /// them never will be. Under `read_committed` this is the last stable offset.
    EndOfPartition {
        /// Number of the partition, see [`Source::partition`].
        slot: u32,
        /// The position reached.
        offset: i64,
        /// The generation of the partition's position.
        generation: u32,
    },
    /// The group gives this worker more partitions, perhaps none. Fetching rests until [`Source::assign`] answers for all.
    Assigned(Vec<TopicPartition>),
    /// The group takes partitions away. Fetching rests until [`Source::release`] answers with all of them; commit first.
    Revoked {
        /// The partitions to give up.
        partitions: Vec<TopicPartition>,
        /// Somebody else may read them already: drop what is buffered, do not commit.
        lost: bool,
    },
    /// The answer to [`Source::commit_group_offsets`]. Only lag tools depend on it.
    GroupOffsetsCommitted(Result<(), Code>),
    /// Something failed; [`Error::next`] says what to do.
    Failed(Error),
}

/// The consumer of one pipeline.
pub struct Source {
    native: sys::Consumer,
    mode: Mode,
    desk: Desk,
}

impl Source {
    /// Makes the consumer; nothing is read before `assign` or `subscribe`. `partitions` is how many the pipeline has: the
    /// fetch buffers are divided by it.
    ///
    /// # Errors
    /// A refused or unknown property, or a client that cannot be created. No broker is asked.
    pub fn create(settings: &Settings, mode: Mode, partitions: usize) -> Result<Self, Error> {
        let config = settings.consumer(partitions)?;
        let native = sys::Consumer::new(&config).map_err(|source| Error::Create { source })?;
        let desk = Desk::default();
        Ok(Self { native, mode, desk })
    }

    /// How this source comes to its partitions.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Joins the group for exactly these topics, or changes them. A pattern is resolved by the `Inquirer`, so that one
    /// engine decides what matches.
    ///
    /// # Errors
    /// What librdkafka says at once; the rest comes as events.
    pub fn subscribe(&mut self, topics: &[String]) -> Result<(), Error> {
        debug_assert_eq!(
            self.mode,
            Mode::Group,
            "only a member of a group subscribes"
        );
        let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
        let subscribed = self.native.client().subscribe(&topics);
        subscribed.map_err(|source| Error::Call {
            call: "subscribing",
            source,
        })
    }

    /// Takes what is there: at most `most` messages, waiting up to `timeout` for the first. Call it at least every few
    /// minutes, or the group takes the partitions away.
    pub fn poll_chunk(&mut self, most: usize, timeout: Duration) -> Chunk<'_> {
        self.settle();
        let Self { native, desk, .. } = self;
        let notices = fill(native, most, timeout, |message| desk.sort(message));
        let events = notices
            .into_iter()
            .filter_map(|notice| desk.event(notice))
            .collect();
        Chunk {
            native,
            desk,
            events,
        }
    }

    /// Begins to read these partitions at these positions, besides the ones already assigned. In a group it answers
    /// [`Event::Assigned`] and must name all its partitions.
    ///
    /// With a leader epoch the position is checked against the log first; a log that was truncated below it shows as
    /// [`Error::PositionLost`] in a later chunk, and nothing of that partition is delivered.
    ///
    /// # Errors
    /// A partition that is assigned already, or a rebalance that has ended meanwhile.
    pub fn assign(&mut self, starts: &[(TopicPartition, Position)]) -> Result<(), Error> {
        let assigned = lines(starts).and_then(|list| self.native.incremental_assign(&list));
        assigned.map_err(|code| Error::Question {
            question: "assigning partitions",
            code,
        })?;
        self.desk.begin(starts);
        self.settle();
        Ok(())
    }

    /// Gives partitions up. In a group it answers [`Event::Revoked`] and must name all its partitions.
    ///
    /// # Errors
    /// A partition that is not assigned, or a rebalance that has ended meanwhile.
    pub fn release(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        self.desk.end(partitions);
        let list = sys::List::of(partitions.iter().map(|at| (at, 0, None)));
        let released = list.and_then(|list| self.native.incremental_unassign(&list));
        released.map_err(|code| Error::Question {
            question: "releasing partitions",
            code,
        })
    }

    /// Moves assigned partitions: the next message of each is the first at or after its new position. What was queued is
    /// dropped. Positions with a leader epoch are checked as in `assign`.
    ///
    /// # Errors
    /// The first partition that is not assigned; then none is moved.
    pub fn seek(&mut self, positions: &[(TopicPartition, Position)]) -> Result<(), Error> {
        self.desk.relocate(positions)?;
        self.settle();
        Ok(())
    }

    /// Stops fetching; what is queued is dropped and fetched again after [`Self::resume`]. Keep polling.
    ///
    /// # Errors
    /// A partition that librdkafka does not know.
    pub fn pause(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        let paused = self.native.client().pause(&names(partitions));
        paused.map_err(|source| Error::Call {
            call: "pausing",
            source,
        })
    }

    /// Fetches again where `pause` stopped.
    ///
    /// # Errors
    /// A partition that librdkafka does not know.
    pub fn resume(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        let resumed = self.native.client().resume(&names(partitions));
        resumed.map_err(|source| Error::Call {
            call: "resuming",
            source,
        })
    }

    /// Tells the group how far the *table* has got, for lag tools. The answer comes as an event.
    ///
    /// # Errors
    /// What librdkafka says at once.
    pub fn commit_group_offsets(&self, offsets: &[(TopicPartition, i64)]) -> Result<(), Error> {
        let list = sys::List::of(
            offsets
                .iter()
                .map(|(at, next_offset)| (at, *next_offset, None)),
        );
        let sent = list.and_then(|list| self.native.commit(&list));
        sent.map_err(|code| Error::Question {
            question: "committing group offsets",
            code,
        })
    }

    /// The partition behind a slot number. Slots are given in order of first assignment and never taken back.
    #[must_use]
    pub fn partition(&self, slot: u32) -> Option<&TopicPartition> {
        self.desk.slots.get(index(slot)).map(|slot| &slot.at)
    }

    /// The slot of a partition, if it ever was assigned.
    #[must_use]
    pub fn slot(&self, at: &TopicPartition) -> Option<u32> {
        self.desk.numbers.get(at).copied()
    }

    /// Every assigned partition with the position *delivered*: max(last message + 1, newest end of partition).
    pub fn positions(&self) -> impl Iterator<Item = (u32, &TopicPartition, Position)> {
        let numbered = (0..).zip(&self.desk.slots);
        numbered
            .filter(|(_, slot)| slot.assigned)
            .map(|(number, slot)| (number, &slot.at, slot.position))
    }

    /// Messages and events of earlier generations, and messages below the position, that were dropped so far.
    #[must_use]
    pub fn discarded(&self) -> u64 {
        self.desk.discarded
    }

    /// After a lost position librdkafka has stopped the partition for good and refuses to move it: it begins anew.
    fn restart(&mut self) {
        let stopped = self.desk.stopped();
        if stopped.is_empty() {
            return;
        }
        let restarted = lines(&stopped).and_then(|list| {
            self.native.incremental_unassign(&list)?;
            self.native.incremental_assign(&list)
        });
        match restarted {
            Ok(()) => self.desk.started(),
            Err(code) => tracing::warn!(%code, "stopped partitions cannot be started again yet"),
        }
    }

    /// Carries out moves that are due. librdkafka refuses a seek while a partition is being stopped or started; then the
    /// move stays due, nothing of the partition is delivered, and the next poll tries again.
    fn settle(&mut self) {
        if self.desk.moving.is_empty() {
            return;
        }
        self.restart();
        let due = self
            .desk
            .moving
            .iter()
            .filter_map(|number| self.desk.slots.get(index(*number)));
        let lines = due.map(|slot| {
            (
                &slot.at,
                slot.position.next_offset,
                slot.position.leader_epoch,
            )
        });
        let Ok(list) = sys::List::of(lines) else {
            return;
        };
        if let Err(code) = self.native.seek(&list, SEEK_TIMEOUT) {
            tracing::debug!(%code, "seek is not acknowledged yet");
            return;
        }
        for element in list
            .elements()
            .into_iter()
            .filter(|element| element.code == Code::OK)
        {
            if let Some(number) = self.desk.numbers.get(&element.at).copied() {
                self.desk.settled(number);
            }
        }
    }
}

/// The lines of a list that starts reading.
fn lines<'p>(
    lines: impl IntoIterator<Item = &'p (TopicPartition, Position)>,
) -> Result<sys::List, Code> {
    sys::List::of(
        lines
            .into_iter()
            .map(|(at, position)| (at, position.next_offset, position.leader_epoch)),
    )
}

fn names(partitions: &[TopicPartition]) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for at in partitions {
        list.add_partition(&at.topic, at.partition);
    }
    list
}

/// What one poll brought: messages in the order of their partitions, then events.
pub struct Chunk<'s> {
    native: &'s sys::Consumer,
    desk: &'s Desk,
    events: Vec<Event>,
}

impl<'s> Chunk<'s> {
    /// The messages. They borrow from the source: decode them before the next poll.
    #[must_use]
    pub fn messages(&self) -> impl ExactSizeIterator<Item = Message<'s>> + use<'s> {
        let desk = self.desk;
        self.native.held().map(move |raw| Message {
            raw,
            slot: &desk.slots[index(raw.tag)],
        })
    }

    /// The events; each is newer than all messages of its partition in this chunk.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The events, to be answered after the messages are dealt with.
    #[must_use]
    pub fn into_events(self) -> Vec<Event> {
        self.events
    }
}

/// One record, borrowed from the source.
#[derive(Clone, Copy)]
pub struct Message<'s> {
    raw: RawMessage<'s>,
    slot: &'s Slot,
}

impl<'s> Message<'s> {
    /// Number of the partition, see [`Source::partition`].
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.raw.tag
    }

    /// Topic and partition.
    #[must_use]
    pub fn at(&self) -> &'s TopicPartition {
        &self.slot.at
    }

    /// The generation of the partition's position.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.slot.generation
    }

    /// The record's offset.
    #[must_use]
    pub fn offset(&self) -> i64 {
        self.raw.offset()
    }

    /// The record's timestamp in µs since 1970 (Kafka keeps ms), if it has one.
    #[must_use]
    pub fn timestamp_us(&self) -> Option<i64> {
        self.raw
            .timestamp_ms()
            .map(|timestamp_ms| timestamp_ms.saturating_mul(1_000))
    }

    /// Epoch of the leader that took the record, if the broker says it.
    #[must_use]
    pub fn leader_epoch(&self) -> Option<i32> {
        self.raw.leader_epoch()
    }

    /// The key, if the record has one.
    #[must_use]
    pub fn key(&self) -> Option<&'s [u8]> {
        self.raw.key()
    }

    /// The value; `None` is a tombstone.
    #[must_use]
    pub fn value(&self) -> Option<&'s [u8]> {
        self.raw.value()
    }

    /// The headers in their order, parsed only when asked for.
    #[must_use]
    pub fn headers(&self) -> Headers<'s> {
        self.raw.headers()
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::ClientConfig;
    use rdkafka::message::OwnedHeaders;
    use rdkafka::mocking::MockCluster;
    use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _};
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

    use super::*;
    use crate::kafka::{Inquirer, Next, Security, Topics};

    const TICK: Duration = Duration::from_millis(100);
    /// Looks until something must have come: 60 s.
    const LOOKS: usize = 600;

    struct Fixture {
        cluster: MockCluster<'static, DefaultProducerContext>,
    }

    impl Fixture {
        fn with_topics(topics: &[(&str, i32)]) -> Self {
            let cluster = MockCluster::new(1).unwrap();
            for (topic, partitions) in topics {
                cluster.create_topic(topic, *partitions, 1).unwrap();
            }
            Self { cluster }
        }

        fn settings(&self) -> Settings {
            Settings {
                security: Security::default(),
                bootstrap_servers: self.cluster.bootstrap_servers(),
                group_id: "group".to_owned(),
                member: "member".to_owned(),
                // A fetch that waits at the end of the log holds the next one up, half a second a seek; the mock cluster
                // waits a whole session for the members that are there.
                properties: [
                    ("fetch.wait.max.ms", "20"),
                    ("session.timeout.ms", "3000"),
                    ("heartbeat.interval.ms", "200"),
                ]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
                memory_budget_bytes: 64 << 20,
            }
        }

        fn source(&self, mode: Mode) -> Source {
            Source::create(&self.settings(), mode, 1).unwrap()
        }

        fn client(&self) -> ClientConfig {
            let mut config = ClientConfig::new();
            config
                .set("bootstrap.servers", self.cluster.bootstrap_servers())
                .set("linger.ms", "1");
            config
        }

        /// Record n has the value n.
        fn produce(&self, at: &TopicPartition, count: usize) {
            let producer: BaseProducer = self.client().create().unwrap();
            for number in 0..count {
                let value = number.to_string();
                let record = BaseRecord::<str, str>::to(&at.topic)
                    .partition(at.partition)
                    .payload(&value);
                producer.send(record).map_err(|(error, _)| error).unwrap();
            }
            producer.flush(Duration::from_secs(30)).unwrap();
        }
    }

    fn at(topic: &str, partition: i32) -> TopicPartition {
        TopicPartition::new(topic, partition)
    }

    type Places = Vec<(TopicPartition, i64)>;

    /// Offsets delivered and ends reached, until `done` says so.
    fn read(
        source: &mut Source,
        most: usize,
        done: impl Fn(&Places, &Places) -> bool,
    ) -> (Places, Places) {
        let (mut rows, mut ends) = (Vec::new(), Vec::new());
        for _ in 0..LOOKS {
            let chunk = source.poll_chunk(most, TICK);
            for message in chunk.messages() {
                assert_eq!(
                    message.value(),
                    Some(message.offset().to_string().as_bytes())
                );
                rows.push((message.at().clone(), message.offset()));
            }
            for event in chunk.into_events() {
                match event {
                    Event::EndOfPartition { slot, offset, .. } => {
                        ends.push((source.partition(slot).unwrap().clone(), offset));
                    }
                    Event::Failed(Error::Client { .. }) => {}
                    other => panic!("{other:?}"),
                }
            }
            if done(&rows, &ends) {
                return (rows, ends);
            }
        }
        panic!("not delivered: {rows:?} {ends:?}");
    }

    /// rdkafka's own poll would say "partition 1", of which topic and at what offset nobody knows.
    #[test]
    fn end_of_partition_tells_topic_and_offset() {
        let fixture = Fixture::with_topics(&[("a", 2), ("b", 2)]);
        fixture.produce(&at("a", 1), 5);
        fixture.produce(&at("b", 1), 3);
        let mut source = fixture.source(Mode::Assign);
        let starts = [
            (at("a", 1), Position::at(0)),
            (at("b", 1), Position::at(1)),
            (at("b", 0), Position::at(0)),
        ];
        source.assign(&starts).unwrap();
        let (rows, mut ends) = read(&mut source, 100, |_, ends| ends.len() == 3);
        ends.sort();
        assert_eq!(ends, [(at("a", 1), 5), (at("b", 0), 0), (at("b", 1), 3)]);
        assert_eq!(rows.len(), 7);
        assert_eq!(source.slot(&at("b", 1)), Some(1));
        assert_eq!(source.discarded(), 0);
    }

    /// A tombstone is not an empty value, and both mean something to a format.
    #[test]
    fn a_record_comes_as_it_was_sent() {
        let fixture = Fixture::with_topics(&[("t", 1)]);
        let producer: BaseProducer = fixture.client().create().unwrap();
        let headers = OwnedHeaders::new()
            .insert(rdkafka::message::Header {
                key: "a",
                value: Some("1"),
            })
            .insert(rdkafka::message::Header {
                key: "b",
                value: None::<&str>,
            })
            .insert(rdkafka::message::Header {
                key: "a",
                value: Some(""),
            });
        let record = BaseRecord::to("t")
            .key("k")
            .payload("v")
            .timestamp(1_700_000_000_123)
            .headers(headers);
        producer.send(record).map_err(|(error, _)| error).unwrap();
        producer
            .send(BaseRecord::to("t").key("").payload(""))
            .map_err(|(error, _)| error)
            .unwrap();
        producer
            .send(BaseRecord::<str, str>::to("t"))
            .map_err(|(error, _)| error)
            .unwrap();
        producer.flush(Duration::from_secs(30)).unwrap();

        let mut source = fixture.source(Mode::Assign);
        source.assign(&[(at("t", 0), Position::at(0))]).unwrap();
        let mut seen = 0;
        for _ in 0..LOOKS {
            for message in source.poll_chunk(10, TICK).messages() {
                let bytes = (message.key(), message.value());
                let headers: Vec<_> = message
                    .headers()
                    .map(|header| (header.name, header.value))
                    .collect();
                match message.offset() {
                    0 => {
                        assert_eq!(bytes, (Some(b"k".as_slice()), Some(b"v".as_slice())));
                        let empty = Some(b"".as_slice());
                        assert_eq!(
                            headers,
                            [("a", Some(b"1".as_slice())), ("b", None), ("a", empty)]
                        );
                        assert_eq!(message.timestamp_us(), Some(1_700_000_000_123_000));
                        assert_eq!(message.leader_epoch(), Some(0));
                    }
                    1 => assert_eq!(bytes, (Some(b"".as_slice()), Some(b"".as_slice()))),
                    _ => assert_eq!((bytes, headers), ((None, None), vec![])),
                }
                seen += 1;
            }
            if seen == 3 {
                return;
            }
        }
        panic!("{seen} of 3 records");
    }

    /// The queue is full of what was fetched before the seek: one such record in the new batch would be a doubled row.
    #[test]
    fn what_was_queued_before_a_seek_is_never_delivered() {
        let fixture = Fixture::with_topics(&[("t", 1)]);
        let t = at("t", 0);
        fixture.produce(&t, 3_000);
        let mut source = fixture.source(Mode::Assign);
        source.assign(&[(t.clone(), Position::at(0))]).unwrap();
        let mut random = fastrand::Rng::with_seed(7);
        let mut target = 0;
        let mut generation = 0;
        for _ in 0..100 {
            let most = random.usize(1..400);
            let (rows, _) = read(&mut source, most, |rows, _| !rows.is_empty());
            let expected: Vec<_> = (target..)
                .take(rows.len())
                .map(|offset| (t.clone(), offset))
                .collect();
            assert_eq!(rows, expected);
            target = random.i64(0..2_900);
            source.seek(&[(t.clone(), Position::at(target))]).unwrap();
            assert!(source.desk.slots[0].generation > generation);
            generation = source.desk.slots[0].generation;
        }
    }

    #[test]
    fn a_released_partition_delivers_nothing_more_and_may_come_back() {
        let fixture = Fixture::with_topics(&[("t", 2)]);
        let (t0, t1) = (at("t", 0), at("t", 1));
        fixture.produce(&t0, 2_000);
        fixture.produce(&t1, 2_000);
        let mut source = fixture.source(Mode::Assign);
        source
            .assign(&[(t0.clone(), Position::at(0)), (t1.clone(), Position::at(0))])
            .unwrap();
        let _ = read(&mut source, 10, |rows, _| rows.len() >= 10);
        for round in 1..10 {
            source.release(std::slice::from_ref(&t0)).unwrap();
            let (rows, _) = read(&mut source, 20, |rows, _| !rows.is_empty());
            assert!(
                rows.iter().all(|(at, _)| *at == t1),
                "round {round}: {rows:?}"
            );
            source
                .assign(&[(t0.clone(), Position::at(round * 100))])
                .unwrap();
            let (rows, _) = read(&mut source, 50, |rows, _| {
                rows.iter().any(|(at, _)| *at == t0)
            });
            let first = rows.iter().find(|(at, _)| *at == t0).unwrap();
            assert_eq!(first.1, round * 100);
            source.seek(&[(t1.clone(), Position::at(0))]).unwrap();
        }
    }

    /// A pause drops what is queued; what was delivered before must not come again after it.
    #[test]
    fn a_pause_loses_and_doubles_nothing() {
        let fixture = Fixture::with_topics(&[("t", 1)]);
        let t = at("t", 0);
        fixture.produce(&t, 2_000);
        let mut source = fixture.source(Mode::Assign);
        source.assign(&[(t.clone(), Position::at(0))]).unwrap();
        let mut all = Vec::new();
        while all.len() < 2_000 {
            let (rows, _) = read(&mut source, 170, |rows, _| !rows.is_empty());
            all.extend(rows);
            source.pause(std::slice::from_ref(&t)).unwrap();
            let chunk = source.poll_chunk(10, Duration::ZERO);
            assert_eq!(chunk.messages().len(), 0);
            source.resume(std::slice::from_ref(&t)).unwrap();
        }
        let offsets: Vec<_> = all.iter().map(|(_, offset)| *offset).collect();
        assert_eq!(offsets, (0..2_000).collect::<Vec<_>>());
    }

    /// A position that is gone is told, with what was wanted; a seek to one that is there goes on, with and without an epoch.
    #[test]
    fn a_lost_position_is_told_and_a_seek_goes_on() {
        let fixture = Fixture::with_topics(&[("t", 2)]);
        let (t, other) = (at("t", 0), at("t", 1));
        fixture.produce(&t, 10);
        for leader_epoch in [None, Some(0)] {
            let mut source = fixture.source(Mode::Assign);
            let lost = Position {
                next_offset: 50,
                leader_epoch,
            };
            source
                .assign(&[(t.clone(), lost), (other.clone(), Position::at(0))])
                .unwrap();
            let failure = (0..LOOKS).find_map(|_| {
                let chunk = source.poll_chunk(10, TICK);
                assert_eq!(chunk.messages().len(), 0);
                chunk
                    .into_events()
                    .into_iter()
                    .find_map(|event| match event {
                        Event::Failed(error) if error.next() == Next::Stop => Some(error),
                        _ => None,
                    })
            });
            let failure = failure.unwrap();
            assert!(
                matches!(
                    failure,
                    Error::PositionLost {
                        partition: 0,
                        offset: 50,
                        ..
                    }
                ),
                "{failure}"
            );
            source
                .seek(&[(
                    t.clone(),
                    Position {
                        next_offset: 3,
                        leader_epoch,
                    },
                )])
                .unwrap();
            let (rows, _) = read(&mut source, 10, |rows, _| rows.len() == 7);
            assert_eq!(rows[0], (t.clone(), 3));
        }
    }

    /// librdkafka tries again for ever; the worker must be able to say where and why.
    #[test]
    fn a_fetch_that_fails_tells_its_place() {
        let fixture = Fixture::with_topics(&[("t", 1)]);
        fixture.produce(&at("t", 0), 3);
        fixture.cluster.request_errors(
            RDKafkaApiKey::Fetch,
            &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_MSG; 3],
        );
        let mut source = fixture.source(Mode::Assign);
        source.assign(&[(at("t", 0), Position::at(1))]).unwrap();
        let failure = (0..LOOKS).find_map(|_| {
            let events = source.poll_chunk(10, TICK).into_events();
            events.into_iter().find_map(|event| match event {
                Event::Failed(error @ Error::Fetch { .. }) => Some(error),
                _ => None,
            })
        });
        let failure = failure.unwrap();
        assert_eq!(failure.next(), Next::Stop);
        let text = failure.to_string();
        assert!(
            text.starts_with("topic \"t\", partition 0, offset 1: INVALID_MSG"),
            "{text}"
        );
    }

    /// The caller answers when it is ready; nothing is fetched before, and dropping a source with an answer due does not hang.
    #[test]
    fn rebalances_wait_for_the_answer() {
        let fixture = Fixture::with_topics(&[("t", 2)]);
        fixture.produce(&at("t", 0), 10);
        fixture.produce(&at("t", 1), 10);
        let mut first = fixture.source(Mode::Group);
        first.subscribe(&["t".to_owned()]).unwrap();
        let mut given = assigned(&mut first);
        given.sort();
        assert_eq!(given, [at("t", 0), at("t", 1)]);
        assert_eq!(first.poll_chunk(10, TICK).messages().len(), 0);
        let starts: Vec<_> = given
            .iter()
            .map(|at| (at.clone(), Position::at(4)))
            .collect();
        first.assign(&starts).unwrap();
        let (rows, _) = read(&mut first, 10, |rows, _| rows.len() == 12);
        assert!(rows.iter().all(|(_, offset)| *offset >= 4), "{rows:?}");

        let mut second = fixture.source(Mode::Group);
        second.subscribe(&["t".to_owned()]).unwrap();
        let revoked = (0..LOOKS).find_map(|_| {
            drop(second.poll_chunk(10, Duration::ZERO));
            let events = first.poll_chunk(10, TICK).into_events();
            events.into_iter().find_map(|event| match event {
                Event::Revoked { partitions, lost } => Some((partitions, lost)),
                _ => None,
            })
        });
        let (revoked, lost) = revoked.unwrap();
        assert_eq!((revoked.len(), lost), (1, false));
        drop(first);
        drop(second);
    }

    fn assigned(source: &mut Source) -> Vec<TopicPartition> {
        let given = (0..LOOKS).find_map(|_| {
            let events = source.poll_chunk(10, TICK).into_events();
            events.into_iter().find_map(|event| match event {
                Event::Assigned(partitions) => Some(partitions),
                _ => None,
            })
        });
        given.unwrap()
    }

    #[test]
    fn a_mock_cluster_answers_what_the_demo_asks() {
        let fixture = Fixture::with_topics(&[("orders", 3), ("orders.v2", 1)]);
        fixture.produce(&at("orders", 2), 7);
        let inquirer = Inquirer::create(&fixture.settings()).unwrap();
        let wait = Duration::from_secs(30);
        let topics = inquirer
            .topics(&Topics::List(vec!["orders".to_owned()]), wait)
            .unwrap();
        assert_eq!(topics[0].partitions, [0, 1, 2]);
        let matched = inquirer
            .topics(&Topics::Pattern("orders".to_owned()), wait)
            .unwrap();
        assert_eq!(matched, topics);
        let asked = [at("orders", 0), at("orders", 2)];
        let answers = inquirer.high_watermarks(&asked, wait).unwrap();
        let offsets: Vec<_> = answers.into_values().map(Result::unwrap).collect();
        assert_eq!(offsets, [0, 7]);
        assert!(!inquirer.cluster_id(wait).unwrap().is_empty());
    }
}
