//! `tidemark effective`: what a pipeline runs as, with the source of each value.

use std::{collections::BTreeMap, io::Write, path::PathBuf};

use clap::ValueEnum;
use kube::ResourceExt;

use super::{
    Error, Exit, files,
    kubernetes::{self, KubernetesArguments, tell},
};
use crate::{
    api::{Objects, pipeline::IngestionPipeline},
    operator::policy::{Explained, Labels, Policies, explain, print},
    sensor::print::json,
};

/// The label that every namespace has: its own name.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tidemark effective orders -n shop
  tidemark effective orders -n shop -o json | jq .sources
  tidemark effective -f orders.yaml --policy gold.yaml --policy base.yaml

Layers, the lowest first: what is built in, defaults of policies, the pipeline, overrides of policies. Of several policies the one
with the greater priority counts, then the first by name. With --file no cluster is asked; a Namespace in the files brings its labels.

Exit codes: 0 if it is accepted, 1 if not, 2 for a wrong file, 3 no such pipeline, 7 the API server cannot be asked")]
pub(super) struct Arguments {
    /// The pipeline; with --file, all of the files where it is left out
    #[arg(required_unless_present = "file")]
    name: Option<String>,
    /// Its namespace; the one of the kubeconfig's context where it is left out
    #[arg(short, long)]
    namespace: Option<String>,
    /// Files or folders to take pipelines from, instead of a cluster
    #[arg(short, long, value_name = "FILE|DIR")]
    file: Vec<PathBuf>,
    /// Files or folders to take policies from, with --file
    #[arg(long, value_name = "FILE|DIR", requires = "file")]
    policy: Vec<PathBuf>,
    /// How to answer
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    output: Output,
    #[command(flatten)]
    kubernetes: KubernetesArguments,
}

/// How the specification is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A manifest with comments.
    Yaml,
    /// A JSON object; of several pipelines a list.
    Json,
}

pub(super) async fn effective(arguments: Arguments, out: &mut dyn Write) -> Result<Exit, Error> {
    let objects = objects(&arguments).await?;
    let policies = Policies::new(&objects.policies);
    tell_refused(&policies);
    let explained: Vec<(&IngestionPipeline, Explained)> = objects
        .pipelines
        .iter()
        .map(|pipeline| {
            (
                pipeline,
                explain(pipeline, &labels(&objects, pipeline), &policies),
            )
        })
        .collect();
    match arguments.output {
        Output::Yaml => {
            for (number, (pipeline, explained)) in explained.iter().enumerate() {
                let between = if number == 0 { "" } else { "---\n" };
                write!(out, "{between}{}", print::yaml(pipeline, explained))?;
            }
        }
        Output::Json => {
            let reports: Vec<_> = explained
                .iter()
                .map(|(pipeline, explained)| print::report(pipeline, explained))
                .collect();
            let text = match reports.as_slice() {
                [one] => json(one),
                several => json(&several),
            };
            out.write_all(text.as_bytes())?;
        }
    }
    let accepted = explained
        .iter()
        .all(|(_, explained)| explained.decision.accepted().is_some());
    Ok(if accepted { Exit::Ready } else { Exit::NotYet })
}

async fn objects(arguments: &Arguments) -> Result<Objects, Error> {
    if arguments.file.is_empty() {
        let cluster = arguments.kubernetes.connect().await?;
        let namespace = arguments.namespace.as_deref();
        let namespace = namespace.unwrap_or_else(|| cluster.default_namespace());
        let name = arguments.name.as_deref().unwrap_or_default();
        return Ok(cluster.pipeline(namespace, name).await?);
    }
    let mut objects = files::objects(&arguments.file)?;
    let further = files::objects(&arguments.policy)?;
    objects.policies.extend(further.policies);
    objects.namespaces.extend(further.namespaces);
    let namespace = arguments.namespace.as_deref();
    let name = arguments.name.as_deref();
    objects.pipelines.retain(|pipeline| {
        let own = pipeline.namespace();
        let own = own.as_deref().unwrap_or("default");
        namespace.is_none_or(|namespace| namespace == own)
            && name.is_none_or(|name| name == pipeline.name_any())
    });
    if objects.pipelines.is_empty() {
        let what = name.map_or_else(
            || "pipeline in these files".to_owned(),
            |name| format!("pipeline {name} in these files"),
        );
        return Err(kubernetes::Error::NotFound(what).into());
    }
    Ok(objects)
}

/// The labels of a pipeline's namespace; in files each has at least its name.
pub(super) fn labels(objects: &Objects, pipeline: &IngestionPipeline) -> Labels {
    let namespace = pipeline.namespace().unwrap_or_else(|| "default".to_owned());
    let labels: Option<&BTreeMap<_, _>> = objects.namespaces.get(&namespace);
    let mut labels = labels.cloned().unwrap_or_default();
    labels
        .entry(NAMESPACE_LABEL.to_owned())
        .or_insert(namespace);
    labels
}

/// Says which policies count for nothing, and why.
pub(super) fn tell_refused(policies: &Policies) {
    for (name, faults) in policies.refused() {
        tell(&format!("policy {name} is wrong and counts for nothing"));
        for fault in faults {
            tell(&fault.to_string());
        }
    }
}
