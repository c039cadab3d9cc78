//! What a consumer's queue holds beside messages, as values.
//!
//! librdkafka reports the end of a partition as an error, and a rebalance as an event that waits for its answer; here they
//! become [`Notice`]s.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka_sys as rd;

use super::log::{Context, level_of, log};
use super::sys::{Consumer, Occurrence, RawMessage, Taken};
use super::{Code, TopicPartition};

/// What else than a message a consumer's queue can hold.
pub(super) enum Notice {
    EndOfPartition {
        at: TopicPartition,
        offset: i64,
    },
    Assigned(Vec<TopicPartition>),
    Revoked {
        partitions: Vec<TopicPartition>,
        lost: bool,
    },
    OffsetsCommitted(Code),
    Error {
        code: Code,
        place: Option<(TopicPartition, i64)>,
        fatal: bool,
        detail: String,
    },
}

/// Lets go of the messages that the consumer holds, then takes up to `most` new ones: the first may take `timeout`, the others
/// must be there. `sort` gives each message its tag, or `None` to drop it. A notice ends the round, except the end of a
/// partition.
pub(super) fn fill(
    consumer: &mut Consumer,
    most: usize,
    timeout: Duration,
    mut sort: impl FnMut(RawMessage<'_>) -> Option<u32>,
) -> Vec<Notice> {
    consumer.let_go();
    let mut notices = Vec::new();
    let mut wait = timeout;
    while consumer.held().len() < most {
        match consumer.take(wait, &mut sort, notice) {
            Taken::Nothing => break,
            Taken::Message | Taken::Other(None) => {}
            Taken::Other(Some(notice)) => {
                let goes_on = matches!(notice, Notice::EndOfPartition { .. });
                notices.push(notice);
                if !goes_on {
                    break;
                }
            }
        }
        wait = Duration::ZERO;
    }
    notices
}

fn notice(event: &Occurrence, client: &BaseConsumer<Context>) -> Option<Notice> {
    match event.kind() {
        rd::RD_KAFKA_EVENT_ERROR => Some(error_notice(event)),
        rd::RD_KAFKA_EVENT_REBALANCE => {
            let partitions = event
                .partitions()
                .into_iter()
                .map(|element| element.at)
                .collect();
            Some(if event.code() == Code::ASSIGN_PARTITIONS {
                Notice::Assigned(partitions)
            } else {
                Notice::Revoked {
                    partitions,
                    lost: client.assignment_lost(),
                }
            })
        }
        rd::RD_KAFKA_EVENT_OFFSET_COMMIT => Some(Notice::OffsetsCommitted(event.code())),
        rd::RD_KAFKA_EVENT_LOG => {
            if let Some((level, facility, message)) = event.log_line() {
                log(level_of(level), facility.trim(), message.trim());
            }
            None
        }
        _ => None,
    }
}

fn error_notice(event: &Occurrence) -> Notice {
    let (code, place) = (event.code(), event.place());
    match place {
        Some((at, offset)) if code == Code::PARTITION_EOF => Notice::EndOfPartition { at, offset },
        place => Notice::Error {
            code,
            place,
            fatal: event.is_fatal(),
            detail: event.detail(),
        },
    }
}
