//! The Deployment of a set of workers.
//!
//! No token of the API server, the restricted profile of pod security, a read-only root. Secrets are mounted by reference. The
//! template names nothing of a specification but the secrets: what it holds is a reason to restart.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{Child, Kind, Settings, Workers, labels, metadata, selector};
use crate::{
    api::{
        effective::Resources,
        quantity::{bytes, cpu},
        worker::GRACE,
    },
    process::{http::ADMIN_PORT, secret::FOLDER_VARIABLE},
};

/// Where the pod finds its effective specifications.
const PIPELINES: &str = "/etc/tidemark/pipelines";

/// Where it finds the secrets, a folder each.
const SECRETS: &str = "/etc/tidemark/secrets";

/// Granted beyond the worker's own time to commit: its last moment, and the admin server's closing.
const BEYOND_GRACE_S: u64 = 10;

/// A user that is nobody, whatever the image says.
const USER: u32 = 65532;

pub(super) fn deployment(workers: &Workers, settings: &Settings) -> Child {
    let template = &workers.template;
    let mut pod_labels: BTreeMap<&str, String> = labels(workers);
    let further = template.labels.iter();
    pod_labels.extend(further.map(|(key, value)| (key.as_str(), value.clone())));
    let object = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(workers),
        "spec": {
            "replicas": workers.replicas,
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": selector(&workers.key.name)},
            // No surge: a second copy of a worker would only be fenced by the table.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": {
                "metadata": {"labels": pod_labels, "annotations": template.annotations},
                "spec": pod(workers, settings),
            },
        },
    });
    Child::new(Kind::Deployment, &workers.key, object)
}

fn pod(workers: &Workers, settings: &Settings) -> Value {
    let template = &workers.template;
    let mut spec = json!({
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": GRACE.as_secs() + BEYOND_GRACE_S,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container(workers, settings)],
        "volumes": volumes(workers),
    });
    let fields = spec.as_object_mut().expect("an object was just written");
    let node_labels = Some(&template.node_selector).filter(|labels| !labels.is_empty());
    let tolerations = Some(&template.tolerations).filter(|tolerations| !tolerations.is_empty());
    put(
        fields,
        "serviceAccountName",
        workers.service_account.as_ref(),
    );
    put(fields, "nodeSelector", node_labels);
    put(fields, "tolerations", tolerations);
    put(
        fields,
        "priorityClassName",
        template.priority_class_name.as_ref(),
    );
    // Of one worker as well: else the first would restart for the second.
    let spread = json!([{
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selector(&workers.key.name)},
    }]);
    put(fields, "topologySpreadConstraints", Some(spread));
    spec
}

fn put(fields: &mut Map<String, Value>, name: &str, value: Option<impl serde::Serialize>) {
    if let Some(value) = value {
        let value = serde_json::to_value(value).expect("plain structs are valid JSON");
        fields.insert(name.to_owned(), value);
    }
}

fn container(workers: &Workers, settings: &Settings) -> Value {
    let probe = |path: &str, period: u32, failures: u32| {
        json!({
            "httpGet": {"path": path, "port": "admin"},
            "periodSeconds": period,
            "timeoutSeconds": 5,
            "failureThreshold": failures,
        })
    };
    let mut mounts = vec![
        json!({"name": "pipelines", "mountPath": PIPELINES, "readOnly": true}),
        json!({"name": "tmp", "mountPath": "/tmp"}),
    ];
    mounts.extend(secrets(workers).keys().map(|name| {
        let path = format!("{SECRETS}/{name}");
        json!({"name": volume_name(name), "mountPath": path, "readOnly": true})
    }));
    json!({
        "name": "worker",
        "image": settings.image,
        "args": [
            "worker", "--pipelines", PIPELINES, "--admin", format!("0.0.0.0:{ADMIN_PORT}"),
            "--log-format", "json", "--installation", settings.installation,
        ],
        "env": [
            {"name": "TIDEMARK_WORKER_ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": FOLDER_VARIABLE, "value": SECRETS},
        ],
        "ports": [{"name": "admin", "containerPort": ADMIN_PORT, "protocol": "TCP"}],
        // Alive while every loop turns, whatever it waits for; the worker itself allows five minutes before it says no.
        "livenessProbe": probe("/healthz", 10, 3),
        "readinessProbe": probe("/readyz", 5, 1),
        "resources": resources(&workers.template.resources),
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    })
}

fn resources(of: &Resources) -> Value {
    let mut limits = json!({"memory": bytes(of.memory_limit_bytes)});
    if let Some(millis) = of.cpu_limit_millis {
        limits["cpu"] = cpu(millis).into();
    }
    let requests =
        json!({"cpu": cpu(of.cpu_request_millis), "memory": bytes(of.memory_request_bytes)});
    json!({"requests": requests, "limits": limits})
}

/// The keys of each secret that a pipeline refers to.
fn secrets(workers: &Workers) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut secrets = BTreeMap::<&str, BTreeSet<&str>>::new();
    for secret in workers
        .members
        .values()
        .flat_map(|member| &member.entry.secrets)
    {
        secrets.entry(&secret.name).or_default().insert(&secret.key);
    }
    secrets
}

