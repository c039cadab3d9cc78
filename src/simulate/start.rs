//! How a session begins: what the table and the cluster say, the anchors, and which partitions are whose.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use uuid::Uuid;

use super::broker::{Log, Topic};
use super::oracle::Found;
use super::table::{Loaded, REF, WRITER};
use super::tally::Seen;
use super::worker::{Life, Session, UnderWay};
use super::world::World;
use crate::kafka::{TopicInfo, TopicPartition};
use crate::sink::errand::Errand;
use crate::sink::identity::{goes_on_at, incarnations, jump_of};
use crate::sink::question::{asked_partitions, known, partitions};
use crate::watermark::{Anchor, Asker, Identity, Jump, Origin, Standing, State, keep_offsets};

/// A table as a worker loaded it.
pub(super) struct Stood {
    /// The state on it; new where the writer begins.
    pub state: State,
    /// A state whose offsets are gone on from.
    pub kept: Option<Box<State>>,
    /// Whether the table was rolled back, and waits for the commit that says so.
    pub reopens: bool,
    pub loaded: Rc<Loaded>,
}

impl Stood {
    /// Whether only the opening of a session may commit here.
    pub(super) fn is_for_opening(&self) -> bool {
        self.reopens || self.state.is_new()
    }
}

impl World {
    pub(super) fn identity() -> Identity {
        Identity {
            writer: WRITER.to_owned(),
            cluster_id: "cluster".to_owned(),
            installation: "here".to_owned(),
            table_uuid: Uuid::from_u128(7),
            table_ref: REF.to_owned(),
        }
    }

    /// The topics as the specification names them.
    pub(super) fn subscription(&self) -> String {
        let names = self.topics.iter();
        let names: Vec<&str> = names
            .map(|topic| &*self.broker.topics[*topic].name)
            .collect();
        names.join(",")
    }

    /// Where a worker stands on the table; `None`: it is not one to go on from.
    pub(super) fn stand(&mut self, worker: usize) -> Option<Stood> {
        let now_us = self.clock_us(worker);
        let asker = Asker {
            keep_offsets: self.settings.keep_offsets,
            ..Asker::new(WRITER, now_us)
        };
        let loaded = self.table.load(&asker, &mut *self.rules);
        match loaded.standing.as_ref().ok()? {
            Standing::Begins(beginning) => {
                let policy = self.workers[worker].policy.clone();
                Some(Stood {
                    state: beginning.state(Self::identity(), &self.subscription(), policy, now_us),
                    kept: beginning.kept.clone(),
                    reopens: false,
                    loaded,
                })
            }
            Standing::GoesOn(going_on) => Some(Stood {
                state: going_on.state.clone(),
                kept: going_on
                    .rolled_back
                    .as_ref()
                    .and_then(|rolled_back| rolled_back.kept.clone()),
                reopens: going_on.rolled_back.is_some(),
                loaded,
            }),
        }
    }

    pub(super) fn open(&mut self, worker: usize) {
        let Some(stood) = self.stand(worker) else {
            return;
        };
        let now = self.monotonic();
        let own = &mut self.workers[worker];
        let state = stood.state.clone();
        let table = (!state.is_new()).then_some(&state.policy);
        own.policy.revision = own.policy.revision_on(table);
        let seed = 331 * u64::try_from(worker).expect("a handful");
        let mut session = Session::new(state, &own.policy, &self.settings, seed);
        session.cadence.start(now);
        own.session = Some(session);
        own.lost = false;
        self.settle_start(worker, &stood);
        self.assign();
    }

