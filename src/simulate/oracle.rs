//! Whether what stands on the table is true.
//!
//! The oracle sees every record and every commit, and shares no code with what it judges: it keeps its own account of which
//! offsets each snapshot holds, and reads claims as a stranger would, from the plain text of summaries. In the end, when
//! nothing more will be delivered, every claim that was ever published is held against every row.
//!
//! I1 safety, I4 monotone within an epoch, I5 exactly once. I2, I3 and I6 are asked of the world by `world`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::broker::{Broker, LogId, Truth, What};
use super::content::{Committed, Content, Name};
use super::plan::Kind;
use super::said::{Said, iso, own_claim, read};

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

struct Entry {
    parent_id: Option<i64>,
    /// Whose it is, and what that writer claims for itself.
    own: (String, Option<i64>),
    /// The offsets that it added.
    added: Vec<(LogId, i64, i64)>,
    content: Content,
    said: Said,
}

/// The account.
#[derive(Default)]
pub(super) struct Oracle {
    entries: BTreeMap<i64, Entry>,
    /// Parents of snapshots that are not ours.
    foreign: BTreeMap<i64, Option<i64>>,
    /// Those of them that repeat one of ours.
    picks: BTreeMap<i64, i64>,
    /// Rows that were late in truth, by the claims of their bases.
    pub late: u64,
    /// What was said last, whatever became of it.
    last: Option<Said>,
    /// Whether something happened that may take a claim back.
    may_step: bool,
    /// Writers that may begin anew by their owner's word.
    accepted: BTreeSet<String>,
}

impl Oracle {
    /// A snapshot that is not ours.
    pub(super) fn foreign(&mut self, snapshot_id: i64, parent_id: Option<i64>) {
        self.foreign.insert(snapshot_id, parent_id);
    }

    /// A snapshot that repeats what one of ours added.
    pub(super) fn pick(&mut self, snapshot_id: i64, parent_id: Option<i64>, source_id: i64) {
        self.foreign.insert(snapshot_id, parent_id);
        self.picks.insert(snapshot_id, source_id);
    }

