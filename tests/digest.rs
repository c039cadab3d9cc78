//! The digest in a snapshot's summary, read by the lines of Python in the documentation.

use std::process::Command;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use tidemark::watermark::Digest;

/// The first block of Python on the page that defines this function.
fn documented(function: &str) -> String {
    let page = include_str!("../docs/table-contract.md");
    let mut blocks = page.split("```python\n").skip(1);
    let block = blocks.find(|block| block.contains(&format!("def {function}(")));
    let block = block.expect("the page has the function");
    block.split("```").next().unwrap().to_owned()
}

#[test]
fn the_documented_lines_of_python_read_the_digest() {
    let code = documented("event_time_quantile");
    let body = code.lines().filter(|line| !line.trim().is_empty());
    assert_eq!(body.count(), 21, "an import and twenty lines");
    let base_us = 1_796_032_800_000_000;
    let batches: [Vec<i64>; 4] = [
        vec![base_us],
        (0..50_000)
            .map(|row| base_us + row * row % 3_600_000_017)
            .collect(),
        (0..1_000)
            .map(|row| base_us + (row % 60) * 1_000_000)
            .collect(),
        (0..300).map(|row| base_us - (1 << (row % 45))).collect(),
    ];
    for values in batches {
        let mut digest = Digest::default();
        digest.extend(&values);
        let encoded = STANDARD.encode(digest.finish().unwrap().encode());
        let sketch = tidemark::watermark::Sketch::decode(&STANDARD.decode(&encoded).unwrap());
        let sketch = sketch.unwrap();
        for q in [0.0, 0.001, 0.01, 0.05, 0.5, 0.99, 1.0] {
            let program = format!("{code}\nprint(round(event_time_quantile(\"{encoded}\", {q})))");
            let answer = Command::new("python3").args(["-c", &program]).output();
            let answer = answer.expect("a Python");
            let error = String::from_utf8_lossy(&answer.stderr);
            let read: i64 = String::from_utf8_lossy(&answer.stdout)
                .trim()
                .parse()
                .unwrap_or_else(|_| panic!("{error}"));
            let here = sketch.quantile(q);
            assert!((read - here).abs() <= 1, "{q}: {read} there, {here} here");
        }
    }
}
