//! What a REST server answers, and what it means.
//!
//! An answer about tables is what was asked for or an error of its kind; what a server says of whoever asks, and what is wrong
//! with its certificate, is a [`CatalogFault`] among the causes.

use std::error::Error as StdError;

use bytes::Bytes;
use iceberg::{ErrorKind, Result as IcebergResult};
use reqwest::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::process::tls::{self, causes};

/// The status with which a server says that a token has ended, where it does not say 401.
const TOKEN_ENDED: u16 = 419;

/// How many characters are told of an answer that nobody expected.
const TOLD: usize = 1_000;

/// What keeps whoever asks from an answer about tables.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogFault {
    /// The certificate of the server is not taken.
    #[error(
        "the certificate of the catalog is not taken; name the one that signed it in sink.catalog.caRef, or with --ca-file"
    )]
    Certificate(#[source] tls::Fault),
    /// The server, or the one that gives tokens, does not know whoever asks.
    #[error(
        "the catalog does not take the credential: {answer}; put the right one into the secret of sink.catalog.credentialRef"
    )]
    Unauthorized {
        /// Its answer.
        answer: String,
    },
    /// The server knows whoever asks, who may not do this.
    #[error("the catalog forbids it: {answer}")]
    Forbidden {
        /// Its answer.
        answer: String,
    },
}

/// The fault within an error, wherever it stands among the causes.
#[must_use]
pub fn catalog_fault<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e CatalogFault> {
    causes(error).find_map(|cause| cause.downcast_ref::<CatalogFault>())
}

pub(super) fn refused(kind: ErrorKind, fault: CatalogFault) -> iceberg::Error {
    iceberg::Error::new(kind, "the catalog refuses the request").with_source(fault)
}

/// An error of the way to a server.
pub(super) fn unreachable(error: reqwest::Error) -> iceberg::Error {
    match tls::fault(&error) {
        Some(fault) => refused(ErrorKind::Unexpected, CatalogFault::Certificate(fault)),
        None => iceberg::Error::new(ErrorKind::Unexpected, "no answer came").with_source(error),
    }
}

/// What a status says of what was asked for.
pub(super) type Meaning = (StatusCode, ErrorKind);

pub(super) const NO_TABLE: Meaning = (StatusCode::NOT_FOUND, ErrorKind::TableNotFound);
pub(super) const NO_NAMESPACE: Meaning = (StatusCode::NOT_FOUND, ErrorKind::NamespaceNotFound);
pub(super) const TABLE_THERE: Meaning = (StatusCode::CONFLICT, ErrorKind::TableAlreadyExists);

/// What came back.
pub(in crate::lake) struct Answer {
    pub(in crate::lake) status: StatusCode,
    body: Bytes,
}

impl Answer {
    pub(super) fn new(status: StatusCode, body: Bytes) -> Self {
        Self { status, body }
    }

    /// What was asked for.
    pub(in crate::lake) fn expect<T: DeserializeOwned>(
        &self,
        meanings: &[Meaning],
    ) -> IcebergResult<T> {
        if self.status != StatusCode::OK {
            return Err(self.error(meanings));
        }
        serde_json::from_slice(&self.body).map_err(|error| {
            let problem = "the catalog's answer cannot be read";
            iceberg::Error::new(ErrorKind::Unexpected, problem).with_source(error)
        })
    }

    pub(super) fn done(&self, meanings: &[Meaning]) -> IcebergResult<()> {
        match self.status {
            StatusCode::OK | StatusCode::NO_CONTENT => Ok(()),
            _ => Err(self.error(meanings)),
        }
    }

    pub(super) fn is_there(&self) -> IcebergResult<bool> {
        match self.status {
            StatusCode::OK | StatusCode::NO_CONTENT => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            _ => Err(self.error(&[])),
        }
    }

    /// Whether the token is not taken.
    pub(super) fn is_unauthorized(&self) -> bool {
        matches!(self.status.as_u16(), 401 | TOKEN_ENDED)
    }

    /// What it says where it is not what was asked for. What the server refuses for what it is is `DataInvalid`: nothing of it
    /// was done.
    pub(in crate::lake) fn error(&self, meanings: &[Meaning]) -> iceberg::Error {
        let answer = self.words();
        let meant = meanings.iter().find(|(status, _)| *status == self.status);
        if let Some((_, kind)) = meant {
            return iceberg::Error::new(*kind, answer);
        }
        match self.status.as_u16() {
            401 | TOKEN_ENDED => {
                refused(ErrorKind::Unexpected, CatalogFault::Unauthorized { answer })
            }
            403 => refused(ErrorKind::DataInvalid, CatalogFault::Forbidden { answer }),
            400 | 406 | 422 => iceberg::Error::new(ErrorKind::DataInvalid, answer),
            _ => iceberg::Error::new(ErrorKind::Unexpected, answer),
        }
    }

    /// Status and message.
    fn words(&self) -> String {
        #[derive(Deserialize)]
        struct Model {
            error: Words,
        }
        #[derive(Deserialize)]
        struct Words {
            #[serde(rename = "type")]
            kind: Option<String>,
            message: Option<String>,
        }
        let status = self.status;
        if let Ok(Model { error }) = serde_json::from_slice(&self.body) {
            let words = [error.kind, error.message];
            let words: Vec<String> = words.into_iter().flatten().collect();
            return format!("{status}: {}", words.join(": "));
        }
        let text = String::from_utf8_lossy(&self.body);
        let text: String = text.trim().chars().take(TOLD).collect();
        if text.is_empty() {
            status.to_string()
        } else {
            format!("{status}: {text}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &'static str) -> Answer {
        Answer::new(StatusCode::from_u16(status).unwrap(), Bytes::from(body))
    }

    /// A right that is missing is no table that is missing, and a token that has ended heals by a new one.
    #[test]
    fn what_is_said_of_whoever_asks_is_told_from_what_is_said_of_tables() {
        let model =
            r#"{"error": {"message": "not yours", "type": "ForbiddenException", "code": 403}}"#;
        let forbidden = answer(403, model).error(&[NO_TABLE]);
        let answer_of = |fault: &CatalogFault| match fault {
            CatalogFault::Forbidden { answer } | CatalogFault::Unauthorized { answer } => {
                answer.clone()
            }
            CatalogFault::Certificate(_) => String::new(),
        };
        assert_eq!(forbidden.kind(), ErrorKind::DataInvalid);
        let fault = catalog_fault(&forbidden).unwrap();
        assert!(matches!(fault, CatalogFault::Forbidden { .. }));
        assert_eq!(
            answer_of(fault),
            "403 Forbidden: ForbiddenException: not yours"
        );
        for status in [401, TOKEN_ENDED] {
            let ended = answer(status, "no").error(&[NO_TABLE]);
            assert_eq!(ended.kind(), ErrorKind::Unexpected);
            let fault = catalog_fault(&ended).unwrap();
            assert!(
                matches!(fault, CatalogFault::Unauthorized { .. }),
                "{fault:?}"
            );
        }
        let missing = answer(404, "").error(&[NO_TABLE]);
        assert_eq!(missing.kind(), ErrorKind::TableNotFound);
        assert!(catalog_fault(&missing).is_none());
        // A path that is none is no table that is none.
        assert_eq!(answer(404, "").error(&[]).kind(), ErrorKind::Unexpected);
    }
}
