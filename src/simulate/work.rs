//! What workers do: one session each, from its start to its end, a small step at a time.
//!
//! The order of the steps is the sink's; so are the decisions, which its pure files take. Between any two steps anything may
//! happen to the cluster, the table and the other workers.

use std::rc::Rc;
use std::time::Duration;

use uuid::Uuid;

use super::oracle::{Breach, Found};
use super::plan::Settings;
use super::tally::Seen;
use super::worker::{Life, UnderWay};
use super::world::World;
use crate::sink::buffer::Turn;
use crate::sink::errand::{Bearer, Errand};
use crate::sink::identity::{check_incarnations, incarnations};
use crate::sink::question::{Answer, asked_partitions, known, partitions};
use crate::watermark::{Anchor, AskedEnd, Origin, would_raise};

impl World {
    pub(super) fn clock_us(&self, worker: usize) -> i64 {
        self.now_us + Settings::clock_us(worker)
    }

    pub(super) fn monotonic(&self) -> Duration {
        Duration::from_micros(self.now_us.abs_diff(self.start_us))
    }

    /// One step of a worker; tells whether there was anything to do.
    pub(super) fn turn(&mut self, worker: usize) -> Result<bool, Breach> {
        if self.workers[worker].life != Life::Running {
            return Ok(false);
        }
        let Some(session) = &mut self.workers[worker].session else {
            self.open(worker);
            return Ok(self.workers[worker].session.is_some());
        };
        if session.under_way.is_some() {
            self.step(worker)?;
            return Ok(true);
        }
        if !session.reading {
            self.read_on(worker);
            return Ok(true);
        }
        if let Some(answer) = session.asking.take() {
            self.hear(worker, answer);
            return Ok(true);
        }
        if session.answer.is_some() {
            self.send(worker);
            return Ok(true);
        }
        if self.is_due(worker) {
            self.ask(worker);
            return Ok(true);
        }
        Ok(false)
    }

    /// Reads so many records of each partition.
    pub(super) fn fetch(&mut self, worker: usize, records: usize) -> Found {
        if self.workers[worker].life != Life::Running {
            return Ok(());
        }
        if self.workers[worker].lost {
            return self.notice_loss(worker);
        }
        // The group tells a worker what it is to read when it asks for records.
        self.take_over(worker);
        let now_us = self.clock_us(worker);
        let Some(session) = self.workers[worker]
            .session
            .as_mut()
            .filter(|own| own.reading)
        else {
            return Ok(());
        };
        let (mut ended, mut cut) = (false, None);
        for (at, next) in session.tracks.delivered() {
            let log = self
                .broker
                .find(&at.topic, at.partition)
                .expect("topics stay");
            let before = session.read.get_mut(&(at.topic.to_string(), at.partition));
            let before = std::mem::replace(before.expect("begun"), log);
            // The client compares leader epochs.
            if let Some(below) = self.broker.same_below(before, log)
                && next > below
            {
                (ended, cut) = (true, Some((at, next)));
                break;
            }
            let log = (log, &self.broker.logs[log]);
            ended |= session.fetch(&at, next, log, records, now_us).is_none();
        }
        session.flush_if_full(now_us, &mut *self.rules);
        self.workers[worker].cuts.extend(cut);
        if ended {
            self.note.see(Seen::RowsLost);
            self.end_session(worker);
        }
        Ok(())
    }

    pub(super) fn is_due(&mut self, worker: usize) -> bool {
        let (now, now_us) = (self.monotonic(), self.clock_us(worker));
        let subscription = self.subscription(self.workers[worker].pipeline);
        let own = &mut self.workers[worker];
        let session = own.session.as_mut().expect("asked by the caller");
        let open_end_us = session.state.open_cell_end_us();
        let delay_us = own.policy.bounds.max_delay_us;
        let closable = open_end_us.is_none_or(|end_us| now_us - delay_us >= end_us);
        let waiting = session.waiting();
        match session.cadence.turn(now, waiting, closable) {
            Turn::Rest => false,
            Turn::Ask => true,
            Turn::Outlook => {
                let asked = session.state.asked.clone().map(|mut asked| {
                    asked.at_us = now_us;
                    asked
                });
                let outlook = Errand {
                    news: session.outlook(),
                    asked,
                    ..Errand::default()
                };
                let bearer = Bearer {
                    commit_id: Uuid::nil(),
                    worker: &own.name,
                    subscription: &subscription,
                    policy: &own.policy,
                    now_us,
                };
                let contribution = outlook.contribution(&bearer);
                let could_close = would_raise(&session.state, &own.policy, &contribution);
                session.cadence.due(now, waiting, could_close)
            }
        }
    }

