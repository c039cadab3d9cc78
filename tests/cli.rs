//! The command line as a person or a script meets it: one run each way, and the exit codes.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use iceberg::{
    Catalog, TableIdent,
    spec::{PrimitiveType, Type},
    table::Table,
};
use tidemark::{
    api::{EffectiveSpec, built_in_policy, quantity::parse_instant_us},
    lake::{
        catalog::{CatalogKind, CatalogSettings, open},
        commit::{Append, commit},
        table::{Column, Partitioning, TableSpec, open_or_create},
    },
    watermark::{
        Advanced, Anchor, AskedEnd, AskedPartitions, Contribution, Identity, Origin, PartitionNews,
        State, advance, contract,
    },
};
use uuid::Uuid;

fn tidemark(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemark"));
    for variable in [
        "TIDEMARK_CATALOG_URI",
        "TIDEMARK_CATALOG_TYPE",
        "TIDEMARK_CATALOG_NAME",
        "TIDEMARK_WAREHOUSE",
    ] {
        command.env_remove(variable);
    }
    command.args(arguments).output().unwrap()
}

/// Exit code, standard output and standard error.
fn ran(arguments: &[&str]) -> (i32, String, String) {
    let output = tidemark(arguments);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// A SQLite catalog in a folder of the test, as flags.
fn sqlite(folder: &Path) -> String {
    format!("sqlite://{}?mode=rwc", folder.join("catalog.db").display())
}

#[test]
fn version_names_the_commit() {
    let (code, out, _) = ran(&["--version"]);
    assert_eq!(code, 0);
    assert!(
        out.starts_with(concat!("tidemark ", env!("CARGO_PKG_VERSION"), " (")),
        "{out}"
    );
}

#[test]
fn definitions_are_those_in_the_repository() {
    let (code, out, _) = ran(&["crds"]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds");
    let files = fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    let kept = files.iter().map(|file| fs::read_to_string(file).unwrap());
    let kept: String = kept.flat_map(|text| ["---\n".to_owned(), text]).collect();
    assert_eq!((code, out), (0, kept));
}

#[test]
fn completions_name_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let (code, out, _) = ran(&["completions", shell]);
        assert!(code == 0 && out.contains("wait"), "{shell}: {code}");
    }
}

#[test]
fn usage_is_told_on_the_error_output() {
    for arguments in [
        &["wait", "shop.orders"][..],
        &["get", "orders"],
        &["nonsense"],
        &[],
    ] {
        let (code, out, told) = ran(arguments);
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}: {told}");
        assert!(!told.is_empty());
    }
}

/// A reader without a catalog must learn its three ways.
#[test]
fn missing_catalog_is_a_usage_error() {
    let (code, _, told) = ran(&["get", "shop.orders"]);
    assert_eq!(code, 2);
    assert!(
        told.contains("--catalog-uri")
            && told.contains("TIDEMARK_CATALOG_URI")
            && told.contains("--file"),
        "{told}"
    );
}

#[test]
fn missing_table_is_not_an_unreachable_catalog() {
    let folder = tempfile::tempdir().unwrap();
    // No bytes are a SQLite database without tables.
    fs::write(folder.path().join("catalog.db"), "").unwrap();
    let uri = sqlite(folder.path());
    let warehouse = format!("file://{}", folder.path().display());
    let catalog = ["--catalog-uri", &uri, "--warehouse", &warehouse];
    let (code, _, told) = ran(&[&["get", "shop.orders"][..], &catalog].concat());
    assert_eq!(code, 3, "{told}");
    let wait = [
        "wait",
        "shop.orders",
        "--before",
        "2025-11-30T13:00Z",
        "--timeout",
        "1m",
    ];
    let (code, _, told) = ran(&[&wait[..], &catalog].concat());
    assert_eq!(code, 3, "{told}");
}

/// An instant of a day that is over for good, whenever the test runs: a cell of it that is open has a cause.
fn at(time: &str) -> i64 {
    parse_instant_us(&format!("2025-11-30T{time}:00Z")).unwrap()
}

fn news(time: &str) -> Contribution {
    Contribution {
        asked: Some(AskedPartitions {
            at_us: at(time),
            topics: [("orders".into(), [0].into())].into(),
        }),
        ..Contribution::empty(
            (Uuid::now_v7(), "test"),
            "orders",
            built_in_policy().grid,
            at(time),
        )
    }
}

fn table_spec() -> TableSpec {
    TableSpec {
        columns: Some(vec![Column::key(
            "id",
            Type::Primitive(PrimitiveType::Long),
        )]),
        metadata_columns: Vec::new(),
        partitioning: Partitioning::None,
        properties: [].into(),
        location: None,
    }
}

