//! How pipelines are told to be, on a real API server: statuses beside those of others, who leads, gates, Events, readers.
//!
//! The workers are an HTTP server on loopback that answers recorded progress.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Json, Router, routing::get};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tidemark::{
    api::{
        Reason,
        pipeline::IngestionPipeline,
        worker::{ClaimProgress, ErrorProgress, PipelineProgress, Progress, RunState},
    },
    operator::{
        Key,
        claims::Claims,
        counts::Counts,
        events::Events,
        gate::{GateContext, Gates},
        http::{self, Readers},
        lease::{Leadership, LeaseName, lead},
        progress::{Poller, ROUND, Target},
        report::{ReportContext, Reports},
        status::{Children, Reconciled},
        writer::{Writer, WriterContext, Written},
    },
    process::clock::Clock,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::{
    kube::{Kube, User},
    wait::within,
};

/// The rights of what is tested here, and no others.
pub(crate) fn rules() -> Value {
    json!([
        {"apiGroups": ["tidemark.dev"], "resources": ["ingestionpipelines"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["tidemark.dev"], "resources": ["ingestionpipelines/status", "finalizationgates/status"], "verbs": ["patch"]},
        {"apiGroups": ["tidemark.dev"], "resources": ["finalizationgates"], "verbs": ["get", "list", "watch", "delete"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
    ])
}

pub(crate) const SOON: Duration = Duration::from_secs(40);

/// A worker that answers what it is told to.
struct Recorded {
    said: Arc<Mutex<Progress>>,
    address: SocketAddr,
}

impl Recorded {
    async fn start() -> Self {
        let said = Arc::new(Mutex::new(Progress::default()));
        let answered = Arc::clone(&said);
        let router = Router::new().route(
            "/progress",
            get(move || async move { Json(answered.lock().unwrap().clone()) }),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { said, address }
    }

    fn says(&self, uid: &str, progress: PipelineProgress) {
        let mut said = self.said.lock().unwrap();
        said.pipelines.insert(uid.to_owned(), progress);
    }
}

/// All that tells how pipelines are, in one namespace.
struct Told {
    namespace: String,
    admin: User,
    client: Client,
    claims: Claims,
    reports: Reports,
    worker: Recorded,
    poller: Poller,
    leadership: Leadership,
    stop: CancellationToken,
}

impl Told {
    /// Starts it all, and returns when it leads.
    async fn start(test: &str) -> Self {
        let kube = Kube::shared();
        let namespace = kube.namespace(test);
        let user = kube.account(&namespace, "operator", &rules());
        let client = user.client().await;
        let (clock, counts, stop) = (Clock::system(), Counts::default(), CancellationToken::new());
        let leadership = Leadership::none(clock.clone());
        let name = LeaseName::new(&namespace, "tidemark", "one");
        tokio::spawn(lead(client.clone(), name, leadership.clone(), stop.clone()));
        let (claims, writer) = (Claims::default(), Writer::new(counts.clone()));
        let (events, sender) = Events::new(counts.clone());
        let sends = (leadership.clone(), clock.clone(), "one".to_owned());
        tokio::spawn(sender.run(client.clone(), sends, stop.clone()));
        let reports = Reports::new(ReportContext {
            writer: writer.clone(),
            claims: claims.clone(),
            events,
            clock: clock.clone(),
        });
        let gates = Gates::new(GateContext {
            claims: claims.clone(),
            writer: writer.clone(),
            leadership: leadership.clone(),
            clock: clock.clone(),
        });
        let (written, judged) = (reports.clone(), gates.clone());
        let context = WriterContext {
            client: client.clone(),
            leadership: leadership.clone(),
            clock: clock.clone(),
        };
        let tell = Arc::new(move |one: Written| {
            judged.written(&one);
            written.written(one);
        });
        tokio::spawn(writer.run(context, tell, stop.clone()));
        let (of, watching) = (namespace.clone(), client.clone());
        let ends = stop.clone();
        tokio::spawn(async move { gates.run(watching, Some(&of), ends).await });
        let told = Self {
            poller: Poller::new(clock, counts, ROUND).unwrap(),
            admin: kube.admin(),
            worker: Recorded::start().await,
            namespace,
            client,
            claims,
            reports,
            leadership,
            stop,
        };
        let mut leads = told.leadership.subscribe();
        leads.wait_for(|leads| *leads).await.unwrap();
        told.reports.leads(true);
        told
    }

    fn kubectl(&self, words: &[&str], input: &str) -> String {
        let mut all = vec!["-n", &self.namespace];
        all.extend(words);
        self.admin.kubectl(&all, input).expect_success()
    }

    /// Makes a pipeline, takes it in as the watch would, and reconciles it to one worker.
    async fn pipeline(&self, name: &str) -> String {
        let object = json!({
            "apiVersion": "tidemark.dev/v1alpha1", "kind": "IngestionPipeline", "metadata": {"name": name},
            "spec": {
                "source": {"kafka": {"bootstrapServers": "kafka:9092", "topics": ["t"]}, "format": "DebeziumJson"},
                "sink": {"catalog": {"type": "Rest", "uri": "http://catalog:8181"}, "table": format!("shop.{name}")},
            },
        });
        self.kubectl(&["apply", "--server-side", "-f", "-"], &object.to_string());
        let found = self.see(name).await;
        let reconciled = Reconciled {
            generation: 1,
            accepted: Ok(()),
            applied: Ok(()),
            pending: None,
            spec_hash: Some("h".into()),
            suspend: false,
            patience_us: 0,
        };
        let children = Children {
            desired: 1,
            replicas: 1,
            ready_replicas: 1,
            selector: Some(format!("tidemark.dev/pipeline={name}")),
            trouble: None,
        };
        let key = Key::new(&self.namespace, name);
        self.reports
            .reconciled(&key, (Arc::new(reconciled), children), &["w-0"]);
        found.uid().unwrap()
    }

    async fn see(&self, name: &str) -> IngestionPipeline {
        let api: Api<IngestionPipeline> = Api::namespaced(self.client.clone(), &self.namespace);
        let found = api.get(name).await.unwrap();
        let key = Key::new(&self.namespace, name);
        self.reports.seen(&key, found.clone().into());
        found
    }

    async fn poll(&self) {
        let target = Target {
            namespace: self.namespace.clone(),
            worker: "w-0".into(),
            address: self.worker.address,
        };
        self.reports.heard(&self.poller.ask(&target).await);
    }

    fn status(&self, name: &str) -> Value {
        let text = self.kubectl(&["get", "ipl", name, "-o", "json"], "");
        serde_json::from_str::<Value>(&text).unwrap()["status"].clone()
    }
}

/// Waits until it is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    tokio::task::block_in_place(|| within(SOON, what, || is_so().then_some(())));
}

fn running(before_us: Option<i64>, epoch: u64, commit: u128) -> PipelineProgress {
    PipelineProgress {
        pipeline: "shop/orders".into(),
        state: RunState::Running,
        spec_hash: "h".into(),
        claim: Some(ClaimProgress {
            finalized_before_us: before_us,
            complete_from_us: Some(1_795_996_800_000_000), // 2026-11-30T00:00:00Z
            gaps: Vec::new(),
            evidence: vec!["minimum".into()],
            margin_ms: None,
            epoch,
            reopened: None,
            commit_id: Uuid::from_u128(commit),
            table_uuid: Some(Uuid::from_u128(1)),
            cell: Some("1h".into()),
            zone: None,
            accepted: Vec::new(),
            amended: Vec::new(),
        }),
        ..PipelineProgress::default()
    }
}

/// 2026-11-30T12:00:00Z.
const NOON_US: i64 = 1_796_040_000_000_000;
const HOUR_US: i64 = 3_600_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_claims_is_seen_by_kubectl_beside_what_others_say() {
    let told = Told::start("what_a_worker_claims").await;
    let uid = told.pipeline("orders").await;
    told.worker.says(&uid, running(Some(NOON_US), 1, 1));
    let theirs = json!({
        "apiVersion": "tidemark.dev/v1alpha1", "kind": "IngestionPipeline", "metadata": {"name": "orders"},
        "status": {"conditions": [{
            "type": "BackedUp", "status": "True", "reason": "Yes", "message": "", "lastTransitionTime": "2026-11-30T00:00:00Z",
        }]},
    });
    let apply = [
        "apply",
        "--server-side",
        "--subresource=status",
        "--field-manager=theirs",
        "-f",
        "-",
    ];
    told.kubectl(&apply, &theirs.to_string());
    told.see("orders").await;
    told.poll().await;
    until("a claim in the status", || {
        told.status("orders")["finalizedBefore"] == "2026-11-30T12:00:00Z"
    });
    let status = told.status("orders");
    let kinds: Vec<&str> = status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["type"].as_str())
        .collect();
    for kind in [
        "BackedUp",
        "Accepted",
        "Ready",
        "Advancing",
        "Reopened",
        "Suspended",
    ] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
    told.kubectl(
        &[
            "wait",
            "--for=condition=Ready",
            "--timeout=10s",
            "ipl/orders",
        ],
        "",
    );
    let line = told.kubectl(&["get", "ipl", "orders", "--no-headers"], "");
    assert!(
        line.contains("True") && line.contains("2026-11-30T12:00:00Z") && line.contains("minimum"),
        "{line}"
    );
    told.stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_is_written_once_and_taken_out_when_it_is_void() {
    let told = Told::start("claim_is_written_once").await;
    let uid = told.pipeline("orders").await;
    told.worker.says(&uid, running(Some(NOON_US), 1, 1));
    told.poll().await;
    until("a claim in the status", || {
        told.status("orders")["finalizedBefore"] == "2026-11-30T12:00:00Z"
    });
    // Asked again and seen again, it is not written again.
    let version = told.see("orders").await.resource_version();
    for commit in 2..6 {
        told.worker.says(&uid, running(Some(NOON_US), 1, commit));
        told.poll().await;
    }
    assert_eq!(told.see("orders").await.resource_version(), version);
    // A void claim is taken out of the object.
    let mut void = running(Some(NOON_US), 1, 6);
    void.state = RunState::Stopped;
    void.last_error = Some(ErrorProgress::new(
        Reason::TableReplaced,
        "snapshot 5".into(),
        0,
    ));
    told.worker.says(&uid, void);
    told.poll().await;
    until("the claim withdrawn", || {
        told.status("orders")["finalizedBefore"].is_null()
    });
    until("an Event of it", || {
        let events = told.kubectl(&["get", "events", "-o", "jsonpath={.items[*].reason}"], "");
        events.contains("ClaimWithdrawn") && events.contains("TableReplaced")
    });
    told.stop.cancel();
}

/// A status that was derived from an object that is another one by now must not be written over it.
#[tokio::test(flavor = "multi_thread")]
async fn status_of_an_object_that_has_changed_is_derived_anew() {
    let told = Told::start("status_of_an_object").await;
    let uid = told.pipeline("orders").await;
    until("a first status", || !told.status("orders").is_null());
    // The watch is behind: somebody has changed the object meanwhile.
    told.kubectl(&["label", "ipl", "orders", "team=a"], "");
    told.worker.says(&uid, running(Some(NOON_US), 1, 1));
    told.poll().await;
    until("the watch brings it, and it is written", || {
        tokio::runtime::Handle::current().block_on(told.see("orders"));
        told.status("orders")["finalizedBefore"] == "2026-11-30T12:00:00Z"
    });
    // Made again under its name: what is known of the old one is not the new one's.
    told.kubectl(&["delete", "ipl", "orders"], "");
    let again = told.pipeline("orders").await;
    assert_ne!(uid, again);
    told.poll().await;
    until("a status without the claim", || {
        !told.status("orders").is_null()
    });
    assert_eq!(told.status("orders")["finalizedBefore"], Value::Null);
    told.stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn gate_is_waited_for_by_kubectl_and_ends() {
    let told = Told::start("gate_is_waited_for").await;
    let uid = told.pipeline("orders").await;
    told.worker.says(&uid, running(Some(NOON_US), 1, 1));
    told.poll().await;
    let gate = json!({
        "apiVersion": "tidemark.dev/v1alpha1", "kind": "FinalizationGate", "metadata": {"name": "noon"},
        "spec": {"pipelines": ["orders"], "before": "2026-11-30T13:00:00Z", "ttlAfterFinal": "8s"},
    });
    told.kubectl(&["apply", "--server-side", "-f", "-"], &gate.to_string());
    until("what it waits for", || {
        let waiting =
            "jsonpath={.status.waiting[0].name} {.status.waiting[0].reason} {.status.ready}";
        told.kubectl(&["get", "fgate", "noon", "-o", waiting], "") == "orders NotFinal 0/1"
    });
    told.worker
        .says(&uid, running(Some(NOON_US + HOUR_US), 1, 2));
    told.poll().await;
    told.kubectl(
        &[
            "wait",
            "--for=condition=Final",
            "--timeout=30s",
            "fgate/noon",
        ],
        "",
    );
    told.kubectl(&["wait", "--for=delete", "--timeout=60s", "fgate/noon"], "");
    told.stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_a_replica_that_does_not_lead_are_answered_from_the_objects() {
    let told = Told::start("readers_of_a_replica").await;
    let uid = told.pipeline("orders").await;
    told.worker.says(&uid, running(Some(NOON_US), 1, 1));
    told.poll().await;
    until("a claim in the status", || {
        !told.status("orders")["finalizedBefore"].is_null()
    });
    // The other replica has seen the object, and asks no worker.
    let counts = Counts::default();
    let claims = Claims::default();
    let other = Reports::new(ReportContext {
        writer: Writer::new(counts.clone()),
        claims: claims.clone(),
        events: Events::new(counts.clone()).0,
        clock: Clock::system(),
    });
    let api: Api<IngestionPipeline> = Api::namespaced(told.client.clone(), &told.namespace);
    let object = api.get("orders").await.unwrap();
    other.seen(&Key::new(&told.namespace, "orders"), object.into());
    let mut answers = Vec::new();
    for claims in [claims, told.claims.clone()] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!(
            "http://{}/v1/claims/{}/orders/ready",
            listener.local_addr().unwrap(),
            told.namespace
        );
        let readers = Readers::new(claims, (counts.clone(), Clock::system()), told.stop.clone());
        tokio::spawn(http::serve(listener, readers));
        for before in [
            "2026-11-30T12:00:00Z",
            "2026-11-30T13:00:00Z",
            "2026-11-30T00:00:00Z",
        ] {
            let response = reqwest::get(format!("{url}?before={before}"))
                .await
                .unwrap();
            let code = response.status().as_u16();
            let body: Value = response.json().await.unwrap();
            answers.push((code, body["verdict"].clone(), body["interval"].clone()));
        }
    }
    let codes: Vec<u16> = answers.iter().map(|(code, _, _)| *code).collect();
    assert_eq!(codes[..3], [200, 202, 409]);
    assert_eq!(answers[..3], answers[3..], "both replicas say the same");
    told.stop.cancel();
}
