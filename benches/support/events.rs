//! Change events of a shop's orders as Debezium tells them of MySQL, without their schema: a pure function of a seed.
//!
//! About 0.65 KB an event; 75 % creates, 20 % updates (before and after), 5 % deletes; twelve columns, 6 % of the notes with
//! escapes or beyond ASCII. Event times go through three hours, behind by a log-normal time (median 0.4 s).

use std::io::Write as _;

/// Partitions of the topic; events go to them in turn.
pub(crate) const PARTITIONS: u32 = 4;

/// The first event time, ms: long past on any machine, so that no row lies in the future.
const BASE_MS: i64 = 1_704_067_200_000;

const SPAN_MS: i64 = 3 * 3_600_000;

const STATUS: [&str; 6] = ["new", "paid", "packed", "shipped", "delivered", "cancelled"];

const WORDS: [&str; 25] = [
    "please", "leave", "at", "the", "door", "call", "before", "gift", "wrap", "fragile", "second",
    "floor", "blue", "large", "return", "customer", "urgent", "weekend", "delivery", "replace",
    "size", "order", "again", "with", "invoice",
];

/// Gives one event after the other.
pub(crate) struct Events {
    rng: fastrand::Rng,
    rows: u32,
    given: u32,
    file: u32,
    position: u32,
}

/// One event.
#[derive(Default)]
pub(crate) struct Event {
    /// Its partition.
    pub(crate) partition: u32,
    /// Its place in the partition.
    pub(crate) offset: i64,
    /// The timestamp of its record, ms.
    pub(crate) record_ms: i64,
    /// The record's key.
    pub(crate) key: Vec<u8>,
    /// The record's value.
    pub(crate) value: Vec<u8>,
}

struct Order {
    id: u32,
    customer: u32,
    status: usize,
    sku: u32,
    city: u32,
    cents: u32,
    quantity: u32,
    gift: bool,
    grams: u32,
    note: String,
    created_ms: i64,
    updated_us: i64,
}

impl Events {
    /// `rows` events.
    pub(crate) fn new(seed: u64, rows: u32) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(seed),
            rows,
            given: 0,
            file: 123,
            position: 4,
        }
    }

    /// Writes the next event over `event`; `false` when there is none.
    pub(crate) fn next_into(&mut self, event: &mut Event) -> bool {
        if self.given == self.rows {
            return false;
        }
        let passed_ms = SPAN_MS * i64::from(self.given) / i64::from(self.rows);
        event.record_ms = BASE_MS + passed_ms + 350;
        event.partition = self.given % PARTITIONS;
        event.offset = i64::from(self.given / PARTITIONS);
        self.given += 1;
        let behind_ms = self.behind_ms();
        let order = self.order(BASE_MS + passed_ms - behind_ms);
        event.key.clear();
        event.value.clear();
        write!(event.key, r#"{{"id":{}}}"#, order.id).expect("a vector takes every byte");
        self.envelope(
            &mut event.value,
            &order,
            BASE_MS + passed_ms - behind_ms,
            event.record_ms,
        );
        true
    }

    /// Log-normal: Box and Muller's normal number under the exponential.
    #[expect(clippy::cast_possible_truncation, reason = "at most an hour of ms")]
    fn behind_ms(&mut self) -> i64 {
        let radius = (-2.0 * (1.0 - self.rng.f64()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.rng.f64()).cos();
        let behind_ms = 400.0 * (1.5 * normal).exp();
        behind_ms.min(3_600_000.0) as i64
    }

    fn order(&mut self, event_ms: i64) -> Order {
        let rng = &mut self.rng;
        Order {
            id: 10_000_000 + rng.u32(..5_000_000),
            customer: rng.u32(..800_000),
            status: rng.usize(..STATUS.len()),
            sku: rng.u32(..5_000),
            city: rng.u32(..200),
            cents: rng.u32(..50_000),
            quantity: rng.u32(1..10),
            gift: rng.u32(..8) == 0,
            grams: rng.u32(..30_000),
            note: note(rng),
            created_ms: event_ms - rng.i64(0..30 * 86_400_000),
            updated_us: event_ms * 1_000 + rng.i64(0..1_000),
        }
    }

    fn envelope(&mut self, out: &mut Vec<u8>, order: &Order, event_ms: i64, now_ms: i64) {
        let op = match self.rng.u32(..100) {
            0..75 => 'c',
            75..95 => 'u',
            _ => 'd',
        };
        out.extend_from_slice(br#"{"before":"#);
        match op {
            'c' => out.extend_from_slice(b"null"),
            'u' => order.image(out, self.rng.usize(..STATUS.len()), 5_000_000),
            _ => order.image(out, order.status, 0),
        }
        out.extend_from_slice(br#","after":"#);
        match op {
            'd' => out.extend_from_slice(b"null"),
            _ => order.image(out, order.status, 0),
        }
        self.position += 300 + self.rng.u32(..400);
        if self.position > 1_000_000_000 {
            (self.position, self.file) = (4, self.file + 1);
        }
        write!(
            out,
            r#","source":{{"version":"3.0.0.Final","connector":"mysql","name":"shop","ts_ms":{event_ms},"snapshot":"false","db":"shop","table":"orders","server_id":223344,"gtid":null,"file":"mysql-bin.{:06}","pos":{},"row":{},"thread":{},"query":null}},"op":"{op}","ts_ms":{now_ms},"transaction":null}}"#,
            self.file,
            self.position,
            self.rng.u32(..3),
            1_000 + self.rng.u32(..64),
        )
        .expect("a vector takes every byte");
    }
}

impl Order {
    /// The row with another status, and as it was `earlier_us` before.
    fn image(&self, out: &mut Vec<u8>, status: usize, earlier_us: i64) {
        write!(
            out,
            r#"{{"id":{},"customer_id":{},"status":"{}","sku":"SKU-{:06}","city":"city-{}-ville","price":"{}.{:02}","quantity":{},"gift":{},"weight":{}.{:03},"note":"{}","created_at":{},"updated_at":{}}}"#,
            self.id,
            self.customer,
            STATUS[status],
            self.sku,
            self.city,
            self.cents / 100,
            self.cents % 100,
            self.quantity,
            self.gift,
            self.grams / 1_000,
            self.grams % 1_000,
            self.note,
            self.created_ms,
            self.updated_us - earlier_us,
        )
        .expect("a vector takes every byte");
    }
}

fn note(rng: &mut fastrand::Rng) -> String {
    let mut note = String::new();
    while note.len() < 34 + rng.usize(..12) {
        if !note.is_empty() {
            note.push(' ');
        }
        note.push_str(WORDS[rng.usize(..WORDS.len())]);
    }
    match rng.u32(..100) {
        0 => note.push_str(r#" \"ok\""#),
        1 => note.push_str(r" \n\u00e9"),
        2..6 => note.push_str(" café – Zürich"),
        _ => {
            note.push(' ');
            note.push_str(&rng.u32(..100_000).to_string());
        }
    }
    note
}
