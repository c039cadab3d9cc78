//! Schemas that several kinds share: types that stand in a schema inline, conditions, and label selectors with bounds.
//!
//! Kubernetes' own types have no bounds in their schemas, and a rule over an unbounded list exceeds the API server's budget.

#![expect(
    unreachable_pub,
    reason = "KubeSchema repeats each struct within a function"
)]

use std::collections::BTreeMap;

use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use strum::VariantNames;

/// Types that stand in a schema inline, under the description of their field.
macro_rules! inline_schema {
    ($($type:ident: $schema:tt;)*) => {$(
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        }
    )*};
}

pub(super) use inline_schema;

/// Enums that stand in a schema inline as a choice of their variants: a description of their own would take the place of their
/// field's where that may be left out.
macro_rules! choices {
    ($($type:ident)*) => {
        crate::api::schema::inline_schema! {$(
            $type: {"type": "string", "enum": <$type as strum::VariantNames>::VARIANTS};
        )*}
    };
}

pub(super) use choices;

choices!(ConditionStatus SelectorOperator);

/// A length in ms, in the API server's language of rules, whose own durations know no days. `value` is a text with the schema of a length.
pub(crate) fn length_in_cel(value: &str) -> String {
    format!(
        "{value}.findAll('[0-9]+[a-z]+').map(part, int(part.find('[0-9]+')) * (part.endsWith('ms') ? 1 : part.endsWith('s') ? 1000 : \
         part.endsWith('m') ? 60000 : part.endsWith('h') ? 3600000 : 86400000)).sum()"
    )
}

/// One condition of an object, as Kubernetes writes it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct StatusCondition {
    /// Which condition, as `Ready`.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub kind: String,
    /// Whether it is so: `True`, `False`, or `Unknown` where it cannot be told.
    pub status: ConditionStatus,
    /// Why, as one stable word, which has a section in the runbook.
    #[schemars(length(min = 1, max = 128))]
    pub reason: String,
    /// The values that belong to the reason, and what to do.
    #[schemars(length(max = 2048))]
    pub message: String,
    /// When `status` last changed.
    #[schemars(length(max = 40), extend("format" = "date-time"))]
    pub last_transition_time: String,
    /// Which generation of the specification it speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
}

/// A condition's answer in an object.
#[derive(Serialize, Deserialize, VariantNames, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// Yes.
    True,
    /// No.
    False,
    /// It cannot be told.
    Unknown,
}

/// Which objects are meant, by their labels. An empty one means all.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Selector {
    /// Labels that an object must have with these values, at most 32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = {"type": "string", "maxLength": 63}))]
    pub match_labels: Option<BTreeMap<String, String>>,
    /// Requirements that an object must meet, all of them; at most 32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub match_expressions: Option<Vec<SelectorRequirement>>,
}

/// One requirement of a label.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : !has(self.values) || size(self.values) == 0").message("values goes with operator In and NotIn, and each needs the other"))]
pub struct SelectorRequirement {
    /// The label's key.
    #[schemars(length(min = 1, max = 316))]
    pub key: String,
    /// How it is compared: `In` and `NotIn` look at `values`, `Exists` and `DoesNotExist` at the key alone.
    pub operator: SelectorOperator,
    /// The values, 1 to 64 with `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(max = 63)))]
    pub values: Option<Vec<String>>,
}

/// How a label is compared.
#[derive(Serialize, Deserialize, VariantNames, Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectorOperator {
    /// Its value is one of these.
    In,
    /// It is absent, or its value is none of these.
    NotIn,
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
}

impl Selector {
    /// Whether an object with these labels is meant.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let equal = self.match_labels.iter().flatten();
        let mut met = self.match_expressions.iter().flatten();
        equal
            .into_iter()
            .all(|(key, value)| labels.get(key) == Some(value))
            && met.all(|requirement| requirement.is_met(labels))
    }
}

impl SelectorRequirement {
    fn is_met(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let named = value.is_some_and(|value| self.values.iter().flatten().any(|one| one == value));
        match self.operator {
            SelectorOperator::In => named,
            SelectorOperator::NotIn => !named,
            SelectorOperator::Exists => value.is_some(),
            SelectorOperator::DoesNotExist => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(text: &str) -> Selector {
        serde_yaml::from_str(text).unwrap()
    }

    /// As `kubectl get -l` understands the same words.
    #[test]
    fn selector_means_what_kubernetes_means_by_it() {
        let labels = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            pairs
                .map(|(key, value)| ((*key).into(), (*value).into()))
                .collect::<BTreeMap<String, String>>()
        };
        let eu = labels(&[("region", "eu"), ("tier", "gold")]);
        let none = BTreeMap::new();
        let cases = [
            ("{}", true, true),
            ("matchLabels: {region: eu}", true, false),
            ("matchLabels: {region: eu, tier: tin}", false, false),
            (
                "matchExpressions: [{key: region, operator: In, values: [us, eu]}]",
                true,
                false,
            ),
            (
                "matchExpressions: [{key: region, operator: NotIn, values: [eu]}]",
                false,
                true,
            ),
            (
                "matchExpressions: [{key: tier, operator: Exists}]",
                true,
                false,
            ),
            (
                "matchExpressions: [{key: tier, operator: DoesNotExist}]",
                false,
                true,
            ),
        ];
        for (text, of_eu, of_none) in cases {
            assert_eq!(selector(text).matches(&eu), of_eu, "{text}");
            assert_eq!(selector(text).matches(&none), of_none, "{text}");
        }
    }
}
