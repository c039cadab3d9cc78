//! `tidemark probe URL`: whether a server of ours answers, from where this runs.
//!
//! The image has no shell and no other client: this is how a pod looks whether names resolve, a Service has somebody behind it and a
//! `NetworkPolicy` lets it through.

use std::{io::Write, path::PathBuf, time::Duration};

use reqwest::{Client, Url, redirect::Policy};

use super::{Error, Exit, wait::span};
use crate::process::{
    clock::Clock,
    tls::{self, Authorities},
};

/// How long one question may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long after a failure it is asked again.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tidemark probe http://localhost:8080/readyz
  tidemark probe 'http://tidemark.tidemark-system:8090/v1/claims?limit=1' --timeout 60s

Ends with 0 once the answer is a success, and else, when the time is over, with 124 and what was answered last.")]
pub(super) struct Arguments {
    /// What to ask
    url: Url,
    /// How long to go on asking; 0s asks once
    #[arg(long, value_name = "LENGTH", default_value = "0s", value_parser = span)]
    timeout: Duration,
    /// A file with certificates, in PEM, that are trusted beside the usual ones
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

pub(super) async fn probe(arguments: Arguments, out: &mut dyn Write) -> Result<Exit, Error> {
    let clock = Clock::system();
    let authorities = arguments.ca_file;
    let authorities = authorities.map(|path| Authorities::of_file("--ca-file", path));
    let client = tls::http(authorities)
        .map_err(std::io::Error::other)?
        .timeout(ANSWER_TIMEOUT)
        .redirect(Policy::none())
        .no_proxy()
        .build()
        .map_err(std::io::Error::other)?;
    loop {
        let (answered, said) = ask(&client, arguments.url.clone()).await;
        if answered || clock.monotonic() >= arguments.timeout {
            writeln!(out, "{}: {said}", arguments.url)?;
            return Ok(if answered {
                Exit::Ready
            } else {
                Exit::TimedOut
            });
        }
        clock.sleep(PAUSE).await;
    }
}

/// Whether the answer is a success, and what it is.
async fn ask(client: &Client, url: Url) -> (bool, String) {
    match client.get(url).send().await {
        Ok(answer) => (answer.status().is_success(), answer.status().to_string()),
        Err(error) => {
            let mut innermost: &dyn std::error::Error = &error;
            while let Some(source) = innermost.source() {
                innermost = source;
            }
            (false, innermost.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::{Router, http::StatusCode, routing::get};
    use tokio::net::TcpListener;

    use super::*;

    async fn probed(path: &str) -> (Exit, String) {
        let routes = Router::new()
            .route("/well", get(|| async { "ok\n" }))
            .route("/ill", get(|| async { StatusCode::SERVICE_UNAVAILABLE }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move { axum::serve(listener, routes).await });
        let arguments = Arguments {
            url: format!("http://{address}{path}").parse().unwrap(),
            timeout: Duration::ZERO,
            ca_file: None,
        };
        let mut out = Vec::new();
        let exit = probe(arguments, &mut out).await.unwrap();
        server.abort();
        let said = String::from_utf8(out).unwrap();
        (exit, said.split_once(": ").unwrap().1.to_owned())
    }

    #[tokio::test]
    async fn a_success_is_well_and_all_else_is_not() {
        assert_eq!(probed("/well").await, (Exit::Ready, "200 OK\n".into()));
        let unavailable = "503 Service Unavailable\n".to_owned();
        assert_eq!(probed("/ill").await, (Exit::TimedOut, unavailable));
    }

    #[tokio::test]
    async fn nobody_there_is_told_by_the_innermost_cause() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let arguments = Arguments {
            url: format!("http://{address}/").parse().unwrap(),
            timeout: Duration::from_secs(1),
            ca_file: None,
        };
        let mut out = Vec::new();
        assert_eq!(probe(arguments, &mut out).await.unwrap(), Exit::TimedOut);
        let said = String::from_utf8(out).unwrap();
        assert!(said.contains("onnection refused"), "{said}");
    }
}
