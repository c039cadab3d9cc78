//! A real Kubernetes API server on its etcd, and its users as they see it: by `kubectl` and by a client.
//!
//! All tests share one, each in namespaces of its own. Objects are not cleaned up: they end with the server, which ends with the run.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, OnceLock},
    time::Duration,
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tidemark::api::custom_resource_definitions;

use super::{
    server::{Server, Start, lay, own_name, start_somewhere},
    wait::within,
};

/// How long the API server may take until it answers, its own roles among what has to be there, on a busy machine.
const READY: Duration = Duration::from_mins(2);

/// An API server. Dropping one that a test has started ends it.
pub(crate) struct Kube {
    port: u16,
    etcd_port: u16,
    data: PathBuf,
    api: Mutex<Option<Server>>,
    controllers: OnceLock<Server>,
    _etcd: Server,
    /// Removes the data of a test's own server.
    _folder: Option<tempfile::TempDir>,
}

/// Somebody with a kubeconfig.
#[derive(Clone)]
pub(crate) struct User {
    kubeconfig: PathBuf,
}

/// What a command had to say.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) success: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// What was printed, of a command that has to succeed.
    #[track_caller]
    pub(crate) fn expect_success(self) -> String {
        assert!(self.success, "{}{}", self.out, self.err);
        self.out
    }

    /// The complaint of a command that has to fail.
    #[track_caller]
    pub(crate) fn expect_failure(self) -> String {
        assert!(!self.success, "succeeded: {}{}", self.out, self.err);
        self.err
    }
}

