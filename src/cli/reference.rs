//! The reference in `docs/reference/`: fields, conditions and reasons, commands, all from where they are defined.
//!
//! A test compares the files; nobody writes them by hand.

use std::fmt::Write;

use clap::CommandFactory;
use serde_json::Value;
use strum::{EnumMessage, IntoEnumIterator};

use super::{Arguments, EXIT_CODES};
use crate::api::{
    condition::{ConditionType, Course, Reason},
    custom_resource_definitions,
};

/// The pages, each as a file name and its text.
#[must_use]
pub fn pages() -> Vec<(&'static str, String)> {
    vec![
        ("pipeline.md", kind("IngestionPipeline")),
        ("policy.md", kind("IngestionPolicy")),
        ("gate.md", kind("FinalizationGate")),
        ("conditions.md", conditions()),
        ("cli.md", commands()),
    ]
}

fn conditions() -> String {
    let mut page = String::from(
        "# Conditions and reasons\n\n\
         Written by `cargo test generated`. A reason is a stable name that `/progress`, logs, metrics and conditions share. Each leads to \
         its section of the [runbook](../runbook.md): what readers see, where to look, what happens afterwards.\n\n\
         | condition | what it says |\n| --- | --- |\n",
    );
    for kind in ConditionType::iter() {
        let name: &str = kind.into();
        let _ = writeln!(
            page,
            "| `{name}` | {} |",
            documented(kind.get_documentation())
        );
    }
    for course in Course::iter() {
        let heading = documented(course.get_documentation());
        let _ = write!(
            page,
            "\n## {heading}\n\n| reason | what it means | what to do |\n| --- | --- | --- |\n"
        );
        for reason in Reason::iter().filter(|reason| reason.course() == course) {
            let meaning = documented(reason.get_documentation());
            let anchor = reason.label().to_lowercase();
            let remedy = reason.remedy();
            let _ = writeln!(
                page,
                "| [`{reason}`](../runbook.md#{anchor}) | {meaning} | {remedy} |"
            );
        }
    }
    page
}

fn documented(text: Option<&'static str>) -> String {
    text.unwrap_or_default().replace('|', "\\|")
}

fn commands() -> String {
    let mut page = String::from("# Commands\n\nWritten by `cargo test generated`.\n\n```text\n");
    let _ = writeln!(page, "{EXIT_CODES}\n```");
    let mut command = Arguments::command()
        .term_width(100)
        .disable_help_subcommand(true);
    command.build();
    for inner in command.get_subcommands_mut() {
        let name = inner.get_name().to_owned();
        let help = inner.render_long_help().to_string();
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        let lines = lines.join("\n");
        let _ = write!(page, "\n## tidemark {name}\n\n```text\n{lines}\n```\n");
        for further in inner.get_subcommands_mut() {
            let second = further.get_name().to_owned();
            let help = further.render_long_help().to_string();
            let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
            let lines = lines.join("\n");
            let _ = write!(
                page,
                "\n### tidemark {name} {second}\n\n```text\n{lines}\n```\n"
            );
        }
    }
    page
}

/// The page of one kind: its specification, then its status.
fn kind(kind: &str) -> String {
    let mut page = format!(
        "# {kind}\n\nWritten by `cargo test generated`. What is left out has its built-in default; nothing is written into the object.\n"
    );
    for (_, definition) in custom_resource_definitions() {
        let definition: Value = serde_yaml::from_str(&definition).expect("it was written as YAML");
        if definition["spec"]["names"]["kind"] == *kind {
            let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            for part in ["spec", "status"] {
                fields(&schema["properties"][part], part, &mut page);
            }
        }
    }
    page
}

/// The fields of an object with a section for each object below it.
fn fields(schema: &Value, path: &str, page: &mut String) {
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let _ = write!(page, "\n## {path}\n");
    for rule in schema["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let _ = write!(
            page,
            "\n- rule: {}",
            rule["message"].as_str().unwrap_or_default()
        );
    }
    page.push('\n');
    let mut below = Vec::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let kind = kind_of(field);
        let needed = if required.contains(&name.as_str()) {
            ", required"
        } else {
            ""
        };
        let text = field["description"].as_str().unwrap_or_default();
        let _ = write!(page, "\n**`{name}`** ({kind}{needed}): {text}\n");
        if field["properties"].is_object() {
            below.push((field, format!("{path}.{name}")));
        } else if field["items"]["properties"].is_object() {
            below.push((&field["items"], format!("{path}.{name}[]")));
        }
    }
    for (field, path) in below {
        fields(field, &path, page);
    }
}

