//! TiCDC's canal-json and simple.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemark::cdc::{EventTimeFrom, TiCdc};
use tidemark_fuzz::Table;

fuzz_target!(|data: &[u8]| {
    Table::new(|schema| Box::new(TiCdc::canal_json(schema, EventTimeFrom::SourceCommit)))
        .decode(data);
    Table::new(|schema| Box::new(TiCdc::simple(schema, EventTimeFrom::SourceCommit))).decode(data);
});
