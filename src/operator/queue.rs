//! What is to be looked at next: keyed, without repeats, fair, each failure with a back-off of its own.
//!
//! No clock and no waiting: instants come in as times since the start. A task is in at most one hand at once; one that is asked for
//! meanwhile is looked at once more afterwards, however often it was asked for.
//!
//! Fair: lanes (namespaces) take turns, so that one with thousands of pipelines does not keep the others waiting.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    hash::Hash,
    time::Duration,
};

use crate::process::clock::jittered;

/// The first delay after a failure.
const FIRST: Duration = Duration::from_secs(1);

/// The longest one.
const MOST: Duration = Duration::from_mins(5);

/// What a queue holds.
pub trait Item: Clone + Eq + Hash + Ord {
    /// Which lane it waits in.
    fn lane(&self) -> &str;
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing more to do until something changes.
    Done,
    /// To be looked at again after a while, though nothing failed.
    Again(Duration),
    /// It failed and may go well later; not before the given time, where a server asked for it.
    Failed(Option<Duration>),
}

#[derive(Debug, Default)]
struct Standing {
    /// Since when it waits for a hand.
    since: Option<Duration>,
    /// When it is due, where it is not yet.
    due: Option<Duration>,
    /// In a hand at present.
    busy: bool,
    /// Failures in a row.
    failures: u32,
}

/// A queue.
#[derive(Debug)]
pub struct Queue<T> {
    standing: HashMap<T, Standing>,
    lanes: BTreeMap<String, VecDeque<T>>,
    /// The lanes with something in them, in the order of their turns.
    turns: VecDeque<String>,
    due: BTreeSet<(Duration, T)>,
    waiting: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            standing: HashMap::new(),
            lanes: BTreeMap::new(),
            turns: VecDeque::new(),
            due: BTreeSet::new(),
            waiting: 0,
        }
    }
}

impl<T: Item> Queue<T> {
    /// Asks for a look at once. A back-off that runs is over: something has changed.
    pub fn add(&mut self, item: T, now: Duration) {
        let standing = self.standing.entry(item.clone()).or_default();
        if standing.since.is_some() {
            return;
        }
        if let Some(due) = standing.due.take() {
            self.due.remove(&(due, item.clone()));
        }
        standing.since = Some(now);
        if !standing.busy {
            self.line_up(item);
        }
    }

    /// Asks for a look at an instant, or at an earlier one that was asked for before.
    pub fn add_at(&mut self, item: T, at: Duration) {
        let standing = self.standing.entry(item.clone()).or_default();
        if standing.since.is_some() || standing.due.is_some_and(|due| due <= at) {
            return;
        }
        if let Some(due) = standing.due.replace(at) {
            self.due.remove(&(due, item.clone()));
        }
        self.due.insert((at, item));
    }

    /// The next task, and how long it has waited.
    pub fn next(&mut self, now: Duration) -> Option<(T, Duration)> {
        while self.due.first().is_some_and(|(due, _)| *due <= now) {
            let (_, item) = self.due.pop_first()?;
            if let Some(standing) = self.standing.get_mut(&item) {
                standing.due = None;
            }
            self.add(item, now);
        }
        let lane = self.turns.pop_front()?;
        let items = self.lanes.get_mut(&lane)?;
        let item = items.pop_front()?;
        if items.is_empty() {
            self.lanes.remove(&lane);
        } else {
            self.turns.push_back(lane);
        }
        self.waiting -= 1;
        let standing = self.standing.get_mut(&item)?;
        standing.busy = true;
        let waited = now.saturating_sub(standing.since.take().unwrap_or(now));
        Some((item, waited))
    }

    /// A task that [`Queue::next`] gave out has ended.
    pub fn done(&mut self, item: &T, outcome: Outcome, now: Duration) {
        let Some(standing) = self.standing.get_mut(item) else {
            return;
        };
        standing.busy = false;
        let asked_again = standing.since.is_some();
        let at = match outcome {
            Outcome::Done => {
                standing.failures = 0;
                None
            }
            Outcome::Again(after) => {
                standing.failures = 0;
                Some(now + after)
            }
            Outcome::Failed(asked_for) => {
                let doubled = FIRST
                    .saturating_mul(1 << standing.failures.min(16))
                    .min(MOST);
                standing.failures += 1;
                Some(now + jittered(doubled).max(asked_for.unwrap_or_default()))
            }
        };
        if asked_again {
            self.line_up(item.clone());
        } else if let Some(at) = at {
            self.add_at(item.clone(), at);
        } else if standing.due.is_none() {
            self.standing.remove(item);
        }
    }

