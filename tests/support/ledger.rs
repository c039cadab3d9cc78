//! A producer of change events that keeps its own record of what it sent and where the broker put it.
//!
//! It runs on a thread of its own until it is stopped. Event times are the wall clock's, put back at random by up to a little less than
//! the allowed lateness, so every row keeps that bound; whether it kept the delay as well, the record tells.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, SystemTime},
};

use rdkafka::{
    ClientConfig, ClientContext, Message,
    error::{KafkaError, RDKafkaErrorCode},
    producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer},
};

use super::{
    judge::Sent,
    kafka::{Broker, REQUEST, read_committed},
};

/// Rows waiting for the broker's answer when the producer stops making more: what an outage can make late.
const IN_FLIGHT: usize = 200;

/// What to send.
pub(crate) struct Plan {
    pub(crate) topic: String,
    pub(crate) partitions: i32,
    pub(crate) rows_per_second: u32,
    /// Event times are put back by less than this.
    pub(crate) lateness: Duration,
    /// Sends in transactions, one after the other, and aborts some of them.
    pub(crate) transactions: Option<Transactions>,
    /// Makes the message of an event.
    pub(crate) message: fn(&Event) -> (String, String),
}

/// How transactions go.
#[derive(Clone, Copy)]
pub(crate) struct Transactions {
    /// How long one is open, at most.
    pub(crate) open: Duration,
    /// How many in a hundred are aborted.
    pub(crate) aborted_percent: u32,
}

/// One event to make a message of.
pub(crate) struct Event {
    /// Counts from 0 and never repeats.
    pub(crate) number: u64,
    pub(crate) event_time_us: i64,
}

/// A producer at work.
pub(crate) struct Ledger {
    record: Arc<Record>,
    thread: Option<JoinHandle<()>>,
    /// For the transactions whose end only the log knows.
    reader: ClientConfig,
}

/// What the producer's thread, the client's thread and the test look at.
struct Record {
    stop: AtomicBool,
    partitions: AtomicI32,
    in_flight: AtomicUsize,
    open_transaction: AtomicBool,
    delivered: Mutex<Vec<Delivered>>,
    aborted: Mutex<BTreeSet<u64>>,
    /// Transactions whose commit was asked for and never answered: a later abort does not say that it did not take effect.
    unanswered: Mutex<BTreeSet<u64>>,
    /// Why a row outside of transactions was not taken, ever: none may be lost without a word.
    refused: Mutex<Option<String>>,
}

struct Delivered {
    sent: Sent,
    transaction: Option<u64>,
}

impl Ledger {
    /// Starts to produce.
    pub(crate) fn start(broker: &Broker, plan: Plan) -> Self {
        let record = Arc::new(Record {
            stop: AtomicBool::new(false),
            partitions: AtomicI32::new(plan.partitions),
            in_flight: AtomicUsize::new(0),
            open_transaction: AtomicBool::new(false),
            delivered: Mutex::default(),
            aborted: Mutex::default(),
            unanswered: Mutex::default(),
            refused: Mutex::default(),
        });
        let mut config = broker.client(&[
            ("enable.idempotence", "true"),
            ("linger.ms", "2"),
            ("message.timeout.ms", "0"),
            // Or a new partition is found after five minutes.
            ("topic.metadata.refresh.interval.ms", "500"),
        ]);
        if plan.transactions.is_some() {
            config
                .set("transactional.id", &plan.topic)
                .set("transaction.timeout.ms", "60000");
            config.set("message.timeout.ms", "60000");
        }
        let producer = new_producer(&config, &record);
        let mut sender = Sender {
            producer,
            config,
            plan,
            record: record.clone(),
            number: 0,
            transaction: 0,
        };
        let thread = std::thread::spawn(move || sender.run());
        Self {
            record,
            thread: Some(thread),
            reader: broker.reader(),
        }
    }

    /// Lets it use partitions that were added.
    pub(crate) fn set_partitions(&self, partitions: i32) {
        self.record.partitions.store(partitions, Ordering::Relaxed);
    }

    /// How many rows the broker has acknowledged.
    pub(crate) fn delivered(&self) -> usize {
        self.record
            .delivered
            .lock()
            .expect("no panic under this lock")
            .len()
    }

    /// Whether rows of an open transaction are in the log now.
    pub(crate) fn in_a_transaction(&self) -> bool {
        self.record.open_transaction.load(Ordering::Relaxed)
    }

    /// Stops, waits for every answer, and gives the record.
    pub(crate) fn stop(mut self) -> Vec<Sent> {
        self.record.stop.store(true, Ordering::Relaxed);
        self.thread
            .take()
            .expect("stopped once")
            .join()
            .expect("a producer that ended well");
        let refused = self
            .record
            .refused
            .lock()
            .expect("no panic under this lock")
            .take();
        assert_eq!(refused, None, "a row that the broker did not take");
        let delivered = std::mem::take(
            &mut *self
                .record
                .delivered
                .lock()
                .expect("no panic under this lock"),
        );
        self.judge(delivered)
    }

