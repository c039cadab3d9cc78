//! The source against a real broker: positions over transactions, identity, lost positions, rebalances, dead letters.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::Message as _;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Headers as _;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::{Offset, TopicPartitionList};
use tidemark::kafka::{
    Answers, DeadLetters, Error, Event, Header, Inquirer, Mode, Next, Position, Rejected, Security,
    Settings, Source, StartFrom, Tail, TopicPartition, Topics,
};

use super::support::kafka::{Broker, REQUEST};
use super::support::wait::within;

const SOON: Duration = Duration::from_mins(1);
const TICK: Duration = Duration::from_millis(50);

fn settings(broker: &Broker, group: &str) -> Settings {
    Settings {
        security: Security::default(),
        bootstrap_servers: broker.bootstrap(),
        group_id: group.to_owned(),
        member: format!("{group}-worker"),
        properties: BTreeMap::new(),
        memory_budget_bytes: 256 << 20,
    }
}

fn inquirer(broker: &Broker) -> Inquirer {
    Inquirer::create(&settings(broker, "inquirer")).unwrap()
}

fn only(answers: Answers) -> i64 {
    let mut answers: Vec<_> = answers.into_values().collect();
    assert_eq!(answers.len(), 1);
    answers.remove(0).unwrap()
}

/// What a source has delivered.
#[derive(Default)]
struct Seen {
    rows: Vec<(TopicPartition, i64, String)>,
    ends: BTreeMap<TopicPartition, i64>,
    failures: Vec<Error>,
    assigned: Vec<TopicPartition>,
    revoked: Vec<TopicPartition>,
    group_offsets: usize,
}

impl Seen {
    fn poll(&mut self, source: &mut Source) {
        let chunk = source.poll_chunk(500, TICK);
        for message in chunk.messages() {
            let value = String::from_utf8_lossy(message.value().unwrap_or_default()).into_owned();
            self.rows
                .push((message.at().clone(), message.offset(), value));
        }
        for event in chunk.into_events() {
            match event {
                Event::EndOfPartition { slot, offset, .. } => {
                    let at = source.partition(slot).unwrap().clone();
                    self.ends.insert(at, offset);
                }
                Event::Failed(error) => self.failures.push(error),
                Event::Assigned(partitions) => self.assigned.extend(partitions),
                Event::Revoked { partitions, .. } => self.revoked.extend(partitions),
                Event::GroupOffsetsCommitted(outcome) => {
                    outcome.unwrap();
                    self.group_offsets += 1;
                }
            }
        }
    }

    fn offsets(&self) -> Vec<i64> {
        self.rows.iter().map(|(_, offset, _)| *offset).collect()
    }
}

fn read_until(source: &mut Source, what: &str, done: impl Fn(&Seen) -> bool) -> Seen {
    let mut seen = Seen::default();
    within(SOON, what, || {
        seen.poll(source);
        done(&seen).then_some(())
    });
    seen
}

/// A source that reads one partition from one position.
fn reading(broker: &Broker, at: &TopicPartition, position: Position) -> Source {
    let mut source = Source::create(&settings(broker, &at.topic), Mode::Assign, 1).unwrap();
    source.assign(&[(at.clone(), position)]).unwrap();
    source
}

fn numbered(count: usize) -> Vec<(&'static str, &'static str)> {
    vec![("k", "v"); count]
}

fn transactional(broker: &Broker, id: &str) -> BaseProducer {
    let producer: BaseProducer = broker.client(&[("transactional.id", id)]).create().unwrap();
    producer.init_transactions(REQUEST).unwrap();
    producer
}

