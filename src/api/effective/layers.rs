//! Layers of a specification, merged leaf by leaf, and who said each leaf.
//!
//! A layer is a JSON object in the shape of `spec`; a later one wins. Objects and maps are merged key by key; lists, texts and
//! numbers are leaves and replaced whole; null is nothing.
//!
//! A field that goes with a certain value of another one falls away with it: a default made for days is none for hours.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
    sync::Arc,
};

use serde_json::{Map, Value};

use super::DAY_US;
use crate::api::quantity::parse_length_us;

/// Who said a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// Nobody: it is what holds where nothing else is said.
    BuiltIn,
    /// This policy, for pipelines that say nothing themselves.
    Default(Arc<str>),
    /// The pipeline.
    Pipeline,
    /// This policy, whatever a pipeline says.
    Override(Arc<str>),
}

impl Origin {
    /// The policy that said it.
    #[must_use]
    pub fn policy(&self) -> Option<&Arc<str>> {
        match self {
            Self::Default(policy) | Self::Override(policy) => Some(policy),
            Self::BuiltIn | Self::Pipeline => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in"),
            Self::Default(policy) => write!(f, "default of policy \"{policy}\""),
            Self::Pipeline => f.write_str("pipeline"),
            Self::Override(policy) => write!(f, "override of policy \"{policy}\""),
        }
    }
}

/// A value that stands alone, and who said it.
#[derive(Debug, Clone, PartialEq)]
pub struct Leaf {
    /// Which field, as `spec.sink.commit.interval`; a key of a map stands in brackets.
    pub path: String,
    /// Its value.
    pub value: Value,
    /// Who said it.
    pub origin: Origin,
}

/// A value that counts for nothing because a higher layer has decided the field that it goes with.
#[derive(Debug, Clone, PartialEq)]
pub struct Fallen {
    /// The value.
    pub leaf: Leaf,
    /// The field that it goes with, as it was decided.
    pub with: Leaf,
}

/// Fields of the custom resource whose keys people choose.
const MAPS: [&str; 4] = ["properties", "nodeSelector", "podLabels", "podAnnotations"];

/// Fields that mean something only with certain values of another one.
struct Bond {
    fields: &'static [&'static [&'static str]],
    with: &'static [&'static str],
    fits: fn(&Value) -> bool,
}

const BONDS: [Bond; 11] = [
    Bond {
        fields: &[&["finalization", "quantile"]],
        with: &["finalization", "terms"],
        fits: |terms| {
            terms
                .as_array()
                .is_some_and(|terms| terms.contains(&Value::from("Percentile")))
        },
    },
    Bond {
        fields: &[&["finalization", "zone"]],
        with: &["finalization", "cell"],
        fits: |cell| cell.as_str().and_then(parse_length_us) == Some(DAY_US),
    },
    Bond {
        fields: &[&["worker", "pool"]],
        with: &["worker", "placement"],
        fits: |placement| placement == "Shared",
    },
    Bond {
        fields: &[
            &["worker", "resources"],
            &["worker", "nodeSelector"],
            &["worker", "tolerations"],
            &["worker", "priorityClassName"],
            &["worker", "podLabels"],
            &["worker", "podAnnotations"],
        ],
        with: &["worker", "placement"],
        fits: |placement| placement != "Shared",
    },
    Bond {
        fields: &[&["source", "kafka", "security", "sasl"]],
        with: &["source", "kafka", "security", "protocol"],
        fits: |protocol| protocol == "SaslSsl" || protocol == "SaslPlaintext",
    },
    Bond {
        fields: &[&["source", "kafka", "security", "tls"]],
        with: &["source", "kafka", "security", "protocol"],
        fits: |protocol| protocol == "SaslSsl" || protocol == "Ssl",
    },
    // What is kept secret belongs to the very user, certificate or key that it was said with, not to another layer's.
    Bond {
        fields: &[&["source", "kafka", "security", "sasl", "passwordRef"]],
        with: &["source", "kafka", "security", "sasl", "username"],
        fits: |_| false,
    },
    Bond {
        fields: &[
            &["source", "kafka", "security", "tls", "keyRef"],
            &["source", "kafka", "security", "tls", "keyPasswordRef"],
        ],
        with: &[
            "source",
            "kafka",
            "security",
            "tls",
            "certificateRef",
            "name",
        ],
        fits: |_| false,
    },
    Bond {
        fields: &[
            &["sink", "catalog", "storage", "secretAccessKeyRef"],
            &["sink", "catalog", "storage", "sessionTokenRef"],
        ],
        with: &["sink", "catalog", "storage", "accessKeyIdRef", "name"],
        fits: |_| false,
    },
    Bond {
        fields: &[&["sink", "catalog", "storage", "caRef"]],
        with: &["sink", "catalog", "storage", "endpoint"],
        fits: is_encrypted,
    },
    Bond {
        fields: &[&["sink", "catalog", "caRef"]],
        with: &["sink", "catalog", "uri"],
        fits: is_encrypted,
    },
];