async fn committed(
    catalog: &dyn Catalog,
    base: &Table,
    advanced: &Advanced,
    news: &Contribution,
) -> Table {
    let properties = contract::properties(advanced);
    let append = Append {
        commit_id: news.commit_id,
        summary: contract::summary(advanced, news),
        set_properties: properties.set,
        remove_properties: Vec::new(),
        ..Append::default()
    };
    commit(catalog, base, &append).await.unwrap()
}

/// Anchored at 09:10, so complete from 10:00 on; read to its end at 12:20, so final before 12:00 by the term caught-up.
async fn claimed_table(catalog: &dyn Catalog, ident: &TableIdent) -> Table {
    let table = open_or_create(catalog, ident, &table_spec())
        .await
        .unwrap()
        .table;
    let identity = Identity {
        writer: "shop.orders".into(),
        cluster_id: "cluster".into(),
        installation: "local".into(),
        table_uuid: table.metadata().uuid(),
        table_ref: "main".into(),
    };
    let mut first = news("09:10");
    first.anchors.push(Anchor {
        topic: "orders".into(),
        topic_id: None,
        partition: 0,
        offset: 7,
        origin: Origin::New,
        at_us: at("09:10"),
    });
    let anchored = advance(
        &State::new(identity, "orders", built_in_policy(), at("09:10")),
        &built_in_policy(),
        &first,
    )
    .unwrap();
    let table = committed(catalog, &table, &anchored, &first).await;
    let mut second = news("12:20");
    second.partitions.push(PartitionNews {
        topic: "orders".into(),
        partition: 0,
        start_offset: 7,
        end_offset: 7,
        before: None,
        leader_epoch: None,
        stats: None,
        positions: None,
        newest_change: None,
        resolved_us: None,
        asked_end: Some(AskedEnd {
            at_us: at("12:20"),
            heartbeat_us: None,
            high_watermark: 7,
            delivered: 7,
        }),
    });
    let caught_up = advance(&anchored.state, &built_in_policy(), &second).unwrap();
    committed(catalog, &table, &caught_up, &second).await
}

/// The tables `orders` with a claim, `copy` with the same properties, `fresh` with nothing and `gobblin` with the word of another
/// system, in a SQLite catalog of a test's own.
struct Tables {
    folder: tempfile::TempDir,
}

impl Tables {
    fn lay() -> Self {
        let tables = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        lay_tables(tables.folder.path(), &tables.warehouse());
        tables
    }

    fn warehouse(&self) -> String {
        format!("file://{}", self.folder.path().display())
    }

    /// Runs a command, whose arguments have no spaces, against them: exit code, standard output and standard error.
    fn asked(&self, arguments: &str) -> (i32, String, String) {
        let (uri, warehouse) = (sqlite(self.folder.path()), self.warehouse());
        let mut arguments: Vec<&str> = arguments.split(' ').collect();
        arguments.extend(["--catalog-uri", &uri, "--warehouse", &warehouse]);
        ran(&arguments)
    }

    /// What it says.
    fn told(&self, arguments: &str) -> String {
        self.asked(arguments).1
    }
}

fn lay_tables(folder: &Path, warehouse: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let settings = CatalogSettings {
        name: "default".into(),
        warehouse: Some(warehouse.to_owned()),
        ..CatalogSettings::new(CatalogKind::Sql {
            uri: sqlite(folder),
        })
    };
    runtime.block_on(async {
        let catalog = open(&settings).await.unwrap();
        let ident = |name: &str| TableIdent::from_strs(["shop", name]).unwrap();
        let table = claimed_table(&*catalog, &ident("orders")).await;
        // A copy carries the properties of the original, and its claim is not its own.
        let properties = table.metadata().properties().clone().into_iter().collect();
        let copy = TableSpec {
            properties,
            ..table_spec()
        };
        open_or_create(&*catalog, &ident("copy"), &copy)
            .await
            .unwrap();
        open_or_create(&*catalog, &ident("fresh"), &table_spec())
            .await
            .unwrap();
        // As Gobblin leaves it: complete before 12:00 by its counts.
        let gobblin = TableSpec {
            properties: [("completionWatermark".into(), "1764504000000".into())].into(),
            ..table_spec()
        };
        open_or_create(&*catalog, &ident("gobblin"), &gobblin)
            .await
            .unwrap();
    });
}

