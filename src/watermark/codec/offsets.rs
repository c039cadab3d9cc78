//! The offsets of a summary as bytes, where as text they would have no room.
//!
//! The ids of topics are random and do not shrink. Where they have no room either, a summary has those of one part of the topics; the
//! parts change from commit to commit.

use uuid::Uuid;

use super::left::{put_left, read_left};
use super::partition::{put_epoch, read_epoch};
use super::{Times, Unreadable, pack, read_uuid, unpack};
use crate::watermark::contract::Offsets;
use crate::watermark::state::State;
use crate::watermark::varint::{Reader, put, put_signed, put_text};

/// Into how many parts ids are divided.
const PARTS: u128 = 4;

/// A topic has no id.
const NONE: u8 = 0;
/// Its id follows.
const HERE: u8 = 1;
/// Its id is left out.
const LEFT_OUT: u8 = 2;

/// Whether a commit without room for all ids has that of a topic.
pub(in crate::watermark) fn is_of_part(id: Uuid, commit_id: Uuid) -> bool {
    id.as_u128() % PARTS == commit_id.as_u128() % PARTS
}

impl State {
    /// Next offsets, ids and what has left, packed. `all`: with every id, else with those of the commit's part.
    pub(in crate::watermark) fn encode_offsets(&self, all: bool) -> String {
        let mut bytes = Vec::new();
        let out = &mut bytes;
        put_text(out, &self.identity.cluster_id);
        put_text(out, &self.subscription);
        put(out, self.topics.len() as u64);
        for (name, topic) in &self.topics {
            put_text(out, name);
            match topic.id {
                None => out.push(NONE),
                Some(id) if all || is_of_part(id, self.commit_id) => {
                    out.push(HERE);
                    out.extend_from_slice(id.as_bytes());
                }
                Some(_) => out.push(LEFT_OUT),
            }
            put(out, topic.partitions.len() as u64);
            for (partition, known) in &topic.partitions {
                put_signed(out, i64::from(*partition));
                put_signed(out, known.next_offset);
                put_epoch(out, known.leader_epoch);
            }
        }
        put_left(out, Times::against(0), &self.left);
        pack(&bytes)
    }
}

/// Reads the cluster and the offsets back.
pub(in crate::watermark) fn decode_offsets(text: &str) -> Result<(String, Offsets), Unreadable> {
    let (_, bytes) = unpack(text)?;
    let mut reader = Reader::new(&bytes);
    let read = read_offsets(&mut reader).ok_or(Unreadable::Damaged)?;
    if reader.is_done() {
        Ok(read)
    } else {
        Err(Unreadable::Damaged)
    }
}

fn read_offsets(reader: &mut Reader<'_>) -> Option<(String, Offsets)> {
    let cluster_id = reader.text()?.to_owned();
    let mut offsets = Offsets {
        subscription: reader.text()?.to_owned(),
        ..Offsets::default()
    };
    for _ in 0..reader.count()? {
        let topic = reader.text()?.to_owned();
        match reader.byte()? {
            NONE => {}
            HERE => drop(offsets.topic_ids.insert(topic.clone(), read_uuid(reader)?)),
            LEFT_OUT => drop(offsets.ids_left_out.insert(topic.clone())),
            _ => return None,
        }
        for _ in 0..reader.count()? {
            let partition = i32::try_from(reader.signed()?).ok()?;
            let next = (reader.signed()?, read_epoch(reader)?);
            offsets.next.insert((topic.clone(), partition), next);
        }
    }
    offsets.left = read_left(reader, Times::against(0))?;
    Some((cluster_id, offsets))
}
