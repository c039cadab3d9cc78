//! The admin server of a process: `/healthz`, `/readyz`, `/metrics`, `/progress`, and routes that a command adds.
//!
//! Comes in: a listener, the metrics and a watched snapshot of the progress. Goes out: plain answers. It reads what others
//! published last and never asks the data path, so a slow pipeline cannot make a probe fail.
//!
//! It shows no secret: progress holds none, and nothing else of a pipeline is answered.

use std::time::Duration;

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use super::Metrics;
use crate::api::worker::Progress;

/// The port of the admin server where no other is asked for.
pub const ADMIN_PORT: u16 = 8080;

/// What the server answers from.
#[derive(Debug, Clone)]
pub struct Admin {
    /// All metrics of the process.
    pub metrics: Metrics,
    /// The newest snapshot of what the worker is doing.
    pub progress: watch::Receiver<Progress>,
}

/// How long answers under way may take once the server stops: a request that never comes to its end must not keep the process.
const CLOSING: Duration = Duration::from_secs(2);

/// Serves until `stop` is cancelled; answers under way are finished, as far as two seconds go.
///
/// # Errors
/// The listener fails.
pub async fn serve(
    listener: TcpListener,
    admin: Admin,
    more: Router,
    stop: CancellationToken,
) -> Result<(), std::io::Error> {
    serve_routes(listener, routes(&admin).merge(more), stop).await
}

/// The same of any routes.
///
/// # Errors
/// The listener fails.
pub async fn serve_routes(
    listener: TcpListener,
    routes: Router,
    stop: CancellationToken,
) -> Result<(), std::io::Error> {
    let closed = async {
        stop.cancelled().await;
        tokio::time::sleep(CLOSING).await;
    };
    let served =
        axum::serve(listener, routes).with_graceful_shutdown(stop.clone().cancelled_owned());
    tokio::select! {
        ended = served.into_future() => ended,
        () = closed => Ok(()),
    }
}

fn routes(admin: &Admin) -> Router {
    Router::new()
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
        .route("/progress", get(progress))
        .with_state(admin.clone())
        .merge(metrics_of(&admin.metrics))
}

/// The page of all metrics of a process.
pub fn metrics_of(metrics: &Metrics) -> Router {
    Router::new()
        .route("/metrics", get(show_metrics))
        .with_state(metrics.clone())
}

/// Healthy while the loop of every pipeline turns, whatever it waits for: a pipeline that is stuck is helped by nothing but a
/// new process, which takes up every other one where its table stands.
async fn healthy(State(admin): State<Admin>) -> Response {
    let progress = admin.progress.borrow();
    let stuck: Vec<String> = progress
        .stuck()
        .into_iter()
        .map(|(pipeline, seconds)| format!("{pipeline} for {seconds} s"))
        .collect();
    if stuck.is_empty() {
        "ok\n".into_response()
    } else {
        let told = format!("stuck: {}\n", stuck.join(", "));
        (StatusCode::SERVICE_UNAVAILABLE, told).into_response()
    }
}

/// Ready once every pipeline of the set has left its start, whether it then runs, waits or has stopped: one pipeline that
/// needs a person must not take the others' pod away.
async fn ready(State(admin): State<Admin>) -> Response {
    let progress = admin.progress.borrow();
    let starting = progress.starting();
    if starting.is_empty() {
        "ok\n".into_response()
    } else {
        let told = format!("starting: {}\n", starting.join(", "));
        (StatusCode::SERVICE_UNAVAILABLE, told).into_response()
    }
}

async fn show_metrics(State(metrics): State<Metrics>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], metrics.encode())
}

async fn progress(State(admin): State<Admin>) -> Json<Progress> {
    let snapshot = admin.progress.borrow().clone();
    Json(snapshot)
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncWriteExt, net::TcpStream};

    use super::*;
    use crate::api::worker::{PipelineProgress, RunState};

    async fn answer(progress: &watch::Sender<Progress>, path: &str) -> (u16, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}{path}", listener.local_addr().unwrap());
        let admin = Admin {
            metrics: Metrics::default(),
            progress: progress.subscribe(),
        };
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(listener, admin, Router::new(), stop.clone()));
        let response = reqwest::get(url).await.unwrap();
        let answer = (response.status().as_u16(), response.text().await.unwrap());
        stop.cancel();
        server.await.unwrap().unwrap();
        answer
    }

    fn snapshot(state: RunState) -> Progress {
        let mut progress = Progress::default();
        let pipeline = PipelineProgress {
            pipeline: "shop/orders".into(),
            state,
            ..PipelineProgress::default()
        };
        progress.pipelines.insert("uid-1".into(), pipeline);
        progress
    }

    #[tokio::test]
    async fn ready_once_no_pipeline_is_starting() {
        let (sender, _) = watch::channel(snapshot(RunState::Starting));
        assert_eq!(
            answer(&sender, "/readyz").await,
            (503, "starting: shop/orders\n".into())
        );
        sender.send_replace(snapshot(RunState::Stopped));
        assert_eq!(answer(&sender, "/readyz").await, (200, "ok\n".into()));
        assert_eq!(answer(&sender, "/healthz").await, (200, "ok\n".into()));
    }

    /// A probe of the orchestrator: restarting helps a thread that hangs, and nothing that waits for something outside.
    #[tokio::test]
    async fn unhealthy_while_a_pipeline_is_stuck() {
        let mut stuck = snapshot(RunState::Running);
        stuck.pipelines.get_mut("uid-1").unwrap().stuck_seconds = Some(312);
        let (sender, _) = watch::channel(stuck);
        assert_eq!(
            answer(&sender, "/healthz").await,
            (503, "stuck: shop/orders for 312 s\n".into())
        );
        for state in [RunState::Starting, RunState::Waiting, RunState::Stopped] {
            sender.send_replace(snapshot(state));
            assert_eq!(answer(&sender, "/healthz").await, (200, "ok\n".into()));
        }
    }

    /// The worker would be killed at the end of its grace period for a scraper that hangs.
    #[tokio::test]
    async fn half_a_request_does_not_keep_the_server() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, _) = watch::channel(snapshot(RunState::Running));
        let admin = Admin {
            metrics: Metrics::default(),
            progress: sender.subscribe(),
        };
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(listener, admin, Router::new(), stop.clone()));
        let mut half = TcpStream::connect(address).await.unwrap();
        half.write_all(b"GET /progress HTTP/1.1\r\n").await.unwrap();
        let whole = reqwest::get(format!("http://{address}/healthz")).await;
        assert_eq!(whole.unwrap().status().as_u16(), 200, "both are there");
        stop.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(20), server).await;
        ended.expect("the end").unwrap().unwrap();
    }

    #[tokio::test]
    async fn progress_is_a_map_by_uid() {
        let (sender, _) = watch::channel(snapshot(RunState::Running));
        let (status, body) = answer(&sender, "/progress").await;
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(status, 200);
        assert_eq!(body["pipelines"]["uid-1"]["state"], "Running");
    }
}
