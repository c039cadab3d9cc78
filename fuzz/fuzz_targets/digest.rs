//! The t-digest of a summary: refused, or a digest whose quantiles lie between its ends and do not fall.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemark::watermark::{MAX_ENCODED, Sketch};

fuzz_target!(|data: &[u8]| {
    let Ok(sketch) = Sketch::decode(data) else {
        return;
    };
    let mut last = sketch.least_us();
    for q in [0.0, 0.001, 0.01, 0.05, 0.5, 0.99, 1.0] {
        let value = sketch.quantile(q);
        assert!(
            last <= value && value <= sketch.greatest_us(),
            "{q}: {value}"
        );
        last = value;
    }
    let encoded = sketch.encode();
    assert!(encoded.len() <= MAX_ENCODED.max(data.len()));
    assert_eq!(
        Sketch::decode(&encoded).expect("our own").count(),
        sketch.count()
    );
    let merged = Sketch::merge([&sketch, &sketch]).expect("two");
    assert!(merged.least_us() == sketch.least_us() && merged.greatest_us() == sketch.greatest_us());
});
