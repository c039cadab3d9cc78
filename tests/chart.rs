//! The charts, with a real Helm on a real API server.

use std::path::Path;

use crate::support::kube::Kube;

fn chart(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("charts")
        .join(name);
    path.to_str().unwrap().to_owned()
}

/// Whoever installs the definitions by their chart can upgrade them by it, and keeps every pipeline when it goes.
#[test]
fn definitions_survive_their_chart() {
    let kube = Kube::start_own();
    let person = kube.person();
    let chart = chart("tidemark-crds");
    let lint = person
        .helm(&["lint", "--strict", &chart], "")
        .expect_success();
    assert!(lint.contains("0 chart(s) failed"), "{lint}");
    person
        .helm(&["install", "crds", &chart], "")
        .expect_success();
    kube.await_definitions();
    person
        .helm(&["upgrade", "crds", &chart], "")
        .expect_success();
    person.helm(&["uninstall", "crds"], "").expect_success();
    let left = person.kubectl(&["get", "ipl"], "").expect_success();
    assert!(left.is_empty(), "{left}");
    person
        .helm(
            &[
                "install",
                "crds",
                &chart,
                "--set",
                "keep=false",
                "--take-ownership",
            ],
            "",
        )
        .expect_success();
    person.helm(&["uninstall", "crds"], "").expect_success();
    person.kubectl(&["get", "ipl"], "").expect_failure();
}
