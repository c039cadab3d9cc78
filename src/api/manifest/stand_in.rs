//! What stands in for what was found wrong in a manifest, while its rules are checked in the same run.
//!
//! In: an object, the schema, the places that are wrong. Out: the object in several fillings, in each of which every such place
//! holds something sound, and another thing in each. A rule that is broken in all of them is broken whatever a person writes in
//! those places; one that some filling satisfies only follows from them, and is not told.
//!
//! No filling may break a rule by itself: what stands in is sound, and no two places of a filling hold the same.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::{Map, Value, json};

/// A place in an object: how people read it, and how it is found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// As `spec.source.kafka.topics[2]`.
    pub(super) path: String,
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    Entry(usize),
}

impl Place {
    /// A field of the object itself, or of fields in it: `metadata.name`.
    pub(super) fn of(path: &str) -> Self {
        path.split('.')
            .fold(Self::default(), |place, field| place.field(field))
    }

    /// A field of what is here.
    pub(super) fn field(&self, name: &str) -> Self {
        let mut below = self.clone();
        if !below.path.is_empty() {
            below.path.push('.');
        }
        below.path.push_str(name);
        below.steps.push(Step::Field(name.to_owned()));
        below
    }

    /// An entry of the map that is here, whose names are free.
    pub(super) fn key(&self, name: &str) -> Self {
        let mut below = self.field(name);
        below.path = format!("{}[{name}]", self.path);
        below
    }

    /// An entry of the list that is here.
    pub(super) fn entry(&self, index: usize) -> Self {
        let mut below = self.clone();
        below.path = format!("{}[{index}]", self.path);
        below.steps.push(Step::Entry(index));
        below
    }

    /// The schema of what is here; `None`: the schema knows no such place.
    fn schema<'s>(&self, whole: &'s Value) -> Option<&'s Value> {
        self.steps.iter().try_fold(whole, |schema, step| {
            let below = match step {
                Step::Field(name) => schema["properties"]
                    .get(name)
                    .unwrap_or(&schema["additionalProperties"]),
                Step::Entry(_) => &schema["items"],
            };
            below.is_object().then_some(below)
        })
    }

    /// What an object holds at `path`, where that lies above here.
    pub(super) fn above<'o>(&self, path: &str, object: &'o Value) -> Option<&'o Value> {
        let mut place = Self::default();
        let mut value = object;
        for step in &self.steps {
            (place, value) = match step {
                Step::Field(name) => (place.field(name), value.get(name)?),
                Step::Entry(index) => (place.entry(*index), value.get(index)?),
            };
            if place.path == path {
                return Some(value);
            }
        }
        None
    }

    /// Puts something here, or takes away what is here. Nothing is done where the way to it is gone.
    fn put(&self, object: &mut Value, value: Option<Value>) {
        let Some((last, way)) = self.steps.split_last() else {
            return;
        };
        let parent = way.iter().try_fold(object, |object, step| match step {
            Step::Field(name) => object.get_mut(name),
            Step::Entry(index) => object.get_mut(index),
        });
        match (last, parent) {
            (Step::Field(name), Some(Value::Object(fields))) => match value {
                Some(value) => drop(fields.insert(name.clone(), value)),
                None => drop(fields.remove(name)),
            },
            (Step::Entry(index), Some(Value::Array(items))) => {
                if let (Some(item), Some(value)) = (items.get_mut(*index), value) {
                    *item = value;
                }
            }
            _ => {}
        }
    }
}

