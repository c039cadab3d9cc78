//! Waves: which of the pipelines that are to change may do so now.
//!
//! One limiter for every cause of a change: the specification, a policy, the operator's own version, the image. Comes in: who is in
//! which group, who wants to change, who got ready again. Goes out: go, or wait and for what. No clock: instants come in.
//!
//! A group is what one policy with a `rollout` selects, or all that no such policy selects. A pipeline changes when each of its
//! groups has a place for it and none of them has too many that failed. One that is not ready anyway may change although others
//! have failed: that is how a failure is mended.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Task, policy_status::Wave};
use crate::api::{
    policy::RolloutSpec,
    quantity::{length, parse_length_us},
};

/// The group of the pipelines that no policy with a `rollout` selects.
pub const REST: &str = "";

/// How fast a change goes over a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many may be changing at once.
    pub max_changing: Places,
    /// How long a pipeline may take to get ready again, µs.
    pub deadline_us: i64,
    /// How many may fail before nothing more is changed.
    pub max_failed: usize,
}

/// A number of pipelines, or a share of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Places {
    /// So many.
    Number(usize),
    /// So many of a hundred, at least one; none with 0.
    Percent(usize),
}

impl Default for Limits {
    /// A tenth at once, ten minutes each, none may fail.
    fn default() -> Self {
        Self {
            max_changing: Places::Percent(10),
            deadline_us: 600_000_000,
            max_failed: 0,
        }
    }
}

impl Limits {
    /// What a policy says, over `below` where it says nothing.
    ///
    /// # Errors
    /// The field that cannot be read, its value, and what to write.
    pub fn read(spec: &RolloutSpec, below: Self) -> Result<Self, String> {
        let max_changing = spec.max_changing.as_deref().map(|text| {
            text.parse().map_err(|remedy| {
                format!("spec.rollout.maxChanging: \"{text}\" is no number of pipelines; {remedy}")
            })
        });
        let bounds = 10_000_000..=86_400_000_000;
        let deadline_us = spec.deadline.as_ref().map(|text| {
            let us = parse_length_us(&text.0).filter(|us| bounds.contains(us));
            us.ok_or_else(|| {
                let (least, most) = (length(*bounds.start()), length(*bounds.end()));
                format!("spec.rollout.deadline: \"{}\" is out of bounds; write a length from {least} to {most}", text.0)
            })
        });
        Ok(Self {
            max_changing: max_changing.transpose()?.unwrap_or(below.max_changing),
            deadline_us: deadline_us.transpose()?.unwrap_or(below.deadline_us),
            max_failed: spec
                .max_failed
                .map_or(below.max_failed, |most| most as usize),
        })
    }
}

impl std::str::FromStr for Places {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let remedy = "write a number or a share, as 20 or 5%";
        match text.strip_suffix('%') {
            None => text.parse().map(Self::Number).map_err(|_| remedy),
            Some(share) => share
                .parse()
                .ok()
                .filter(|share| *share <= 100)
                .map(Self::Percent)
                .ok_or(remedy),
        }
    }
}

impl Places {
    fn of(self, members: usize) -> usize {
        match self {
            Self::Number(number) => number,
            Self::Percent(0) => 0,
            Self::Percent(share) => (members * share / 100).max(1),
        }
    }
}

/// Why a change has to wait.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Held {
    /// As many are changing as may.
    #[error("{group}{changing} of at most {most} pipelines are changing", group = shown(.group))]
    Full {
        /// The policy; empty for the operator's own limits.
        group: String,
        /// How many are changing.
        changing: usize,
        /// How many may.
        most: usize,
    },
    /// Too many have not become ready again.
    #[error("{group}more than {most} pipelines are not ready again after their change, the first is {first}", group = shown(.group))]
    Failed {
        /// The policy; empty for the operator's own limits.
        group: String,
        /// How many may.
        most: usize,
        /// One of them.
        first: String,
    },
}

/// What is news of [`Held`] to a person: the group, and who of it has failed. How many are changing at the moment is none.
type News = (String, Option<String>);

