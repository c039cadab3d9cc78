//! Which pipelines of a pool share a worker: bin packing by memory budget that moves as few pipelines as it can.
//!
//! Comes in: who is where, and what each needs. Goes out: who shall be where. A pipeline that stays is not disturbed, so it stays
//! wherever that is possible; one that moves commits where it was and goes on where the table stands.
//!
//! A bin never holds more than its capacity, but for a single pipeline that needs more by itself.

use std::collections::BTreeMap;

/// How much fits into one bin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// How many bytes of rows its pipelines may hold together.
    pub memory_bytes: u64,
    /// How many pipelines it may have: a `ConfigMap` holds 1 MiB.
    pub pipelines: usize,
}

/// What a pipeline needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// How many bytes of rows it may hold.
    pub memory_bytes: u64,
    /// How many workers run it; all pipelines of a bin have as many.
    pub replicas: u32,
    /// The bin it is in at present.
    pub bin: Option<u32>,
}

#[derive(Debug, Default, Clone)]
struct Bin {
    memory_bytes: u64,
    replicas: u32,
    uids: Vec<String>,
}

impl Bin {
    fn takes(&self, need: &Need, capacity: &Capacity) -> bool {
        let alone = self.uids.is_empty();
        alone
            || (self.replicas == need.replicas
                && self.uids.len() < capacity.pipelines
                && self.memory_bytes + need.memory_bytes <= capacity.memory_bytes)
    }

    fn put(&mut self, uid: &str, need: &Need) {
        self.memory_bytes += need.memory_bytes;
        self.replicas = need.replicas;
        self.uids.push(uid.to_owned());
    }
}

/// The bin of each pipeline, by uid.
#[must_use]
pub fn pack(needs: &BTreeMap<String, Need>, capacity: &Capacity) -> BTreeMap<String, u32> {
    let mut bins = BTreeMap::<u32, Bin>::new();
    let mut homeless = Vec::new();
    // The great ones first: of those that no longer fit together the small ones move, and small ones fit elsewhere.
    for (uid, need) in by_size(needs) {
        match need.bin {
            Some(bin) if bins.entry(bin).or_default().takes(need, capacity) => {
                bins.entry(bin).or_default().put(uid, need);
            }
            _ => homeless.push((uid, need)),
        }
    }
    if homeless.is_empty() {
        dissolve(&mut bins, needs, capacity);
    }
    for (uid, need) in homeless {
        let bin = fullest_that_takes(&bins, need, capacity).unwrap_or_else(|| first_free(&bins));
        bins.entry(bin).or_default().put(uid, need);
    }
    let packed = bins.into_iter().flat_map(|(number, bin)| {
        let uids = bin.uids.into_iter();
        uids.map(move |uid| (uid, number))
    });
    packed.collect()
}

fn by_size(needs: &BTreeMap<String, Need>) -> Vec<(&String, &Need)> {
    let mut sorted: Vec<_> = needs.iter().collect();
    sorted.sort_by_key(|(uid, need)| (std::cmp::Reverse(need.memory_bytes), *uid));
    sorted
}

fn fullest_that_takes(bins: &BTreeMap<u32, Bin>, need: &Need, capacity: &Capacity) -> Option<u32> {
    bins.iter()
        .filter(|(_, bin)| !bin.uids.is_empty() && bin.takes(need, capacity))
        .max_by_key(|(number, bin)| (bin.memory_bytes, std::cmp::Reverse(**number)))
        .map(|(number, _)| *number)
}

fn first_free(bins: &BTreeMap<u32, Bin>) -> u32 {
    let taken = |number: &u32| bins.get(number).is_some_and(|bin| !bin.uids.is_empty());
    (0..u32::MAX)
        .find(|number| !taken(number))
        .unwrap_or(u32::MAX)
}

