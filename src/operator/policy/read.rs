//! A policy as the API server gives it: read, or what can be told of one that this version cannot read.
//!
//! Whatever comes is taken: one object must not hide the others. Whom an unreadable one is about is read all the same where that
//! part can be; else it is about everybody, since nobody can say whom it leaves out.

use std::borrow::Cow;

use kube::{Resource, ResourceExt, api::ObjectMeta, core::ClusterResourceScope};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

use super::Labels;
use crate::api::{
    policy::{IngestionPolicy, IngestionPolicyStatus},
    schema::Selector,
};

/// An object of the kind `IngestionPolicy`.
#[derive(Debug, Clone)]
pub enum ReadPolicy {
    /// One that can be read.
    Whole(Box<IngestionPolicy>),
    /// One that cannot.
    Unread(Box<UnreadPolicy>),
}

/// A policy that this version cannot read.
#[derive(Debug, Clone, PartialEq)]
pub struct UnreadPolicy {
    /// Whose it is, and which version of it.
    pub metadata: ObjectMeta,
    /// Why.
    pub error: String,
    /// What was said of it last.
    pub status: Option<IngestionPolicyStatus>,
    selector: Selector,
    namespace_selector: Selector,
}

impl UnreadPolicy {
    /// Whether it is about a pipeline with these labels in a namespace with those, as far as can be told.
    #[must_use]
    pub fn selects(&self, pipeline: &Labels, namespace: &Labels) -> bool {
        self.selector.matches(pipeline) && self.namespace_selector.matches(namespace)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
}

impl ReadPolicy {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Whole(policy) => policy.name_any(),
            Self::Unread(policy) => policy.name().to_owned(),
        }
    }
}

impl<'de> Deserialize<'de> for ReadPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        fn part<T: DeserializeOwned + Default>(value: &Value) -> T {
            serde_json::from_value(value.clone()).unwrap_or_default()
        }
        let value = Value::deserialize(deserializer)?;
        let error = match IngestionPolicy::deserialize(&value) {
            Ok(policy) => return Ok(Self::Whole(Box::new(policy))),
            Err(error) => error.to_string(),
        };
        Ok(Self::Unread(Box::new(UnreadPolicy {
            metadata: part(&value["metadata"]),
            error,
            status: part(&value["status"]),
            selector: part(&value["spec"]["selector"]),
            namespace_selector: part(&value["spec"]["namespaceSelector"]),
        })))
    }
}

impl Resource for ReadPolicy {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        IngestionPolicy::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        IngestionPolicy::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        IngestionPolicy::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        IngestionPolicy::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Whole(policy) => policy.meta(),
            Self::Unread(policy) => &policy.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Whole(policy) => policy.meta_mut(),
            Self::Unread(policy) => &mut policy.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(spec: &str) -> ReadPolicy {
        let text = format!(
            "{{apiVersion: tidemark.dev/v1alpha1, kind: IngestionPolicy, metadata: {{name: gold, uid: u}}, spec: {spec}}}"
        );
        serde_yaml::from_str(&text).unwrap()
    }

    #[test]
    fn whom_an_unreadable_policy_is_about_is_told_where_it_can_be() {
        assert!(matches!(read("{mode: Enforce}"), ReadPolicy::Whole(_)));
        let labels = |team: &str| Labels::from([("team".to_owned(), team.to_owned())]);
        let of = |spec: &str| match read(spec) {
            ReadPolicy::Whole(_) => panic!("{spec} can be read"),
            ReadPolicy::Unread(policy) => policy,
        };
        let bound = of("{mode: Later, selector: {matchLabels: {team: a}}}");
        assert_eq!(
            (bound.name(), bound.metadata.uid.as_deref()),
            ("gold", Some("u"))
        );
        assert!(bound.error.contains("Later"), "{}", bound.error);
        let none = Labels::new();
        assert!(bound.selects(&labels("a"), &none) && !bound.selects(&labels("b"), &none));
        assert!(of("{selector: {matchLabels: [a]}}").selects(&none, &none));
    }
}
