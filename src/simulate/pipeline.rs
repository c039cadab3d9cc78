//! The pipelines of a table: each is one of its writers, with topics, settings and workers of its own; and what a person orders there.

use std::collections::BTreeSet;
use std::rc::Rc;

use uuid::Uuid;

use super::oracle::{Breach, Found};
use super::plan::Settings;
use super::start::Stood;
use super::table::REF;
use super::tally::Seen;
use super::worker::Ready;
use super::world::World;
use crate::sink::errand::{Bearer, Errand};
use crate::sink::finalize::{Plan, publish};
use crate::watermark::{Identity, Opening, Order, Policy, Retraction, advance};

/// The names of the writers.
const WRITERS: [&str; 2] = ["shop.orders", "shop.west"];

/// A pipeline.
pub(super) struct Pipeline {
    /// Its name as a writer.
    pub writer: &'static str,
    /// The settings that new workers take.
    pub policy: Policy,
    /// The topics that the specification names, and those that it named once.
    pub topics: BTreeSet<usize>,
    pub left: BTreeSet<usize>,
}

impl Pipeline {
    /// Those of a history: the second one is there where it has topics. Between theirs is the one that may join the first.
    pub(super) fn all(settings: &Settings) -> Vec<Pipeline> {
        let first = 0..settings.partitions.len();
        let second = first.end + 1..first.end + 1 + settings.second.len();
        let with_topics = [first, second].into_iter().zip(WRITERS);
        let pipelines = with_topics.filter(|(topics, _)| !topics.is_empty());
        pipelines
            .map(|(topics, writer)| Pipeline {
                writer,
                policy: settings.policy(),
                topics: topics.collect(),
                left: BTreeSet::new(),
            })
            .collect()
    }

    /// What its state belongs to.
    pub(super) fn identity(&self) -> Identity {
        Identity {
            writer: self.writer.to_owned(),
            cluster_id: "cluster".to_owned(),
            installation: "here".to_owned(),
            table_uuid: Uuid::from_u128(7),
            table_ref: REF.to_owned(),
        }
    }
}

impl World {
    /// The topics of a pipeline as its specification names them.
    pub(super) fn subscription(&self, pipeline: usize) -> String {
        let names = self.pipelines[pipeline].topics.iter();
        let names: Vec<&str> = names
            .map(|topic| &*self.broker.topics[*topic].name)
            .collect();
        names.join(",")
    }

    /// Whether the specification of a pipeline names a topic.
    pub(super) fn names(&self, pipeline: usize, name: &str) -> bool {
        let mut topics = self.pipelines[pipeline].topics.iter();
        topics.any(|topic| *self.broker.topics[*topic].name == *name)
    }

    /// The topic that was there all the time is named by the specification.
    pub(super) fn join(&mut self) {
        let topic = self.settings.partitions.len();
        let first = &mut self.pipelines[0];
        if first.left.contains(&topic) || !first.topics.insert(topic) {
            return;
        }
        self.oracle.may_step();
        self.note.see(if self.settings.backfill {
            Seen::TopicBackfilled
        } else {
            Seen::TopicJoined
        });
        self.restart(0);
    }

    /// A topic is no longer named.
    pub(super) fn leave(&mut self, topic: usize) {
        let topic = topic % self.broker.topics.len();
        for at in 0..self.pipelines.len() {
            let own = &mut self.pipelines[at];
            if own.topics.len() > 1 && own.topics.remove(&topic) {
                own.left.insert(topic);
                self.note.see(Seen::TopicLeft);
                self.restart(at);
            }
        }
    }

