//! Keys made of integers, floats, strings, bytes and tuples, whose byte order is the order of the values.
//!
//! Trees and tables compare keys as byte strings. [`encode`] turns a value into bytes that compare as the values do, so
//! that `(year, name)` sorts by year, then by name. [`decode`] gives the value back. The encoding is that of
//! FoundationDB's tuple layer, by its crate `foundationdb-tuple`.
//!
//! | value | order |
//! |---|---|
//! | `None`, then bytes, strings, tuples, integers, floats, `false`, `true` | between kinds |
//! | integers of 16 to 128 bits | by number; the same number has the same bytes in each width |
//! | `f32`, `f64` | by IEEE 754's total order; each width by itself |
//! | `&str`, `String`; `&[u8]`, `Vec<u8>`; decoded as `String` and `Vec<u8>` | byte by byte |
//! | tuples of up to 12 elements, which may be tuples | element by element |
//!
//! A string takes its bytes and 2 more, an integer 1 byte and those that it needs, an `f64` 9.
//!
//! ```
//! use millpond::{Db, Options, key};
//!
//! # let dir = tempfile::tempdir().expect("a directory");
//! # let db = Db::open(dir.path(), Options::new())?;
//! let films = db.create_tree("films")?;
//! for (year, name) in [(1927, "Metropolis"), (-480, "The Persians"), (1927, "Sunrise")] {
//!     films.insert(key::encode(&(year, name)), "")?;
//! }
//! let of_1927 = films.scan(key::within(&(1927,)));
//! let names: Vec<String> = of_1927
//!     .map(|row| Ok(key::decode::<(i32, String)>(&row?.0).expect("as encoded").1))
//!     .collect::<millpond::Result<_>>()?;
//! assert_eq!(names, ["Metropolis", "Sunrise"]);
//! # Ok::<(), millpond::Error>(())
//! ```

use std::ops::Bound;

pub use foundationdb_tuple::{TuplePack as Encode, TupleUnpack as Decode};

/// The bytes of a key. Allocates them.
///
/// # Panics
/// For 4 GiB of bytes or more, which no key has.
pub fn encode(value: &impl Encode) -> Vec<u8> {
    foundationdb_tuple::pack(value)
}

/// The value of a key that [`encode`] has made.
///
/// # Errors
/// [`NotAKey`]: the bytes are no value of this type, or there are more bytes behind it.
pub fn decode<'k, T: Decode<'k>>(key: &'k [u8]) -> Result<T, NotAKey> {
    foundationdb_tuple::unpack(key).map_err(NotAKey)
}

/// The range of the keys that begin with the elements of `tuple`, the key of `tuple` itself included: for
/// [`Tree::scan`](crate::Tree::scan) and its like.
pub fn within(tuple: &impl Encode) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let begin = encode(tuple);
    // No element begins with this byte; the escaped zero within a string does.
    let end = [&begin[..], &[0xFF]].concat();
    (Bound::Included(begin), Bound::Excluded(end))
}

/// Bytes that are no key of the wanted type.
#[derive(Debug, thiserror::Error)]
#[error("not a key of the wanted type: {0}: decode it as what was encoded")]
pub struct NotAKey(foundationdb_tuple::PackError);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_sort_as_their_values(a: (i64, String, Vec<u8>), b: (i64, String, Vec<u8>)) {
            prop_assert_eq!(encode(&a).cmp(&encode(&b)), a.cmp(&b));
            prop_assert_eq!(decode::<(i64, String, Vec<u8>)>(&encode(&a)).expect("as encoded"), a);
        }

        #[test]
        fn floats_sort_by_their_total_order(a: f64, b: f64) {
            prop_assert_eq!(encode(&a).cmp(&encode(&b)), a.total_cmp(&b));
        }
    }

    #[test]
    fn range_within_a_tuple_has_its_extensions_and_no_other_key() {
        let (begin, end) = within(&("a",));
        let inside = |key: Vec<u8>| std::ops::RangeBounds::contains(&(begin.clone(), end.clone()), &key);
        assert!(inside(encode(&("a",))) && inside(encode(&("a", -1))) && inside(encode(&("a", "\u{10FFFF}"))));
        assert!(!inside(encode(&("a\0b",))) && !inside(encode(&("ab",))) && !inside(encode(&("b", 1))));
    }

    #[test]
    fn bytes_of_another_type_are_refused() {
        let error = decode::<(i64,)>(&encode(&("a",))).expect_err("a string");
        assert!(error.to_string().contains("not a key of the wanted type"), "{error}");
        assert!(decode::<(i64,)>(&encode(&(1, 2))).is_err(), "one element too many");
    }
}
