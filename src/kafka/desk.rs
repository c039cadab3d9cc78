//! Who is who among the partitions of one consumer, and what is still wanted of them.
//!
//! Comes in: assignments and moves from the caller, messages and notices from the queue. Goes out: the slot of what is wanted,
//! nothing for all else. No broker and no librdkafka call beyond reading a message.
//!
//! A message is wanted while its partition is assigned, no move of it is due, and its offset is not below the position.

use std::collections::HashMap;

use super::consumer::Event;
use super::notice::Notice;
use super::sys::RawMessage;
use super::{Code, Error, Position, TopicPartition, security};

/// One partition that is or was assigned.
pub(super) struct Slot {
    pub(super) at: TopicPartition,
    pub(super) assigned: bool,
    /// A move is due or being acknowledged: nothing that arrives belongs to the new position yet.
    pub(super) moving: bool,
    /// librdkafka has given up on it because its position was lost.
    stopped: bool,
    pub(super) position: Position,
    pub(super) generation: u32,
}

/// Who is who among the partitions, and what is still wanted of them.
#[derive(Default)]
pub(super) struct Desk {
    pub(super) slots: Vec<Slot>,
    pub(super) numbers: HashMap<TopicPartition, u32>,
    /// (topic handle, partition) → slot. A handle stands for its topic while a partition of it is assigned, so this is
    /// emptied whenever the assignment changes: the address could come back for another topic.
    handles: HashMap<(usize, i32), u32>,
    /// Messages come in runs of one partition: most are found here.
    latest: Option<((usize, i32), u32)>,
    pub(super) moving: Vec<u32>,
    pub(super) generation: u32,
    pub(super) discarded: u64,
    /// The newest trouble of the client was that the brokers and it do not take each other.
    refused: bool,
}

impl Desk {
    pub(super) fn begin(&mut self, starts: &[(TopicPartition, Position)]) {
        self.turn();
        for (at, position) in starts {
            let number = self.number(at);
            let generation = self.generation;
            let slot = &mut self.slots[index(number)];
            // Only a seek makes librdkafka compare the epoch with the leader's history (OffsetForLeaderEpoch); an assignment
            // with an absolute offset does not. Nothing was ever read below offset 0, so nothing can be compared there.
            let moving = position.leader_epoch.is_some() && position.next_offset > 0;
            *slot = Slot {
                at: slot.at.clone(),
                assigned: true,
                moving,
                stopped: false,
                position: *position,
                generation,
            };
            self.moving.retain(|due| *due != number);
            if moving {
                self.moving.push(number);
            }
        }
    }

    pub(super) fn end(&mut self, partitions: &[TopicPartition]) {
        self.turn();
        for at in partitions {
            if let Some(number) = self.numbers.get(at).copied() {
                let slot = &mut self.slots[index(number)];
                slot.assigned = false;
                slot.moving = false;
                slot.generation = self.generation;
                self.moving.retain(|due| *due != number);
            }
        }
    }

    pub(super) fn relocate(
        &mut self,
        positions: &[(TopicPartition, Position)],
    ) -> Result<(), Error> {
        for (at, _) in positions {
            let slot = self
                .numbers
                .get(at)
                .and_then(|number| self.slots.get(index(*number)));
            if !slot.is_some_and(|slot| slot.assigned) {
                let code = Code::UNKNOWN_PARTITION;
                return Err(Error::NoAnswer {
                    topic: at.topic.clone(),
                    partition: at.partition,
                    code,
                });
            }
        }
        self.turn();
        for (at, position) in positions {
            let number = self.number(at);
            let slot = &mut self.slots[index(number)];
            slot.position = *position;
            slot.moving = true;
            slot.generation = self.generation;
            if !self.moving.contains(&number) {
                self.moving.push(number);
            }
        }
        Ok(())
    }

    /// Partitions that are to move but that librdkafka has given up on.
    pub(super) fn stopped(&self) -> Vec<(TopicPartition, Position)> {
        let due = self.moving.iter().map(|number| &self.slots[index(*number)]);
        due.filter(|slot| slot.stopped)
            .map(|slot| (slot.at.clone(), slot.position))
            .collect()
    }

    pub(super) fn started(&mut self) {
        for number in &self.moving {
            self.slots[index(*number)].stopped = false;
        }
    }

    pub(super) fn settled(&mut self, number: u32) {
        self.moving.retain(|due| *due != number);
        if let Some(slot) = self.slots.get_mut(index(number)) {
            slot.moving = false;
        }
    }

    fn turn(&mut self) {
        self.generation += 1;
        self.handles.clear();
        self.latest = None;
    }

