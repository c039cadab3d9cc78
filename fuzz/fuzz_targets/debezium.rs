//! Debezium's JSON, with its own settings and with TiCDC's.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemark::cdc::{Debezium, EventTimeFrom};
use tidemark_fuzz::Table;

fuzz_target!(|data: &[u8]| {
    Table::new(|schema| Box::new(Debezium::new(schema, EventTimeFrom::SourceCommit))).decode(data);
    Table::new(|schema| Box::new(Debezium::of_ticdc(schema, EventTimeFrom::SourceCommit)))
        .decode(data);
});
