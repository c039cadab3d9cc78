//! What went wrong at a store, and whose fault it is.
//!
//! The client (`opendal` 0.57) keeps the store's own code in the text of an error alone: it is read from there, and where it
//! is not found the error says what the client says.

use std::error::Error as StdError;

use iceberg::ErrorKind;

use crate::process::tls::{self, causes};

/// Codes that say that it is the credentials, whatever status they come with.
const REFUSALS: [&str; 8] = [
    "AccessDenied",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidToken",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
];

/// A request to a store that failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store, or the service that gives credentials for it, refuses this process.
    #[error("the store refuses the request: {answer}")]
    Refused {
        /// The store's code and words.
        answer: String,
    },
    /// There is nothing to sign a request with.
    #[error("no credentials for the store: {problem}")]
    NoCredentials {
        /// What was looked for.
        problem: String,
    },
    /// The certificate of the store is not taken.
    #[error("the certificate of the store is not taken")]
    Certificate(#[source] tls::Fault),
    /// The store does not answer.
    #[error("the store does not answer: {problem}")]
    Unreachable {
        /// What the client says.
        problem: String,
    },
    /// The store answers, but not with what was asked for.
    #[error("the store: {answer}")]
    Failed {
        /// Its code and words.
        answer: String,
    },
}

/// The fault of a store within an error, wherever it stands among the causes.
#[must_use]
pub fn store_error<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e StoreError> {
    causes(error).find_map(|cause| cause.downcast_ref::<StoreError>())
}

pub(super) fn faulty(problem: &str) -> iceberg::Error {
    let fault = StoreError::Failed {
        answer: problem.to_owned(),
    };
    wrapped(fault)
}

fn wrapped(fault: StoreError) -> iceberg::Error {
    iceberg::Error::new(ErrorKind::Unexpected, "a request to the store failed").with_source(fault)
}

/// What the client says, in the words of this house.
#[expect(
    clippy::needless_pass_by_value,
    reason = "it stands in the place of an error that is mapped"
)]
pub(super) fn from_store(error: opendal::Error) -> iceberg::Error {
    wrapped(fault_of(&error))
}

fn fault_of(error: &opendal::Error) -> StoreError {
    if let Some(fault) = tls::fault(error) {
        return StoreError::Certificate(fault);
    }
    let credentials = causes(error).find_map(|cause| cause.downcast_ref::<reqsign_core::Error>());
    if let Some(problem) = credentials {
        return StoreError::NoCredentials {
            problem: told(problem),
        };
    }
    let answer = answer_of(error.message());
    let refused = error.kind() == opendal::ErrorKind::PermissionDenied
        || answer
            .as_ref()
            .is_some_and(|(code, _)| REFUSALS.contains(code));
    let words = match answer {
        Some((code, "")) => code.to_owned(),
        Some((code, message)) => format!("{code}: {message}"),
        None if error.message().is_empty() => error.kind().to_string(),
        None => error.message().to_owned(),
    };
    match error.kind() {
        _ if refused => StoreError::Refused { answer: words },
        opendal::ErrorKind::Unexpected if answer.is_none() => StoreError::Unreachable {
            problem: told(error),
        },
        _ => StoreError::Failed { answer: words },
    }
}

/// Code and message of `S3Error { code: "…", message: "…", … }`.
fn answer_of(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix("S3Error { code: \"")?;
    let (code, rest) = rest.split_once("\", message: \"")?;
    let (message, _) = rest.split_once("\", resource: \"")?;
    (!code.is_empty()).then_some((code, message))
}

/// An error and its causes on one line, none twice.
fn told(error: &(dyn StdError + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    for cause in causes(error) {
        let text = match cause.downcast_ref::<opendal::Error>() {
            // Its own text repeats every header of the answer.
            Some(error) => error.message().to_owned(),
            None => cause.to_string(),
        };
        if !text.is_empty() && !texts.iter().any(|known| known.contains(&text)) {
            texts.push(text);
        }
    }
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(kind: opendal::ErrorKind, text: &str) -> StoreError {
        fault_of(&opendal::Error::new(kind, text))
    }

    /// An expired token comes with a status that says nothing of rights.
    #[test]
    fn refusals_are_told_by_the_stores_own_code() {
        let text = |code: &str| {
            format!(
                "S3Error {{ code: \"{code}\", message: \"no\", resource: \"/b\", request_id: \"1\" }}"
            )
        };
        for code in REFUSALS {
            let fault = answered(opendal::ErrorKind::Unexpected, &text(code));
            assert!(matches!(fault, StoreError::Refused { .. }), "{code}");
            assert!(fault.to_string().contains(code), "{fault}");
        }
        let fault = answered(opendal::ErrorKind::NotFound, &text("NoSuchBucket"));
        assert_eq!(fault.to_string(), "the store: NoSuchBucket: no");
        let fault = answered(opendal::ErrorKind::PermissionDenied, "");
        assert!(matches!(fault, StoreError::Refused { .. }), "{fault}");
    }

    #[test]
    fn a_fault_is_found_among_the_causes() {
        let error = from_store(opendal::Error::new(
            opendal::ErrorKind::Unexpected,
            "send http request",
        ));
        let deep = crate::lake::Error::File {
            path: "s3://b/x".to_owned(),
            doing: "written",
            source: Box::new(error),
        };
        let found = store_error(&deep);
        assert!(matches!(found, Some(StoreError::Unreachable { .. })));
        assert!(store_error(&std::io::Error::other("x")).is_none());
    }
}