fn is_encrypted(address: &Value) -> bool {
    address
        .as_str()
        .is_some_and(|at| at.starts_with("https://"))
}

/// A specification as its layers make it.
#[derive(Debug, Clone, PartialEq)]
pub struct Layered {
    /// Who the layers are from, the lowest first.
    origins: Vec<Origin>,
    root: Fields,
    fallen: Vec<Fallen>,
}

type Fields = BTreeMap<String, Node>;

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Fields(Fields),
    /// A value and the number of its layer.
    Leaf(Value, usize),
}

impl Layered {
    /// Merges `layers`, the lowest first.
    #[must_use]
    pub fn new<'a>(layers: impl IntoIterator<Item = (Origin, &'a Value)>) -> Self {
        let mut layered = Self {
            origins: Vec::new(),
            root: Fields::new(),
            fallen: Vec::new(),
        };
        for (origin, values) in layers {
            let layer = layered.origins.len();
            layered.origins.push(origin);
            if let Value::Object(values) = values {
                merge(&mut layered.root, values, layer);
            }
        }
        for bond in BONDS {
            layered.untie(&bond);
        }
        layered
    }

    /// Takes away what goes with another value than the one that a higher layer has decided.
    fn untie(&mut self, bond: &Bond) {
        let Some(Node::Leaf(decided, layer)) = node(&self.root, bond.with) else {
            return;
        };
        if (bond.fits)(decided) {
            return;
        }
        let (with, layer) = (self.leaf(bond.with, decided, *layer), *layer);
        for field in bond.fields {
            let mut below = Vec::new();
            take_below(&mut self.root, field, layer, &mut below);
            for (rest, value, said) in below {
                let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
                let leaf = self.leaf(&rest, &value, said);
                self.fallen.push(Fallen {
                    leaf,
                    with: with.clone(),
                });
            }
        }
    }

    fn leaf(&self, keys: &[&str], value: &Value, layer: usize) -> Leaf {
        Leaf {
            path: path_of(keys),
            value: value.clone(),
            origin: self.origins[layer].clone(),
        }
    }

    /// The whole in the shape of `spec`.
    #[must_use]
    pub fn value(&self) -> Value {
        Value::Object(values(&self.root))
    }

    /// Every leaf, by its path.
    #[must_use]
    pub fn leaves(&self) -> Vec<Leaf> {
        let mut leaves = Vec::new();
        walk(&self.root, &mut Vec::new(), &mut |keys, value, layer| {
            leaves.push(self.leaf(keys, value, layer));
        });
        leaves
    }

    /// What counts for nothing, though a layer says it.
    #[must_use]
    pub fn fallen(&self) -> &[Fallen] {
        &self.fallen
    }

    /// Who said the leaf at `path` or the one that `path` is a part of, as `spec.worker.tolerations[0].key` is of a list; of an
    /// object, the highest layer that says something in it.
    #[must_use]
    pub fn origin(&self, path: &str) -> Option<&Origin> {
        let within = |outer: &str, inner: &str| {
            let rest = inner.strip_prefix(outer);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let mut found = None;
        walk(&self.root, &mut Vec::new(), &mut |keys, _, layer| {
            let own = path_of(keys);
            if within(&own, path) || within(path, &own) {
                found = found.max(Some(layer));
            }
        });
        found.map(|layer| &self.origins[layer])
    }

    /// The value at a path of field names, and who said it, where it is a leaf.
    #[must_use]
    pub fn get(&self, keys: &[&str]) -> Option<(&Value, &Origin)> {
        match node(&self.root, keys)? {
            Node::Leaf(value, layer) => Some((value, &self.origins[*layer])),
            Node::Fields(_) => None,
        }
    }

    /// Says what is built in where nobody has said anything.
    ///
    /// # Panics
    /// Without a layer.
    pub(super) fn fill(&mut self, keys: &[&str], value: Value) {
        assert!(!self.origins.is_empty(), "the built-in layer is the lowest");
        let (last, parents) = keys.split_last().expect("a field has a name");
        let mut fields = &mut self.root;
        for parent in parents {
            let below = fields.entry((*parent).to_owned());
            match below.or_insert_with(|| Node::Fields(Fields::new())) {
                Node::Fields(below) => fields = below,
                Node::Leaf(..) => return,
            }
        }
        let field = fields.entry((*last).to_owned());
        field.or_insert(Node::Leaf(value, 0));
    }
}

