//! `tidemark policy diff`: what a policy would change, before it is applied.

use std::{collections::BTreeSet, fmt::Write as _, io::Write, path::PathBuf};

use clap::Subcommand;
use kube::ResourceExt;
use serde::Serialize;

use super::{
    Error, Exit,
    effective::{labels, tell_refused},
    files,
    get::Output,
    kubernetes::{self, KubernetesArguments},
};
use crate::{
    api::{Fault, Objects, effective::label, policy::IngestionPolicy},
    operator::policy::{
        Policies,
        diff::{Difference, Effect, difference},
        explain,
        print::{self, DifferenceReport},
    },
    sensor::print::{json, yaml},
};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Show which pipelines policies would change, how, and which would be beyond their limits
    Diff(Arguments),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tidemark policy diff gold.yaml
  tidemark policy diff gold.yaml base.yaml -o json | jq -r '.pipelines[].pipeline'
  tidemark policy diff --delete gold
  tidemark policy diff gold.yaml -f pipelines/

The policies of the files take the place of those of the same names in the cluster; nothing is written. With --file no cluster is
asked: the pipelines and policies of these files are what there is.

Exit codes, as kubectl diff has them: 0 if nothing changes, 1 if something does, above that it could not be told: 2 a file or a policy
is wrong, 3 no such policy to delete, 7 the API server cannot be asked")]
pub(super) struct Arguments {
    /// Files or folders with the policies as they are to be
    #[arg(value_name = "POLICY", required_unless_present = "delete")]
    policies: Vec<PathBuf>,
    /// A policy that is to be deleted
    #[arg(long, value_name = "NAME")]
    delete: Vec<String>,
    /// Files or folders to take pipelines and the policies of before from, instead of a cluster
    #[arg(short, long, value_name = "FILE|DIR")]
    file: Vec<PathBuf>,
    /// How to answer
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    kubernetes: KubernetesArguments,
}

/// What policies would change, for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    policies: Vec<PolicyReport>,
    pipelines: Vec<DifferenceReport>,
    /// How many there are in all.
    looked_at: usize,
}

/// A policy that is made, changed or deleted.
#[derive(Debug, Serialize)]
struct PolicyReport {
    name: String,
    /// `new`, `changed`, `unchanged` or `deleted`.
    change: &'static str,
    /// How many pipelines it selects.
    selects: usize,
    /// What its author should know.
    notes: Vec<String>,
}

pub(super) async fn policy(command: Command, out: &mut dyn Write) -> Result<Exit, Error> {
    let Command::Diff(arguments) = command;
    let planned = files::objects(&arguments.policies)?.policies;
    if planned.is_empty() && arguments.delete.is_empty() {
        return Err(files::Error::NoPolicy {
            paths: arguments.policies,
        }
        .into());
    }
    let objects = if arguments.file.is_empty() {
        arguments.kubernetes.connect().await?.all().await?
    } else {
        files::objects(&arguments.file)?
    };
    let after = planned_policies(&objects, &planned, &arguments.delete)?;
    let (report, differences) = compare(&objects, &planned, (&arguments.delete, &after))?;
    let text = match arguments.output {
        Output::Json => json(&report),
        Output::Yaml => yaml(&report),
        Output::Text => text(&report, &differences),
    };
    out.write_all(text.as_bytes())?;
    Ok(if differences.is_empty() {
        Exit::Ready
    } else {
        Exit::NotYet
    })
}

/// The policies as they are to be.
fn planned_policies(
    objects: &Objects,
    planned: &[IngestionPolicy],
    delete: &[String],
) -> Result<Vec<IngestionPolicy>, Error> {
    let known: BTreeSet<String> = objects.policies.iter().map(ResourceExt::name_any).collect();
    if let Some(name) = delete.iter().find(|name| !known.contains(*name)) {
        return Err(kubernetes::Error::NotFound(format!("policy {name}")).into());
    }
    let replaced: BTreeSet<String> = planned.iter().map(ResourceExt::name_any).collect();
    let stays = |policy: &&IngestionPolicy| {
        let name = policy.name_any();
        !replaced.contains(&name) && !delete.contains(&name)
    };
    let left = objects.policies.iter().filter(stays);
    Ok(left.chain(planned).cloned().collect())
}

