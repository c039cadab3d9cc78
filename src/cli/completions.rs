//! `tidemark completions SHELL`: what a shell needs to complete commands and flags.

use std::io::Write;

use clap_complete::Shell;

use super::{Error, Exit};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  source <(tidemark completions bash)
  tidemark completions zsh > \"${fpath[1]}/_tidemark\"
  tidemark completions fish > ~/.config/fish/completions/tidemark.fish")]
pub(super) struct Arguments {
    /// Which shell
    shell: Shell,
}

pub(super) fn completions(
    arguments: &Arguments,
    mut command: clap::Command,
    out: &mut dyn Write,
) -> Result<Exit, Error> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "tidemark", &mut script);
    out.write_all(&script)?;
    Ok(Exit::Ready)
}
