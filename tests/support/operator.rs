//! The program `tidemark operator`, and a namespace in which a test runs it with the rights that the chart gives.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
    time::Duration,
};

use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
    core::{ApiResource, GroupVersionKind},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use super::{
    catalog::request,
    kube::{Kube, User},
    kubelet::{Kubelet, Runs},
    server::own_name,
    wait::{pause, within},
};
use crate::resources::merge;

/// For what takes seconds on a quiet machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// How long to leave the API server to others between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// A running operator. Dropping it kills it.
pub(crate) struct Operator {
    process: Child,
    log: PathBuf,
}

impl Operator {
    /// Starts a replica of this name as a user, with further flags.
    pub(crate) fn start(user: &User, (namespace, replica): (&str, &str), flags: &[&str]) -> Self {
        let name = own_name(&format!("operator-{namespace}-{replica}"));
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.log"));
        let file = File::create(&log).expect("a log file");
        let process = Command::new(env!("CARGO_BIN_EXE_tidemark"))
            .args([
                "operator",
                "--operator-namespace",
                namespace,
                "--lease",
                "tidemark",
                "--pod-name",
                replica,
            ])
            .args([
                "--admin",
                "127.0.0.1:0",
                "--readers",
                "127.0.0.1:0",
                "--log-format",
                "json",
                "--ask-every",
                "1s",
            ])
            .args(flags)
            .env("KUBECONFIG", user.kubeconfig())
            .env("RUST_BACKTRACE", "1")
            .env_remove("KUBERNETES_SERVICE_HOST")
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a second handle"))
            .stderr(file)
            .spawn()
            .expect("the program");
        Self { process, log }
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).expect("the operator's log")
    }

    /// Waits until it leads.
    pub(crate) fn await_lead(&self) {
        let what = format!("the lead, see {}", self.log.display());
        within(PATIENCE, &what, || {
            pause(PAUSE);
            self.leads().then_some(())
        });
    }

    /// Whether it leads, as far as it knows.
    pub(crate) fn leads(&self) -> bool {
        self.metric("tidemark_operator_leader", &[]) == 1
    }

    /// What one of its servers answers, by its name in the log.
    pub(crate) fn ask(&self, server: &str, path: &str) -> Option<(u16, String)> {
        let log = self.log();
        let (_, rest) = log.split_once(&format!("\"{server}\":\""))?;
        let address: SocketAddr = rest.split('"').next()?.parse().ok()?;
        request(address, "GET", path, "")
    }

    /// Its metrics as they are read.
    pub(crate) fn metrics(&self) -> String {
        self.ask("admin", "/metrics")
            .map(|(_, text)| text)
            .unwrap_or_default()
    }

    /// The sum of the series of a metric that have all these labels, each as `name="value"`.
    pub(crate) fn metric(&self, name: &str, labels: &[&str]) -> u64 {
        let text = self.metrics();
        let series = text.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        });
        series
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum()
    }

    /// How many calls it has made that change something other than its lease.
    pub(crate) fn writes(&self) -> u64 {
        let verbs = ["create", "patch", "delete"].map(|verb| format!("verb=\"{verb}\""));
        verbs
            .iter()
            .map(|verb| self.metric("tidemark_operator_api_calls_total", &[verb]))
            .sum()
    }

    /// Stops it in its tracks, or lets it go on.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("a running operator");
    }

    /// Ends it in order.
    pub(crate) fn terminate(mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        let what = format!("an orderly end, see {}", self.log.display());
        within(PATIENCE, &what, || {
            self.process.try_wait().expect("our own child")
        })
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The operator of the whole cluster that tests share while at least one of them needs it.
fn shared(kube: &'static Kube) -> Arc<Operator> {
    static SHARED: Mutex<Weak<Operator>> = Mutex::new(Weak::new());
    static USER: OnceLock<(String, User)> = OnceLock::new();
    let (namespace, user) = USER.get_or_init(|| {
        let namespace = kube.namespace("tidemark-system");
        let user = kube.operator(&namespace, &[]);
        (namespace, user)
    });
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        // No test waits for the wave of another one, nor for what another one has broken.
        let limits = ["--max-changing", "100%", "--max-failed", "1000"];
        let flags = [&["--worker-image", IMAGE], &limits[..]].concat();
        let operator = Arc::new(Operator::start(user, (namespace, "shared"), &flags));
        *shared = Arc::downgrade(&operator);
        operator
    })
}

/// The image of the workers where a test names no other.
const IMAGE: &str = "test.local/tidemark:1";

