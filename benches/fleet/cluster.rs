//! The API server on its etcd, and who calls it: whoever sets up, and the operator's service account with the rights of the chart.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use kube::{
    Api, Client, Config,
    api::DynamicObject,
    config::{KubeConfigOptions, Kubeconfig},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::Value;
use tidemark::{api::custom_resource_definitions, operator::client::name_crypto_provider};

use crate::support::{cpu::Process, server::Server, wait};

/// The namespace of the operator.
pub(crate) const SYSTEM: &str = "tidemark-system";

/// What the chart calls the operator's account and lease.
pub(crate) const OPERATOR: &str = "tidemark";

/// How long an API server may take until it answers on a busy machine.
const READY: Duration = Duration::from_mins(3);

/// etcd and an API server with their data in one folder. Whoever drops it ends them.
pub(crate) struct Cluster {
    data: PathBuf,
    programs: PathBuf,
    // The API server ends before its store.
    api: Server,
    etcd: Server,
}

impl Cluster {
    /// Starts both in `folder`: empty, or with what an earlier run has left there.
    pub(crate) fn start(folder: &Path) -> Self {
        name_crypto_provider();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let lay = Command::new(root.join("tests/servers/lay"))
            .arg("kubernetes")
            .stderr(Stdio::inherit())
            .output()
            .expect("tests/servers/lay");
        assert!(lay.status.success(), "tests/servers/lay kubernetes");
        let programs = String::from_utf8(lay.stdout).expect("a path");
        let data = folder.join("api");
        let etcd = Server::start("etcd", &folder.join("etcd"), &[]);
        let port = etcd
            .address
            .rsplit_once(':')
            .map_or("", |(_, port)| port)
            .to_owned();
        // Where there is no network but loopback it finds no address of its own.
        let flags = [&format!("etcd={port}"), "--advertise-address=127.0.0.1"];
        let api = Server::start("kube-apiserver", &data, &flags);
        let cluster = Self {
            data,
            programs: programs.trim().into(),
            api,
            etcd,
        };
        wait::within(READY, "an API server that is ready", || {
            let (answered, _) = cluster.run("kubectl", &["get", "--raw", "/readyz"], "");
            answered.then_some(())
        });
        cluster
    }

    /// Makes our kinds known, and the operator's account with exactly the rights of the chart.
    pub(crate) fn prepare(&self) {
        let definitions = custom_resource_definitions();
        let texts: Vec<&str> = definitions.iter().map(|(_, text)| text.as_str()).collect();
        self.apply(&format!("---\n{}\n", texts.join("\n---\n")));
        let names = definitions
            .iter()
            .map(|(file, _)| format!("crd/{}", file.trim_end_matches(".yaml")));
        let mut words = vec![
            "wait".to_owned(),
            "--for=condition=Established".to_owned(),
            "--timeout=120s".to_owned(),
        ];
        words.extend(names);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.succeed("kubectl", &words, "");
        self.succeed("kubectl", &["create", "namespace", SYSTEM], "");
        let chart = format!("{}/charts/tidemark", env!("CARGO_MANIFEST_DIR"));
        let words = [
            "template",
            OPERATOR,
            &chart,
            "--namespace",
            SYSTEM,
            "--show-only",
            "templates/rights.yaml",
            "--show-only",
            "templates/serviceaccount.yaml",
        ];
        let objects = self.succeed("helm", &words, "");
        self.apply(&objects);
    }

    /// What a pod of the operator holds, as a kubeconfig.
    pub(crate) fn operator(&self) -> PathBuf {
        let words = ["create", "token", OPERATOR, "-n", SYSTEM, "--duration=12h"];
        let token = self.succeed("kubectl", &words, "");
        let admin = fs::read_to_string(self.kubeconfig()).expect("the admin's kubeconfig");
        let mut kubeconfig: Value = serde_json::from_str(&admin).expect("JSON");
        kubeconfig["users"][0]["user"]["token"] = token.trim().into();
        let path = self.data.join("operator.kubeconfig");
        fs::write(&path, kubeconfig.to_string()).expect("a kubeconfig");
        path
    }

    /// A client that may do everything and is never queued: for setting up, for what a kubelet does, and for looking on.
    pub(crate) async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig()).expect("a kubeconfig");
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options);
        Client::try_from(config.await.expect("a configuration")).expect("a client")
    }

    /// What the API server and etcd use.
    pub(crate) fn processes(&self) -> (Process, Process) {
        (self.api.process(), self.etcd.process())
    }

    fn kubeconfig(&self) -> PathBuf {
        self.data.join("admin.kubeconfig")
    }

    fn apply(&self, objects: &str) {
        let words = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        self.succeed("kubectl", &words, objects);
    }

    fn succeed(&self, program: &str, words: &[&str], input: &str) -> String {
        let (success, out) = self.run(program, words, input);
        assert!(success, "{program} {words:?}: {out}");
        out
    }

    fn run(&self, program: &str, words: &[&str], input: &str) -> (bool, String) {
        let home = self.data.join("home");
        let mut child = Command::new(self.programs.join(program))
            .args(words)
            .env("KUBECONFIG", self.kubeconfig())
            .env("KUBECACHEDIR", home.join("kube"))
            .env("KUBERC", "off")
            .env("HELM_CACHE_HOME", home.join("cache"))
            .env("HELM_CONFIG_HOME", home.join("config"))
            .env("HELM_DATA_HOME", home.join("data"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a program of the cluster");
        let mut pipe = child.stdin.take().expect("a pipe");
        let input = input.to_owned();
        // One that fails early reads nothing.
        let writer = std::thread::spawn(move || drop(pipe.write_all(input.as_bytes())));
        let output = child.wait_with_output().expect("our own child");
        writer.join().expect("a write that may fail but not panic");
        let success = output.status.success();
        let said = if success {
            output.stdout
        } else {
            output.stderr
        };
        (success, String::from_utf8_lossy(&said).into_owned())
    }
}

/// Objects of a kind, as whoever calls sees them.
pub(crate) fn objects(
    client: &Client,
    namespace: Option<&str>,
    (group, version, kind, plural): (&str, &str, &str, &str),
) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(group, version, kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Deployments, as [`objects`] takes them.
pub(crate) const DEPLOYMENT: (&str, &str, &str, &str) = ("apps", "v1", "Deployment", "deployments");

/// Pods, as [`objects`] takes them.
pub(crate) const POD: (&str, &str, &str, &str) = ("", "v1", "Pod", "pods");
