//! What `run` and `worker` share: a worker, its admin server, and an orderly end.
//!
//! A stop signal is answered in this order: no new pipelines, every pipeline commits what it has read, the admin server closes.

use std::{fs, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{
    Error, Exit, VERSION,
    files::Folder,
    until_stopped::{Logging, until_stopped},
};
use crate::{
    api::EffectiveSpec,
    process::{
        self, Metrics,
        clock::Clock,
        http::{self, Admin},
    },
    sensor::chain,
    sink::{GRACE, Worker, WorkerSettings},
};

/// How often a folder of specifications is read again.
const LOOK_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub(super) struct ServeArguments {
    /// Where /healthz, /readyz, /metrics and /progress are served; port 0 takes a free one
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "TIDEMARK_ADMIN",
        hide_env_values = true,
        default_value = "127.0.0.1:8080"
    )]
    admin: SocketAddr,
    #[command(flatten)]
    logging: Logging,
    /// Under which name the worker commits; the host's name and the process id where it is left out
    #[arg(
        long,
        value_name = "NAME",
        env = "TIDEMARK_WORKER_ID",
        hide_env_values = true
    )]
    worker_id: Option<String>,
    /// Which installation the worker belongs to; a table of another one is refused
    #[arg(
        long,
        value_name = "NAME",
        env = "TIDEMARK_INSTALLATION",
        hide_env_values = true,
        default_value = "local"
    )]
    installation: String,
}

/// Where the pipelines come from.
pub(super) enum Source {
    /// These, for as long as the process runs.
    Fixed(Vec<EffectiveSpec>),
    /// A folder that changes.
    Folder(Folder),
}

/// Runs pipelines until a signal.
pub(super) fn serve(arguments: &ServeArguments, source: Source) -> Result<Exit, Error> {
    until_stopped(&arguments.logging, serving(arguments, source))
}

async fn serving(arguments: &ServeArguments, source: Source) -> Result<(), Error> {
    let stop = process::stop_on_signals()?;
    let listener = TcpListener::bind(arguments.admin).await;
    let listener = listener.map_err(|source| Error::Admin {
        address: arguments.admin,
        source,
    })?;
    let metrics = Metrics::default();
    let worker_id = arguments.worker_id.clone().unwrap_or_else(worker_id);
    info!(version = VERSION, worker = worker_id, admin = %listener.local_addr()?, "worker starts");
    let worker = Arc::new(Worker::new(WorkerSettings {
        worker_id,
        installation: arguments.installation.clone(),
        clock: Clock::system(),
        metrics: metrics.clone(),
        grace: GRACE,
    }));
    let admin = Admin {
        metrics,
        progress: worker.progress(),
    };
    let (end, close) = (CancellationToken::new(), CancellationToken::new());
    let server = tokio::spawn(http::serve(listener, admin, Router::new(), close.clone()));
    let running = tokio::spawn({
        let (worker, end) = (Arc::clone(&worker), end.clone());
        async move { worker.run(end).await }
    });
    feed(&worker, source, &stop).await;
    end.cancel();
    running.await.map_err(io::Error::other)?;
    close.cancel();
    server.await.map_err(io::Error::other)??;
    info!("worker has stopped");
    Ok(())
}

/// Gives the worker its pipelines until `stop`.
async fn feed(worker: &Worker, source: Source, stop: &CancellationToken) {
    let mut folder = match source {
        Source::Fixed(specs) => {
            worker.set_pipelines(specs).await;
            return stop.cancelled().await;
        }
        Source::Folder(folder) => folder,
    };
    let mut told = None;
    while !stop.is_cancelled() {
        let looked = tokio::task::spawn_blocking(move || {
            let found = folder.look();
            (folder, found)
        });
        let Ok((back, found)) = looked.await else {
            error!("the folder of specifications can no longer be read");
            return stop.cancelled().await;
        };
        folder = back;
        let outage = found.as_ref().err().map(|error| chain(error));
        if outage != told {
            // Once an outage: it is read again all the while.
            if let Some(error) = &outage {
                warn!(
                    error,
                    "the folder of specifications cannot be read; what runs goes on"
                );
            } else {
                info!("the folder of specifications can be read again");
            }
            told = outage;
        }
        if let Ok(Some(specs)) = found {
            tokio::select! {
                () = worker.set_pipelines(specs) => {}
                () = stop.cancelled() => {}
            }
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// The host's name and the process id.
fn worker_id() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => "worker",
        host => host,
    };
    format!("{host}-{}", std::process::id())
}
