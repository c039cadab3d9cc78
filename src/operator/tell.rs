//! Says how the pipelines are: what was reconciled, how their pods stand and what their workers answer, handed on to the reports.
//!
//! Handed on is what is news, gathered for a moment: a pod that starts is three or four of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    Key,
    build::selector_text,
    fleet::{Fleet, Report, State},
    progress::{Heard, Target},
    status::{Children, Said, Trouble},
};
use crate::{
    api::{Reason, worker::PipelineProgress},
    process::http::ADMIN_PORT,
};

/// How long news are gathered.
const GATHER: Duration = Duration::from_millis(500);

/// How often a part of all pipelines is looked at again, for what time alone changes: all of them in half a minute.
const TURN: Duration = Duration::from_secs(2);

/// Whom to ask: every ready pod, at its admin port; nobody while another replica leads.
pub(super) fn targets(fleet: &Fleet) -> Vec<Target> {
    if !fleet.leads() {
        return Vec::new();
    }
    let state = fleet.lock();
    let pods = state.index.ready_pods().filter_map(|(key, pod)| {
        let address: IpAddr = pod.address.as_deref()?.parse().ok()?;
        Some(Target {
            namespace: key.namespace.clone(),
            worker: key.name.clone(),
            address: (address, ADMIN_PORT).into(),
        })
    });
    pods.collect()
}

/// Takes answers in until there are no more.
pub(super) async fn listen(fleet: Arc<Fleet>, mut answers: mpsc::Receiver<Heard>) {
    while let Some(heard) = answers.recv().await {
        let said = heard.said.iter().flatten();
        let progress: BTreeMap<String, &PipelineProgress> = said
            .filter_map(|(uid, said)| match said {
                Said::Progress(progress) => Some((uid.clone(), &**progress)),
                Said::NotLoaded | Said::Unreadable(_) => None,
            })
            .collect();
        fleet.hear(&heard.target.worker, &progress);
        fleet.reports.heard(&heard);
    }
}

/// Hands news on until `stop`.
pub(super) async fn tell(fleet: Arc<Fleet>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = fleet.reported.notified() => fleet.clock.sleep(GATHER).await,
        }
        let news: BTreeSet<Key> = std::mem::take(&mut fleet.lock().news);
        for key in news {
            hand_on(&fleet, &key);
        }
    }
}

/// Looks at all pipelines again and again, a part each turn.
pub(super) async fn look_again(fleet: Arc<Fleet>, stop: CancellationToken) {
    let mut turn = 0;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = fleet.clock.sleep(TURN) => {}
        }
        fleet.reports.sweep(turn);
        turn += 1;
    }
}

fn hand_on(fleet: &Fleet, key: &Key) {
    let (reconciled, children, pods) = {
        let state = fleet.lock();
        let Some(report) = state.reports.get(key) else {
            return;
        };
        let pods: Vec<String> = state
            .names_of(report)
            .into_iter()
            .map(str::to_owned)
            .collect();
        (report.reconciled.clone(), state.children_of(report), pods)
    };
    let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
    fleet.reports.reconciled(key, (reconciled, children), &pods);
}

impl State {
    /// The pods that run a pipeline.
    fn names_of<'a>(&'a self, report: &'a Report) -> Vec<&'a str> {
        let Some(workers) = &report.workers else {
            return Vec::new();
        };
        let ready = self.index.pods_of(workers).filter(|(_, pod)| pod.ready);
        ready.map(|(name, _)| name).collect()
    }

    fn children_of(&self, report: &Report) -> Children {
        let seen = report
            .workers
            .as_ref()
            .and_then(|key| Some((key, self.index.workers(key)?)));
        let Some((key, seen)) = seen else {
            return Children::default();
        };
        let mut troubles = self.index.pods_of(key).filter_map(|(name, pod)| {
            let trouble = pod.trouble.as_deref()?;
            let told = format!("pod \"{name}\": {trouble}");
            Some(Trouble::new(Reason::PodNotStarted, told))
        });
        Children {
            desired: seen.deployment.wanted,
            replicas: seen.deployment.replicas,
            ready_replicas: seen.deployment.ready,
            selector: Some(selector_text(&key.name)),
            trouble: troubles.next(),
        }
    }
}