fn send(producer: &BaseProducer, at: &TopicPartition, values: &[&str]) {
    for value in values {
        let record = BaseRecord::<str, str>::to(&at.topic)
            .partition(at.partition)
            .payload(*value);
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(REQUEST).unwrap();
}

/// The claim rests on the high watermark: the last stable offset would call a partition caught up while a transaction holds rows.
#[test]
fn high_watermark_is_not_held_by_an_open_transaction() {
    let broker = Broker::shared();
    let at = TopicPartition::new(broker.topic("open_transaction", 1), 0);
    let producer = transactional(broker, &at.topic);
    let inquirer = inquirer(broker);
    let mut source = reading(broker, &at, Position::at(0));

    producer.begin_transaction().unwrap();
    send(&producer, &at, &["a", "b", "c"]);
    assert_eq!(
        only(
            inquirer
                .high_watermarks(std::slice::from_ref(&at), SOON)
                .unwrap()
        ),
        3
    );
    let seen = read_until(&mut source, "the last stable offset", |seen| {
        !seen.ends.is_empty()
    });
    assert_eq!((seen.rows.len(), seen.ends[&at]), (0, 0));

    producer.commit_transaction(REQUEST).unwrap();
    let seen = read_until(&mut source, "the control record's end", |seen| {
        seen.ends.get(&at) == Some(&4)
    });
    assert_eq!(seen.offsets(), [0, 1, 2]);
    assert_eq!(
        only(
            inquirer
                .high_watermarks(std::slice::from_ref(&at), SOON)
                .unwrap()
        ),
        4
    );
}

/// Without the end-of-partition event a partition that ends in aborted records could never be shown to be caught up.
#[test]
fn position_goes_over_aborted_records() {
    let broker = Broker::shared();
    let at = TopicPartition::new(broker.topic("aborted", 1), 0);
    let producer = transactional(broker, &at.topic);
    producer.begin_transaction().unwrap();
    send(&producer, &at, &["never", "never"]);
    producer.abort_transaction(REQUEST).unwrap();

    let mut source = reading(broker, &at, Position::at(0));
    let seen = read_until(&mut source, "the end over aborted records", |seen| {
        seen.ends.get(&at) == Some(&3)
    });
    assert_eq!(seen.rows, []);
    let positions: Vec<_> = source
        .positions()
        .map(|(_, at, position)| (at.clone(), position.next_offset))
        .collect();
    assert_eq!(positions, [(at.clone(), 3)]);

    // The same again after a pause, and after a seek back: neither loses the event.
    source.pause(std::slice::from_ref(&at)).unwrap();
    source.resume(std::slice::from_ref(&at)).unwrap();
    source.seek(&[(at.clone(), Position::at(1))]).unwrap();
    let seen = read_until(&mut source, "the end after a seek", |seen| {
        seen.ends.get(&at) == Some(&3)
    });
    assert_eq!(seen.rows, []);
}

#[test]
fn partitions_added_later_are_found_and_read_from_their_start() {
    let broker = Broker::shared();
    let topic = broker.topic("added", 1);
    let (first, second) = (
        TopicPartition::new(topic.as_str(), 0),
        TopicPartition::new(topic.as_str(), 1),
    );
    let inquirer = inquirer(broker);
    let listed = Topics::List(vec![topic.clone()]);
    let before = inquirer.topics(&listed, SOON).unwrap();
    assert_eq!(before[0].partitions, [0]);
    assert!(before[0].id.is_some());
    let mut source = reading(broker, &first, Position::at(0));
    broker.write(&topic, 0, numbered(2));

    broker.add_partitions(&topic, 2);
    let after = within(SOON, "the new partition", || {
        inquirer
            .topics(&listed, SOON)
            .ok()
            .filter(|topics| topics[0].partitions == [0, 1])
    });
    assert_eq!(after[0].id, before[0].id);
    broker.write(&topic, 1, numbered(3));
    source.assign(&[(second.clone(), Position::at(0))]).unwrap();
    let done =
        |seen: &Seen| seen.ends.get(&first) == Some(&2) && seen.ends.get(&second) == Some(&3);
    assert_eq!(
        read_until(&mut source, "both partitions", done).rows.len(),
        5
    );
}

#[test]
fn a_pattern_matches_whole_names_and_one_missing_topic_fails_the_list() {
    let broker = Broker::shared();
    let (a, b) = (broker.topic("pattern_a", 1), broker.topic("pattern_b", 2));
    let other = broker.topic("not_pattern_a", 1);
    let inquirer = inquirer(broker);
    let names = within(SOON, "both topics", || {
        let found = inquirer
            .topics(&Topics::Pattern("pattern_[ab]_.*".to_owned()), SOON)
            .unwrap();
        let names: Vec<_> = found
            .into_iter()
            .map(|topic| topic.name)
            .filter(|name| [&a, &b, &other].contains(&name))
            .collect();
        (names.len() >= 2).then_some(names)
    });
    assert_eq!(names, [a.clone(), b]);
    let missing = inquirer
        .topics(&Topics::List(vec![a, "no_such_topic".to_owned()]), SOON)
        .unwrap_err();
    assert!(
        matches!(&missing, Error::TopicNotFound { topic } if topic == "no_such_topic"),
        "{missing}"
    );
    assert_eq!(missing.next(), Next::AwaitChange);
    let all = inquirer
        .topics(&Topics::Pattern(".*".to_owned()), SOON)
        .unwrap();
    assert!(
        all.iter().all(|topic| !topic.name.starts_with("__")),
        "{all:?}"
    );
}

#[test]
fn a_recreated_topic_has_another_id() {
    let broker = Broker::shared();
    let at = TopicPartition::new(broker.topic("recreated", 1), 0);
    let (inquirer, listed) = (inquirer(broker), Topics::List(vec![at.topic.to_string()]));
    let before = inquirer.topics(&listed, SOON).unwrap().remove(0);
    broker.write(&at.topic, 0, numbered(5));
    let mut source = reading(broker, &at, Position::at(0));
    let _ = read_until(&mut source, "five rows", |seen| seen.rows.len() == 5);

    broker.delete_topic(&at.topic);
    let gone = inquirer.topics(&listed, SOON).unwrap_err();
    assert!(matches!(gone, Error::TopicNotFound { .. }), "{gone}");
    broker.create_topic(&at.topic, 1, &[]);
    broker.write(&at.topic, 0, numbered(2));
    let after = within(SOON, "the new topic", || {
        inquirer.topics(&listed, SOON).ok()
    })
    .remove(0);
    assert_ne!(after.id, before.id);

    // The running consumer wants offset 5 of a log that ends at 2: it must not begin somewhere else.
    let seen = read_until(&mut source, "the lost position", |seen| {
        !seen.failures.is_empty()
    });
    assert_eq!(seen.rows, []);
    assert!(
        seen.failures.iter().any(|error| error.next() == Next::Stop),
        "{:?}",
        seen.failures
    );
}

/// librdkafka reads on in the new topic as if it were the old one: nothing but the id, asked after the last record of a batch
/// and before its commit, tells them apart.
#[test]
fn a_recreated_topic_that_reaches_further_is_told_by_its_id_alone() {
    let broker = Broker::shared();
    let at = TopicPartition::new(broker.topic("recreated_longer", 1), 0);
    let (inquirer, listed) = (inquirer(broker), Topics::List(vec![at.topic.to_string()]));
    let before = inquirer.topics(&listed, SOON).unwrap().remove(0);
    broker.write(&at.topic, 0, numbered(2));
    let mut source = reading(broker, &at, Position::at(0));
    let _ = read_until(&mut source, "two rows", |seen| seen.rows.len() == 2);

    broker.delete_topic(&at.topic);
    broker.create_topic(&at.topic, 1, &[]);
    broker.write(&at.topic, 0, numbered(5));
    let seen = read_until(&mut source, "rows of the new topic", |seen| {
        seen.rows.len() == 3
    });
    assert_eq!(seen.offsets(), [2, 3, 4]);
    assert!(seen.failures.is_empty(), "{:?}", seen.failures);
    let after = inquirer.topics(&listed, SOON).unwrap().remove(0);
    assert_ne!(after.id, before.id);
}

/// Deleted before it was read: the pipeline stops there and knows how many records are gone.
#[test]
fn a_position_below_the_log_start_is_reported_and_explained() {
    let broker = Broker::shared();
    let at = TopicPartition::new(broker.topic("deleted_records", 1), 0);
    broker.write(&at.topic, 0, numbered(9));
    broker.delete_records(&at.topic, 0, 6);
    let inquirer = inquirer(broker);
    assert_eq!(
        only(
            inquirer
                .log_starts(std::slice::from_ref(&at), SOON)
                .unwrap()
        ),
        6
    );
    let mut source = reading(broker, &at, Position::at(2));
    let seen = read_until(&mut source, "the lost position", |seen| {
        !seen.failures.is_empty()
    });
    assert_eq!(seen.rows, []);
    assert!(
        matches!(seen.failures[0], Error::PositionLost { offset: 2, .. }),
        "{:?}",
        seen.failures
    );
    let explained = inquirer.explain(&at, 2, SOON).unwrap();
    assert!(
        matches!(
            explained,
            Error::LogStartMoved {
                offset: 2,
                log_start: 6,
                ..
            }
        ),
        "{explained}"
    );
    assert!(
        explained.to_string().ends_with("4 records are gone"),
        "{explained}"
    );
}

#[test]
fn a_position_above_the_end_is_a_truncated_log() {
    let broker = Broker::shared();
    let at = TopicPartition::new(broker.topic("above_the_end", 1), 0);
    broker.write(&at.topic, 0, numbered(3));
    let mut source = reading(broker, &at, Position::at(7));
    let seen = read_until(&mut source, "the lost position", |seen| {
        !seen.failures.is_empty()
    });
    assert_eq!(seen.rows, []);
    let explained = inquirer(broker).explain(&at, 7, SOON).unwrap();
    assert!(
        matches!(
            explained,
            Error::LogTruncated {
                offset: 7,
                log_end: 3,
                ..
            }
        ),
        "{explained}"
    );
}

/// The log was cut at 3 and written anew by the next leader: offset 6 is there again, but behind it stand other records.
#[test]
fn a_log_written_anew_under_the_position_is_found_by_the_leader_epoch() {
    let broker = Broker::start_own(&[]);
    let at = TopicPartition::new(broker.topic("epochs", 1), 0);
    broker.write(&at.topic, 0, numbered(3));
    let mut source = reading(&broker, &at, Position::at(0));
    let _ = read_until(&mut source, "three rows", |seen| seen.rows.len() == 3);
    let epoch = source.positions().next().unwrap().2.leader_epoch.unwrap();
    drop(source);
    broker.stop();
    broker.start();
    broker.write(&at.topic, 0, numbered(5));

    let old = Position {
        next_offset: 6,
        leader_epoch: Some(epoch),
    };
    let mut source = reading(&broker, &at, old);
    let seen = read_until(&mut source, "the truncation", |seen| {
        !seen.failures.is_empty()
    });
    assert_eq!(seen.rows, []);
    assert!(
        matches!(seen.failures[0], Error::PositionLost { offset: 6, .. }),
        "{:?}",
        seen.failures
    );
    let explained = inquirer(&broker).explain(&at, 6, SOON).unwrap();
    assert!(
        matches!(
            explained,
            Error::LogTruncated {
                offset: 6,
                log_end: 8,
                ..
            }
        ),
        "{explained}"
    );

    // Where the epoch did end, reading goes on.
    let right = Position {
        next_offset: 3,
        leader_epoch: Some(epoch),
    };
    source.seek(&[(at.clone(), right)]).unwrap();
    let seen = read_until(&mut source, "five rows", |seen| seen.rows.len() == 5);
    assert_eq!(seen.offsets(), [3, 4, 5, 6, 7]);
    assert!(source.positions().next().unwrap().2.leader_epoch.unwrap() > epoch);
}

#[test]
fn start_offsets_follow_timestamps_and_end_at_the_high_watermark() {
    let broker = Broker::shared();
    let at = TopicPartition::new(broker.topic("timestamps", 1), 0);
    let producer: BaseProducer = broker.client(&[]).create().unwrap();
    for timestamp_ms in [1_000, 2_000, 3_000] {
        let record = BaseRecord::<str, str>::to(&at.topic)
            .partition(0)
            .payload("v")
            .timestamp(timestamp_ms);
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(REQUEST).unwrap();
    let inquirer = inquirer(broker);
    let start = |from| {
        only(
            inquirer
                .start_offsets(std::slice::from_ref(&at), from, SOON)
                .unwrap(),
        )
    };
    assert_eq!(start(StartFrom::Earliest), 0);
    assert_eq!(start(StartFrom::Latest), 3);
    assert_eq!(start(StartFrom::Timestamp(1_500_000)), 1);
    assert_eq!(start(StartFrom::Timestamp(2_000_000)), 1);
    assert_eq!(start(StartFrom::Timestamp(9_000_000)), 3);
}

/// An answer for one partition must not be lost, nor invented, because another one does not exist.
#[test]
fn offsets_of_unknown_partitions_are_errors_of_their_own() {
    let broker = Broker::shared();
    let topic = broker.topic("unknown_partition", 1);
    broker.write(&topic, 0, numbered(2));
    let asked = [
        TopicPartition::new(topic.as_str(), 0),
        TopicPartition::new(topic.as_str(), 7),
        TopicPartition::new("no_such_topic", 0),
    ];
    let mut answers = inquirer(broker).high_watermarks(&asked, SOON).unwrap();
    assert_eq!(answers.len(), 3);
    assert_eq!(answers.remove(&asked[0]).unwrap().unwrap(), 2);
    for (at, answer) in answers {
        assert!(
            matches!(&answer, Err(Error::NoAnswer { .. })),
            "{at}: {answer:?}"
        );
    }
}

#[test]
fn a_silent_broker_is_unreachable_within_the_timeout_and_reading_goes_on_after_it() {
    let broker = Broker::start_own(&[]);
    let at = TopicPartition::new(broker.topic("silent", 1), 0);
    broker.write(&at.topic, 0, numbered(2));
    let inquirer = inquirer(&broker);
    let mut source = reading(&broker, &at, Position::at(0));
    let cluster = inquirer.cluster_id(SOON).unwrap();
    assert_eq!(cluster.len(), 22);
    let _ = read_until(&mut source, "two rows", |seen| seen.rows.len() == 2);
    broker.kill();
    let short = Duration::from_secs(2);
    for failed in [
        inquirer
            .high_watermarks(std::slice::from_ref(&at), short)
            .map(drop)
            .unwrap_err(),
        inquirer
            .topics(&Topics::List(vec![at.topic.to_string()]), short)
            .map(drop)
            .unwrap_err(),
    ] {
        assert_eq!(failed.next(), Next::Later, "{failed}");
    }
    broker.start();
    broker.write(&at.topic, 0, numbered(2));
    let seen = read_until(&mut source, "two more rows", |seen| seen.rows.len() == 2);
    assert_eq!(seen.offsets(), [2, 3]);
    assert!(
        seen.failures
            .iter()
            .all(|error| error.next() == Next::Later),
        "{:?}",
        seen.failures
    );
    assert_eq!(inquirer.cluster_id(SOON).unwrap(), cluster);
}

/// One member of a group, with what it has read but not committed.
struct Member {
    source: Source,
    buffered: Vec<(TopicPartition, i64)>,
}

impl Member {
    fn join(broker: &Broker, topic: &str) -> Self {
        let mut settings = settings(broker, topic);
        settings
            .properties
            .insert("session.timeout.ms".to_owned(), "6000".to_owned());
        let mut source = Source::create(&settings, Mode::Group, 6).unwrap();
        source.subscribe(&[topic.to_owned()]).unwrap();
        Self {
            source,
            buffered: Vec::new(),
        }
    }

    /// Reads a little, and answers the group as a worker does: commit first, then let go.
    fn turn(&mut self, table: &mut Table) {
        let chunk = self.source.poll_chunk(20, TICK);
        self.buffered.extend(
            chunk
                .messages()
                .map(|message| (message.at().clone(), message.offset())),
        );
        for event in chunk.into_events() {
            match event {
                Event::Assigned(partitions) => {
                    let next = |at: &TopicPartition| table.next.get(at).copied().unwrap_or(0);
                    let starts: Vec<_> = partitions
                        .iter()
                        .map(|at| (at.clone(), Position::at(next(at))))
                        .collect();
                    self.source.assign(&starts).unwrap();
                    table.assignments += partitions.len();
                }
                Event::Revoked { partitions, lost } => {
                    if !lost {
                        self.commit(table);
                    }
                    self.buffered.clear();
                    self.source.release(&partitions).unwrap();
                    table.revocations += partitions.len();
                }
                Event::Failed(error) => assert_eq!(error.next(), Next::Later, "{error}"),
                Event::EndOfPartition { .. } | Event::GroupOffsetsCommitted(_) => {}
            }
        }
    }

    fn commit(&mut self, table: &mut Table) {
        for (at, offset) in self.buffered.drain(..) {
            let next = table.next.entry(at.clone()).or_insert(0);
            assert_eq!(*next, offset, "{at}: a row is lost or doubled");
            *next = offset + 1;
        }
        let held: Vec<_> = self
            .source
            .positions()
            .map(|(_, at, _)| at.clone())
            .collect();
        let offsets: Vec<_> = table
            .next
            .iter()
            .filter(|(at, _)| held.contains(at))
            .map(|(at, next)| (at.clone(), *next))
            .collect();
        if !offsets.is_empty() {
            self.source.commit_group_offsets(&offsets).unwrap();
        }
    }

    fn holds(&self) -> usize {
        self.source.positions().count()
    }
}

/// Stands for the table: the next offset of each partition.
#[derive(Default)]
struct Table {
    next: BTreeMap<TopicPartition, i64>,
    assignments: usize,
    revocations: usize,
}

impl Table {
    fn rows(&self) -> i64 {
        self.next.values().sum()
    }
}

/// Rebalances are values, so a worker commits what it has buffered before it lets go: every row once, whoever reads it.
#[test]
fn rebalances_of_three_members_lose_and_double_nothing() {
    let broker = Broker::shared();
    let topic = broker.topic("three_members", 6);
    let write =
        |count| (0..6).for_each(|partition| broker.write(&topic, partition, numbered(count)));
    let (mut table, mut members) = (Table::default(), Vec::new());
    let mut expected = 0;
    for joined in 1..=3 {
        members.push(Member::join(broker, &topic));
        write(50);
        expected += 300;
        within(SOON, "an even share and every row", || {
            for member in &mut members {
                member.turn(&mut table);
            }
            let even = members.iter().all(|member| member.holds() == 6 / joined);
            let mut read = table.rows();
            read += i64::try_from(
                members
                    .iter()
                    .map(|member| member.buffered.len())
                    .sum::<usize>(),
            )
            .unwrap();
            (even && read == expected).then_some(())
        });
    }
    assert!(table.revocations >= 4, "{} revocations", table.revocations);

    // One leaves without a word to the others; what it had not committed is read again.
    members.remove(0);
    write(50);
    expected += 300;
    within(SOON, "the rows of the member that left", || {
        for member in &mut members {
            member.turn(&mut table);
            member.commit(&mut table);
        }
        (table.rows() == expected).then_some(())
    });
    assert_eq!(table.next.len(), 6);
    group_offsets_follow(broker, &topic, &table, &mut members);
}

fn group_offsets_follow(broker: &Broker, topic: &str, table: &Table, members: &mut [Member]) {
    let consumer: BaseConsumer = broker.client(&[("group.id", topic)]).create().unwrap();
    let mut list = TopicPartitionList::new();
    for partition in 0..6 {
        list.add_partition(topic, partition);
    }
    within(SOON, "group offsets as the table's", || {
        for member in &mut *members {
            let _ = member.source.poll_chunk(1, TICK);
        }
        let committed = consumer.committed_offsets(list.clone(), SOON).ok()?;
        let as_table = table.next.iter().all(|(at, next)| {
            let element = committed.find_partition(&at.topic, at.partition);
            element.is_some_and(|element| element.offset() == Offset::Offset(*next))
        });
        as_table.then_some(())
    });
}

fn rejected<'r>(at: &'r TopicPartition, value: &'r [u8]) -> Rejected<'r> {
    Rejected {
        at,
        offset: 41,
        timestamp_us: Some(1_700_000_000_123_000),
        key: Some(b"k\0"),
        value: Some(value),
        reason: "NotJson",
        error: "byte 0: expected an object",
    }
}

#[test]
fn dead_letters_keep_the_record_and_say_where_it_stood() {
    let broker = Broker::shared();
    let topic = broker.topic("dead", 1);
    let at = TopicPartition::new("orders", 3);
    let mut letters = DeadLetters::create(&settings(broker, "dead"), &topic).unwrap();
    assert_eq!(letters.flush(SOON).unwrap(), 0);
    let own = [
        Header {
            name: "trace",
            value: Some(b"t1"),
        },
        Header {
            name: "empty",
            value: None,
        },
    ];
    letters
        .send(&rejected(&at, b"\xff\x00"), own.into_iter())
        .unwrap();
    letters
        .send(
            &Rejected {
                key: None,
                value: None,
                ..rejected(&at, b"")
            },
            std::iter::empty(),
        )
        .unwrap();
    assert_eq!(letters.flush(SOON).unwrap(), 2);
    assert_eq!(letters.flush(SOON).unwrap(), 0);

    let consumer: BaseConsumer = broker.client(&[("group.id", "dead")]).create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&topic, 0, Offset::Beginning)
        .unwrap();
    consumer.assign(&list).unwrap();
    let letter = within(SOON, "the letter", || consumer.poll(TICK)).unwrap();
    assert_eq!(
        (letter.key(), letter.payload()),
        (Some(b"k\0".as_slice()), Some(b"\xff\x00".as_slice()))
    );
    assert_eq!(letter.timestamp().to_millis(), Some(1_700_000_000_123));
    let headers: Vec<_> = letter
        .headers()
        .unwrap()
        .iter()
        .map(|header| (header.key, header.value))
        .collect();
    let text = |text: &'static str| Some(text.as_bytes());
    assert_eq!(
        headers,
        [
            ("trace", text("t1")),
            ("empty", None),
            ("tidemark.reason", text("NotJson")),
            ("tidemark.topic", text("orders")),
            ("tidemark.partition", text("3")),
            ("tidemark.offset", text("41")),
            ("tidemark.error", text("byte 0: expected an object")),
        ]
    );
    let second = within(SOON, "the second letter", || consumer.poll(TICK)).unwrap();
    assert_eq!((second.key(), second.payload()), (None, None));
}

/// A batch whose dead letters are not confirmed must not be committed; the next try counts from nothing.
#[test]
fn unconfirmed_dead_letters_fail_the_batch() {
    let broker = Broker::shared();
    let topic = super::support::server::own_name("dead_small");
    broker.create_topic(&topic, 1, &[("max.message.bytes", "1000")]);
    let at = TopicPartition::new("orders", 0);
    let mut letters = DeadLetters::create(&settings(broker, "dead"), &topic).unwrap();
    letters
        .send(&rejected(&at, b"small"), std::iter::empty())
        .unwrap();
    assert_eq!(letters.flush(SOON).unwrap(), 1);
    letters
        .send(&rejected(&at, &[b'x'; 5_000]), std::iter::empty())
        .unwrap();
    let failed = letters.flush(SOON).unwrap_err();
    assert!(
        matches!(
            failed,
            Error::Undelivered {
                sent: 1,
                undelivered: 1,
                ..
            }
        ),
        "{failed}"
    );
    letters
        .send(&rejected(&at, b"small"), std::iter::empty())
        .unwrap();
    assert_eq!(letters.flush(SOON).unwrap(), 1);
}

/// What a topic says last is found over markers, records that say nothing and the first record of all, again and again.
#[test]
fn tail_finds_the_newest_record_that_means_something() {
    let broker = Broker::shared();
    let at = TopicPartition::new(broker.topic("tail", 2), 1);
    let settings = settings(broker, "tail");
    let mut tail = Tail::create(&settings, inquirer(broker).into(), &at.topic).unwrap();
    let mut newest = || {
        let told = tail.newest(SOON, |message| {
            let value = String::from_utf8_lossy(message.value()?).into_owned();
            (value != "noise").then_some((message.offset(), value))
        });
        told.unwrap()
    };
    assert_eq!(newest(), []);
    let first = || [(0, "first".to_owned())];
    broker.write(&at.topic, at.partition, [("k", "first")]);
    assert_eq!(newest(), first());
    broker.write(&at.topic, at.partition, vec![("k", "noise"); 50]);
    assert_eq!(newest(), first(), "50 records further back");

    let producer = transactional(broker, &at.topic);
    producer.begin_transaction().unwrap();
    send(&producer, &at, &["second"]);
    producer.commit_transaction(REQUEST).unwrap();
    let second = || [(51, "second".to_owned())];
    assert_eq!(newest(), second());
    producer.begin_transaction().unwrap();
    send(&producer, &at, &["aborted"]);
    assert_eq!(newest(), second(), "an open transaction");
    producer.abort_transaction(REQUEST).unwrap();
    assert_eq!(newest(), second());
    broker.write(&at.topic, at.partition, vec![("k", "noise"); 4_200]);
    assert_eq!(newest(), [], "too far back");

    let none = Tail::create(&settings, inquirer(broker).into(), "no-such-topic");
    let refused = none.unwrap().newest(SOON, |_| Some(())).unwrap_err();
    assert_eq!(refused.reason(), "TopicNotFound");
}