/// Where the pool has more than twice the bins that it needs, the emptiest one is dissolved if the others take all of it: one bin
/// at a time, so that few pipelines move.
fn dissolve(bins: &mut BTreeMap<u32, Bin>, needs: &BTreeMap<String, Need>, capacity: &Capacity) {
    bins.retain(|_, bin| !bin.uids.is_empty());
    let held: u64 = bins.values().map(|bin| bin.memory_bytes).sum();
    let count = u64::try_from(bins.len()).unwrap_or(u64::MAX);
    let wasteful =
        count > 1 && held.saturating_mul(2) < count.saturating_mul(capacity.memory_bytes);
    let emptiest = bins
        .iter()
        .min_by_key(|(number, bin)| (bin.memory_bytes, std::cmp::Reverse(**number)));
    let Some((&number, _)) = emptiest.filter(|_| wasteful) else {
        return;
    };
    let mut others = bins.clone();
    let Some(leaving) = others.remove(&number) else {
        return;
    };
    for uid in &leaving.uids {
        let need = &needs[uid];
        let Some(bin) = fullest_that_takes(&others, need, capacity) else {
            return;
        };
        others.entry(bin).or_default().put(uid, need);
    }
    *bins = others;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;
    const CAPACITY: Capacity = Capacity {
        memory_bytes: 1024 * MIB,
        pipelines: 10,
    };

    fn need(mib: u64, bin: Option<u32>) -> Need {
        Need {
            memory_bytes: mib * MIB,
            replicas: 1,
            bin,
        }
    }

    fn needs(of: &[(&str, u64, Option<u32>)]) -> BTreeMap<String, Need> {
        let of = of.iter();
        of.map(|(uid, mib, bin)| ((*uid).to_owned(), need(*mib, *bin)))
            .collect()
    }

    fn packed(of: &[(&str, u64, Option<u32>)]) -> Vec<(String, u32)> {
        pack(&needs(of), &CAPACITY).into_iter().collect()
    }

    fn bins(of: &[(&str, u32)]) -> Vec<(String, u32)> {
        of.iter()
            .map(|(uid, bin)| ((*uid).to_owned(), *bin))
            .collect()
    }

    #[test]
    fn new_pipelines_fill_the_fullest_bin_that_takes_them() {
        let of = [
            ("a", 512, Some(0)),
            ("b", 768, Some(1)),
            ("c", 256, None),
            ("d", 512, None),
            ("e", 512, None),
        ];
        let expected = bins(&[("a", 0), ("b", 1), ("c", 1), ("d", 0), ("e", 2)]);
        assert_eq!(packed(&of), expected);
    }

    #[test]
    fn of_a_bin_that_overflows_the_small_ones_move() {
        let of = [
            ("a", 900, Some(0)),
            ("b", 256, Some(0)),
            ("c", 100, Some(0)),
        ];
        assert_eq!(packed(&of), bins(&[("a", 0), ("b", 1), ("c", 0)]));
    }

    #[test]
    fn one_that_is_greater_than_a_bin_has_one_of_its_own() {
        let of = [("a", 4096, None), ("b", 16, Some(0))];
        assert_eq!(packed(&of), bins(&[("a", 1), ("b", 0)]));
    }

    #[test]
    fn bins_of_different_replicas_do_not_mix() {
        let mut of = needs(&[("a", 16, Some(0)), ("b", 16, None)]);
        of.get_mut("b").unwrap().replicas = 2;
        let packed: Vec<_> = pack(&of, &CAPACITY).into_iter().collect();
        assert_eq!(packed, bins(&[("a", 0), ("b", 1)]));
    }

    /// After many were deleted, pods that are nearly empty would stay for ever.
    #[test]
    fn emptiest_bin_is_dissolved_when_half_of_the_room_is_unused() {
        let of = [("a", 400, Some(0)), ("b", 16, Some(1)), ("c", 600, Some(2))];
        assert_eq!(packed(&of), bins(&[("a", 0), ("b", 2), ("c", 2)]));
        let full = [("a", 700, Some(0)), ("b", 16, Some(1)), ("c", 900, Some(2))];
        assert_eq!(packed(&full), bins(&[("a", 0), ("b", 1), ("c", 2)]));
    }

    fn pools() -> impl Strategy<Value = BTreeMap<String, Need>> {
        let need = (16_u64..1500, 1_u32..3).prop_map(|(mib, replicas)| Need {
            memory_bytes: mib * MIB,
            replicas,
            bin: None,
        });
        proptest::collection::btree_map("[a-z]{1,6}", need, 0..60)
    }

    fn settled(mut needs: BTreeMap<String, Need>) -> BTreeMap<String, Need> {
        // Each round dissolves at most one bin.
        loop {
            let packed = pack(&needs, &CAPACITY);
            let still = needs
                .iter()
                .all(|(uid, need)| need.bin == Some(packed[uid]));
            for (uid, need) in &mut needs {
                need.bin = Some(packed[uid]);
            }
            if still {
                return needs;
            }
        }
    }

    proptest! {
        #[test]
        fn prop_no_bin_holds_more_than_its_capacity(needs in pools()) {
            let packed = pack(&needs, &CAPACITY);
            prop_assert_eq!(packed.len(), needs.len());
            let mut bins = BTreeMap::<u32, Vec<&Need>>::new();
            for (uid, bin) in &packed {
                bins.entry(*bin).or_default().push(&needs[uid]);
            }
            for bin in bins.values() {
                let held: u64 = bin.iter().map(|need| need.memory_bytes).sum();
                prop_assert!(bin.len() == 1 || held <= CAPACITY.memory_bytes);
                prop_assert!(bin.len() <= CAPACITY.pipelines);
                prop_assert!(bin.iter().all(|need| need.replicas == bin[0].replicas));
            }
        }

        #[test]
        fn prop_a_pipeline_that_is_added_moves_nobody(needs in pools(), mib in 16_u64..1500) {
            let before = settled(needs);
            let mut after = before.clone();
            after.insert("NEW".to_owned(), need(mib, None));
            let mut packed = pack(&after, &CAPACITY);
            packed.remove("NEW");
            let stayed: BTreeMap<String, u32> = before.into_iter().map(|(uid, need)| (uid, need.bin.unwrap())).collect();
            prop_assert_eq!(packed, stayed);
        }

        #[test]
        fn prop_what_is_packed_stays_packed(needs in pools()) {
            let once = settled(needs);
            let again = pack(&once, &CAPACITY);
            prop_assert!(once.iter().all(|(uid, need)| need.bin == Some(again[uid])));
        }
    }
}
