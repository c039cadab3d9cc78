//! The demo's change generator: orders of a shop, as Debezium would tell them.
//!
//! Three database servers and one for goods sold off-line write to one topic of four partitions, so that the rows of a partition
//! interleave the servers' logs: each server is behind by a time of its own that grows and falls. That is the disorder that
//! a real pipeline sees, and it stays within the lateness that the pipeline declares. Some rows come later than that and
//! are marked so. One partition gets half of all rows, one hardly any, two fall silent for a while.
//!
//! A pure function of seed and start: no clock, no broker. Asked for the rows until an instant, it gives the same ones
//! whether it is asked once or a thousand times.

use std::fmt::Write as _;

/// The partitions of the demo's topic.
pub const PARTITIONS: i32 = 4;

/// How much older than an earlier row of its partition a row may be, unless it is marked late: what the pipeline declares.
pub const LATENESS_US: i64 = 5 * MINUTE_US;

const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;

/// Rows a second at full flow, all partitions together. At 300 times the usual pace these are 1,200 rows a second: about an
/// eighth of a core for a worker built without optimisation.
const ROWS_PER_SECOND: f64 = 4.0;

/// Which share of the rows each partition gets.
const SHARES: [f64; PARTITIONS as usize] = [0.55, 0.28, 0.15, 0.02];

/// Of each partition: silent from the first minute to the second, counted from the start.
const SILENCES: [&[(i64, i64)]; PARTITIONS as usize] =
    [&[], &[(125, 150)], &[(35, 75)], &[(95, 110)]];

/// The furthest a server is ever behind.
const LONGEST_LAG_US: i64 = LATENESS_US * 8 / 10;

/// Of so many rows one comes late.
const LATE_ONE_IN: u32 = 1_500;

/// No row is late before this much time has passed: a late row of before the start would belong to no hour shown.
const FIRST_LATE_US: i64 = 50 * MINUTE_US;

/// How old late rows are.
const LATE_AGE_US: std::ops::Range<i64> = 11 * MINUTE_US..45 * MINUTE_US;

/// Orders kept for later changes; the oldest is forgotten beyond.
const OPEN_ORDERS: usize = 2_000;

const STATUS: [&str; 4] = ["new", "paid", "shipped", "returned"];
const NOTES: [&str; 4] = ["", "leave at the door", "Čeněk, 2. patro", "海辺まで"];

/// One change, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The partition it goes to.
    pub partition: i32,
    /// The order it is about.
    pub order: i64,
    /// When its server committed it: its event time.
    pub event_time_us: i64,
    /// When the connector passes it on: the timestamp of its message.
    pub passed_on_us: i64,
    /// Whether it may break the declared lateness.
    pub late: bool,
    /// The message's key.
    pub key: String,
    /// The message's value; none for a tombstone.
    pub value: Option<String>,
}

/// All changes of one demo, in the order of sending.
pub struct Generator {
    rng: fastrand::Rng,
    start_us: i64,
    /// The next arrival of each partition.
    next_us: [i64; PARTITIONS as usize],
    servers: Vec<Server>,
    orders: Vec<Order>,
    last_order: i64,
}

/// One database server with its connector: its log goes forward, and so do its commit times.
struct Server {
    name: &'static str,
    id: u32,
    position: u64,
    commits: u64,
    /// How long its delay takes from nothing to its most.
    period_us: i64,
    last_commit_us: [i64; PARTITIONS as usize],
}

struct Order {
    id: i64,
    partition: i32,
    customer: i32,
    status: usize,
    cents: u32,
    note: &'static str,
    created_us: i64,
}

impl Generator {
    /// The changes from `start_us` on that belong to `seed`.
    #[must_use]
    pub fn new(seed: u64, start_us: i64) -> Self {
        let server = |(name, id, minutes): (&'static str, u32, i64)| Server {
            name,
            id,
            position: 4,
            commits: 0,
            period_us: minutes * MINUTE_US,
            last_commit_us: [i64::MIN; PARTITIONS as usize],
        };
        let servers = [
            ("shop-eu", 11, 23),
            ("shop-us", 12, 31),
            ("shop-asia", 13, 17),
            ("shop-offline", 14, 1),
        ];
        let mut generator = Self {
            rng: fastrand::Rng::with_seed(seed),
            start_us,
            next_us: [start_us; PARTITIONS as usize],
            servers: servers.map(server).into(),
            orders: Vec::new(),
            last_order: 1000,
        };
        for partition in 0..PARTITIONS {
            generator.advance(partition);
        }
        generator
    }

