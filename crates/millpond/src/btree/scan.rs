//! Range scans, a leaf at a time. A scan sees each leaf as it is at one moment, and holds nothing between leaves.

use std::ops::{Bound, Range};

use super::descent::{Restarts, Root, Stop, Target, leaf_read, leaves_ahead};
use crate::base::error::{Error, MEND_TREE};
use crate::base::ids::{PageId, SpaceId, TxnId};
use crate::base::page::view::{PageView, entry_places};
use crate::base::row::{Row, Stamp};
use crate::core::Core;

/// A key and its value, borrowed.
pub type RowRef<'a> = (&'a [u8], &'a [u8]);

/// A key and its value, owned.
pub type OwnedRow = (Vec<u8>, Vec<u8>);

/// A copy of a row.
pub(crate) fn owned((key, value): RowRef<'_>) -> OwnedRow {
    (key.to_vec(), value.to_vec())
}

/// Rows of a leaf, in key order; taken from either end. Their entries are copied as they are, most often in one piece.
#[derive(Default)]
pub(crate) struct Rows {
    /// Copies of the entries.
    bytes: Vec<u8>,
    places: Vec<RowPlace>,
    /// The beginning of all keys, which entries do not keep, and behind it the rest of the key that was read last.
    key: Vec<u8>,
    prefix_len: usize,
    /// The rows not taken yet, as indexes into `places`.
    left: Range<usize>,
    /// Rows whose payloads are elsewhere, as indexes into `places`.
    elsewhere: Vec<(usize, Elsewhere)>,
    /// Payloads that were elsewhere, with the rows' indexes, which ascend.
    found: Vec<(usize, Vec<u8>)>,
}

/// Offsets of a row's parts in the memory of [`Rows`].
#[derive(Clone, Copy)]
struct RowPlace {
    suffix: usize,
    value: usize,
    payload: usize,
    end: usize,
}

/// Where a row's payload is, if it is not in the leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Elsewhere {
    /// The reader must not see the transaction of the stamp: the payload before it counts. The whole value is here,
    /// with the stamp.
    Before(Stamp),
    /// In chunks; the reference to them is here.
    Chunks,
}

