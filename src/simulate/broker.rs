//! The cluster: topics, logs with transactions, what a consumer is given and what a question is answered.
//!
//! Of a log every record is kept for the oracle, also of one that was deleted. A row knows what it is in truth; only the oracle
//! looks at that.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use super::plan::{CLOCKS_US, Kind, Settings};
use crate::cdc::{NO_TIME, Snapshot};

/// A number of a log, for ever.
pub(super) type LogId = usize;

/// Logs by topic and partition.
pub(super) type Logs = BTreeMap<(String, i32), LogId>;

/// What a row is in truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Truth {
    /// It has a say and keeps the bounds.
    Counts,
    /// It has a say and breaks the bounds.
    Outlaw,
    /// It has no say.
    Excluded(Kind),
    /// Sent again, behind newer rows: its position tells.
    Replay,
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub event_us: i64,
    pub record_us: i64,
    pub position: i64,
    pub commit_us: i64,
    pub snapshot: Snapshot,
    pub truth: Truth,
    /// The offset of the row that it repeats.
    pub copy_of: Option<i64>,
}

/// What a record holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Row(Row),
    Undecodable,
    Signal,
    /// The source's promise: every later row has an event time of this or later.
    Resolved(i64),
    /// The end of a transaction.
    Marker,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub what: What,
    /// Which transaction of its log it belongs to.
    pub transaction: Option<usize>,
    /// The epoch of the leader that appended it.
    pub leader_epoch: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transaction {
    Open { first: i64 },
    Committed,
    Aborted,
}

/// The log of one partition.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    pub topic: usize,
    /// Of which incarnation of its topic it is.
    pub topic_id: Uuid,
    pub partition: i32,
    pub records: Vec<Record>,
    /// The first offset that is still there.
    pub start: i64,
    /// The log that it was before its end was cut off, and the offset where it was: below it both hold the same.
    pub cut: Option<(LogId, i64)>,
    pub transactions: Vec<Transaction>,
    /// The epoch of its leader.
    leader_epoch: i32,
    /// The source's position of its newest row, and its incarnation.
    position: i64,
    /// The greatest event time of the rows with a say.
    newest_us: Option<i64>,
    /// What the source has promised.
    resolved_us: Option<i64>,
    /// The rows of the present incarnation of the source, with their offsets: what can be sent again.
    sent: Vec<(i64, Row)>,
}

pub(super) struct Topic {
    pub name: Arc<str>,
    pub id: Uuid,
    pub logs: Vec<LogId>,
}

/// The cluster.
pub(super) struct Broker {
    pub topics: Vec<Topic>,
    pub logs: Vec<Log>,
    /// So many questions about topics are answered with an error.
    pub unanswered: u8,
    ids: u128,
}

impl Broker {
    pub(super) fn new(partitions: &[usize]) -> Self {
        let mut broker = Broker {
            topics: Vec::new(),
            logs: Vec::new(),
            unanswered: 0,
            ids: 0x100,
        };
        for (topic, count) in partitions.iter().enumerate() {
            broker.ids += 1;
            broker.topics.push(Topic {
                name: format!("shop.t{topic}").into(),
                id: Uuid::from_u128(broker.ids),
                logs: Vec::new(),
            });
            for _ in 0..*count {
                broker.add_partition(topic);
            }
        }
        broker
    }

    pub(super) fn add_partition(&mut self, topic: usize) {
        let partition = i32::try_from(self.topics[topic].logs.len()).expect("a handful");
        self.topics[topic].logs.push(self.logs.len());
        self.logs.push(Log {
            topic,
            topic_id: self.topics[topic].id,
            partition,
            ..Log::default()
        });
    }

    pub(super) fn recreate(&mut self, topic: usize) {
        self.ids += 1;
        self.topics[topic].id = Uuid::from_u128(self.ids);
        let count = std::mem::take(&mut self.topics[topic].logs).len();
        for _ in 0..count {
            self.add_partition(topic);
        }
    }