    /// Sends what has to be on the table before anything is read: anchors, jumps, the step after a roll-back.
    fn settle_start(&mut self, worker: usize, stood: &Stood) {
        let at_us = self.clock_us(worker);
        let topics = self.topics();
        let Some(topics) = self.rules.topics(topics) else {
            self.end_session(worker);
            return;
        };
        let mut errand = Errand {
            opens: true,
            derived_from: Some(stood.state.commit_id),
            ..Errand::default()
        };
        // Reading goes on at these offsets, whichever commit they are of.
        let reached = stood.kept.as_deref().unwrap_or(&stood.state);
        errand.jumps = self.jumps(reached, &topics, at_us);
        let mut known = known(&stood.state);
        if let Some(kept) = &stood.kept {
            (errand.jumps, errand.anchors) = keep_offsets(
                (&stood.state, kept),
                errand.jumps,
                |topic| self.names(topic),
                at_us,
            );
            let anchored = errand.anchors.iter();
            known.extend(
                anchored.map(|anchor| TopicPartition::new(anchor.topic.as_str(), anchor.partition)),
            );
        }
        let latest = self.settings.latest && stood.state.is_new() && stood.kept.is_none();
        for at in partitions(&topics) {
            if known.contains(&at) {
                continue;
            }
            let log = self.log_of(&at);
            let topic = topics.iter().find(|topic| *topic.name == *at.topic);
            let topic_id = topic.and_then(|topic| topic.id);
            let topic_id = topic_id.filter(|_| self.rules.knows_topic_ids());
            let left = &stood.state.left;
            let (offset, origin) = match left.next_offset(&at.topic, topic_id, at.partition) {
                Some(from) => (self.reached(&at, from), Origin::Back { from }),
                // Its owner agrees that a topic made anew is read from its first record.
                None if left.topics().contains_key(&*at.topic) => (log.start, Origin::Anew),
                None => (if latest { log.end() } else { log.start }, Origin::New),
            };
            errand.anchors.push(Anchor {
                topic: at.topic.to_string(),
                topic_id,
                partition: at.partition,
                offset,
                origin,
                at_us,
            });
        }
        errand.retired = self.retired(&stood.state);
        let nothing = errand.anchors.is_empty() && errand.jumps.is_empty();
        if nothing && errand.retired.is_empty() && !stood.is_for_opening() {
            return;
        }
        errand.asked = Some(asked_partitions(&topics, at_us));
        let commit_id = Uuid::from_u128(self.next_commit());
        let session = self.workers[worker].session.as_mut();
        session.expect("just opened").under_way = Some(UnderWay {
            errand,
            files: Vec::new(),
            logs: Rc::new(self.broker.logs_now()),
            commit_id,
            lost_answer: false,
            ready: None,
        });
    }

    /// Where reading cannot go on, and where it goes on instead.
    fn jumps(&self, reached: &State, topics: &[TopicInfo], at_us: i64) -> Vec<Jump> {
        let ids = incarnations(reached);
        let mut jumps = Vec::new();
        for at in partitions(topics) {
            let Some(next) = reached.partition(&at.topic, at.partition) else {
                continue;
            };
            let topic = topics.iter().find(|topic| *topic.name == *at.topic);
            let id = topic.and_then(|topic| topic.id);
            let known = ids.get(&*at.topic).filter(|_| self.rules.knows_topic_ids());
            let changed = id.filter(|id| known.is_some_and(|known| known != id));
            let (next, log) = (next.next_offset, self.log_of(&at));
            let Some((kind, _)) = jump_of(&at, next, log.start..log.end(), changed, false) else {
                continue;
            };
            jumps.push(Jump {
                topic: at.topic.to_string(),
                partition: at.partition,
                kind,
                from: next,
                offset: goes_on_at(kind, next, &(log.start..log.end())),
                at_us,
            });
        }
        jumps
    }

    /// Where a partition goes on that left at an offset.
    fn reached(&self, at: &TopicPartition, from: i64) -> i64 {
        let log = self.log_of(at);
        let offsets = log.start..log.end();
        jump_of(at, from, offsets.clone(), None, false)
            .map_or(from, |(kind, _)| goes_on_at(kind, from, &offsets))
    }

    /// Whether the specification names a topic.
    fn names(&self, name: &str) -> bool {
        let mut topics = self.topics.iter();
        topics.any(|topic| *self.broker.topics[*topic].name == *name)
    }

    /// The topics that the table or its last answer has, and the specification no longer names.
    fn retired(&self, state: &State) -> Vec<String> {
        let asked = state.asked.iter().flat_map(|asked| asked.topics.keys());
        let there: BTreeSet<&String> = state.topics.keys().chain(asked).collect();
        let gone = there.into_iter().filter(|name| !self.names(name));
        gone.cloned().collect()
    }

    fn log_of(&self, at: &TopicPartition) -> &Log {
        let log = self.broker.find(&at.topic, at.partition);
        &self.broker.logs[log.expect("the broker named it")]
    }

