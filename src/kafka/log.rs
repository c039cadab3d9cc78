//! librdkafka's log lines and errors, passed on to the house's log.

use std::sync::{Mutex, PoisonError};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;
use tracing::{debug, error, info, warn};

use super::{Code, Error, security};

/// Passes librdkafka's log lines on, and keeps the newest error that tells why nobody answers. Rebalances never come here while
/// the consumer's own queue is polled; when it is dropped, rdkafka's own handling gives the partitions back.
#[derive(Default)]
pub(super) struct Context(Mutex<Option<(Code, String)>>);

impl Context {
    /// Why nobody answers, as far as the client has said since somebody did. It says so once for a while, however often it tries.
    pub(super) fn fault(&self) -> Option<Error> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (code, detail) = kept.as_ref()?;
        security::fault(*code, detail)
    }

    /// Somebody answers.
    pub(super) fn answered(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        debug!(%error, reason, "kafka client error");
        let Some(code) = error.rdkafka_error_code() else {
            return;
        };
        let code = Code::of(code as i32);
        // That follows every other error, and says less.
        if code != Code::ALL_BROKERS_DOWN {
            let fault = security::fault(code, reason).map(|_| (code, reason.to_owned()));
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = fault;
        }
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
