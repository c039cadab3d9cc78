//! `tidemark run FILE|DIR…`: pipelines from manifests on this machine, without Kubernetes.

use std::{io::Write, path::PathBuf};

use super::{
    Error, Exit, files,
    serve::{ServeArguments, Source, serve},
};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tidemark run orders.yaml
  tidemark run pipelines/ --admin 127.0.0.1:0 --log-format json
  tidemark run pipelines/ --check

Secrets that a manifest refers to as {name, key} are the file $TIDEMARK_SECRETS/<name>/<key>, else the variable
TIDEMARK_SECRET_<NAME>_<KEY>. SIGTERM or Ctrl-C commits what has been read and ends with 0; a second one ends at once.")]
pub(super) struct Arguments {
    /// Manifests, or folders with manifests
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Only check the manifests and print their effective specifications
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    serve: ServeArguments,
}

pub(super) fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<Exit, Error> {
    let specs = files::manifests(&arguments.paths)?;
    if !arguments.check {
        return serve(&arguments.serve, Source::Fixed(specs));
    }
    for spec in specs {
        write!(out, "---\n{}", spec.to_yaml())?;
    }
    Ok(Exit::Ready)
}