    /// What the broker says of the topics; `None`: it cannot tell now.
    pub(super) fn topics(&mut self) -> Option<Vec<TopicInfo>> {
        if self.broker.unanswered > 0 {
            self.broker.unanswered -= 1;
            self.note.see(Seen::Unanswered);
            return None;
        }
        let info = |topic: &Topic| TopicInfo {
            name: topic.name.to_string(),
            id: Some(topic.id),
            partitions: (0..i32::try_from(topic.logs.len()).expect("a handful")).collect(),
        };
        let named = self.topics.iter().map(|topic| &self.broker.topics[*topic]);
        Some(named.map(info).collect())
    }

    pub(super) fn topics_now(&self) -> Vec<TopicInfo> {
        let info = |topic: &Topic| TopicInfo {
            name: topic.name.to_string(),
            id: Some(topic.id),
            partitions: Vec::new(),
        };
        let named = self.topics.iter().map(|topic| &self.broker.topics[*topic]);
        named.map(info).collect()
    }

    pub(super) fn end_session(&mut self, worker: usize) {
        self.workers[worker].session = None;
    }

    /// The start is settled: reads from where the table stands.
    pub(super) fn read_on(&mut self, worker: usize) {
        let stood = self.stand(worker);
        let Some(stood) = stood.filter(|stood| !stood.is_for_opening()) else {
            self.end_session(worker);
            return;
        };
        let session = self.workers[worker]
            .session
            .as_mut()
            .expect("asked by the caller");
        session.state = stood.state;
        session.reading = true;
        self.assign();
        self.take_over(worker);
    }

    /// Begins to read what is this worker's and is not read yet.
    pub(super) fn take_over(&mut self, worker: usize) {
        let wanted = self.wanted(worker);
        let Some(session) = &mut self.workers[worker].session else {
            return;
        };
        let reading = session.tracks.delivered();
        let new: Vec<TopicPartition> = wanted
            .into_iter()
            .filter(|at| !reading.iter().any(|(known, _)| known == at))
            .collect();
        if new.is_empty() || !session.reading {
            return;
        }
        let stood = self.stand(worker);
        let Some(stood) = stood.filter(|stood| !stood.is_for_opening()) else {
            self.end_session(worker);
            return;
        };
        let session = self.workers[worker].session.as_mut().expect("seen above");
        for at in &new {
            session.begin(at, &stood.state);
        }
        session.state = stood.state;
    }

    /// The partitions on the table that are this worker's.
    pub(super) fn wanted(&self, worker: usize) -> Vec<TopicPartition> {
        let Some(session) = &self.workers[worker].session else {
            return Vec::new();
        };
        let mine = |at: &TopicPartition| {
            let own = self.settings.copies || self.owners.get(at) == Some(&worker);
            own && self.names(&at.topic)
        };
        known(&session.state).into_iter().filter(mine).collect()
    }

    /// The group tells a worker that others have its partitions.
    pub(super) fn notice_loss(&mut self, worker: usize) -> Found {
        self.workers[worker].lost = false;
        // What is under way ends first; the fence decides about it.
        for _ in 0..8 {
            let session = self.workers[worker].session.as_ref();
            if session.is_none_or(|session| session.under_way.is_none()) {
                break;
            }
            self.note.see(Seen::Zombie);
            self.step(worker)?;
        }
        self.end_session(worker);
        Ok(())
    }

    /// The group gives every partition an owner that runs.
    pub(super) fn assign(&mut self) {
        let running: Vec<usize> = self
            .workers
            .iter()
            .filter(|worker| worker.life == Life::Running && !worker.lost)
            .map(|worker| worker.number)
            .collect();
        if running.is_empty() {
            return;
        }
        let mut owners = BTreeMap::new();
        for topic in &self.broker.topics {
            for partition in 0..topic.logs.len() {
                let number = i32::try_from(partition).expect("a handful");
                let at = TopicPartition::new(Arc::clone(&topic.name), number);
                let kept = self.owners.get(&at).filter(|owner| running.contains(owner));
                let owner = kept.copied().unwrap_or(running[partition % running.len()]);
                owners.insert(at, owner);
            }
        }
        self.owners = owners;
    }
}
