//! A row of sysbench's table: `id, k, c, pad`.

use rand::RngExt;

use crate::keys::{Keys, Random};

/// Bytes of the column `c`, a `CHAR(120)`.
pub const C_LEN: usize = 120;

/// Bytes of the column `pad`, a `CHAR(60)`.
pub const PAD_LEN: usize = 60;

/// The least bytes of a row, in any layout: `k`, `c` and `pad`. The id is not counted, since a page may store a part of
/// it only.
pub const LEN_MIN: u64 = (4 + C_LEN + PAD_LEN) as u64;

/// Digits in one group of `c` and `pad`.
const GROUP_DIGITS: usize = 11;

/// Smallest number with one digit more than a group holds.
const GROUP_END: u64 = 10_u64.pow(GROUP_DIGITS as u32);

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The primary key, from 1.
    pub id: u64,
    /// The indexed column.
    pub k: u32,
    /// Ten groups of eleven digits with dashes between, and a space.
    pub c: [u8; C_LEN],
    /// Five groups of eleven digits with dashes between, and a space.
    pub pad: [u8; PAD_LEN],
}

impl Row {
    /// Makes a row with this id, a `k` drawn from `keys`, and random text.
    pub fn random(id: u64, keys: &Keys, random: &mut Random) -> Row {
        let mut row = Row { id, k: 0, c: [b' '; C_LEN], pad: [b' '; PAD_LEN] };
        // Tables hold at most u32::MAX rows (`TableSet::new`), so every draw fits.
        row.k = u32::try_from(keys.draw(random)).unwrap_or(u32::MAX);
        fill_with_digits(&mut row.c, random);
        fill_with_digits(&mut row.pad, random);
        row
    }
}

/// Draws a text for the column `c`.
pub fn random_c(random: &mut Random) -> [u8; C_LEN] {
    let mut c = [b' '; C_LEN];
    fill_with_digits(&mut c, random);
    c
}

/// Fills `text` with groups of random digits; a dash after each group but the last, whose last byte stays a space.
pub(super) fn fill_with_digits(text: &mut [u8], random: &mut Random) {
    let groups = text.len() / (GROUP_DIGITS + 1);
    for (number, group) in text.chunks_exact_mut(GROUP_DIGITS + 1).enumerate() {
        // One draw per group instead of one per digit: an insert needs 165 digits.
        let mut value = random.random_range(0..GROUP_END);
        for digit in group[..GROUP_DIGITS].iter_mut().rev() {
            *digit = b'0' + (value % 10) as u8;
            value /= 10;
        }
        group[GROUP_DIGITS] = if number + 1 < groups { b'-' } else { b' ' };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{RandType, random};

    #[test]
    fn text_looks_like_sysbenchs() {
        let keys = Keys::new(RandType::Uniform, 50).unwrap();
        let row = Row::random(9, &keys, &mut random(1, 1));
        let check = |text: &[u8], groups: usize| {
            let text = std::str::from_utf8(text).unwrap();
            let trimmed = text.strip_suffix(' ').unwrap();
            let parts: Vec<&str> = trimmed.split('-').collect();
            assert_eq!(parts.len(), groups);
            for part in parts {
                assert_eq!(part.len(), GROUP_DIGITS);
                assert!(part.bytes().all(|b| b.is_ascii_digit()));
            }
        };
        check(&row.c, 10);
        check(&row.pad, 5);
        assert_eq!(row.id, 9);
        assert!((1..=50).contains(&row.k));
    }

    #[test]
    fn rows_differ_and_repeat_with_the_seed() {
        let keys = Keys::new(RandType::Uniform, 1_000_000).unwrap();
        let mut one = random(1, 1);
        let first = Row::random(1, &keys, &mut one);
        let second = Row::random(1, &keys, &mut one);
        assert_ne!(first, second);
        assert_eq!(first, Row::random(1, &keys, &mut random(1, 1)));
    }
}