impl Held {
    fn news(&self) -> News {
        match self {
            Self::Full { group, .. } => (group.clone(), None),
            Self::Failed { group, first, .. } => (group.clone(), Some(first.clone())),
        }
    }
}

fn shown(group: &str) -> String {
    if group == REST {
        String::new()
    } else {
        format!("policy \"{group}\": ")
    }
}

/// What is seen of a pipeline's workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Health {
    /// The workers run what they were last given.
    pub settled: bool,
    /// Rows are read and committed.
    pub ready: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Steady,
    Changing {
        until_us: i64,
        was_ready: bool,
        /// Another leader had let it go: it has its place until it is well, and none for a further change.
        adopted: bool,
    },
    Failed,
}

#[derive(Debug, Default)]
struct Member {
    /// How a person knows it.
    name: String,
    groups: Vec<String>,
    state: State,
    ready: bool,
}

#[derive(Debug, Default)]
struct Group {
    limits: Limits,
    members: usize,
    changing: usize,
    /// Who has failed, by name and uid.
    failed: BTreeSet<(String, String)>,
}

/// A task that waits for its turn.
#[derive(Debug)]
struct Waiting {
    task: Task,
    /// The pipelines that it would change.
    uids: Vec<String>,
    line: Line,
}

/// Who waits in one line goes or waits for the same: so a look at the first of each line says who goes, however many wait.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    wants: Vec<Wants>,
    /// What they were told that they wait for.
    told: News,
}

/// What a change of pipelines wants of a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Wants {
    group: String,
    /// Places beside those that they have.
    places: usize,
    /// Whether one of them is ready.
    ready: bool,
}

/// Who is changing, who has failed, who waits.
#[derive(Debug, Default)]
pub struct Rollout {
    groups: BTreeMap<String, Group>,
    /// By uid.
    members: HashMap<String, Member>,
    /// In the order in which they asked.
    waiting: BTreeMap<u64, Waiting>,
    /// The same by what they wait for.
    lines: BTreeMap<Line, BTreeSet<u64>>,
    /// Where a task stands in it.
    places: BTreeMap<Task, u64>,
    /// Where the tasks stand that would change a pipeline, by its uid.
    places_for: HashMap<String, BTreeSet<u64>>,
    asked: u64,
}

impl Rollout {
    /// With the limits of the pipelines that no policy with a `rollout` selects.
    #[must_use]
    pub fn new(rest: Limits) -> Self {
        let mut rollout = Self::default();
        rollout.set_group(REST, rest);
        rollout
    }

    /// The limits of a policy.
    pub fn set_group(&mut self, group: &str, limits: Limits) {
        self.groups.entry(group.to_owned()).or_default().limits = limits;
    }

    /// Which groups a pipeline is in; [`REST`] where there are none.
    pub fn set_member(&mut self, uid: &str, name: &str, groups: &[String]) {
        let rest = [REST.to_owned()];
        let groups = if groups.is_empty() { &rest } else { groups };
        let member = self.members.entry(uid.to_owned()).or_default();
        name.clone_into(&mut member.name);
        if member.groups == groups {
            return;
        }
        let old = std::mem::replace(&mut member.groups, groups.to_vec());
        let (name, state) = (member.name.clone(), member.state);
        for (of, enter) in [(old.as_slice(), false), (groups, true)] {
            for group in of {
                let group = self.groups.entry(group.clone()).or_default();
                step(&mut group.members, enter);
                group.count((&name, uid), state, enter);
            }
        }
        self.line_up(uid);
    }

    /// A pipeline that is gone.
    pub fn remove(&mut self, uid: &str) {
        let Some(member) = self.members.remove(uid) else {
            return;
        };
        for group in &member.groups {
            let group = self.groups.entry(group.clone()).or_default();
            step(&mut group.members, false);
            group.count((&member.name, uid), member.state, false);
        }
        self.line_up(uid);
    }

    /// Whether these pipelines may change: then they count as changing from now on.
    ///
    /// # Errors
    /// What has to be waited for; see [`Rollout::wait`].
    pub fn ask(&mut self, uids: &[String], now_us: i64) -> Result<(), Held> {
        if let Some(held) = self.hold(&self.wants(uids), &BTreeMap::new()) {
            return Err(held);
        }
        for uid in uids {
            self.begin(uid, now_us, (self.is_ready(uid), false));
        }
        Ok(())
    }

