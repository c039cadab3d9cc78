//! What a world plays by: the rules of the house, or, in tests, one of them broken.
//!
//! The production code has no switch for a wrong rule. A world hands every answer and every derived value through here, so a
//! test can lie exactly as a wrong rule would.

use super::broker::Log;
use crate::cdc::{RowFacts, SourcePartition};
use crate::kafka::{TopicInfo, TopicPartition};
use crate::sink::errand::Errand;
use crate::sink::fence::Verdict;
use crate::watermark::{
    Advanced, AskedEnd, Asker, Contribution, Obstacle, Standing, State, TableView, stand,
};

/// The rules; each is the house's own unless a test breaks it.
pub(super) trait Rules {
    /// The answer about the end of a log.
    fn end(&mut self, _log: &Log, _max_delay_us: i64, honest: AskedEnd) -> AskedEnd {
        honest
    }

    /// The answer about the topics; `None` where the broker answered with an error.
    fn topics(&mut self, honest: Option<Vec<TopicInfo>>) -> Option<Vec<TopicInfo>> {
        honest
    }

    /// Rows on their way into the statistics, with partitions by place.
    fn rows(&mut self, _rows: &mut [RowFacts], _places: &[SourcePartition]) {}

    /// What a worker brings to a base, while it has read up to these offsets.
    fn contribution(&mut self, _news: &mut Contribution, _delivered: &[(TopicPartition, i64)]) {}

    /// Whether a worker may make a commit without data that it holds to be worth it.
    fn may_commit_empty(&mut self, _base: &State) -> bool {
        true
    }

    /// Whether what was read may go onto a base.
    fn judge(&mut self, errand: &Errand, base: &State, lost_answer: bool) -> Verdict {
        errand.judge(base, lost_answer)
    }

    /// What an attempt derived.
    fn advanced(&mut self, _news: &Contribution, honest: Advanced) -> Advanced {
        honest
    }

    /// Where a writer stands on a table.
    fn stand(&mut self, asker: &Asker<'_>, view: &TableView<'_>) -> Result<Standing, Obstacle> {
        stand(asker, view)
    }

    /// Whether a topic made anew is told from the one before.
    fn knows_topic_ids(&self) -> bool {
        true
    }
}

/// The rules of the house.
pub(super) struct Honest;

impl Rules for Honest {}
