//! librdkafka's log lines and errors, passed on to the house's log.

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;
use tracing::{debug, error, info, warn};

/// Passes librdkafka's log lines on. Rebalances never come here while the consumer's own queue is polled; when it is
/// dropped, rdkafka's own handling gives the partitions back.
pub(super) struct Context;

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        debug!(%error, reason, "kafka client error");
    }
}

impl ConsumerContext for Context {}

pub(super) fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            error!(facility, message, "kafka client");
        }
        // librdkafka calls a refused connection an error and then heals it by itself.
        RDKafkaLogLevel::Error | RDKafkaLogLevel::Warning => {
            warn!(facility, message, "kafka client");
        }
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => info!(facility, message, "kafka client"),
        RDKafkaLogLevel::Debug => debug!(facility, message, "kafka client"),
    }
}

/// The level of a line by its number in syslog.
pub(super) fn level_of(syslog: i32) -> RDKafkaLogLevel {
    match syslog {
        0 => RDKafkaLogLevel::Emerg,
        1 => RDKafkaLogLevel::Alert,
        2 => RDKafkaLogLevel::Critical,
        3 => RDKafkaLogLevel::Error,
        4 => RDKafkaLogLevel::Warning,
        5 => RDKafkaLogLevel::Notice,
        6 => RDKafkaLogLevel::Info,
        _ => RDKafkaLogLevel::Debug,
    }
}
