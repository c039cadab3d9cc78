//! The disruption budget of a set of workers: a drained node takes one of them at a time.
//!
//! With a single worker there is none: a budget would only keep its node from ever being drained.

use serde_json::json;

use super::{Child, Kind, Workers, metadata, selector};

pub(super) fn pod_disruption_budget(workers: &Workers) -> Option<Child> {
    let object = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(workers),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": selector(&workers.key.name)},
        },
    });
    (workers.replicas > 1).then(|| Child::new(Kind::PodDisruptionBudget, &workers.key, object))
}

#[cfg(test)]
mod tests {
    use super::super::tests::workers;
    use super::*;

    #[test]
    fn one_of_several_workers_may_be_away() {
        let child = pod_disruption_budget(&workers("{replicas: 3}")).unwrap();
        let spec = json!({
            "maxUnavailable": 1,
            "selector": {"matchLabels": {"app.kubernetes.io/managed-by": "tidemark", "tidemark.dev/workers": "orders-tidemark"}},
        });
        assert_eq!(child.object["spec"], spec);
        assert_eq!(child.object["metadata"]["name"], "orders-tidemark");
    }

    #[test]
    fn a_single_worker_keeps_no_node_from_being_drained() {
        assert_eq!(pod_disruption_budget(&workers("{}")), None);
    }
}