impl Kube {
    /// The server that all tests share, with our custom resources: started by the first one that asks, gone with the test process.
    /// Never break it, and select by namespace in whatever holds for the whole cluster.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Kube> = OnceLock::new();
        SHARED.get_or_init(|| {
            let kube = Self::start_in(None);
            kube.apply_definitions();
            kube
        })
    }

    /// A second server that tests share, on which policies are also enforced when a pipeline is applied. All tests of it use
    /// policies that select by namespace.
    pub(crate) fn with_admission() -> &'static Self {
        static SHARED: OnceLock<Kube> = OnceLock::new();
        SHARED.get_or_init(|| {
            let kube = Self::start_in(None);
            kube.apply_definitions();
            kube.apply_chart("default", &["templates/admission.yaml"], &[]);
            kube
        })
    }

    /// A server on which one operator looks after the pipelines of all tests, with the controllers of Deployments and the like.
    pub(crate) fn for_operators() -> &'static Self {
        static SHARED: OnceLock<Kube> = OnceLock::new();
        SHARED.get_or_init(|| {
            let kube = Self::start_in(None);
            kube.apply_definitions();
            kube.with_controllers();
            kube
        })
    }

    /// A server for one test, which may kill and restart it. It knows none of our custom resources yet.
    pub(crate) fn start_own() -> Self {
        Self::start_in(Some(tempfile::tempdir().expect("a folder for a server")))
    }

    fn start_in(folder: Option<tempfile::TempDir>) -> Self {
        // The folders of servers that live as long as the process are removed by `tests/servers/run`.
        let place = |name: &str| match &folder {
            Some(folder) => folder.path().join(name),
            None => tempfile::tempdir().expect("a folder for a server").keep(),
        };
        let (remove, store, data) = (folder.is_none(), place("etcd"), place("api"));
        let start = |name, data, settings: &[&str]| {
            let start = Start {
                name,
                data,
                port: 0,
                settings,
                remove,
            };
            start_somewhere(&start)
        };
        let (etcd_port, etcd) = start("etcd", &store, &[]);
        let (port, api) = start("kube-apiserver", &data, &[&format!("etcd={etcd_port}")]);
        let kube = Self {
            port,
            etcd_port,
            data,
            api: Mutex::new(Some(api)),
            controllers: OnceLock::new(),
            _etcd: etcd,
            _folder: folder,
        };
        kube.await_ready();
        let everything = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "person"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "person"}],
        });
        kube.apply(&everything.to_string());
        kube
    }

    fn await_ready(&self) {
        within(READY, "an API server that is ready", || {
            let said = self.admin().kubectl(&["get", "--raw", "/readyz"], "");
            said.success.then_some(())
        });
    }

    /// Applies our custom resource definitions, and returns when they can be used.
    pub(crate) fn apply_definitions(&self) {
        let definitions = custom_resource_definitions();
        self.apply(&yaml_stream(
            definitions.iter().map(|(_, text)| text.as_str()),
        ));
        self.await_definitions();
    }

    /// Waits until our custom resources are served.
    pub(crate) fn await_definitions(&self) {
        let names = definition_names();
        let mut words = vec!["wait", "--for=condition=Established", "--timeout=60s"];
        words.extend(names.iter().map(String::as_str));
        self.admin().kubectl(&words, "").expect_success();
    }

    /// Starts the controller manager, if it does not run yet: garbage collection, Deployments, the end of namespaces.
    pub(crate) fn with_controllers(&self) -> &Self {
        self.controllers.get_or_init(|| {
            let data = tempfile::tempdir().expect("a folder for a server").keep();
            let api = format!("api={}", self.data.display());
            let start = Start {
                name: "kube-controller-manager",
                data: &data,
                port: 0,
                settings: &[&api],
                remove: true,
            };
            start_somewhere(&start).1
        });
        self
    }

    /// Ends the API server as a crash would; what it stored is in etcd.
    pub(crate) fn kill(&self) {
        let server = self.api.lock().expect("no panic under this lock").take();
        server.expect("a running API server").kill();
    }

    /// Starts it again where it was, with further flags (`name=value`), and returns when it is ready.
    pub(crate) fn start(&self, flags: &[&str]) {
        let etcd = format!("etcd={}", self.etcd_port);
        let mut settings = vec![etcd.as_str()];
        let flags: Vec<String> = flags.iter().map(|flag| format!("--{flag}")).collect();
        settings.extend(flags.iter().map(String::as_str));
        let start = Start {
            name: "kube-apiserver",
            data: &self.data,
            port: self.port,
            settings: &settings,
            remove: false,
        };
        *self.api.lock().expect("no panic under this lock") =
            Some(Server::start(&start).expect("an API server that starts again"));
        self.await_ready();
    }

    /// Who may do everything and is never queued: for setting up.
    pub(crate) fn admin(&self) -> User {
        self.user("admin")
    }

    /// Who may do everything and is treated as everybody is.
    pub(crate) fn person(&self) -> User {
        self.user("person")
    }

    fn user(&self, name: &str) -> User {
        User {
            kubeconfig: self.data.join(format!("{name}.kubeconfig")),
        }
    }

    /// A service account with these cluster-wide rights (the `rules` of a `ClusterRole`) and no others, in a namespace of the test.
    pub(crate) fn account(&self, namespace: &str, name: &str, rules: &Value) -> User {
        let whole = format!("{namespace}-{name}");
        let objects = json!([
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": whole}, "rules": rules},
            {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": whole},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": whole},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
            },
        ]);
        self.apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string());
        self.log_in(namespace, name)
    }

    /// What a pod of a service account holds, as a kubeconfig.
    pub(crate) fn log_in(&self, namespace: &str, account: &str) -> User {
        let words = [
            "create",
            "token",
            account,
            "-n",
            namespace,
            "--duration=12h",
        ];
        let token = self.admin().kubectl(&words, "").expect_success();
        let admin =
            std::fs::read_to_string(self.admin().kubeconfig).expect("the admin's kubeconfig");
        let mut kubeconfig: Value = serde_json::from_str(&admin).expect("JSON");
        kubeconfig["users"][0]["user"]["token"] = token.trim().into();
        let user = self.user(&format!("{namespace}.{account}"));
        std::fs::write(&user.kubeconfig, kubeconfig.to_string()).expect("a kubeconfig");
        user
    }

    /// The operator's service account in a namespace of the test, with exactly the rights that the chart gives it, and what else
    /// the chart is told (`--set`, a value).
    pub(crate) fn operator(&self, namespace: &str, more: &[&str]) -> User {
        self.apply_chart(
            namespace,
            &["templates/rights.yaml", "templates/serviceaccount.yaml"],
            more,
        );
        self.log_in(namespace, "tidemark")
    }

    /// Applies some of the templates of the operator's chart, as it is in the repository.
    pub(crate) fn apply_chart(&self, namespace: &str, templates: &[&str], more: &[&str]) {
        let chart = chart("tidemark");
        let mut words = vec!["template", "tidemark", &chart, "--namespace", namespace];
        words.extend(
            templates
                .iter()
                .flat_map(|template| ["--show-only", template]),
        );
        words.extend(more);
        let objects = self.admin().helm(&words, "").expect_success();
        self.apply(&objects);
    }

    /// A namespace for a test, which exists when this returns.
    pub(crate) fn namespace(&self, test: &str) -> String {
        let name = own_name(test).replace('_', "-");
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.apply(&object.to_string());
        name
    }

    /// Applies objects server-side as the admin; they have to be accepted.
    #[track_caller]
    pub(crate) fn apply(&self, objects: &str) -> String {
        let words = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        self.admin().kubectl(&words, objects).expect_success()
    }
}

