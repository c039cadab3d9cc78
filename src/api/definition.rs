//! A custom resource definition as text, with a schema that the API server takes as it stands.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

/// The formats of numbers that the API server knows; it warns of every other one.
const FORMATS: [&str; 4] = ["int32", "int64", "float", "double"];

/// The definition as YAML.
///
/// What is optional may be left out but not be `null`: to a rule and to an admission policy a field that is `null` is there.
pub(super) fn text(definition: &CustomResourceDefinition) -> String {
    let mut definition = serde_json::to_value(definition).expect("a definition is valid JSON");
    for version in definition["spec"]["versions"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        plain(&mut version["schema"]["openAPIV3Schema"]);
    }
    serde_yaml::to_string(&definition).expect("a definition is valid YAML")
}

fn plain(schema: &mut Value) {
    let Some(keys) = schema.as_object_mut() else {
        return;
    };
    keys.remove("nullable");
    let unknown = |format: &Value| {
        format
            .as_str()
            .is_some_and(|format| !FORMATS.contains(&format))
    };
    let number = matches!(
        keys.get("type").and_then(Value::as_str),
        Some("integer" | "number")
    );
    if number && keys.get("format").is_some_and(unknown) {
        keys.remove("format");
    }
    if let Some(choices) = keys.get_mut("enum").and_then(Value::as_array_mut) {
        choices.retain(|choice| !choice.is_null());
    }
    for entries in ["items", "additionalProperties"] {
        keys.get_mut(entries).into_iter().for_each(plain);
    }
    let fields = keys.get_mut("properties").and_then(Value::as_object_mut);
    fields
        .into_iter()
        .flat_map(|fields| fields.values_mut())
        .for_each(plain);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schema_has_no_nulls_and_no_formats_that_are_warned_of() {
        let mut schema = json!({"properties": {
            "choice": {"type": "string", "nullable": true, "enum": ["A", null]},
            "counts": {"type": "array", "items": {"type": "integer", "format": "uint32"}},
            "at": {"type": "string", "format": "date-time"},
            // A field of that name is no keyword.
            "nullable": {"type": "object", "additionalProperties": {"type": "integer", "format": "int64", "nullable": true}},
        }});
        plain(&mut schema);
        assert_eq!(
            schema,
            json!({"properties": {
                "choice": {"type": "string", "enum": ["A"]},
                "counts": {"type": "array", "items": {"type": "integer"}},
                "at": {"type": "string", "format": "date-time"},
                "nullable": {"type": "object", "additionalProperties": {"type": "integer", "format": "int64"}},
            }})
        );
    }
}
