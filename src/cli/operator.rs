//! `tidemark operator`: what a pod of the operator runs.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use axum::{Router, http::StatusCode, routing::get};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{
    Error, Exit, VERSION,
    until_stopped::{Logging, until_stopped},
};
use crate::{
    api::quantity::{parse_bytes, parse_length_us},
    operator::{
        build::Settings,
        client::{Pace, name_crypto_provider},
        fleet::FleetSettings,
        lease::LeaseName,
        placement::Capacity,
        rollout::{Limits, Places},
        run::{OperatorSettings, Surroundings, run},
    },
    process::{
        self, Metrics,
        clock::{self, Clock},
        http,
    },
};

/// How fast statuses may be written at most; the writer's own budget lies below it.
const STATUS_PACE: Pace = Pace {
    rate: 200,
    burst: 200,
    concurrency: 64,
};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tidemark operator --worker-image registry.example/tidemark:1.0
  tidemark operator --worker-image registry.example/tidemark:1.0 --namespace shop --namespace billing

The API server is found as kubectl finds it: by $KUBECONFIG, by ~/.kube/config, or in a pod by its service account. Several
replicas may run; one of them leads and writes, the others stand by.")]
pub(super) struct Arguments {
    /// The image of the workers
    #[arg(
        long,
        value_name = "IMAGE",
        env = "TIDEMARK_WORKER_IMAGE",
        hide_env_values = true
    )]
    worker_image: String,
    /// A namespace whose pipelines are run, several times for several; everywhere where it is left out
    #[arg(
        long = "namespace",
        value_name = "NAME",
        env = "TIDEMARK_NAMESPACES",
        hide_env_values = true,
        value_delimiter = ','
    )]
    namespaces: Vec<String>,
    /// Which installation the workers belong to: a table of another one is refused
    #[arg(
        long,
        value_name = "NAME",
        env = "TIDEMARK_INSTALLATION",
        hide_env_values = true,
        default_value = "default"
    )]
    installation: String,
    /// The namespace that the operator runs in: its lease is there, and workers admit it to their admin port
    #[arg(
        long,
        value_name = "NAME",
        env = "POD_NAMESPACE",
        hide_env_values = true,
        default_value = "tidemark-system"
    )]
    operator_namespace: String,
    /// The name of the lease of the leader
    #[arg(
        long,
        value_name = "NAME",
        env = "TIDEMARK_LEASE",
        hide_env_values = true,
        default_value = "tidemark-operator"
    )]
    lease: String,
    /// The name of this replica in the lease
    #[arg(
        long,
        value_name = "NAME",
        env = "POD_NAME",
        hide_env_values = true,
        default_value = "operator"
    )]
    pod_name: String,
    /// A namespace that may read the workers' metrics, several times for several
    #[arg(
        long = "scrape-namespace",
        value_name = "NAME",
        env = "TIDEMARK_SCRAPE_NAMESPACES",
        hide_env_values = true,
        value_delimiter = ','
    )]
    scrape_namespaces: Vec<String>,
    /// Where /healthz, /readyz and /metrics are served; port 0 takes a free one
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "TIDEMARK_ADMIN",
        hide_env_values = true,
        default_value = "0.0.0.0:8080"
    )]
    admin: SocketAddr,
    /// Where readers ask for claims: the HTTP API; port 0 takes a free one
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "TIDEMARK_READERS",
        hide_env_values = true,
        default_value = "0.0.0.0:8090"
    )]
    readers: SocketAddr,
    /// How many bytes of rows the pipelines of a shared pod may hold together; a change restarts the shared pods
    #[arg(long, value_name = "SIZE", default_value = "2Gi", value_parser = size)]
    shared_pod_memory: u64,
    /// How many pipelines share a pod at most
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=200))]
    shared_pod_pipelines: u16,
    /// How many pipelines may be changing at once where no policy says it, as a number or a share: 20 or 5%
    #[arg(long, value_name = "NUMBER", default_value = "10%")]
    max_changing: Places,
    /// How long a changed pipeline may take to get ready again where no policy says it
    #[arg(long, value_name = "LENGTH", default_value = "10m", value_parser = length)]
    change_deadline: Duration,
    /// How many may fail to do so before nothing more is changed, where no policy says it
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    max_failed: u16,
    /// How many pipelines are worked on at once
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// How many calls a second the API server gets for children on average
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    api_rate: u32,
    /// How many of them at once after a pause
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    api_burst: u32,
    /// How long it takes until every child was looked at for changes that nobody saw
    #[arg(long, value_name = "LENGTH", default_value = "6h", value_parser = length)]
    sweep: Duration,
    /// How often each worker is asked what it does; a new claim is in the status that much later at most
    #[arg(long, value_name = "LENGTH", default_value = "20s", value_parser = ask_every)]
    ask_every: Duration,
    #[command(flatten)]
    logging: Logging,
}

