//! A pipeline under load while faults fall on it: what the fault tests have in common.
//!
//! A load runs all the time, half of it in transactions. The worker reaches the catalog through a proxy. A round is one fault, and then
//! the pipeline has to commit again by itself. At the end every row has to be there once, and no claim ever above the truth.

use std::{collections::BTreeMap, io::Write, time::Duration};

use super::{
    catalog::Catalog,
    judge::judge,
    kafka::Broker,
    ledger::{Ledger, Plan, Transactions},
    proxy::{Fate, Proxy, Request},
    server::own_name,
    wait::within,
    worker::{Pipeline, Worker, change, claim, history, size},
};

/// From a fault to the next commit. A dead member of the group is missed after three seconds, a lost answer after the client's
/// own deadline, and errors are retried with growing pauses.
pub(crate) const RECOVERY: Duration = Duration::from_mins(2);
/// How often each kind of moment has to be hit.
const HITS: usize = 3;
/// How far the claim has to move in all.
const CELLS: i64 = 10;

/// A commit had reached the catalog and its answer had not reached the worker.
pub(crate) const ANSWER: &str = "between sent and answered";
/// Rows of an open transaction were in the log.
pub(crate) const TRANSACTION: &str = "on an open transaction";
/// The group was sharing out its partitions.
pub(crate) const REBALANCE: &str = "on a rebalance";
/// A worker that had lost its partitions came with rows of theirs, and the table sent it away.
pub(crate) const ZOMBIE: &str = "as a zombie";
/// A stranger had committed on the base that a commit was derived from.
pub(crate) const CONFLICT: &str = "on a conflict";

/// What a trial starts with.
pub(crate) struct Setup<'a> {
    /// The test's name, in words joined by `_`.
    pub(crate) test: &'a str,
    pub(crate) broker: &'a Broker,
    pub(crate) catalog: &'a Catalog,
    pub(crate) workers: u32,
    /// The pipeline's `maxDelay`.
    pub(crate) max_delay: Duration,
}

impl<'a> Setup<'a> {
    /// One worker on the shared servers.
    pub(crate) fn new(test: &'a str) -> Self {
        Self {
            test,
            broker: Broker::shared(),
            catalog: Catalog::shared(),
            workers: 1,
            max_delay: Duration::from_secs(2),
        }
    }

    /// Starts load and workers; returns when two commits are on the table.
    pub(crate) fn start(
        self,
        decide: impl Fn(&Request) -> Fate + Send + Sync + 'static,
    ) -> Trial<'a> {
        let mut trial = self.load(decide);
        for number in 0..trial.pipeline.replicas as usize {
            trial.start_worker(number);
        }
        trial.await_commits(2);
        trial
    }

    /// Starts the load alone.
    pub(crate) fn load(
        self,
        decide: impl Fn(&Request) -> Fate + Send + Sync + 'static,
    ) -> Trial<'a> {
        let proxy = Proxy::start(self.catalog.address(), decide);
        let topics = vec![
            self.broker.topic(self.test, 3),
            self.broker.topic(&format!("{}_transactions", self.test), 2),
        ];
        let pipeline = Pipeline {
            name: self.test.replace('_', "-"),
            bootstrap: self.broker.bootstrap(),
            topics: topics.clone(),
            catalog_uri: proxy.uri(),
            namespace: own_name(self.test),
            replicas: self.workers,
            max_delay: self.max_delay,
            cell_s: 5,
            sink: String::new(),
        };
        let plan = |topic: &str, partitions, transactions| Plan {
            topic: topic.to_owned(),
            partitions,
            rows_per_second: 150,
            lateness: Duration::from_secs(1),
            transactions,
            message: change,
        };
        let transactions = Transactions {
            open: Duration::from_secs(1),
            aborted_percent: 30,
        };
        let ledgers = vec![
            Ledger::start(self.broker, plan(&topics[0], 3, None)),
            Ledger::start(self.broker, plan(&topics[1], 2, Some(transactions))),
        ];
        // One more place than workers: for a second copy by accident.
        for number in 0..=self.workers {
            // What an earlier run left is not this trial's.
            let _ = std::fs::remove_file(Worker::log_of(&pipeline, &number.to_string()));
        }
        Trial {
            broker: self.broker,
            catalog: self.catalog,
            proxy,
            pipeline,
            ledgers,
            workers: (0..=self.workers).map(|_| None).collect(),
            hits: BTreeMap::new(),
        }
    }
}

/// A pipeline under load, and what was done to it.
pub(crate) struct Trial<'a> {
    pub(crate) broker: &'a Broker,
    pub(crate) catalog: &'a Catalog,
    pub(crate) proxy: Proxy,
    pub(crate) pipeline: Pipeline,
    /// Without transactions, and with.
    pub(crate) ledgers: Vec<Ledger>,
    pub(crate) workers: Vec<Option<Worker>>,
    pub(crate) hits: BTreeMap<&'static str, usize>,
}

