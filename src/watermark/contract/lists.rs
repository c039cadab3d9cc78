//! Lists as JSON: partitions and offsets, gaps, and cells that are open again, amended, late or retracted.
//!
//! What is bounded when it is written is bounded when it is read.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value, json};
use uuid::Uuid;

use super::{Offsets, OpenStretch, WRITERS, iso, parse_iso};
use crate::watermark::amended::{Amended, AmendedCell};
use crate::watermark::cells::LateCells;
use crate::watermark::codec::decode_offsets;
use crate::watermark::epoch::{Reopened, StepCause};
use crate::watermark::gaps::Gaps;
use crate::watermark::grid::Grid;
use crate::watermark::left::{Left, LeftPartition, LeftTopic};
use crate::watermark::order::{MAX_RETRACTED, Retracted};
use crate::watermark::state::{AskedPartitions, State, missed_until};

pub(super) fn asked_text(asked: &AskedPartitions) -> String {
    let topics: BTreeMap<&str, Value> = asked
        .topics
        .iter()
        .map(|(topic, set)| (topic.as_str(), set_text(set)))
        .collect();
    json!({"at": iso(asked.at_us), "topics": topics}).to_string()
}

/// The same, told by what differs from the partitions that have offsets in the summary: of most of them that is nothing.
pub(super) fn asked_beside_offsets(asked: &AskedPartitions, state: &State) -> String {
    let known = state.topics.iter();
    let known: BTreeMap<&String, BTreeSet<i32>> = known
        .map(|(name, topic)| (name, topic.partitions.keys().copied().collect()))
        .collect();
    let named = asked.topics.keys().chain(known.keys().copied());
    let named: BTreeSet<&String> = named.collect();
    let none = BTreeSet::new();
    let differs = named.into_iter().filter_map(|name| {
        let set = asked.topics.get(name).unwrap_or(&none);
        (known.get(name).unwrap_or(&none) != set).then(|| (name.as_str(), set_text(set)))
    });
    let topics: BTreeMap<&str, Value> = differs.collect();
    json!({"at": iso(asked.at_us), "topics": topics, "else": "offsets"}).to_string()
}

/// How many there are, where they are counted from 0 without holes; else which.
pub(super) fn set_text(set: &BTreeSet<i32>) -> Value {
    let whole = set
        .iter()
        .copied()
        .eq(0..i32::try_from(set.len()).unwrap_or(i32::MAX));
    if whole { json!(set.len()) } else { json!(set) }
}

pub(super) fn parse_asked(text: &str, offsets: &Offsets) -> Option<AskedPartitions> {
    let value: Value = serde_json::from_str(text).ok()?;
    let at_us = parse_iso(value.get("at")?.as_str()?)?;
    let mut topics: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
    if let Some(rest) = value.get("else") {
        (rest == "offsets").then_some(())?;
        for (topic, partition) in offsets.next.keys() {
            topics.entry(topic.clone()).or_default().insert(*partition);
        }
    }
    for (topic, set) in value.get("topics")?.as_object()? {
        let set: BTreeSet<i32> = match set.as_i64() {
            Some(count) => (0..i32::try_from(count)
                .ok()
                .filter(|count| *count <= MAX_PARTITIONS)?)
                .collect(),
            None => serde_json::from_value(set.clone()).ok()?,
        };
        topics.insert(topic.clone(), set);
    }
    if value.get("else").is_some() {
        topics.retain(|_, set| !set.is_empty());
    }
    Some(AskedPartitions { at_us, topics })
}

/// More than any topic has; a damaged count is not believed.
const MAX_PARTITIONS: i32 = 1_000_000;

pub(super) fn offsets_text(state: &State) -> String {
    let mut topics = serde_json::Map::new();
    for (name, topic) in &state.topics {
        let known = topic.partitions.iter();
        let next = known.map(|(at, known)| (*at, (known.next_offset, known.leader_epoch)));
        let mut value = serde_json::Map::new();
        put_next(&mut value, topic.id, &next.collect());
        topics.insert(name.clone(), value.into());
    }
    let mut value = json!({"cluster": state.identity.cluster_id, "subscription": state.subscription, "topics": topics});
    if let Some(left) = left_text(&state.left) {
        value["left"] = left;
    }
    value.to_string()
}

