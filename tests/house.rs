//! What a machine can check of the house: rooms, files, heads, purity, and that every name a person can meet is explained.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use regex::Regex;
use strum::IntoEnumIterator;
use tidemark::{
    api::condition::Reason,
    operator::{counts::Counts, metrics::OperatorMetrics},
    process::{Metrics, clock::Clock},
    sink::{GRACE, Worker, WorkerSettings},
};

/// The rooms, the lowest first. `lake` and `kafka` stand side by side and do not know each other.
const ROOMS: [&[&str]; 11] = [
    &["watermark"],
    &["api"],
    &["cdc"],
    &["process"],
    &["lake", "kafka"],
    &["sink"],
    &["merge"],
    &["sensor"],
    &["operator"],
    &["demo", "simulate"],
    &["cli"],
];

/// Rooms and files that see no disk, no network, no clock and no chance.
const PURE: &[&str] = &[
    "src/watermark/",
    "src/api/",
    "src/cdc/",
    "src/sink/buffer.rs",
    "src/sink/accumulate.rs",
    "src/sink/finalize.rs",
    "src/sink/errand.rs",
    "src/sink/fence.rs",
    "src/sink/tracks.rs",
    "src/operator/claims/known.rs",
    "src/operator/gate/verdict.rs",
    "src/operator/http/answers.rs",
    "src/operator/http/openapi.rs",
    "src/operator/http/query.rs",
    "src/operator/build/",
    "src/operator/index/",
    "src/operator/placement.rs",
    "src/operator/plan.rs",
    "src/operator/queue.rs",
    "src/operator/rollout.rs",
    "src/operator/policy/",
    "src/operator/policy_status.rs",
    "src/operator/status/",
    "src/operator/writer/budget.rs",
    "src/operator/writer/queue.rs",
    "src/sensor/foreign.rs",
    "src/sensor/frontiers.rs",
    "src/sensor/history.rs",
    "src/sensor/layout.rs",
    "src/sensor/print.rs",
    "src/sensor/tune/",
    "src/sensor/verdict.rs",
    "src/sensor/why/",
];

const IMPURE: [&str; 9] = [
    "tokio",
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "rand",
    "fastrand",
    "rdkafka",
    "reqwest",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files below a folder of the package with one of these endings, as paths from its root.
pub(crate) fn files(folder: &str, endings: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.map(|entry| entry.unwrap().path()) {
            let ending = entry.extension().and_then(|ending| ending.to_str());
            if entry.is_dir() {
                folders.push(entry);
            } else if ending.is_some_and(|ending| endings.contains(&ending)) {
                found.push(
                    entry
                        .strip_prefix(root())
                        .unwrap()
                        .to_str()
                        .unwrap()
                        .to_owned(),
                );
            }
        }
    }
    found.sort();
    found
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The code of a file without its comments.
fn code(path: &str) -> String {
    let comment = Regex::new(r"(?m)//.*$").unwrap();
    comment.replace_all(&text(path), "").into_owned()
}

/// Every path that the code names with at least two parts, trees of `use` unfolded: `a::{b::c, d}` is `a::b::c` and `a::d`.
fn paths(code: &str) -> BTreeSet<String> {
    let start = Regex::new(r"\b[a-z_][a-z0-9_]*::").unwrap();
    let mut paths = BTreeSet::new();
    for found in start.find_iter(code) {
        let before = code[..found.start()].chars().next_back();
        if before != Some(':') {
            unfold("", &code[found.start()..], &mut paths);
        }
    }
    paths
}

/// Reads one tree and returns what stands behind it.
fn unfold<'a>(prefix: &str, rest: &'a str, paths: &mut BTreeSet<String>) -> &'a str {
    let end = rest
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    let path = if prefix.is_empty() {
        name.to_owned()
    } else {
        format!("{prefix}::{name}")
    };
    let Some(below) = rest.strip_prefix("::") else {
        paths.insert(path);
        return rest;
    };
    let Some(mut list) = below.strip_prefix('{') else {
        return unfold(&path, below, paths);
    };
    loop {
        list = list.trim_start_matches(|c: char| c.is_whitespace() || c == ',' || c == '*');
        if list.is_empty()
            || list.starts_with('}')
            || !list.starts_with(|c: char| c.is_alphabetic() || c == '_')
        {
            return list.strip_prefix('}').unwrap_or(list);
        }
        list = unfold(&path, list, paths);
    }
}