impl Trial<'_> {
    /// The number of the table's newest commit.
    fn sequence(&self) -> i64 {
        size(self.catalog, &self.pipeline.namespace).1
    }

    /// How many cells the claim has moved by since the first one that is still known.
    pub(crate) fn cells(&self) -> i64 {
        let history = history(self.catalog, &self.pipeline.namespace);
        let claims: Vec<_> = history
            .iter()
            .filter_map(|commit| Some(commit.complete?.1))
            .collect();
        let moved = claims
            .last()
            .zip(claims.first())
            .map_or(0, |(last, first)| last - first);
        moved / self.pipeline.bounds().cell_us
    }

    /// How often workers said that the table had moved on without them.
    pub(crate) fn times_fenced(&self) -> usize {
        let logs = (0..self.workers.len())
            .map(|number| Worker::log_of(&self.pipeline, &number.to_string()));
        let texts = logs.filter_map(|log| std::fs::read_to_string(log).ok());
        let fenced = |line: &&str| line.contains("session ended") && line.contains("Fenced");
        texts.map(|text| text.lines().filter(fenced).count()).sum()
    }

    /// Waits until the claim has moved far enough to be judged.
    fn await_cells(&self) {
        let missing = CELLS - self.cells();
        let claim = || claim(self.catalog, &self.pipeline.namespace);
        let enough = claim().map(|claim| claim + missing * self.pipeline.bounds().cell_us);
        let what = format!("{missing} more cells of {}", self.pipeline.name);
        within(RECOVERY, &what, || (claim() >= enough).then_some(()));
    }

    /// Waits for so many more commits.
    pub(crate) fn await_commits(&self, more: i64) {
        let enough = self.sequence() + more;
        let what = format!("{more} more commits of {}", self.pipeline.name);
        within(RECOVERY, &what, || {
            (self.sequence() >= enough).then_some(())
        });
    }

    /// Notes what a fault falls on, just before it falls.
    pub(crate) fn note_moment(&mut self) {
        if self.proxy.commits_in_flight() > 0 {
            self.hit(ANSWER);
        }
        if self.ledgers.iter().any(Ledger::in_a_transaction) {
            self.hit(TRANSACTION);
        }
        if self.pipeline.replicas > 1 && !self.group_is_stable() {
            self.hit(REBALANCE);
        }
    }

    fn hit(&mut self, moment: &'static str) {
        *self.hits.entry(moment).or_default() += 1;
    }

    pub(crate) fn group_is_stable(&self) -> bool {
        let group = format!("tidemark.tests.{}", self.pipeline.name);
        self.broker
            .group_state(&group)
            .is_some_and(|state| state == "Stable")
    }

    pub(crate) fn start_worker(&mut self, number: usize) {
        self.workers[number] = Some(Worker::start(&self.pipeline, &number.to_string()));
    }

    pub(crate) fn worker(&self, number: usize) -> &Worker {
        self.workers[number].as_ref().expect("a running worker")
    }

    pub(crate) fn kill_worker(&mut self, number: usize) {
        self.note_moment();
        self.workers[number]
            .take()
            .expect("a running worker")
            .kill();
    }

    /// Stops the load, waits until all of it is in the table, and judges.
    pub(crate) fn finish(mut self, moments: &[&'static str], rounds: usize) {
        for worker in self.workers.iter_mut().flatten() {
            assert!(
                worker.runs(),
                "a worker has ended by itself, see {}",
                worker.log().display()
            );
        }
        self.await_cells();
        let zombies = self.times_fenced();
        self.hits.insert(ZOMBIE, zombies);
        let mut sent = Vec::new();
        for ledger in std::mem::take(&mut self.ledgers) {
            sent.extend(ledger.stop());
        }
        let wanted = sent.iter().filter(|one| !one.aborted).count();
        within(RECOVERY, "the last rows", || {
            (size(self.catalog, &self.pipeline.namespace).0 >= wanted).then_some(())
        });
        for worker in self.workers.iter_mut().filter_map(Option::take) {
            let log = worker.log().to_owned();
            assert!(
                worker.terminate().success(),
                "an orderly end, see {}",
                log.display()
            );
        }
        let verdict = judge(
            &sent,
            &history(self.catalog, &self.pipeline.namespace),
            self.pipeline.bounds(),
        );
        let name = &self.pipeline.name;
        // Past the test's own output, which nobody sees of a test that passes.
        let told = format!(
            "{name}: {rounds} rounds, hits {:?}, commits {:?}\n{name}: {verdict}\n",
            self.hits,
            self.proxy.fates()
        );
        let _ = std::io::stderr().write_all(told.as_bytes());
        verdict.assert_true();
        verdict.assert_moved(CELLS);
        for moment in moments {
            assert!(
                self.hits.get(moment).is_some_and(|hits| *hits >= HITS),
                "too few hits {moment}: {:?}",
                self.hits
            );
        }
    }
}
