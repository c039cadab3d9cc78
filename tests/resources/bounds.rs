//! Each bound of the custom resources is exceeded once. The cases come from the schema itself: a new field is a new case.

use futures::{StreamExt, stream};
use kube::{
    Client,
    api::{Api, DynamicObject, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use super::{definitions, least, schema};
use crate::support::kube::Kube;

/// One step of a path into an object.
#[derive(Clone)]
enum Step {
    Field(String),
    /// The first entry of a list.
    Item,
    /// An entry of a map.
    Entry,
}

/// A value beyond a bound.
struct Excess {
    path: Vec<Step>,
    /// `None`: the field is missing.
    value: Option<Value>,
    /// What the API server calls it, and a part of what it says.
    said: (&'static str, String),
}

/// `spec.sink.schema[0].name`
fn shown(path: &[Step]) -> String {
    let steps = path.iter().map(|step| match step {
        Step::Field(name) => format!(".{name}"),
        Step::Item => "[0]".to_owned(),
        Step::Entry => ".entry".to_owned(),
    });
    steps.collect::<String>().trim_start_matches('.').to_owned()
}

/// Puts a value where a path leads, making what is missing on the way; without one, takes away what is there.
fn put(target: &mut Value, path: &[Step], value: Option<Value>) {
    let name = match path {
        [] => {
            *target = value.expect("a value, or a field to take away");
            return;
        }
        [Step::Item, rest @ ..] => {
            if !target.is_array() {
                *target = json!([null]);
            }
            return put(&mut target[0], rest, value);
        }
        [Step::Field(name), ..] => name.as_str(),
        [Step::Entry, ..] => "entry",
    };
    if !target.is_object() {
        *target = json!({});
    }
    if let (1, None) = (path.len(), &value) {
        target.as_object_mut().unwrap().remove(name);
    } else {
        put(&mut target[name], &path[1..], value);
    }
}

/// Everything beyond the bounds of one value.
fn excesses(schema: &Value, path: &[Step], found: &mut Vec<Excess>) {
    let kind = schema["type"].as_str().unwrap();
    let (other, choice) = match kind {
        "string" => (json!(5), json!("Other")),
        _ => (json!("text"), json!(0.5)),
    };
    let format = schema["format"].as_str().filter(|_| kind == "string");
    let told = format!("must be of type {}", format.unwrap_or(kind));
    let mut beyond = vec![(other, "FieldValueTypeInvalid", told.clone())];
    if format.is_some() {
        beyond.push(("~~~".into(), "FieldValueTypeInvalid", told));
    }
    if schema.get("enum").is_some() {
        beyond.push((
            choice,
            "FieldValueNotSupported",
            "supported values: ".to_owned(),
        ));
    }
    if let Some(pattern) = schema["pattern"].as_str() {
        beyond.push((
            "~~~".into(),
            "FieldValueInvalid",
            format!("should match '{pattern}'"),
        ));
    }
    beyond.extend(counts(schema));
    found.extend(beyond.into_iter().map(|(value, reason, text)| Excess {
        path: path.to_vec(),
        value: Some(value),
        said: (reason, text),
    }));
    below(schema, path, found);
}

/// What is too much or too little of something.
fn counts(schema: &Value) -> Vec<(Value, &'static str, String)> {
    let bound = |name: &str| {
        schema[name]
            .as_f64()
            .map(|bound| serde_json::from_str::<i64>(&bound.to_string()).unwrap())
    };
    let size = |name: &str| bound(name).and_then(|bound| usize::try_from(bound).ok());
    let nulls = |count| Value::from(vec![Value::Null; count]);
    let entries = |count| {
        (0..count)
            .map(|number: usize| (number.to_string(), Value::from("")))
            .collect::<serde_json::Map<_, _>>()
    };
    let invalid = "FieldValueInvalid";
    let found = [
        bound("minimum").map(|least| {
            (
                json!(least - 1),
                invalid,
                format!("greater than or equal to {least}"),
            )
        }),
        bound("maximum").map(|most| {
            (
                json!(most + 1),
                invalid,
                format!("less than or equal to {most}"),
            )
        }),
        size("minLength")
            .filter(|least| *least > 0)
            .map(|least| ("".into(), invalid, format!("at least {least} chars long"))),
        size("maxLength").map(|most| {
            (
                "a".repeat(most + 1).into(),
                "FieldValueTooLong",
                format!("may not be more than {most} bytes"),
            )
        }),
        size("minItems")
            .filter(|least| *least > 0)
            .map(|least| (nulls(0), invalid, format!("at least {least} items"))),
        size("maxItems").map(|most| {
            (
                nulls(most + 1),
                "FieldValueTooMany",
                format!("at most {most} items"),
            )
        }),
        size("maxProperties").map(|most| {
            (
                entries(most + 1).into(),
                "FieldValueTooMany",
                format!("at most {most} items"),
            )
        }),
    ];
    found.into_iter().flatten().collect()
}

fn below(schema: &Value, path: &[Step], found: &mut Vec<Excess>) {
    let deeper = |step| path.iter().cloned().chain([step]).collect::<Vec<Step>>();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        excesses(field, &deeper(Step::Field(name.clone())), found);
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap().to_owned();
        let said = ("FieldValueRequired", "Required value".to_owned());
        found.push(Excess {
            path: deeper(Step::Field(name)),
            value: None,
            said,
        });
    }
    for (entry, step) in [("items", Step::Item), ("additionalProperties", Step::Entry)] {
        if schema.get(entry).is_some() {
            excesses(&schema[entry], &deeper(step), found);
        }
    }
}

async fn is_refused(api: Api<DynamicObject>, mut object: Value, excess: Excess) {
    let place = shown(&excess.path);
    put(&mut object, &excess.path, excess.value);
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let dry = PostParams {
        dry_run: true,
        field_manager: None,
    };
    let answer = if place.starts_with("status") {
        api.replace_status(object.metadata.name.as_deref().unwrap(), &dry, &object)
            .await
    } else {
        api.create(&dry, &object).await
    };
    let Err(kube::Error::Api(status)) = answer else {
        panic!(
            "{place} beyond \"{}\" is not refused: {answer:?}",
            excess.said.1
        )
    };
    let causes = status
        .details
        .map(|details| details.causes)
        .unwrap_or_default();
    let told = causes.iter().any(|cause| {
        cause.field == place
            && cause.reason == excess.said.0
            && cause.message.contains(&excess.said.1)
    });
    assert!(
        told,
        "{place} beyond {:?} is told as {causes:#?}",
        excess.said
    );
}

/// A client for a kind; the namespace is for the kinds that live in one.
fn api(client: Client, definition: &Value, namespace: &str) -> Api<DynamicObject> {
    let names = &definition["spec"]["names"];
    let [kind, plural] = ["kind", "plural"].map(|name| names[name].as_str().unwrap());
    let gvk = GroupVersionKind::gvk("tidemark.dev", "v1alpha1", kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
    if definition["spec"]["scope"] == "Namespaced" {
        Api::namespaced_with(client, namespace, &resource)
    } else {
        Api::all_with(client, &resource)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bound_is_kept() {
    let kube = Kube::shared();
    let namespace = kube.namespace("every_bound");
    let client = kube.person().client().await;
    for definition in definitions() {
        let api = api(client.clone(), &definition, &namespace);
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap();
        let object = least(kind, &namespace);
        let created: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        let created = api.create(&PostParams::default(), &created).await.unwrap();
        let mut stored = serde_json::to_value(created).unwrap();
        stored["status"] = json!({});
        let mut found = Vec::new();
        below(schema(&definition), &[], &mut found);
        found.retain(|excess| excess.path.len() > 1);
        assert!(found.len() > 10, "{kind}");
        stream::iter(found)
            .for_each_concurrent(8, |excess| {
                let of_status = matches!(&excess.path[0], Step::Field(name) if name == "status");
                let mut object = if of_status {
                    stored.clone()
                } else {
                    object.clone()
                };
                if !of_status {
                    object["metadata"]["name"] = format!("{namespace}-new").into();
                }
                is_refused(api.clone(), object, excess)
            })
            .await;
    }
}
