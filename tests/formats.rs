//! Captured messages of real databases, decoded: rows and signals are what the database's script wrote.
//!
//! `data/README.md` says how the messages came about, and the SQL beside each file what must come out.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use arrow::array::{Array as _, RecordBatch};
use arrow::datatypes::{Field, Schema};
use arrow::util::display::array_value_to_string;
use serde_json::Value;
use tidemark::cdc::{
    Debezium, Decoded, Decoder as _, Encoding, EventTimeFrom, Kind, Record, RowFacts, RowSchema,
    RowSettings, Rows, Signal, Snapshot, metadata_columns,
};

/// A table that takes the messages of a topic.
struct Table {
    rows: Rows,
    decoder: Debezium,
    signals: Vec<Signal>,
}

impl Table {
    fn new(columns: &[(&str, Kind, Encoding)], key: &[&str]) -> Table {
        let own = columns
            .iter()
            .map(|(name, kind, _)| Field::new(*name, kind.data_type(), true));
        let metadata = metadata_columns("_cdc_").into_iter();
        let metadata = metadata.map(|c| Field::new(c.name, c.kind.data_type(), !c.required));
        let schema = Arc::new(Schema::new(own.chain(metadata).collect::<Vec<_>>()));
        let key: Vec<String> = key.iter().map(ToString::to_string).collect();
        let encodings: BTreeMap<String, Encoding> = columns
            .iter()
            .map(|(name, _, encoding)| (name.to_string(), *encoding))
            .collect();
        let settings = RowSettings {
            metadata_prefix: "_cdc_",
            key: &key,
            encodings: Some(&encodings),
        };
        let schema = RowSchema::new(schema, settings).unwrap();
        Table {
            rows: Rows::new(&schema, 64),
            decoder: Debezium::new(&schema, EventTimeFrom::SourceCommit),
            signals: Vec::new(),
        }
    }

    /// Decodes the messages of one topic in a captured file.
    fn read(mut self, file: &str, topic: &str) -> Table {
        let path = format!("{}/tests/data/{file}.jsonl", env!("CARGO_MANIFEST_DIR"));
        for line in fs::read_to_string(path).unwrap().lines() {
            let message: Value = serde_json::from_str(line).unwrap();
            if message["topic"] != topic {
                continue;
            }
            let record = Record {
                topic,
                partition: i32::try_from(message["partition"].as_i64().unwrap()).unwrap(),
                offset: message["offset"].as_i64().unwrap(),
                timestamp_us: message["timestamp"].as_i64().map(|ms| ms * 1000),
                ingested_at_us: 1_796_067_999_000_000,
                key: message["key"].as_str().map(str::as_bytes),
                value: message["value"].as_str().map(str::as_bytes),
                headers: &(),
            };
            if let Decoded::Signal(signal) = self.decoder.decode(&record, &mut self.rows).unwrap() {
                self.signals.push(signal);
            }
        }
        self
    }

    /// The rows in the order of the topic's messages, these columns of them.
    fn take(&mut self, columns: &[&str]) -> Vec<String> {
        let batch = self.rows.finish();
        let row = |row| {
            columns
                .iter()
                .map(|name| cell(&batch, name, row))
                .collect::<Vec<_>>()
        };
        (0..batch.num_rows()).map(|n| row(n).join(" ")).collect()
    }

    fn count(&self, is: impl Fn(&Signal) -> bool) -> usize {
        self.signals.iter().filter(|signal| is(signal)).count()
    }
}

fn cell(batch: &RecordBatch, name: &str, row: usize) -> String {
    let array = batch.column_by_name(name).unwrap();
    if array.is_null(row) {
        "-".to_owned()
    } else {
        array_value_to_string(array, row).unwrap()
    }
}

