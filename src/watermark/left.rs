//! Topics that have left, and where reading them goes on should they come back.
//!
//! Their rows are on the table: read from its first record again, a topic would be there twice. So its id and the next offset of each
//! of its partitions stay in the state when it leaves, until it is back.
//!
//! The list is bounded. What it cannot hold is forgotten, topics that the broker no longer named first: the id of a deleted topic
//! never comes back. That any other was forgotten is remembered, and from then on no topic joins unseen.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::contract::left_text;

/// The most bytes that the list takes in a summary.
pub const MAX_LEFT: usize = 4096;

/// The topics that have left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    topics: BTreeMap<String, LeftTopic>,
    forgotten: bool,
}

/// A topic that has left, wholly or in part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftTopic {
    /// Its id, where the broker told one.
    pub id: Option<Uuid>,
    /// When it left.
    pub at_us: i64,
    /// Whether the broker no longer named it; else the specification did not.
    pub gone: bool,
    /// How far its partitions had got, the least of them; `None`: of one it was unknown.
    pub reached_us: Option<i64>,
    /// Where its partitions go on.
    pub partitions: BTreeMap<i32, LeftPartition>,
}

/// Where a partition that has left goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftPartition {
    /// The offset of the next record that is not in the table.
    pub next_offset: i64,
    /// The leader epoch of the record before that offset, where it is known.
    pub leader_epoch: Option<i32>,
}

impl Left {
    /// What was written down.
    #[must_use]
    pub fn of(topics: BTreeMap<String, LeftTopic>, forgotten: bool) -> Self {
        Left { topics, forgotten }
    }

    /// The topics by name.
    #[must_use]
    pub fn topics(&self) -> &BTreeMap<String, LeftTopic> {
        &self.topics
    }

    /// Whether some have left that are not in the list.
    #[must_use]
    pub fn forgotten(&self) -> bool {
        self.forgotten
    }

    /// Whether nothing has ever left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty() && !self.forgotten
    }

    /// Where a partition of this incarnation of a topic left; `None`: it did not.
    #[must_use]
    pub fn next_offset(&self, topic: &str, id: Option<Uuid>, partition: i32) -> Option<i64> {
        let left = self.topics.get(topic).filter(|left| left.is(id))?;
        let partition = left.partitions.get(&partition)?;
        Some(partition.next_offset)
    }

    /// A partition leaves. `topic`: what is known of its topic, with the frontier of this partition and no partitions.
    pub(super) fn take(
        &mut self,
        name: &str,
        topic: &LeftTopic,
        (partition, next): (i32, LeftPartition),
    ) {
        let left = self
            .topics
            .entry(name.to_owned())
            .and_modify(|left| {
                if !left.is(topic.id) {
                    *left = topic.clone();
                }
            })
            .or_insert_with(|| topic.clone());
        left.at_us = left.at_us.max(topic.at_us);
        left.gone &= topic.gone;
        left.reached_us = left.reached_us.zip(topic.reached_us).map(|(a, b)| a.min(b));
        left.partitions.insert(partition, next);
    }

    /// A partition is back.
    pub(super) fn give_back(&mut self, topic: &str, partition: i32) {
        let Some(left) = self.topics.get_mut(topic) else {
            return;
        };
        left.partitions.remove(&partition);
        if left.partitions.is_empty() {
            self.topics.remove(topic);
        }
    }

    /// This incarnation of a topic is read from now on: another one never comes back.
    pub(super) fn renew(&mut self, topic: &str, id: Uuid) {
        if self
            .topics
            .get(topic)
            .is_some_and(|left| !left.is(Some(id)))
        {
            self.topics.remove(topic);
        }
    }

    /// Forgets what has no room.
    pub(super) fn fit(&mut self) {
        let size = |(name, left): (&String, &LeftTopic)| {
            let alone = Left::of(BTreeMap::from([(name.clone(), left.clone())]), false);
            let bytes = left_text(&alone).map_or(0, |text| text.to_string().len());
            (!left.gone, left.at_us, name.clone(), bytes)
        };
        let mut all: Vec<_> = self.topics.iter().map(size).collect();
        let mut bytes: usize = all.iter().map(|(.., bytes)| bytes).sum();
        all.sort_unstable();
        for (named, _, name, freed) in all {
            if bytes <= MAX_LEFT {
                return;
            }
            self.topics.remove(&name);
            self.forgotten |= named;
            bytes -= freed;
        }
    }
}

