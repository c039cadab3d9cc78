//! What the benches share: arguments, a broker, the pipeline as a process of its own, and what a process has used.
//!
//! Whatever is measured runs in a process of its own, so that the producer, the mock broker and the bench itself are never
//! counted, and so that a peak of memory belongs to one thing alone.

pub(crate) mod cpu;
pub(crate) mod events;
pub(crate) mod kafka;
pub(crate) mod pipeline;
pub(crate) mod rows;
pub(crate) mod server;
pub(crate) mod wait;

use std::{
    collections::BTreeMap,
    fmt::Display,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    str::FromStr,
};

use serde_json::Value;

/// Arguments as `--name value`; cargo's own `--bench` is passed over.
pub(crate) struct Arguments(BTreeMap<String, String>);

impl Arguments {
    /// Those of this process.
    pub(crate) fn read() -> Self {
        let mut given = BTreeMap::new();
        let mut last = None;
        for argument in std::env::args().skip(1) {
            match argument.strip_prefix("--") {
                Some("bench") => {}
                Some(name) => {
                    given.insert(name.to_owned(), String::new());
                    last = Some(name.to_owned());
                }
                None => {
                    if let Some(name) = last.take() {
                        given.insert(name, argument);
                    }
                }
            }
        }
        Self(given)
    }

    /// Whether `--name` is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The value of `--name`.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// The number of `--name`, or another one where it is left out.
    pub(crate) fn number<T: FromStr>(&self, name: &str, otherwise: T) -> T {
        self.text(name).parse().unwrap_or(otherwise)
    }
}

/// Writes a line to the standard output.
pub(crate) fn say(line: impl Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").expect("an open output");
}

/// A folder of this bench below the target folder, empty.
pub(crate) fn folder(bench: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{bench}"));
    if folder.exists() {
        std::fs::remove_dir_all(&folder).expect("the folder of an earlier run");
    }
    std::fs::create_dir_all(&folder).expect("a folder in the target folder");
    folder
}

/// Runs one part of this bench in a process of its own and gives what it answers.
pub(crate) fn part(name: &str, arguments: &[(&str, String)]) -> Value {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    command.args(["--part", name]).stderr(Stdio::inherit());
    for (name, value) in arguments {
        command.arg(format!("--{name}")).arg(value);
    }
    let output = command.output().expect("this program again");
    assert!(output.status.success(), "the part \"{name}\" failed");
    serde_json::from_slice(&output.stdout).expect("the answer of a part")
}

/// Figures of several rounds.
#[derive(Default)]
pub(crate) struct Figures(Vec<f64>);

impl Figures {
    /// Adds one.
    pub(crate) fn add(&mut self, figure: f64) {
        self.0.push(figure);
    }

    /// The least.
    pub(crate) fn least(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The greatest.
    pub(crate) fn greatest(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// The one in the middle.
    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }
}

/// ns for each of `rows`.
#[expect(clippy::cast_precision_loss, reason = "below 2^53: some hours of ns")]
pub(crate) fn per_row(ns: u64, rows: u64) -> f64 {
    ns as f64 / rows as f64
}