    /// When the next task is due that is not due yet.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }

    /// How many tasks wait for a hand.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    fn line_up(&mut self, item: T) {
        let lane = item.lane().to_owned();
        let items = self.lanes.entry(lane.clone()).or_default();
        if items.is_empty() {
            self.turns.push_back(lane);
        }
        items.push_back(item);
        self.waiting += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    impl Item for (&'static str, u32) {
        fn lane(&self) -> &str {
            self.0
        }
    }

    type Number = (&'static str, u32);

    fn taken(queue: &mut Queue<Number>, now: Duration) -> Vec<u32> {
        std::iter::from_fn(|| queue.next(now))
            .map(|((_, number), _)| number)
            .collect()
    }

    #[test]
    fn asked_often_is_looked_at_once() {
        let mut queue = Queue::default();
        for second in 0..3 {
            queue.add(("a", 1), S(second));
        }
        assert_eq!(queue.waiting(), 1);
        assert_eq!(queue.next(S(5)), Some((("a", 1), S(5))));
        assert_eq!(queue.next(S(5)), None);
        queue.done(&("a", 1), Outcome::Done, S(6));
        assert!(queue.standing.is_empty(), "what is done takes no room");
    }

    /// Two hands on one pipeline would undo each other's work.
    #[test]
    fn asked_for_in_a_hand_is_looked_at_again_afterwards() {
        let mut queue = Queue::default();
        queue.add(("a", 1), S(0));
        queue.next(S(0)).unwrap();
        queue.add(("a", 1), S(1));
        queue.add(("a", 1), S(2));
        assert_eq!((queue.next(S(3)), queue.waiting()), (None, 0));
        queue.done(&("a", 1), Outcome::Done, S(4));
        assert_eq!(queue.next(S(5)), Some((("a", 1), S(4))));
        queue.done(&("a", 1), Outcome::Done, S(6));
        assert_eq!(queue.next(S(1000)), None);
    }

    #[test]
    fn lanes_take_turns() {
        let mut queue = Queue::default();
        for number in 1..=4 {
            queue.add(("great", number), S(0));
        }
        queue.add(("small", 10), S(0));
        queue.add(("other", 20), S(0));
        assert_eq!(taken(&mut queue, S(0)), [1, 10, 20, 2, 3, 4]);
    }

    #[test]
    fn failures_wait_longer_and_longer_and_success_forgets_them() {
        let mut queue = Queue::default();
        let mut now = S(0);
        let mut delays = Vec::new();
        queue.add(("a", 1), now);
        for _ in 0..12 {
            queue.next(now).expect("due");
            queue.done(&("a", 1), Outcome::Failed(None), now);
            let due = queue.next_due().unwrap();
            delays.push(due.saturating_sub(now));
            now = due;
        }
        for (failures, delay) in delays.iter().enumerate() {
            let whole = S(1 << failures).min(MOST);
            assert!(whole * 3 / 4 <= *delay && *delay <= whole, "{delays:?}");
        }
        queue.next(now).unwrap();
        queue.done(&("a", 1), Outcome::Again(S(60)), now);
        assert_eq!(queue.next_due(), Some(now + S(60)));
        queue.next(now + S(60)).unwrap();
        queue.done(&("a", 1), Outcome::Failed(Some(S(30))), now);
        assert_eq!(queue.next_due(), Some(now + S(30)));
    }

    #[test]
    fn change_ends_a_back_off() {
        let mut queue = Queue::default();
        queue.add(("a", 1), S(0));
        queue.next(S(0)).unwrap();
        queue.done(&("a", 1), Outcome::Failed(Some(S(100))), S(0));
        assert_eq!(queue.next(S(1)), None);
        queue.add(("a", 1), S(2));
        assert_eq!(queue.next(S(2)), Some((("a", 1), S(0))));
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn of_two_instants_the_earlier_counts() {
        let mut queue = Queue::default();
        for second in [50, 20, 90] {
            queue.add_at(("a", 1), S(second));
        }
        assert_eq!(queue.next_due(), Some(S(20)));
        assert_eq!(taken(&mut queue, S(20)), [1]);
        assert_eq!(queue.next_due(), None);
    }
}
