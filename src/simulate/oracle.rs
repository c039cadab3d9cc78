//! Whether what stands on the table is true.
//!
//! The oracle sees every record and every commit, and shares no code with what it judges: it keeps its own account of which
//! offsets each snapshot holds, and reads claims as a stranger would, from the plain text of summaries. In the end, when
//! nothing more will be delivered, every claim that was ever published is held against every row.
//!
//! I1 safety, I4 monotone within an epoch, I5 exactly once. I2, I3 and I6 are asked of the world by `world`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use super::broker::{Broker, LogId, Truth, What};
use super::plan::Kind;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// Which: `I1` to `I6`, or `panic`.
    pub promise: &'static str,
    /// How.
    pub text: String,
}

/// What a step of the world comes to.
pub(super) type Found = Result<(), Breach>;

pub(super) fn breach(promise: &'static str, text: impl Into<String>) -> Breach {
    Breach {
        promise,
        text: text.into(),
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.text)
    }
}

/// A partition by its name.
pub(super) type Name = (String, i32);

/// Which offsets a snapshot holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// By name: the log and the next offset.
    pub held: BTreeMap<Name, (LogId, i64)>,
    /// Offsets of logs that are passed over for good: from, to.
    pub lost: Vec<(LogId, i64, i64)>,
}

/// A claim as its text says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub epoch: u64,
    pub before_us: Option<i64>,
    pub from_us: Option<i64>,
    pub gaps: Vec<(i64, i64)>,
}

/// What was committed.
pub(super) struct Committed<'a> {
    pub snapshot_id: i64,
    pub parent_id: Option<i64>,
    pub summary: &'a HashMap<String, String>,
    /// The table's properties after it.
    pub properties: &'a HashMap<String, String>,
    /// Partitions whose reading begins, or goes on elsewhere, and where.
    pub moves: Vec<(Name, LogId, i64)>,
    /// Topics that are not read any more.
    pub retired: &'a [String],
    /// Whether a topic that joins takes no claim back, and has no say below it.
    pub backfill: bool,
    /// Offsets by partition, from and to.
    pub ranges: Vec<(Name, i64, i64)>,
    /// The rows in the files: log and offset, in the order in which they were read.
    pub files: &'a [(LogId, i64)],
    /// Whether the replays of the files can be told for certain: nothing was passed over or forgotten.
    pub replays_certain: bool,
}

struct Entry {
    content: Content,
    said: Said,
}

/// The account.
#[derive(Default)]
pub(super) struct Oracle {
    entries: BTreeMap<i64, Entry>,
    /// Parents of snapshots that are not ours.
    foreign: BTreeMap<i64, Option<i64>>,
    /// Rows that were late in truth, by the claims of their bases.
    pub late: u64,
    /// What was said last, whatever became of it.
    last: Option<Said>,
    /// Whether something happened that may take a claim back.
    may_step: bool,
    /// Rows below have no say: what was claimed when the log's topic joined.
    backfilled: BTreeMap<LogId, i64>,
}

impl Oracle {
    /// A snapshot that is not ours.
    pub(super) fn foreign(&mut self, snapshot_id: i64, parent_id: Option<i64>) {
        self.foreign.insert(snapshot_id, parent_id);
    }

    /// The newest snapshot of ours that a snapshot stands on, itself included. By the oracle's own account: an expired one too.
    pub(super) fn own(&self, mut snapshot_id: Option<i64>) -> Option<i64> {
        while let Some(id) = snapshot_id {
            if self.entries.contains_key(&id) {
                return Some(id);
            }
            snapshot_id = self.foreign.get(&id).copied().flatten();
        }
        None
    }

    /// What a snapshot of ours says.
    pub(super) fn said(&self, own_id: i64) -> &Said {
        &self.entries[&own_id].said
    }

    /// The offsets that a snapshot holds.
    pub(super) fn content(&self, snapshot_id: Option<i64>) -> Content {
        self.own(snapshot_id)
            .map(|id| self.entries[&id].content.clone())
            .unwrap_or_default()
    }

