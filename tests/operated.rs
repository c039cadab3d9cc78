//! The real worker behind the real operator: Kafka, a catalog, and what a person sees of it by `kubectl`.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tidemark::{api::EffectiveSpec, process::clock::Clock};

use crate::{
    resources::merge,
    support::{
        catalog::Catalog,
        kafka::Broker,
        kubelet::Runs,
        ledger::Event,
        operator::Stage,
        proxy::{Fate, Proxy},
        worker::change,
    },
};

/// The table of every pipeline here.
const TABLE: &str = "orders";

/// What nobody may ever see again.
const CANARY: &str = "canary-5f2c9e81d7";

/// A topic with a few changes in it, and a place for its table.
struct Lake {
    topic: String,
    namespace: String,
}

impl Lake {
    fn new(test: &str) -> Self {
        let broker = Broker::shared();
        let lake = Self {
            topic: broker.topic(test, 1),
            namespace: Catalog::shared().namespace(test),
        };
        lake.write(0..5);
        lake
    }

    /// Changes of this moment.
    fn write(&self, numbers: std::ops::Range<u64>) {
        let now_us = Clock::system().now_us();
        let changes: Vec<_> = numbers
            .map(|number| {
                change(&Event {
                    number,
                    event_time_us: now_us,
                })
            })
            .collect();
        let records = changes
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()));
        Broker::shared().write(&self.topic, 0, records);
    }

    /// The pipeline from the topic to the table, with further fields.
    fn pipeline(&self, stage: &Stage<'_>, extra: &Value) -> Value {
        let mut spec = json!({
            "source": {"kafka": {"bootstrapServers": Broker::shared().bootstrap(), "topics": [self.topic]}},
            "sink": {
                "table": format!("{}.{TABLE}", self.namespace),
                "catalog": {"uri": Catalog::shared().uri()},
                "schema": [{"name": "id", "type": "long", "key": true}, {"name": "note", "type": "string"}],
                "commit": {"interval": "1s"},
            },
            "finalization": {"cell": "5s", "allowedLateness": "1s", "maxDelay": "2s"},
        });
        merge(&mut spec, extra);
        stage.pipeline("orders", &spec)
    }
}

/// Waits for a claim in the status, and gives the status.
fn await_claim(stage: &Stage<'_>) -> Value {
    stage.await_some("a claim in the status", |stage| {
        let status = stage.get("IngestionPipeline", "orders")?["status"].clone();
        status["finalizedBefore"].is_string().then_some(status)
    })
}

fn only_pod(stage: &Stage<'_>) -> String {
    stage.await_some("one pod", |stage| {
        let pods = stage.kubelet.pods();
        (pods.len() == 1).then(|| pods.into_iter().next())?
    })
}

/// Everything that a person or a program can read of a pipeline and its workers without a right to Secrets.
fn everything_readable(stage: &Stage<'_>, pod: &str) -> Vec<(&'static str, String)> {
    let objects = "ipl,ipol,configmap,deployment,poddisruptionbudget,networkpolicy,pod,events.events.k8s.io,events";
    let operator = stage.shared();
    let asked = |path| {
        stage
            .kubelet
            .ask(pod, path)
            .map(|(_, body)| body)
            .unwrap_or_default()
    };
    let claim = format!("/v1/claims/{}/orders", stage.namespace);
    vec![
        (
            "objects",
            stage.kubectl(&["get", objects, "-o", "yaml", "--show-managed-fields"]),
        ),
        (
            "described",
            stage.kubectl(&["describe", "ipl,deployment,pod"]),
        ),
        ("progress", asked("/progress")),
        ("metrics of the worker", asked("/metrics")),
        ("metrics of the operator", operator.metrics()),
        (
            "claim",
            operator
                .ask("readers", &claim)
                .map(|(_, body)| body)
                .unwrap_or_default(),
        ),
        ("log of the operator", operator.log()),
        ("log of the worker", stage.kubelet.logs()),
    ]
}