impl User {
    /// The file by which programs act as this user.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Runs `kubectl` as a person would.
    pub(crate) fn kubectl(&self, words: &[&str], input: &str) -> Said {
        self.run("kubectl", words, input)
    }

    /// Runs `helm` as a person would.
    pub(crate) fn helm(&self, words: &[&str], input: &str) -> Said {
        self.run("helm", words, input)
    }

    fn run(&self, program: &str, words: &[&str], input: &str) -> Said {
        static FOLDER: OnceLock<PathBuf> = OnceLock::new();
        let home = self
            .kubeconfig
            .parent()
            .expect("a kubeconfig lies in a folder")
            .join("home");
        let folder = FOLDER.get_or_init(|| lay("kubernetes"));
        let mut child = Command::new(folder.join(program))
            .args(words)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBECACHEDIR", home.join("kube"))
            .env("KUBERC", "off")
            .env("HELM_CACHE_HOME", home.join("helm/cache"))
            .env("HELM_CONFIG_HOME", home.join("helm/config"))
            .env("HELM_DATA_HOME", home.join("helm/data"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program that was laid");
        let mut pipe = child.stdin.take().expect("a pipe");
        let input = input.to_owned();
        // One that fails early reads nothing.
        let writer = std::thread::spawn(move || drop(pipe.write_all(input.as_bytes())));
        let output = child.wait_with_output().expect("our own child");
        writer.join().expect("a write that may fail but not panic");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        Said {
            success: output.status.success(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// A client of this user; it lives no longer than the runtime in which it is made.
    pub(crate) async fn client(&self) -> Client {
        Client::try_from(self.config().await).expect("a client")
    }

    /// What such a client is made from.
    pub(crate) async fn config(&self) -> Config {
        // Two crypto providers are linked, so one has to be named; the second call finds the first one's choice.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).expect("a kubeconfig");
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .expect("a configuration")
    }
}

/// Where a chart of ours lies.
pub(crate) fn chart(name: &str) -> String {
    format!("{}/charts/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Objects as one YAML stream.
pub(crate) fn yaml_stream<'a>(objects: impl Iterator<Item = &'a str>) -> String {
    let objects: Vec<&str> = objects.collect();
    format!("---\n{}\n", objects.join("\n---\n"))
}

/// Our definitions as `kubectl` names them.
pub(crate) fn definition_names() -> Vec<String> {
    let definitions = custom_resource_definitions();
    let names = definitions
        .iter()
        .map(|(file, _)| file.trim_end_matches(".yaml"));
    names.map(|name| format!("crd/{name}")).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Api, ListParams, PostParams};

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn an_account_has_the_rights_of_its_role_and_no_others() {
        let kube = Kube::shared();
        let namespace = kube.namespace("an_account_has");
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
        let client = kube.account(&namespace, "reader", &rules).client().await;
        let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
        maps.list(&ListParams::default()).await.unwrap();
        let refused = maps
            .create(&PostParams::default(), &ConfigMap::default())
            .await;
        assert!(
            refused
                .unwrap_err()
                .to_string()
                .contains("cannot create resource")
        );
    }

    #[test]
    fn controllers_remove_what_belongs_to_a_deleted_object() {
        let kube = Kube::start_own();
        let namespace = kube.with_controllers().namespace("controllers_remove");
        let map = |name: &str, owners: Value| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": namespace, "ownerReferences": owners},
            })
        };
        kube.apply(&map("owner", json!([])).to_string());
        let uid = [
            "get",
            "cm",
            "owner",
            "-n",
            &namespace,
            "-o",
            "jsonpath={.metadata.uid}",
        ];
        let uid = kube.admin().kubectl(&uid, "").expect_success();
        let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]);
        kube.apply(&map("child", owner).to_string());
        kube.admin()
            .kubectl(&["delete", "cm", "owner", "-n", &namespace], "")
            .expect_success();
        let gone = [
            "wait",
            "--for=delete",
            "cm/child",
            "-n",
            &namespace,
            "--timeout=60s",
        ];
        kube.admin().kubectl(&gone, "").expect_success();
    }

    #[test]
    fn a_server_keeps_its_objects_over_a_kill() {
        let kube = Kube::start_own();
        let namespace = kube.namespace("a_server_keeps");
        kube.kill();
        let away = kube
            .person()
            .kubectl(&["get", "ns", &namespace], "")
            .expect_failure();
        assert!(away.contains("refused"), "{away}");
        kube.start(&["max-requests-inflight=50"]);
        kube.person()
            .kubectl(&["get", "ns", &namespace], "")
            .expect_success();
    }
}
