//! Which offsets each snapshot holds, by the oracle's own account.
//!
//! In come commits as the world saw them: where reading begins or goes on elsewhere, offsets, files, orders. Each is judged by what
//! its parent held: nothing twice, nothing passed over without a word (I5).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::broker::{Broker, LogId, Truth, What};
use super::oracle::{Breach, Found, breach};

/// A partition by its name.
pub(super) type Name = (String, i32);

/// Which offsets a snapshot holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// By name: the log and the next offset.
    pub held: BTreeMap<Name, (LogId, i64)>,
    /// Offsets of logs that are passed over for good: from, to.
    pub lost: Vec<(LogId, i64, i64)>,
    /// Rows below have no say: what was claimed when the log's topic joined.
    pub backfilled: BTreeMap<LogId, i64>,
    /// Offsets that somebody has repeated from commits that were gone: from, to.
    pub picked: Vec<(LogId, i64, i64)>,
    /// Of topics that are not read any more: where that ended.
    pub left: BTreeMap<Name, (LogId, i64)>,
    /// Topics of writers that are declared drained: nobody waits for what is still to come of them.
    pub drained: BTreeSet<String>,
    /// Stretches of event time that a person took back.
    pub retracted: Vec<(i64, i64)>,
}

/// What was committed.
pub(super) struct Committed<'a> {
    pub snapshot_id: i64,
    pub parent_id: Option<i64>,
    pub summary: &'a HashMap<String, String>,
    /// The table's properties after it.
    pub properties: &'a HashMap<String, String>,
    /// Partitions whose reading begins, or goes on elsewhere, and where.
    pub moves: Vec<Move>,
    /// Topics that are not read any more.
    pub retired: &'a [String],
    /// The topics of its writer, those that it named once among them.
    pub topics: BTreeSet<String>,
    /// Those of them that nothing on its base tells of.
    pub forgotten: BTreeSet<String>,
    /// Whether it declares the writer drained, or takes that back.
    pub drains: Option<bool>,
    /// What a person takes back with it.
    pub retracted: Option<(i64, i64)>,
    /// Whether a topic that joins takes no claim back, and has no say below it.
    pub backfill: bool,
    /// Offsets by partition.
    pub ranges: Vec<Range>,
    /// The rows in the files: log and offset, in the order in which they were read.
    pub files: &'a [(LogId, i64)],
    /// Whether the cells have changed: workers may count by others.
    pub cells_changed: bool,
    /// Whether the replays of the files can be told for certain: nothing was passed over or forgotten.
    pub replays_certain: bool,
}

impl Committed<'_> {
    /// Whose it is.
    pub(super) fn writer(&self) -> String {
        let named = self.summary.get("tidemark.writer");
        named.cloned().unwrap_or_default()
    }
}

/// Where reading of a partition begins, or goes on elsewhere.
pub(super) struct Move {
    pub name: Name,
    pub log: LogId,
    pub offset: i64,
    /// It goes on where it was, in whatever log that counts: nothing was found to be lost.
    pub back: bool,
}

/// Offsets of a partition in a commit, and the log that they were read from.
pub(super) struct Range {
    pub name: Name,
    pub log: LogId,
    pub start: i64,
    pub end: i64,
}

impl Range {
    /// Whether it was read where the table stood, with exactly its rows in the files. Tells whether its log is the one that counts from
    /// now on: read on in one that was cut behind it, or in what was there before that.
    fn judge(
        &self,
        broker: &Broker,
        (held, next): (LogId, i64),
        there: &[(LogId, i64)],
    ) -> Result<bool, Breach> {
        let Range {
            name,
            log,
            start,
            end,
        } = self;
        let ahead = broker.same_below(held, *log);
        let behind = broker.same_below(*log, held);
        if ahead.is_none_or(|below| next > below) && behind.is_none_or(|below| *end > below) {
            return Err(breach(
                "I5",
                format!("{name:?}: {start}..{end} of log {log}, and {next} is that of {held}"),
            ));
        }
        let strange = there.iter().find(|(of, offset)| {
            let below = broker.same_below(*of, *log);
            below.is_none_or(|below| *offset >= below)
        });
        let wanted = rows(broker, *log, *start, *end);
        if strange.is_some() || !there.iter().map(|(_, offset)| offset).eq(&wanted) {
            return Err(breach(
                "I5",
                format!(
                    "{name:?}: {start}..{end} of log {log} has the rows {wanted:?}, the files {there:?}"
                ),
            ));
        }
        Ok(ahead.is_some())
    }
}