    /// A task that waits until these pipelines may change, and what it was told that it waits for; [`Rollout::released`] names it
    /// when it may ask again. It keeps its place in the line.
    pub fn wait(&mut self, task: &Task, uids: Vec<String>, held: &Held) {
        let place = if let Some(place) = self.places.get(task) {
            *place
        } else {
            self.asked += 1;
            self.asked
        };
        self.leave(place);
        for uid in &uids {
            let places = self.places_for.entry(uid.clone()).or_default();
            places.insert(place);
        }
        let line = Line {
            wants: self.wants(&uids),
            told: held.news(),
        };
        self.lines.entry(line.clone()).or_default().insert(place);
        self.places.insert(task.clone(), place);
        let task = task.clone();
        self.waiting.insert(place, Waiting { task, uids, line });
    }

    /// A task that wants no change any more.
    pub fn withdraw(&mut self, task: &Task) {
        if let Some(place) = self.places.remove(task) {
            self.leave(place);
        }
    }

    fn leave(&mut self, place: u64) {
        let Some(Waiting { uids, line, .. }) = self.waiting.remove(&place) else {
            return;
        };
        self.leave_line(&line, place);
        for uid in &uids {
            if let Some(places) = self.places_for.get_mut(uid) {
                places.remove(&place);
                if places.is_empty() {
                    self.places_for.remove(uid);
                }
            }
        }
    }

    fn leave_line(&mut self, line: &Line, place: u64) {
        if let Some(places) = self.lines.get_mut(line) {
            places.remove(&place);
            if places.is_empty() {
                self.lines.remove(line);
            }
        }
    }

    /// Puts who waits to change a pipeline into another line, where it has become another one.
    fn line_up(&mut self, uid: &str) {
        let places = self.places_for.get(uid).cloned().unwrap_or_default();
        for place in places {
            let Some(waiting) = self.waiting.get(&place) else {
                continue;
            };
            let wants = self.wants(&waiting.uids);
            if wants == waiting.line.wants {
                continue;
            }
            let old = waiting.line.clone();
            self.leave_line(&old, place);
            let line = Line { wants, ..old };
            self.lines.entry(line.clone()).or_default().insert(place);
            if let Some(waiting) = self.waiting.get_mut(&place) {
                waiting.line = line;
            }
        }
    }

    /// Whether a pipeline is ready, as far as is known: what its change is judged by.
    #[must_use]
    pub fn is_ready(&self, uid: &str) -> bool {
        self.members.get(uid).is_some_and(|member| member.ready)
    }

    /// Counts a pipeline as changing since then: another leader had let it go.
    pub fn adopt(&mut self, uid: &str, since_us: i64, was_ready: bool) {
        self.begin(uid, since_us, (was_ready, true));
    }

    fn begin(&mut self, uid: &str, since_us: i64, (was_ready, adopted): (bool, bool)) {
        let state = State::Changing {
            until_us: since_us + self.patience_us(uid),
            was_ready,
            adopted,
        };
        self.set_state(uid, state);
    }

    /// How the workers of a pipeline are doing. Says whether that ended a change or a failure.
    pub fn observe(&mut self, uid: &str, health: Health, now_us: i64) -> bool {
        let Some(member) = self.members.get_mut(uid) else {
            return false;
        };
        let before = member.state;
        member.ready = health.ready;
        let state = match before {
            State::Changing { was_ready, .. } if health.settled && (health.ready || !was_ready) => {
                State::Steady
            }
            State::Changing {
                until_us,
                was_ready,
                ..
            } if now_us >= until_us => {
                if was_ready {
                    State::Failed
                } else {
                    State::Steady
                }
            }
            State::Failed if health.ready => State::Steady,
            same => same,
        };
        self.set_state(uid, state);
        state != before
    }