/// A shell goes on or stops by these numbers.
#[test]
fn exit_codes_answer_the_question() {
    let tables = Tables::lay();
    let day = "2025-11-30T";
    let cases = [
        ("get shop.orders".to_owned(), 0),
        ("get shop.fresh".to_owned(), 1),
        ("get shop.copy".to_owned(), 5),
        (format!("wait shop.orders --before {day}12:00Z"), 0),
        (
            format!("wait shop.orders --before {day}12:00Z --from {day}10:00Z --accept caught-up"),
            0,
        ),
        (
            format!("wait shop.orders --before {day}13:00Z --timeout 0s"),
            1,
        ),
        (
            format!("wait shop.orders --before {day}13:00Z --timeout 1s --every 500ms"),
            124,
        ),
        (
            format!("wait shop.orders --before {day}12:00Z --from {day}09:00Z"),
            4,
        ),
        (format!("wait shop.orders --before {day}10:00Z"), 4),
        (
            format!("wait shop.orders --before {day}12:00Z --from {day}12:00Z"),
            2,
        ),
        (
            format!("wait shop.orders --before {day}12:00Z --from {day}13:00Z"),
            2,
        ),
        (
            format!("history shop.orders --before {day}12:00Z --from {day}13:00Z"),
            2,
        ),
        (
            format!("wait shop.orders --before {day}13:00Z --timeout 1m --every 0s"),
            2,
        ),
        (
            format!("wait shop.copy --before {day}12:00Z --timeout 0s"),
            5,
        ),
        (
            format!("wait shop.orders --before {day}12:00Z --accept minimum --timeout 0s"),
            6,
        ),
    ];
    for (arguments, expected) in cases {
        let (code, out, told) = tables.asked(&arguments);
        assert_eq!(code, expected, "{arguments}\n{out}{told}");
    }
    let out = tables.told("get shop.orders");
    let sentence = "shop.orders holds every row with an event time from 2025-11-30T10:00:00Z to before 2025-11-30T12:00:00Z.";
    assert_eq!(out.lines().next(), Some(sentence), "{out}");
    let out = tables.told("get shop.orders -o json");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["finalizedBefore"], "2025-11-30T12:00:00Z");
    assert_eq!(report["evidence"], serde_json::json!(["caught-up"]));
}

/// What others left counts for whoever says so, and never beside a claim of ours.
#[test]
fn foreign_word_counts_by_choice_only() {
    let tables = Tables::lay();
    let day = "2025-11-30T";
    let cases = [
        ("get shop.gobblin".to_owned(), 1),
        (
            format!("wait shop.gobblin --before {day}12:00Z --timeout 0s"),
            1,
        ),
        (
            format!("wait shop.gobblin --before {day}12:00Z --accept gobblin"),
            0,
        ),
        (
            format!("wait shop.gobblin --before {day}12:00Z --accept foreign,minimum"),
            0,
        ),
        (
            format!("wait shop.gobblin --before {day}13:00Z --accept foreign --timeout 0s"),
            1,
        ),
        (
            format!("wait shop.gobblin --before {day}12:00Z --accept automq --timeout 0s"),
            1,
        ),
        (
            format!("wait shop.copy --before {day}12:00Z --accept foreign --timeout 0s"),
            5,
        ),
        (
            format!("wait shop.orders --before {day}13:00Z --accept foreign --timeout 0s"),
            1,
        ),
    ];
    for (arguments, expected) in cases {
        let (code, out, told) = tables.asked(&arguments);
        assert_eq!(code, expected, "{arguments}\n{out}{told}");
    }
    let out = tables.told("get shop.gobblin");
    assert!(
        out.contains("completionWatermark") && out.contains("but "),
        "{out}"
    );
    let out = tables.told("why shop.gobblin -o json");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["foreign"][0]["before"], "2025-11-30T12:00:00Z");
}

#[test]
fn explaining_commands_have_the_same_codes() {
    let tables = Tables::lay();
    let cases = [
        ("tune shop.fresh", 1),
        ("tune shop.none", 3),
        ("why shop.orders", 0),
        ("why shop.fresh", 1),
        ("why shop.copy -o yaml", 5),
        ("why shop.none", 3),
        ("history shop.orders", 0),
        ("history shop.fresh", 1),
        ("history shop.none", 3),
    ];
    for (arguments, expected) in cases {
        let (code, out, told) = tables.asked(arguments);
        assert_eq!(code, expected, "{arguments}\n{out}{told}");
    }
}

/// A person at night sees what holds the hour and what would release it; a program reads the same.
#[test]
fn why_names_what_holds_the_next_cell_and_what_releases_it() {
    let tables = Tables::lay();
    let report: serde_json::Value =
        serde_json::from_str(&tables.told("why shop.orders -o json")).unwrap();
    assert_eq!(report["cell"]["before"], "2025-11-30T13:00:00Z");
    // Asked at 12:20: the broker has to be asked again once the hour and the delay are over, and nobody has.
    assert_eq!(report["heldBy"]["bound"]["field"], "finalization.maxDelay");
    assert_eq!(report["heldBy"]["reached"], "2025-11-30T12:10:00Z");
    assert_eq!(report["reason"], "PartitionSilent");
    let remedy = report["remedy"].as_str().unwrap();
    assert!(remedy.starts_with("see that a worker runs"), "{remedy}");
    assert_eq!(report["partitions"][0]["by"], "caught-up");
    assert_eq!(
        report["partitions"][0]["terms"][0]["basis"],
        "0 of 3 commits with rows on record"
    );
    let needs = report["release"][1]["needs"].as_str().unwrap();
    assert!(
        needs.contains("at or after 2025-11-30T13:10:00Z"),
        "{needs}"
    );
    let text = tables.told("why shop.orders");
    assert!(
        text.starts_with("2025-11-30T12 of shop.orders is open: it waits for orders/0"),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 110),
        "{text}"
    );
    let text = tables.told("why shop.copy");
    assert!(
        text.contains("does not count") && text.contains("what to do"),
        "{text}"
    );
}

