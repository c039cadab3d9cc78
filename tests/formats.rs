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
    Debezium, Decoded, Decoder, Encoding, EventTimeFrom, Kind, Record, RowFacts, RowSchema,
    RowSettings, Rows, Signal, Snapshot, TiCdc, metadata_columns,
};

/// A table that takes the messages of a topic.
struct Table {
    rows: Rows,
    decoder: Box<dyn Decoder>,
    signals: Vec<Signal>,
}

impl Table {
    fn new(columns: &[(&str, Kind, Encoding)], key: &[&str]) -> Table {
        Table::of(columns, key, |schema| {
            Box::new(Debezium::new(schema, EventTimeFrom::SourceCommit))
        })
    }

    /// Of another format.
    fn of(
        columns: &[(&str, Kind, Encoding)],
        key: &[&str],
        decoder: impl FnOnce(&Arc<RowSchema>) -> Box<dyn Decoder>,
    ) -> Table {
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
            decoder: decoder(&schema),
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

/// The commit timestamp of the samples that share one, and its time.
const TSO: i64 = 429_918_007_904_436_226;
const TSO_US: i64 = 1_640_007_049_196_000;

type MakeDecoder = fn(&Arc<RowSchema>) -> Box<dyn Decoder>;

fn canal_json(schema: &Arc<RowSchema>) -> Box<dyn Decoder> {
    Box::new(TiCdc::canal_json(schema, EventTimeFrom::SourceCommit))
}

fn simple(schema: &Arc<RowSchema>) -> Box<dyn Decoder> {
    Box::new(TiCdc::simple(schema, EventTimeFrom::SourceCommit))
}

fn ticdc_debezium(schema: &Arc<RowSchema>) -> Box<dyn Decoder> {
    Box::new(Debezium::of_ticdc(schema, EventTimeFrom::SourceCommit))
}

fn resolved(tso: i64) -> Signal {
    Signal::resolved(tso).unwrap()
}

/// The samples of the page on Canal-JSON: an update is its new row whether `old` has all columns or the changed ones.
#[test]
fn canal_json_samples_are_rows_and_signals() {
    let names = [
        "id",
        "c_tinyint",
        "c_smallint",
        "c_mediumint",
        "c_int",
        "c_bigint",
    ];
    let columns = names.map(|name| (name, Kind::Long, Encoding::Plain));
    let mut table =
        Table::of(&columns, &["id"], canal_json).read("ticdc/canal_json", "test.tp_int");
    assert_eq!(table.signals, [Signal::SchemaChange, resolved(TSO)]);
    assert!(table.rows.facts().iter().all(|row| {
        let times = [row.event_time_us, row.commit_time_us];
        (row.position, row.sub, times) == (TSO, 0, [TSO_US; 2])
    }));
    assert_eq!(
        table.take(&[
            "_cdc_op",
            "id",
            "c_tinyint",
            "c_int",
            "c_bigint",
            "_cdc_unavailable"
        ]),
        [
            "c 2 127 2147483647 9223372036854775807 -",
            "u 2 0 0 9223372036854775807 -",
            "u 2 0 0 9223372036854775807 -",
            "d 2 127 2147483647 9223372036854775807 -",
        ]
    );
}

/// The sixteen bytes of the page on Canal-JSON.
#[test]
fn canal_json_bytes_are_characters() {
    let columns = [
        ("id", Kind::Int, Encoding::Plain),
        ("c_varbinary", Kind::Binary, Encoding::Latin1),
    ];
    let table = Table::of(&columns, &["id"], canal_json);
    let rows = table
        .read("ticdc/canal_json.types", "test.types")
        .take(&["c_varbinary"]);
    assert_eq!(rows[0], "05070a0f24322b63783c26fffe2d3746");
}

/// A column of each type of TiDB, and what it ends up as.
fn tidb_types(bytes: Encoding) -> Vec<(&'static str, Kind, Encoding)> {
    let decimal = |precision, scale| Kind::Decimal { precision, scale };
    vec![
        ("id", Kind::Int, Encoding::Plain),
        ("a_boolean", Kind::Boolean, Encoding::Plain),
        ("a_bigint", Kind::Long, Encoding::Plain),
        ("a_bigint_unsigned", decimal(20, 0), Encoding::Text),
        ("a_float", Kind::Float, Encoding::Plain),
        ("a_double", Kind::Double, Encoding::Plain),
        ("a_decimal", decimal(10, 2), Encoding::Text),
        ("a_date", Kind::Date, Encoding::Iso),
        ("a_time", Kind::Time, Encoding::Iso),
        ("a_datetime", Kind::Timestamp, Encoding::Iso),
        ("a_timestamp", Kind::Timestamptz, Encoding::Iso),
        ("a_year", Kind::Int, Encoding::Plain),
        ("a_bit", decimal(20, 0), Encoding::Text),
        ("an_enum", Kind::Int, Encoding::Plain),
        ("a_set", Kind::Long, Encoding::Plain),
        ("a_varchar", Kind::String, Encoding::Plain),
        ("a_text", Kind::String, Encoding::Plain),
        ("a_json", Kind::String, Encoding::Plain),
        ("a_stored", Kind::Int, Encoding::Plain),
        ("a_blob", Kind::Binary, bytes),
    ]
}

/// Every type with a value and with null: unsigned beyond 63 bits, all 256 bytes, a character of two surrogates, a time in a zone.
#[test]
fn ticdc_values_arrive_exactly() {
    let every_byte = (0..=255).fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    let value = format!(
        "true -9223372036854775808 18446744073709551615 1.5 -2.25 -99999999.99 2026-11-30 23:59:59.123456 \
         2026-11-30T10:00:00.123456 2026-11-30T10:00:00.123456Z 2026 9223372036854775809 2 3 grün \u{1F600} line\nbreak \"quoted\" \
         {{\"a\": [1, \"b\"]}} 42 {every_byte}"
    );
    let formats: [(&str, Encoding, MakeDecoder); 2] = [
        ("ticdc/canal_json.types", Encoding::Latin1, canal_json),
        ("ticdc/simple.types", Encoding::Plain, simple),
    ];
    for (file, bytes, decoder) in formats {
        let columns = tidb_types(bytes);
        let names: Vec<&str> = columns.iter().map(|(name, ..)| *name).collect();
        let rows = Table::of(&columns, &["id"], decoder)
            .read(file, "test.types")
            .take(&names);
        let has = |row: &str| assert!(rows.iter().any(|found| found == row), "{row} in {rows:#?}");
        has(&format!("1 {value}"));
        has(&format!("2{}", " -".repeat(19)));
        if file.contains("simple") {
            has(&format!("3 {value}"));
        }
    }
}

/// The samples of the page on the Simple protocol.
#[test]
fn simple_samples_are_rows_and_signals() {
    let columns = [
        ("id", Kind::Int, Encoding::Plain),
        ("name", Kind::String, Encoding::Plain),
        ("age", Kind::Int, Encoding::Plain),
        ("score", Kind::Float, Encoding::Plain),
    ];
    let mut table = Table::of(&columns, &["id"], simple).read("ticdc/simple", "simple.user");
    assert_eq!(
        table.signals,
        [
            Signal::SchemaChange,
            resolved(447_984_124_732_375_041),
            Signal::SchemaChange,
        ]
    );
    let positions = table.rows.facts().iter().map(|row| row.position);
    assert_eq!(
        positions.collect::<Vec<_>>(),
        [
            447_984_084_414_103_554,
            447_984_099_186_180_098,
            447_984_114_259_722_243,
        ]
    );
    assert_eq!(table.rows.facts()[0].event_time_us, 1_708_923_661_858_000);
    assert_eq!(
        table.take(&["_cdc_op", "id", "name", "age", "score"]),
        [
            "c 1 John Doe 25 90.5",
            "u 1 John Doe 25 95.0",
            "d 1 John Doe 25 95.0"
        ]
    );
}

/// With the schema and without, with `before` and without, and each kind of message.
#[test]
fn ticdc_debezium_samples_are_rows_and_signals() {
    let columns = [("tiny", Kind::Int, Encoding::Plain)];
    let mut table =
        Table::of(&columns, &["tiny"], ticdc_debezium).read("ticdc/debezium", "test.table1");
    assert_eq!(table.signals, [Signal::SchemaChange, resolved(TSO)]);
    assert_eq!(table.rows.sources(), ["TiCDC/test_cluster/0".into()]);
    assert!(table.rows.facts().iter().all(|row| {
        let times = [row.event_time_us, row.commit_time_us];
        (row.position, row.sub, times) == (TSO, 0, [TSO_US; 2])
    }));
    assert_eq!(
        table.take(&["_cdc_op", "tiny"]),
        ["c 1", "c 1", "d 2", "c 1", "u 1", "d 2"],
        "the update with `before` changes the key"
    );
}

/// The values of TiCDC's own test of types.
#[test]
fn ticdc_debezium_values_arrive() {
    let columns = [
        ("pk", Kind::Int, Encoding::Plain),
        ("col_d_2023", Kind::Date, Encoding::Days),
        ("col_dt", Kind::Timestamp, Encoding::Millis),
        ("col_dt_fsp_6", Kind::Timestamp, Encoding::Micros),
        ("col_t_fsp_6", Kind::Time, Encoding::Micros),
        ("col_ts_fsp_6", Kind::Timestamptz, Encoding::Iso),
        ("col_y", Kind::Int, Encoding::Plain),
        ("col_bit_1", Kind::Boolean, Encoding::Plain),
        ("col_bit_5", Kind::Binary, Encoding::Plain),
        ("col_blob", Kind::Binary, Encoding::Plain),
        (
            "col_decimal",
            Kind::Decimal {
                precision: 10,
                scale: 5,
            },
            Encoding::Text,
        ),
        ("col_double", Kind::Double, Encoding::Plain),
        ("col_bigint", Kind::Long, Encoding::Plain),
        ("col_enum", Kind::String, Encoding::Plain),
        ("col_set", Kind::String, Encoding::Plain),
        ("col_json", Kind::String, Encoding::Plain),
        ("col_dt_0000", Kind::Timestamp, Encoding::Millis),
    ];
    let names: Vec<&str> = columns.iter().map(|(name, ..)| *name).collect();
    let table = Table::of(&columns, &["pk"], ticdc_debezium);
    let rows = table.read("ticdc/debezium.types", "test.foo").take(&names);
    assert_eq!(
        rows,
        [
            "1 2023-11-30 2023-11-30T12:34:56 2023-11-30T12:34:56.123456 12:34:56.123456 2023-11-30T12:34:56.123456Z 2023 true 10 \
             666f6f 12345.12345 12345.12345 -9223372036854775808 a a,b [\"foo\"] -"
        ]
    );
}
