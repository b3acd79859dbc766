//! Values and keys that victim and parent can both compute.

use std::ops::Range;

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::protocol::Value;

/// The random number generator of the test.
pub(super) type Random = Xoshiro256PlusPlus;

/// Longest value.
pub(super) const VALUE_LEN_MAX: u16 = 2048;

/// Shortest value of a row: it holds the indexed bytes.
pub(super) const ROW_LEN_MIN: u16 = 12;

/// The byte of a row with the index `k`: many rows have the same.
pub(super) const K: Range<usize> = 0..1;

/// The bytes of a row with the unique index `serial`.
pub(super) const SERIAL: Range<usize> = 4..12;

/// Longest tail of a key. Key lengths vary, so that pages split at many different places.
const KEY_TAIL_MAX: u32 = 40;

/// Returns a generator for one purpose of a seed.
pub(super) fn random(seed: u64, round: u64, thread: u64) -> Random {
    Random::seed_from_u64(seed ^ (round << 16 | thread).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

impl Value {
    /// Draws a value of `shortest` to [`VALUE_LEN_MAX`] bytes; one in four is short.
    pub(super) fn draw(shortest: u16, random: &mut Random) -> Value {
        let longest = if random.random_ratio(1, 4) { shortest + 16 } else { VALUE_LEN_MAX };
        Value { seed: random.random(), len: random.random_range(shortest..=longest) }
    }

    /// The value's bytes.
    pub(super) fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; usize::from(self.len)];
        Random::seed_from_u64(self.seed).fill_bytes(&mut bytes);
        bytes
    }
}

/// The key of number `number` in the range of `thread`.
pub(super) fn key(thread: u8, number: u32) -> Vec<u8> {
    let mut key = vec![thread];
    key.extend(number.to_be_bytes());
    let tail = number.wrapping_mul(0x9E37_79B9) % KEY_TAIL_MAX;
    key.extend((0..tail).map(|at| b'a' + (at % 26) as u8));
    key
}

/// Shows a key for people: thread and number.
pub(super) fn show_key(key: &[u8]) -> String {
    match key {
        [thread, a, b, c, d, ..] => {
            let number = u32::from_be_bytes([*a, *b, *c, *d]);
            format!("thread {thread} key {number}")
        }
        _ => format!("0x{}", key.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_value_has_the_same_bytes_and_others_do_not() {
        let value = Value { seed: 5, len: 100 };
        assert_eq!(value.bytes(), value.bytes());
        assert_eq!(value.bytes().len(), 100);
        assert_ne!(value.bytes(), Value { seed: 6, len: 100 }.bytes());
    }

    #[test]
    fn drawn_lengths_cover_the_range() {
        let mut random = random(1, 2, 3);
        let lengths: Vec<u16> = (0..5_000).map(|_| Value::draw(0, &mut random).len).collect();
        assert!(lengths.contains(&0));
        assert!(lengths.iter().any(|&len| len > 2_000));
        assert!(lengths.iter().all(|&len| len <= VALUE_LEN_MAX));
        assert!((0..500).all(|_| Value::draw(ROW_LEN_MIN, &mut random).len >= ROW_LEN_MIN));
    }

    #[test]
    fn keys_are_distinct_and_readable() {
        let keys: std::collections::BTreeSet<_> = (0..4_u8).flat_map(|t| (0..200).map(move |n| key(t, n))).collect();
        assert_eq!(keys.len(), 800);
        assert_eq!(show_key(&key(3, 77)), "thread 3 key 77");
        assert_eq!(show_key(b"x"), "0x78");
    }
}
