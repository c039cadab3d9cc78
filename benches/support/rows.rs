//! The rows of the events, decoded as the pipeline does, for the parts that are measured alone.

use std::{collections::BTreeMap, path::Path};

use tidemark::{
    cdc::{Debezium, Decoder as _, Encoding, EventTimeFrom, Record, RowSchema, RowSettings, Rows},
    lake::writer::arrow_schema,
};

use super::{
    events::{Event, Events, PARTITIONS},
    pipeline::Place,
};

/// Rows that the pipeline hands on at once.
pub(crate) const ROWS_A_FLUSH: usize = 8_192;

/// Messages of one partition that come in a row, as the client hands them out.
const RUN: usize = 1_000;

/// Decodes `rows` events for the table `bench.orders` in `folder` and gives them in batches, in the order in which a consumer
/// that lags would get them.
pub(crate) fn decode(folder: &Path, rows: u32, mut each: impl FnMut(&mut Rows)) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let table = runtime.block_on(Place::table(folder, "orders"));
    let encodings = BTreeMap::from([
        ("price".to_owned(), Encoding::Text),
        ("created_at".to_owned(), Encoding::Millis),
        ("updated_at".to_owned(), Encoding::Micros),
    ]);
    let settings = RowSettings {
        metadata_prefix: "_cdc_",
        key: &["id".to_owned()],
        encodings: Some(&encodings),
    };
    let arrow = arrow_schema(&table).expect("a schema that Arrow has");
    let schema = RowSchema::new(arrow, settings).expect("the pipeline's own schema");
    let mut decoder = Debezium::new(&schema, EventTimeFrom::SourceCommit);
    let mut batch = Rows::new(&schema, ROWS_A_FLUSH);
    let mut waiting: Vec<Vec<Event>> = (0..PARTITIONS).map(|_| Vec::new()).collect();
    let mut events = Events::new(1, rows);
    let mut take = |run: &mut Vec<Event>| {
        for event in run.drain(..) {
            let record = Record {
                topic: "orders",
                partition: event.partition.cast_signed(),
                offset: event.offset,
                timestamp_us: Some(event.record_ms * 1_000),
                ingested_at_us: event.record_ms * 1_000,
                key: Some(&event.key),
                value: Some(&event.value),
                headers: &(),
            };
            decoder.decode(&record, &mut batch).expect("a good event");
        }
        if batch.len() + RUN > ROWS_A_FLUSH {
            each(&mut batch);
        }
    };
    let mut event = Event::default();
    while events.next_into(&mut event) {
        let run = &mut waiting[event.partition as usize];
        run.push(std::mem::take(&mut event));
        if run.len() == RUN {
            take(run);
        }
    }
    for run in &mut waiting {
        take(run);
    }
    if !batch.is_empty() {
        each(&mut batch);
    }
}