/// A volume's name is a label of DNS, a secret's need not be.
fn volume_name(secret: &str) -> String {
    format!("secret-{}", &super::hex(secret.as_bytes())[..8])
}

fn volumes(workers: &Workers) -> Vec<Value> {
    let mut volumes = vec![
        json!({"name": "pipelines", "configMap": {"name": workers.key.name}}),
        json!({"name": "tmp", "emptyDir": {}}),
    ];
    volumes.extend(secrets(workers).into_iter().map(|(name, keys)| {
        let items: Vec<Value> = keys
            .iter()
            .map(|key| json!({"key": key, "path": key}))
            .collect();
        // Optional: the pod starts without it, and the worker names the pipeline that misses it, finds it when it comes, and
        // runs the others meanwhile.
        json!({"name": volume_name(name), "secret": {"secretName": name, "optional": true, "items": items}})
    }));
    volumes
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_object, settings, workers};
    use super::*;

    #[test]
    fn a_plain_pipeline_has_one_worker_without_rights() {
        let child = deployment(&workers("{}"), &settings());
        let expected = r"
apiVersion: apps/v1
kind: Deployment
metadata:
  name: orders-tidemark
  namespace: shop
  labels: &labels
    app.kubernetes.io/name: tidemark
    app.kubernetes.io/component: worker
    app.kubernetes.io/instance: orders-tidemark
    app.kubernetes.io/managed-by: tidemark
    tidemark.dev/placement: Dedicated
    tidemark.dev/workers: orders-tidemark
  annotations: {tidemark.dev/pipeline: orders}
  ownerReferences:
    - {apiVersion: tidemark.dev/v1alpha1, kind: IngestionPipeline, name: orders, uid: uid-1}
spec:
  replicas: 1
  revisionHistoryLimit: 2
  selector:
    matchLabels: &own {app.kubernetes.io/managed-by: tidemark, tidemark.dev/workers: orders-tidemark}
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}
  template:
    metadata: {labels: *labels, annotations: {}}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: 35
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        fsGroup: 65532
        seccompProfile: {type: RuntimeDefault}
      containers:
        - name: worker
          image: registry.example/tidemark:1
          args: [worker, --pipelines, /etc/tidemark/pipelines, --admin, '0.0.0.0:8080', --log-format, json, --installation, prod]
          env:
            - {name: TIDEMARK_WORKER_ID, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
            - {name: TIDEMARK_SECRETS, value: /etc/tidemark/secrets}
          ports: [{name: admin, containerPort: 8080, protocol: TCP}]
          livenessProbe: {httpGet: {path: /healthz, port: admin}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 3}
          readinessProbe: {httpGet: {path: /readyz, port: admin}, periodSeconds: 5, timeoutSeconds: 5, failureThreshold: 1}
          resources:
            requests: {cpu: 250m, memory: 384Mi}
            limits: {memory: 384Mi}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            - {name: pipelines, mountPath: /etc/tidemark/pipelines, readOnly: true}
            - {name: tmp, mountPath: /tmp}
            - {name: secret-652f5501, mountPath: /etc/tidemark/secrets/catalog, readOnly: true}
      topologySpreadConstraints:
        - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: *own}}
      volumes:
        - {name: pipelines, configMap: {name: orders-tidemark}}
        - {name: tmp, emptyDir: {}}
        - name: secret-652f5501
          secret:
            secretName: catalog
            optional: true
            items: [{key: ca, path: ca}, {key: credential, path: credential}]
";
        assert_object(&child, expected);
    }

    /// An autoscaler that adds a worker must not stop the one that runs.
    #[test]
    fn number_of_workers_changes_no_pod() {
        let template = |section: &str| {
            deployment(&workers(section), &settings()).object["spec"]["template"].clone()
        };
        assert_eq!(template("{replicas: 1}"), template("{replicas: 3}"));
    }

    #[test]
    fn what_is_said_about_the_pods_is_in_them() {
        let pods = "{replicas: 2, serviceAccountName: lake, nodeSelector: {disk: fast}, priorityClassName: high, \
                    tolerations: [{key: spot, operator: Exists, effect: NoSchedule}], \
                    resources: {requests: {cpu: '1'}, limits: {cpu: '2', memory: 1Gi}}, \
                    podLabels: {azure.workload.identity/use: 'true'}, podAnnotations: {note: x}}";
        let object = deployment(&workers(pods), &settings()).object;
        let template = &object["spec"]["template"];
        let spec = &template["spec"];
        let chosen = json!([
            spec["serviceAccountName"],
            spec["nodeSelector"],
            spec["tolerations"],
            spec["priorityClassName"],
            spec["containers"][0]["resources"],
            template["metadata"]["annotations"],
            template["metadata"]["labels"]["azure.workload.identity/use"],
            template["metadata"]["labels"]["tidemark.dev/workers"],
            spec["topologySpreadConstraints"][0]["topologyKey"],
        ]);
        let expected = json!([
            "lake", {"disk": "fast"}, [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}], "high",
            {"requests": {"cpu": "1", "memory": "384Mi"}, "limits": {"cpu": "2", "memory": "1Gi"}}, {"note": "x"},
            "true", "orders-tidemark",
            "kubernetes.io/hostname",
        ]);
        assert_eq!(chosen, expected);
    }
}