/// `id`, and a column of each kind that a MariaDB type ends up as.
fn mariadb_types() -> Vec<(&'static str, Kind, Encoding)> {
    let decimal = |precision, scale| Kind::Decimal { precision, scale };
    vec![
        ("id", Kind::Int, Encoding::Plain),
        ("a_boolean", Kind::Boolean, Encoding::Plain),
        ("a_bigint", Kind::Long, Encoding::Plain),
        ("a_float", Kind::Float, Encoding::Plain),
        ("a_double", Kind::Double, Encoding::Plain),
        ("a_decimal", decimal(10, 3), Encoding::Base64),
        ("a_decimal_wide", decimal(38, 10), Encoding::Base64),
        ("a_date", Kind::Date, Encoding::Days),
        ("a_datetime3", Kind::Timestamp, Encoding::Millis),
        ("a_datetime6", Kind::Timestamp, Encoding::Micros),
        ("a_timestamp6", Kind::Timestamptz, Encoding::Iso),
        ("a_varchar", Kind::String, Encoding::Plain),
        ("a_blob", Kind::Binary, Encoding::Plain),
    ]
}

/// Everyday values, the least, before 1970, null: what the script inserted is what the table holds.
#[test]
fn mariadb_values_arrive_exactly() {
    let columns = mariadb_types();
    let names: Vec<&str> = columns.iter().map(|(name, ..)| *name).collect();
    let mut table = Table::new(&columns, &["id"]).read("mariadb/types.default", "shop.shop.types");
    let rows = table.take(&names);
    let has = |row: &str| assert!(rows.iter().any(|found| found == row), "{row} in {rows:#?}");
    has("1 - - - - 1.500 - - - 2026-11-30T10:00:00.000001 - - -");
    has(
        "2 true 6 1.5 2.25 1234567.891 1234567890.0123456789 2026-11-30 2026-11-30T10:11:12.123 \
         2026-11-30T10:11:12.123456 2026-11-30T10:11:12.123456Z grün deadbeef00",
    );
    has(
        "4 false -9223372036854775808 -3.4e38 -1.7e308 -9999999.999 \
         -9999999999999999999999999999.9999999999 2001-01-01 2001-01-01T00:00:00.001 \
         2001-01-01T00:00:00.000001 1970-01-01T00:00:00.000001Z  00",
    );
    has("5 - - - - - - 1969-12-31 1969-12-31T23:59:59.999 1969-12-31T23:59:59.999999 - - -");
    has("6 - - - - - - - - - - - -");
}

/// The same values by text and hex: another encoding, the same rows.
#[test]
fn the_encoding_of_the_connector_does_not_change_the_rows() {
    let by_default = mariadb_types();
    let names: Vec<&str> = by_default.iter().map(|(name, ..)| *name).collect();
    let by_text: Vec<_> = mariadb_types()
        .into_iter()
        .map(|(name, kind, _)| {
            let encoding = match kind {
                Kind::Date | Kind::Timestamp | Kind::Timestamptz => Encoding::Iso,
                Kind::Binary => Encoding::Hex,
                _ => Encoding::Plain,
            };
            (name, kind, encoding)
        })
        .collect();
    let topic = "shop.shop.types";
    let expected = Table::new(&by_default, &["id"])
        .read("mariadb/types.default", topic)
        .take(&names);
    let found = Table::new(&by_text, &["id"])
        .read("mariadb/types.string", topic)
        .take(&names);
    assert_eq!(found, expected);
}

fn orders() -> Vec<(&'static str, Kind, Encoding)> {
    vec![
        ("id", Kind::Long, Encoding::Plain),
        ("status", Kind::String, Encoding::Plain),
    ]
}

/// Inserts, updates, deletes and changes of key, in the order of the script; tombstones are no rows.
#[test]
fn changes_arrive_in_the_order_of_the_script() {
    for (file, connector) in [
        ("mariadb/orders", "mariadb/"),
        ("postgres/orders", "postgresql/"),
    ] {
        let mut table = Table::new(&orders(), &["id"]).read(file, "shop.shop.orders");
        assert!(
            table
                .rows
                .sources()
                .iter()
                .all(|source| source.starts_with(connector))
        );
        let facts = table.rows.facts().to_vec();
        let rows = table.take(&["_cdc_op", "id"]);
        let deletes = rows.iter().filter(|row| row.starts_with('d')).count();
        assert_eq!(
            table.count(|signal| *signal == Signal::Tombstone),
            deletes,
            "{file}"
        );
        let at = |row: &str| rows.iter().position(|found| found == row).expect(row);
        assert!(
            at("c 102") < at("u 102") && at("u 102") < at("d 102"),
            "{file}: {rows:?}"
        );
        // A change of key comes as two messages: they are of one position.
        let (old, new) = (&facts[at("d 102")], &facts[at("c 1102")]);
        assert_eq!((old.position, old.sub), (new.position, new.sub), "{file}");
        ordered(&facts, file);
    }
}