impl Rows {
    /// Whether all rows were taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Takes the first remaining row.
    pub(crate) fn take_first(&mut self) -> Option<RowRef<'_>> {
        let index = self.left.next()?;
        Some(self.row(index))
    }

    /// Takes the last remaining row.
    pub(crate) fn take_last(&mut self) -> Option<RowRef<'_>> {
        let index = self.left.next_back()?;
        Some(self.row(index))
    }

    fn row(&mut self, index: usize) -> RowRef<'_> {
        let RowPlace { suffix, value, payload, end } = self.places[index];
        let (suffix, payload) = (&self.bytes[suffix..value], &self.bytes[payload..end]);
        let key = match self.prefix_len {
            0 => suffix,
            prefix => {
                self.key.truncate(prefix);
                // Suffixes are short: a call to copy one takes longer than the copy.
                match suffix {
                    [a] => self.key.push(*a),
                    [a, b] => self.key.extend([*a, *b]),
                    _ => self.key.extend_from_slice(suffix),
                }
                &self.key
            }
        };
        (key, if self.found.is_empty() { payload } else { found_at(&self.found, index).unwrap_or(payload) })
    }

    /// The undo pages that lead from the rows' versions here to the ones before, each once.
    pub(crate) fn undo_pages(&self) -> Vec<PageId> {
        let page = |(_, place): &(usize, Elsewhere)| match place {
            Elsewhere::Before(stamp) => stamp.undo.map(|undo| PageId::new(SpaceId::UNDO, undo.page)),
            Elsewhere::Chunks => None,
        };
        let mut pages: Vec<PageId> = self.elsewhere.iter().filter_map(page).collect();
        pages.sort_unstable();
        pages.dedup();
        pages
    }

    /// Replaces payloads that are elsewhere by those that `find` returns, and removes rows for which it finds none.
    /// `None`: a payload is gone by now, and all rows are to be read again.
    pub(crate) fn resolve(
        &mut self,
        mut find: impl FnMut(RowRef<'_>, Elsewhere) -> Result<Option<Option<Vec<u8>>>, Error>,
    ) -> Result<Option<()>, Error> {
        if self.elsewhere.is_empty() {
            return Ok(Some(()));
        }
        // For a caller that goes on after an error.
        self.left = 0..0;
        let mut gone = 0;
        for (index, place) in std::mem::take(&mut self.elsewhere) {
            let index = index - gone;
            match find(self.row(index), place)? {
                Some(Some(payload)) => self.found.push((index, payload)),
                Some(None) => {
                    self.places.remove(index);
                    gone += 1;
                }
                None => {
                    *self = Rows::default();
                    return Ok(None);
                }
            }
        }
        self.left = 0..self.places.len();
        Ok(Some(()))
    }

    /// Replaces all rows by those of `page` between the bounds.
    fn fill(
        &mut self,
        page: PageView<'_>,
        lower: &Bound<Vec<u8>>,
        upper: &Bound<Vec<u8>>,
        hides: &dyn Fn(TxnId) -> bool,
    ) -> Result<(), Error> {
        let first = match lower {
            Bound::Unbounded => 0,
            Bound::Included(key) => page.search(key).unwrap_or_else(|index| index),
            Bound::Excluded(key) => page.search(key).map_or_else(|index| index, |index| index + 1),
        };
        let end = match upper {
            Bound::Unbounded => page.len(),
            Bound::Included(key) => page.search(key).map_or_else(|index| index, |index| index + 1),
            Bound::Excluded(key) => page.search(key).unwrap_or_else(|index| index),
        };
        self.bytes.clear();
        self.places.clear();
        self.elsewhere.clear();
        self.found.clear();
        self.key.clear();
        self.key.extend_from_slice(page.prefix());
        self.prefix_len = self.key.len();
        let entries = page.offsets(first..end);
        let (mut low, mut high) = (usize::MAX, 0);
        for offset in entries.clone() {
            (low, high) = (low.min(offset), high.max(offset));
        }
        // In one piece, unless other rows take more of it: memory is read in its order, once.
        let all = low..page.entry_end(high);
        let is_one_piece = entries.len() > 0 && all.len() <= 2 * entries.len() * page.mean_entry_len();
        if is_one_piece {
            self.bytes.extend_from_slice(page.part(all));
        }
        self.places.reserve(entries.len());
        for (index, offset) in (first..).zip(entries) {
            let at = if is_one_piece {
                offset - low
            } else {
                let at = self.bytes.len();
                self.bytes.extend_from_slice(page.part(offset..page.entry_end(offset)));
                at
            };
            let [suffix, value, end] = entry_places(&self.bytes, at);
            let here = match seen(page, index, &self.bytes[value..end], hides)? {
                Seen::Gone => continue,
                Seen::Row(payload) => payload,
                Seen::Elsewhere(here, place) => {
                    self.elsewhere.push((self.places.len(), place));
                    here
                }
            };
            let payload = end - here.len();
            self.places.push(RowPlace { suffix, value, payload, end });
        }
        self.left = 0..self.places.len();
        Ok(())
    }
}

/// The payload of row `index`, if it was found elsewhere.
fn found_at(found: &[(usize, Vec<u8>)], index: usize) -> Option<&[u8]> {
    found.binary_search_by_key(&index, |found| found.0).ok().map(|at| &found[at].1[..])
}

/// The meaning of a leaf's entry for a reader.
pub(crate) enum Seen<'a> {
    /// A row with this payload.
    Row(&'a [u8]),
    /// The row is deleted.
    Gone,
    /// A row whose payload is elsewhere; these bytes lead to it.
    Elsewhere(&'a [u8], Elsewhere),
}

/// Reads entry `index` of a leaf. Leaves of the catalog have plain values.
#[inline]
pub(crate) fn row<'a>(page: PageView<'a>, index: usize, hides: impl Fn(TxnId) -> bool) -> Result<Seen<'a>, Error> {
    seen(page, index, page.value(index), hides)
}

/// The same, with the entry's value at hand.
#[inline]
fn seen<'a>(
    page: PageView<'a>,
    index: usize,
    value: &'a [u8],
    hides: impl Fn(TxnId) -> bool,
) -> Result<Seen<'a>, Error> {
    let id = PageId(page.header().page_id.get());
    if id.space() == SpaceId::CATALOG {
        return Ok(Seen::Row(value));
    }
    match Row::decode(value) {
        Some(Row { stamp: Some(stamp), .. }) if hides(stamp.txn) => {
            Ok(Seen::Elsewhere(value, Elsewhere::Before(stamp)))
        }
        Some(Row { is_deleted: false, is_chunked: true, payload, .. }) => {
            Ok(Seen::Elsewhere(payload, Elsewhere::Chunks))
        }
        Some(Row { is_deleted: false, payload, .. }) => Ok(Seen::Row(payload)),
        Some(_) => Ok(Seen::Gone),
        None => Err(no_row(id, index)),
    }
}