impl Content {
    pub(super) fn retire(&mut self, topics: &[String]) {
        let (held, left) = (&mut self.held, &mut self.left);
        held.retain(|name, reached| {
            let stays = !topics.contains(&name.0);
            if !stays {
                left.insert(name.clone(), *reached);
            }
            stays
        });
    }
}

impl Content {
    /// Takes in what a person orders, and what leaves.
    pub(super) fn obey(&mut self, commit: &Committed<'_>) {
        self.retire(commit.retired);
        if commit.summary.contains_key("tidemark.begins") {
            // What a writer does not begin with is not read.
            let begun = |topic: &String| commit.moves.iter().any(|step| step.name.0 == *topic);
            let others = commit.topics.iter().filter(|topic| !begun(topic));
            self.retire(&others.cloned().collect::<Vec<_>>());
        }
        self.retracted.extend(commit.retracted);
        if let Some(drained) = commit.drains {
            self.drained.retain(|topic| !commit.topics.contains(topic));
            if drained {
                self.drained.extend(commit.topics.iter().cloned());
            }
        }
    }

    /// A writer begins where its specification says, by its owner's word: what it had written before may be there twice.
    pub(super) fn forget(&mut self, topics: &BTreeSet<String>) {
        self.held.retain(|name, _| !topics.contains(&name.0));
        self.left.retain(|name, _| !topics.contains(&name.0));
    }

    /// Reading begins in a partition, or goes on elsewhere.
    pub(super) fn go(&mut self, broker: &Broker, step: &Move) -> Found {
        let (name, log, offset) = (&step.name, step.log, step.offset);
        let before = self.held.insert(name.clone(), (log, offset));
        let before = before.or(self.left.remove(name));
        if let Some(there) = before.filter(|(_, next)| step.back && *next == offset) {
            self.held.insert(name.clone(), there);
            return Ok(());
        }
        let Some((old, next)) = before else {
            self.lost.push((log, 0, offset));
            return Ok(());
        };
        let Some(same_below) = broker.same_below(old, log) else {
            self.lost.push((old, next, i64::MAX));
            self.lost.push((log, 0, offset));
            // What joined without a step is the topic of its name, also once that is made anew.
            if let Some(us) = self.backfilled_us(broker, old) {
                self.backfilled.entry(log).or_insert(us);
            }
            return Ok(());
        };
        let from = next.min(same_below);
        if offset < from {
            return Err(breach(
                "I5",
                format!("{name:?} goes back to {offset}, and everything below {from} is there"),
            ));
        }
        self.lost.push((log, from, offset));
        if next > same_below {
            // What a cut above it took away was never delivered.
            let whole = |of: &LogId| {
                let below = broker.same_below(old, *of);
                below.is_some_and(|below| next <= below) && broker.same_below(*of, log).is_some()
            };
            let last = (old..log).rfind(whole).unwrap_or(old);
            self.lost.push((last, next, i64::MAX));
        }
        Ok(())
    }

    /// Below which event time rows of a log have no say; a log that was cut is still that of its topic.
    pub(super) fn backfilled_us(&self, broker: &Broker, mut log: LogId) -> Option<i64> {
        loop {
            match self.backfilled.get(&log) {
                Some(us) => return Some(*us),
                None => log = broker.logs[log].cut?.0,
            }
        }
    }

