//! What the fuzz targets share: a table that rows are decoded into, and a commit whose state and summary are mutated.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tidemark::cdc::{
    Decoder, Encoding, Kind, Record, RowSchema, RowSettings, Rows, metadata_columns,
};
use tidemark::watermark::{
    Advanced, Anchor, AskedEnd, AskedPartitions, Bounds, Contribution, Digest, FromRule, Grid,
    Heartbeats, Identity, LateData, OnJoin, Origin, PartitionNews, Policy, SECOND_US, Sketch,
    State, Term, advance, contract,
};
use uuid::Uuid;

/// The writer of the mutated table.
pub const WRITER: &str = "fuzz.orders";

const START_US: i64 = 1_796_029_200 * SECOND_US;

/// Packs bytes as states and records are packed: a version byte and a checked zstd frame, in base64. So the fuzzer gets behind
/// the checksum.
///
/// # Panics
/// Never: compressing into memory does not fail.
#[must_use]
pub fn pack(bytes: &[u8]) -> String {
    let mut packer = zstd::bulk::Compressor::new(1).expect("a compressor");
    packer
        .include_checksum(true)
        .expect("a setting that exists");
    let mut framed = vec![1];
    framed.append(&mut packer.compress(bytes).expect("memory"));
    STANDARD.encode(framed)
}

/// The bytes in a packed text, if it is one.
#[must_use]
pub fn unpack(text: &str) -> Option<Vec<u8>> {
    let framed = STANDARD.decode(text).ok()?;
    zstd::bulk::decompress(framed.get(1..)?, 1 << 20).ok()
}

fn policy() -> Policy {
    Policy {
        revision: 1,
        grid: Grid::new(3600 * SECOND_US).expect("an hour divides a day"),
        bounds: Bounds {
            allowed_lateness_us: 300 * SECOND_US,
            max_delay_us: 600 * SECOND_US,
            max_future_skew_us: 300 * SECOND_US,
            max_age_us: None,
        },
        window_commits: 3,
        window_duration_us: 0,
        terms: [Term::Minimum, Term::CaughtUp].into(),
        complete_from: FromRule::Derived,
        late_data: LateData::Notify,
        on_join: OnJoin::Reopen,
        quantile: None,
        heartbeats: Heartbeats::None,
    }
}

fn news(number: i64) -> Contribution {
    let now_us = START_US + number * 1800 * SECOND_US;
    let partitions = || 0..3;
    let mut news = Contribution {
        asked: Some(AskedPartitions {
            at_us: now_us,
            topics: [("orders".to_owned(), partitions().collect())].into(),
        }),
        ..Contribution::empty(
            (Uuid::from_u128(number.cast_unsigned().into()), "worker"),
            "orders",
            policy().grid,
            now_us,
        )
    };
    for partition in partitions() {
        if number == 0 {
            news.anchors.push(Anchor {
                topic: "orders".to_owned(),
                topic_id: Some(Uuid::from_u128(9)),
                partition,
                offset: 0,
                origin: Origin::New,
                at_us: now_us,
            });
            continue;
        }
        let times: Vec<i64> = (0..5).map(|row| now_us - row * 60 * SECOND_US).collect();
        let mut digest = Digest::default();
        digest.extend(&times);
        let sketch = digest.finish();
        news.cells.extend(&times);
        news.rows += 5;
        news.event_times = Sketch::merge(news.event_times.iter().chain(&sketch));
        news.partitions.push(PartitionNews {
            topic: "orders".to_owned(),
            partition,
            start_offset: (number - 1) * 5,
            end_offset: number * 5,
            stats: sketch.as_ref().map(Sketch::stats),
            asked_end: Some(AskedEnd {
                at_us: now_us,
                high_watermark: number * 5,
                delivered: number * 5,
                heartbeat_us: None,
            }),
            ..PartitionNews::default()
        });
    }
    news
}

/// The third commit of a table, and its summary.
///
/// # Panics
/// Never: the commits fit each other.
#[must_use]
pub fn commit() -> (Advanced, HashMap<String, String>) {
    let identity = Identity {
        writer: WRITER.to_owned(),
        cluster_id: "cluster".to_owned(),
        installation: "here".to_owned(),
        table_uuid: Uuid::from_u128(7),
        table_ref: "main".to_owned(),
    };
    let mut state = State::new(identity, "orders", policy(), START_US);
    for number in 0..2 {
        let next = advance(&state, &policy(), &news(number));
        state = next.expect("a commit that fits").state;
    }
    let last = news(2);
    let advanced = advance(&state, &policy(), &last).expect("a commit that fits");
    let summary = contract::summary(&advanced, &last).into_iter().collect();
    (advanced, summary)
}