    /// The end of a log is cut off, as by a leader that had not got it yet. The bounds are those of one incarnation: what is written
    /// from now on keeps them beside what is gone. Tells whether anything went.
    pub(super) fn cut(&mut self, id: LogId, records: u8) -> bool {
        let old = &self.logs[id];
        let end = (old.end() - i64::from(records)).max(old.start);
        if end == old.end() {
            return false;
        }
        let mut log = old.clone();
        log.records
            .truncate(usize::try_from(end).expect("not negative"));
        for transaction in &mut log.transactions {
            if matches!(transaction, Transaction::Open { first } if *first >= end) {
                *transaction = Transaction::Aborted;
            }
        }
        log.cut = Some((id, end));
        log.leader_epoch += 1;
        // Nobody could tell whether what is sent again had been there before.
        log.sent.clear();
        let partition = usize::try_from(log.partition).expect("not negative");
        self.topics[log.topic].logs[partition] = self.logs.len();
        self.logs.push(log);
        true
    }

    /// Below which offset a log holds what an earlier one of its partition held; `None`: it did not come of that one by cuts.
    pub(super) fn same_below(&self, earlier: LogId, log: LogId) -> Option<i64> {
        let (mut at, mut below) = (log, i64::MAX);
        while at != earlier {
            let (before, cut) = self.logs[at].cut?;
            below = below.min(cut);
            at = before;
        }
        Some(below)
    }

    /// The log that a partition had last in an incarnation of its topic, if not a later one.
    pub(super) fn of_incarnation(&self, log: LogId, topic_id: Uuid) -> Option<LogId> {
        let own = &self.logs[log];
        let known = |of: &LogId| {
            let other = &self.logs[*of];
            (other.topic, other.partition, other.topic_id) == (own.topic, own.partition, topic_id)
        };
        (0..=log).rev().find(known)
    }

    /// Every log that can be read now.
    pub(super) fn present(&self) -> Vec<LogId> {
        let logs = self.topics.iter().flat_map(|topic| topic.logs.iter());
        logs.copied().collect()
    }

    /// The logs of all names, as of now.
    pub(super) fn logs_now(&self) -> Logs {
        let named = |log: &LogId| {
            let known = &self.logs[*log];
            let topic = self.topics[known.topic].name.to_string();
            ((topic, known.partition), *log)
        };
        self.present().iter().map(named).collect()
    }

    /// The log of a name, as of now.
    pub(super) fn find(&self, topic: &str, partition: i32) -> Option<LogId> {
        let topic = self.topics.iter().find(|known| *known.name == *topic)?;
        topic.logs.get(usize::try_from(partition).ok()?).copied()
    }
}

impl Log {
    /// The high watermark.
    pub(super) fn end(&self) -> i64 {
        len(&self.records)
    }

    /// Up to where committed records are delivered: the last stable offset.
    pub(super) fn stable(&self) -> i64 {
        let open = self
            .transactions
            .iter()
            .filter_map(|transaction| match transaction {
                Transaction::Open { first } => Some(*first),
                _ => None,
            });
        open.min().unwrap_or_else(|| self.end())
    }

    /// Whether a consumer is given a record, once it can be.
    pub(super) fn is_delivered(&self, record: &Record) -> bool {
        !matches!(record.what, What::Marker)
            && record
                .transaction
                .is_none_or(|at| self.transactions[at] == Transaction::Committed)
    }

    pub(super) fn record(&self, offset: i64) -> Option<&Record> {
        self.records.get(usize::try_from(offset).ok()?)
    }