/// `src/lake/table.rs` → `lake`; `src/lib.rs` has none.
fn room_of(path: &str) -> Option<&str> {
    path.strip_prefix("src/")?
        .split_once('/')
        .map(|(room, _)| room)
}

fn rank(room: &str) -> Option<usize> {
    ROOMS.iter().position(|floor| floor.contains(&room))
}

/// The rooms that a file names, by `crate::` or by climbing out of its own with `super::`.
fn rooms_named(path: &str, code: &str) -> BTreeSet<String> {
    let depth = path.matches('/').count() - 1;
    let climbs = if path.ends_with("/mod.rs") {
        depth
    } else {
        depth + 1
    };
    let out = "super::".repeat(climbs);
    let named = paths(code).into_iter().filter_map(|path| {
        let inner = path
            .strip_prefix("crate::")
            .or_else(|| path.strip_prefix(&out))?;
        Some(inner.split("::").next().unwrap_or(inner).to_owned())
    });
    named.filter(|name| rank(name).is_some()).collect()
}

#[test]
fn every_room_has_its_floor() {
    for path in files("src", &["rs"]) {
        if let Some(room) = room_of(&path) {
            assert!(
                rank(room).is_some(),
                "{path}: room \"{room}\" stands on no floor of tests/house.rs"
            );
        }
    }
}

#[test]
fn no_room_names_a_room_above_or_beside_it() {
    for path in files("src", &["rs"]) {
        let Some(room) = room_of(&path) else { continue };
        for named in rooms_named(&path, &code(&path)) {
            let below = rank(&named) < rank(room);
            assert!(
                named == room || below,
                "{path} names {named}, which is not below {room}"
            );
        }
        // Only the command line starts the quickstart and the simulator.
        let named = rooms_named(&path, &code(&path));
        for shown in ["demo", "simulate"] {
            assert!(
                !named.contains(shown) || ["cli", shown].contains(&room),
                "{path} names {shown}"
            );
        }
    }
}

#[test]
fn trees_of_imports_are_unfolded() {
    let code = "use crate::{\n    api::{self, worker::Term},\n    lake,\n};\nfn f() { crate::sink::go(super::super::cdc::x) }";
    let named = rooms_named("src/kafka/sys.rs", code);
    assert_eq!(
        named.into_iter().collect::<Vec<_>>(),
        ["api", "cdc", "lake", "sink"]
    );
}

/// A file that no module line names is never compiled: its tests pass for ever.
#[test]
fn every_file_has_its_module_line() {
    for path in files("src", &["rs"])
        .into_iter()
        .chain(files("tests", &["rs"]))
    {
        if ["src/lib.rs", "src/main.rs", "tests/main.rs"].contains(&path.as_str()) {
            continue;
        }
        let file = PathBuf::from(&path);
        let (mut folder, mut name) = (file.parent().unwrap(), file.file_stem().unwrap());
        if name == "mod" {
            name = folder.file_name().unwrap();
            folder = folder.parent().unwrap();
        }
        let door = match folder.to_str().unwrap() {
            "src" => "src/lib.rs".to_owned(),
            "tests" => "tests/main.rs".to_owned(),
            folder => format!("{folder}/mod.rs"),
        };
        let line = Regex::new(&format!(
            r"(?m)^\s*(pub(\(.*\))? )?mod {};",
            name.to_str().unwrap()
        ))
        .unwrap();
        assert!(
            line.is_match(&text(&door)),
            "{path} has no module line in {door}"
        );
    }
}