/// The object in every filling. `wrong`: the places that are; a field that the schema does not know is left out in all, and so is
/// what no rule is about: the metadata.
pub(super) fn filled(object: &Value, schema: &Value, wrong: &[Place]) -> Vec<Value> {
    let spec = &object["spec"];
    let names = [&spec["eventTime"]["column"], &spec["sink"]["partitioning"]];
    let words = names.into_iter().flat_map(words).collect();
    let choices: Vec<Vec<Value>> = wrong
        .iter()
        .enumerate()
        .map(|(number, place)| {
            let maker = Maker {
                number,
                words: &words,
            };
            let at = place.schema(schema);
            at.map_or_else(Vec::new, |at| maker.sound(at, &place.path))
        })
        .collect();
    let most = choices.iter().map(Vec::len).max().unwrap_or(0).max(1);
    // Once hand in hand and once shifted against each other: two wrong places may satisfy a rule together.
    let shifts = wrong.len().min(2);
    let turns = (0..most).flat_map(|turn| (0..shifts).map(move |shift| (turn, shift)));
    let fillings = turns.map(|(turn, shift)| {
        let mut filling = object.clone();
        for (number, (place, choices)) in wrong.iter().zip(&choices).enumerate() {
            let choice = choices.get((turn + shift * number) % choices.len().max(1));
            place.put(&mut filling, choice.cloned());
        }
        filling["metadata"] = json!({"name": "stand-in"});
        filling
    });
    fillings.collect()
}

/// The words of a text: it names columns by them.
fn words(value: &Value) -> Vec<String> {
    let words = value.as_str().unwrap_or_default();
    let words = words.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// As many ways of one object as are worth a try.
const MOST_WAYS: usize = 32;

/// Makes what stands in for one place.
struct Maker<'a> {
    /// Which place; texts of different ones differ.
    number: usize,
    /// What columns are called elsewhere.
    words: &'a BTreeSet<String>,
}

impl Maker<'_> {
    /// Sound values of a schema.
    fn sound(&self, schema: &Value, path: &str) -> Vec<Value> {
        if let Some(choices) = schema["enum"].as_array() {
            let choices = choices.iter().filter(|choice| !choice.is_null());
            return choices.cloned().collect();
        }
        match schema["type"].as_str() {
            Some("object") => self.objects(schema, path),
            Some("array") => self
                .sound(&schema["items"], path)
                .into_iter()
                .map(|item| json!([item]))
                .collect(),
            Some("boolean") => vec![json!(true), json!(false)],
            Some("integer" | "number") => numbers(schema),
            Some("string") => self.texts(schema, path),
            _ => Vec::new(),
        }
    }

    /// An object with what has to be there in all of its ways, then with each way of each other field beside.
    fn objects(&self, schema: &Value, path: &str) -> Vec<Value> {
        let fields = schema["properties"].as_object();
        let required = schema["required"].as_array();
        let (needed, others): (Vec<_>, Vec<_>) = fields
            .into_iter()
            .flatten()
            .map(|(name, of_field)| (name, self.sound(of_field, &format!("{path}.{name}"))))
            .partition(|(name, _)| required.is_some_and(|all| all.iter().any(|one| one == *name)));
        let ways = needed.iter().map(|(_, ways)| ways.len());
        let ways = ways.fold(1, usize::saturating_mul).min(MOST_WAYS);
        let base = |mut turn: usize| -> Map<String, Value> {
            let mut object = Map::new();
            for (name, ways) in &needed {
                let (count, at) = (ways.len().max(1), turn);
                turn = at / count;
                if let Some(way) = ways.get(at % count) {
                    object.insert((*name).clone(), way.clone());
                }
            }
            object
        };
        let mut all: Vec<Value> = (0..ways).map(|turn| base(turn).into()).collect();
        for (name, way) in others
            .iter()
            .flat_map(|(name, ways)| ways.iter().map(move |way| (*name, way)))
        {
            let mut object = base(0);
            object.insert(name.clone(), way.clone());
            all.push(object.into());
        }
        all.truncate(MOST_WAYS);
        all
    }

    /// Texts that fit a schema, and the rules of the field where it has some that the schema cannot say.
    fn texts(&self, schema: &Value, path: &str) -> Vec<Value> {
        let last = path.rsplit('.').next().unwrap_or(path);
        let own: &[&str] = match last {
            "apiVersion" => &["tidemark.dev/v1alpha1"],
            "kind" => &["IngestionPipeline"],
            "uri" => &["http://stand-in", "sqlite:stand-in"],
            "endpoint" => &["https://stand-in", "http://stand-in"],
            "zone" => &["Europe/Berlin", "UTC"],
            "partitioning" => &["Hour", "None"],
            "completeFrom" => &["Unbounded", "2026-11-30T10:00:00Z"],
            "table" => &["stand.in"],
            _ => &[],
        };
        if !own.is_empty() {
            return own.iter().map(|text| json!(text)).collect();
        }
        let free = format!("stand-in-{}", self.number);
        let id = format!("{:08x}-0000-4000-8000-000000000000", self.number);
        // Of every form that a pattern of ours asks for.
        let forms = [
            free.as_str(),
            id.as_str(),
            "stand_in_",
            "1s",
            "1m",
            "1h",
            "1d",
            "64Mi",
            "100m",
            "2026-11-30T10:00:00Z",
            "string",
            "timestamp",
            "long",
        ];
        let pattern = schema["pattern"]
            .as_str()
            .map(|pattern| Regex::new(pattern).expect("patterns of the schema are tested"));
        let Some(pattern) = pattern else {
            // The name of a column, which others refer to.
            let named = ["name", "column"].contains(&last);
            let words = self.words.iter().filter(|_| named);
            return words.map(|word| json!(word)).chain([json!(free)]).collect();
        };
        let most = schema["maxLength"].as_u64().unwrap_or(u64::MAX);
        let fits = |text: &&str| pattern.is_match(text) && text.len() as u64 <= most;
        if fits(&forms[0]) {
            return vec![json!(free)];
        }
        forms
            .iter()
            .filter(|text| fits(text))
            .map(|text| json!(text))
            .collect()
    }
}

