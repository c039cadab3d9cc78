//! `tidemark worker --pipelines DIR`: what a pod runs.

use std::path::PathBuf;

use super::{
    Error, Exit,
    files::Folder,
    serve::{ServeArguments, Source, serve},
};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tidemark worker --pipelines /etc/tidemark/pipelines --admin 0.0.0.0:8080 --log-format json

A file holds one effective specification, as `tidemark run --check` prints it. A changed file is in force within seconds:
/progress reports the hash. One that cannot be read leaves its pipeline as it was.")]
pub(super) struct Arguments {
    /// The folder of effective specifications, one file each; it is read again every 2 s
    #[arg(
        long,
        value_name = "DIR",
        env = "TIDEMARK_PIPELINES",
        hide_env_values = true
    )]
    pipelines: PathBuf,
    #[command(flatten)]
    serve: ServeArguments,
}

pub(super) fn worker(arguments: Arguments) -> Result<Exit, Error> {
    serve(
        &arguments.serve,
        Source::Folder(Folder::new(arguments.pipelines)),
    )
}
