//! Plain JSON with keys, its event time in a column.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemark::cdc::{EventTimeFrom, KeyValue};
use tidemark_fuzz::Table;

fuzz_target!(|data: &[u8]| {
    let event_time = || EventTimeFrom::Column("created_at".to_owned());
    Table::new(|schema| Box::new(KeyValue::new(schema, event_time()).expect("a column of it")))
        .decode(data);
});
