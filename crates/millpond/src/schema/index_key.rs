//! The keys of index entries.
//!
//! INDEX-1  A row's entry in an index follows from the row. Two rows have entries with different keys; in a unique
//!          index, two rows whose entries would have the same key must not both exist.
//! INDEX-2  Entries are in the order of the rows' fields, concatenated and compared as byte strings. Entries with the
//!          same fields are in the order of the primary keys.
//!
//! In a unique index an entry's key is the fields, and its value the primary key. In any other index the key is the
//! fields followed by the primary key, and the value is empty. The ends of fields follow from their lengths, except for
//! a last field without an end. In that field each byte 0x00 becomes 0x00 0xFF, and 0x00 0x01 ends it. (The *escaped,
//! terminated* byte strings of FoundationDB's tuple layer and of CockroachDB's keys.) A prefix still sorts first, since
//! its end is below any continuation of a longer string.

use std::ops::Bound;

use smallvec::SmallVec;

use crate::schema::definition::{IndexDefinition, TooShort};
use crate::schema::key_range::{KeyBounds, behind};

/// Keys of entries, concatenated; the keys of one or two rows need no allocation.
pub(crate) type EntryBytes = SmallVec<[u8; 256]>;

/// The encoding of a byte 0x00 in a last field without an end.
const ESCAPED_ZERO: [u8; 2] = [0x00, 0xFF];

/// The mark after a last field without an end.
const END: [u8; 2] = [0x00, 0x01];

impl IndexDefinition {
    /// Whether the last field is escaped and terminated.
    fn is_terminated(&self) -> bool {
        !self.is_unique && self.has_open_end()
    }

    /// Appends the key of a row's entry to `out`.
    pub(crate) fn append_entry_key(&self, key: &[u8], value: &[u8], out: &mut EntryBytes) -> Result<(), TooShort> {
        let last = self.fields.len().wrapping_sub(1);
        for (at, field) in self.fields_of(key, value).enumerate() {
            if at == last && self.is_terminated() {
                append_terminated(field?, out);
            } else {
                out.extend_from_slice(field?);
            }
        }
        if !self.is_unique {
            out.extend_from_slice(key);
        }
        Ok(())
    }

    /// Splits an entry: puts the fields into `fields` and returns the row's primary key. `None`: it is no valid entry.
    pub(crate) fn split_entry<'e>(&self, entry: &'e [u8], value: &'e [u8], fields: &mut Vec<u8>) -> Option<&'e [u8]> {
        fields.clear();
        if self.is_unique {
            fields.extend_from_slice(entry);
            return Some(value);
        }
        let (fixed, mut rest) = entry.split_at_checked(self.fixed_len())?;
        fields.extend_from_slice(fixed);
        if self.is_terminated() {
            loop {
                let zero = rest.iter().position(|byte| *byte == 0)?;
                fields.extend_from_slice(&rest[..zero]);
                let (mark, behind) = rest[zero..].split_first_chunk::<2>()?;
                rest = behind;
                match *mark {
                    ESCAPED_ZERO => fields.push(0),
                    END => break,
                    _ => return None,
                }
            }
        }
        value.is_empty().then_some(rest)
    }

    /// The key of the entry that [`split_entry`](Self::split_entry) has split.
    pub(crate) fn joined_entry(&self, fields: &[u8], key: &[u8]) -> Vec<u8> {
        if self.is_unique {
            return fields.to_vec();
        }
        let (fixed, open) = fields.split_at(fields.len().min(self.fixed_len()));
        let mut entry = EntryBytes::from_slice(fixed);
        if self.is_terminated() {
            append_terminated(open, &mut entry);
        }
        entry.extend_from_slice(key);
        entry.into_vec()
    }

    /// The range of the keys of entries whose fields are in `range`. `None`: no entry can be in it.
    pub(crate) fn entry_range(&self, (lower, upper): &KeyBounds) -> Option<KeyBounds> {
        Some((self.lower(lower.as_ref())?, self.upper(upper.as_ref())))
    }