    /// Asks the cluster. The answer is that of the moment, and is heard later.
    pub(super) fn ask(&mut self, worker: usize) {
        let now_us = self.clock_us(worker);
        let topics = self.topics(self.workers[worker].pipeline);
        let topics = self.rules.topics(topics);
        let mut answer = Answer::none();
        answer.asked = topics
            .as_ref()
            .map(|topics| asked_partitions(topics, now_us));
        let max_delay_us = self.workers[worker].policy.bounds.max_delay_us;
        let beat_us = self.beat_us();
        let session = self.workers[worker]
            .session
            .as_mut()
            .expect("asked by the caller");
        let known = known(&session.state);
        if let Some(topics) = &topics {
            for (at, delivered) in session.tracks.delivered() {
                let log = self
                    .broker
                    .find(&at.topic, at.partition)
                    .expect("topics stay");
                let log = &self.broker.logs[log];
                if log.stable() < log.end() {
                    self.note.see(Seen::TransactionOpen);
                }
                let honest = AskedEnd {
                    at_us: now_us,
                    heartbeat_us: beat_us,
                    high_watermark: log.end(),
                    delivered,
                };
                answer
                    .ends
                    .insert(at, self.rules.end(log, max_delay_us, honest));
            }
            for at in partitions(topics) {
                // What left is back with the next start.
                let left = session.state.left.topics();
                if known.contains(&at) || left.contains_key(&*at.topic) {
                    continue;
                }
                let log = self
                    .broker
                    .find(&at.topic, at.partition)
                    .expect("just named");
                let topic = topics.iter().find(|topic| *topic.name == *at.topic);
                answer.unknown.push(Anchor {
                    topic: at.topic.to_string(),
                    topic_id: topic.and_then(|topic| topic.id),
                    partition: at.partition,
                    offset: self.broker.logs[log].start,
                    origin: Origin::New,
                    at_us: now_us,
                });
            }
        }
        answer.topics = topics.unwrap_or_default();
        session.logs = Rc::new(self.broker.logs_now());
        session.asking = Some(answer);
    }

    pub(super) fn hear(&mut self, worker: usize, answer: Answer) {
        let knows_ids = self.rules.knows_topic_ids();
        let session = self.workers[worker]
            .session
            .as_mut()
            .expect("asked by the caller");
        let ids = incarnations(&session.state);
        if knows_ids && check_incarnations(&ids, &answer.topics, &[]).is_err() {
            self.end_session(worker);
            return;
        }
        session.answer = Some(answer);
    }

    /// Sends what is read, or only the answers, on its way.
    pub(super) fn send(&mut self, worker: usize) {
        let (now, now_us) = (self.monotonic(), self.clock_us(worker));
        let commit_id = Uuid::from_u128(self.next_commit());
        let topics = self.topics_now(self.workers[worker].pipeline);
        let knows_ids = self.rules.knows_topic_ids();
        let session = self.workers[worker]
            .session
            .as_mut()
            .expect("asked by the caller");
        let (mut errand, files) = session.errand(now_us, &mut *self.rules);
        errand.derived_from = Some(session.state.commit_id);
        session.cadence.look(now);
        if !errand.is_worth_a_look(&session.state, session.cadence.is_closable(), now_us) {
            return;
        }
        let ids = errand.read_from();
        // The client reads on without a word in a topic that was made anew: the ids are asked before a commit.
        let changed = check_incarnations(&ids, &topics, &[]).is_err();
        if changed && knows_ids {
            self.end_session(worker);
            return;
        }
        session.under_way = Some(UnderWay {
            errand,
            files,
            logs: Rc::clone(&session.logs),
            read: Rc::new(session.read.clone()),
            commit_id,
            lost_answer: false,
            ready: None,
        });
    }
}