/// Next offset and leader epoch by partition.
type Next = BTreeMap<i32, (i64, Option<i32>)>;

/// By their places in lists, from partition 0 on.
fn put_next(value: &mut serde_json::Map<String, Value>, id: Option<Uuid>, known: &Next) {
    let last = known.keys().next_back().copied().unwrap_or(-1);
    let all = || (0..=last).map(|partition| known.get(&partition));
    let next: Vec<Option<i64>> = all().map(|known| known.map(|(next, _)| *next)).collect();
    let epochs: Vec<Option<i32>> = all().map(|known| known?.1).collect();
    value.insert("next".to_owned(), json!(next));
    if epochs.iter().any(Option::is_some) {
        value.insert("leader-epochs".to_owned(), json!(epochs));
    }
    if let Some(id) = id {
        value.insert("id".to_owned(), json!(id.to_string()));
    }
}

fn parse_next(value: &Value) -> Option<(Option<Uuid>, Next)> {
    let id = match value.get("id") {
        None => None,
        Some(id) => Some(id.as_str()?.parse().ok()?),
    };
    let epochs = value.get("leader-epochs").and_then(Value::as_array);
    let mut known = Next::new();
    for (at, next) in value.get("next")?.as_array()?.iter().enumerate() {
        let epoch = epochs.and_then(|epochs| epochs.get(at)?.as_i64());
        let epoch = epoch.and_then(|epoch| i32::try_from(epoch).ok());
        if let Some(next) = next.as_i64() {
            known.insert(i32::try_from(at).ok()?, (next, epoch));
        }
    }
    Some((id, known))
}

/// What has left, as `left` among the offsets; `None`: nothing.
pub(in crate::watermark) fn left_text(left: &Left) -> Option<Value> {
    let mut topics = serde_json::Map::new();
    for (name, topic) in left.topics() {
        let known = topic.partitions.iter();
        let next = known.map(|(at, known)| (*at, (known.next_offset, known.leader_epoch)));
        let mut value = serde_json::Map::new();
        put_next(&mut value, topic.id, &next.collect());
        value.insert("at".to_owned(), json!(iso(topic.at_us)));
        if topic.gone {
            value.insert("gone".to_owned(), json!(true));
        }
        if let Some(reached_us) = topic.reached_us {
            value.insert("reached".to_owned(), json!(iso(reached_us)));
        }
        topics.insert(name.clone(), value.into());
    }
    let mut value = json!({"topics": topics});
    if left.forgotten() {
        value["forgotten"] = json!(true);
    }
    (!left.is_empty()).then_some(value)
}

fn parse_left(value: &Value) -> Option<Left> {
    let instant = |value: &Value| parse_iso(value.as_str()?);
    let flag = |value: Option<&Value>| value.map_or(Some(false), Value::as_bool);
    let mut topics = BTreeMap::new();
    for (name, value) in value.get("topics")?.as_object()? {
        let (id, known) = parse_next(value)?;
        let next = known.into_iter().map(|(at, (next_offset, leader_epoch))| {
            let left = LeftPartition {
                next_offset,
                leader_epoch,
            };
            (at, left)
        });
        let topic = LeftTopic {
            id,
            at_us: instant(value.get("at")?)?,
            gone: flag(value.get("gone"))?,
            reached_us: match value.get("reached") {
                None => None,
                Some(reached) => Some(instant(reached)?),
            },
            partitions: next.collect(),
        };
        topics.insert(name.clone(), topic);
    }
    Some(Left::of(topics, flag(value.get("forgotten"))?))
}

/// As text, or packed.
pub(super) fn parse_offsets(text: &str) -> Option<(String, Offsets)> {
    if !text.starts_with('{') {
        return decode_offsets(text).ok();
    }
    let value: Value = serde_json::from_str(text).ok()?;
    let mut offsets = Offsets {
        subscription: value.get("subscription")?.as_str()?.to_owned(),
        left: match value.get("left") {
            None => Left::default(),
            Some(left) => parse_left(left)?,
        },
        ..Offsets::default()
    };
    for (topic, value) in value.get("topics")?.as_object()? {
        let (id, known) = parse_next(value)?;
        if let Some(id) = id {
            offsets.topic_ids.insert(topic.clone(), id);
        }
        let next = known.into_iter();
        offsets
            .next
            .extend(next.map(|(partition, next)| ((topic.clone(), partition), next)));
    }
    Some((value.get("cluster")?.as_str()?.to_owned(), offsets))
}

