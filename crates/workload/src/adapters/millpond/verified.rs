//! Whether a table and its indexes agree.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use ::millpond::{Index, Table};

use crate::Error;
use crate::engine::Verified;

/// An index to verify: its name, its columns as bytes of a row's value, and the index, if it exists.
pub(super) struct Entries {
    pub(super) name: &'static str,
    pub(super) columns: &'static [Range<usize>],
    pub(super) of: Option<Index>,
}

/// Reads a table and its indexes, and checks that each row has its entries and each entry its row.
pub(super) fn verified(name: &str, rows: &Table, indexes: &[Entries]) -> Result<Verified, Error> {
    // A sum of hashes does not depend on the order, so no row has to be kept in memory.
    let hasher = RandomState::new();
    let mut verified = Verified::default();
    let mut by_row = vec![0_u64; indexes.len()];
    let mut scan = rows.scan(..);
    while let Some((key, row)) = scan.next_row().map_err(Error::engine)? {
        verified.rows += 1;
        for (sum, index) in by_row.iter_mut().zip(indexes) {
            let fields: Vec<u8> = index.columns.iter().flat_map(|column| &row[column.clone()]).copied().collect();
            *sum = sum.wrapping_add(hasher.hash_one((fields.as_slice(), key)));
        }
    }
    for (by_row, index) in by_row.into_iter().zip(indexes) {
        let Some(entries_of) = &index.of else { continue };
        let (mut entries, mut by_entry) = (0_u64, 0_u64);
        let mut scan = entries_of.scan(..);
        while let Some((fields, key)) = scan.next_entry().map_err(Error::engine)? {
            entries += 1;
            by_entry = by_entry.wrapping_add(hasher.hash_one((fields, key)));
        }
        verified.entries += entries;
        let how = if entries != verified.rows {
            format!("{entries} entries, {} rows", verified.rows)
        } else if by_entry != by_row {
            format!("{entries} entries, not all of them of these rows")
        } else {
            continue;
        };
        return Err(Error::IndexDisagrees { table: name.to_owned(), index: index.name, how });
    }
    Ok(verified)
}
