//! How many rows are still to be read, in steps.
//!
//! What is behind a table swings with every commit between nothing and all that came since the one before. Shown as it is, it
//! would cross a step with every commit; shown is therefore the step of the greatest lag of the last minutes. It rises at once
//! and falls when the window has passed.

/// Half of the window: a step falls five to ten minutes after the lag did.
const HALF_US: i64 = 5 * 60 * 1_000_000;

/// The steps: the least lag that is above each, and its name.
const STEPS: [(u64, &str); 6] = [
    (1, "0"),
    (1_000, "<1k"),
    (10_000, "<10k"),
    (100_000, "<100k"),
    (1_000_000, "<1M"),
    (10_000_000, "<10M"),
];

const BEYOND: &str = ">=10M";

/// The greatest lag of the last minutes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LagWindow {
    began_us: Option<i64>,
    half_us: i64,
    here: Option<u64>,
    before: Option<u64>,
}

impl LagWindow {
    /// Takes a lag in.
    pub(super) fn observe(&mut self, offsets: u64, at_us: i64) {
        if self.began_us.is_none() {
            self.began_us = Some(at_us);
            self.half_us = at_us;
        }
        match at_us.saturating_sub(self.half_us) / HALF_US {
            i64::MIN..=0 => {}
            1 => {
                self.before = self.here.take();
                self.half_us += HALF_US;
            }
            _ => {
                (self.before, self.here) = (None, None);
                self.half_us = at_us;
            }
        }
        self.here = self.here.max(Some(offsets));
    }

    /// The step to show where `old` was shown before. Until the window is whole it does not fall: whoever begins to look may look
    /// right after a commit.
    pub(super) fn step(&self, old: Option<&str>, now_us: i64) -> Option<String> {
        let Some(peak) = self.here.max(self.before) else {
            return old.map(str::to_owned);
        };
        let (new, whole_us) = (rank(label(peak)), 2 * HALF_US);
        let is_whole = self
            .began_us
            .is_some_and(|began_us| now_us.saturating_sub(began_us) >= whole_us);
        match old.map(rank) {
            Some(old) if old > new && !is_whole => Some(name(old).to_owned()),
            _ => Some(name(new).to_owned()),
        }
    }
}

fn label(offsets: u64) -> &'static str {
    let step = STEPS.iter().find(|(above, _)| offsets < *above);
    step.map_or(BEYOND, |(_, label)| label)
}

/// An unknown name is below all steps: it is replaced.
fn rank(label: &str) -> Option<usize> {
    let names = STEPS.iter().map(|(_, name)| *name).chain([BEYOND]);
    names.into_iter().position(|name| name == label)
}

fn name(rank: Option<usize>) -> &'static str {
    rank.and_then(|rank| STEPS.get(rank))
        .map_or(BEYOND, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: i64 = 1_000_000;

    #[test]
    fn steps_are_those_of_the_field() {
        let steps = [
            (0, "0"),
            (1, "<1k"),
            (999, "<1k"),
            (1_000, "<10k"),
            (99_999, "<100k"),
            (999_999, "<1M"),
            (1_000_000, "<10M"),
            (10_000_000, ">=10M"),
            (u64::MAX, ">=10M"),
        ];
        for (offsets, step) in steps {
            assert_eq!(label(offsets), step, "{offsets}");
        }
    }

    /// A pipeline that commits every minute has no lag right after a commit and a minute's rows right before the next.
    #[test]
    fn swing_between_two_commits_is_one_step() {
        let (mut window, mut shown) = (LagWindow::default(), None);
        let mut changes = 0;
        for second in 0..3600 {
            let now_us = second * SECOND_US;
            window.observe(u64::try_from(second % 60).unwrap() * 100, now_us);
            let step = window.step(shown.as_deref(), now_us);
            changes += usize::from(step != shown);
            shown = step;
        }
        assert_eq!(shown.as_deref(), Some("<10k"));
        assert_eq!(changes, 3, "0, <1k, <10k");
    }

    #[test]
    fn step_falls_when_the_window_has_passed() {
        let mut window = LagWindow::default();
        window.observe(5_000, 0);
        let mut fell = None;
        for second in 1..1_200 {
            window.observe(0, second * SECOND_US);
            let step = window.step(Some("<10k"), second * SECOND_US);
            if step.as_deref() == Some("0") {
                fell = fell.or(Some(second));
            }
        }
        let fell = fell.expect("it falls");
        assert!((300..=600).contains(&fell), "after {fell} s");
    }

    /// A new leader starts with what the one before has said.
    #[test]
    fn window_that_is_not_whole_takes_nothing_back() {
        let mut window = LagWindow::default();
        assert_eq!(window.step(Some("<10k"), 0).as_deref(), Some("<10k"));
        window.observe(0, 0);
        assert_eq!(window.step(Some("<10k"), 0).as_deref(), Some("<10k"));
        assert_eq!(window.step(None, 0).as_deref(), Some("0"));
        window.observe(20_000, SECOND_US);
        assert_eq!(
            window.step(Some("<10k"), SECOND_US).as_deref(),
            Some("<100k")
        );
    }
}