fn kind_of(field: &Value) -> String {
    if let Some(choices) = field["enum"].as_array() {
        let choices: Vec<&str> = choices.iter().filter_map(Value::as_str).collect();
        return choices.join(" or ");
    }
    match field["type"].as_str() {
        Some("array") => format!("list of {}", kind_of(&field["items"])),
        Some("object") if field["additionalProperties"].is_object() => "map of texts".to_owned(),
        Some("string") => "text".to_owned(),
        Some("integer") => "whole number".to_owned(),
        Some("boolean") => "true or false".to_owned(),
        kind => kind.unwrap_or("any").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use clap::{Parser, error::ErrorKind};

    use super::*;

    /// Every page that a person types commands from.
    fn written() -> Vec<PathBuf> {
        let package = concat!(env!("CARGO_MANIFEST_DIR"), "/");
        let folders = [
            "",
            "docs",
            "charts/tidemark",
            "examples",
            "examples/policies",
        ];
        let entries = folders
            .iter()
            .flat_map(|folder| fs::read_dir(format!("{package}{folder}")).unwrap());
        let files = entries.map(|entry| entry.unwrap().path());
        let mut files: Vec<PathBuf> = files
            .filter(|file| {
                file.extension()
                    .is_some_and(|end| end == "md" || end == "yaml")
            })
            .collect();
        files.sort();
        files
    }

    /// The commands of ours in a text: lines of a block, and what stands in backticks.
    fn commands(text: &str) -> Vec<String> {
        let lines = text
            .lines()
            .map(|line| line.trim_start_matches(['#', '$', ' ']));
        let lines = lines.filter(|line| line.starts_with("tidemark "));
        let quoted = text.split('`').skip(1).step_by(2);
        let quoted = quoted.filter(|code| code.starts_with("tidemark ") && !code.contains("…"));
        lines.chain(quoted).map(str::to_owned).collect()
    }

    /// A command up to where a shell would see another word than ours, with values in the place of names.
    fn words(command: &str) -> Vec<String> {
        let ends = |word: &&str| {
            !["&&", "||", "|", "&", ";", "#"].contains(word) && !word.starts_with('>')
        };
        let value = |word: &str| match word.trim_matches(['\'', '"']) {
            "TABLE" | "$TABLE" => "shop.orders".to_owned(),
            "URL" => "http://localhost:8080/readyz".to_owned(),
            "$FROM" => "2026-11-30T12:00Z".to_owned(),
            "$BEFORE" => "2026-11-30T13:00Z".to_owned(),
            word => word.to_owned(),
        };
        command
            .split_whitespace()
            .take_while(ends)
            .map(value)
            .collect()
    }

    /// A command that is printed has to be one.
    #[test]
    fn every_command_in_the_documentation_is_one() {
        let mut seen = 0;
        let mut wrong = Vec::new();
        for file in written() {
            for command in commands(&fs::read_to_string(&file).unwrap()) {
                let words = words(&command);
                let Some(name) = words
                    .get(1)
                    .filter(|word| word.chars().all(|c| c.is_ascii_lowercase()))
                else {
                    continue;
                };
                let known = Arguments::command();
                if known.find_subcommand(name).is_none() && file.ends_with("README.md") {
                    continue;
                }
                seen += 1;
                let Err(error) = Arguments::try_parse_from(&words) else {
                    continue;
                };
                // In a sentence a command may stand for itself, without what it is to be given.
                let is_unfinished = match error.kind() {
                    ErrorKind::MissingRequiredArgument
                    | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                    | ErrorKind::MissingSubcommand
                    | ErrorKind::DisplayHelp => true,
                    ErrorKind::InvalidValue => error.to_string().contains("a value is required"),
                    _ => false,
                };
                if !is_unfinished {
                    wrong.push(format!("{}: {command}: {}", file.display(), error.kind()));
                }
            }
        }
        assert!(seen > 30, "{seen}");
        assert_eq!(wrong, Vec::<String>::new());
    }
}
