//! The network policy of a namespace: the workers' admin port is open to the operator and to whoever collects metrics, to nobody else.
//!
//! Outgoing traffic is left alone: brokers, catalogs and object stores are outside of what the operator can know.

use serde_json::{Value, json};

use super::{Child, Kind, MANAGER, Settings};
use crate::{operator::Key, process::http::ADMIN_PORT};

/// What the network policy of a namespace is called.
pub const NETWORK_POLICY: &str = "tidemark-workers";

/// The network policy of a namespace with workers.
#[must_use]
pub fn network_policy(namespace: &str, settings: &Settings) -> Child {
    let mut from = settings.scrape_namespaces.clone();
    from.insert(settings.operator_namespace.clone());
    let from: Vec<Value> = from
        .iter()
        .map(|name| json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}))
        .collect();
    let labels = json!({
        "app.kubernetes.io/name": "tidemark",
        "app.kubernetes.io/managed-by": MANAGER,
        "app.kubernetes.io/component": "worker",
    });
    let object = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": NETWORK_POLICY, "namespace": namespace, "labels": labels, "annotations": {}},
        "spec": {
            "podSelector": {"matchLabels": labels},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": from, "ports": [{"protocol": "TCP", "port": ADMIN_PORT}]}],
        },
    });
    Child::new(
        Kind::NetworkPolicy,
        &Key::new(namespace, NETWORK_POLICY),
        object,
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_object, settings};
    use super::*;

    #[test]
    fn admin_port_is_open_to_the_operator_and_to_the_collector() {
        let expected = "
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: tidemark-workers
  namespace: shop
  labels: {app.kubernetes.io/name: tidemark, app.kubernetes.io/managed-by: tidemark, app.kubernetes.io/component: worker}
  annotations: {}
spec:
  podSelector:
    matchLabels: {app.kubernetes.io/name: tidemark, app.kubernetes.io/managed-by: tidemark, app.kubernetes.io/component: worker}
  policyTypes: [Ingress]
  ingress:
    - from:
        - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}
        - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: tidemark-system}}
      ports: [{protocol: TCP, port: 8080}]
";
        assert_object(&network_policy("shop", &settings()), expected);
    }
}
