//! The command line as a person or a script meets it: one run each way, and the exit codes.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use tidemark::api::EffectiveSpec;

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
    let kept = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/crds/ingestionpipelines.tidemark.dev.yaml"
    );
    assert_eq!(
        (code, out),
        (0, format!("---\n{}", fs::read_to_string(kept).unwrap()))
    );
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
    let uri = sqlite(folder.path());
    let warehouse = format!("file://{}", folder.path().display());
    let catalog = ["--catalog-uri", &uri, "--warehouse", &warehouse];
    let (code, _, told) = ran(&[&["get", "shop.orders"][..], &catalog].concat());
    assert_eq!(code, 3, "{told}");
    let wait = [
        "wait",
        "shop.orders",
        "--before",
        "2026-11-30T13:00Z",
        "--timeout",
        "1m",
    ];
    let (code, _, told) = ran(&[&wait[..], &catalog].concat());
    assert_eq!(code, 3, "{told}");
}

#[test]
fn unreachable_catalog_has_its_own_code() {
    // Nothing listens on port 9 of this machine.
    let (code, _, told) = ran(&["get", "shop.orders", "--catalog-uri", "http://127.0.0.1:9"]);
    assert_eq!(code, 7, "{told}");
    assert!(told.contains("127.0.0.1:9"), "{told}");
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
