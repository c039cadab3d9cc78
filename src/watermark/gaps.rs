//! The stretches of event time that a claim leaves out.
//!
//! Sorted, apart, and bounded: when the list is full, the two neighbours closest to each other become one, so that it only
//! ever covers more.

/// Gaps kept.
pub const MAX_GAPS: usize = 64;

/// Half-open stretches of event time `[from, to)` between cell edges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    stretches: Vec<(i64, i64)>,
}

impl Gaps {
    /// Leaves out `[from_us, to_us)`, too. Empty stretches change nothing.
    pub fn add(&mut self, from_us: i64, to_us: i64) {
        if from_us >= to_us {
            return;
        }
        let begin = self.stretches.partition_point(|(_, to)| *to < from_us);
        let end = self.stretches.partition_point(|(from, _)| *from <= to_us);
        let touched = &self.stretches[begin..end];
        let from = touched
            .first()
            .map_or(from_us, |(from, _)| from_us.min(*from));
        let to = touched.last().map_or(to_us, |(_, to)| to_us.max(*to));
        self.stretches.splice(begin..end, [(from, to)]);
        if self.stretches.len() > MAX_GAPS {
            self.merge_closest();
        }
    }

    /// The stretches, in order.
    #[must_use]
    pub fn stretches(&self) -> &[(i64, i64)] {
        &self.stretches
    }

    /// Whether nothing is left out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    /// The first stretch that meets `[from_us, to_us)`.
    #[must_use]
    pub fn within(&self, from_us: i64, to_us: i64) -> Option<(i64, i64)> {
        let begin = self.stretches.partition_point(|(_, to)| *to <= from_us);
        let first = self.stretches.get(begin).copied();
        first.filter(|(from, _)| *from < to_us && from_us < to_us)
    }

    fn merge_closest(&mut self) {
        let distance = |at: &usize| self.stretches[at + 1].0.abs_diff(self.stretches[*at].1);
        if let Some(at) = (0..self.stretches.len() - 1).min_by_key(distance) {
            let (_, to) = self.stretches.remove(at + 1);
            self.stretches[at].1 = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(stretches: &[(i64, i64)]) -> Gaps {
        let mut gaps = Gaps::default();
        for (from, to) in stretches {
            gaps.add(*from, *to);
        }
        gaps
    }

    #[test]
    fn stretches_that_touch_become_one() {
        assert_eq!(of(&[(0, 2), (4, 6), (2, 4)]).stretches(), [(0, 6)]);
        assert_eq!(of(&[(4, 6), (0, 2)]).stretches(), [(0, 2), (4, 6)]);
        assert_eq!(of(&[(3, 3), (5, 4)]).stretches(), []);
    }

    #[test]
    fn a_cell_within_a_gap_is_found_and_one_beside_it_is_not() {
        let gaps = of(&[(10, 20), (30, 40)]);
        assert_eq!(gaps.within(0, 10), None);
        assert_eq!(gaps.within(19, 20), Some((10, 20)));
        assert_eq!(gaps.within(20, 30), None);
        assert_eq!(gaps.within(20, 31), Some((30, 40)));
    }

    proptest! {
        /// A full list covers more, never less.
        #[test]
        fn prop_every_stretch_stays_covered(stretches in prop::collection::vec((0_i64..10_000, 1_i64..50), 1..200)) {
            let stretches: Vec<_> = stretches.into_iter().map(|(from, len)| (from, from + len)).collect();
            let gaps = of(&stretches);
            prop_assert!(gaps.stretches().len() <= MAX_GAPS);
            prop_assert!(gaps.stretches().windows(2).all(|pair| pair[0].1 < pair[1].0));
            for (from, to) in stretches {
                prop_assert!(gaps.stretches().iter().any(|(a, b)| *a <= from && to <= *b));
            }
        }
    }
}
