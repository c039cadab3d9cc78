//! Every state that a model can reach, breadth first, so that what goes wrong is shown by a shortest way to it.

use std::{collections::HashMap, fmt::Debug, hash::Hash, rc::Rc};

/// What a model may do next, and where it leads.
pub(super) type Steps<M> = Vec<(<M as Model>::Action, <M as Model>::State)>;

/// Something that takes steps.
pub(super) trait Model {
    /// Where it stands; equal states are one.
    type State: Eq + Hash;
    /// What it may do.
    type Action: Debug;

    /// All steps from a state. An error is a broken promise.
    fn steps(&mut self, from: &Self::State) -> Result<Steps<Self>, String>;

    /// What holds in every state. An error is a broken promise.
    fn check(&mut self, state: &Self::State) -> Result<(), String>;
}

/// What was explored.
#[derive(Debug)]
pub(super) struct Explored {
    pub(super) states: usize,
    pub(super) steps: usize,
    /// Steps of the longest of the shortest ways.
    pub(super) depth: usize,
}

struct Seen<M: Model> {
    state: Rc<M::State>,
    from: usize,
    by: Option<M::Action>,
    depth: usize,
}

/// Explores all there is from `first`.
///
/// # Errors
/// A broken promise, with the actions that lead to it.
pub(super) fn explore<M: Model>(model: &mut M, first: M::State) -> Result<Explored, String> {
    let first = Rc::new(first);
    let mut known = HashMap::from([(Rc::clone(&first), 0)]);
    let mut seen: Vec<Seen<M>> = vec![Seen {
        state: first,
        from: 0,
        by: None,
        depth: 0,
    }];
    let (mut at, mut steps) = (0, 0);
    while at < seen.len() {
        let state = Rc::clone(&seen[at].state);
        let taken = model.check(&state).and_then(|()| model.steps(&state));
        for (action, next) in taken.map_err(|broken| way(&seen, at, &broken))? {
            steps += 1;
            let next = Rc::new(next);
            if known.contains_key(&next) {
                continue;
            }
            known.insert(Rc::clone(&next), seen.len());
            let depth = seen[at].depth + 1;
            seen.push(Seen {
                state: next,
                from: at,
                by: Some(action),
                depth,
            });
        }
        at += 1;
    }
    Ok(Explored {
        states: seen.len(),
        steps,
        depth: seen.last().map_or(0, |last| last.depth),
    })
}

fn way<M: Model>(seen: &[Seen<M>], mut at: usize, broken: &str) -> String {
    let mut actions = Vec::new();
    while let Some(action) = &seen[at].by {
        actions.push(format!("{action:?}"));
        at = seen[at].from;
    }
    actions.reverse();
    format!("{broken}\n  after: {}", actions.join("\n         "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts up by one or two, and must never be five.
    struct Counter;

    impl Model for Counter {
        type State = u8;
        type Action = u8;

        fn steps(&mut self, from: &u8) -> Result<Steps<Self>, String> {
            Ok((1..=2).map(|by| (by, (from + by) % 12)).collect())
        }

        fn check(&mut self, state: &u8) -> Result<(), String> {
            (*state != 5).then_some(()).ok_or("five".to_owned())
        }
    }

    #[test]
    fn broken_promise_comes_with_a_shortest_way_to_it() {
        let broken = explore(&mut Counter, 6).unwrap_err();
        assert_eq!(
            broken.lines().count(),
            7,
            "11 steps of 1, or 6 of 2: {broken}"
        );
        assert!(broken.starts_with("five\n"), "{broken}");
    }
}
