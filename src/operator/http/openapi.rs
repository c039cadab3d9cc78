//! The `OpenAPI` document of the readers' API: written from the same tables as the parser and the same types as the answers.
//!
//! Pure.

use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::{
    answers::{ClaimAnswer, Page, Problem, ReadyAnswer},
    query::{OF_LIST, OF_READY, Parameter},
};

/// The document, as JSON.
///
/// # Panics
/// Never: the schemas are plain values.
#[must_use]
pub fn document() -> Value {
    let settings = SchemaSettings::openapi3();
    let mut generator = settings.into_generator();
    let ready = answers(
        &mut generator,
        &[
            ("200", "It is complete: read the table.", Kind::Ready),
            (
                "202",
                "Not yet; or complete, but not by the accepted terms alone. Ask again.",
                Kind::Ready,
            ),
            (
                "304",
                "Nothing has changed since the answer that `If-None-Match` names.",
                Kind::None,
            ),
            ("400", "A parameter is wrong.", Kind::Problem),
            (
                "404",
                "There is no such pipeline, or it was deleted while the request waited.",
                Kind::Problem,
            ),
            (
                "409",
                "Rows of the interval are missing for good (`incomplete`), or the claim does not count (`held`).",
                Kind::Ready,
            ),
            ("503", "Too many requests wait.", Kind::Problem),
        ],
    );
    let claim = answers(
        &mut generator,
        &[
            ("200", "What is known of the claim.", Kind::Claim),
            (
                "304",
                "Nothing has changed since the answer that `If-None-Match` names.",
                Kind::None,
            ),
            ("400", "A parameter is wrong.", Kind::Problem),
            ("404", "There is no such pipeline.", Kind::Problem),
        ],
    );
    let list = answers(
        &mut generator,
        &[
            ("200", "A page of claims.", Kind::Page),
            ("400", "A parameter is wrong.", Kind::Problem),
        ],
    );
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": "Claims of Tidemark",
            "version": "v1",
            "license": {"name": "Apache-2.0"},
            "description": "Before which event time the tables of a fleet are complete. Read-only; served by every replica of the operator from its cache. A claim that is told here is a copy as of a commit: it may be behind the table, never ahead of it.",
        },
        "paths": {
            "/v1/claims": {"get": operation("listClaims", "Claims of many pipelines", &parameters(&OF_LIST, false), &list)},
            "/v1/claims/{namespace}/{name}": {"get": operation("getClaim", "The claim of one pipeline", &parameters(&[], true), &claim)},
            "/v1/claims/{namespace}/{name}/ready": {"get": operation("isReady", "Whether an interval of a table is complete, now or within a while", &parameters(&OF_READY, true), &ready)},
        },
        "components": {"schemas": schemas},
    })
}

#[derive(Clone, Copy)]
enum Kind {
    Ready,
    Claim,
    Page,
    Problem,
    None,
}

fn operation(id: &str, summary: &str, parameters: &[Value], answers: &Value) -> Value {
    json!({"operationId": id, "summary": summary, "parameters": parameters, "responses": answers})
}

fn answers(generator: &mut SchemaGenerator, answers: &[(&str, &str, Kind)]) -> Value {
    let answers = answers.iter().map(|(status, says, kind)| {
        let mut answer = json!({"description": says});
        if let Some(schema) = schema(generator, *kind) {
            answer["content"] = json!({"application/json": {"schema": schema}});
        }
        if matches!(kind, Kind::Ready | Kind::Claim) {
            answer["headers"] = json!({"ETag": {
                "description": "Names this answer, for `If-None-Match`.",
                "schema": {"type": "string"},
            }});
        }
        ((*status).to_owned(), answer)
    });
    Value::Object(answers.collect::<Map<String, Value>>())
}

fn schema(generator: &mut SchemaGenerator, kind: Kind) -> Option<Value> {
    let schema = match kind {
        Kind::Ready => generator.subschema_for::<ReadyAnswer>(),
        Kind::Claim => generator.subschema_for::<ClaimAnswer>(),
        Kind::Page => generator.subschema_for::<Page>(),
        Kind::Problem => generator.subschema_for::<Problem>(),
        Kind::None => return None,
    };
    Some(schema.to_value())
}

fn parameters(query: &[Parameter], of_one: bool) -> Vec<Value> {
    let path = [
        ("namespace", "The namespace of the pipeline."),
        ("name", "Its name."),
    ];
    let path = path.iter().filter(|_| of_one).map(|(name, says)| {
        json!({"name": name, "in": "path", "required": true, "description": says, "schema": {"type": "string"}})
    });
    let query = query.iter().map(|parameter| {
        json!({
            "name": parameter.name, "in": "query", "required": parameter.required,
            "description": parameter.says, "schema": {"type": "string"}, "example": parameter.example,
        })
    });
    let tag = of_one.then(|| {
        json!({
            "name": "If-None-Match", "in": "header", "required": false,
            "description": "The ETag of an answer that is known already: with `wait`, the request then waits for another one.",
            "schema": {"type": "string"},
        })
    });
    path.chain(query).chain(tag).collect()
}
