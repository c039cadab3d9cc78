//! What the workers of one pipeline have answered, each at last.
//!
//! Answers may come in any order; of one worker the newest counts. A worker that is no longer expected is forgotten: what it
//! claimed has been told by then.

use std::sync::Arc;

use super::lag::LagWindow;
use crate::api::worker::{ClaimProgress, PipelineProgress, RunState};

/// A worker that has not answered for this long is out of reach: more than four rounds of asking, and longer than a pod's
/// configuration takes to reach it.
pub const UNREACHABLE_AFTER_US: i64 = 90 * 1_000_000;

/// What a worker said of the pipeline.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// What it does.
    Progress(Arc<PipelineProgress>),
    /// It answers, and does not know the pipeline yet.
    NotLoaded,
    /// It answers something that this version cannot read, and why.
    Unreadable(String),
}

/// One worker.
#[derive(Debug, Clone, PartialEq)]
pub struct Worker {
    /// Since when it is expected to answer, µs.
    pub since_us: i64,
    /// What it said last, and when, µs.
    pub heard: Option<(i64, Said)>,
}

impl Worker {
    /// For how long it has said nothing, µs.
    #[must_use]
    pub fn silent_us(&self, now_us: i64) -> i64 {
        let last_us = self
            .heard
            .as_ref()
            .map_or(self.since_us, |(at_us, _)| *at_us);
        now_us.saturating_sub(last_us)
    }

    /// What it does, where it still answers.
    #[must_use]
    pub fn progress(&self, now_us: i64) -> Option<&PipelineProgress> {
        match &self.heard {
            Some((_, Said::Progress(progress))) if !self.is_silent(now_us) => Some(progress),
            _ => None,
        }
    }

    /// Whether it is out of reach.
    #[must_use]
    pub fn is_silent(&self, now_us: i64) -> bool {
        self.silent_us(now_us) > UNREACHABLE_AFTER_US
    }
}

/// The workers of one pipeline, by the names of their pods.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Workers {
    /// By name, in its order: they are few, and a tree has room for eleven.
    by_name: Vec<(String, Worker)>,
    lag: LagWindow,
}

impl Workers {
    /// Says which workers there are; others are forgotten.
    pub fn expect(&mut self, names: &[&str], now_us: i64) {
        self.by_name
            .retain(|(name, _)| names.contains(&name.as_str()));
        for name in names {
            let place = self.by_name.binary_search_by(|(one, _)| (**one).cmp(name));
            if let Err(place) = place {
                let worker = Worker {
                    since_us: now_us,
                    heard: None,
                };
                self.by_name.reserve_exact(1);
                self.by_name.insert(place, ((*name).to_owned(), worker));
            }
        }
    }

    /// Takes an answer in, unless a later one is there or the worker is not expected. Says whether it is another one than before,
    /// or the first after a silence.
    pub fn hear(&mut self, name: &str, said: Said, at_us: i64) -> bool {
        let mut named = self.by_name.iter_mut().filter(|(one, _)| one == name);
        let Some((_, worker)) = named.next() else {
            return false;
        };
        let was_silent = worker.is_silent(at_us);
        let is_same = match &mut worker.heard {
            Some((heard_us, _)) if *heard_us > at_us => return false,
            Some((heard_us, before)) if *before == said => {
                *heard_us = at_us;
                true
            }
            heard => {
                *heard = Some((at_us, said));
                false
            }
        };
        let lags = self.by_name.iter().map(|(_, worker)| match &worker.heard {
            Some((_, Said::Progress(progress))) => Some(progress.lag?.offsets),
            _ => None,
        });
        // The sum of what some of them have behind would be too little.
        if let Some(lags) = lags.collect::<Option<Vec<u64>>>() {
            let sum = lags.into_iter().fold(0, u64::saturating_add);
            self.lag.observe(sum, at_us);
        }
        was_silent || !is_same
    }

    /// The workers by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Worker)> {
        self.by_name
            .iter()
            .map(|(name, worker)| (name.as_str(), worker))
    }

    /// Whether none is expected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The claims of those that still answer.
    pub(super) fn claims(&self, now_us: i64) -> impl Iterator<Item = &ClaimProgress> {
        let all = self.by_name.iter();
        all.filter_map(move |(_, worker)| worker.progress(now_us)?.claim.as_ref())
    }

    /// The step of their lag, where it is known: what was behind when the last of them stopped is not what is behind now.
    pub(super) fn lag(&self, old: Option<&str>, now_us: i64) -> Option<String> {
        let is_unknown = |worker: &Worker| match &worker.heard {
            Some((_, Said::Progress(progress))) => {
                progress.state == RunState::Stopped && progress.lag.is_none()
            }
            _ => false,
        };
        let all_stopped =
            !self.is_empty() && self.by_name.iter().all(|(_, worker)| is_unknown(worker));
        self.lag.step(old, now_us).filter(|_| !all_stopped)
    }
}
