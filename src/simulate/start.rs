//! How a session begins: what the table and the cluster say, the anchors, and which partitions are whose.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use uuid::Uuid;

use super::broker::{Log, Topic};
use super::oracle::Found;
use super::table::Loaded;
use super::tally::Seen;
use super::worker::{Life, Session, UnderWay};
use super::world::World;
use crate::kafka::{TopicInfo, TopicPartition};
use crate::sink::errand::Errand;
use crate::sink::identity::{goes_on_at, incarnations, jump_of};
use crate::sink::question::{asked_partitions, known, partitions};
use crate::watermark::{
    Accepted, Anchor, Asker, Before, Jump, Obstacle, Opening, Origin, Standing, State, keep_offsets,
};

/// A table as a worker loaded it.
pub(super) struct Stood {
    /// The state on it; new where the writer begins.
    pub state: State,
    /// A state whose offsets are gone on from.
    pub kept: Option<Box<State>>,
    /// What waits for a commit that takes it up.
    pub opening: Option<Opening>,
    pub loaded: Rc<Loaded>,
}

impl Stood {
    /// Whether only the opening of a session may commit here.
    pub(super) fn is_for_opening(&self) -> bool {
        self.opening.is_some()
    }
}

impl World {
    /// Where a worker stands on the table; `None`: it is not one to go on from.
    pub(super) fn stand(&mut self, worker: usize) -> Option<Stood> {
        self.stand_as(self.workers[worker].pipeline, self.clock_us(worker), false)
    }

    /// Where a writer stands. `orders`: a person asks, who may order something in the name of a drained one, too.
    pub(super) fn stand_as(&mut self, pipeline: usize, now_us: i64, orders: bool) -> Option<Stood> {
        let own = &self.pipelines[pipeline];
        let asker = Asker {
            keep_offsets: self.settings.keep_offsets,
            accept: Accepted {
                table_uuid: None,
                snapshot_id: self.accepted,
            },
            ..Asker::new(own.writer, now_us)
        };
        let loaded = self.table.load(&asker, &mut *self.rules);
        if loaded.standing.as_ref().is_err_and(Obstacle::withdraws) {
            self.withdraw();
        }
        let own = &self.pipelines[pipeline];
        let standing = loaded.standing.as_ref().ok()?;
        let opening = standing.opening();
        let stood = match standing {
            Standing::Begins(beginning) => {
                let subscription = self.subscription(pipeline);
                let (identity, policy) = (own.identity(), own.policy.clone());
                Stood {
                    state: beginning.state(identity, &subscription, policy, now_us),
                    kept: beginning.kept.clone(),
                    opening,
                    loaded: Rc::clone(&loaded),
                }
            }
            Standing::GoesOn(going_on) => Stood {
                state: going_on.state.clone(),
                kept: going_on
                    .rolled_back
                    .as_ref()
                    .and_then(|rolled_back| rolled_back.kept.clone()),
                opening,
                loaded: Rc::clone(&loaded),
            },
        };
        Some(stood).filter(|stood| orders || !stood.state.published.drained)
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
        let (at_us, pipeline) = (self.clock_us(worker), self.workers[worker].pipeline);
        let topics = self.topics(pipeline);
        let Some(topics) = self.rules.topics(topics) else {
            self.end_session(worker);
            return;
        };
        let mut errand = Errand {
            opening: stood.opening,
            derived_from: Some(stood.state.commit_id),
            ..Errand::default()
        };
        // Reading goes on at these offsets, whichever commit they are of.
        let reached = stood.kept.as_deref().unwrap_or(&stood.state);
        let cuts = std::mem::take(&mut self.workers[worker].cuts);
        errand.jumps = self.jumps(reached, &topics, &cuts, at_us);
        let mut known = known(&stood.state);
        if let Some(kept) = &stood.kept {
            (errand.jumps, errand.anchors) = keep_offsets(
                (&stood.state, kept),
                errand.jumps,
                |topic| self.names(pipeline, topic),
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
        errand.retired = self.retired(pipeline, &stood.state);
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
            read: Rc::default(),
            commit_id,
            lost_answer: false,
            ready: None,
        });
    }