/// Positions and times of streamed rows never go back within a partition; snapshot rows are known as such.
fn ordered(facts: &[RowFacts], file: &str) {
    let mut last = BTreeMap::new();
    for row in facts
        .iter()
        .filter(|row| row.snapshot == Snapshot::Streamed)
    {
        let place = (row.source, row.position, row.sub);
        if let Some(before) = last.insert(row.partition, place) {
            assert!(before <= place, "{file}: {before:?} {place:?}");
        }
        assert_eq!(row.event_time_us, row.commit_time_us);
        assert!(row.event_time_us <= row.record_time_us, "{file}: {row:?}");
    }
    assert!(
        facts
            .iter()
            .any(|row| matches!(row.snapshot, Snapshot::Initial | Snapshot::Last))
    );
}

/// The third life of the connector sends the second's changes again, at the same positions.
#[test]
fn replayed_changes_come_at_the_same_positions() {
    for (file, table) in [
        ("mariadb/replay", "shop.shop.orders"),
        ("postgres/replay", "shop.shop.orders"),
    ] {
        let table = Table::new(&orders(), &["id"]).read(file, table);
        let mut times_seen = BTreeMap::new();
        for row in table
            .rows
            .facts()
            .iter()
            .filter(|row| row.snapshot == Snapshot::Streamed)
        {
            *times_seen
                .entry((row.partition, row.position, row.sub, row.commit_time_us))
                .or_insert(0) += 1;
        }
        assert!(
            times_seen.values().any(|times| *times == 2),
            "{file}: {times_seen:?}"
        );
    }
}

/// What is no row on a topic that carries everything.
#[test]
fn signals_are_told_apart_on_one_topic() {
    let table = Table::new(&orders(), &[]).read("mariadb/one_topic", "shop.all");
    assert!(table.count(|signal| *signal == Signal::Tombstone) > 0);
    assert!(table.count(|signal| *signal == Signal::SchemaChange) > 0);
    let begins = table.count(|signal| *signal == Signal::TransactionBegin);
    let ends = table.count(|signal| *signal == Signal::TransactionEnd);
    // The capture stopped at its last row, before the end of that transaction.
    assert!(
        ends > 0 && begins == ends + 1,
        "{begins} begins, {ends} ends"
    );
    assert!(table.count(|signal| matches!(signal, Signal::Heartbeat { .. })) > 0);
    assert!(!table.rows.is_empty());
}

/// PostgreSQL: values left out of an update are named, truncations are rows of nulls, a logical message is none.
#[test]
fn postgres_says_what_it_leaves_out() {
    let documents = vec![
        ("id", Kind::Long, Encoding::Plain),
        ("title", Kind::String, Encoding::Plain),
        ("body", Kind::String, Encoding::Plain),
        ("attachment", Kind::Binary, Encoding::Plain),
        ("tags", Kind::String, Encoding::Plain),
    ];
    let mut all = Table::new(&documents, &["id"]).read("postgres/orders", "shop.shop.documents");
    let rows = all.take(&["_cdc_op", "id", "_cdc_unavailable"]);
    assert_eq!(
        rows,
        [
            "c 1 -",
            "u 1 [body, attachment, tags]",
            "u 1 [attachment, tags]",
            "d 1 -",
            "c 2 [attachment, tags]",
            "d 2 -"
        ]
    );
    let truncated = Table::new(&[("name", Kind::String, Encoding::Plain)], &[]);
    let mut truncated = truncated.read("postgres/orders", "shop.shop.customers");
    let rows = truncated.take(&["_cdc_op", "name", "_cdc_unavailable"]);
    assert_eq!(rows.last().map(String::as_str), Some("t - -"));
    let messages = Table::new(&documents, &[]).read("postgres/orders", "shop.message");
    assert_eq!(messages.signals, [Signal::LogicalMessage]);
}