    /// Appends every change that is passed on before `until_us` and was not given before, in that order.
    pub fn changes_until(&mut self, until_us: i64, changes: &mut Vec<Change>) {
        loop {
            let due = (0..PARTITIONS).min_by_key(|partition| self.next_us[index(*partition)]);
            let Some(partition) =
                due.filter(|partition| self.next_us[index(*partition)] < until_us)
            else {
                return;
            };
            let now_us = self.next_us[index(partition)];
            self.change(partition, now_us, changes);
            self.advance(partition);
        }
    }

    /// Leaves out the changes before `us` that were not given yet: the time up to then brings none.
    pub fn skip_to(&mut self, us: i64) {
        for next_us in &mut self.next_us {
            *next_us = us.max(*next_us);
        }
    }

    /// Draws when the next row of `partition` comes: a Poisson flow, with silences.
    fn advance(&mut self, partition: i32) {
        let rate = ROWS_PER_SECOND * SHARES[index(partition)];
        // 1 - f64() lies in (0, 1]: its logarithm is finite.
        let wait_s = -(1.0 - self.rng.f64()).ln() / rate;
        let mut next_us = self.next_us[index(partition)] + seconds(wait_s);
        for (from, to) in SILENCES[index(partition)] {
            let silence = self.start_us + from * MINUTE_US..self.start_us + to * MINUTE_US;
            if silence.contains(&next_us) {
                next_us = silence.end;
            }
        }
        self.next_us[index(partition)] = next_us;
    }

    fn change(&mut self, partition: i32, now_us: i64, changes: &mut Vec<Change>) {
        let late = now_us - self.start_us > FIRST_LATE_US && self.rng.u32(..LATE_ONE_IN) == 0;
        let (server, behind_us) = if late {
            (self.servers.len() - 1, self.rng.i64(LATE_AGE_US))
        } else {
            let server = self.rng.usize(..self.servers.len() - 1);
            (
                server,
                self.lag(server, now_us) + self.rng.i64(0..2 * SECOND_US),
            )
        };
        let event_time_us = self.servers[server].commit(partition, now_us - behind_us);
        let stamp = Stamp {
            server,
            partition,
            event_time_us,
            now_us,
            late,
        };
        match self.rng.u32(..100) {
            0..50 => self.create(stamp, changes),
            50..92 => self.update(stamp, changes),
            _ => self.delete(stamp, changes),
        }
    }

    /// How far a server is behind: it grows slowly for one period, is made good in a sixteenth of it, and starts anew.
    fn lag(&self, server: usize, now_us: i64) -> i64 {
        let period_us = self.servers[server].period_us;
        let at_us = (now_us - self.start_us).rem_euclid(period_us);
        let rise_us = period_us / 16 * 15;
        if at_us < rise_us {
            LONGEST_LAG_US * (at_us / SECOND_US) / (rise_us / SECOND_US)
        } else {
            let left_us = period_us - at_us;
            LONGEST_LAG_US * (left_us / SECOND_US) / ((period_us - rise_us) / SECOND_US)
        }
    }

    fn create(&mut self, stamp: Stamp, changes: &mut Vec<Change>) {
        self.last_order += 1;
        let order = Order {
            id: self.last_order,
            partition: stamp.partition,
            customer: self.rng.i32(1..500),
            status: 0,
            cents: self.rng.u32(99..50_000),
            note: NOTES[self.rng.usize(..NOTES.len())],
            created_us: stamp.event_time_us,
        };
        let after = order.json();
        changes.push(self.message(stamp, order.id, "c", None, Some(&after)));
        if self.orders.len() == OPEN_ORDERS {
            self.orders.swap_remove(0);
        }
        self.orders.push(order);
    }

