//! What has left, as bytes.

use std::collections::BTreeMap;

use super::partition::{put_epoch, read_epoch};
use super::{Times, flag, put_uuid, read_some_uuid};
use crate::watermark::left::{Left, LeftPartition, LeftTopic};
use crate::watermark::varint::{Reader, put, put_signed, put_text};

pub(super) fn put_left(out: &mut Vec<u8>, times: Times, left: &Left) {
    out.push(u8::from(left.forgotten()));
    put(out, left.topics().len() as u64);
    for (name, topic) in left.topics() {
        put_text(out, name);
        put_uuid(out, topic.id);
        times.put(out, topic.at_us);
        out.push(u8::from(topic.gone));
        times.put_some(out, topic.reached_us);
        put(out, topic.partitions.len() as u64);
        for (partition, left) in &topic.partitions {
            put_signed(out, i64::from(*partition));
            put_signed(out, left.next_offset);
            put_epoch(out, left.leader_epoch);
        }
    }
}

pub(super) fn read_left(reader: &mut Reader<'_>, times: Times) -> Option<Left> {
    let forgotten = flag(reader)?;
    let mut topics = BTreeMap::new();
    for _ in 0..reader.count()? {
        let name = reader.text()?.to_owned();
        let mut topic = LeftTopic {
            id: read_some_uuid(reader)?,
            at_us: times.read(reader)?,
            gone: flag(reader)?,
            reached_us: times.read_some(reader)?,
            partitions: BTreeMap::new(),
        };
        for _ in 0..reader.count()? {
            let partition = i32::try_from(reader.signed()?).ok()?;
            let left = LeftPartition {
                next_offset: reader.signed()?,
                leader_epoch: read_epoch(reader)?,
            };
            topic.partitions.insert(partition, left);
        }
        topics.insert(name, topic);
    }
    Some(Left::of(topics, forgotten))
}
