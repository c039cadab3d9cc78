//! One Spark session for all tests that change tables as Spark does: it takes a quarter of a minute to start.

use std::{
    fs::File,
    io::{BufRead, BufReader, Lines, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Mutex, OnceLock},
};

use serde_json::Value;

use super::{catalog::Catalog, server::lay};

/// A session on the shared catalog, which it calls `lake`. It ends with the test process: its input closes.
pub(crate) struct Spark {
    _process: Child,
    input: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Spark {
    fn start() -> Self {
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join("spark.log");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers/spark.py");
        let mut process = Command::new(lay("spark").join("bin/python"))
            .arg(script)
            .args(["--uri", &Catalog::shared().uri()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(log).expect("a log file in the target folder"))
            .spawn()
            .expect("a Python with Spark");
        let input = process.stdin.take().expect("its input");
        let output = process.stdout.take().expect("its output");
        Self {
            _process: process,
            input,
            answers: BufReader::new(output).lines(),
        }
    }

    /// Runs one statement; the error is Spark's own text.
    fn run(&mut self, sql: &str) -> Result<Vec<Value>, String> {
        writeln!(self.input, "{}", Value::from(sql)).expect("a session that listens");
        let line = self.answers.next().expect("an answer, see spark.log");
        let mut answer: Value =
            serde_json::from_str(&line.expect("a line")).expect("a line of JSON");
        match answer["rows"].take() {
            Value::Array(rows) => Ok(rows),
            _ => Err(answer["error"].as_str().unwrap_or_default().to_owned()),
        }
    }
}

/// Runs statements one after the other, with nobody else's between; gives the rows of the last one.
pub(crate) fn try_spark(statements: &[&str]) -> Result<Vec<Value>, String> {
    static SHARED: OnceLock<Mutex<Spark>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| Mutex::new(Spark::start()));
    let mut session = shared.lock().expect("no panic under this lock");
    let mut rows = Vec::new();
    for sql in statements {
        rows = session
            .run(sql)
            .map_err(|error| format!("{sql}: {error}"))?;
    }
    Ok(rows)
}

/// The same, where nothing may go wrong.
#[track_caller]
pub(crate) fn spark(statements: &[&str]) -> Vec<Value> {
    try_spark(statements).unwrap_or_else(|error| panic!("{error}"))
}
