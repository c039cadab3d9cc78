//! How near the digest's quantiles come to the true ones, for every shape that event times take and for some that they never do.
//!
//! The error is one of ranks: how far the share of rows below an estimate lies from the share asked for. Every sketch goes
//! through its 400 bytes first.

use super::{Digest, MAX_ENCODED, Sketch};

/// Rows of a batch.
const ROWS: i64 = 60_000;
const BASE_US: i64 = 1_796_000_000 * 1_000_000;
const HOUR_US: i64 = 3_600 * 1_000_000;

/// Reproducible numbers: an xorshift, since the room takes no random numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.cast_unsigned()).cast_signed()
    }

    /// From 0 up to, not including, 1.
    #[expect(clippy::cast_precision_loss, reason = "2^32 steps are plenty")]
    fn share(&mut self) -> f64 {
        self.below(1 << 32) as f64 / (1_u64 << 32) as f64
    }

    /// Normally distributed, by Box and Muller.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.share()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.share()).cos()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a few hours in µs")]
fn whole(us: f64) -> i64 {
    us.round() as i64
}

/// Event times of a batch, by the shape of their distribution.
fn shape(name: &str, seed: u64) -> Vec<i64> {
    let mut n = Numbers(seed);
    let mut row = |i: i64| match name {
        // Delays of a second at the median and of minutes at the end.
        "lognormal" => i * 60_000 - whole(1e6 * (1.5 * n.normal()).exp()),
        "bimodal" => (i % 2) * 24 * HOUR_US + n.below(60_000_000),
        "outlier" if i % 2_000 == 0 => n.below(26_000 * HOUR_US),
        "uniform" | "outlier" => n.below(HOUR_US),
        "burst" => n.below(40_000),
        "sorted" => i * 1_000,
        "seconds" => n.below(600) * 1_000_000,
        _ => unreachable!("a shape of the list"),
    };
    (0..ROWS).map(|i| BASE_US + row(i)).collect()
}

const SHAPES: [&str; 7] = [
    "uniform",
    "lognormal",
    "bimodal",
    "outlier",
    "burst",
    "sorted",
    "seconds",
];

/// What the digest is asked for, and the errors that it may have: with and without whole-second ties.
const TARGETS: [(f64, f64, f64); 4] = [
    (0.001, 0.0025, 0.0025),
    (0.01, 0.0025, 0.0025),
    (0.5, 0.005, 0.0005),
    (0.99, 0.005, 0.0005),
];

fn packed(sketch: &Sketch) -> Sketch {
    let bytes = sketch.encode();
    assert!(bytes.len() <= MAX_ENCODED, "{} bytes", bytes.len());
    Sketch::decode(&bytes).unwrap()
}

fn sketch(values: &[i64]) -> Sketch {
    let mut digest = Digest::default();
    digest.extend(values);
    packed(&digest.finish().unwrap())
}

/// As a window or a reader puts commits together: each has its own bytes.
fn merged(values: &[i64], parts: usize) -> Sketch {
    let parts: Vec<Sketch> = values.chunks(values.len() / parts).map(sketch).collect();
    packed(&Sketch::merge(&parts).unwrap())
}

/// How far the quantile asked for lies outside of the ranks that the estimate has.
#[expect(clippy::cast_precision_loss, reason = "tens of thousands of rows")]
fn error(sorted: &[i64], sketch: &Sketch, q: f64) -> f64 {
    let estimate = sketch.quantile(q);
    let share = |rows: usize| rows as f64 / sorted.len() as f64;
    let below = share(sorted.partition_point(|value| *value < estimate));
    let up_to = share(sorted.partition_point(|value| *value <= estimate));
    (below - q).max(q - up_to).max(0.0)
}

#[test]
fn every_shape_keeps_its_quantiles_also_after_merging() {
    let mut broken: Vec<String> = Vec::new();
    for name in SHAPES {
        for seed in [3, 11] {
            let values = shape(name, seed);
            let mut sorted = values.clone();
            sorted.sort_unstable();
            for parts in [1, 8, 48] {
                let sketch = merged(&values, parts);
                assert_eq!(
                    (sketch.count(), sketch.least_us(), sketch.greatest_us()),
                    (values.len() as u64, sorted[0], sorted[sorted.len() - 1])
                );
                for (q, with_ties, without) in TARGETS {
                    let most = if name == "seconds" {
                        with_ties
                    } else {
                        without
                    };
                    let error = error(&sorted, &sketch, q);
                    if error > most {
                        broken.push(format!("{name}, {parts} parts, q = {q}: {error}"));
                    }
                }
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Made to hurt: what they come to stands in `docs/table-contract.md`.
fn adversary(name: &str) -> Vec<i64> {
    let mut n = Numbers(17);
    let mut row = |i: i64| match name {
        // Each next value twice as far away.
        "doubling" => 1_i64 << (i % 50),
        // Two instants, an hour apart, and nothing in between.
        "two values" => (i % 2) * HOUR_US,
        // Nine of ten rows at one instant.
        // Nine of ten rows within two seconds of an hour.
        "a burst in an hour" if i % 10 > 0 => HOUR_US / 2 + n.below(2_000_000),
        "a burst in an hour" => n.below(HOUR_US),
        "one value and a tail" if i % 10 > 0 => 0,
        "one value and a tail" => n.below(24 * HOUR_US),
        // Each batch of the gathering digest beyond the one before, and back.
        "there and back" => (i % 2 * 2 - 1) * i * 60_000_000,
        // A thousand instants, each a thousand times as dense as the next.
        "ever thinner" => n.below(1 + i) * n.below(1 + i) * n.below(1 + i) / 1_000,
        _ => unreachable!("an adversary of the list"),
    };
    (0..ROWS).map(|i| BASE_US + row(i)).collect()
}

#[test]
fn adversaries_cost_what_the_documentation_says() {
    let stated = [
        ("doubling", 0.5),
        ("two values", 0.0),
        ("a burst in an hour", 0.002),
        ("one value and a tail", 0.0005),
        ("there and back", 0.0005),
        ("ever thinner", 0.01),
    ];
    let mut measured = Vec::new();
    for (name, most) in stated {
        let values = adversary(name);
        let mut sorted = values.clone();
        sorted.sort_unstable();
        let mut worst = 0.0_f64;
        for parts in [1, 48] {
            let sketch = merged(&values, parts);
            let errors = TARGETS.map(|(q, ..)| error(&sorted, &sketch, q));
            worst = errors.into_iter().fold(worst, f64::max);
        }
        measured.push((name, worst, most));
    }
    eprintln!("{measured:?}");
    let broken: Vec<_> = measured
        .iter()
        .filter(|(_, worst, most)| worst > most)
        .collect();
    assert!(broken.is_empty(), "{broken:?}");
}
