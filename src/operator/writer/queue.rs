//! What waits to be written: of each object the last value only, in a list of bounded length.
//!
//! Pure. A change of a condition goes first, because people and alarms wait for it; every fourth turn is the others', so that a
//! flood of the ones cannot keep the others waiting for good. Of one object no two writes are under way at once.

use std::collections::{BTreeMap, HashMap, HashSet};

/// How urgent a write is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// A condition has changed.
    Condition,
    /// A claim has risen, or anything else.
    Usual,
}

/// What became of a value that was handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It waits.
    Queued,
    /// It took the place of one that waited.
    Merged,
    /// The list is full: it is lost, and has to be derived again.
    Dropped,
}

/// The list, by the uid of the objects.
#[derive(Debug)]
pub(super) struct Queue<T> {
    most: usize,
    turn: u64,
    next: u64,
    waiting: HashMap<String, Waiting<T>>,
    order: BTreeMap<(Urgency, u64), String>,
    under_way: HashSet<String>,
}

#[derive(Debug)]
struct Waiting<T> {
    place: (Urgency, u64),
    value: T,
}

impl<T> Queue<T> {
    /// An empty list for at most this many objects.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            turn: 0,
            next: 0,
            waiting: HashMap::new(),
            order: BTreeMap::new(),
            under_way: HashSet::new(),
        }
    }

    /// Hands a value in. One that waits for the same object is replaced and keeps its place; the greater urgency counts.
    pub(super) fn put(&mut self, uid: &str, urgency: Urgency, value: T) -> Taken {
        if let Some(waiting) = self.waiting.get_mut(uid) {
            waiting.value = value;
            let place = (waiting.place.0.min(urgency), waiting.place.1);
            if place != waiting.place && self.order.remove(&waiting.place).is_some() {
                self.order.insert(place, uid.to_owned());
            }
            waiting.place = place;
            return Taken::Merged;
        }
        if self.waiting.len() >= self.most {
            return Taken::Dropped;
        }
        let place = (urgency, self.next);
        self.next += 1;
        self.waiting
            .insert(uid.to_owned(), Waiting { place, value });
        // What waits for the write under way is in no order yet.
        if !self.under_way.contains(uid) {
            self.order.insert(place, uid.to_owned());
        }
        Taken::Queued
    }

    /// The same, but a value that came in later stays: for one whose write has failed.
    pub(super) fn put_back(&mut self, uid: &str, urgency: Urgency, value: T) {
        if !self.waiting.contains_key(uid) {
            let _ = self.put(uid, urgency, value);
        }
    }

    /// The next value; its object is under way until [`Queue::done`].
    pub(super) fn take(&mut self) -> Option<(String, T)> {
        self.turn = self.turn.wrapping_add(1);
        let usual = self.order.range((Urgency::Usual, 0)..).next();
        let first = self.order.first_key_value();
        let chosen = if self.turn.is_multiple_of(4) {
            usual.or(first)
        } else {
            first
        };
        let place = *chosen?.0;
        let uid = self.order.remove(&place)?;
        let waiting = self.waiting.remove(&uid)?;
        self.under_way.insert(uid.clone());
        Some((uid, waiting.value))
    }

    /// The write of an object has ended.
    pub(super) fn done(&mut self, uid: &str) {
        self.under_way.remove(uid);
        if let Some(waiting) = self.waiting.get(uid) {
            self.order.insert(waiting.place, uid.to_owned());
        }
    }

    /// Forgets what waits, and says what that was.
    pub(super) fn clear(&mut self) -> Vec<T> {
        self.order.clear();
        self.waiting
            .drain()
            .map(|(_, waiting)| waiting.value)
            .collect()
    }

    /// How many objects wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether anything can be taken.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drain(queue: &mut Queue<u32>) -> Vec<(String, u32)> {
        let mut taken = Vec::new();
        while let Some((uid, value)) = queue.take() {
            queue.done(&uid);
            taken.push((uid, value));
        }
        taken
    }

    #[test]
    fn last_value_of_an_object_wins_and_keeps_its_place() {
        let mut queue = Queue::new(10);
        assert_eq!(queue.put("a", Urgency::Usual, 1), Taken::Queued);
        assert_eq!(queue.put("b", Urgency::Usual, 2), Taken::Queued);
        assert_eq!(queue.put("a", Urgency::Usual, 3), Taken::Merged);
        assert_eq!(drain(&mut queue), [("a".into(), 3), ("b".into(), 2)]);
    }

    #[test]
    fn condition_goes_first_and_every_fourth_turn_is_the_others() {
        let mut queue = Queue::new(100);
        for at in 0..3 {
            let _ = queue.put(&format!("usual-{at}"), Urgency::Usual, at);
        }
        for at in 0..6 {
            let _ = queue.put(&format!("condition-{at}"), Urgency::Condition, at);
        }
        let order: Vec<String> = drain(&mut queue).into_iter().map(|(uid, _)| uid).collect();
        assert_eq!(order[..3], ["condition-0", "condition-1", "condition-2"]);
        assert_eq!(order[3], "usual-0");
        assert_eq!(order[4..7], ["condition-3", "condition-4", "condition-5"]);
    }

    /// A value that waits because of its claim moves up when a condition is added to it, and never down.
    #[test]
    fn greater_urgency_counts() {
        let mut queue = Queue::new(10);
        let _ = queue.put("a", Urgency::Usual, 1);
        let _ = queue.put("b", Urgency::Condition, 2);
        let _ = queue.put("c", Urgency::Usual, 3);
        let _ = queue.put("c", Urgency::Condition, 4);
        let _ = queue.put("b", Urgency::Usual, 5);
        let order: Vec<u32> = drain(&mut queue)
            .into_iter()
            .map(|(_, value)| value)
            .collect();
        assert_eq!(order, [5, 4, 1]);
    }

    #[test]
    fn full_list_takes_known_objects_only() {
        let mut queue = Queue::new(1);
        let _ = queue.put("a", Urgency::Usual, 1);
        assert_eq!(queue.put("b", Urgency::Condition, 2), Taken::Dropped);
        assert_eq!(queue.put("a", Urgency::Usual, 3), Taken::Merged);
        assert_eq!(queue.clear(), [3]);
        assert!(queue.is_empty());
    }

    #[test]
    fn object_under_way_is_not_taken_twice() {
        let mut queue = Queue::new(10);
        let _ = queue.put("a", Urgency::Usual, 1);
        let _ = queue.take().unwrap();
        let _ = queue.put("a", Urgency::Condition, 2);
        assert_eq!(queue.take(), None);
        queue.put_back("a", Urgency::Usual, 1);
        queue.done("a");
        assert_eq!(queue.take(), Some(("a".into(), 2)), "the later value stays");
    }

    proptest! {
        /// Nothing is lost, nothing is written twice, and the last value is the one that is written.
        #[test]
        fn prop_every_object_is_written_with_its_last_value(
            puts in prop::collection::vec((0..8_u8, any::<bool>(), any::<bool>()), 0..200),
        ) {
            let mut queue = Queue::new(8);
            let mut expected: HashMap<String, u32> = HashMap::new();
            let mut written: HashMap<String, u32> = HashMap::new();
            let mut busy: Vec<String> = Vec::new();
            for (value, (uid, is_condition, takes)) in (0_u32..).zip(puts) {
                let uid = uid.to_string();
                let urgency = if is_condition { Urgency::Condition } else { Urgency::Usual };
                prop_assert_ne!(queue.put(&uid, urgency, value), Taken::Dropped);
                expected.insert(uid, value);
                if takes {
                    if let Some((uid, value)) = queue.take() {
                        prop_assert!(!busy.contains(&uid));
                        written.insert(uid.clone(), value);
                        busy.push(uid);
                    } else if let Some(uid) = busy.pop() {
                        queue.done(&uid);
                    }
                }
            }
            for uid in &busy {
                queue.done(uid);
            }
            written.extend(drain(&mut queue));
            prop_assert_eq!(written, expected);
        }
    }
}