    fn number(&mut self, at: &TopicPartition) -> u32 {
        if let Some(number) = self.numbers.get(at) {
            return *number;
        }
        let number = u32::try_from(self.slots.len())
            .expect("partitions of one pipeline are bounded by MAX_PARTITIONS");
        let (at, position) = (at.clone(), Position::at(0));
        self.numbers.insert(at.clone(), number);
        self.slots.push(Slot {
            at,
            assigned: false,
            moving: false,
            stopped: false,
            position,
            generation: 0,
        });
        number
    }

    /// The slot of a message that is wanted, or `None`.
    pub(super) fn sort(&mut self, message: RawMessage<'_>) -> Option<u32> {
        let handle = (message.topic_handle(), message.partition());
        let number = match self.latest {
            Some((latest, number)) if latest == handle => Some(number),
            _ => self.find(handle, message),
        };
        let slot = number.and_then(|number| self.slots.get_mut(index(number)));
        let offset = message.offset();
        match slot {
            Some(slot) if slot.assigned && !slot.moving && offset >= slot.position.next_offset => {
                slot.position = Position {
                    next_offset: offset + 1,
                    leader_epoch: message.leader_epoch(),
                };
                number
            }
            _ => {
                self.discarded += 1;
                None
            }
        }
    }

    fn find(&mut self, handle: (usize, i32), message: RawMessage<'_>) -> Option<u32> {
        let number = match self.handles.get(&handle) {
            Some(number) => *number,
            None => *self
                .numbers
                .get(&TopicPartition::new(message.topic(), message.partition()))?,
        };
        self.handles.insert(handle, number);
        self.latest = Some((handle, number));
        Some(number)
    }

    pub(super) fn event(&mut self, notice: Notice) -> Option<Event> {
        match notice {
            Notice::EndOfPartition { at, offset } => self.end_of_partition(&at, offset),
            Notice::Assigned(partitions) => Some(Event::Assigned(partitions)),
            Notice::Revoked { partitions, lost } => Some(Event::Revoked { partitions, lost }),
            Notice::OffsetsCommitted(Code::OK) => Some(Event::GroupOffsetsCommitted(Ok(()))),
            // Nothing was committed because nothing new was there.
            Notice::OffsetsCommitted(Code::NO_OFFSET) => None,
            Notice::OffsetsCommitted(code) => Some(Event::GroupOffsetsCommitted(Err(code))),
            Notice::Error {
                code,
                detail,
                fatal: true,
                ..
            } => Some(Event::Failed(Error::Fatal { code, detail })),
            Notice::Error {
                code,
                detail,
                place: None,
                ..
            } => self.trouble(code, detail),
            Notice::Error {
                code,
                detail,
                place: Some((at, offset)),
                ..
            } => self.failure(&at, offset, code, detail),
        }
    }

    /// Trouble of the client as a whole. What only follows a refusal says less than it.
    fn trouble(&mut self, code: Code, detail: String) -> Option<Event> {
        let fault = security::fault(code, &detail);
        if self.refused && fault.is_none() && security::follows(code, &detail) {
            return None;
        }
        self.refused = fault.is_some();
        let error = fault.unwrap_or(Error::Client { code, detail });
        Some(Event::Failed(error))
    }

    fn wanted(&mut self, at: &TopicPartition) -> Option<(u32, &mut Slot)> {
        let number = self.numbers.get(at).copied();
        let slot = number.and_then(|number| self.slots.get_mut(index(number)));
        match (number, slot) {
            (Some(number), Some(slot)) if slot.assigned && !slot.moving => Some((number, slot)),
            _ => {
                self.discarded += 1;
                None
            }
        }
    }

    fn end_of_partition(&mut self, at: &TopicPartition, offset: i64) -> Option<Event> {
        let (number, slot) = self.wanted(at)?;
        slot.position.next_offset = slot.position.next_offset.max(offset);
        let generation = slot.generation;
        Some(Event::EndOfPartition {
            slot: number,
            offset,
            generation,
        })
    }

    fn failure(
        &mut self,
        at: &TopicPartition,
        offset: i64,
        code: Code,
        detail: String,
    ) -> Option<Event> {
        let number = self.numbers.get(at).copied();
        if code == Code::AUTO_OFFSET_RESET
            && let Some(slot) = number.and_then(|number| self.slots.get_mut(index(number)))
        {
            // Also while a move is due: the move must start the partition again.
            slot.stopped = slot.assigned;
        }
        let (_, slot) = self.wanted(at)?;
        let (topic, partition) = (at.topic.clone(), at.partition);
        let waiting_for = slot.position.next_offset;
        Some(Event::Failed(if code == Code::AUTO_OFFSET_RESET {
            Error::PositionLost {
                topic,
                partition,
                offset: waiting_for,
                detail,
            }
        } else {
            // librdkafka sets no offset (0) or a logical one (negative) where it has none.
            Error::Fetch {
                topic,
                partition,
                offset: offset.max(waiting_for),
                code,
                detail,
            }
        }))
    }
}

/// A slot number as an index.
pub(super) fn index(slot: u32) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
}