    /// Until when a pipeline that is changing has time.
    #[must_use]
    pub fn deadline_us(&self, uid: &str) -> Option<i64> {
        match self.members.get(uid)?.state {
            State::Changing { until_us, .. } => Some(until_us),
            State::Steady | State::Failed => None,
        }
    }

    /// Until when the first of these pipelines has time.
    #[must_use]
    pub fn next_deadline_us(&self, uids: &[&String]) -> Option<i64> {
        let deadlines = uids.iter().filter_map(|uid| self.deadline_us(uid));
        deadlines.min()
    }

    /// How long a pipeline may take to get ready again, µs: the shortest time of its groups.
    #[must_use]
    pub fn patience_us(&self, uid: &str) -> i64 {
        let Some(member) = self.members.get(uid) else {
            return 0;
        };
        let deadlines = self.groups_of(member).map(|group| group.limits.deadline_us);
        deadlines.min().unwrap_or_default()
    }

    /// Whether a pipeline did not get ready again after its change.
    #[must_use]
    pub fn has_failed(&self, uid: &str) -> bool {
        self.members
            .get(uid)
            .is_some_and(|member| member.state == State::Failed)
    }

    /// How many tasks wait for their turn.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// How far changes have got over the pipelines of each policy with a `rollout`.
    #[must_use]
    pub fn waves(&self) -> BTreeMap<String, Wave> {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let mut waves: BTreeMap<String, Wave> = self
            .groups
            .iter()
            .filter(|(name, _)| *name != REST)
            .map(|(name, group)| {
                let failed = if group.has_failed() {
                    group.failed.iter().map(|(name, _)| name.clone()).collect()
                } else {
                    BTreeSet::new()
                };
                let wave = Wave {
                    changing: count(group.changing),
                    pending: 0,
                    failed,
                };
                (name.clone(), wave)
            })
            .collect();
        let waiting = self.waiting.values().flat_map(|waiting| &waiting.uids);
        for member in waiting.filter_map(|uid| self.members.get(uid)) {
            for name in &member.groups {
                if let Some(wave) = waves.get_mut(name) {
                    wave.pending = wave.pending.saturating_add(1);
                }
            }
        }
        waves
    }

    /// Which waiting tasks are to ask again, in the order in which they first asked: as many as there are places for, and those
    /// that wait for something else by now than they were told.
    #[must_use]
    pub fn released(&self) -> Vec<Task> {
        let (mut taken, none) = (BTreeMap::<&str, usize>::new(), BTreeMap::new());
        // Who is first in each line, the first of all first.
        let mut heads: BTreeMap<u64, &Line> = self
            .lines
            .iter()
            .filter_map(|(line, places)| Some((*places.first()?, line)))
            .collect();
        let mut released = BTreeSet::new();
        while let Some((place, line)) = heads.pop_first() {
            let places = &self.lines[line];
            if self.hold(&line.wants, &taken).is_some() {
                // So are all behind it: places only become fewer.
                let now = self.hold(&line.wants, &none);
                if now.is_some_and(|now| now.news() != line.told) {
                    released.extend(places.range(place..));
                }
                continue;
            }
            for wants in &line.wants {
                *taken.entry(wants.group.as_str()).or_default() += wants.places;
            }
            released.insert(place);
            let next = places.range(place + 1..).next();
            heads.extend(next.map(|next| (*next, line)));
        }
        let released = released.iter().filter_map(|place| self.waiting.get(place));
        released.map(|waiting| waiting.task.clone()).collect()
    }

    fn groups_of<'a>(&'a self, member: &'a Member) -> impl Iterator<Item = &'a Group> {
        member
            .groups
            .iter()
            .filter_map(|name| self.groups.get(name))
    }

    /// What a change of these pipelines wants, by group.
    fn wants(&self, uids: &[String]) -> Vec<Wants> {
        let mut wants = BTreeMap::<&String, (usize, bool)>::new();
        for member in uids.iter().filter_map(|uid| self.members.get(uid)) {
            for group in &member.groups {
                let (places, ready) = wants.entry(group).or_default();
                *places += usize::from(!member.has_place());
                *ready |= member.ready;
            }
        }
        let wants = wants.into_iter().map(|(group, (places, ready))| Wants {
            group: group.clone(),
            places,
            ready,
        });
        wants.collect()
    }