impl LeftTopic {
    /// Whether it is this incarnation: of one whose id nobody knows, nobody can tell another one.
    #[must_use]
    pub fn is(&self, id: Option<Uuid>) -> bool {
        self.id.is_none() || id.is_none() || self.id == id
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::at;
    use super::*;

    fn leaves(left: &mut Left, name: &str, id: u128, gone: bool, time: &str, partitions: i32) {
        let topic = LeftTopic {
            id: Some(Uuid::from_u128(id)),
            at_us: at(time),
            gone,
            reached_us: Some(at(time)),
            ..LeftTopic::default()
        };
        for partition in 0..partitions {
            let next = LeftPartition {
                next_offset: 1_000_000_007,
                leader_epoch: Some(3),
            };
            left.take(name, &topic, (partition, next));
        }
    }

    fn bytes(left: &Left) -> usize {
        left_text(left).map_or(0, |text| text.to_string().len())
    }

    #[test]
    fn the_list_is_bounded_and_says_when_it_forgot() {
        let mut left = Left::default();
        let mut seen = (0, 0);
        for topic in 0..200_u32 {
            let (name, time) = (
                format!("shop.topic-{topic:03}"),
                format!("{:02}:{:02}", topic / 60, topic % 60),
            );
            leaves(&mut left, &name, topic.into(), topic % 2 == 0, &time, 1);
            left.fit();
            assert!(bytes(&left) <= MAX_LEFT, "{}", bytes(&left));
            let gone = left.topics().values().filter(|left| left.gone).count();
            if seen.0 > 0 && left.forgotten() && seen.1 == 0 {
                assert!(gone <= 1, "topics of the specification stay longest");
                seen.1 = topic;
            }
            seen.0 = topic;
        }
        let newest = left.next_offset("shop.topic-199", Some(Uuid::from_u128(199)), 0);
        assert_eq!(newest, Some(1_000_000_007));
        assert!(left.topics().len() >= 15, "{}", left.topics().len());
        assert!(!left.topics().contains_key("shop.topic-001"));
    }

    #[test]
    fn deleted_topics_alone_are_forgotten_without_a_trace() {
        let mut left = Left::default();
        for topic in 0..100_u32 {
            let name = format!("shop.tenant-{topic}");
            leaves(&mut left, &name, topic.into(), true, "10:00", 1);
            left.fit();
        }
        assert!(!left.forgotten());
    }

    #[test]
    fn a_topic_of_many_partitions_fits_and_one_of_too_many_is_forgotten() {
        let mut left = Left::default();
        leaves(&mut left, "shop.orders", 9, false, "10:00", 250);
        left.fit();
        assert_eq!(left.topics()["shop.orders"].partitions.len(), 250);
        leaves(&mut left, "shop.orders", 9, false, "10:00", 1_000);
        left.fit();
        assert!(left.topics().is_empty() && left.forgotten());
    }

    #[test]
    fn of_another_incarnation_nothing_is_kept() {
        let mut left = Left::default();
        leaves(&mut left, "shop.orders", 9, true, "10:00", 2);
        leaves(&mut left, "shop.orders", 10, false, "11:00", 1);
        assert_eq!(
            left.next_offset("shop.orders", Some(Uuid::from_u128(9)), 1),
            None
        );
        let unknown = left.next_offset("shop.orders", None, 0);
        assert_eq!(unknown, Some(1_000_000_007), "whose id nobody tells");
        left.renew("shop.orders", Uuid::from_u128(10));
        left.give_back("shop.orders", 0);
        assert!(left.is_empty());
    }
}
