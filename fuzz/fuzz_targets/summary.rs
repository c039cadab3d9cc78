//! A snapshot's summary and a table's properties: one value of an honest commit is replaced, as it stands or behind its packing.
#![no_main]

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use tidemark::watermark::{Ancestor, Asker, Lineage, TableView, contract, read_claim, stand};
use tidemark_fuzz::{WRITER, commit, pack};
use uuid::Uuid;

/// Summary and properties of an honest commit, by name.
fn honest() -> &'static [HashMap<String, String>; 2] {
    static HONEST: OnceLock<[HashMap<String, String>; 2]> = OnceLock::new();
    HONEST.get_or_init(|| {
        let (advanced, summary) = commit();
        let properties = contract::properties(&advanced).set;
        [summary, properties.into_iter().collect()]
    })
}

fuzz_target!(|data: &[u8]| {
    let [which, packed, value @ ..] = data else {
        return;
    };
    let [mut summary, mut properties] = honest().clone();
    let mut names: Vec<(bool, String)> = summary.keys().map(|name| (true, name.clone())).collect();
    names.extend(properties.keys().map(|name| (false, name.clone())));
    names.sort();
    let (in_summary, name) = names[usize::from(*which) % names.len()].clone();
    let value = if packed % 2 == 0 {
        String::from_utf8_lossy(value).into_owned()
    } else {
        pack(value)
    };
    let changed = if in_summary {
        &mut summary
    } else {
        &mut properties
    };
    changed.insert(name, value);
    let _ = contract::read_properties(&properties);
    if let Ok(Some(read)) = contract::read_summary(&summary) {
        let _ = read.table_claim();
    }
    let lineage = Lineage {
        snapshots: vec![Ancestor {
            snapshot_id: 1,
            parent_id: None,
            summary: Cow::Owned(summary),
            picked: None,
        }],
        broken: data.len() % 2 == 0,
    };
    // With the state, and rebuilt without it.
    for with_state in [true, false] {
        if !with_state {
            properties.remove(&contract::state_property(WRITER));
        }
        let view = TableView {
            table_uuid: Uuid::from_u128(7),
            table_ref: "main",
            properties: &properties,
            lineage: &lineage,
        };
        let _ = stand(&Asker::new(WRITER, 0), &view);
        let _ = read_claim(&view);
    }
});
