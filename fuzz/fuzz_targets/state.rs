//! The state in a table's property: whatever the bytes behind the checksum are, it is refused or read in one way.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use tidemark::watermark::State;
use tidemark_fuzz::{commit, pack, unpack};

fuzz_target!(|data: &[u8]| {
    // As it stands, too: what is no text of ours.
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = State::decode(text);
    }
    let Ok(state) = State::decode(&pack(data)) else {
        return;
    };
    // What is read is used: by readers, and as the base of a commit.
    let _ = (state.claim(), state.hold(true), state.gaps());
    if let Ok(text) = state.encode() {
        assert_eq!(
            State::decode(&text).as_ref(),
            Ok(&state),
            "read in another way"
        );
    }
});

fuzz_mutator!(
    |data: &mut [u8], size: usize, max_size: usize, _seed: u32| {
        let mut size = size;
        if size < 2 {
            let honest = unpack(&commit().0.state_text).unwrap_or_default();
            size = honest.len().min(max_size);
            data[..size].copy_from_slice(&honest[..size]);
        }
        fuzzer_mutate(data, size, max_size)
    }
);
