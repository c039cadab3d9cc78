//! Whether the source is alive: its newest heartbeat, read from the end of the topic that carries them.
//!
//! It waits for brokers and runs off the polling thread, before the ends of the partitions are asked for. What cannot be read
//! or understood is unknown, and unknown holds the claim.

use std::sync::Arc;

use super::Error;
use super::ingest::MessageHeaders;
use super::question::PATIENCE;
use crate::api::worker::Heartbeat;
use crate::cdc::{Beat, Fault, HeartbeatReader, Record};
use crate::kafka::{self, Inquirer, Settings, Tail};

/// The heartbeat of one pipeline's source.
pub(super) struct SourceHeartbeat {
    tail: Tail,
    reader: HeartbeatReader,
    heartbeat: Heartbeat,
    /// A fault that was told; each kind is told once.
    told: Option<&'static str>,
}

impl SourceHeartbeat {
    /// Makes what reads it; no broker is asked yet.
    ///
    /// # Errors
    /// The client cannot be made.
    pub(super) fn create(
        settings: &Settings,
        inquirer: &Arc<Inquirer>,
        heartbeat: &Heartbeat,
    ) -> Result<Self, Error> {
        let (Heartbeat::Connector(topic) | Heartbeat::Table(topic)) = heartbeat;
        Ok(Self {
            tail: Tail::create(settings, Arc::clone(inquirer), topic)?,
            reader: HeartbeatReader::default(),
            heartbeat: heartbeat.clone(),
            told: None,
        })
    }

    /// The newest heartbeat that is in the topic now: of a table the commit time of its newest row, else the connector's
    /// clock. `None`: none is there.
    ///
    /// # Errors
    /// The topic cannot be read.
    pub(super) fn newest_us(&mut self) -> Result<Option<i64>, kafka::Error> {
        let Self {
            tail,
            reader,
            heartbeat,
            told,
        } = self;
        let beats = tail.newest(PATIENCE, |message| {
            let record = Record {
                topic: &message.at().topic,
                partition: message.at().partition,
                offset: message.offset(),
                timestamp_us: message.timestamp_us(),
                // Nothing that is read here is written.
                ingested_at_us: 0,
                key: message.key(),
                value: message.value(),
                headers: &MessageHeaders(message),
            };
            let beat = reader.read(&record).unwrap_or_else(|fault| {
                tell(&message, &fault, told);
                None
            });
            match (&*heartbeat, beat?) {
                (Heartbeat::Connector(_), Beat::Connector(us))
                | (Heartbeat::Table(_), Beat::Row(us)) => Some(us),
                _ => None,
            }
        })?;
        // One connector has one key, so that all that counts is in one partition; the others, if there are any, are older.
        Ok(beats.into_iter().max())
    }
}

fn tell(message: &kafka::Message<'_>, fault: &Fault, told: &mut Option<&'static str>) {
    let reason = fault.reason();
    if told.replace(reason) != Some(reason) {
        tracing::warn!(
            topic = %message.at().topic, partition = message.at().partition, offset = message.offset(), error = %fault,
            "a record is no heartbeat; while there is no other the claim is held",
        );
    }
}