    /// Takes in a commit of ours, and judges it by its parent.
    pub(super) fn commit(&mut self, commit: &Committed<'_>, broker: &Broker) -> Found {
        let mut content = self.content(commit.parent_id);
        let joins = self.note_joins(commit, &content);
        content
            .held
            .retain(|(topic, _), _| !commit.retired.contains(topic));
        for (name, log, offset) in &commit.moves {
            let before = content.held.insert(name.clone(), (*log, *offset));
            match before {
                None => content.lost.push((*log, 0, *offset)),
                Some((same, next)) if same == *log && *offset >= next => {
                    content.lost.push((*log, next, *offset));
                }
                Some((old, next)) => {
                    content.lost.push((old, next, i64::MAX));
                    content.lost.push((*log, 0, *offset));
                }
            }
        }
        let mut files: BTreeMap<LogId, Vec<i64>> = BTreeMap::new();
        for (log, offset) in commit.files {
            files.entry(*log).or_default().push(*offset);
        }
        for (name, start, end) in &commit.ranges {
            let Some((log, next)) = content.held.get_mut(name) else {
                return Err(breach(
                    "I5",
                    format!("{name:?} is committed without an anchor"),
                ));
            };
            if *next != *start || end < start {
                return Err(breach(
                    "I5",
                    format!("{name:?}: {start}..{end} is committed where {next} is next"),
                ));
            }
            let there = files.remove(log).unwrap_or_default();
            let wanted = rows(broker, *log, *start, *end);
            if there != wanted {
                return Err(breach(
                    "I5",
                    format!(
                        "{name:?}: {start}..{end} has the rows {wanted:?}, the files {there:?}"
                    ),
                ));
            }
            *next = *end;
        }
        if let Some((log, offsets)) = files.into_iter().next() {
            return Err(breach(
                "I5",
                format!("rows {offsets:?} of log {log} are in no range"),
            ));
        }
        let said = read(commit.properties)?;
        let twin = commit.summary.get("tidemark.finalized-before");
        if twin != commit.properties.get("tidemark.finalized-before") {
            return Err(breach(
                "I3",
                format!("the summary says {twin:?}, the properties {said:?}"),
            ));
        }
        self.judge_step(&said, joins)?;
        self.judge_counts(commit, broker)?;
        self.entries
            .insert(commit.snapshot_id, Entry { content, said });
        Ok(())
    }

    /// Tells whether a topic comes to what was there: after a roll-back behind its commit it does so again.
    fn note_joins(&mut self, commit: &Committed<'_>, before: &Content) -> bool {
        let mut joins = false;
        let claim_us = self
            .own(commit.parent_id)
            .and_then(|parent| self.entries[&parent].said.before_us);
        for ((topic, _), log, _) in &commit.moves {
            let known = before.held.keys().any(|(known, _)| known == topic);
            joins |= !known && !before.held.is_empty();
            if let (true, false, Some(claim_us)) = (commit.backfill, known, claim_us) {
                self.backfilled.insert(*log, claim_us);
            }
        }
        joins
    }

    /// Something happened that may take a claim back.
    pub(super) fn may_step(&mut self) {
        self.may_step = true;
    }

    /// A claim falls only with a step of its epoch, also against commits that are gone; and a step has a cause.
    fn judge_step(&mut self, said: &Said, joins: bool) -> Found {
        let before = self.last.replace(said.clone()).unwrap_or_else(|| Said {
            epoch: said.epoch,
            ..Said::default()
        });
        let stepped = said.epoch > before.epoch;
        if said.epoch < before.epoch
            || !stepped && said.before_us < before.before_us
            || stepped && !self.may_step && !joins
        {
            return Err(breach("I4", format!("{before:?} is followed by {said:?}")));
        }
        self.may_step &= !stepped;
        Ok(())
    }

