//! Topics and partitions by place: a number that never changes while the process reads them.

use std::sync::Arc;

/// Partition numbers below this are found by index; topics beyond are rare and searched.
const INDEXED_PARTITIONS: usize = 4096;

/// A topic's partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePartition {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
}

/// Topics and partitions seen so far, found again fast: most records are of the topic of the one before.
#[derive(Default)]
pub(super) struct Partitions {
    pub(super) all: Vec<SourcePartition>,
    topics: Vec<Topic>,
    last: usize,
}

/// One topic.
struct Topic {
    name: Arc<str>,
    /// Place by partition number; `u32::MAX` where the partition has not been seen.
    places: Vec<u32>,
}

impl Partitions {
    #[inline]
    pub(super) fn place(&mut self, topic: &str, partition: i32) -> u32 {
        if let (Some(last), Ok(number)) = (self.topics.get(self.last), usize::try_from(partition))
            && *last.name == *topic
            && let Some(place) = last.places.get(number)
            && *place != u32::MAX
        {
            return *place;
        }
        self.find(topic, partition)
    }

    #[cold]
    fn find(&mut self, topic: &str, partition: i32) -> u32 {
        self.last = self
            .topics
            .iter()
            .position(|known| *known.name == *topic)
            .unwrap_or_else(|| {
                self.topics.push(Topic {
                    name: topic.into(),
                    places: Vec::new(),
                });
                self.topics.len() - 1
            });
        let topic = &mut self.topics[self.last];
        let known =
            |known: &SourcePartition| known.partition == partition && known.topic == topic.name;
        let place = self.all.iter().position(known).unwrap_or_else(|| {
            self.all.push(SourcePartition {
                topic: Arc::clone(&topic.name),
                partition,
            });
            self.all.len() - 1
        });
        let place = u32::try_from(place).expect("fewer partitions than memory");
        if let Some(number) = usize::try_from(partition)
            .ok()
            .filter(|number| *number < INDEXED_PARTITIONS)
        {
            if topic.places.len() <= number {
                topic.places.resize(number + 1, u32::MAX);
            }
            topic.places[number] = place;
        }
        place
    }
}