    /// What holds a change that wants this; `taken`: places that others are about to take.
    fn hold(&self, wants: &[Wants], taken: &BTreeMap<&str, usize>) -> Option<Held> {
        wants.iter().find_map(|wants| {
            let name = wants.group.as_str();
            let group = self.groups.get(name)?;
            let most = group.limits.max_changing.of(group.members);
            let changing = group.changing + taken.get(name).copied().unwrap_or_default();
            // Pipelines that share pods change together, even where they are more than there are places.
            let fits = changing + wants.places <= most || (changing == 0 && most > 0);
            if !fits && wants.places > 0 {
                return Some(Held::Full {
                    group: name.to_owned(),
                    changing,
                    most,
                });
            }
            let (first, _) = group.failed.first()?;
            (wants.ready && group.has_failed()).then(|| Held::Failed {
                group: name.to_owned(),
                most: group.limits.max_failed,
                first: first.clone(),
            })
        })
    }

    fn set_state(&mut self, uid: &str, state: State) {
        let Some(member) = self.members.get_mut(uid) else {
            return;
        };
        let before = std::mem::replace(&mut member.state, state);
        if before != state {
            for name in &member.groups {
                let group = self.groups.entry(name.clone()).or_default();
                group.count((&member.name, uid), before, false);
                group.count((&member.name, uid), state, true);
            }
        }
        self.line_up(uid);
    }
}

impl Member {
    /// Whether it may change without a further place: it is changing already, and if another leader had let it go, it can be
    /// mended so.
    fn has_place(&self) -> bool {
        match self.state {
            State::Changing { adopted, .. } => !adopted || !self.ready,
            State::Steady | State::Failed => false,
        }
    }
}

impl Group {
    fn count(&mut self, (name, uid): (&str, &str), state: State, enter: bool) {
        let failed = || (name.to_owned(), uid.to_owned());
        match state {
            State::Steady => {}
            State::Changing { .. } => step(&mut self.changing, enter),
            State::Failed if enter => drop(self.failed.insert(failed())),
            State::Failed => drop(self.failed.remove(&failed())),
        }
    }

    /// Whether more have failed than may.
    fn has_failed(&self) -> bool {
        self.failed.len() > self.limits.max_failed
    }
}