    /// Rows are counted under the names that they have in truth, and late ones as late.
    fn judge_counts(&mut self, commit: &Committed<'_>, broker: &Broker) -> Found {
        let claim_us = self
            .own(commit.parent_id)
            .and_then(|parent| self.entries[&parent].said.before_us);
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        let mut late = 0;
        for (log, offset) in commit.files {
            let record = broker.logs[*log].record(*offset).expect("it was read");
            let What::Row(row) = record.what else {
                continue;
            };
            let backfilled = self.backfilled.get(log);
            let name = match row.truth {
                Truth::Counts | Truth::Outlaw | Truth::Excluded(Kind::Old)
                    if backfilled > Some(&row.event_us) =>
                {
                    "tidemark.excluded.backfill"
                }
                Truth::Counts | Truth::Outlaw => {
                    late += u64::from(claim_us.is_some_and(|us| row.event_us < us));
                    continue;
                }
                Truth::Replay => "tidemark.replayed",
                Truth::Excluded(Kind::Timeless) => "tidemark.excluded.missing",
                Truth::Excluded(Kind::Future) => "tidemark.excluded.future",
                Truth::Excluded(Kind::Old) => "tidemark.excluded.past",
                Truth::Excluded(_) => "tidemark.excluded.snapshot",
            };
            *counts.entry(name).or_default() += 1;
        }
        self.late += late;
        if !commit.replays_certain {
            return Ok(());
        }
        let names = [
            "tidemark.replayed",
            "tidemark.excluded.missing",
            "tidemark.excluded.future",
            "tidemark.excluded.past",
            "tidemark.excluded.snapshot",
            "tidemark.excluded.backfill",
        ];
        for name in names {
            let said = commit.summary.get(name).map_or("0", String::as_str);
            let truth = counts.get(name).copied().unwrap_or_default();
            if said != truth.to_string() {
                return Err(breach(
                    "I1",
                    format!("{name} says {said}, in truth {truth}"),
                ));
            }
        }
        if (late > 0) != commit.summary.contains_key("tidemark.late") {
            return Err(breach("I1", format!("{late} rows are late in truth")));
        }
        Ok(())
    }

    /// Rows with a say that keep the bounds, of a stretch: offset and event time.
    fn counting(&self, broker: &Broker, log: LogId, from: i64, to: i64) -> Vec<(i64, i64)> {
        let before_us = self.backfilled.get(&log).copied().unwrap_or(i64::MIN);
        let log = &broker.logs[log];
        let to = to.min(log.end());
        let counts = |offset: i64| {
            let record = log
                .record(offset)
                .filter(|record| log.is_delivered(record))?;
            match record.what {
                What::Row(row) if row.truth == Truth::Counts && row.event_us >= before_us => {
                    Some((offset, row.event_us))
                }
                _ => None,
            }
        };
        (from..to).filter_map(counts).collect()
    }

