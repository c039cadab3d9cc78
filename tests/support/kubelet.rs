//! The node of a cluster that has none: it gives the workers' pods an address each, mounts what they mount, and makes them ready.
//!
//! It sees pods, `ConfigMap`s and Secrets as a kubelet does, by watches. At a pod's address answers the real worker, started as the
//! pod's own specification says; or, where a test needs many pods or wants to say how they are, a server that answers `/progress`
//! of what the pod has mounted.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    net::{IpAddr, Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{Json, Router, routing::get};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt, watcher, watcher::Event},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;
use tidemark::api::{
    EffectiveSpec, Reason,
    worker::{ErrorProgress, PipelineProgress, Progress, RunState},
};
use tokio_util::sync::CancellationToken;

use super::{catalog::request, kube::User, wait::within};

/// The port of every worker's admin server.
const ADMIN: u16 = 8080;

/// What the operator keeps beside the specifications, for itself.
const ACCEPTED: &str = ".accepted";

/// How long a worker may take to start, and to end, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// What answers at the address of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runs {
    /// The real worker.
    Worker,
    /// A server that says of each mounted specification that it is in force and runs, unless a test says otherwise.
    Answers,
}

/// A node. Dropping it ends all that runs on it.
pub(crate) struct Kubelet {
    node: Arc<Node>,
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

type Judge = Box<dyn Fn(&EffectiveSpec) -> bool + Send>;

struct Node {
    /// Where its pods are.
    namespace: String,
    runs: Runs,
    folder: tempfile::TempDir,
    state: Mutex<State>,
}

/// Namespace and name.
type Name = (String, String);

#[derive(Default)]
struct State {
    /// What each `ConfigMap` holds.
    maps: BTreeMap<Name, BTreeMap<String, String>>,
    /// What pods still have mounted while mounts are held.
    held: Option<BTreeMap<Name, BTreeMap<String, String>>>,
    pods: HashMap<Name, Running>,
    /// Which specifications do not run.
    broken: Option<Judge>,
}

struct Running {
    /// Its `ConfigMap`.
    workers: Name,
    address: IpAddr,
    stop: CancellationToken,
    process: Option<Child>,
    folder: PathBuf,
}

impl Kubelet {
    /// Runs the workers' pods of a namespace.
    pub(crate) fn start(admin: &User, namespace: &str, runs: Runs) -> Self {
        let node = Arc::new(Node {
            namespace: namespace.to_owned(),
            runs,
            folder: tempfile::tempdir().expect("a folder for a node"),
            state: Mutex::default(),
        });
        let stop = CancellationToken::new();
        let (own, token, admin) = (Arc::clone(&node), stop.clone(), admin.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async move {
                let client = admin.client().await;
                let kubelet =
                    async { tokio::join!(follow_pods(&client, &own), follow_maps(&client, &own)) };
                tokio::select! {
                    () = token.cancelled() => {}
                    _ = kubelet => {}
                }
            });
        });
        Self {
            node,
            stop,
            thread: Some(thread),
        }
    }

    /// From now on pods with these specifications do not read and commit; the others do.
    pub(crate) fn break_those(&self, broken: impl Fn(&EffectiveSpec) -> bool + Send + 'static) {
        self.node.lock().broken = Some(Box::new(broken));
    }

    /// From now on all pods read and commit.
    pub(crate) fn mend(&self) {
        self.node.lock().broken = None;
    }

    /// From now on pods do not see what changes in what they have mounted: a kubelet takes its time.
    pub(crate) fn hold_mounts(&self) {
        let mut state = self.node.lock();
        state.held = Some(state.maps.clone());
    }

    /// All pods see what they have mounted as it is.
    pub(crate) fn release_mounts(&self) {
        self.node.lock().held = None;
    }

    /// The pods there are, by name.
    pub(crate) fn pods(&self) -> BTreeSet<String> {
        let state = self.node.lock();
        state.pods.keys().map(|(_, name)| name.clone()).collect()
    }

    /// What a pod's admin server answers.
    pub(crate) fn ask(&self, pod: &str, path: &str) -> Option<(u16, String)> {
        let address = {
            let state = self.node.lock();
            state.pods.get(&self.node.name(pod))?.address
        };
        request((address, ADMIN).into(), "GET", path, "")
    }

    /// What all workers that have run here have said.
    pub(crate) fn logs(&self) -> String {
        let files = fs::read_dir(self.node.folder.path()).expect("the node's folder");
        let logs = files
            .flatten()
            .filter(|file| file.path().extension().is_some_and(|it| it == "log"));
        logs.map(|file| fs::read_to_string(file.path()).expect("a log"))
            .collect()
    }

    /// Sends a signal to the worker of a pod.
    pub(crate) fn signal(&self, pod: &str, signal: Signal) {
        let state = self.node.lock();
        let running = &state.pods[&self.node.name(pod)];
        send(running.process.as_ref().expect("a real worker"), signal);
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let pods = std::mem::take(&mut self.node.lock().pods);
        for (_, mut running) in pods {
            if let Some(process) = &mut running.process {
                let _ = process.kill();
                let _ = process.wait();
            }
        }
    }
}

