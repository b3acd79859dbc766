//! Page operations and their bytes in the redo log.

use super::patch::Patch;
use crate::base::ids::TxnId;
use crate::base::page::reader::Reader;

/// A change of one page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PageOp<'a> {
    /// Formats the page anew and ignores its old contents. Keys lack the prefix that the fences imply, as in the page.
    /// So this operation, too, takes fewer bytes than a page, however long the keys are.
    Init { level: u8, low: &'a [u8], high: Option<&'a [u8]>, entries: Vec<(&'a [u8], &'a [u8])> },
    /// Adds an entry. Its key is absent.
    Insert { key: &'a [u8], value: &'a [u8] },
    /// Replaces the value of an existing entry.
    Replace { key: &'a [u8], value: &'a [u8] },
    /// Changes parts of the value of an existing entry.
    Patch { key: &'a [u8], patch: Patch<'a> },
    /// Removes an existing entry.
    Remove { key: &'a [u8] },
    /// Keeps the first `keep` entries and lowers the high fence: the left half of a split.
    Truncate { keep: u16, high: &'a [u8] },
    /// Drops the stamps below `oldest` from a leaf's rows, and the rows that were deleted with such a stamp.
    Compact { oldest: TxnId },
    /// Takes the page out of its tree: its contents and all its images become meaningless.
    Free,
}

const INIT: u8 = 1;
const INSERT: u8 = 2;
const REPLACE: u8 = 3;
const REMOVE: u8 = 4;
const TRUNCATE: u8 = 5;
const COMPACT: u8 = 6;
const FREE: u8 = 7;
const PATCH: u8 = 8;

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u16::try_from(bytes.len()).expect("PAGE-3: keys and values are shorter than a page");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(bytes);
}

impl<'a> PageOp<'a> {
    /// Appends the operation's bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            PageOp::Init { level, low, high, entries } => {
                out.extend_from_slice(&[INIT, *level, u8::from(high.is_some())]);
                put_bytes(out, low);
                put_bytes(out, high.unwrap_or_default());
                let count = u16::try_from(entries.len()).expect("PAGE-3: a page has fewer than 65,536 entries");
                out.extend_from_slice(&count.to_le_bytes());
                for (key, value) in entries {
                    put_bytes(out, key);
                    put_bytes(out, value);
                }
            }
            PageOp::Insert { key, value } => {
                out.push(INSERT);
                put_bytes(out, key);
                put_bytes(out, value);
            }
            PageOp::Replace { key, value } => {
                out.push(REPLACE);
                put_bytes(out, key);
                put_bytes(out, value);
            }
            PageOp::Patch { key, patch } => {
                out.push(PATCH);
                put_bytes(out, key);
                put_bytes(out, patch.0);
            }
            PageOp::Remove { key } => {
                out.push(REMOVE);
                put_bytes(out, key);
            }
            PageOp::Truncate { keep, high } => {
                out.push(TRUNCATE);
                out.extend_from_slice(&keep.to_le_bytes());
                put_bytes(out, high);
            }
            PageOp::Compact { oldest } => {
                out.push(COMPACT);
                out.extend_from_slice(&oldest.to_bytes());
            }
            PageOp::Free => out.push(FREE),
        }
    }

    /// Length of the output of [`encode`](Self::encode), without encoding a change of one entry.
    pub(crate) fn encoded_len(&self) -> usize {
        let bytes = |bytes: &[u8]| 2 + bytes.len();
        match self {
            PageOp::Insert { key, value } | PageOp::Replace { key, value } => 1 + bytes(key) + bytes(value),
            PageOp::Patch { key, patch } => 1 + bytes(key) + bytes(patch.0),
            PageOp::Remove { key } => 1 + bytes(key),
            PageOp::Compact { .. } => 1 + TxnId::LEN,
            PageOp::Init { .. } | PageOp::Truncate { .. } | PageOp::Free => {
                let mut encoded = Vec::new();
                self.encode(&mut encoded);
                encoded.len()
            }
        }
    }

    /// Whether encoded operations begin with an [`Init`](Self::Init).
    pub(crate) fn is_init(ops: &[u8]) -> bool {
        ops.first() == Some(&INIT)
    }

    /// Whether encoded operations are exactly one [`Free`](Self::Free).
    pub(crate) fn is_free(ops: &[u8]) -> bool {
        ops == [FREE]
    }

    /// Reads one operation; `None` if the bytes are not an operation.
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Option<PageOp<'a>> {
        Some(match reader.u8()? {
            INIT => {
                let level = reader.u8()?;
                let has_high = reader.u8()? != 0;
                let low = reader.bytes()?;
                let high = reader.bytes()?;
                let count = reader.u16()?;
                let mut entries = Vec::new();
                for _ in 0..count {
                    entries.push((reader.bytes()?, reader.bytes()?));
                }
                PageOp::Init { level, low, high: has_high.then_some(high), entries }
            }
            INSERT => PageOp::Insert { key: reader.bytes()?, value: reader.bytes()? },
            REPLACE => PageOp::Replace { key: reader.bytes()?, value: reader.bytes()? },
            PATCH => PageOp::Patch { key: reader.bytes()?, patch: Patch(reader.bytes()?) },
            REMOVE => PageOp::Remove { key: reader.bytes()? },
            TRUNCATE => PageOp::Truncate { keep: reader.u16()?, high: reader.bytes()? },
            COMPACT => PageOp::Compact { oldest: TxnId::from_bytes(*reader.take(TxnId::LEN)?.first_chunk()?) },
            FREE => PageOp::Free,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_survive_encoding_and_no_prefix_decodes() {
        let ops = [
            PageOp::Init { level: 3, low: b"a", high: Some(b"z"), entries: vec![(b"b", b"1"), (b"c", b"")] },
            PageOp::Init { level: 0, low: b"", high: None, entries: vec![] },
            PageOp::Insert { key: b"k", value: b"v" },
            PageOp::Replace { key: b"", value: b"w" },
            PageOp::Patch { key: b"k", patch: Patch(&[1, 0, 1, 0, 1, 0, 7]) },
            PageOp::Remove { key: b"k" },
            PageOp::Truncate { keep: 7, high: b"m" },
            PageOp::Compact { oldest: TxnId(0x0605_0403_0201) },
            PageOp::Free,
        ];
        for op in &ops {
            let mut bytes = Vec::new();
            op.encode(&mut bytes);
            assert_eq!(op.encoded_len(), bytes.len());
            let mut reader = Reader::new(&bytes);
            assert_eq!(PageOp::decode(&mut reader).as_ref(), Some(op));
            assert!(reader.is_empty());
            for end in 0..bytes.len() {
                assert_eq!(PageOp::decode(&mut Reader::new(&bytes[..end])), None, "{op:?} cut at {end}");
            }
        }
        assert_eq!(PageOp::decode(&mut Reader::new(&[99, 0, 0])), None);
    }
}
