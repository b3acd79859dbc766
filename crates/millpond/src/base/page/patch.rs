//! The difference between two values, so that the log need not hold the whole new value.
//!
//! A patch is a sequence of pieces. Each keeps some bytes of the old value, leaves some out, and puts others in their
//! place. The bytes behind the last piece are kept. The way back from the new value to the old one is a patch of the
//! same form.

use smallvec::SmallVec;

use super::reader::Reader;
use super::view::common_len;

/// The bytes of a patch under construction. Most updates fit without an allocation.
pub(crate) type PatchBuf = SmallVec<[u8; 128]>;

/// Bytes of a piece's header: the counts of bytes kept, left out and put in.
const PIECE_HEADER: usize = 6;

/// Offset of the new head in a patch that [replaces a head](find_patch).
pub(crate) const HEAD_AT: usize = PIECE_HEADER;

/// Encoded pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patch<'a>(pub(crate) &'a [u8]);

struct Piece<'a> {
    keep: usize,
    leave_out: usize,
    put_in: &'a [u8],
}

impl<'a> Patch<'a> {
    /// The pieces; an unreadable one yields `None` and is the last.
    fn pieces(self) -> impl Iterator<Item = Option<Piece<'a>>> {
        let mut reader = Reader::new(self.0);
        std::iter::from_fn(move || {
            if reader.is_empty() {
                return None;
            }
            let mut read = || {
                let (keep, leave_out) = (usize::from(reader.u16()?), usize::from(reader.u16()?));
                Some(Piece { keep, leave_out, put_in: reader.bytes()? })
            };
            let piece = read();
            if piece.is_none() {
                reader.rest();
            }
            Some(piece)
        })
    }

    /// The new value's length, for an old value of `len` bytes. `None`: this is no patch of such a value.
    pub(crate) fn len_of(self, len: usize) -> Option<usize> {
        let (mut left, mut new) = (len, len);
        for piece in self.pieces() {
            let piece = piece?;
            left = left.checked_sub(piece.keep + piece.leave_out)?;
            new = new - piece.leave_out + piece.put_in.len();
        }
        Some(new)
    }

    /// Changes `value` in place if no kept byte has to move. Returns whether it did.
    pub(super) fn apply_in_place(self, value: &mut [u8]) -> bool {
        let mut at = 0;
        let fits = self.pieces().all(|piece| {
            piece.is_some_and(|piece| {
                at += piece.keep + piece.leave_out;
                piece.leave_out == piece.put_in.len() && at <= value.len()
            })
        });
        if fits {
            at = 0;
            for piece in self.pieces().flatten() {
                at += piece.keep;
                value[at..at + piece.leave_out].copy_from_slice(piece.put_in);
                at += piece.leave_out;
            }
        }
        fits
    }

    /// The new value that the patch makes of `old`.
    pub(crate) fn apply(self, old: &[u8]) -> Option<SmallVec<[u8; 512]>> {
        let mut new = SmallVec::with_capacity(self.len_of(old.len())?);
        let mut rest = old;
        for piece in self.pieces() {
            let piece = piece?;
            let (kept, behind) = rest.split_at_checked(piece.keep)?;
            new.extend_from_slice(kept);
            new.extend_from_slice(piece.put_in);
            rest = behind.get(piece.leave_out..)?;
        }
        new.extend_from_slice(rest);
        Some(new)
    }
}

/// Writes a patch from `old` to `new`; false: `new` itself takes no more bytes.
///
/// The patch replaces the old value's head as a whole: `heads` is its length, and the new head. `old` and `new` are the
/// tails behind the heads. Tails of equal length, such as rows of fixed fields, may differ in several places. For tails
/// of different lengths one place is found.
pub(crate) fn find_patch(heads: (usize, &[u8]), old: &[u8], new: &[u8], patch: &mut PatchBuf) -> bool {
    let limit = heads.1.len() + new.len();
    patch.clear();
    if heads.0 + heads.1.len() > 0 && !put_piece(patch, 0, heads.0, heads.1, limit) {
        return false;
    }
    if old.len() != new.len() {
        let keep = common_len(old, new);
        let tail = common_tail(&old[keep..], &new[keep..]);
        let put_in = &new[keep..new.len() - tail];
        return put_piece(patch, keep, old.len() - keep - tail, put_in, limit);
    }
    let (mut at, mut kept_from) = (0, 0);
    loop {
        at += common_len(&old[at..], &new[at..]);
        if at == new.len() {
            return true;
        }
        let end = at + differing_len(&old[at..], &new[at..]);
        if !put_piece(patch, at - kept_from, end - at, &new[at..end], limit) {
            return false;
        }
        (at, kept_from) = (end, end);
    }
}