    /// Where reading cannot go on, and where it goes on instead.
    fn jumps(
        &self,
        reached: &State,
        topics: &[TopicInfo],
        cuts: &BTreeMap<TopicPartition, i64>,
        at_us: i64,
    ) -> Vec<Jump> {
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
            let cut = cuts.get(&at) == Some(&next);
            let Some((kind, _)) = jump_of(&at, next, log.start..log.end(), changed, cut) else {
                continue;
            };
            jumps.push(Jump {
                topic: at.topic.to_string(),
                partition: at.partition,
                kind,
                from: next,
                before: Before::of(reached, &at.topic, at.partition),
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

    /// The topics that the table or its last answer has, and the specification no longer names.
    fn retired(&self, pipeline: usize, state: &State) -> Vec<String> {
        let asked = state.asked.iter().flat_map(|asked| asked.topics.keys());
        let there: BTreeSet<&String> = state.topics.keys().chain(asked).collect();
        let gone = there.into_iter().filter(|name| !self.names(pipeline, name));
        gone.cloned().collect()
    }

    fn log_of(&self, at: &TopicPartition) -> &Log {
        let log = self.broker.find(&at.topic, at.partition);
        &self.broker.logs[log.expect("the broker named it")]
    }

    /// What the broker says of a pipeline's topics; `None`: it cannot tell now.
    pub(super) fn topics(&mut self, pipeline: usize) -> Option<Vec<TopicInfo>> {
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
        let named = self.pipelines[pipeline].topics.iter();
        let named = named.map(|topic| &self.broker.topics[*topic]);
        Some(named.map(info).collect())
    }

    pub(super) fn topics_now(&self, pipeline: usize) -> Vec<TopicInfo> {
        let info = |topic: &Topic| TopicInfo {
            name: topic.name.to_string(),
            id: Some(topic.id),
            partitions: Vec::new(),
        };
        let named = self.pipelines[pipeline].topics.iter();
        let named = named.map(|topic| &self.broker.topics[*topic]);
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
        if !self
            .retired(self.workers[worker].pipeline, &stood.state)
            .is_empty()
        {
            // What nobody reads any more can leave now that the table knows it.
            self.end_session(worker);
            return;
        }
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
        let read_on = session.state.commit_id;
        let stood = self.stand(worker);
        let is_usual = |stood: &Stood| {
            let gone = self.is_gone(stood, Some(read_on));
            !stood.is_for_opening() && !gone
        };
        let Some(stood) = stood.filter(is_usual) else {
            self.end_session(worker);
            return;
        };
        for at in new {
            let log = self.broker.find(&at.topic, at.partition);
            let log = log.expect("topics stay");
            let name = (at.topic.to_string(), at.partition);
            let held = self.oracle.held(self.table.main_id, &name);
            let cut = held.is_some_and(|(counted, next)| {
                let below = self.broker.same_below(counted, log);
                below.is_some_and(|below| next > below)
            });
            let own = &mut self.workers[worker];
            let known = stood.state.partition(&at.topic, at.partition);
            // The client compares leader epochs, those of the table and of the log.
            if let Some(known) = known.filter(|_| cut) {
                own.cuts.insert(at, known.next_offset);
                self.note.see(Seen::RowsLost);
                self.end_session(worker);
                return;
            }
            let session = own.session.as_mut().expect("seen above");
            session.begin(&at, &stood.state, log);
        }
        let session = self.workers[worker].session.as_mut().expect("seen above");
        session.state = stood.state;
    }

    /// The partitions on the table that are this worker's.
    pub(super) fn wanted(&self, worker: usize) -> Vec<TopicPartition> {
        let Some(session) = &self.workers[worker].session else {
            return Vec::new();
        };
        let mine = |at: &TopicPartition| {
            let own = self.settings.copies || self.owners.get(at) == Some(&worker);
            own && self.names(self.workers[worker].pipeline, &at.topic)
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
        let mut owners = BTreeMap::new();
        for at in 0..self.pipelines.len() {
            let running = self.workers.iter().filter(|worker| {
                worker.pipeline == at && worker.life == Life::Running && !worker.lost
            });
            let running: Vec<usize> = running.map(|worker| worker.number).collect();
            if running.is_empty() {
                continue;
            }
            for topic in &self.pipelines[at].topics {
                let topic = &self.broker.topics[*topic];
                for partition in 0..topic.logs.len() {
                    let number = i32::try_from(partition).expect("a handful");
                    let at = TopicPartition::new(Arc::clone(&topic.name), number);
                    let kept = self.owners.get(&at).filter(|owner| running.contains(owner));
                    let owner = kept.copied().unwrap_or(running[partition % running.len()]);
                    owners.insert(at, owner);
                }
            }
        }
        // Where nobody runs, whoever was the owner last is it until then.
        for (at, owner) in std::mem::take(&mut self.owners) {
            owners.entry(at).or_insert(owner);
        }
        self.owners = owners;
    }
}
