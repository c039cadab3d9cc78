//! Hands the commit that is built to `--version`.

use std::{env, process::Command};

fn main() {
    println!("cargo:rerun-if-env-changed=TIDEMARK_COMMIT");
    println!("cargo:rerun-if-changed=build.rs");
    // A commit moves HEAD's log; it is asked for its path because in a work tree it lies elsewhere.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
    let given = env::var("TIDEMARK_COMMIT")
        .ok()
        .filter(|commit| !commit.is_empty());
    let commit = given.or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    println!(
        "cargo:rustc-env=TIDEMARK_COMMIT={}",
        commit.as_deref().unwrap_or("unknown")
    );
}

fn git(arguments: &[&str]) -> Option<String> {
    let answer = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(answer.stdout).ok()?;
    let text = text.trim();
    (answer.status.success() && !text.is_empty()).then(|| text.to_owned())
}
