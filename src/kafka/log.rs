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
        let tells = security::fault(code, reason).is_some();
        if tells || !security::follows(code, reason) {
            let fault = tells.then(|| (code, reason.to_owned()));
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

#[cfg(test)]
mod tests {
    use rdkafka::types::RDKafkaErrorCode as Rd;

    use super::*;

    /// librdkafka tells the same trouble in turn with words that say why and with some that do not; which came last was chance.
    #[test]
    fn what_says_less_of_the_same_trouble_takes_nothing_back() {
        let context = Context::default();
        let told = |code, reason: &str| {
            context.error(KafkaError::Global(code), reason);
            context.fault().map(|fault| fault.reason())
        };
        let lost = Rd::BrokerTransportFailure;
        let why = "SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener? (after 3ms in state SSL_HANDSHAKE)";
        let less = "Disconnected: SSL connection closed by peer (after 3ms in state SSL_HANDSHAKE)";
        assert_eq!(told(lost, less), None);
        assert_eq!(told(lost, why), Some("OtherProtocol"));
        assert_eq!(told(lost, less), Some("OtherProtocol"));
        assert_eq!(
            told(Rd::AllBrokersDown, "1/1 brokers are down"),
            Some("OtherProtocol")
        );
        let untrusted = "error:0A000086:SSL routines::certificate verify failed (after 3ms in state SSL_HANDSHAKE)";
        assert_eq!(told(lost, untrusted), Some("Untrusted"));
        let away = "Connect to ipv4#127.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT)";
        assert_eq!(told(lost, away), None);
    }
}