    /// Says which rows were aborted: by the producer's word, and by the log where the producer had no answer.
    fn judge(&self, delivered: Vec<Delivered>) -> Vec<Sent> {
        let known = |set: &Mutex<BTreeSet<u64>>, one: &Delivered| {
            let set = set.lock().expect("no panic under this lock");
            one.transaction.is_some_and(|number| set.contains(&number))
        };
        let mut logs: HashMap<(String, i32), BTreeSet<i64>> = HashMap::new();
        let mut is_in_the_log = |(topic, partition, offset): &(String, i32, i64)| {
            let log = logs.entry((topic.clone(), *partition)).or_insert_with(|| {
                let records = read_committed(&self.reader, topic, *partition, 0);
                records.into_iter().map(|(offset, _)| offset).collect()
            });
            log.contains(offset)
        };
        let mut sent = Vec::with_capacity(delivered.len());
        for mut one in delivered {
            one.sent.aborted = if known(&self.record.unanswered, &one) {
                !is_in_the_log(&one.sent.place)
            } else {
                known(&self.record.aborted, &one)
            };
            sent.push(one.sent);
        }
        sent
    }
}

struct Sender {
    producer: ThreadedProducer<Context>,
    config: ClientConfig,
    plan: Plan,
    record: Arc<Record>,
    number: u64,
    transaction: u64,
}

impl Sender {
    fn run(&mut self) {
        if self.plan.transactions.is_some() {
            self.producer
                .init_transactions(REQUEST)
                .expect("transactions");
        }
        while !self.stopped() {
            match self.plan.transactions {
                None => self.tick(None),
                Some(transactions) => self.one_transaction(transactions),
            }
        }
        self.producer.flush(REQUEST).expect("every row delivered");
    }

    fn stopped(&self) -> bool {
        self.record.stop.load(Ordering::Relaxed)
    }

    /// One transaction: open for a while, then committed or aborted.
    fn one_transaction(&mut self, transactions: Transactions) {
        self.transaction += 1;
        self.producer
            .begin_transaction()
            .expect("a new transaction");
        let open_us = i64::try_from(transactions.open.as_micros()).expect("a short time");
        let until_us = now_us() + fastrand::i64(open_us / 4..=open_us);
        while now_us() < until_us && !self.stopped() {
            self.tick(Some(self.transaction));
        }
        let mut abort = fastrand::u32(0..100) < transactions.aborted_percent;
        if self.producer.flush(REQUEST).is_err() {
            abort = true;
        }
        // Both may be asked again until they have an answer. A commit that the broker has refused for good is an abort.
        while let Err(error) = self.end_transaction(abort) {
            let KafkaError::Transaction(cause) = &error else {
                panic!("a transaction: {error}")
            };
            // The broker was away for longer than a transaction may take, and has aborted it: only a new producer can go on.
            if !abort {
                self.note(&self.record.unanswered);
            }
            if cause.is_fatal() {
                self.note(&self.record.aborted);
                self.producer = new_producer(&self.config, &self.record);
                self.producer
                    .init_transactions(REQUEST)
                    .expect("transactions");
                break;
            }
            abort |= cause.txn_requires_abort();
            assert!(cause.is_retriable() || abort, "a transaction: {error}");
        }
        self.record.open_transaction.store(false, Ordering::Relaxed);
    }

    fn note(&self, ends: &Mutex<BTreeSet<u64>>) {
        ends.lock()
            .expect("no panic under this lock")
            .insert(self.transaction);
    }

    fn end_transaction(&self, abort: bool) -> Result<(), KafkaError> {
        if abort {
            self.note(&self.record.aborted);
            return self.producer.abort_transaction(REQUEST);
        }
        self.producer.commit_transaction(REQUEST)
    }