fn size(text: &str) -> Result<u64, String> {
    let bounds = (64 << 20)..=(256 << 30);
    let size = parse_bytes(text).filter(|size| bounds.contains(size));
    size.ok_or_else(|| "write a size from 64Mi to 256Gi".to_owned())
}

fn length(text: &str) -> Result<Duration, String> {
    let bounds = 10_000_000..=604_800_000_000;
    let us = parse_length_us(text).filter(|us| bounds.contains(us));
    us.map(clock::length)
        .ok_or_else(|| "write a length from 10s to 7d".to_owned())
}

fn ask_every(text: &str) -> Result<Duration, String> {
    // A worker that is asked less often would count as out of reach.
    let bounds = 1_000_000..=20_000_000;
    let us = parse_length_us(text).filter(|us| bounds.contains(us));
    us.map(clock::length)
        .ok_or_else(|| "write a length from 1s to 20s".to_owned())
}

impl Arguments {
    fn settings(&self) -> OperatorSettings {
        OperatorSettings {
            fleet: FleetSettings {
                build: Settings {
                    image: self.worker_image.clone(),
                    installation: self.installation.clone(),
                    operator_namespace: self.operator_namespace.clone(),
                    scrape_namespaces: self.scrape_namespaces.iter().cloned().collect(),
                },
                capacity: Capacity {
                    memory_bytes: self.shared_pod_memory,
                    pipelines: self.shared_pod_pipelines.into(),
                },
                limits: Limits {
                    max_changing: self.max_changing,
                    deadline_us: clock::micros(self.change_deadline),
                    max_failed: self.max_failed.into(),
                },
            },
            namespaces: self
                .namespaces
                .iter()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .cloned()
                .collect(),
            lease: LeaseName::new(&self.operator_namespace, &self.lease, &self.pod_name),
            pace: Pace {
                rate: self.api_rate,
                burst: self.api_burst,
                concurrency: self.concurrency.into(),
            },
            status_pace: STATUS_PACE,
            hands: self.concurrency.into(),
            sweep: self.sweep,
            ask_every: self.ask_every,
        }
    }
}

/// Runs the operator until a signal.
pub(super) fn operator(arguments: &Arguments) -> Result<Exit, Error> {
    name_crypto_provider();
    until_stopped(&arguments.logging, serving(arguments))
}

async fn serving(arguments: &Arguments) -> Result<(), Error> {
    let stop = process::stop_on_signals()?;
    let config = kube::Config::infer().await.map_err(Error::Kubeconfig)?;
    let (listener, readers) = (
        listen(arguments.admin).await?,
        listen(arguments.readers).await?,
    );
    let (admin, api) = (listener.local_addr()?, readers.local_addr()?);
    info!(version = VERSION, %admin, readers = %api, server = %config.cluster_url, "operator starts");
    let metrics = Metrics::default();
    let (ready, is_ready) = watch::channel(false);
    let close = CancellationToken::new();
    let routes = http::metrics_of(&metrics).merge(probes(is_ready));
    let serving = tokio::spawn(http::serve_routes(listener, routes, close.clone()));
    let around = Surroundings {
        config,
        readers,
        clock: Clock::system(),
        metrics,
        stop,
    };
    let ended = run(arguments.settings(), around, ready).await;
    close.cancel();
    serving.await.map_err(std::io::Error::other)??;
    ended.map_err(Error::Operator)
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|source| Error::Listen { address, source })
}

/// Alive while it answers; ready once everything was seen, whether it leads or stands by.
fn probes(ready: watch::Receiver<bool>) -> Router {
    let readyz = move || async move {
        if *ready.borrow() {
            (StatusCode::OK, "ok\n")
        } else {
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "the lists of the API server are still coming in\n",
            )
        }
    };
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
}
