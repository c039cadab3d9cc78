//! Children, written: server-side apply in their order, only where a hash differs, and the removal of what is no longer wanted.
//!
//! Never by force: a field that another manager owns is a conflict, and a person is told whose it is. Every call asks first whether
//! this replica still leads.

use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::Value;

use super::{
    Key,
    build::{Child, Kind, MANAGER},
    index::{Changed, ChildSeen},
};
use crate::api::quantity::instant;

/// The annotation that says when children were last changed.
pub const CHANGED_AT: &str = "tidemark.dev/changed-at";

/// The annotation that says whether the pipelines were ready then.
pub const WAS_READY: &str = "tidemark.dev/was-ready";

/// Why a child could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another manager owns a field.
    #[error("{kind} \"{key}\": {conflict}")]
    Conflict {
        /// Which kind.
        kind: Kind,
        /// Which object.
        key: Key,
        /// Which manager and which field, as the API server says it.
        conflict: String,
    },
    /// The API server refuses the object.
    #[error("{kind} \"{key}\" is refused: {message}")]
    Refused {
        /// Which kind.
        kind: Kind,
        /// Which object.
        key: Key,
        /// What the API server said.
        message: String,
        /// Whether it may be accepted later: a quota, a right, a policy can change without a change of ours.
        forbidden: bool,
    },
    /// The API server does not answer, or asks for patience.
    #[error("{kind} \"{key}\" cannot be written yet: {source}")]
    Unavailable {
        /// Which kind.
        kind: Kind,
        /// Which object.
        key: Key,
        /// For how many seconds it asks to be left alone.
        retry_after_s: u32,
        /// What was said.
        source: Box<kube::Error>,
    },
    /// The API server has not answered in time.
    #[error("{kind} \"{key}\": no answer in time; it is written again")]
    Slow {
        /// Which kind.
        kind: Kind,
        /// Which object.
        key: Key,
    },
    /// This replica leads no longer.
    #[error("another replica leads")]
    NotLeader,
}

impl Error {
    /// Sorts what the API server said.
    fn of(kind: Kind, key: &Key, error: kube::Error) -> Self {
        let key = key.clone();
        let kube::Error::Api(status) = &error else {
            return Self::Unavailable {
                kind,
                key,
                retry_after_s: 0,
                source: Box::new(error),
            };
        };
        match status.code {
            409 => Self::Conflict {
                kind,
                key,
                conflict: status.message.clone(),
            },
            401 | 403 => Self::Refused {
                kind,
                key,
                message: status.message.clone(),
                forbidden: true,
            },
            400..=499 if status.code != 429 && status.code != 410 => {
                // A namespace that is being deleted, a patch of an object that has just gone.
                Self::Refused {
                    kind,
                    key,
                    message: status.message.clone(),
                    forbidden: status.code == 404,
                }
            }
            _ => {
                let retry_after_s = status
                    .details
                    .as_ref()
                    .map_or(0, |details| details.retry_after_seconds);
                Self::Unavailable {
                    kind,
                    key,
                    retry_after_s,
                    source: Box::new(error),
                }
            }
        }
    }
}

/// Writes children.
#[derive(Clone)]
pub struct Applier {
    client: Client,
}

impl Applier {
    /// Writes through this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Applies a child, and returns it as the API server holds it now. The mark of a change stands beside what it was built of.
    ///
    /// # Errors
    /// The API server refuses it, or does not answer.
    pub async fn apply(
        &self,
        child: &Child,
        mark: Option<Changed>,
    ) -> Result<DynamicObject, Error> {
        let object = marked(child.object.clone(), mark);
        let parameters = PatchParams::apply(MANAGER).validation_strict();
        let api = self.api(child.kind, &child.key.namespace);
        let written = api
            .patch(&child.key.name, &parameters, &Patch::Apply(&object))
            .await;
        written.map_err(|error| Error::of(child.kind, &child.key, error))
    }

    /// Deletes a child, if it is still the one that was seen.
    ///
    /// # Errors
    /// The API server refuses it, or does not answer.
    pub async fn delete(&self, kind: Kind, key: &Key, seen: &ChildSeen) -> Result<(), Error> {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(seen.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        let deleted = self
            .api(kind, &key.namespace)
            .delete(&key.name, &parameters)
            .await;
        match deleted {
            // Gone already, or another one by now: both are what was wanted.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(Error::of(kind, key, error)),
            Ok(_) => Ok(()),
        }
    }

    fn api(&self, kind: Kind, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &resource(kind))
    }
}

/// The group, version and plural of a kind of children.
#[must_use]
pub fn resource(kind: Kind) -> ApiResource {
    let (group, version, plural) = match kind {
        Kind::ConfigMap => ("", "v1", "configmaps"),
        Kind::PodDisruptionBudget => ("policy", "v1", "poddisruptionbudgets"),
        Kind::NetworkPolicy => ("networking.k8s.io", "v1", "networkpolicies"),
        Kind::Deployment => ("apps", "v1", "deployments"),
    };
    let kind = GroupVersionKind::gvk(group, version, kind.into());
    ApiResource::from_gvk_with_plural(&kind, plural)
}

fn marked(mut object: Value, mark: Option<Changed>) -> Value {
    if let Some(Changed { at_us, was_ready }) = mark {
        let annotations = &mut object["metadata"]["annotations"];
        annotations[CHANGED_AT] = instant(at_us).into();
        annotations[WAS_READY] = was_ready.to_string().into();
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: u16, message: &str, retry_after_seconds: u32) -> kube::Error {
        let status = serde_json::json!({
            "code": code, "message": message, "reason": "", "status": "Failure", "details": {"retryAfterSeconds": retry_after_seconds},
        });
        kube::Error::Api(serde_json::from_value(status).unwrap())
    }

    fn sorted(code: u16) -> String {
        match Error::of(
            Kind::Deployment,
            &Key::new("shop", "a"),
            said(code, "why", 7),
        ) {
            Error::Conflict { .. } => "conflict".into(),
            Error::Refused { forbidden, .. } => {
                format!("refused, may be accepted later: {forbidden}")
            }
            Error::Unavailable { retry_after_s, .. } => format!("unavailable for {retry_after_s}"),
            Error::Slow { .. } | Error::NotLeader => "made elsewhere".into(),
        }
    }

    #[test]
    fn answers_are_sorted_by_what_helps() {
        assert_eq!(sorted(409), "conflict");
        assert_eq!(sorted(422), "refused, may be accepted later: false");
        assert_eq!(sorted(403), "refused, may be accepted later: true");
        for code in [429, 500, 503, 504] {
            assert_eq!(sorted(code), "unavailable for 7", "{code}");
        }
    }

    #[test]
    fn mark_of_a_change_stands_beside_what_was_built() {
        let object = serde_json::json!({"metadata": {"annotations": {"a": "b"}}});
        assert_eq!(marked(object.clone(), None), object);
        let mark = Changed {
            at_us: 0,
            was_ready: true,
        };
        let annotations =
            serde_json::json!({"a": "b", CHANGED_AT: "1970-01-01T00:00:00Z", WAS_READY: "true"});
        assert_eq!(
            marked(object, Some(mark))["metadata"]["annotations"],
            annotations
        );
    }
}