    fn update(&mut self, stamp: Stamp, changes: &mut Vec<Change>) {
        let Some(at) = self.pick(stamp.partition) else {
            return self.create(stamp, changes);
        };
        let before = self.orders[at].json();
        let order = &mut self.orders[at];
        order.status = (order.status + 1) % STATUS.len();
        let (id, after) = (order.id, order.json());
        changes.push(self.message(stamp, id, "u", Some(&before), Some(&after)));
    }

    fn delete(&mut self, stamp: Stamp, changes: &mut Vec<Change>) {
        let Some(at) = self.pick(stamp.partition) else {
            return self.create(stamp, changes);
        };
        let order = self.orders.swap_remove(at);
        let deletion = self.message(stamp, order.id, "d", Some(&order.json()), None);
        let tombstone = Change {
            value: None,
            ..deletion.clone()
        };
        changes.extend([deletion, tombstone]);
    }

    /// An open order of the partition; a few tries are enough, otherwise the caller makes a new one.
    fn pick(&mut self, partition: i32) -> Option<usize> {
        if self.orders.is_empty() {
            return None;
        }
        (0..20).find_map(|_| {
            let at = self.rng.usize(..self.orders.len());
            (self.orders[at].partition == partition).then_some(at)
        })
    }

    fn message(
        &mut self,
        stamp: Stamp,
        order: i64,
        op: &str,
        before: Option<&str>,
        after: Option<&str>,
    ) -> Change {
        let server = &self.servers[stamp.server];
        let (time_ms, now_ms) = (stamp.event_time_us / 1_000, stamp.now_us / 1_000);
        let mut value = String::with_capacity(900);
        // Writing to a String never fails.
        let _ = write!(
            value,
            r#"{{"before":{},"after":{},"source":{{"version":"3.5.0.Final","connector":"mysql","name":"{}","ts_ms":{time_ms},"#,
            before.unwrap_or("null"),
            after.unwrap_or("null"),
            server.name,
        );
        let _ = write!(
            value,
            r#""snapshot":"false","db":"shop","sequence":null,"ts_us":{},"ts_ns":{}000,"table":"orders","server_id":{},"#,
            stamp.event_time_us, stamp.event_time_us, server.id,
        );
        let _ = write!(
            value,
            r#""gtid":"3e11fa47-71ca-11e1-9e33-c80aa94295{}:{}","file":"binlog.000007","pos":{},"row":0,"thread":42,"query":null}},"#,
            server.id, server.commits, server.position,
        );
        let _ = write!(
            value,
            r#""transaction":null,"op":"{op}","ts_ms":{now_ms},"ts_us":{},"ts_ns":{}000}}"#,
            stamp.now_us, stamp.now_us,
        );
        Change {
            partition: stamp.partition,
            order,
            event_time_us: stamp.event_time_us,
            passed_on_us: stamp.now_us,
            late: stamp.late,
            key: format!(r#"{{"id":{order}}}"#),
            value: Some(value),
        }
    }
}

/// Where and when one change happens.
#[derive(Clone, Copy)]
struct Stamp {
    server: usize,
    partition: i32,
    event_time_us: i64,
    now_us: i64,
    late: bool,
}

impl Server {
    /// The next commit of the server that goes to `partition`, not before the last one there.
    fn commit(&mut self, partition: i32, wanted_us: i64) -> i64 {
        self.commits += 1;
        self.position += 431;
        let last_us = &mut self.last_commit_us[index(partition)];
        *last_us = wanted_us.max(*last_us);
        *last_us
    }
}

impl Order {
    fn json(&self) -> String {
        format!(
            r#"{{"id":{},"customer_id":{},"status":"{}","amount":"{}.{:02}","note":{},"created_at":"{}"}}"#,
            self.id,
            self.customer,
            STATUS[self.status],
            self.cents / 100,
            self.cents % 100,
            if self.note.is_empty() {
                "null".to_owned()
            } else {
                format!("\"{}\"", self.note)
            },
            super::instant(self.created_us),
        )
    }
}

#[expect(clippy::cast_sign_loss, reason = "partitions are counted from 0")]
fn index(partition: i32) -> usize {
    partition as usize
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a wait between two rows is minutes at most"
)]
fn seconds(s: f64) -> i64 {
    (s * 1e6) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_US: i64 = 1_796_032_800_000_000; // 2026-11-30T10:00:00Z
    const HOUR_US: i64 = 60 * MINUTE_US;

    fn changes(seed: u64, hours: i64) -> Vec<Change> {
        let mut changes = Vec::new();
        Generator::new(seed, START_US).changes_until(START_US + hours * HOUR_US, &mut changes);
        changes
    }

    /// Otherwise a slow machine would see other rows than a fast one, and a seed would reproduce nothing.
    #[test]
    fn changes_do_not_depend_on_how_often_they_are_asked_for() {
        let mut generator = Generator::new(7, START_US);
        let mut step_by_step = Vec::new();
        for second in 1..=3600 {
            generator.changes_until(START_US + second * SECOND_US, &mut step_by_step);
        }
        assert_eq!(step_by_step, changes(7, 1));
        assert_ne!(changes(7, 1), changes(8, 1));
    }

    /// The demo judges the claim by this: an unmarked row that breaks the bound would be a false alarm.
    #[test]
    fn only_marked_rows_break_the_declared_lateness() {
        for seed in 0..5 {
            let mut greatest = [i64::MIN; PARTITIONS as usize];
            let mut late = 0;
            for change in changes(seed, 4) {
                let greatest = &mut greatest[index(change.partition)];
                let older_us = greatest.saturating_sub(change.event_time_us);
                assert!(
                    change.late || older_us <= LATENESS_US,
                    "seed {seed}: {change:?}"
                );
                *greatest = change.event_time_us.max(*greatest);
                late += usize::from(change.late);
            }
            assert!(late > 5, "seed {seed}: {late} late rows");
        }
    }

    /// Without disorder near its bound the demo would show nothing.
    #[test]
    fn rows_come_out_of_order_nearly_as_far_as_allowed() {
        let mut greatest = i64::MIN;
        let mut furthest = 0;
        for change in changes(1, 4)
            .iter()
            .filter(|change| change.partition == 0 && !change.late)
        {
            furthest = furthest.max(greatest.saturating_sub(change.event_time_us));
            greatest = greatest.max(change.event_time_us);
        }
        assert!(furthest > LATENESS_US / 2, "{furthest} µs");
    }

    /// Rows of one server in one partition must look like its log: position and commit time go forward together.
    #[test]
    fn source_positions_and_commit_times_never_go_back_within_a_server() {
        let mut last = std::collections::BTreeMap::new();
        for change in changes(3, 4) {
            let Some(value) = change.value else { continue };
            let value: serde_json::Value = serde_json::from_str(&value).expect("values are JSON");
            let source = &value["source"];
            assert_eq!(source["ts_us"], change.event_time_us);
            let now = (source["pos"].as_u64(), change.event_time_us);
            let last = last
                .entry((change.partition, source["name"].to_string()))
                .or_insert(now);
            assert!(*last <= now && last.1 <= now.1, "{last:?} then {now:?}");
            *last = now;
        }
    }

    #[test]
    fn two_partitions_fall_silent_and_one_gets_half_of_all_rows() {
        let changes = changes(5, 3);
        let rows = |partition| {
            changes
                .iter()
                .filter(move |change| change.partition == partition)
        };
        assert!(rows(0).count() * 2 > changes.len());
        let silent = |partition| {
            let times: Vec<i64> = rows(partition).map(|change| change.passed_on_us).collect();
            times.windows(2).map(|pair| pair[1] - pair[0]).max()
        };
        assert!(silent(1) >= Some(25 * MINUTE_US));
        assert!(silent(2) >= Some(40 * MINUTE_US));
        assert!(silent(0) < Some(MINUTE_US));
    }

    #[test]
    fn deletion_is_followed_by_its_tombstone() {
        let changes = changes(2, 1);
        let tombstones = changes.windows(2).filter(|pair| pair[1].value.is_none());
        for pair in tombstones {
            let deletion = pair[0].value.as_deref().unwrap_or_default();
            assert!(
                deletion.contains(r#""op":"d""#) && pair[0].key == pair[1].key,
                "{pair:?}"
            );
        }
        assert!(changes.iter().any(|change| change.value.is_none()));
    }
}