/// The least and the greatest that a schema allows.
fn numbers(schema: &Value) -> Vec<Value> {
    // It writes its bounds with a point.
    let bounds = ["minimum", "maximum"].map(|bound| schema[bound].as_f64());
    let whole = bounds
        .into_iter()
        .flatten()
        .filter_map(|bound| format!("{bound:.0}").parse::<i64>().ok());
    let whole: Vec<Value> = whole.map(Value::from).collect();
    if whole.is_empty() {
        vec![json!(1)]
    } else {
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Findings, PIPELINES, check};
    use super::*;

    /// Every place of the schema has something to stand in for it, and the schema takes it.
    #[test]
    fn what_stands_in_is_sound_at_every_place_of_the_schema() {
        let schema = &*PIPELINES;
        let mut places = Vec::new();
        below(
            &schema["properties"]["spec"],
            &Place::of("spec"),
            &mut places,
        );
        assert!(places.len() > 60, "{places:?}");
        for place in places {
            let of_place = place.schema(schema).expect("a place of the schema");
            let maker = Maker {
                number: 3,
                words: &BTreeSet::from(["note".to_owned()]),
            };
            let all = maker.sound(of_place, &place.path);
            assert!(!all.is_empty(), "{}", place.path);
            for value in all {
                let mut found = Findings::default();
                check(of_place, &value, &place, &mut found);
                assert!(found.broken.is_empty(), "{value}: {:?}", found.broken);
            }
        }
    }

    fn below(schema: &Value, place: &Place, places: &mut Vec<Place>) {
        for (field, of_field) in schema["properties"].as_object().into_iter().flatten() {
            let place = place.field(field);
            places.push(place.clone());
            below(of_field, &place, places);
        }
        if schema["items"].is_object() {
            let place = place.entry(0);
            places.push(place.clone());
            below(&schema["items"], &place, places);
        }
    }

    #[test]
    fn two_places_never_hold_the_same_text() {
        let schema = &*PIPELINES;
        let object = json!({"spec": {"source": {"kafka": {"topics": [5, "a", 6]}}}});
        let topics = Place::of("spec.source.kafka.topics");
        for filling in filled(&object, schema, &[topics.entry(0), topics.entry(2)]) {
            let topics = filling.pointer("/spec/source/kafka/topics").unwrap();
            assert_eq!(*topics, json!(["stand-in-0", "a", "stand-in-1"]));
        }
    }
}