    /// What was repeated above the newest snapshot of ours.
    fn picked(&self, mut snapshot_id: Option<i64>) -> Vec<(LogId, i64, i64)> {
        let mut picked = Vec::new();
        while let Some(parent_id) = snapshot_id.and_then(|id| self.foreign.get(&id)) {
            let source = snapshot_id.and_then(|id| self.picks.get(&id));
            picked.extend(source.iter().flat_map(|id| &self.entries[*id].added));
            snapshot_id = *parent_id;
        }
        picked
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

    /// The log and the next offset that a snapshot holds of a partition.
    pub(super) fn held(&self, snapshot_id: Option<i64>, name: &Name) -> Option<(LogId, i64)> {
        let own = self.own(snapshot_id)?;
        self.entries[&own].content.held.get(name).copied()
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
        content.picked.extend(self.picked(commit.parent_id));
        let joins = self.note_joins(commit, &mut content, broker);
        content.obey(commit);
        if self.accepted.contains(&commit.writer()) {
            content.forget(&commit.forgotten);
        }
        for step in &commit.moves {
            content.go(broker, step)?;
        }
        content.take(broker, commit)?;
        let said = read(commit.properties)?;
        let twin = commit.summary.get("tidemark.finalized-before");
        if twin != commit.properties.get("tidemark.finalized-before") {
            return Err(breach(
                "I3",
                format!("the summary says {twin:?}, the properties {said:?}"),
            ));
        }
        said.leaves_out(&content.retracted)?;
        let begins = self.note_begins(commit);
        self.judge_step(&said, joins || begins)?;
        self.judge_counts(commit, (&content, &said), broker)?;
        let ranges = commit.ranges.iter();
        let added = ranges.map(|range| (range.log, range.start, range.end));
        let added = added.collect();
        self.entries.insert(
            commit.snapshot_id,
            Entry {
                parent_id: commit.parent_id,
                own: (commit.writer(), own_claim(commit.summary)?),
                added,
                content,
                said,
            },
        );
        Ok(())
    }

    /// Tells whether a topic comes to what was there: after a roll-back behind its commit it does so again.
    fn note_joins(&self, commit: &Committed<'_>, content: &mut Content, broker: &Broker) -> bool {
        let mut joins = false;
        let claim_us = self.claimed_by(&commit.writer(), commit.parent_id);
        // A writer that comes has kept nothing waiting.
        let begins = commit.summary.contains_key("tidemark.begins");
        if begins {
            let topic = |log: &LogId| &*broker.topics[broker.logs[*log].topic].name;
            let is_other = |log: &LogId| !commit.topics.contains(topic(log));
            content.backfilled.retain(|log, _| is_other(log));
            // What somebody has repeated may be there twice by the word of who accepted the table, also of a topic that is away.
            content.picked.retain(|(log, ..)| is_other(log));
        }
        for step in &commit.moves {
            let (topic, log) = (&step.name.0, &step.log);
            let known = content.held.keys().any(|(known, _)| known == topic)
                && !content.left.contains_key(&step.name);
            let alone = content.held.is_empty() && content.left.is_empty();
            joins |= !known && !alone;
            if known || begins {
                continue;
            }
            if commit.backfill {
                // One that is back may still count by what its log was before it was cut.
                let there = content.left.get(&step.name).map(|(there, _)| *there);
                let there = there.filter(|there| broker.same_below(*there, *log).is_some());
                for log in there.into_iter().chain([*log]) {
                    let before_us = claim_us.unwrap_or(i64::MIN);
                    content.backfilled.insert(log, before_us);
                }
            }
        }
        joins
    }

    /// The newest commit of a writer under a snapshot.
    fn newest_of(&self, writer: &str, mut snapshot_id: Option<i64>) -> Option<i64> {
        while let Some(own) = self.own(snapshot_id) {
            let entry = &self.entries[&own];
            if entry.own.0 == writer {
                return Some(own);
            }
            snapshot_id = entry.parent_id;
        }
        None
    }

    /// What a writer claims for itself by its newest commit under a snapshot, whatever the others hold back.
    fn claimed_by(&self, writer: &str, snapshot_id: Option<i64>) -> Option<i64> {
        let newest = self.newest_of(writer, snapshot_id)?;
        self.entries[&newest].own.1
    }

    /// The commit that a writer was rolled back to, as long as it has not gone on from there.
    pub(super) fn restored(&self, writer: &str, main_id: Option<i64>) -> Option<i64> {
        let mut entries = self.entries.iter().rev();
        let last = entries.find(|(_, entry)| entry.own.0 == writer);
        let newest = self.newest_of(writer, main_id);
        newest.filter(|newest| last.is_some_and(|(last, _)| last != newest))
    }

    /// Something happened that may take a claim back.
    pub(super) fn may_step(&mut self) {
        self.may_step = true;
    }

    /// A writer that could not go on may begin anew: a step of its own, whatever the others have counted of what came before it.
    pub(super) fn may_begin(&mut self, writer: &str) {
        self.accepted.insert(writer.to_owned());
    }

    /// Tells whether a writer begins anew by its owner's word.
    fn note_begins(&mut self, commit: &Committed<'_>) -> bool {
        let accepted = self.accepted.remove(&commit.writer());
        accepted && commit.summary.contains_key("tidemark.begins")
    }

    /// A claim falls only with a step of its epoch, also against commits that are gone; and a step has a cause.
    fn judge_step(&mut self, said: &Said, own_cause: bool) -> Found {
        let before = self.last.replace(said.clone()).unwrap_or_else(|| Said {
            epoch: said.epoch,
            ..Said::default()
        });
        let stepped = said.epoch > before.epoch;
        if said.epoch < before.epoch
            || !stepped && said.before_us < before.before_us
            || stepped && !self.may_step && !own_cause
        {
            return Err(breach("I4", format!("{before:?} is followed by {said:?}")));
        }
        self.may_step &= !stepped;
        Ok(())
    }

    /// Rows are counted under the names that they have in truth, and late ones as late.
    fn judge_counts(
        &mut self,
        commit: &Committed<'_>,
        (content, said): (&Content, &Said),
        broker: &Broker,
    ) -> Found {
        let parent = self.own(commit.parent_id);
        let before = parent.map(|parent| &self.entries[&parent].said);
        let claim_us = before.and_then(|before| before.before_us);
        // Rows that come with the very commit that takes a claim back, as when another writer was rolled back, are below none.
        let taken_back =
            before.is_some_and(|before| said.epoch > before.epoch) && said.before_us < claim_us;
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        let mut late = 0;
        for (log, offset) in commit.files {
            let record = broker.logs[*log].record(*offset).expect("it was read");
            let What::Row(row) = record.what else {
                continue;
            };
            let backfilled = content.backfilled_us(broker, *log);
            let name = match row.truth {
                Truth::Counts | Truth::Outlaw | Truth::Excluded(Kind::Old | Kind::Future)
                    if backfilled > Some(row.event_us) =>
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
        if taken_back {
            return Ok(());
        }
        let told = commit.summary.contains_key("tidemark.late");
        // A worker with other cells counts all rows of one that the claim has come to lie in.
        if (late > 0 && !told) || (late == 0 && told && !commit.cells_changed) {
            return Err(breach("I1", format!("{late} rows are late in truth")));
        }
        Ok(())
    }

    /// Nothing more is delivered: holds every claim against every row that was delivered later, or never.
    pub(super) fn judge_claims(&self, broker: &Broker) -> Found {
        let unread: Vec<Vec<i64>> = (0..broker.logs.len())
            .map(|log| least_from(counting(broker, log, 0, i64::MAX), broker.logs[log].end()))
            .collect();
        for (id, entry) in &self.entries {
            let Some(before_us) = entry.said.before_us else {
                continue;
            };
            for (log, from, to) in entry.content.missing(broker) {
                let least = unread[log].get(usize::try_from(from).unwrap_or(usize::MAX));
                if least.is_none_or(|least| *least >= before_us) {
                    continue;
                }
                let rows = counting(broker, log, from, to);
                let backfilled = entry.content.backfilled_us(broker, log);
                let claimed = |us: i64| {
                    us < before_us
                        && backfilled.is_none_or(|backfilled_us| us >= backfilled_us)
                        && entry.said.from_us.is_none_or(|from_us| us >= from_us)
                        && !entry.said.gaps.iter().any(|(a, b)| (*a..*b).contains(&us))
                };
                let missing = |(offset, us): &(i64, i64)| {
                    claimed(*us) && !entry.content.repeats(broker, log, *offset)
                };
                if let Some((offset, us)) = rows.into_iter().find(missing) {
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
                let end = broker.logs[*log].end();
                let whole = held.is_some_and(|(of, next)| {
                    let below = broker.same_below(of, *log);
                    next == end && below.is_some_and(|below| next <= below)
                });
                if !whole {
                    return Err(breach(
                        "I5",
                        format!(
                            "topic {topic}, partition {partition}: log {log} ends at {end}, the table has {held:?}"
                        ),
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Rows with a say that keep the bounds, of a stretch: offset and event time.
fn counting(broker: &Broker, log: LogId, from: i64, to: i64) -> Vec<(i64, i64)> {
    let log = &broker.logs[log];
    let to = to.min(log.end());
    let counts = |offset: i64| {
        let record = log
            .record(offset)
            .filter(|record| log.is_delivered(record))?;
        match record.what {
            What::Row(row) if row.truth == Truth::Counts => Some((offset, row.event_us)),
            _ => None,
        }
    };
    (from..to).filter_map(counts).collect()
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