    /// The rows of ten milliseconds, all to one partition or spread over all.
    #[expect(
        clippy::disallowed_methods,
        reason = "it sets the pace of the load; nothing waits for it"
    )]
    fn tick(&mut self, transaction: Option<u64>) {
        std::thread::sleep(Duration::from_millis(10));
        if self.record.in_flight.load(Ordering::Relaxed) >= IN_FLIGHT {
            return;
        }
        // Less than one a tick is a matter of luck.
        let (whole, rest) = (
            self.plan.rows_per_second / 100,
            self.plan.rows_per_second % 100,
        );
        for _ in 0..whole + u32::from(fastrand::u32(0..100) < rest) {
            self.send(transaction);
        }
    }

    fn send(&mut self, transaction: Option<u64>) {
        let lateness_us = i64::try_from(self.plan.lateness.as_micros()).expect("a short time");
        let event_time_us = now_us() - fastrand::i64(0..=lateness_us * 9 / 10);
        // Whole milliseconds: what the formats carry.
        let event = Event {
            number: self.number,
            event_time_us: event_time_us / 1_000 * 1_000,
        };
        self.number += 1;
        let partition = fastrand::i32(0..self.record.partitions.load(Ordering::Relaxed));
        let (key, value) = (self.plan.message)(&event);
        let opaque = Box::new((event, transaction));
        let record = BaseRecord::with_opaque_to(&self.plan.topic, opaque)
            .partition(partition)
            .key(&key)
            .payload(&value);
        self.record.in_flight.fetch_add(1, Ordering::Relaxed);
        match self.producer.send(record) {
            Ok(()) => self
                .record
                .open_transaction
                .store(transaction.is_some(), Ordering::Relaxed),
            // A partition that was just added is not known to the client yet. A transaction that the broker has given up takes no
            // row; how it ended is seen at its end.
            Err((error, _)) => {
                let expected = match error.rdkafka_error_code() {
                    Some(RDKafkaErrorCode::UnknownPartition) => true,
                    Some(RDKafkaErrorCode::Fatal) => transaction.is_some(),
                    _ => false,
                };
                assert!(expected, "{error}");
                self.record.in_flight.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

fn new_producer(config: &ClientConfig, record: &Arc<Record>) -> ThreadedProducer<Context> {
    config
        .create_with_context(Context(record.clone()))
        .expect("a producer")
}

/// Takes down each answer of the broker.
struct Context(Arc<Record>);

impl ClientContext for Context {}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<(Event, Option<u64>)>;

    fn delivery(&self, result: &DeliveryResult<'_>, opaque: Self::DeliveryOpaque) {
        let (event, transaction) = *opaque;
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
        let message = match result {
            Ok(message) => message,
            // Rows of a transaction that cannot go on: it is aborted.
            Err(_) if transaction.is_some() => return,
            Err((error, message)) => {
                // Not here: this is called from C.
                let lost = format!("{error} for partition {}", message.partition());
                *self.0.refused.lock().expect("no panic under this lock") = Some(lost);
                return;
            }
        };
        let place = (
            message.topic().to_owned(),
            message.partition(),
            message.offset(),
        );
        let sent = Sent {
            number: event.number,
            place,
            event_time_us: event.event_time_us,
            delivered_us: now_us(),
            aborted: false,
        };
        self.0
            .delivered
            .lock()
            .expect("no panic under this lock")
            .push(Delivered { sent, transaction });
    }
}

/// The wall clock, which the producer and the worker share.
#[expect(
    clippy::disallowed_methods,
    reason = "the producer lives on the wall clock, as every source does"
)]
pub(crate) fn now_us() -> i64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("a clock after 1970");
    i64::try_from(since.as_micros()).expect("a clock before the year 294246")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::wait::within;

    fn plan(broker: &Broker, test: &str, transactions: Option<Transactions>) -> Plan {
        Plan {
            topic: broker.topic(test, 2),
            partitions: 2,
            rows_per_second: 1_000,
            lateness: Duration::from_secs(1),
            transactions,
            message: |event| (event.number.to_string(), event.event_time_us.to_string()),
        }
    }

    #[test]
    fn record_is_what_the_log_holds() {
        let broker = Broker::shared();
        let plan = plan(broker, "record_is", None);
        let topic = plan.topic.clone();
        let ledger = Ledger::start(broker, plan);
        within(REQUEST, "some rows", || {
            (ledger.delivered() > 500).then_some(())
        });
        broker.add_partitions(&topic, 3);
        ledger.set_partitions(3);
        within(REQUEST, "rows in the new partition", || {
            (broker.offsets(&topic, 2).1 > 10).then_some(())
        });
        let sent = ledger.stop();
        for partition in 0..3 {
            let mut known: Vec<_> = sent.iter().filter(|one| one.place.1 == partition).collect();
            known.sort_by_key(|one| one.place.2);
            let known: Vec<_> = known
                .iter()
                .map(|one| one.event_time_us.to_string())
                .collect();
            assert_eq!(broker.read(&topic, partition, 0), known);
        }
    }

    /// Control records take offsets too, so the record has fewer rows than the log has offsets.
    #[test]
    fn record_tells_aborted_rows_from_committed_ones() {
        let broker = Broker::shared();
        let plan = plan(
            broker,
            "record_tells",
            Some(Transactions {
                open: Duration::from_millis(200),
                aborted_percent: 50,
            }),
        );
        let topic = plan.topic.clone();
        let ledger = Ledger::start(broker, plan);
        within(REQUEST, "an open transaction", || {
            ledger.in_a_transaction().then_some(())
        });
        within(REQUEST, "some rows", || {
            (ledger.delivered() > 2_000).then_some(())
        });
        let sent = ledger.stop();
        let mut committed: Vec<_> = sent.iter().filter(|one| !one.aborted).collect();
        assert!(!committed.is_empty() && committed.len() < sent.len());
        committed.retain(|one| one.place.1 == 1);
        committed.sort_by_key(|one| one.place.2);
        let committed: Vec<_> = committed
            .iter()
            .map(|one| one.event_time_us.to_string())
            .collect();
        assert_eq!(broker.read(&topic, 1, 0), committed);
    }
}