/// The claim that the worker put on the table is what `kubectl get` shows; and the secret by which it does so is nowhere but in the
/// Secret, also when the catalog refuses it, and when the worker dies.
#[test]
fn claim_of_the_worker_is_what_kubectl_shows_and_its_secret_is_nowhere() {
    let lake = Lake::new("claim_of_the_worker");
    let stage = Stage::new("claim_of_the_worker", Runs::Worker);
    let refuses = Arc::new(AtomicBool::new(false));
    let decides = Arc::clone(&refuses);
    let proxy = Proxy::start(Catalog::shared().address(), move |_| {
        if decides.load(Ordering::Relaxed) {
            Fate::Refused(403)
        } else {
            Fate::Pass
        }
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "catalog", "namespace": stage.namespace},
        "stringData": {"credential": format!("tidemark:{CANARY}")},
    });
    stage.kube.apply(&secret.to_string());
    let catalog =
        json!({"uri": proxy.uri(), "credentialRef": {"name": "catalog", "key": "credential"}});
    stage.apply(&lake.pipeline(&stage, &json!({"sink": {"catalog": catalog}})));

    let status = await_claim(&stage);
    stage.await_condition("orders", "Advancing", ("True", "AsExpected"));
    let row = stage.kubectl(&["get", "ipl", "orders", "--no-headers"]);
    let cells: Vec<&str> = row.split_whitespace().collect();
    let shown: jiff::Timestamp = cells[2]
        .parse()
        .unwrap_or_else(|_| panic!("no claim in {row}"));
    let told: jiff::Timestamp = status["finalizedBefore"].as_str().unwrap().parse().unwrap();
    assert!(shown >= told, "{row}");
    assert_eq!(
        (cells[1], cells[3].contains("caught-up")),
        ("True", true),
        "{row}"
    );
    let table = Catalog::shared().table(&lake.namespace, TABLE).unwrap();
    assert_eq!(status["tableUuid"], table["metadata"]["table-uuid"]);
    let path = format!("/v1/claims/{}/orders", stage.namespace);
    let (code, answer) = stage.shared().ask("readers", &path).unwrap();
    assert!(
        code == 200 && answer.contains("finalizedBefore"),
        "{code} {answer}"
    );

    let pod = only_pod(&stage);
    refuses.store(true, Ordering::Relaxed);
    lake.write(5..10);
    stage.await_some("a worker that says that it is refused", |stage| {
        let (_, said) = stage.kubelet.ask(&pod, "/progress")?;
        said.contains("lastError").then_some(())
    });
    let readable = everything_readable(&stage, &pod);
    stage.kubelet.signal(&pod, Signal::SIGABRT);
    stage.await_some("the end of the worker", |stage| {
        stage.kubelet.ask(&pod, "/progress").is_none().then_some(())
    });
    let last = ("what a dead worker leaves", stage.kubelet.logs());
    for (what, text) in readable.into_iter().chain([last]) {
        assert!(!text.is_empty(), "nothing is read of {what}");
        let at = text.find(CANARY);
        assert!(
            at.is_none(),
            "{what}: …{}…",
            &text[at.unwrap().saturating_sub(200)..at.unwrap()]
        );
    }

    // A pipeline that is deleted leaves its table as it is.
    stage.kubectl(&["delete", "ipl", "orders"]);
    stage.await_some("no child", |stage| {
        stage.list("Deployment", true).is_empty().then_some(())
    });
    assert!(Catalog::shared().table(&lake.namespace, TABLE).is_some());
}

/// Which table the workers are told to know.
fn known_table(stage: &Stage<'_>) -> Option<String> {
    let spec = EffectiveSpec::from_yaml(&stage.given("orders")?).unwrap();
    Some(spec.sink.known_table?.to_string())
}

fn await_known(stage: &Stage<'_>, table: &str) {
    stage.await_some("the table in what the worker is given", |stage| {
        (known_table(stage)? == table).then_some(())
    });
}

/// A table once seen is the pipeline's table: a fresh worker takes no other one for it, and makes none, without leave.
#[test]
fn fresh_worker_refuses_another_table_than_the_one_that_was_seen() {
    let (lake, catalog) = (Lake::new("fresh_worker_refuses"), Catalog::shared());
    let stage = Stage::new("fresh_worker_refuses", Runs::Worker);
    stage.apply(&lake.pipeline(&stage, &json!({})));
    let status = await_claim(&stage);
    let first = status["tableUuid"].as_str().unwrap().to_owned();
    let pod = only_pod(&stage);
    await_known(&stage, &first);
    stage.await_ready("orders");
    assert_eq!(only_pod(&stage), pod, "what becomes known restarts nothing");

    stage.edit("orders", &json!({"suspend": true}));
    stage.await_some("no pod", |stage| {
        stage.kubelet.pods().is_empty().then_some(())
    });
    let old = catalog.table(&lake.namespace, TABLE).unwrap()["metadata"].clone();
    catalog.drop_table(&lake.namespace, TABLE);
    stage.edit("orders", &json!({"suspend": false}));
    let told = stage.await_condition("orders", "Ready", ("False", "TableNotFound"));
    assert!(told.contains(&first), "{told}");
    assert_eq!(
        catalog.table(&lake.namespace, TABLE),
        None,
        "it makes no other one"
    );

    stage.edit("orders", &json!({"suspend": true}));
    stage.await_some("no pod", |stage| {
        stage.kubelet.pods().is_empty().then_some(())
    });
    let second = catalog.make_alike(&lake.namespace, TABLE, &old);
    stage.edit("orders", &json!({"suspend": false}));
    let told = stage.await_condition("orders", "Ready", ("False", "TableRecreated"));
    assert!(told.contains(&first) && told.contains(&second), "{told}");
    let table = catalog.table(&lake.namespace, TABLE).unwrap();
    let snapshot = table["metadata"]["current-snapshot-id"]
        .as_i64()
        .unwrap_or(-1);
    assert_eq!(snapshot, -1, "nothing is written to it");
    let status = stage.get("IngestionPipeline", "orders").unwrap()["status"].clone();
    assert_eq!(status["tableUuid"], first.as_str());

    stage.edit(
        "orders",
        &json!({"sink": {"accept": {"tableUuid": second}}}),
    );
    stage.await_condition("orders", "Ready", ("True", "AsExpected"));
    stage.await_some("the new table in the status", |stage| {
        let status = stage.get("IngestionPipeline", "orders")?["status"].clone();
        (status["tableUuid"] == second.as_str() && status["finalizedBefore"].is_string())
            .then_some(())
    });
    await_known(&stage, &second);
    // The leave has done its work.
    stage.edit("orders", &json!({"sink": {"accept": null}}));
    stage.await_ready("orders");
}