/// A table of every kind of column, and one decoder of its topic.
pub struct Table {
    rows: Rows,
    decoder: Box<dyn Decoder>,
    next_offset: i64,
}

impl Table {
    /// Of this format.
    ///
    /// # Panics
    /// Never: the table is a good one.
    pub fn new(decoder: impl FnOnce(&Arc<RowSchema>) -> Box<dyn Decoder>) -> Self {
        let columns = [
            ("id", Kind::Long, Encoding::Plain),
            ("name", Kind::String, Encoding::Plain),
            (
                "price",
                Kind::Decimal {
                    precision: 12,
                    scale: 2,
                },
                Encoding::Text,
            ),
            (
                "precise",
                Kind::Decimal {
                    precision: 38,
                    scale: 9,
                },
                Encoding::Base64,
            ),
            ("state", Kind::Int, Encoding::Plain),
            ("ratio", Kind::Double, Encoding::Plain),
            ("small", Kind::Float, Encoding::Plain),
            ("open", Kind::Boolean, Encoding::Plain),
            ("day", Kind::Date, Encoding::Plain),
            ("hour", Kind::Time, Encoding::Micros),
            ("created_at", Kind::Timestamptz, Encoding::Millis),
            ("updated_at", Kind::Timestamp, Encoding::Iso),
            ("note", Kind::Binary, Encoding::Base64),
            ("token", Kind::Uuid, Encoding::Plain),
        ];
        let own = columns
            .iter()
            .map(|(name, kind, _)| Field::new(*name, kind.data_type(), *name != "id"));
        let metadata = metadata_columns("_cdc_").into_iter();
        let metadata = metadata.map(|c| Field::new(c.name, c.kind.data_type(), !c.required));
        let schema = Schema::new(own.chain(metadata).collect::<Vec<_>>());
        let encodings: BTreeMap<String, Encoding> = columns
            .iter()
            .map(|(name, _, encoding)| ((*name).to_owned(), *encoding))
            .collect();
        let settings = RowSettings {
            metadata_prefix: "_cdc_",
            key: &["id".to_owned()],
            encodings: Some(&encodings),
        };
        let schema = RowSchema::new(Arc::new(schema), settings).expect("a good table");
        Self {
            rows: Rows::new(&schema, 16),
            decoder: decoder(&schema),
            next_offset: 0,
        }
    }

    /// Decodes one record after the other: key and value are divided by a zero byte, records by two. What is refused leaves the
    /// rows as they were, and what is taken makes a batch.
    ///
    /// # Panics
    /// A decoder that breaks its promise.
    pub fn decode(&mut self, data: &[u8]) {
        let mut rest = Some(data);
        while let Some(record) = rest {
            let (record, after) = match record.windows(2).position(|two| two == [0, 0]) {
                Some(at) => (&record[..at], Some(&record[at + 2..])),
                None => (record, None),
            };
            rest = after;
            let divided = record.iter().position(|byte| *byte == 0);
            let (key, value) = match divided {
                Some(at) => (Some(&record[..at]), Some(&record[at + 1..])),
                None => (None, Some(record)),
            };
            self.decode_one(key, value.filter(|value| !value.is_empty()));
        }
        let rows = self.rows.len();
        let batch = self.rows.finish();
        assert_eq!(batch.num_rows(), rows);
        assert!(self.rows.is_empty());
    }

    fn decode_one(&mut self, key: Option<&[u8]>, value: Option<&[u8]>) {
        let before = self.rows.len();
        let record = Record {
            topic: "shop.orders",
            partition: 0,
            offset: self.next_offset,
            timestamp_us: Some(START_US),
            ingested_at_us: START_US,
            key,
            value,
            headers: &(),
        };
        self.next_offset += 1;
        match self.decoder.decode(&record, &mut self.rows) {
            Ok(tidemark::cdc::Decoded::Rows(rows)) => assert_eq!(self.rows.len(), before + rows),
            Ok(tidemark::cdc::Decoded::Signal(_)) => assert_eq!(self.rows.len(), before),
            Err(fault) => {
                assert!(!fault.to_string().is_empty() && !fault.reason().is_empty());
                assert_eq!(self.rows.len(), before, "a refused record left rows");
            }
        }
        assert_eq!(self.rows.facts().len(), self.rows.len());
    }
}