fn merge(fields: &mut Fields, upper: &Map<String, Value>, layer: usize) {
    for (key, value) in upper {
        match value {
            Value::Null => {}
            Value::Object(below) => {
                let node = fields.entry(key.clone());
                let node = node.or_insert_with(|| Node::Fields(Fields::new()));
                if let Node::Leaf(..) = node {
                    *node = Node::Fields(Fields::new());
                }
                if let Node::Fields(fields) = node {
                    merge(fields, below, layer);
                }
            }
            leaf => drop(fields.insert(key.clone(), Node::Leaf(leaf.clone(), layer))),
        }
    }
}

fn node<'a>(fields: &'a Fields, keys: &[&str]) -> Option<&'a Node> {
    let (first, rest) = keys.split_first()?;
    match (fields.get(*first)?, rest) {
        (found, []) => Some(found),
        (Node::Fields(below), rest) => node(below, rest),
        (Node::Leaf(..), _) => None,
    }
}

/// The keys that lead to a leaf, its value and the number of its layer.
type Taken = (Vec<String>, Value, usize);

/// Takes the leaves at and below `keys` whose layer is lower than `layer`.
fn take_below(fields: &mut Fields, keys: &[&str], layer: usize, taken: &mut Vec<Taken>) {
    let Some((last, parents)) = keys.split_last() else {
        return;
    };
    let mut fields = fields;
    for parent in parents {
        match fields.get_mut(*parent) {
            Some(Node::Fields(below)) => fields = below,
            _ => return,
        }
    }
    match fields.get_mut(*last) {
        Some(Node::Leaf(value, said)) if *said < layer => {
            let keys = keys.iter().map(|&key| key.to_owned()).collect();
            taken.push((keys, value.take(), *said));
            fields.remove(*last);
        }
        Some(Node::Fields(below)) => {
            let names: Vec<String> = below.keys().cloned().collect();
            for name in names {
                let keys: Vec<&str> = keys.iter().copied().chain([name.as_str()]).collect();
                let mut found = Vec::new();
                take_below(below, &[&name], layer, &mut found);
                let whole = |(rest, value, said): Taken| {
                    let tail = rest.into_iter().skip(1);
                    let keys = keys.iter().map(|&key| key.to_owned()).chain(tail);
                    (keys.collect(), value, said)
                };
                taken.extend(found.into_iter().map(whole));
            }
            if below.is_empty() {
                fields.remove(*last);
            }
        }
        _ => {}
    }
}

