//! The command: parse, run, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidemark::cli::main(std::env::args_os())
}