pub(super) fn stretches(gaps: &Gaps) -> Value {
    let all = gaps.stretches().iter();
    all.map(|(from_us, to_us)| json!([iso(*from_us), iso(*to_us)]))
        .collect()
}

pub(super) fn parse_stretches(text: &str) -> Option<Gaps> {
    gaps_of(&serde_json::from_str(text).ok()?)
}

pub(super) fn gaps_of(value: &Value) -> Option<Gaps> {
    let mut gaps = Gaps::default();
    for stretch in value.as_array()? {
        let at = |end: usize| parse_iso(stretch.get(end)?.as_str()?);
        gaps.add(at(0)?, at(1)?);
    }
    Some(gaps)
}

/// The gaps of a summary, what is still open apart.
#[derive(Debug, Default)]
pub(super) struct SummaryGaps {
    pub(super) settled: Gaps,
    pub(super) open: Vec<OpenStretch>,
    pub(super) lost_before_us: Option<i64>,
}

pub(super) fn gaps_text(state: &State) -> Option<String> {
    let policy = &state.policy;
    let open = state.partitions().filter_map(|(topic, partition, known)| {
        let gap = known.gap?;
        let from = gap.from_us.map(|us| iso(policy.grid.floor(us)));
        let to = iso(missed_until(policy, gap.restart_us, None));
        Some(json!({"topic": topic, "partition": partition, "from": from, "to": to}))
    });
    let open: Vec<Value> = open.collect();
    let published = &state.published;
    let mut settled = published.gaps.clone();
    for peer in &state.peers {
        let stretches = peer.claim.gaps.stretches().iter();
        stretches.for_each(|(from_us, to_us)| settled.add(*from_us, *to_us));
    }
    if settled.is_empty() && open.is_empty() && published.lost_before_us.is_none() {
        return None;
    }
    let settled = stretches(&settled);
    let lost_before = published.lost_before_us.map(iso);
    Some(json!({"settled": settled, "open": open, "lost-before": lost_before}).to_string())
}

pub(super) fn parse_gaps(text: &str) -> Option<SummaryGaps> {
    let value: Value = serde_json::from_str(text).ok()?;
    let instant = |value: &Value| match value {
        Value::Null => Some(None),
        Value::String(text) => Some(Some(parse_iso(text)?)),
        _ => None,
    };
    let mut open = Vec::new();
    for gap in value.get("open")?.as_array()? {
        open.push(OpenStretch {
            topic: gap.get("topic")?.as_str()?.to_owned(),
            partition: i32::try_from(gap.get("partition")?.as_i64()?).ok()?,
            from_us: instant(gap.get("from")?)?,
            to_us: instant(gap.get("to")?)??,
        });
    }
    Some(SummaryGaps {
        settled: gaps_of(value.get("settled")?)?,
        open,
        lost_before_us: instant(value.get("lost-before")?)?,
    })
}

pub(super) fn reopened_text(reopened: Reopened) -> String {
    let (cause, from) = (reopened.cause.label(), reopened.from_us.map(iso));
    let (before, at) = (iso(reopened.before_us), iso(reopened.at_us));
    json!({"cause": cause, "from": from, "before": before, "at": at}).to_string()
}

pub(super) fn parse_reopened(text: &str) -> Option<Reopened> {
    let value: Value = serde_json::from_str(text).ok()?;
    let instant = |name: &str| parse_iso(value.get(name)?.as_str()?);
    Some(Reopened {
        cause: StepCause::from_label(value.get("cause")?.as_str()?)?,
        from_us: match value.get("from")? {
            Value::Null => None,
            _ => Some(instant("from")?),
        },
        before_us: instant("before")?,
        at_us: instant("at")?,
    })
}

pub(super) fn amended_text(amended: &Amended) -> Option<String> {
    if amended.is_empty() {
        return None;
    }
    let cells: Vec<Value> = amended.cells().iter().map(amended_cell).collect();
    let mut value = json!({"cells": cells});
    if let Some(overflow) = amended.overflow() {
        value["overflow"] = amended_cell(overflow);
    }
    if let Some(us) = amended.withheld_at_us() {
        value["withheld-at"] = json!(iso(us));
    }
    Some(value.to_string())
}

