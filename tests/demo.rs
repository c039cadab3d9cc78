//! The demo as anybody runs it, told in lines.

use tidemark::demo::{Options, run};

/// It judges itself by the broker's receipts; here it must also have something to show.
#[tokio::test(flavor = "multi_thread")]
async fn demo_ends_by_itself_with_whole_hours_final_and_nothing_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options {
        keep: Some(folder.path().join("demo")),
        seed: 1,
        live: false,
        program: "tidemark".to_owned(),
    };
    let mut told = Vec::new();
    let outcome = run(&options, &mut told).await;
    let told = String::from_utf8(told).expect("the demo speaks UTF-8");
    assert!(matches!(outcome, Ok(true)), "{outcome:?}\n{told}");
    assert!(told.matches("is final with").count() >= 2, "{told}");
    assert!(told.contains("has been silent for"), "{told}");
    assert!(told.contains("each is in the table exactly once"), "{told}");
}