#[test]
fn history_has_a_line_a_cell() {
    let tables = Tables::lay();
    let csv = tables.told("history shop.orders -o csv");
    let short: Vec<String> = csv
        .lines()
        .map(|line| line.split(',').take(7).collect::<Vec<_>>().join(","))
        .collect();
    let expected = [
        "cell,from,before,state,final_at,delay_s,evidence",
        "2025-11-30T10,2025-11-30T10:00:00Z,2025-11-30T11:00:00Z,final,2025-11-30T12:20:00Z,4800,caught-up",
        "2025-11-30T11,2025-11-30T11:00:00Z,2025-11-30T12:00:00Z,final,2025-11-30T12:20:00Z,1200,caught-up",
        "2025-11-30T12,2025-11-30T12:00:00Z,2025-11-30T13:00:00Z,open,,,",
    ];
    assert_eq!(short, expected);
    let text = tables.told("history shop.orders --before 2025-11-30T11:00Z");
    assert!(
        text.contains("2 commits of shop.orders on record"),
        "{text}"
    );
    assert_eq!(
        text.lines().filter(|line| line.contains("final  ")).count(),
        1,
        "{text}"
    );
}

#[test]
fn unreachable_catalog_has_its_own_code() {
    // Nothing listens on port 9 of this machine.
    let (code, _, told) = ran(&["get", "shop.orders", "--catalog-uri", "http://127.0.0.1:9"]);
    assert_eq!(code, 7, "{told}");
    assert!(told.contains("127.0.0.1:9"), "{told}");
}

/// Else a mistyped path would be a catalog without tables from then on, and `wait` would end at once.
#[test]
fn missing_catalog_file_is_unreachable_and_stays_missing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("typo").join("catalog.db");
    let uri = sqlite(&folder.path().join("typo"));
    let warehouse = format!("file://{}", folder.path().display());
    let stretch = "--from 2025-11-30T12:00Z --before 2025-11-30T13:00Z";
    for (command, expected) in [
        ("get shop.orders".to_owned(), 7),
        (format!("wait shop.orders {stretch} --timeout 0s"), 7),
        ("writer list shop.orders".to_owned(), 7),
        (format!("retract shop.orders {stretch} --reason typo"), 2),
    ] {
        let mut arguments: Vec<&str> = command.split(' ').collect();
        arguments.extend(["--catalog-uri", &uri, "--warehouse", &warehouse]);
        let (code, _, told) = ran(&arguments);
        assert_eq!(code, expected, "{command}: {told}");
        assert!(told.contains("there is no such file"), "{command}: {told}");
        assert!(!file.parent().unwrap().exists(), "{command}");
    }
}

#[test]
fn manifest_with_faults_tells_all_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("orders.yaml");
    let text = "apiVersion: tidemark.dev/v1alpha1\nkind: IngestionPipeline\nmetadata: {name: orders}\nspec:\n  source: {format: Avro, kafka: {bootstrapServers: 'k:1', topics: [a]}}\n  sink: {table: orders, catalog: {type: Rest, uri: 'http://c'}}\n";
    fs::write(&file, text).unwrap();
    let (code, _, told) = ran(&["get", "shop.orders", "--file", file.to_str().unwrap()]);
    assert_eq!(code, 2);
    assert!(
        told.contains("spec.source.format") && told.contains("spec.sink.table"),
        "{told}"
    );
}

/// What `run --check` prints is what a pod is given.
#[test]
fn checked_manifest_is_an_effective_specification() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/key-value.yaml");
    let (code, out, told) = ran(&["run", "--check", example]);
    assert_eq!(code, 0, "{told}");
    let spec = EffectiveSpec::from_yaml(out.strip_prefix("---\n").unwrap()).unwrap();
    assert_eq!(spec.id(), "kv/profiles");
    let (code, _, told) = ran(&["run", "--check", "/nowhere"]);
    assert!(code == 2 && told.contains("/nowhere"), "{code}: {told}");
}

#[test]
fn examples_are_sound() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "yaml") {
            let faults = tidemark::api::load_manifests(&fs::read_to_string(&path).unwrap()).err();
            assert_eq!(faults, None, "{}", path.display());
        }
    }
}