    /// Appends records of a kind at an instant.
    pub(super) fn produce(&mut self, order: &Order, settings: &Settings) {
        if self.newest_us.is_none() && order.kind == Kind::Outlaw {
            return;
        }
        let first = order.rows.max(1);
        for row in 0..first {
            // Rows of one transaction of the source share a position.
            if row == 0 || order.kind != Kind::Change || row % 2 == 1 {
                self.position += 1;
            }
            let what = match order.kind {
                Kind::Undecodable => What::Undecodable,
                Kind::Signal => What::Signal,
                _ => What::Row(self.row(order, settings)),
            };
            let transaction = order.transaction.then(|| self.transaction());
            self.records.push(Record {
                what,
                transaction,
                leader_epoch: self.leader_epoch,
            });
        }
    }

    fn row(&mut self, order: &Order, settings: &Settings) -> Row {
        let (now, us) = (order.now_us, |ms: i64| ms * 1000);
        // The clocks of workers may be off to both sides, and the bounds hold by each of them.
        let most = us(settings.delay_ms) - 2 * CLOCKS_US;
        let least = -(us(settings.skew_ms) - 2 * CLOCKS_US);
        let delay_us = least + (most - least) * i64::from(order.delay) / 255;
        let floor = self.floor_us(settings);
        let (event_us, truth) = match order.kind {
            Kind::Outlaw => outlaw(self.newest_us.unwrap_or(now).min(now), now, settings),
            Kind::Timeless => (NO_TIME, Truth::Excluded(Kind::Timeless)),
            Kind::Future => {
                let ahead = us(settings.skew_ms + settings.cell_ms * 3);
                (
                    now + ahead + i64::from(order.delay),
                    Truth::Excluded(order.kind),
                )
            }
            Kind::Old if settings.age_ms > 0 => {
                (now - us(settings.age_ms) - 1, Truth::Excluded(order.kind))
            }
            Kind::Snapshot | Kind::LastOfSnapshot => (now, Truth::Excluded(Kind::Snapshot)),
            _ => change((now - delay_us).max(floor), order, settings),
        };
        if matches!(truth, Truth::Counts | Truth::Outlaw) {
            self.newest_us = self.newest_us.max(Some(event_us));
        }
        let row = Row {
            event_us,
            record_us: order.sent_us,
            position: self.position,
            commit_us: now,
            snapshot: match order.kind {
                Kind::Snapshot => Snapshot::Initial,
                Kind::LastOfSnapshot => Snapshot::Last,
                _ => Snapshot::Streamed,
            },
            truth,
            copy_of: None,
        };
        if order.transaction {
            // With its rows the connector's own progress is committed: it begins behind them again.
            self.sent.clear();
        } else {
            self.sent.push((self.end(), row));
        }
        row
    }

    /// Promises that no later row is older than the newest one less the lateness, nor than this.
    pub(super) fn resolve(&mut self, now_us: i64, settings: &Settings) {
        let lateness_us = settings.lateness_ms * 1000;
        let by_order = self.newest_us.map_or(i64::MIN, |us| us - lateness_us);
        let promised_us = by_order.max(now_us - settings.delay_ms * 1000);
        self.resolved_us = self.resolved_us.max(Some(promised_us));
        self.records.push(Record {
            what: What::Resolved(promised_us),
            transaction: None,
            leader_epoch: self.leader_epoch,
        });
    }

    fn transaction(&mut self) -> usize {
        if let Some(open) = self.open() {
            return open;
        }
        let first = self.end();
        self.transactions.push(Transaction::Open { first });
        self.transactions.len() - 1
    }

    fn open(&self) -> Option<usize> {
        let open = |transaction: &Transaction| matches!(transaction, Transaction::Open { .. });
        self.transactions.iter().position(open)
    }

    /// Ends the open transaction; tells whether there was one.
    pub(super) fn end_transaction(&mut self, committed: bool) -> bool {
        let Some(open) = self.open() else {
            return false;
        };
        self.transactions[open] = if committed {
            Transaction::Committed
        } else {
            Transaction::Aborted
        };
        self.records.push(Record {
            what: What::Marker,
            transaction: Some(open),
            leader_epoch: self.leader_epoch,
        });
        true
    }