fn step(count: &mut usize, up: bool) {
    *count = if up {
        *count + 1
    } else {
        count.saturating_sub(1)
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::Key;

    const MINUTE_US: i64 = 60_000_000;
    const READY: Health = Health {
        settled: true,
        ready: true,
    };
    const BROKEN: Health = Health {
        settled: true,
        ready: false,
    };

    fn task(name: &str) -> Task {
        Task::Pipeline(Key::new("shop", name))
    }

    fn limits(text: &str) -> Limits {
        Limits::read(&serde_yaml::from_str(text).unwrap(), Limits::default()).unwrap()
    }

    /// So many ready pipelines, each with its number as uid and name.
    fn fleet(count: usize, limits: Limits) -> Rollout {
        let mut rollout = Rollout::new(limits);
        for number in 0..count {
            let uid = number.to_string();
            rollout.set_member(&uid, &uid, &[]);
            rollout.observe(&uid, READY, 0);
        }
        rollout
    }

    fn ask(rollout: &mut Rollout, uid: &str, now_us: i64) -> Result<(), Held> {
        ask_for(rollout, uid, &[uid.to_owned()], now_us)
    }

    /// As a task does: it waits, or waits no longer.
    fn ask_for(
        rollout: &mut Rollout,
        name: &str,
        uids: &[String],
        now_us: i64,
    ) -> Result<(), Held> {
        let asked = rollout.ask(uids, now_us);
        match &asked {
            Ok(()) => rollout.withdraw(&task(name)),
            Err(held) => rollout.wait(&task(name), uids.to_vec(), held),
        }
        asked
    }

    #[test]
    fn limits_are_read_over_those_below() {
        let expected = Limits {
            max_changing: Places::Number(20),
            deadline_us: 90_000_000,
            max_failed: 2,
        };
        assert_eq!(
            limits("{maxChanging: '20', deadline: 90s, maxFailed: 2}"),
            expected
        );
        assert_eq!(limits("{}"), Limits::default());
        let wrong = serde_yaml::from_str("{deadline: 1s}").unwrap();
        let told = Limits::read(&wrong, Limits::default()).unwrap_err();
        assert_eq!(
            told,
            "spec.rollout.deadline: \"1s\" is out of bounds; write a length from 10s to 1d"
        );
        for (text, of_30) in [("5%", 1), ("20%", 6), ("0%", 0), ("0", 0), ("7", 7)] {
            assert_eq!(text.parse::<Places>().unwrap().of(30), of_30, "{text}");
        }
        assert!("101%".parse::<Places>().is_err());
    }

    /// The status of a policy says how far a change has got, and who stops it.
    #[test]
    fn waves_of_policies_are_counted() {
        let mut rollout = fleet(1, Limits::default());
        rollout.set_group("slow", limits("{maxChanging: '2', deadline: 5m}"));
        let uids = ["a", "b", "c", "d"];
        for uid in uids {
            rollout.set_member(uid, uid, &["slow".to_owned()]);
            rollout.observe(uid, READY, 0);
        }
        let asked = uids.map(|uid| ask(&mut rollout, uid, 0).is_ok());
        assert_eq!(asked, [true, true, false, false]);
        let waves = |changing, pending, failed: &[&str]| {
            let failed = failed.iter().map(|name| (*name).to_owned()).collect();
            let wave = Wave {
                changing,
                pending,
                failed,
            };
            BTreeMap::from([("slow".to_owned(), wave)])
        };
        assert_eq!(rollout.waves(), waves(2, 2, &[]));
        rollout.observe("a", READY, MINUTE_US);
        rollout.observe("b", BROKEN, 5 * MINUTE_US);
        assert_eq!(rollout.waves(), waves(0, 2, &["b"]));
    }

    #[test]
    fn wave_goes_on_as_the_changed_get_ready_again() {
        let mut rollout = fleet(10, limits("{maxChanging: 20%}"));
        assert_eq!(
            (ask(&mut rollout, "0", 0), ask(&mut rollout, "1", 0)),
            (Ok(()), Ok(()))
        );
        let full = Held::Full {
            group: String::new(),
            changing: 2,
            most: 2,
        };
        assert_eq!(full.to_string(), "2 of at most 2 pipelines are changing");
        assert_eq!(ask(&mut rollout, "2", 0), Err(full.clone()));
        assert_eq!(ask(&mut rollout, "3", 0), Err(full));
        assert_eq!(rollout.released(), []);
        // The new settings are not in force yet: ready means nothing.
        assert!(!rollout.observe(
            "0",
            Health {
                settled: false,
                ready: true
            },
            MINUTE_US
        ));
        assert!(rollout.observe("0", READY, MINUTE_US));
        assert_eq!(rollout.released(), [task("2")]);
        assert_eq!(ask(&mut rollout, "2", MINUTE_US), Ok(()));
        assert_eq!((rollout.released(), rollout.waiting()), (vec![], 1));
    }

    #[test]
    fn one_that_fails_stops_the_wave_until_it_is_ready() {
        let mut rollout = fleet(100, limits("{deadline: 5m}"));
        ask(&mut rollout, "0", 0).unwrap();
        assert_eq!(rollout.deadline_us("0"), Some(5 * MINUTE_US));
        rollout.observe("0", BROKEN, 4 * MINUTE_US);
        ask(&mut rollout, "1", 0).unwrap();
        assert!(rollout.observe("0", BROKEN, 5 * MINUTE_US));
        let held = ask(&mut rollout, "2", 0).unwrap_err();
        let told = "more than 0 pipelines are not ready again after their change, the first is 0";
        assert_eq!(held.to_string(), told);
        assert!(rollout.observe("0", READY, 6 * MINUTE_US));
        assert_eq!(rollout.released(), [task("2")]);
    }

    /// A pipeline says what it waits for: a place at first, and then the one that has failed.
    #[test]
    fn whoever_waits_asks_again_once_it_waits_for_something_else() {
        let mut rollout = fleet(10, limits("{maxChanging: '2', deadline: 5m}"));
        for uid in ["0", "1"] {
            ask(&mut rollout, uid, 0).unwrap();
        }
        let full = ask(&mut rollout, "2", 0).unwrap_err();
        assert!(matches!(full, Held::Full { .. }));
        assert!(rollout.observe("0", BROKEN, 5 * MINUTE_US));
        assert_eq!(rollout.released(), [task("2")]);
        let failed = ask(&mut rollout, "2", 5 * MINUTE_US).unwrap_err();
        let told = "more than 0 pipelines are not ready again after their change, the first is 0";
        assert_eq!(failed.to_string(), told);
        // It has been told so: once is enough.
        assert_eq!(rollout.released(), []);
        assert!(rollout.observe("1", BROKEN, 5 * MINUTE_US));
        assert_eq!(rollout.released(), []);
        // Another one is the first that has failed.
        assert!(rollout.observe("0", READY, 6 * MINUTE_US));
        assert_eq!(rollout.released(), [task("2")]);
    }

    /// What [`Rollout::released`] says without looking at each who waits.
    fn released_one_by_one(rollout: &Rollout) -> Vec<Task> {
        let (mut taken, none) = (BTreeMap::<&str, usize>::new(), BTreeMap::new());
        let mut released = Vec::new();
        for Waiting { task, uids, line } in rollout.waiting.values() {
            let wants = rollout.wants(uids);
            assert_eq!(wants, line.wants, "{task} stands in its line");
            if rollout.hold(&wants, &taken).is_some() {
                let now = rollout.hold(&wants, &none);
                let is_news = now.is_some_and(|now| now.news() != line.told);
                released.extend(is_news.then(|| task.clone()));
                continue;
            }
            for wants in &line.wants {
                *taken.entry(wants.group.as_str()).or_default() += wants.places;
            }
            released.push(task.clone());
        }
        released
    }

    /// Ten thousand who wait must not each be asked whenever one place becomes free.
    #[test]
    fn first_of_each_line_speaks_for_those_behind_it() {
        let groups: [Vec<String>; 3] = [
            vec![],
            vec!["a".to_owned()],
            vec!["a".to_owned(), "b".to_owned()],
        ];
        for seed in 0..40 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut rollout = fleet(0, limits("{maxChanging: 20%, maxFailed: 1}"));
            rollout.set_group("a", limits("{maxChanging: '3', deadline: 5m}"));
            rollout.set_group("b", limits("{maxChanging: '2', maxFailed: 1}"));
            for step in 0..400 {
                let uid = random.u32(0..30).to_string();
                let now_us = i64::from(step) * MINUTE_US / 4;
                match random.u32(0..10) {
                    0 => {
                        let groups = random.choice(&groups).unwrap();
                        rollout.set_member(&uid, &uid, groups);
                    }
                    1 => rollout.remove(&uid),
                    2 => rollout.withdraw(&task(&uid)),
                    3..6 => {
                        let health = random.choice([READY, BROKEN, Health::default()]).unwrap();
                        rollout.observe(&uid, health, now_us);
                    }
                    6 => rollout.adopt(&uid, now_us, true),
                    _ => {
                        let uids: Vec<String> = (0..random.u32(1..4))
                            .map(|_| random.u32(0..30).to_string())
                            .collect();
                        let _ = ask_for(&mut rollout, &uid, &uids, now_us);
                    }
                }
                assert_eq!(rollout.released(), released_one_by_one(&rollout), "{seed}");
            }
            for name in 0..30 {
                rollout.withdraw(&task(&name.to_string()));
            }
            assert!(rollout.lines.is_empty() && rollout.places_for.is_empty());
        }
    }

    /// Else a wrong change could never be mended.
    #[test]
    fn one_that_is_not_ready_may_be_changed_although_others_failed() {
        let mut rollout = fleet(10, limits("{maxChanging: '5'}"));
        ask(&mut rollout, "0", 0).unwrap();
        rollout.observe("0", BROKEN, 60 * MINUTE_US);
        assert!(rollout.has_failed("0"));
        assert!(ask(&mut rollout, "1", 0).is_err());
        assert_eq!(ask(&mut rollout, "0", 0), Ok(()));
        // The failure is on its way to be mended: the others go on.
        assert_eq!(rollout.released(), [task("1")]);
    }

    #[test]
    fn one_that_was_not_ready_before_cannot_fail() {
        let mut rollout = fleet(10, Limits::default());
        rollout.observe("0", BROKEN, 0);
        ask(&mut rollout, "0", 0).unwrap();
        rollout.observe("0", Health::default(), 60 * MINUTE_US);
        assert!(!rollout.has_failed("0"));
        assert_eq!(ask(&mut rollout, "1", 0), Ok(()));
    }

    #[test]
    fn every_group_of_a_pipeline_needs_a_place() {
        let mut rollout = fleet(0, Limits::default());
        rollout.set_group("stop", limits("{maxChanging: '0'}"));
        rollout.set_group("go", limits("{maxChanging: '9'}"));
        rollout.set_member("0", "0", &["go".into(), "stop".into()]);
        rollout.set_member("1", "1", &["go".into()]);
        let told = ask(&mut rollout, "0", 0).unwrap_err().to_string();
        assert_eq!(
            told,
            "policy \"stop\": 0 of at most 0 pipelines are changing"
        );
        assert_eq!(ask(&mut rollout, "1", 0), Ok(()));
        rollout.set_member("0", "0", &["go".into()]);
        assert_eq!(rollout.released(), [task("0")]);
    }

    #[test]
    fn pipelines_that_share_pods_change_together() {
        let mut rollout = fleet(30, limits("{maxChanging: 10%}"));
        let pods =
            |range: std::ops::Range<usize>| range.map(|uid| uid.to_string()).collect::<Vec<_>>();
        assert_eq!(ask_for(&mut rollout, "a", &pods(0..10), 0), Ok(()));
        assert!(ask_for(&mut rollout, "b", &pods(10..20), 0).is_err());
        for uid in 0..10 {
            assert_eq!(rollout.released(), []);
            rollout.observe(&uid.to_string(), READY, 0);
        }
        assert_eq!(rollout.released(), [task("b")]);
    }

    #[test]
    fn what_is_gone_takes_no_place() {
        let mut rollout = fleet(2, limits("{maxChanging: '1'}"));
        ask(&mut rollout, "0", 0).unwrap();
        assert!(ask(&mut rollout, "1", 0).is_err());
        rollout.remove("0");
        assert_eq!(rollout.released(), [task("1")]);
        rollout.withdraw(&task("1"));
        assert_eq!(rollout.waiting(), 0);
    }

    /// A new leader learns from the children what the last one had let go.
    #[test]
    fn change_of_another_leader_keeps_its_deadline() {
        let mut rollout = fleet(10, limits("{maxChanging: '1', deadline: 5m}"));
        rollout.adopt("0", -2 * MINUTE_US, true);
        assert!(ask(&mut rollout, "1", 0).is_err());
        assert_eq!(rollout.deadline_us("0"), Some(3 * MINUTE_US));
    }

    /// Else whatever was changed lately would change again all at once under a new leader.
    #[test]
    fn change_of_another_leader_gives_no_place_for_a_further_one() {
        let mut rollout = fleet(10, limits("{maxChanging: '2', deadline: 5m}"));
        for uid in 0..10 {
            rollout.adopt(&uid.to_string(), 0, true);
        }
        assert!(ask(&mut rollout, "0", 0).is_err());
        // One that is not well may be mended at once.
        rollout.observe("1", BROKEN, 0);
        assert_eq!(ask(&mut rollout, "1", 0), Ok(()));
        for uid in 2..10 {
            rollout.observe(&uid.to_string(), READY, 0);
        }
        assert_eq!(rollout.released(), []);
        rollout.observe("0", READY, 0);
        assert_eq!(rollout.released(), [task("0")]);
    }
}