    fn lower(&self, bound: Bound<&Vec<u8>>) -> Option<Bound<Vec<u8>>> {
        let at_or_above = match bound {
            Bound::Unbounded => return Some(Bound::Unbounded),
            Bound::Included(fields) => match self.place(fields) {
                Place::Before(key) | Place::All(key) => key,
                Place::Behind(begin) => behind(begin)?,
            },
            Bound::Excluded(fields) => match self.place(fields) {
                Place::Before(key) if self.is_unique => return Some(Bound::Excluded(key)),
                Place::Before(key) => key,
                Place::All(begin) | Place::Behind(begin) => behind(begin)?,
            },
        };
        Some(Bound::Included(at_or_above))
    }

    fn upper(&self, bound: Bound<&Vec<u8>>) -> Bound<Vec<u8>> {
        match bound {
            Bound::Unbounded => Bound::Unbounded,
            Bound::Included(fields) => match self.place(fields) {
                Place::Before(at) if self.is_unique => Bound::Included(at),
                Place::Before(at) => Bound::Excluded(at),
                Place::All(begin) | Place::Behind(begin) => behind(begin).map_or(Bound::Unbounded, Bound::Excluded),
            },
            Bound::Excluded(fields) => match self.place(fields) {
                Place::Before(at) | Place::All(at) => Bound::Excluded(at),
                Place::Behind(begin) => behind(begin).map_or(Bound::Unbounded, Bound::Excluded),
            },
        }
    }

    /// The place among the keys at which entries with these fields are, or would be.
    fn place(&self, fields: &[u8]) -> Place {
        let fixed = self.fixed_len();
        if self.is_unique || fields.len() < fixed {
            return Place::Before(fields.to_vec());
        }
        let (begin, rest) = fields.split_at(fixed);
        if self.is_terminated() {
            let mut key = EntryBytes::from_slice(begin);
            append_terminated(rest, &mut key);
            Place::All(key.into_vec())
        } else if rest.is_empty() {
            Place::All(begin.to_vec())
        } else {
            // Longer than the fields of any entry: entries that begin with `begin` are shorter, and come before.
            Place::Behind(begin.to_vec())
        }
    }
}

/// The place of some fields among the keys of an index.
enum Place {
    /// Entries with larger fields are above this key, entries with smaller fields below. In a unique index this is also
    /// the key of the entry with these fields; in any other index no entry has these fields.
    Before(Vec<u8>),
    /// The entries with these fields are exactly those whose keys begin with these bytes.
    All(Vec<u8>),
    /// No entry has these fields: their place is after all entries whose keys begin with these bytes.
    Behind(Vec<u8>),
}

fn append_terminated(field: &[u8], out: &mut EntryBytes) {
    let mut pieces = field.split(|byte| *byte == 0);
    out.extend_from_slice(pieces.next().unwrap_or_default());
    for piece in pieces {
        out.extend_from_slice(&ESCAPED_ZERO);
        out.extend_from_slice(piece);
    }
    out.extend_from_slice(&END);
}

#[cfg(test)]
mod tests {
    use std::ops::RangeBounds;

    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::schema::definition::Field;

    fn indexes() -> Vec<IndexDefinition> {
        let shapes = [
            vec![Field::value(0..2)],
            vec![Field::value(0..)],
            vec![Field::value(0..1), Field::value(1..)],
            vec![Field::value(1..2), Field::value(0..1)],
            vec![Field::key(0..1), Field::value(0..)],
        ];
        let kinds = shapes.into_iter().flat_map(|fields| [(fields.clone(), false), (fields, true)]);
        kinds.map(|(fields, is_unique)| IndexDefinition { name: "i".to_owned(), is_unique, fields }).collect()
    }

    /// Random bytes from few values, so that strings have common prefixes and contain the bytes with a meaning.
    fn bytes(rng: &mut SmallRng, least: usize, most: usize) -> Vec<u8> {
        (0..rng.random_range(least..=most)).map(|_| [0, 1, 2, 0xFE, 0xFF][rng.random_range(0..5)]).collect()
    }