fn compare(
    objects: &Objects,
    planned: &[IngestionPolicy],
    (delete, after): (&[String], &[IngestionPolicy]),
) -> Result<(Report, Vec<(String, Difference)>), Error> {
    let [before, after] = [objects.policies.as_slice(), after].map(Policies::new);
    let wrong: Vec<&Fault> = planned
        .iter()
        .filter_map(|policy| after.refused().get(&policy.name_any()))
        .flatten()
        .collect();
    if !wrong.is_empty() {
        return Err(Error::WrongPolicies(
            wrong.into_iter().map(ToString::to_string).collect(),
        ));
    }
    tell_refused(&after);
    let mut differences = Vec::new();
    for pipeline in &objects.pipelines {
        let labels = labels(objects, pipeline);
        let [before, after] =
            [&before, &after].map(|policies| explain(pipeline, &labels, policies));
        if let Some(found) = difference(&before, &after) {
            differences.push((label(pipeline), found));
        }
    }
    differences.sort_by(|(left, _), (right, _)| left.cmp(right));
    let selects = |name: &str, policies: &Policies| {
        let policy = policies.get(name);
        let selected = objects.pipelines.iter().filter(|pipeline| {
            policy
                .is_some_and(|policy| policy.selects(pipeline.labels(), &labels(objects, pipeline)))
        });
        selected.count()
    };
    let made = planned.iter().map(|policy| {
        let name = policy.name_any();
        let old = objects.policies.iter().find(|old| old.name_any() == name);
        PolicyReport {
            selects: selects(&name, &after),
            notes: after
                .get(&name)
                .map(|policy| policy.notes().to_vec())
                .unwrap_or_default(),
            change: match old {
                None => "new",
                Some(old) if old.spec == policy.spec => "unchanged",
                Some(_) => "changed",
            },
            name,
        }
    });
    let gone = delete.iter().map(|name| PolicyReport {
        name: name.clone(),
        change: "deleted",
        selects: selects(name, &before),
        notes: Vec::new(),
    });
    let pipelines = differences.iter();
    let report = Report {
        policies: made.chain(gone).collect(),
        pipelines: pipelines
            .map(|(pipeline, found)| print::difference_report(pipeline, found))
            .collect(),
        looked_at: objects.pipelines.len(),
    };
    Ok((report, differences))
}

fn text(report: &Report, differences: &[(String, Difference)]) -> String {
    let mut text = String::new();
    let all = report.looked_at;
    for policy in &report.policies {
        let (name, change, selects) = (&policy.name, policy.change, policy.selects);
        let of = pipelines(all);
        let _ = writeln!(text, "policy {name} ({change}): selects {selects} of {of}");
        for note in &policy.notes {
            let _ = writeln!(text, "  note: {note}");
        }
    }
    for (pipeline, found) in differences {
        text += "\n";
        text += &print::difference(pipeline, found);
    }
    text += "\n";
    text + &summary(differences, all)
}

/// How many pipelines there are of each effect, in one sentence.
fn summary(differences: &[(String, Difference)], all: usize) -> String {
    let count = |fits: &dyn Fn(&Difference) -> bool| {
        differences.iter().filter(|(_, found)| fits(found)).count()
    };
    let changing =
        count(&|found| [Effect::Changes, Effect::Restarts, Effect::Moves].contains(&found.effect));
    let anew = count(&|found| [Effect::Restarts, Effect::Moves].contains(&found.effect));
    let changes = match anew {
        0 => "would change".to_owned(),
        anew => format!("would change ({anew} with new pods)"),
    };
    let counted = count(&|found| found.effect != Effect::Refused && !found.violations.is_empty());
    let parts = [
        (changing, changes.as_str()),
        (
            count(&|found| found.effect == Effect::Accepted),
            "would be accepted at last",
        ),
        (
            count(&|found| found.effect == Effect::Refused),
            "would be refused",
        ),
        (
            all - count(&|found| found.effect != Effect::None),
            "would go on unchanged",
        ),
        (counted, "would be beyond a limit that is only counted"),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    format!("Of {}: {}.\n", pipelines(all), parts.join(", "))
}

fn pipelines(count: usize) -> String {
    match count {
        0 => "no pipelines".to_owned(),
        1 => "1 pipeline".to_owned(),
        count => format!("{count} pipelines"),
    }
}
