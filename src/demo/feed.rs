//! From the generator to the broker, at the pace of the clock.
//!
//! The broker forgets the oldest messages of a partition beyond 5 MiB, so the feed waits while the worker is behind by
//! 3 MiB. Time in which it waited brings no rows: a row that is passed on long after its event time would break the
//! declared delay, and the fault would be the feed's.

use std::sync::{Arc, Mutex};

use crate::{
    demo::{
        Error, TOPIC,
        broker::{Broker, lock},
        generator::{Change, Generator, PARTITIONS},
        record::Record,
    },
    process::clock::Clock,
};

/// No more than this is unread in one partition; the broker keeps 5 MiB.
const MOST_UNREAD_BYTES: u64 = 3 << 20;

/// A machine that was away for longer than this leaves the time out, on the demo's clock: 0.4 s of a person's.
const MOST_BEHIND_US: i64 = 120_000_000;

/// Sends the changes of one demo.
pub struct Feed {
    broker: Arc<Broker>,
    generator: Generator,
    clock: Clock,
    changes: Vec<Change>,
    /// Whether it waits for the worker.
    waiting: bool,
}

impl Feed {
    /// Starts a broker, and a generator that begins now.
    ///
    /// # Errors
    /// [`Error::Broker`] when the broker does not start.
    pub fn start(seed: u64, clock: Clock) -> Result<Self, Error> {
        let broker = Arc::new(Broker::start(TOPIC, PARTITIONS, clock.clone())?);
        let generator = Generator::new(seed, clock.now_us());
        Ok(Self {
            broker,
            generator,
            clock,
            changes: Vec::new(),
            waiting: false,
        })
    }

    /// Where the broker listens.
    #[must_use]
    pub fn bootstrap_servers(&self) -> &str {
        self.broker.bootstrap_servers()
    }

    /// Sends what is due. `next_offset` tells up to where the table has a partition.
    ///
    /// # Errors
    /// [`Error::Broker`] when a message could not be handed over or delivered.
    pub fn send_due(&mut self, next_offset: impl Fn(i32) -> i64) -> Result<(), Error> {
        let now_us = self.clock.now_us();
        let record = self.broker.record();
        let behind = (0..PARTITIONS)
            .map(|partition| lock(&record).bytes_from(partition, next_offset(partition)))
            .max();
        self.waiting = behind.is_some_and(|bytes| bytes >= MOST_UNREAD_BYTES);
        if self.waiting {
            self.generator.skip_to(now_us);
            return Ok(());
        }
        self.generator.skip_to(now_us - MOST_BEHIND_US);
        self.generator.changes_until(now_us, &mut self.changes);
        for change in self.changes.drain(..) {
            self.broker.send(&change)?;
        }
        Ok(())
    }

    /// Whether it waits for the worker.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// Waits until the broker has confirmed everything sent.
    ///
    /// # Errors
    /// [`Error::Broker`] when it does not.
    pub async fn finish(&self) -> Result<(), Error> {
        let broker = Arc::clone(&self.broker);
        let flushed = tokio::task::spawn_blocking(move || broker.flush()).await;
        // The task neither panics nor is cancelled: its runtime outlives this future.
        flushed.unwrap_or(Ok(()))
    }

    /// What the broker has confirmed so far.
    #[must_use]
    pub fn record(&self) -> Record {
        lock(&self.broker.record()).clone()
    }

    /// The same, shared with the broker's receipts.
    #[must_use]
    pub fn shared_record(&self) -> Arc<Mutex<Record>> {
        self.broker.record()
    }
}