    /// A topic that has left is named again.
    pub(super) fn come_back(&mut self, topic: usize) {
        let left = |at: usize| {
            self.pipelines[at]
                .left
                .iter()
                .map(move |topic| (at, *topic))
        };
        let all: Vec<(usize, usize)> = (0..self.pipelines.len()).flat_map(left).collect();
        let Some((at, topic)) = all.get(topic % all.len().max(1)).copied() else {
            return;
        };
        self.pipelines[at].left.remove(&topic);
        self.pipelines[at].topics.insert(topic);
        self.oracle.may_step();
        self.note.see(Seen::TopicReturned);
        self.restart(at);
    }

    /// Every worker of a pipeline begins anew with the specification as it is now.
    fn restart(&mut self, pipeline: usize) {
        self.in_flight.clear();
        for worker in 0..self.workers.len() {
            if self.workers[worker].pipeline == pipeline && !self.workers[worker].is_to_come() {
                self.start(worker);
            }
        }
    }

    /// A person takes back that a stretch is complete.
    pub(super) fn retract(&mut self, back: u8, cells: u8) -> Found {
        let Some(stood) = self.stand_as(0, self.now_us, true) else {
            return Ok(());
        };
        let Some(claim_us) = stood.state.claimed_us() else {
            return Ok(());
        };
        let cell_us = stood.state.policy.grid.cell_us();
        let from_us = claim_us - cell_us * i64::from(1 + back % 4);
        let before_us = from_us + cell_us * i64::from(1 + cells % 3);
        let stretch = Retraction::new(from_us, before_us, "a job deleted rows");
        let order = Order::Retract(stretch.expect("a stretch and a reason"));
        if self.order(0, order)? {
            self.note.see(Seen::Retracted);
        }
        Ok(())
    }

    /// A writer is declared drained, or is no longer; where the table has several.
    pub(super) fn drain(&mut self, pipeline: u8, drained: bool) -> Found {
        let pipeline = usize::from(pipeline) % self.pipelines.len();
        if self.pipelines.len() < 2 || self.is_drained(pipeline) == drained {
            return Ok(());
        }
        let (order, seen) = if drained {
            (Order::Drain, Seen::WriterDrained)
        } else {
            (Order::Undrain, Seen::WriterUndrained)
        };
        if self.order(pipeline, order)? {
            self.note.see(seen);
        }
        Ok(())
    }

    /// Whether the table has a pipeline as drained.
    pub(super) fn is_drained(&mut self, pipeline: usize) -> bool {
        let stood = self.stand_as(pipeline, self.now_us, true);
        stood.is_some_and(|stood| stood.state.published.drained)
    }

    /// Brings an order onto the table in the name of a writer, in a commit of its own; tells whether it took effect.
    fn order(&mut self, pipeline: usize, order: Order) -> Result<bool, Breach> {
        let stood = self.stand_as(pipeline, self.now_us, true);
        // A roll-back is taken up by the workers, and by a person where none may.
        let reopens = |stood: &Stood| stood.opening.as_ref().is_some_and(Opening::reopens);
        let settled = |stood: &Stood| !reopens(stood) || stood.state.published.drained;
        let Some(stood) = stood.filter(|stood| !stood.state.is_new() && settled(stood)) else {
            return Ok(false);
        };
        let policy = stood.state.policy.clone();
        let errand = Errand {
            order: Some(order),
            ..Errand::default()
        };
        let bearer = Bearer {
            commit_id: Uuid::from_u128(self.next_commit()),
            worker: "a person",
            subscription: &stood.state.subscription,
            policy: &policy,
            now_us: self.now_us,
        };
        let contribution = errand.contribution_to(&stood.state, false, &bearer);
        let contribution = contribution.expect("an order is always worth a commit");
        let Ok(advanced) = advance(&stood.state, &policy, &contribution) else {
            return Ok(false);
        };
        let mut plan = Plan::default();
        publish(advanced, &contribution, &mut plan);
        let ready = Ready {
            pipeline,
            base_id: stood.loaded.main_id,
            plan,
            contribution,
            logs: Rc::default(),
            read: Rc::default(),
        };
        self.oracle.may_step();
        self.land(&ready, &[])
    }
}