fn send(process: &Child, signal: Signal) {
    let pid = i32::try_from(process.id()).expect("a process id");
    // One that has ended by itself hears nothing.
    let _ = kill(Pid::from_raw(pid), signal);
}

fn api<K>(client: &Client, node: &Node) -> Api<K>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), &node.namespace)
}

fn of_workers() -> watcher::Config {
    watcher::Config::default().labels("app.kubernetes.io/component=worker")
}

fn name_of(object: &impl ResourceExt) -> Name {
    (object.namespace().unwrap_or_default(), object.name_any())
}

async fn follow_maps(client: &Client, node: &Arc<Node>) {
    let events = watcher(api::<ConfigMap>(client, node), of_workers()).default_backoff();
    let mut events = std::pin::pin!(events);
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(map)) => {
                listed.insert(name_of(&map));
                node.mount(&map);
            }
            Ok(Event::Apply(map)) => node.mount(&map),
            Ok(Event::InitDone) => node.lock().maps.retain(|name, _| listed.contains(name)),
            Ok(Event::Delete(map)) => drop(node.lock().maps.remove(&name_of(&map))),
            Err(_) => {}
        }
    }
}

async fn follow_pods(client: &Client, node: &Arc<Node>) {
    let events = watcher(api::<Pod>(client, node), of_workers()).default_backoff();
    let mut events = std::pin::pin!(events);
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(pod)) => {
                listed.insert(name_of(&pod));
                node.run(client, pod);
            }
            Ok(Event::Apply(pod)) => node.run(client, pod),
            Ok(Event::InitDone) => {
                let gone: Vec<Name> = node
                    .lock()
                    .pods
                    .keys()
                    .filter(|name| !listed.contains(name))
                    .cloned()
                    .collect();
                for name in &gone {
                    node.end(name);
                }
            }
            Ok(Event::Delete(pod)) => node.end(&name_of(&pod)),
            Err(_) => {}
        }
    }
}