pub(super) fn amended_cell(cell: &AmendedCell) -> Value {
    let (from, before, at) = (iso(cell.from_us), iso(cell.before_us), iso(cell.at_us));
    let mut value = json!({"from": from, "before": before, "revision": cell.revision, "rows": cell.rows, "at": at});
    if cell.withheld {
        value["withheld"] = json!(true);
    }
    value
}

pub(super) fn parse_amended(text: &str) -> Option<Amended> {
    let value: Value = serde_json::from_str(text).ok()?;
    let cell = |value: &Value| {
        let instant = |name: &str| parse_iso(value.get(name)?.as_str()?);
        Some(AmendedCell {
            from_us: instant("from")?,
            before_us: instant("before")?,
            revision: value.get("revision")?.as_u64()?,
            rows: value.get("rows")?.as_u64()?,
            at_us: instant("at")?,
            withheld: match value.get("withheld") {
                None => false,
                Some(withheld) => withheld.as_bool()?,
            },
        })
    };
    let cells = value.get("cells")?.as_array()?;
    let overflow = match value.get("overflow") {
        None => None,
        Some(overflow) => Some(cell(overflow)?),
    };
    let withheld_at_us = match value.get("withheld-at") {
        None => None,
        Some(at) => Some(parse_iso(at.as_str()?)?),
    };
    let cells = cells.iter().map(cell).collect::<Option<_>>()?;
    Amended::of(cells, overflow, withheld_at_us)
}

pub(super) fn retracted_text(retracted: &[Retracted]) -> Option<String> {
    let all = retracted.iter().map(|one| {
        let (from, before, at) = (iso(one.from_us), iso(one.before_us), iso(one.at_us));
        json!({"from": from, "before": before, "at": at, "reason": one.reason})
    });
    let all: Value = all.collect();
    (!retracted.is_empty()).then(|| all.to_string())
}

pub(super) fn parse_retracted(text: &str) -> Option<Vec<Retracted>> {
    let value: Value = serde_json::from_str(text).ok()?;
    let all = value.as_array().filter(|all| all.len() <= MAX_RETRACTED)?;
    let one = |value: &Value| {
        let instant = |name: &str| parse_iso(value.get(name)?.as_str()?);
        Some(Retracted {
            from_us: instant("from")?,
            before_us: instant("before")?,
            at_us: instant("at")?,
            reason: value.get("reason")?.as_str()?.to_owned(),
        })
    };
    all.iter().map(one).collect()
}

pub(super) fn writers_text(state: &State) -> Option<String> {
    let peers = state.peers.iter().filter(|peer| !peer.commit_id.is_nil());
    let all: BTreeMap<&str, String> = peers
        .map(|peer| (peer.writer.as_str(), peer.commit_id.to_string()))
        .collect();
    (!all.is_empty()).then(|| json!(all).to_string())
}

/// The newest commits of the other writers, as one of our summaries saw them; `None`: it is none, or saw no other.
pub(in crate::watermark) fn seen_by(
    summary: &HashMap<String, String>,
) -> Option<BTreeMap<String, Uuid>> {
    serde_json::from_str(summary.get(WRITERS)?).ok()
}

pub(super) fn late_text(grid: Grid, late: &LateCells) -> Option<String> {
    if late.rows() == 0 {
        return None;
    }
    let name = |from_us: i64, rows: u64| json!([grid.name(from_us), rows]);
    let cells = late.cells.iter();
    let cells: Vec<Value> = cells.map(|cell| name(cell.from_us, cell.rows)).collect();
    let mut value = json!({"cells": cells});
    if let Some((from_us, rows)) = late.overflow {
        value["overflow"] = name(from_us, rows);
    }
    Some(value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watermark::testing::at;

    #[test]
    fn sparse_partitions_are_named() {
        let set = BTreeSet::from([0, 2]);
        let topics = BTreeMap::from([("t".to_owned(), set)]);
        let asked = AskedPartitions {
            at_us: at("10:00"),
            topics,
        };
        assert_eq!(
            asked_text(&asked),
            r#"{"at":"2026-11-30T10:00:00Z","topics":{"t":[0,2]}}"#
        );
        let read = parse_asked(&asked_text(&asked), &Offsets::default());
        assert_eq!(read, Some(asked));
    }
}
