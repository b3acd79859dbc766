//! The ids of rows that a run inserts.
//!
//! Spread ids are sysbench's ids with `--auto-inc=off`: unique in a run, and anywhere. Here they are unique over all
//! runs, since the run's number is part of the input that is spread. They lie above all ids that a table is loaded
//! with.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

/// Bits of a number that is spread.
const BITS: u32 = 62;

const MASK: u64 = (1 << BITS) - 1;

/// The least spread id; no table is loaded with so many rows.
const LEAST: u64 = 1 << 32;

/// The ids of new rows of a table, for all threads.
#[derive(Debug)]
pub(super) struct NewIds {
    next: CachePadded<AtomicU64>,
    is_spread: bool,
}

impl NewIds {
    /// Ascending ids above `last`.
    pub(super) fn above(last: u64) -> NewIds {
        NewIds { next: CachePadded::new(AtomicU64::new(last + 1)), is_spread: false }
    }

    /// Spread ids of run `run`; none repeats within the first 2^32 ids of each of 2^30 runs.
    pub(super) fn spread(run: u32) -> NewIds {
        NewIds { next: CachePadded::new(AtomicU64::new(u64::from(run) << 32)), is_spread: true }
    }

    /// The next id.
    pub(super) fn draw(&self) -> u64 {
        // Relaxed: the id only has to be unique; the engine orders the inserts.
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        if self.is_spread { LEAST + spread(next & MASK) } else { next }
    }
}

/// A bijection on the numbers of 62 bits that maps neighbours far apart. The xor with a shifted value and the product
/// with an odd number are both invertible.
fn spread(number: u64) -> u64 {
    let mix = |number: u64| (number ^ (number >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15) & MASK;
    let mixed = mix(mix(number.wrapping_add(0x5851_F42D_4C95_7F2D) & MASK));
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_above_others_ascend() {
        let ids = NewIds::above(100);
        assert_eq!([ids.draw(), ids.draw(), ids.draw()], [101, 102, 103]);
    }

    #[test]
    fn spread_ids_are_everywhere_and_no_run_draws_one_of_another() {
        let drawn: Vec<u64> = (0..4).map(NewIds::spread).flat_map(|ids| (0..10_000).map(move |_| ids.draw())).collect();
        assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), 40_000);
        assert!(drawn.iter().all(|id| (LEAST..LEAST + (1 << BITS)).contains(id)));
        // 40,000 draws, 2500 in each of 16 parts, give or take five standard deviations of 49.
        let mut parts = [0_u32; 16];
        drawn.iter().for_each(|id| parts[((id - LEAST) >> (BITS - 4)) as usize] += 1);
        assert!(parts.iter().all(|count| (2_250..2_750).contains(count)), "{parts:?}");
        // Every second id is above its predecessor.
        let ascents = drawn.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((19_000..21_000).contains(&ascents), "{ascents}");
    }
}
