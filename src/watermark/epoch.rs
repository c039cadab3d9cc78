//! Steps of the epoch: the only way in which a claim falls.
//!
//! A step is made in the commit of its cause. It says how far the claim goes from there, and, until the claim is back, which
//! cells are open again that had been final.
//!
//! Within an epoch no claim falls. Whoever compares two claims of a table compares their epochs first.

use super::order::{MAX_RETRACTED, Retracted};
use super::state::Published;

/// Why a claim was taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum StepCause {
    /// A topic that may be older than the claim is read from now on.
    TopicJoined = 1,
    /// The table was rolled back to an earlier commit of the writer.
    RolledBack = 2,
    /// The table's owner agreed to go on from a table that does not lead to the writer's last commit.
    LineageAccepted = 3,
    /// Another pipeline writes to the table from now on.
    WriterJoined = 4,
}

/// Cells that were final and are open again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reopened {
    /// Why.
    pub cause: StepCause,
    /// The claim right after the step; `None`: there was none.
    pub from_us: Option<i64>,
    /// The claim before it: the cells below are final again once the claim is back here.
    pub before_us: i64,
    /// When the step was made.
    pub at_us: i64,
}

impl StepCause {
    /// Every cause.
    pub const ALL: [StepCause; 4] = [
        StepCause::TopicJoined,
        StepCause::RolledBack,
        StepCause::LineageAccepted,
        StepCause::WriterJoined,
    ];

    /// The name in `tidemark.reopened`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            StepCause::TopicJoined => "topic-joined",
            StepCause::RolledBack => "rolled-back",
            StepCause::LineageAccepted => "lineage-accepted",
            StepCause::WriterJoined => "writer-joined",
        }
    }

    /// The cause of a name.
    #[must_use]
    pub fn from_label(label: &str) -> Option<StepCause> {
        StepCause::ALL
            .into_iter()
            .find(|cause| cause.label() == label)
    }

    /// The cause of a byte in the state.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<StepCause> {
        StepCause::ALL
            .into_iter()
            .find(|cause| *cause as u8 == byte)
    }
}

impl Published {
    /// Opens a new epoch that begins with this claim. What had been final above it is named as reopened, together with what
    /// an earlier step has reopened and is not final again.
    pub(super) fn step(&mut self, cause: StepCause, claim_us: Option<i64>, at_us: i64) {
        let open_us = self.reopened.map(|reopened| reopened.before_us);
        let before_us = self.finalized_before_us.max(open_us);
        self.epoch += 1;
        self.finalized_before_us = claim_us;
        if claim_us.is_none() {
            self.evidence.clear();
        }
        self.reopened = before_us
            .filter(|before_us| claim_us < Some(*before_us))
            .map(|before_us| Reopened {
                cause,
                from_us: claim_us,
                before_us,
                at_us,
            });
    }

    /// Leaves a stretch out from now on, in a new epoch.
    pub(super) fn retract(&mut self, retracted: Retracted) {
        self.epoch += 1;
        self.gaps.add(retracted.from_us, retracted.before_us);
        self.retracted.push(retracted);
        let surplus = self.retracted.len().saturating_sub(MAX_RETRACTED);
        self.retracted.drain(..surplus);
    }

    /// Forgets what was reopened once the table's claim is back.
    pub(super) fn close_reopened(&mut self, claim_us: Option<i64>) {
        self.reopened
            .take_if(|reopened| claim_us >= Some(reopened.before_us));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Table, at, policy};
    use super::*;

    fn published(claim: &str) -> Published {
        let mut published = Table::new(policy()).state.published;
        published.finalized_before_us = Some(at(claim));
        published
    }

    #[test]
    fn a_step_names_what_it_opens_until_the_claim_is_back() {
        let mut published = published("12:00");
        published.step(StepCause::TopicJoined, Some(at("09:00")), at("12:30"));
        let reopened = Reopened {
            cause: StepCause::TopicJoined,
            from_us: Some(at("09:00")),
            before_us: at("12:00"),
            at_us: at("12:30"),
        };
        assert_eq!((published.epoch, published.reopened), (2, Some(reopened)));
        published.finalized_before_us = Some(at("11:00"));
        published.close_reopened(published.finalized_before_us);
        assert_eq!(published.reopened, Some(reopened));
        published.finalized_before_us = Some(at("12:00"));
        published.close_reopened(published.finalized_before_us);
        assert_eq!(published.reopened, None);
    }

    /// Else the cells of the first step would count as final again when those of the second are.
    #[test]
    fn a_second_step_keeps_the_cells_of_the_first() {
        let mut published = published("12:00");
        published.step(StepCause::TopicJoined, Some(at("09:00")), at("12:30"));
        published.finalized_before_us = Some(at("10:00"));
        published.step(StepCause::TopicJoined, None, at("12:40"));
        let reopened = published.reopened.unwrap();
        assert_eq!((reopened.from_us, reopened.before_us), (None, at("12:00")));
        assert_eq!(published.epoch, 3);
    }

    #[test]
    fn a_step_that_takes_nothing_back_opens_nothing() {
        let mut published = published("12:00");
        published.step(StepCause::TopicJoined, Some(at("12:00")), at("12:30"));
        assert_eq!((published.epoch, published.reopened), (2, None));
    }
}
