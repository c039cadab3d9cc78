//! Who leads of several replicas, on a real API server: in order, after a crash, and after a pause in the middle of a write.

use std::{
    collections::BTreeMap,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client, Config, ResourceExt,
    config::{KubeConfigOptions, Kubeconfig},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;
use tidemark::{
    api::{pipeline::IngestionPipeline, status::IngestionPipelineStatus},
    operator::{
        Key,
        counts::Counts,
        lease::{Leadership, LeaseName, lead},
        writer::{NewStatus, Urgency, Write, Writer, WriterContext},
    },
    process::clock::Clock,
};
use tokio_util::sync::CancellationToken;

use crate::{
    progress::{SOON, rules, until},
    support::kube::{Kube, User},
};

/// An upgrade restarts every replica: each time the next one has to lead at once, not when the lease has run out.
#[tokio::test(flavor = "multi_thread")]
async fn lead_is_given_up_in_order_and_taken_again_when_the_lease_is_lost() {
    let kube = Kube::shared();
    let namespace = kube.namespace("lead_is_given_up");
    let client = kube
        .account(&namespace, "operator", &rules())
        .client()
        .await;
    let clock = Clock::system();
    let seek = |name: &str| {
        let (leadership, stop) = (Leadership::none(clock.clone()), CancellationToken::new());
        let lease = LeaseName::new(&namespace, "tidemark", name);
        let seeking = lead(client.clone(), lease, leadership.clone(), stop.clone());
        (leadership, stop, tokio::spawn(seeking))
    };
    let leads = |leadership: &Leadership| leadership.may_start(Duration::from_secs(5));
    let (first, stop, ends) = seek("first");
    until("the first one leads", || leads(&first));
    let (second, stop_second, _) = seek("second");
    let began = clock.monotonic();
    stop.cancel();
    ends.await.unwrap();
    assert!(!first.may_start(Duration::ZERO));
    until("the second one leads", || leads(&second));
    let waited = clock.monotonic().saturating_sub(began);
    assert!(
        waited < Duration::from_secs(12),
        "{waited:?}, less than a lease lasts"
    );
    // Somebody deletes it.
    let words = ["delete", "lease", "tidemark", "-n", &namespace];
    kube.admin().kubectl(&words, "").expect_success();
    until("the second one has made it anew", || {
        let words = [
            "get",
            "lease",
            "tidemark",
            "-n",
            &namespace,
            "-o",
            "jsonpath={.spec.holderIdentity}",
        ];
        kube.admin().kubectl(&words, "").out.starts_with("second_") && leads(&second)
    });
    stop_second.cancel();
}

/// Environment of a process that plays a replica: its kubeconfig, namespace and name.
const REPLICA: [&str; 3] = [
    "TIDEMARK_TEST_KUBECONFIG",
    "TIDEMARK_TEST_NAMESPACE",
    "TIDEMARK_TEST_REPLICA",
];

/// Not a test: the replica that `paused_leader_writes_nothing_more` starts as a process of its own. It seeks the lead and, while it
/// has it, says ten times a second that it is there.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is started by paused_leader_writes_nothing_more"]
async fn replica() {
    let [kubeconfig, namespace, name] = REPLICA.map(|name| std::env::var(name).unwrap());
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let client = Client::try_from(config.unwrap()).unwrap();
    let (clock, stop) = (Clock::system(), CancellationToken::new());
    let leadership = Leadership::none(clock.clone());
    let lease = LeaseName::new(&namespace, "tidemark", &name);
    tokio::spawn(lead(
        client.clone(),
        lease,
        leadership.clone(),
        stop.clone(),
    ));
    let writer = Writer::new(Counts::default());
    let context = WriterContext {
        client: client.clone(),
        leadership: leadership.clone(),
        clock: clock.clone(),
    };
    tokio::spawn(writer.clone().run(context, Arc::new(|_| {}), stop));
    let api: Api<IngestionPipeline> = Api::namespaced(client, &namespace);
    let mut leads = leadership.subscribe();
    for turn in 0_u64.. {
        leads.wait_for(|leads| *leads).await.unwrap();
        // What was seen before a pause is what is written after it.
        if let Ok(seen) = api.get("orders").await {
            let status = IngestionPipelineStatus {
                selector: Some(format!("{name} {turn}")),
                ..IngestionPipelineStatus::default()
            };
            let write = Write {
                key: Key::new(&namespace, "orders"),
                uid: seen.uid().unwrap(),
                resource_version: seen.resource_version().unwrap(),
                status: NewStatus::Pipeline(Arc::new(status)),
            };
            let _ = writer.submit(write, Urgency::Usual);
        }
        clock.sleep(Duration::from_millis(100)).await;
    }
}

struct Replica(Child);

impl Replica {
    fn start(user: &User, namespace: &str, name: &str) -> Self {
        let given: BTreeMap<&str, String> = REPLICA
            .into_iter()
            .zip([
                user.kubeconfig().display().to_string(),
                namespace.to_owned(),
                name.to_owned(),
            ])
            .collect();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "lead::replica", "--ignored"])
            .envs(given);
        Self(
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().try_into().unwrap()), signal).unwrap();
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A leader that is stopped in the middle of its work and goes on when another one leads finds everything as it left it: its clock
/// apart.
#[tokio::test(flavor = "multi_thread")]
async fn paused_leader_writes_nothing_more() {
    let kube = Kube::shared();
    let namespace = kube.namespace("paused_leader");
    let user = kube.account(&namespace, "operator", &rules());
    let client = user.client().await;
    let object = json!({
        "apiVersion": "tidemark.dev/v1alpha1", "kind": "IngestionPipeline", "metadata": {"name": "orders", "namespace": namespace},
        "spec": {
            "source": {"kafka": {"bootstrapServers": "kafka:9092", "topics": ["t"]}, "format": "DebeziumJson"},
            "sink": {"catalog": {"type": "Rest", "uri": "http://catalog:8181"}, "table": "shop.orders"},
        },
    });
    kube.apply(&object.to_string());
    let api: Api<IngestionPipeline> = Api::namespaced(client.clone(), &namespace);
    let leases: Api<Lease> = Api::namespaced(client, &namespace);
    let author = async || {
        let status = api.get("orders").await.unwrap().status.unwrap_or_default();
        status
            .selector
            .unwrap_or_default()
            .split(' ')
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let clock = Clock::system();
    let writes = async |name: &str| {
        let began = clock.monotonic();
        let until_then = began + SOON;
        while author().await != name {
            assert!(clock.monotonic() < until_then, "{name} does not write");
            clock.sleep(Duration::from_millis(50)).await;
        }
        clock.monotonic().saturating_sub(began)
    };
    let first = Replica::start(&user, &namespace, "first");
    writes("first").await;
    let _second = Replica::start(&user, &namespace, "second");
    first.signal(Signal::SIGSTOP);
    let taken_over = writes("second").await;
    assert!(taken_over < Duration::from_secs(30), "{taken_over:?}");
    first.signal(Signal::SIGCONT);
    let watched = clock.monotonic() + Duration::from_secs(10);
    while clock.monotonic() < watched {
        assert_eq!(author().await, "second");
        clock.sleep(Duration::from_millis(20)).await;
    }
    let holder = leases
        .get("tidemark")
        .await
        .unwrap()
        .spec
        .unwrap()
        .holder_identity
        .unwrap();
    assert!(holder.starts_with("second_"), "{holder}");
}
