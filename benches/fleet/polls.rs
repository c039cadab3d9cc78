//! Readers that wait: a request for each pipeline, all at once, in a process of its own.

use std::{io::Write as _, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tidemark::{api::quantity::instant, process::clock::Clock};

use super::setup::key_of;
use crate::support::Arguments;

/// How long one request waits; who gets no answer asks again.
const WAIT: &str = "30s";

/// Longer than any request waits.
const PATIENCE: Duration = Duration::from_mins(1);

/// After so many failures a reader gives up.
const MOST_FAILURES: u32 = 20;

/// What came of one reader.
struct Answered {
    number: usize,
    /// When it was told that the hour is final, µs; none: it never was.
    at_us: Option<i64>,
    asked: u32,
    failed: u32,
}

/// Waits for all of `--size` pipelines at `--url` until they are complete `--before` an instant, and prints what came of it.
pub(crate) async fn part(arguments: &Arguments) {
    let size: usize = arguments.number("size", 1_000);
    let before = instant(arguments.number("before", 0));
    let client = reqwest::Client::builder()
        .timeout(PATIENCE)
        .no_proxy()
        .build()
        .expect("a client");
    let (client, clock) = (Arc::new(client), Clock::system());
    let url = arguments.text("url");
    let readers = stream::iter(0..size).map(|number| {
        let key = key_of(number);
        let path = format!("v1/claims/{}/{}/ready", key.namespace, key.name);
        let url = format!("{url}/{path}?before={before}&wait={WAIT}");
        let (client, clock) = (Arc::clone(&client), clock.clone());
        async move { ask(&client, &clock, (number, &url)).await }
    });
    let answers: Vec<Answered> = readers.buffer_unordered(size).collect().await;
    let told: Vec<Value> = answers
        .iter()
        .map(|one| json!([one.number, one.at_us, one.asked, one.failed]))
        .collect();
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", Value::from(told)).expect("an open output");
}

async fn ask(client: &reqwest::Client, clock: &Clock, (number, url): (usize, &str)) -> Answered {
    let mut answered = Answered {
        number,
        at_us: None,
        asked: 0,
        failed: 0,
    };
    while answered.failed < MOST_FAILURES {
        answered.asked += 1;
        let answer = client.get(url).send().await;
        match answer.map(|answer| answer.status()) {
            Ok(StatusCode::OK) => {
                answered.at_us = Some(clock.now_us());
                break;
            }
            Ok(StatusCode::ACCEPTED) => {}
            Ok(_) | Err(_) => {
                answered.failed += 1;
                clock.sleep(Duration::from_secs(1)).await;
            }
        }
    }
    answered
}