fn values(fields: &Fields) -> Map<String, Value> {
    let values = fields.iter().map(|(key, node)| {
        let value = match node {
            Node::Fields(below) => Value::Object(values(below)),
            Node::Leaf(value, _) => value.clone(),
        };
        (key.clone(), value)
    });
    values.collect()
}

fn walk<'a>(
    fields: &'a Fields,
    keys: &mut Vec<&'a str>,
    leaf: &mut dyn FnMut(&[&str], &Value, usize),
) {
    for (key, node) in fields {
        keys.push(key);
        match node {
            Node::Fields(below) => walk(below, keys, leaf),
            Node::Leaf(value, layer) => leaf(keys, value, *layer),
        }
        keys.pop();
    }
}

/// `["source", "kafka", "properties", "acks"]` → `spec.source.kafka.properties[acks]`.
fn path_of(keys: &[&str]) -> String {
    let mut path = String::from("spec");
    let mut chosen = false;
    for key in keys {
        let _ = if chosen {
            write!(path, "[{key}]")
        } else {
            write!(path, ".{key}")
        };
        chosen = MAPS.contains(key) && !chosen;
    }
    path
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::api::custom_resource_definitions;

    fn policy(name: &str) -> Origin {
        Origin::Default(name.into())
    }

    fn lay(layers: &[(Origin, Value)]) -> Layered {
        Layered::new(
            layers
                .iter()
                .map(|(origin, values)| (origin.clone(), values)),
        )
    }

    #[test]
    fn later_layers_win_leaf_by_leaf() {
        let layered = lay(&[
            (
                Origin::BuiltIn,
                json!({"sink": {"commit": {"interval": "60s"}, "onRollback": "Replay"}}),
            ),
            (
                policy("a"),
                json!({"source": {"kafka": {"properties": {"x.y": "1", "z": "1"}}}}),
            ),
            (
                Origin::Pipeline,
                json!({"sink": {"commit": {"interval": "30s"}, "schema": null}, "source": {"kafka": {"properties": {"z": "2"}}}}),
            ),
        ]);
        let leaves: Vec<_> = layered
            .leaves()
            .into_iter()
            .map(|leaf| (leaf.path, leaf.value, leaf.origin))
            .collect();
        let expected = [
            ("spec.sink.commit.interval", "30s", Origin::Pipeline),
            ("spec.sink.onRollback", "Replay", Origin::BuiltIn),
            ("spec.source.kafka.properties[x.y]", "1", policy("a")),
            ("spec.source.kafka.properties[z]", "2", Origin::Pipeline),
        ];
        assert_eq!(
            leaves,
            expected.map(|(path, value, origin)| (path.to_owned(), json!(value), origin))
        );
        assert_eq!(layered.origin("spec.sink"), Some(&Origin::Pipeline));
        assert_eq!(
            layered.origin("spec.source.kafka.properties[x.y]"),
            Some(&policy("a"))
        );
    }

    #[test]
    fn parts_of_a_list_have_the_origin_of_the_list() {
        let layered = lay(&[(
            Origin::Pipeline,
            json!({"sink": {"schema": [{"name": "id"}]}}),
        )]);
        assert_eq!(
            layered.origin("spec.sink.schema[0].name"),
            Some(&Origin::Pipeline)
        );
        assert_eq!(layered.origin("spec.sink.schemata"), None);
    }

    /// A default for days must not spoil a pipeline that closes hours.
    #[test]
    fn field_falls_away_with_the_value_that_it_goes_with() {
        let day = json!({"finalization": {"cell": "24h", "zone": "Europe/Berlin"}});
        let hour = json!({"finalization": {"cell": "1h"}});
        let layered = lay(&[
            (policy("days"), day.clone()),
            (Origin::Pipeline, hour.clone()),
        ]);
        assert_eq!(layered.value(), hour);
        let zone = Leaf {
            path: "spec.finalization.zone".into(),
            value: json!("Europe/Berlin"),
            origin: policy("days"),
        };
        let with = Leaf {
            path: "spec.finalization.cell".into(),
            value: json!("1h"),
            origin: Origin::Pipeline,
        };
        assert_eq!(layered.fallen(), [Fallen { leaf: zone, with }]);
        // Said by the pipeline itself it stays, to be refused; a length of a day written otherwise takes nothing away.
        let both = json!({"finalization": {"cell": "1h", "zone": "Europe/Berlin"}});
        assert_eq!(
            lay(&[(Origin::BuiltIn, hour), (Origin::Pipeline, both.clone())]).value(),
            both
        );
        let same = lay(&[
            (policy("days"), day),
            (Origin::Pipeline, json!({"finalization": {"cell": "1d"}})),
        ]);
        assert_eq!(same.fallen(), []);
    }

    #[test]
    fn shared_pods_shed_the_defaults_of_dedicated_ones() {
        let own = json!({"worker": {
            "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
            "podLabels": {"team": "a"},
            "replicas": 2,
        }});
        let shared = json!({"worker": {"placement": "Shared", "podLabels": {"own": "b"}}});
        let layered = lay(&[(policy("sizes"), own), (Origin::Pipeline, shared)]);
        let left =
            json!({"worker": {"placement": "Shared", "podLabels": {"own": "b"}, "replicas": 2}});
        assert_eq!(layered.value(), left);
        let fallen: Vec<&str> = layered
            .fallen()
            .iter()
            .map(|fallen| fallen.leaf.path.as_str())
            .collect();
        let expected = [
            "spec.worker.resources.limits.memory",
            "spec.worker.resources.requests.cpu",
            "spec.worker.podLabels[team]",
        ];
        assert_eq!(fallen, expected);
    }

    /// The notation of paths must know each map that a policy or a pipeline has.
    #[test]
    fn maps_are_those_of_the_schema() {
        fn maps(schema: &Value, name: &str, found: &mut Vec<String>) {
            if schema["additionalProperties"].is_object() {
                found.push(name.to_owned());
            }
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                maps(field, name, found);
            }
            if schema["items"].is_object() {
                maps(&schema["items"], name, found);
            }
        }
        let mut found = Vec::new();
        for (_, definition) in custom_resource_definitions() {
            let definition: Value = serde_yaml::from_str(&definition).unwrap();
            let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            for part in ["source", "sink", "finalization", "worker", "eventTime"] {
                maps(
                    &schema["properties"]["spec"]["properties"][part],
                    part,
                    &mut found,
                );
            }
        }
        found.sort();
        found.dedup();
        let mut known = MAPS.map(str::to_owned).to_vec();
        known.sort();
        assert_eq!(found, known);
    }

    /// A tree of fields that no bond ties, two levels deep, with few names so that layers meet.
    fn layer() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            (0..4_u8).prop_map(Value::from),
            prop::collection::vec(0..2_u8, 0..3).prop_map(Value::from),
        ];
        let inner = prop::collection::btree_map("[ab]", leaf.clone(), 0..3)
            .prop_map(|fields| Value::Object(fields.into_iter().collect()));
        prop::collection::btree_map("[xyz]", inner, 0..4)
            .prop_map(|fields| Value::Object(fields.into_iter().collect()))
    }

    proptest! {
        /// The oracle takes one leaf at a time and asks each layer, the highest first.
        #[test]
        fn prop_each_leaf_is_that_of_the_highest_layer_that_says_it(layers in prop::collection::vec(layer(), 1..6)) {
            let named: Vec<(Origin, Value)> = layers.iter().enumerate()
                .map(|(number, values)| (policy(&number.to_string()), values.clone())).collect();
            let layered = lay(&named);
            let mut count = 0;
            for outer in ["x", "y", "z"] {
                for inner in ["a", "b"] {
                    let says = |(_, values): &&(Origin, Value)| !values[outer][inner].is_null();
                    let expected = named.iter().rev().find(says);
                    let expected = expected.map(|(origin, values)| (&values[outer][inner], origin));
                    prop_assert_eq!(layered.get(&[outer, inner]), expected);
                    count += usize::from(expected.is_some());
                }
            }
            prop_assert_eq!(layered.leaves().len(), count);
        }
    }
}