#[test]
fn every_file_opens_with_its_head() {
    for folder in ["src", "tests", "benches", "examples"] {
        for path in files(folder, &["rs"]) {
            assert!(
                text(&path).starts_with("//! "),
                "{path} does not open with //!"
            );
        }
    }
}

#[test]
fn pure_files_touch_nothing() {
    for path in files("src", &["rs"]) {
        if !PURE.iter().any(|pure| path.starts_with(pure)) {
            continue;
        }
        let code = code(&path);
        let tested = code.split("#[cfg(test)]").next().unwrap();
        for named in paths(tested) {
            let impure = |root: &&&str| named == **root || named.starts_with(&format!("{root}::"));
            let found = IMPURE.iter().find(impure);
            assert_eq!(found, None, "{path} is pure and names {named}");
        }
    }
}

#[test]
fn nothing_is_left_to_do() {
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("unimple", "mented!"),
        concat!("to", "do!"),
    ];
    let endings = ["rs", "md", "yaml", "toml", "py", "sh"];
    for folder in [
        "src", "tests", "benches", "examples", "charts", "docs", "e2e", ".ci",
    ] {
        for path in files(folder, &endings) {
            let text = text(&path);
            for mark in marks {
                // A quotation from elsewhere is no task of ours.
                let own = text
                    .match_indices(mark)
                    .any(|(at, _)| !text[..at].ends_with('"'));
                assert!(!own, "{path} holds {mark}");
            }
        }
    }
}

#[test]
fn unsafe_code_stands_in_one_file() {
    let unsafe_code = Regex::new(r"\bunsafe\b").unwrap();
    for path in files("src", &["rs"]) {
        let found = unsafe_code.is_match(&code(&path));
        assert!(
            !found || path == "src/kafka/sys.rs",
            "{path} has unsafe code"
        );
    }
}

fn docs() -> Option<String> {
    let pages = files("docs", &["md"]);
    (!pages.is_empty()).then(|| pages.iter().map(|path| text(path)).collect())
}

/// A reason that a person meets in `/progress` has to be found in the documentation.
#[test]
fn every_reason_stands_in_the_documentation() {
    let Some(docs) = docs() else { return };
    for reason in Reason::iter() {
        assert!(
            docs.contains(reason.label()),
            "{reason} is not explained in docs/"
        );
    }
}

/// Every metric of a worker and of an operator: its name as it is scraped, but for the `_total` of counters, and what it says.
pub(crate) fn metrics() -> Vec<(String, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let metrics = Metrics::default();
    let _worker = Worker::new(WorkerSettings {
        worker_id: String::new(),
        installation: String::new(),
        clock: Clock::system(),
        metrics: metrics.clone(),
        grace: GRACE,
    });
    let _counts = Counts::register(&metrics);
    let _operator = metrics.register(OperatorMetrics::register);
    // A family without a series is not scraped, so the registry is looked at from within.
    let registry = metrics.register(|registry| format!("{registry:?}"));
    let descriptor = Regex::new(
        r#"Descriptor \{ name: "([^"]+)", help: "([^"]+)", unit: (?:None|Some\((\w+)\))"#,
    )
    .unwrap();
    let named = descriptor.captures_iter(&registry).map(|found| {
        let unit = found
            .get(3)
            .map(|unit| format!("_{}", unit.as_str().to_lowercase()));
        let name = format!("tidemark_{}{}", &found[1], unit.unwrap_or_default());
        (name, found[2].trim_end_matches('.').to_owned() + ".")
    });
    named.collect()
}

#[test]
fn every_metric_stands_in_the_documentation() {
    let Some(docs) = docs() else { return };
    assert!(!metrics().is_empty());
    for (name, _) in metrics() {
        assert!(
            docs.contains(&name),
            "metric {name} is not explained in docs/"
        );
    }
}
