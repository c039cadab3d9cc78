//! Error codes, and what they mean to a pipeline.
//!
//! A plain number, not an enum: brokers send numbers that no list in this binary has.

use std::fmt;

use super::{Next, sys};

/// An error code of Kafka (positive) or of librdkafka (negative). Written by its name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(i32);

impl Code {
    pub(super) fn of(number: i32) -> Self {
        Self(number)
    }

    pub(super) const OK: Self = Self(0);
    pub(super) const PARTITION_EOF: Self = Self(-191);
    pub(super) const UNKNOWN_PARTITION: Self = Self(-190);
    pub(super) const UNKNOWN_TOPIC: Self = Self(-188);
    pub(super) const INVALID_ARG: Self = Self(-186);
    pub(super) const TIMED_OUT: Self = Self(-185);
    pub(super) const ASSIGN_PARTITIONS: Self = Self(-175);
    pub(super) const NO_OFFSET: Self = Self(-168);
    pub(super) const AUTO_OFFSET_RESET: Self = Self(-140);
    const BAD_COMPRESSION: Self = Self(-198);
    const BAD_MSG: Self = Self(-199);
    pub(super) const OFFSET_OUT_OF_RANGE: Self = Self(1);
    const CORRUPT_MESSAGE: Self = Self(2);
    pub(super) const UNKNOWN_TOPIC_OR_PART: Self = Self(3);
    const MSG_SIZE_TOO_LARGE: Self = Self(10);
    const TOPIC_EXCEPTION: Self = Self(17);
    const TOPIC_AUTHORIZATION_FAILED: Self = Self(29);
    const GROUP_AUTHORIZATION_FAILED: Self = Self(30);
    const CLUSTER_AUTHORIZATION_FAILED: Self = Self(31);
    const UNSUPPORTED_SASL_MECHANISM: Self = Self(33);
    const ILLEGAL_SASL_STATE: Self = Self(34);
    const SASL_AUTHENTICATION_FAILED: Self = Self(58);
    pub(super) const AUTHENTICATION: Self = Self(-169);
    pub(super) const SSL: Self = Self(-181);
    pub(super) const TRANSPORT: Self = Self(-195);
    pub(super) const ALL_BROKERS_DOWN: Self = Self(-187);
    pub(super) const UNKNOWN_TOPIC_ID: Self = Self(100);

    /// The number on the wire, or librdkafka's negative one.
    #[must_use]
    pub fn number(self) -> i32 {
        self.0
    }

    /// Whether rights are missing, which no waiting heals.
    #[must_use]
    pub fn is_authorization(self) -> bool {
        [
            Self::TOPIC_AUTHORIZATION_FAILED,
            Self::GROUP_AUTHORIZATION_FAILED,
            Self::CLUSTER_AUTHORIZATION_FAILED,
        ]
        .contains(&self)
    }

    /// Whether the brokers do not take the client for who it says it is.
    #[must_use]
    pub fn is_authentication(self) -> bool {
        [
            Self::UNSUPPORTED_SASL_MECHANISM,
            Self::ILLEGAL_SASL_STATE,
            Self::SASL_AUTHENTICATION_FAILED,
            Self::AUTHENTICATION,
        ]
        .contains(&self)
    }

    /// Whether the topic or the partition is not there.
    #[must_use]
    pub fn is_unknown(self) -> bool {
        [
            Self::UNKNOWN_TOPIC_OR_PART,
            Self::UNKNOWN_TOPIC_ID,
            Self::UNKNOWN_TOPIC,
            Self::UNKNOWN_PARTITION,
            Self::TOPIC_EXCEPTION,
        ]
        .contains(&self)
    }

    /// Damaged records stay damaged and need a person. A topic that is not there may be a broker that has just started:
    /// whether it is gone, the `Inquirer` can say.
    pub(super) fn next_after_fetch(self) -> Next {
        let damaged = [
            Self::BAD_COMPRESSION,
            Self::BAD_MSG,
            Self::CORRUPT_MESSAGE,
            Self::MSG_SIZE_TOO_LARGE,
        ];
        if damaged.contains(&self) || self == Self::OFFSET_OUT_OF_RANGE {
            Next::Stop
        } else if self.is_authorization() {
            Next::AwaitChange
        } else {
            Next::Later
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&sys::name_of(*self))
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The constants are copied from librdkafka's header; its own names for them tell a slip.
    #[test]
    fn codes_have_librdkafkas_names() {
        let named = [
            (Code::PARTITION_EOF, "_PARTITION_EOF"),
            (Code::UNKNOWN_PARTITION, "_UNKNOWN_PARTITION"),
            (Code::UNKNOWN_TOPIC, "_UNKNOWN_TOPIC"),
            (Code::INVALID_ARG, "_INVALID_ARG"),
            (Code::TIMED_OUT, "_TIMED_OUT"),
            (Code::ASSIGN_PARTITIONS, "_ASSIGN_PARTITIONS"),
            (Code::NO_OFFSET, "_NO_OFFSET"),
            (Code::AUTO_OFFSET_RESET, "_AUTO_OFFSET_RESET"),
            (Code::BAD_COMPRESSION, "_BAD_COMPRESSION"),
            (Code::BAD_MSG, "_BAD_MSG"),
            (Code::AUTHENTICATION, "_AUTHENTICATION"),
            (Code::SSL, "_SSL"),
            (Code::TRANSPORT, "_TRANSPORT"),
            (Code::ALL_BROKERS_DOWN, "_ALL_BROKERS_DOWN"),
            (
                Code::UNSUPPORTED_SASL_MECHANISM,
                "UNSUPPORTED_SASL_MECHANISM",
            ),
            (Code::ILLEGAL_SASL_STATE, "ILLEGAL_SASL_STATE"),
            (Code::OFFSET_OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE"),
            (Code::CORRUPT_MESSAGE, "INVALID_MSG"),
            (Code::UNKNOWN_TOPIC_OR_PART, "UNKNOWN_TOPIC_OR_PART"),
            (Code::MSG_SIZE_TOO_LARGE, "MSG_SIZE_TOO_LARGE"),
            (Code::TOPIC_EXCEPTION, "TOPIC_EXCEPTION"),
            (
                Code::TOPIC_AUTHORIZATION_FAILED,
                "TOPIC_AUTHORIZATION_FAILED",
            ),
            (
                Code::GROUP_AUTHORIZATION_FAILED,
                "GROUP_AUTHORIZATION_FAILED",
            ),
            (
                Code::CLUSTER_AUTHORIZATION_FAILED,
                "CLUSTER_AUTHORIZATION_FAILED",
            ),
            (
                Code::SASL_AUTHENTICATION_FAILED,
                "SASL_AUTHENTICATION_FAILED",
            ),
            (Code::UNKNOWN_TOPIC_ID, "UNKNOWN_TOPIC_ID"),
        ];
        for (code, name) in named {
            assert_eq!(code.to_string(), name);
        }
        assert_eq!(format!("{:?}", Code::of(12_345)), "ERR_12345?(12345)");
    }

    #[test]
    fn damaged_records_stop_and_missing_rights_wait_for_a_change() {
        assert_eq!(Code::BAD_COMPRESSION.next_after_fetch(), Next::Stop);
        assert_eq!(Code::OFFSET_OUT_OF_RANGE.next_after_fetch(), Next::Stop);
        assert_eq!(
            Code::TOPIC_AUTHORIZATION_FAILED.next_after_fetch(),
            Next::AwaitChange
        );
        assert_eq!(Code::UNKNOWN_TOPIC_OR_PART.next_after_fetch(), Next::Later);
    }
}