impl Node {
    fn name(&self, pod: &str) -> Name {
        (self.namespace.clone(), pod.to_owned())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mount(&self, map: &ConfigMap) {
        let (name, data) = (name_of(map), map.data.clone().unwrap_or_default());
        let mut state = self.lock();
        let mounted = state
            .pods
            .values()
            .filter(|pod| pod.workers == name && pod.process.is_some());
        for pod in mounted {
            lay(&pod.folder, &data);
        }
        state.maps.insert(name, data);
    }

    /// Starts a pod that is new.
    fn run(self: &Arc<Self>, client: &Client, pod: Pod) {
        let name = name_of(&pod);
        let leaving = pod.metadata.deletion_timestamp.is_some();
        if leaving || self.lock().pods.contains_key(&name) {
            return;
        }
        let (listener, address) = own_address();
        let stop = CancellationToken::new();
        let running = Running {
            workers: (name.0.clone(), pod.labels()["tidemark.dev/workers"].clone()),
            address,
            stop: stop.clone(),
            process: None,
            folder: self.folder.path().join(&name.1).join("pipelines"),
        };
        self.lock().pods.insert(name.clone(), running);
        let (node, client) = (Arc::clone(self), client.clone());
        tokio::spawn(async move {
            let pods: Api<Pod> = Api::namespaced(client.clone(), &name.0);
            match node.runs {
                Runs::Answers => node.answer(listener, &name, stop.clone()),
                Runs::Worker => {
                    drop(listener);
                    node.start_worker(&client, &pod).await;
                    tell(&pods, &name.1, address, false, &stop).await;
                    await_ready(address, &stop).await;
                }
            }
            tell(&pods, &name.1, address, true, &stop).await;
        });
    }

    fn answer(self: &Arc<Self>, listener: TcpListener, name: &Name, stop: CancellationToken) {
        listener.set_nonblocking(true).expect("a listener");
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
        let (node, name) = (Arc::clone(self), name.clone());
        let progress = move || async move { Json(node.progress(&name)) };
        let routes = Router::new().route("/progress", get(progress));
        tokio::spawn(async move {
            let serving = axum::serve(listener, routes);
            let _ = serving.with_graceful_shutdown(stop.cancelled_owned()).await;
        });
    }

    /// What a worker with these mounts would say of itself.
    fn progress(&self, name: &Name) -> Progress {
        let state = self.lock();
        let maps = state.held.as_ref().unwrap_or(&state.maps);
        let data = state.pods.get(name).and_then(|pod| maps.get(&pod.workers));
        let files = data
            .into_iter()
            .flatten()
            .filter(|(file, _)| !file.ends_with(ACCEPTED));
        let specs = files.filter_map(|(_, text)| EffectiveSpec::from_yaml(text).ok());
        let pipelines = specs.map(|spec| {
            let broken = state.broken.as_ref().is_some_and(|broken| broken(&spec));
            let error = || ErrorProgress::new(Reason::BrokerUnreachable, "no broker".to_owned(), 0);
            let progress = PipelineProgress {
                pipeline: spec.id(),
                table: spec.sink.table.to_string(),
                state: if broken {
                    RunState::Waiting
                } else {
                    RunState::Running
                },
                spec_hash: spec.hash(),
                last_error: broken.then(error),
                ..PipelineProgress::default()
            };
            (spec.uid, progress)
        });
        Progress {
            worker: name.1.clone(),
            pipelines: pipelines.collect(),
            ..Progress::default()
        }
    }

    /// Starts the program as the pod says, with its paths on this node.
    async fn start_worker(&self, client: &Client, pod: &Pod) {
        let name = name_of(pod);
        let root = self.folder.path().join(&name.1);
        let (pipelines, secrets) = (root.join("pipelines"), root.join("secrets"));
        fs::create_dir_all(&pipelines).expect("a folder for mounts");
        let spec = pod.spec.as_ref().expect("a pod has a specification");
        mount_secrets(client, &name.0, spec, &secrets).await;
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &name.0);
        let map = maps
            .get(&pod.labels()["tidemark.dev/workers"])
            .await
            .expect("what the pod mounts");
        let container = &spec.containers[0];
        let mut state = self.lock();
        // Ended before it began.
        let Some(running) = state.pods.get_mut(&name) else {
            return;
        };
        let here = |text: &str| {
            let text = text.replace("/etc/tidemark/pipelines", &pipelines.display().to_string());
            let text = text.replace("/etc/tidemark/secrets", &secrets.display().to_string());
            text.replace("0.0.0.0", &running.address.to_string())
        };
        lay(&pipelines, &map.data.unwrap_or_default());
        let log = fs::File::create(self.folder.path().join(format!("{}.log", name.1)))
            .expect("a log file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidemark"));
        command
            .args(container.args.iter().flatten().map(|text| here(text)))
            .env_clear()
            .env("RUST_BACKTRACE", "1")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log);
        for variable in container.env.iter().flatten() {
            // The only value that is not written there is the pod's name.
            let value = variable.value.clone().unwrap_or_else(|| name.1.clone());
            command.env(&variable.name, here(&value));
        }
        running.process = Some(command.spawn().expect("the program"));
    }

    /// Ends a pod as a kubelet does: in order.
    fn end(&self, name: &Name) {
        let Some(mut running) = self.lock().pods.remove(name) else {
            return;
        };
        running.stop.cancel();
        if let Some(mut process) = running.process.take() {
            send(&process, Signal::SIGTERM);
            // Its listener goes on watching meanwhile.
            std::thread::spawn(move || {
                within(PATIENCE, "an orderly end of a worker", || {
                    process.try_wait().expect("our own child")
                })
            });
        }
    }
}