/// The length of the longest common ending.
fn common_tail(a: &[u8], b: &[u8]) -> usize {
    a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

/// Length of the differing bytes: up to a run of equal bytes that is long enough to pay for a new piece.
fn differing_len(old: &[u8], new: &[u8]) -> usize {
    let (mut end, mut equal) = (0, 0);
    for (index, (a, b)) in old.iter().zip(new).enumerate() {
        if a != b {
            (end, equal) = (index + 1, 0);
        } else {
            equal += 1;
            if equal == PIECE_HEADER {
                break;
            }
        }
    }
    end
}

/// Adds a piece, if the patch stays shorter than `limit`.
fn put_piece(patch: &mut PatchBuf, keep: usize, leave_out: usize, put_in: &[u8], limit: usize) -> bool {
    if patch.len() + PIECE_HEADER + put_in.len() >= limit {
        return false;
    }
    for len in [keep, leave_out, put_in.len()] {
        let len = u16::try_from(len).expect("PAGE-3: a value is shorter than a page");
        patch.extend_from_slice(&len.to_le_bytes());
    }
    patch.extend_from_slice(put_in);
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn patch_between(old: &[u8], new: &[u8]) -> Option<PatchBuf> {
        let mut patch = PatchBuf::new();
        find_patch((0, b""), old, new, &mut patch).then_some(patch)
    }

    #[test]
    fn a_counter_and_a_name_in_a_long_row_are_two_pieces() {
        let old = [1u8; 184];
        let mut new = old;
        new[3] = 2;
        new[4] = 3;
        new[100] = 4;
        let patch = patch_between(&old, &new).expect("shorter");
        assert_eq!(&patch[..], [3, 0, 2, 0, 2, 0, 2, 3, 95, 0, 1, 0, 1, 0, 4]);
        assert_eq!(Patch(&patch).apply(&old).expect("fits")[..], new);
        // Two places that are close share one piece.
        new = old;
        new[10] = 2;
        new[15] = 2;
        assert_eq!(patch_between(&old, &new).expect("shorter").len(), PIECE_HEADER + 6);
    }

    #[test]
    fn what_has_changed_altogether_has_no_patch() {
        assert_eq!(patch_between(&[1; 100], &[2; 100]), None);
        assert_eq!(patch_between(b"ab", b"ac"), None);
        assert_eq!(patch_between(b"abc", b""), None);
    }

    #[test]
    fn a_value_grows_in_its_middle() {
        let (old, new) = ([[1u8; 50], [2; 50]].concat(), [&[1u8; 50][..], b"between", &[2; 50]].concat());
        let patch = patch_between(&old, &new).expect("shorter");
        assert_eq!(patch.len(), PIECE_HEADER + 7);
        assert_eq!(Patch(&patch).len_of(100), Some(107));
        assert_eq!(Patch(&patch).apply(&old).expect("fits")[..], new);
    }

    #[test]
    fn heads_are_replaced_even_if_they_share_bytes_with_tails() {
        let (old, new) = ([&[0u8; 1][..], &[7; 60]].concat(), [&[0u8; 13][..], &[7; 30], &[8], &[7; 29]].concat());
        let mut patch = PatchBuf::new();
        assert!(find_patch((1, &new[..13]), &old[1..], &new[13..], &mut patch));
        assert_eq!(patch.len(), 2 * PIECE_HEADER + 13 + 1);
        assert_eq!(Patch(&patch).apply(&old).expect("fits")[..], new);
        assert!(find_patch((13, &old[..1]), &new[13..], &old[1..], &mut patch));
        assert_eq!(Patch(&patch).apply(&new).expect("fits")[..], old);
        assert!(!find_patch((1, &new[..13]), b"", b"", &mut patch), "the row is shorter than its patch");
    }

    #[test]
    fn a_patch_of_another_value_is_refused() {
        let patch = patch_between(&[1; 100], &[[1u8; 90], [2; 90]].concat()).expect("shorter");
        assert_eq!(Patch(&patch).apply(&[1; 89]), None);
        assert_eq!(Patch(&patch).len_of(89), None);
        for end in 1..patch.len() {
            assert_eq!(Patch(&patch[..end]).apply(&[1; 100]), None, "cut at {end}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None,
            rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default() })]

        #[test]
        #[cfg_attr(miri, ignore = "long")]
        fn a_patch_leads_to_the_new_value_and_is_shorter(
            old in proptest::collection::vec(0..2u8, 0..200),
            changes in proptest::collection::vec((0..200usize, 0..3u8, 0..200u8), 0..6),
        ) {
            let mut new = old.clone();
            for (at, kind, byte) in changes {
                let at = at.min(new.len());
                match kind {
                    0 if at < new.len() => new[at] = byte,
                    1 => new.insert(at, byte),
                    _ => new.truncate(at.max(new.len() / 2)),
                }
            }
            if let Some(patch) = patch_between(&old, &new) {
                prop_assert!(patch.len() < new.len().max(1));
                prop_assert_eq!(Patch(&patch).len_of(old.len()), Some(new.len()));
                prop_assert_eq!(Patch(&patch).apply(&old).map(|found| found.to_vec()), Some(new.clone()));
                let mut value = old.clone();
                prop_assert_eq!(Patch(&patch).apply_in_place(&mut value), old.len() == new.len());
                prop_assert_eq!(value, if old.len() == new.len() { new } else { old });
            }
        }

        #[test]
        #[cfg_attr(miri, ignore = "long")]
        fn any_bytes_are_a_patch_or_refused(
            bytes in proptest::collection::vec(0..8u8, 0..40),
            old in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let new = Patch(&bytes).apply(&old);
            prop_assert_eq!(Patch(&bytes).len_of(old.len()), new.as_ref().map(|new| new.len()));
            let mut value = old.clone();
            if Patch(&bytes).apply_in_place(&mut value) {
                prop_assert_eq!(Some(value), new.map(|new| new.to_vec()));
            } else {
                prop_assert_eq!(value, old);
            }
            }
    }
}