    fn bound(rng: &mut SmallRng) -> Bound<Vec<u8>> {
        let fields = bytes(rng, 0, 5);
        [Bound::Unbounded, Bound::Included(fields.clone()), Bound::Excluded(fields)][rng.random_range(0..3)].clone()
    }

    fn borrow(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
        bound.as_ref().map(Vec::as_slice)
    }

    /// The fields and the key of a row, as the index shows them.
    fn seen(index: &IndexDefinition, key: &[u8], value: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let fields: Vec<&[u8]> = index.fields_of(key, value).map(|field| field.expect("long enough")).collect();
        (fields.concat(), key.to_vec())
    }

    #[test]
    fn entries_keep_the_order_of_fields_and_keys_and_give_both_back() {
        for (seed, index) in (0..).zip(indexes()) {
            let mut rng = SmallRng::seed_from_u64(seed);
            for _ in 0..4000 {
                let rows = [(); 2].map(|()| (bytes(&mut rng, 1, 3), bytes(&mut rng, 2, 5)));
                let keys = rows.clone().map(|(key, value)| {
                    let mut entry = EntryBytes::new();
                    index.append_entry_key(&key, &value, &mut entry).expect("long enough");
                    entry
                });
                let [one, two] = rows.clone().map(|(key, value)| seen(&index, &key, &value));
                if index.is_unique {
                    assert_eq!(keys[0].cmp(&keys[1]), one.0.cmp(&two.0), "{index}: {rows:?}");
                } else {
                    assert_eq!(keys[0].cmp(&keys[1]), one.cmp(&two), "{index}: {rows:?}");
                }
                let value: &[u8] = if index.is_unique { &rows[0].0 } else { b"" };
                let mut fields = Vec::new();
                let key = index.split_entry(&keys[0], value, &mut fields).expect("an entry");
                assert_eq!((fields, key.to_vec()), one, "{index}");
            }
        }
    }

    #[test]
    fn a_range_of_fields_is_a_range_of_entries() {
        let mut inside = 0;
        for (seed, index) in (100..).zip(indexes()) {
            let mut rng = SmallRng::seed_from_u64(seed);
            for _ in 0..20_000 {
                let (lower, upper) = (bound(&mut rng), bound(&mut rng));
                let (key, value) = (bytes(&mut rng, 1, 2), bytes(&mut rng, 2, 4));
                let mut entry = EntryBytes::new();
                index.append_entry_key(&key, &value, &mut entry).expect("long enough");
                let fields = seen(&index, &key, &value).0;
                let wanted = (borrow(&lower), borrow(&upper)).contains(fields.as_slice());
                let range = index.entry_range(&(lower.clone(), upper.clone()));
                let found = range.is_some_and(|(low, high)| (borrow(&low), borrow(&high)).contains(&entry[..]));
                assert_eq!(found, wanted, "{index}: {fields:?} in {lower:?}..{upper:?}");
                inside += u64::from(wanted);
            }
        }
        assert!(inside > 20_000, "{inside}");
    }

    #[test]
    fn what_is_no_entry_is_told() {
        let index = IndexDefinition {
            name: "i".to_owned(),
            is_unique: false,
            fields: vec![Field::value(0..2), Field::value(2..)],
        };
        let mut fields = Vec::new();
        for (entry, value) in [
            (&b"a"[..], &b""[..]),
            (b"ab", b""),
            (b"abc", b""),
            (b"abc\0", b""),
            (b"abc\0\x02k", b""),
            (b"abc\0\x01k", b"v"),
        ] {
            assert_eq!(index.split_entry(entry, value, &mut fields), None, "{entry:?}");
        }
        assert_eq!(index.split_entry(b"ab\0\xFF\0\x01k", b"", &mut fields), Some(&b"k"[..]));
        assert_eq!(fields, b"ab\0");
    }
}