/// An address that nobody listens at; those of other test runs are found taken.
fn own_address() -> (TcpListener, IpAddr) {
    within(Duration::from_secs(10), "an address of its own", || {
        let part = || fastrand::u8(1..=254);
        let address = IpAddr::V4(Ipv4Addr::new(127, part(), part(), part()));
        let listener = TcpListener::bind((address, ADMIN)).ok()?;
        Some((listener, address))
    })
}

/// Makes a folder hold these files, each whole at once.
fn lay(folder: &Path, files: &BTreeMap<String, String>) {
    for (name, text) in files {
        let new = folder.join(format!(".{name}.new"));
        fs::write(&new, text).expect("a file of a mount");
        fs::rename(&new, folder.join(name)).expect("a file in its place");
    }
    for file in fs::read_dir(folder).expect("a mount").flatten() {
        if !files.contains_key(&*file.file_name().to_string_lossy()) {
            let _ = fs::remove_file(file.path());
        }
    }
}

async fn mount_secrets(
    client: &Client,
    namespace: &str,
    spec: &k8s_openapi::api::core::v1::PodSpec,
    folder: &Path,
) {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    for volume in spec.volumes.iter().flatten() {
        let Some(source) = &volume.secret else {
            continue;
        };
        let name = source.secret_name.as_deref().expect("the name of a secret");
        let Some(secret) = secrets
            .get_opt(name)
            .await
            .expect("an answer about a secret")
        else {
            continue;
        };
        let folder = folder.join(name);
        fs::create_dir_all(&folder).expect("a folder for a secret");
        for item in source.items.iter().flatten() {
            let data = secret.data.as_ref().and_then(|data| data.get(&item.key));
            if let Some(data) = data {
                fs::write(folder.join(&item.path), &data.0).expect("a secret");
            }
        }
    }
}

/// Says how a pod is, until it has been heard or the pod has ended.
async fn tell(pods: &Api<Pod>, name: &str, address: IpAddr, ready: bool, stop: &CancellationToken) {
    let answer = if ready { "True" } else { "False" };
    let status = json!({"status": {
        "phase": "Running",
        "podIP": address.to_string(),
        "podIPs": [{"ip": address.to_string()}],
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "ContainersReady", "status": answer},
            {"type": "Ready", "status": answer},
        ],
    }});
    let mut pause = tokio::time::interval(Duration::from_millis(200));
    while !stop.is_cancelled() {
        pause.tick().await;
        let told = pods
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
            .await;
        match told {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if status.code == 404 => return,
            Err(_) => {}
        }
    }
}

/// The readiness probe.
async fn await_ready(address: IpAddr, stop: &CancellationToken) {
    let mut pause = tokio::time::interval(Duration::from_millis(200));
    while !stop.is_cancelled() {
        pause.tick().await;
        let asked = tokio::task::spawn_blocking(move || {
            request((address, ADMIN).into(), "GET", "/readyz", "")
        });
        if matches!(asked.await, Ok(Some((200, _)))) {
            return;
        }
    }
}