/// A namespace, and an operator that looks after it.
pub(crate) struct Stage<'k> {
    pub(crate) kube: &'k Kube,
    pub(crate) namespace: String,
    pub(crate) kubelet: Kubelet,
    /// A person, who is treated as everybody is.
    pub(crate) person: User,
    /// Who the operators are that a test starts: the chart's service account with the chart's rights.
    operator: Option<User>,
    /// The operator of tests that start none.
    shared: Option<Arc<Operator>>,
    /// Whether operators look at this namespace alone.
    alone: bool,
    runtime: tokio::runtime::Runtime,
    client: Client,
}

impl<'k> Stage<'k> {
    /// With the operator of the whole cluster that tests share.
    pub(crate) fn new(test: &str, runs: Runs) -> Stage<'static> {
        let kube = Kube::for_operators();
        let mut stage = Stage::on(kube, test, runs);
        stage.shared = Some(shared(kube));
        stage
    }

    /// For operators that look at this namespace alone.
    pub(crate) fn alone(test: &str, runs: Runs) -> Stage<'static> {
        let mut stage = Stage::on(Kube::shared(), test, runs);
        let only = format!("namespaces={{{}}}", stage.namespace);
        stage.operator = Some(stage.kube.operator(&stage.namespace, &["--set", &only]));
        stage.alone = true;
        stage
    }

    /// On a server of the test's own, for operators of the whole cluster.
    pub(crate) fn whole(kube: &'k Kube, test: &str, runs: Runs) -> Self {
        let mut stage = Self::on(kube, test, runs);
        stage.operator = Some(kube.operator(&stage.namespace, &[]));
        stage
    }

    fn on(kube: &'k Kube, test: &str, runs: Runs) -> Self {
        let namespace = kube.with_controllers().namespace(test);
        let kubelet = Kubelet::start(&kube.admin(), &namespace, runs);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let client = runtime.block_on(kube.admin().client());
        Self {
            kube,
            namespace,
            kubelet,
            person: kube.person(),
            operator: None,
            shared: None,
            alone: false,
            runtime,
            client,
        }
    }

    /// The operator that tests share.
    pub(crate) fn shared(&self) -> &Operator {
        self.shared
            .as_ref()
            .expect("a test that starts no operator")
    }

    /// Who the operators are that this test starts.
    pub(crate) fn operator(&self) -> &User {
        self.operator
            .as_ref()
            .expect("a test that starts operators")
    }

    /// Starts a replica of the operator, with further flags.
    pub(crate) fn operate(&self, replica: &str, flags: &[&str]) -> Operator {
        let own = ["--namespace", &self.namespace];
        let own: &[&str] = if self.alone { &own } else { &[] };
        let named = flags.contains(&"--worker-image");
        let image: &[&str] = if named {
            &[]
        } else {
            &["--worker-image", IMAGE]
        };
        Operator::start(
            self.operator(),
            (&self.namespace, replica),
            &[own, image, flags].concat(),
        )
    }

    /// A pipeline of this namespace with further fields of its `spec`; nobody reads its topic.
    pub(crate) fn pipeline(&self, name: &str, extra: &Value) -> Value {
        let namespace = &self.namespace;
        let mut object = json!({
            "apiVersion": "tidemark.dev/v1alpha1",
            "kind": "IngestionPipeline",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "source": {"format": "DebeziumJson", "kafka": {"bootstrapServers": "kafka:9092", "topics": [name]}},
                "sink": {"table": format!("{namespace}.{name}"), "catalog": {"type": "Rest", "uri": "http://catalog:8181"}},
            },
        });
        merge(&mut object["spec"], extra);
        object
    }

    /// A policy for the pipelines of this namespace, and its name.
    pub(crate) fn policy(&self, name: &str, spec: &Value) -> (String, Value) {
        let name = format!("{}-{name}", self.namespace);
        let mut object = json!({
            "apiVersion": "tidemark.dev/v1alpha1",
            "kind": "IngestionPolicy",
            "metadata": {"name": name},
            "spec": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}},
        });
        merge(&mut object["spec"], spec);
        (name, object)
    }

    /// `kubectl apply` by the person.
    #[track_caller]
    pub(crate) fn apply(&self, object: &Value) {
        self.person
            .kubectl(&["apply", "-f", "-"], &object.to_string())
            .expect_success();
    }

    /// `kubectl` by the person in this namespace.
    #[track_caller]
    pub(crate) fn kubectl(&self, words: &[&str]) -> String {
        self.person
            .kubectl(&[words, &["-n", &self.namespace]].concat(), "")
            .expect_success()
    }

    /// `kubectl patch` of a pipeline's `spec` by the person.
    #[track_caller]
    pub(crate) fn edit(&self, name: &str, spec: &Value) {
        let patch = json!({"spec": spec}).to_string();
        self.kubectl(&["patch", "ipl", name, "--type=merge", "-p", &patch]);
    }

    /// An object as it is, by kind and name; `None` where it is not there or the server does not answer.
    pub(crate) fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let found = self.runtime.block_on(self.api(kind).get_opt(name)).ok()??;
        Some(serde_json::to_value(found).expect("an object is valid JSON"))
    }

    /// All objects of a kind, as the operator labels its own where `own`.
    pub(crate) fn list(&self, kind: &str, own: bool) -> Vec<Value> {
        let mut parameters = ListParams::default();
        if own {
            parameters = parameters.labels("app.kubernetes.io/managed-by=tidemark");
        }
        let listed = self
            .runtime
            .block_on(self.api(kind).list(&parameters))
            .expect("a list");
        let items = listed.items.into_iter();
        items
            .map(|item| serde_json::to_value(item).expect("an object is valid JSON"))
            .collect()
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        let (group, version, plural) = match kind {
            "IngestionPipeline" => ("tidemark.dev", "v1alpha1", "ingestionpipelines"),
            "IngestionPolicy" => ("tidemark.dev", "v1alpha1", "ingestionpolicies"),
            "ConfigMap" => ("", "v1", "configmaps"),
            "Pod" => ("", "v1", "pods"),
            "Deployment" => ("apps", "v1", "deployments"),
            "PodDisruptionBudget" => ("policy", "v1", "poddisruptionbudgets"),
            "NetworkPolicy" => ("networking.k8s.io", "v1", "networkpolicies"),
            "Event" => ("events.k8s.io", "v1", "events"),
            "Lease" => ("coordination.k8s.io", "v1", "leases"),
            other => panic!("no test asks for {other}"),
        };
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        if kind == "IngestionPolicy" {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
        }
    }

    /// Waits until `look` gives something.
    #[track_caller]
    pub(crate) fn await_some<T>(&self, what: &str, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        within(PATIENCE, &format!("{}: {what}", self.namespace), || {
            let found = look(self);
            if found.is_none() {
                pause(PAUSE);
            }
            found
        })
    }

    /// The condition of a pipeline: status, reason, message.
    pub(crate) fn condition(&self, name: &str, kind: &str) -> Option<[String; 3]> {
        condition_of(&self.get("IngestionPipeline", name)?, kind)
    }

    /// Waits until a condition of a pipeline, as it is now, has this status and reason; gives its message.
    #[track_caller]
    pub(crate) fn await_condition(
        &self,
        name: &str,
        kind: &str,
        (status, reason): (&str, &str),
    ) -> String {
        let mut last = None;
        let what = format!("{name}: {kind} {status} {reason}");
        let look = |stage: &Self| {
            let object = stage.get("IngestionPipeline", name)?;
            let current =
                object["status"]["observedGeneration"] == object["metadata"]["generation"];
            last = condition_of(&object, kind);
            let [is, why, message] = last.clone()?;
            (current && is == status && why == reason).then_some(message)
        };
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            self.await_some(&what, look)
        }));
        found.unwrap_or_else(|_| panic!("{what}: it is {last:?}"))
    }

    /// Waits until the workers of a pipeline run its present specification and commit.
    #[track_caller]
    pub(crate) fn await_ready(&self, name: &str) -> Value {
        self.await_condition(name, "Ready", ("True", "AsExpected"));
        // A status may still be about what was given before: the ConfigMap says what was given last.
        self.await_some(
            &format!("{name}: the hash of what runs in the status"),
            |stage| {
                let object = stage.get("IngestionPipeline", name)?;
                let hash = object["status"]["specHash"].as_str()?.to_owned();
                let uid = object["metadata"]["uid"].as_str()?;
                let accepted = stage.accepted(uid)?;
                (accepted["specHash"] == hash.as_str()).then_some(object)
            },
        )
    }

    /// What was accepted last of a pipeline, by uid, in whichever `ConfigMap` it is.
    pub(crate) fn accepted(&self, uid: &str) -> Option<Value> {
        let maps = self.list("ConfigMap", true);
        let text = maps
            .iter()
            .find_map(|map| map["data"][format!("{uid}.accepted")].as_str())?;
        serde_json::from_str(text).ok()
    }

    /// What the workers of a pipeline are given.
    pub(crate) fn given(&self, name: &str) -> Option<String> {
        let uid = self.get("IngestionPipeline", name)?["metadata"]["uid"]
            .as_str()?
            .to_owned();
        let maps = self.list("ConfigMap", true);
        let found = maps
            .iter()
            .find_map(|map| map["data"][format!("{uid}.yaml")].as_str());
        found.map(str::to_owned)
    }
}

/// A condition of an object: status, reason, message.
pub(crate) fn condition_of(object: &Value, kind: &str) -> Option<[String; 3]> {
    let conditions = object["status"]["conditions"].as_array()?;
    let found = conditions
        .iter()
        .find(|condition| condition["type"] == kind)?;
    Some(
        ["status", "reason", "message"]
            .map(|part| found[part].as_str().unwrap_or_default().to_owned()),
    )
}