    /// The stretches of logs that are not there: passed over, still to come, or of a partition in which nobody reads yet.
    pub(super) fn missing(&self, broker: &Broker) -> Vec<(LogId, i64, i64)> {
        let mut known = BTreeSet::new();
        // How late lost rows can be is derived from the rows behind them; where those break the bounds it is not known.
        let mut stretches: Vec<(LogId, i64, i64)> = self.lost.clone();
        stretches.retain(|(log, ..)| !has_outlaws(broker, *log));
        known.extend(self.lost.iter().map(|(log, ..)| *log));
        let drained = &self.drained;
        for ((topic, _), (log, next)) in &self.held {
            known.insert(*log);
            if drained.contains(topic) {
                continue;
            }
            // What was written since a cut; what that took away is never delivered.
            let mut end = i64::MAX;
            for later in log + 1..broker.logs.len() {
                if let Some(below) = broker.same_below(*log, later) {
                    known.insert(later);
                    end = end.min(below);
                    stretches.push((later, (*next).min(below), i64::MAX));
                }
            }
            stretches.push((*log, *next, end));
        }
        let named: BTreeSet<&str> = self
            .held
            .keys()
            .map(|(topic, _)| topic.as_str())
            .filter(|topic| !drained.contains(*topic))
            .collect();
        let is_new = |log: &LogId| {
            let topic = &broker.topics[broker.logs[*log].topic];
            // A topic that was deleted before anybody read it is no part of what was claimed.
            let there = topic.logs.contains(log);
            there && !known.contains(log) && named.contains(&*topic.name)
        };
        let unknown = (0..broker.logs.len()).filter(is_new);
        stretches.extend(unknown.map(|log| (log, 0, i64::MAX)));
        stretches
    }

    /// Whether an offset of a log is passed over for good.
    pub(super) fn has_lost(&self, log: LogId, offset: i64) -> bool {
        let mut lost = self.lost.iter();
        lost.any(|(of, from, to)| *of == log && (*from..*to).contains(&offset))
    }

    /// Whether a row that was passed over is there all the same, because its connector has sent it again.
    pub(super) fn repeats(&self, broker: &Broker, log: LogId, offset: i64) -> bool {
        let next = |(held, next): &(LogId, i64)| {
            let below = broker.same_below(log, *held)?;
            Some(below.min(*next))
        };
        let end = self.held.values().find_map(next).unwrap_or(0);
        let is_lost = |at: i64| {
            let here = |of: LogId| of == log || broker.same_below(of, log).is_some();
            let mut lost = self.lost.iter();
            lost.any(|(of, from, to)| here(*of) && (*from..*to).contains(&at))
        };
        let repeats = |at: &i64| {
            let record = broker.logs[log].record(*at);
            let row = record.and_then(|record| match record.what {
                What::Row(row) => Some(row),
                _ => None,
            });
            row.is_some_and(|row| row.copy_of == Some(offset))
        };
        let mut copies = (offset + 1..end.min(broker.logs[log].end())).filter(repeats);
        copies.any(|at| !is_lost(at))
    }

    /// Takes in the offsets of a commit, with exactly their rows.
    pub(super) fn take(&mut self, broker: &Broker, commit: &Committed<'_>) -> Found {
        let mut files: BTreeMap<Name, Vec<(LogId, i64)>> = BTreeMap::new();
        for (log, offset) in commit.files {
            let known = &broker.logs[*log];
            let topic = broker.topics[known.topic].name.to_string();
            let of_partition = files.entry((topic, known.partition)).or_default();
            of_partition.push((*log, *offset));
        }
        for range in &commit.ranges {
            let Range {
                name,
                log,
                start,
                end,
            } = range;
            let Some((held, next)) = self.held.get_mut(name) else {
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
            let twice = self.picked.iter().find(|(of, from, to)| {
                let below = broker.same_below(*of, *log).unwrap_or(0);
                *from.max(start) < *to.min(end).min(&below)
            });
            if let Some(twice) = twice {
                return Err(breach(
                    "I5",
                    format!("{name:?}: {start}..{end} of log {log} is there twice: {twice:?}"),
                ));
            }
            let there = files.remove(name).unwrap_or_default();
            let ahead = range.judge(broker, (*held, *next), &there)?;
            if ahead {
                *held = *log;
            }
            *next = *end;
        }
        if let Some((name, offsets)) = files.into_iter().next() {
            return Err(breach(
                "I5",
                format!("rows {offsets:?} of {name:?} are in no range"),
            ));
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

/// Whether a log, or what became of it by cuts, holds rows that break the bounds.
fn has_outlaws(broker: &Broker, log: LogId) -> bool {
    let later = log..broker.logs.len();
    let of_it = later.filter(|later| broker.same_below(log, *later).is_some());
    let mut records = of_it.flat_map(|log| &broker.logs[log].records);
    records.any(|record| matches!(record.what, What::Row(row) if row.truth == Truth::Outlaw))
}
