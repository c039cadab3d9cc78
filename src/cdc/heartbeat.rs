//! When a source was alive, out of one Debezium record: the connector's own heartbeat, or the captured row of a table that is
//! written at the source for this purpose.
//!
//! A row of a snapshot says nothing: it is read when the connector likes, not when the source commits it.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};

use super::debezium::Debezium;
use super::facts::{NO_TIME, Snapshot};
use super::schema::{RowSchema, RowSettings, metadata_columns};
use super::{Decoded, Decoder, EventTimeFrom, Fault, Record, Rows, Signal};

/// What a record tells about the life of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// The connector was alive at this instant of its own clock, µs since 1970-01-01 UTC.
    Connector(i64),
    /// The source committed a row at this instant, µs since 1970-01-01 UTC, and the connector has come that far.
    Row(i64),
}

/// Reads beats.
pub struct HeartbeatReader {
    decoder: Debezium,
    rows: Rows,
}

impl Default for HeartbeatReader {
    fn default() -> Self {
        let prefix = "_cdc_";
        let fields = metadata_columns(prefix).into_iter();
        let fields = fields
            .map(|column| Field::new(column.name, column.kind.data_type(), !column.required))
            .collect::<Vec<_>>();
        let settings = RowSettings {
            metadata_prefix: prefix,
            key: &[],
            encodings: None,
        };
        let schema = RowSchema::new(Arc::new(Schema::new(fields)), settings)
            .expect("the metadata columns alone are a schema");
        Self {
            decoder: Debezium::new(&schema, EventTimeFrom::SourceCommit),
            rows: Rows::new(&schema, 2),
        }
    }
}

impl HeartbeatReader {
    /// What the record tells; `None` where it tells nothing.
    ///
    /// # Errors
    /// It cannot be decoded.
    pub fn read(&mut self, record: &Record<'_>) -> Result<Option<Beat>, Fault> {
        let decoded = self.decoder.decode(record, &mut self.rows);
        let newest = self.rows.facts().last();
        let streamed = newest.filter(|facts| facts.snapshot == Snapshot::Streamed);
        let committed = streamed.map(|facts| facts.commit_time_us);
        let beat = match decoded {
            Ok(Decoded::Rows(_)) => Ok(committed.filter(|us| *us != NO_TIME).map(Beat::Row)),
            Ok(Decoded::Signal(Signal::Heartbeat { clock_us })) => {
                Ok(Some(Beat::Connector(clock_us)))
            }
            Ok(Decoded::Signal(_)) => Ok(None),
            Err(fault) => Err(fault),
        };
        self.rows.roll_back_to(0);
        beat
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(value: &Value) -> Result<Option<Beat>, Fault> {
        let value = value.to_string();
        let record = Record {
            topic: "shop.public.heartbeat",
            partition: 0,
            offset: 7,
            timestamp_us: Some(1_796_032_801_000_000),
            ingested_at_us: 1_796_032_802_000_000,
            key: Some(b"{\"id\":1}"),
            value: Some(value.as_bytes()),
            headers: &(),
        };
        let mut reader = HeartbeatReader::default();
        let twice = (reader.read(&record), reader.read(&record));
        assert_eq!(twice.0, twice.1, "a reader keeps nothing");
        twice.0
    }

    fn change(op: &str, snapshot: &str) -> Value {
        json!({
            "before": null, "after": {"id": 1, "ts": "2026-11-30T10:00:00Z"}, "op": op, "ts_ms": 1_796_032_800_900_i64,
            "source": {
                "version": "3.5.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": 1_796_032_800_123_i64,
                "snapshot": snapshot, "db": "shop", "sequence": "[\"24023119\",\"24023128\"]", "schema": "public",
                "table": "heartbeat", "txId": 555, "lsn": 24_023_128, "xmin": null,
            },
        })
    }

    #[test]
    fn a_row_tells_its_commit_time_and_a_heartbeat_the_clock_of_the_connector() {
        let committed = Beat::Row(1_796_032_800_123_000);
        assert_eq!(read(&change("u", "false")), Ok(Some(committed)));
        let beat = json!({"ts_ms": 1_796_032_800_900_i64});
        let clock = Beat::Connector(1_796_032_800_900_000);
        assert_eq!(read(&beat), Ok(Some(clock)));
    }

    #[test]
    fn rows_of_a_snapshot_and_other_signals_tell_nothing() {
        assert_eq!(read(&change("r", "first")), Ok(None));
        assert_eq!(read(&json!({"op": "m", "source": {}})), Ok(None));
        assert!(read(&json!({"unknown": 1})).is_err());
    }
}