    /// The connector sends its last rows again, all from one of them on. Tells how many.
    pub(super) fn replay(&mut self, rows: u8, now_us: i64, settings: &Settings) -> usize {
        let from = self.sent.len().saturating_sub(usize::from(rows));
        let again = self.sent[from..].to_vec();
        let newest = self.sent.iter().map(|(_, row)| row.position).max();
        for (offset, row) in &again {
            let row = Row {
                record_us: now_us,
                truth: match row.truth {
                    // What has no time or comes from a snapshot is counted as that.
                    Truth::Excluded(Kind::Timeless | Kind::Snapshot) => row.truth,
                    _ if Some(row.position) < newest => Truth::Replay,
                    _ => self.truth_again(row.event_us, now_us, settings),
                },
                copy_of: Some(*offset),
                ..*row
            };
            self.records.push(Record {
                what: What::Row(row),
                transaction: None,
                leader_epoch: self.leader_epoch,
            });
        }
        again.len()
    }

    /// What a row at the newest position is when it is sent again: nobody can tell it from news.
    fn truth_again(&self, event_us: i64, now_us: i64, settings: &Settings) -> Truth {
        let us = |ms: i64| ms * 1000;
        let late_us = now_us - event_us;
        if settings.age_ms > 0 && late_us > us(settings.age_ms) {
            Truth::Excluded(Kind::Old)
        } else if late_us < -us(settings.skew_ms) {
            Truth::Excluded(Kind::Future)
        } else if late_us > us(settings.delay_ms) - 2 * CLOCKS_US
            || event_us < self.floor_us(settings)
        {
            Truth::Outlaw
        } else {
            Truth::Counts
        }
    }

    /// What no later row is older than: the bound of the lateness, and what the source has promised.
    fn floor_us(&self, settings: &Settings) -> i64 {
        let lateness_us = settings.lateness_ms * 1000;
        let by_order = self.newest_us.map_or(i64::MIN, |us| us - lateness_us);
        by_order.max(self.resolved_us.unwrap_or(by_order))
    }

    /// The source's positions begin anew, later ones by the clock.
    pub(super) fn failover(&mut self) {
        self.position = 0;
        self.sent.clear();
    }

    /// Retention: tells whether a record went.
    pub(super) fn retain(&mut self, records: u8) -> bool {
        let start = (self.start + i64::from(records)).min(self.end());
        let moved = start > self.start;
        self.start = start;
        moved
    }
}

/// What waited in a stopped connector is later than the delay allows, unless the source's heartbeats say so.
fn change(event_us: i64, order: &Order, settings: &Settings) -> (i64, Truth) {
    let waited_us = order.sent_us - event_us;
    let most_us = settings.delay_ms * 1000 - 2 * CLOCKS_US;
    let truth = if settings.age_ms > 0 && waited_us > settings.age_ms * 1000 {
        Truth::Excluded(Kind::Old)
    } else if waited_us > most_us && settings.heartbeats == 0 {
        Truth::Outlaw
    } else {
        Truth::Counts
    };
    (event_us, truth)
}

/// A row that breaks the bounds; where it is older than the greatest age it has no say either.
fn outlaw(newest_us: i64, now_us: i64, settings: &Settings) -> (i64, Truth) {
    let event_us = newest_us - (settings.lateness_ms + settings.cell_ms * 2) * 1000;
    if settings.age_ms > 0 && event_us + settings.age_ms * 1000 < now_us {
        (event_us, Truth::Excluded(Kind::Old))
    } else {
        (event_us, Truth::Outlaw)
    }
}

/// What is to be appended.
pub(super) struct Order {
    /// When it happened in the source.
    pub now_us: i64,
    /// When it is appended.
    pub sent_us: i64,
    pub rows: u8,
    pub delay: u8,
    pub kind: Kind,
    /// Whether to the open transaction, or a new one.
    pub transaction: bool,
}

pub(super) fn len<T>(of: &[T]) -> i64 {
    i64::try_from(of.len()).expect("a history is short")
}
