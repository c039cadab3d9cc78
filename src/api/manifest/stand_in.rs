//! What can still be read of a wrong object, so that its other faults are told in the same run.
//!
//! What was found wrong is taken out, and where something has to be there, something stands in for it.

use serde_json::{Value, json};

use super::schema::Findings;
use crate::api::pipeline::IngestionPipeline;

/// The object without what was found wrong, as far as it can still be read: its rules are checked in the same run.
pub(super) fn pruned(object: &Value, found: &Findings) -> Result<IngestionPipeline, String> {
    let mut object = object.clone();
    for fault in &found.broken {
        remove(&mut object, &fault.path);
        stand_in(&mut object, &fault.path);
    }
    serde_json::from_value(object).map_err(|error| error.to_string())
}

/// What stands in for a field or an entry that has to be there, while the rules of the others are checked. What the rules find
/// about it is not told: the field is known to be wrong. `shape`: its path without the numbers of entries.
fn stand_in_for(shape: &str) -> Option<Value> {
    let catalog = || json!({"type": "Rest", "uri": "http://stand-in"});
    let kafka = || json!({"bootstrapServers": "stand-in:9092", "topics": ["stand-in"]});
    Some(match shape {
        "spec.source" => json!({"kafka": kafka(), "format": "DebeziumJson"}),
        "spec.source.kafka" => kafka(),
        "spec.source.kafka.bootstrapServers" => "stand-in:9092".into(),
        "spec.source.format" => "DebeziumJson".into(),
        "metadata.name"
        | "spec.source.kafka.topics[]"
        | "spec.source.deadLetter.topic"
        | "spec.sink.catalog.credentialRef.key"
        | "spec.sink.catalog.credentialRef.name" => "stand-in".into(),
        "spec.source.accept.topicIds[]" => "00000000-0000-0000-0000-000000000000".into(),
        "spec.sink" => json!({"catalog": catalog(), "table": "stand.in"}),
        "spec.sink.catalog" => catalog(),
        "spec.sink.catalog.type" => "Rest".into(),
        "spec.sink.catalog.uri" => "http://stand-in".into(),
        "spec.sink.table" => "stand.in".into(),
        "spec.sink.schema[]" => json!({"name": "stand_in", "type": "string"}),
        "spec.sink.schema[].name" => "stand_in".into(),
        "spec.sink.schema[].type" => "string".into(),
        "spec.finalization.terms[]" => "Minimum".into(),
        "spec.finalization.alsoWrite[]" => "KafkaConnect".into(),
        "spec.worker.tolerations[]" => json!({"operator": "Exists"}),
        _ => return None,
    })
}

fn stand_in(object: &mut Value, path: &str) {
    let shape: String = path
        .chars()
        .filter(|letter| !letter.is_ascii_digit())
        .collect();
    let Some(value) = stand_in_for(&shape) else {
        return;
    };
    let (pointer, last) = pointer_of(path);
    match object.pointer_mut(&pointer) {
        Some(Value::Object(fields)) => drop(fields.insert(last, value)),
        Some(Value::Array(items)) => {
            let at = last.parse().ok();
            if let Some(item) = at.and_then(|at: usize| items.get_mut(at)) {
                *item = value;
            }
        }
        _ => {}
    }
}

/// The JSON pointer of the parent of a path, and the path's last part.
pub(super) fn pointer_of(path: &str) -> (String, String) {
    let path = path.replace('[', ".").replace(']', "");
    let (parent, last) = path.rsplit_once('.').unwrap_or(("", &path));
    let pointer = match parent {
        "" => String::new(),
        parent => format!("/{}", parent.replace('.', "/")),
    };
    (pointer, last.to_owned())
}

fn remove(object: &mut Value, path: &str) {
    let (pointer, last) = pointer_of(path);
    match object.pointer_mut(&pointer) {
        Some(Value::Object(fields)) => drop(fields.remove(&last)),
        // An entry of a list is only blanked: the ones behind it keep their places.
        Some(Value::Array(items)) => {
            if let Some(item) = last
                .parse::<usize>()
                .ok()
                .and_then(|index| items.get_mut(index))
            {
                *item = Value::Null;
            }
        }
        _ => {}
    }
}