/// The error for an entry of a leaf that is no row.
#[cold]
pub(crate) fn no_row(id: PageId, index: usize) -> Error {
    let message = format!("page {id}: entry {index} is no row: {MEND_TREE}");
    Error::Corruption(message.into())
}

/// How far ahead a scan reads. The first leaf that it misses is read alone, since most scans are short. Then the scan
/// reads more and more leaves together, so that the device has several reads under way.
pub(crate) struct ReadAhead {
    max: usize,
    window: usize,
}

impl ReadAhead {
    /// Reads at most `max` leaves together.
    pub(crate) fn new(max: usize) -> ReadAhead {
        ReadAhead { max, window: 0 }
    }

    /// Called when a leaf is missing: reads it together with the leaves that the scan comes to next.
    fn missed(&mut self, core: &Core, root: &Root, target: Target<'_>, leftwards: bool) {
        let window = self.window.min(core.pool.len() / 64);
        self.window = (2 * self.window).max(4).min(self.max);
        if window > 1 {
            core.pool.load_many(&leaves_ahead(core, root, target, leftwards, window));
        }
    }
}

fn below_upper(key: &[u8], upper: &Bound<Vec<u8>>) -> bool {
    match upper {
        Bound::Unbounded => true,
        Bound::Included(bound) => key <= bound.as_slice(),
        Bound::Excluded(bound) => key < bound.as_slice(),
    }
}

fn above_lower(key: &[u8], lower: &Bound<Vec<u8>>) -> bool {
    match lower {
        Bound::Unbounded => true,
        Bound::Included(bound) => key >= bound.as_slice(),
        Bound::Excluded(bound) => key > bound.as_slice(),
    }
}

/// Fills `rows` with those of the first leaf at or above `lower`. Returns the leaf's high fence, at which the scan goes
/// on; `None`: the range is exhausted. Rows with payloads elsewhere are to be [resolved](Rows::resolve).
pub(crate) fn leaf_forward(
    core: &Core,
    root: &Root,
    hides: &dyn Fn(TxnId) -> bool,
    lower: &Bound<Vec<u8>>,
    upper: &Bound<Vec<u8>>,
    ahead: &mut ReadAhead,
    rows: &mut Rows,
) -> Result<Option<Vec<u8>>, Error> {
    let from: &[u8] = match lower {
        Bound::Unbounded => b"",
        Bound::Included(key) | Bound::Excluded(key) => key,
    };
    let mut restarts = Restarts::new(&core.pool);
    loop {
        match leaf_read(core, root, Target::Key(from)) {
            Ok(page) => {
                let view = page.view();
                let next = view.high_fence().filter(|high| below_upper(high, upper)).map(<[u8]>::to_vec);
                rows.fill(view, lower, upper, hides)?;
                return Ok(next);
            }
            Err(stop) => {
                if matches!(stop, Stop::Load(_)) {
                    ahead.missed(core, root, Target::Key(from), false);
                }
                restarts.resolve(stop)?;
            }
        }
    }
}

/// Fills `rows` with those of the last leaf at or below `upper`. Returns the leaf's low fence, below which the scan
/// goes on; `None`: the range is exhausted. Rows with payloads elsewhere are to be [resolved](Rows::resolve).
pub(crate) fn leaf_backward(
    core: &Core,
    root: &Root,
    hides: &dyn Fn(TxnId) -> bool,
    lower: &Bound<Vec<u8>>,
    upper: &Bound<Vec<u8>>,
    ahead: &mut ReadAhead,
    rows: &mut Rows,
) -> Result<Option<Vec<u8>>, Error> {
    let target = match upper {
        Bound::Unbounded => Target::Below(None),
        Bound::Included(key) => Target::Key(key),
        Bound::Excluded(key) => Target::Below(Some(key)),
    };
    let mut restarts = Restarts::new(&core.pool);
    loop {
        match leaf_read(core, root, target) {
            Ok(page) => {
                let view = page.view();
                // Keys below the low fence are in the range only if the fence itself is above the lower bound.
                let low = view.low_fence();
                let more =
                    !low.is_empty() && above_lower(low, lower) && !matches!(lower, Bound::Included(b) if b == low);
                rows.fill(view, lower, upper, hides)?;
                return Ok(more.then(|| low.to_vec()));
            }
            Err(stop) => {
                if matches!(stop, Stop::Load(_)) {
                    ahead.missed(core, root, target, true);
                }
                restarts.resolve(stop)?;
            }
        }
    }
}
