//! Manifests as people write them: refused with faults that name what is wrong, or an effective specification that is read
//! back as it is.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemark::api::load_manifests;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match load_manifests(text) {
        Ok(loaded) => {
            for (_, spec) in loaded {
                let _ = (spec.id(), spec.hash(), spec.to_yaml());
            }
        }
        Err(faults) => {
            assert!(!faults.is_empty());
            for fault in faults {
                assert!(!fault.to_string().is_empty());
            }
        }
    }
});