    /// Nothing more is delivered: holds every claim against every row that was delivered later, or never.
    pub(super) fn judge_claims(&self, broker: &Broker) -> Found {
        let unread: Vec<Vec<i64>> = (0..broker.logs.len())
            .map(|log| {
                least_from(
                    self.counting(broker, log, 0, i64::MAX),
                    broker.logs[log].end(),
                )
            })
            .collect();
        for (id, entry) in &self.entries {
            let Some(before_us) = entry.said.before_us else {
                continue;
            };
            let mut known = BTreeSet::new();
            // How late lost rows can be is derived from the rows behind them; where those break the bounds it is not known.
            let mut stretches: Vec<(LogId, i64, i64)> = entry.content.lost.clone();
            stretches.retain(|(log, ..)| !has_outlaws(broker, *log));
            known.extend(entry.content.lost.iter().map(|(log, ..)| *log));
            for (log, next) in entry.content.held.values() {
                known.insert(*log);
                stretches.push((*log, *next, i64::MAX));
            }
            let named: BTreeSet<&str> = entry
                .content
                .held
                .keys()
                .map(|(topic, _)| topic.as_str())
                .collect();
            let is_new = |log: &LogId| {
                let topic = &broker.topics[broker.logs[*log].topic];
                // A topic that was deleted before anybody read it is no part of what was claimed.
                let there = topic.logs.contains(log);
                there && !known.contains(log) && named.contains(&*topic.name)
            };
            let unknown = (0..broker.logs.len()).filter(is_new);
            stretches.extend(unknown.map(|log| (log, 0, i64::MAX)));
            for (log, from, to) in stretches {
                let least = unread[log].get(usize::try_from(from).unwrap_or(usize::MAX));
                if least.is_none_or(|least| *least >= before_us) {
                    continue;
                }
                let rows = self.counting(broker, log, from, to);
                let claimed = |us: i64| {
                    us < before_us
                        && entry.said.from_us.is_none_or(|from_us| us >= from_us)
                        && !entry.said.gaps.iter().any(|(a, b)| (*a..*b).contains(&us))
                };
                if let Some((offset, us)) = rows.into_iter().find(|(_, us)| claimed(*us)) {
                    return Err(breach(
                        "I1",
                        format!(
                            "snapshot {id} claims {:?}, and offset {offset} of log {log} ({} {}) is not there: {}",
                            entry.said,
                            broker.topics[broker.logs[log].topic].name,
                            broker.logs[log].partition,
                            iso(us)
                        ),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Every row that was delivered is in the table once, but for what was passed over with a gap.
    pub(super) fn judge_content(
        &self,
        main_id: Option<i64>,
        broker: &Broker,
        topics: &BTreeSet<usize>,
    ) -> Found {
        let content = self.content(main_id);
        for (topic, known) in broker.topics.iter().enumerate() {
            if !topics.contains(&topic) {
                continue;
            }
            for (partition, log) in known.logs.iter().enumerate() {
                let name = (
                    known.name.to_string(),
                    i32::try_from(partition).expect("a handful"),
                );
                let held = content.held.get(&name).copied();
                if held != Some((*log, broker.logs[*log].end())) {
                    return Err(breach(
                        "I5",
                        format!(
                            "topic {topic}, partition {partition}: log {log} ends at {}, the table has {held:?}",
                            broker.logs[*log].end()
                        ),
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The offsets of the rows that a consumer is given of a stretch.
fn rows(broker: &Broker, log: LogId, from: i64, to: i64) -> Vec<i64> {
    let log = &broker.logs[log];
    let is_row = |offset: &i64| {
        let record = log.record(*offset);
        record.is_some_and(|record| log.is_delivered(record) && matches!(record.what, What::Row(_)))
    };
    (from..to).filter(is_row).collect()
}

/// Whether a log holds rows that break the bounds.
fn has_outlaws(broker: &Broker, log: LogId) -> bool {
    let mut records = broker.logs[log].records.iter();
    records.any(|record| matches!(record.what, What::Row(row) if row.truth == Truth::Outlaw))
}

/// The least event time of the rows with a say that keep the bounds, from each offset on.
fn least_from(counting: Vec<(i64, i64)>, end: i64) -> Vec<i64> {
    let mut least = vec![i64::MAX; usize::try_from(end).expect("not negative") + 1];
    for (offset, us) in counting {
        least[usize::try_from(offset).expect("not negative")] = us;
    }
    for at in (1..least.len()).rev() {
        least[at - 1] = least[at - 1].min(least[at]);
    }
    least
}

/// Reads a claim as a stranger does.
pub(super) fn read(properties: &HashMap<String, String>) -> Result<Said, Breach> {
    let instant = |text: &str| {
        let parsed: Result<jiff::Timestamp, _> = text.parse();
        let parsed = parsed.map(jiff::Timestamp::as_microsecond);
        parsed.map_err(|error| breach("I3", format!("{text:?}: {error}")))
    };
    let text = |name: &str| properties.get(name).map(String::as_str);
    let epoch = text("tidemark.epoch").and_then(|epoch| epoch.parse().ok());
    let gaps: Vec<(String, String)> = text("tidemark.gaps")
        .map(serde_json::from_str)
        .transpose()
        .map_err(|error| breach("I3", format!("the gaps are not readable: {error}")))?
        .unwrap_or_default();
    let gaps = gaps
        .iter()
        .map(|(from, to)| Ok((instant(from)?, instant(to)?)));
    Ok(Said {
        epoch: epoch.unwrap_or_default(),
        before_us: text("tidemark.finalized-before").map(instant).transpose()?,
        from_us: text("tidemark.complete-from")
            .filter(|from| *from != "unbounded")
            .map(instant)
            .transpose()?,
        gaps: gaps.collect::<Result<_, Breach>>()?,
    })
}

pub(super) fn iso(us: i64) -> String {
    jiff::Timestamp::from_microsecond(us).map_or_else(|_| us.to_string(), |at| at.to_string())
}
