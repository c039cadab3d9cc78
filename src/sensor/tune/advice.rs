//! A setting that is recommended: in a sentence, as a command, and as a part of a manifest.

use std::fmt::Write;

use serde::Serialize;

use super::{Field, Setting, Trial};
use crate::watermark::Quantile;

/// What is recommended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Recommendation {
    /// The setting, and what it would have cost.
    pub trial: Trial,
    /// The fields that differ from those in force; none: keep them.
    pub changes: Vec<Field>,
    /// All of it in a sentence.
    pub sentence: String,
    /// The command that applies it to the pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The same as part of a manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
}

/// Recommends a trial for a pipeline that writes as `writer`, judged by `rows` rows.
pub(super) fn recommendation(
    in_force: &Trial,
    trial: Trial,
    writer: &str,
    rows: u64,
) -> Recommendation {
    let changes = trial.setting.changed(&in_force.setting);
    let advised = !changes.is_empty();
    Recommendation {
        sentence: if advised {
            sentence(in_force, &trial, &changes, rows)
        } else {
            keep(in_force, rows)
        },
        command: advised.then(|| command(writer, &trial.setting, &changes)),
        manifest: advised.then(|| manifest(&trial.setting, &changes)),
        trial,
        changes,
    }
}

fn keep(in_force: &Trial, rows: u64) -> String {
    if in_force.late.most == 0 {
        return format!(
            "Keep the settings in force: half of the cells were final within {} of their end, none of {rows} rows was late, and no setting tried would have been faster with as much in reserve.",
            in_force.median
        );
    }
    format!(
        "Keep the settings in force: {} of {rows} rows came late, and no setting tried would have waited for all of them; look at what delays them.",
        in_force.late
    )
}

fn sentence(in_force: &Trial, trial: &Trial, changes: &[Field], rows: u64) -> String {
    let set: Vec<String> = changes
        .iter()
        .map(|field| format!("{} to {}", field.name(), trial.setting.value(*field)))
        .collect();
    let was = if in_force.late.most == 0 {
        String::new()
    } else {
        format!(" Under the settings in force {} were late.", in_force.late)
    };
    format!(
        "Set {}: half of the cells would have been final within {} of their end instead of {}, and none of {rows} rows would have been late, not even with half of these bounds.{was}",
        set.join(" and "),
        trial.median,
        in_force.median
    )
}

fn command(writer: &str, setting: &Setting, changes: &[Field]) -> String {
    // By default a writer is `<namespace>.<name>`, and a namespace has no dot.
    let (namespace, name) = writer.split_once('.').unwrap_or(("NAMESPACE", writer));
    let fields: serde_json::Map<String, serde_json::Value> = changes
        .iter()
        .map(|field| (field.name().to_owned(), json_value(setting, *field)))
        .collect();
    let patch = serde_json::json!({"spec": {"finalization": fields}});
    format!("kubectl patch ipl {name} -n {namespace} --type merge -p '{patch}'")
}

fn json_value(setting: &Setting, field: Field) -> serde_json::Value {
    match field {
        Field::WindowCommits => setting.window_commits.into(),
        Field::Quantile => serde_json::json!(setting.quantile.map(Quantile::share)),
        Field::AllowedLateness | Field::MaxDelay => setting.value(field).into(),
    }
}

fn manifest(setting: &Setting, changes: &[Field]) -> String {
    let mut text = String::from("spec:\n  finalization:\n");
    for field in changes {
        let _ = writeln!(text, "    {}: {}", field.name(), setting.value(*field));
    }
    text
}
