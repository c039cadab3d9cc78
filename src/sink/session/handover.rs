//! Partitions that come and go, and the stop.
//!
//! A partition is handed over only when what was read of it is on the table or dropped.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Session;
use super::opening::settle_start;
use crate::kafka::{self, Position, TopicPartition};
use crate::sink::Error;
use crate::sink::load::Loaded;
use crate::sink::question::{PATIENCE, known};
use crate::watermark::{PartitionState, State};

/// How long what was read of a revoked partition may take to be committed: half of librdkafka's default rebalance time-out.
const HAND_OVER: Duration = Duration::from_secs(150);

impl Session<'_> {
    /// Begins to read partitions where the table stands.
    pub(super) fn take_over(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        let loaded = self.load_further()?;
        let missing = |at: &TopicPartition| {
            let known = loaded.state.partition(&at.topic, at.partition);
            known.is_none()
        };
        let state = if loaded.is_for_opening() || partitions.iter().any(missing) {
            settle_start(self.context, &self.side, &self.inquirer, loaded)?
        } else {
            loaded.state
        };
        let starts = positions(&state, partitions);
        if starts.len() < partitions.len() {
            return Err(kafka::Error::Unreachable {
                bootstrap_servers: self.context.spec.source.bootstrap_servers.clone(),
                question: "the partitions that the group assigned",
                waited: PATIENCE,
            }
            .into());
        }
        self.source.assign(&starts)?;
        self.begin(state, &starts);
        self.show();
        Ok(())
    }

    /// The table, to go on from beside what is read already.
    pub(super) fn load_further(&self) -> Result<Loaded, Error> {
        let loaded = self.context.runtime.block_on(self.side.load())?;
        if loaded.has_lost(Some(self.state.commit_id)) {
            return Err(self.side.rolled_back());
        }
        Ok(loaded)
    }

    /// A new batch begins at these positions, which the state has.
    fn begin(&mut self, state: State, positions: &[(TopicPartition, Position)]) {
        for (at, position) in positions {
            if let Some(slot) = self.source.slot(at) {
                self.ingest.begin(slot, at, *position, &state);
            }
        }
        self.state = state;
    }

    /// Gives partitions up: what was read of them is committed first, unless they are lost already.
    pub(super) fn hand_over(
        &mut self,
        partitions: &[TopicPartition],
        lost: bool,
    ) -> Result<(), Error> {
        if lost {
            // Others may have committed for them already; the fence decides about what is under way.
            self.arrive(HAND_OVER)?;
            self.ingest.give_up();
        } else {
            self.commit_rest(HAND_OVER)?;
        }
        self.answer = None;
        self.asking = None;
        self.source.release(partitions)?;
        for at in partitions {
            self.ingest.end(at);
            self.ends.remove(at);
            self.context.metrics.forget(at);
        }
        if lost {
            self.rewind()?;
        }
        self.show();
        Ok(())
    }

    /// Reads what is left again from where the table stands.
    fn rewind(&mut self) -> Result<(), Error> {
        let loaded = self.context.runtime.block_on(self.side.load())?;
        if loaded.is_for_opening() {
            return Err(self.side.rolled_back());
        }
        let delivered = self.ingest.delivered().into_iter();
        let left: Vec<TopicPartition> = delivered.map(|(at, _)| at).collect();
        let positions = positions(&loaded.state, &left);
        self.source.seek(&positions)?;
        self.begin(loaded.state, &positions);
        Ok(())
    }

    /// Waits for what is under way, then commits everything that is read.
    pub(super) fn commit_rest(&mut self, patience: Duration) -> Result<(), Error> {
        self.asking = None;
        let started = self.context.clock.monotonic();
        self.arrive(patience)?;
        if self.ingest.waiting().rows == 0 {
            return Ok(());
        }
        let now = self.context.clock.monotonic();
        let spent = self.context.clock.real(now.saturating_sub(started));
        self.send(now)?;
        self.arrive(patience.saturating_sub(spent))
    }

    /// The stop: what is read is committed, then the group is left.
    pub(super) fn leave(&mut self) -> Result<(), Error> {
        // What is given up at the end of it is still waited for, and the group is left.
        let patience = self.context.grace * 2 / 3;
        self.commit_rest(patience)?;
        tracing::info!(pipeline = %self.context.spec.id(), "stopped; everything read is committed");
        Ok(())
    }

    /// The partitions to be read: those on the table whose topics the specification names.
    pub(super) fn wanted(&self) -> BTreeSet<TopicPartition> {
        let named = |at: &TopicPartition| self.context.names.contains(&at.topic);
        known(&self.state).into_iter().filter(named).collect()
    }

    /// Joins the group for the topics that are wanted now. None at all is no subscription: the next look may find some.
    pub(super) fn subscribe(&mut self) -> Result<(), Error> {
        let mut topics: Vec<String> = self
            .wanted()
            .iter()
            .map(|at| at.topic.to_string())
            .collect();
        topics.dedup();
        if topics != self.subscribed && !topics.is_empty() {
            self.source.subscribe(&topics)?;
            self.subscribed = topics;
        }
        Ok(())
    }
}

/// Where a table stands in these partitions, of those that it knows.
fn positions(state: &State, partitions: &[TopicPartition]) -> Vec<(TopicPartition, Position)> {
    let position = |at: &TopicPartition| {
        let known = state.partition(&at.topic, at.partition)?;
        Some((at.clone(), known.into()))
    };
    partitions.iter().filter_map(position).collect()
}

impl From<&PartitionState> for Position {
    fn from(known: &PartitionState) -> Self {
        Self {
            next_offset: known.next_offset,
            leader_epoch: known.leader_epoch,
        }
    }
}
