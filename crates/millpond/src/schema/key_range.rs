//! Ranges of keys, as callers give them and as the engine keeps them.

use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// Both ends of a range of keys.
pub(crate) type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A range of keys, in byte order: `..`, `"a".."b"`, `"a"..="b"`, `"a"..`, `.."b"`, `..="b"`, a pair of [`Bound`]s, or a
/// [`Prefix`]. Keys are anything that is [`AsRef<[u8]>`](AsRef). A range whose end is below its begin is empty.
///
/// Unlike [`RangeBounds`] it needs no type for `..`: `tree.scan(..)` is enough.
pub trait KeyRange: sealed::IntoBounds {}

/// The range of all keys that begin with these bytes.
///
/// ```
/// # use millpond::{Db, Options, Prefix};
/// # let dir = tempfile::tempdir().expect("a directory");
/// # let db = Db::open(dir.path(), Options::new())?;
/// let tree = db.create_tree("cities")?;
/// for city in ["oslo", "osaka", "paris"] {
///     tree.insert(city, "")?;
/// }
/// assert_eq!(tree.scan(Prefix("os")).count(), 2);
/// # Ok::<(), millpond::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix<K>(pub K);

pub(crate) mod sealed {
    use super::KeyBounds;

    pub trait IntoBounds {
        fn into_bounds(self) -> KeyBounds;
    }
}

use sealed::IntoBounds;

fn owned<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> KeyBounds {
    let own = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
    (own(range.start_bound()), own(range.end_bound()))
}

macro_rules! key_ranges {
    ($($range:ty),+) => {$(
        impl<K: AsRef<[u8]>> KeyRange for $range {}
        impl<K: AsRef<[u8]>> IntoBounds for $range {
            fn into_bounds(self) -> KeyBounds {
                owned::<K>(&self)
            }
        }
    )+};
}

key_ranges!(Range<K>, RangeInclusive<K>, RangeFrom<K>, RangeTo<K>, RangeToInclusive<K>, (Bound<K>, Bound<K>));

impl KeyRange for RangeFull {}
impl IntoBounds for RangeFull {
    fn into_bounds(self) -> KeyBounds {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl<K: AsRef<[u8]>> KeyRange for Prefix<K> {}
impl<K: AsRef<[u8]>> IntoBounds for Prefix<K> {
    fn into_bounds(self) -> KeyBounds {
        let begin = self.0.as_ref().to_vec();
        let end = behind(begin.clone()).map_or(Bound::Unbounded, Bound::Excluded);
        (Bound::Included(begin), end)
    }
}

/// The first key after all that begin with `begin`; `None`: there is none.
pub(crate) fn behind(mut begin: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = begin.pop() {
        if last < u8::MAX {
            begin.push(last + 1);
            return Some(begin);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_ends_behind_its_last_key() {
        let end = |prefix: &[u8]| Prefix(prefix).into_bounds().1;
        assert_eq!(end(b"ab"), Bound::Excluded(b"ac".to_vec()));
        assert_eq!(end(b"a\xff\xff"), Bound::Excluded(b"b".to_vec()));
        assert_eq!(end(b"\xff"), Bound::Unbounded);
        assert_eq!(end(b""), Bound::Unbounded);
    }
}
