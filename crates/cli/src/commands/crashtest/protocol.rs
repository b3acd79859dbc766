//! The messages of the victim to the parent, over the victim's standard output.
//!
//! PRO-1  A frame is one `write` of at most 4096 bytes, which a pipe takes whole or not at all. So frames of several
//!        threads never mix, and a kill cannot cut one.
//! PRO-2  `Begin` is in the pipe before its operation starts, `Ack` only after the operation was acknowledged. Frames
//! in
//!        the pipe survive the victim. So the parent knows every acknowledged operation, and every other operation that
//!        may have happened.
//!
//! A frame is: its length without these two bytes (u16), its kind (u8), thread (u8), operation number (u64), and for
//! `Begin` a number of changes (u8), each: tree (u8), key length (u8), key, 0 or 1 for deleted or written (u8), and if
//! written the value's seed (u64) and length (u16); for `Fault` the rest is text. Numbers are little-endian.

use std::io::{self, Read, Write};

/// Longest frame: the most bytes that a pipe takes atomically (`PIPE_BUF` on Linux).
const FRAME_MAX: usize = 4096;

/// A tree or a table of the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum TreeId {
    /// A tree, whose keys change one at a time.
    Single,
    /// A table with indexes.
    Rows,
}

impl TreeId {
    /// All trees and tables of the test.
    pub(super) const ALL: [TreeId; 2] = [TreeId::Single, TreeId::Rows];

    /// The name in the database.
    pub(super) fn name(self) -> &'static str {
        match self {
            TreeId::Single => "single",
            TreeId::Rows => "rows",
        }
    }
}

/// A value by seed and length, from which [`Value::bytes`] makes its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    /// Seed of its bytes.
    pub(super) seed: u64,
    /// Number of bytes.
    pub(super) len: u16,
}

/// One key's new state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// The tree.
    pub(super) tree: TreeId,
    /// The key.
    pub(super) key: Vec<u8>,
    /// The new value, `None` if the key is deleted.
    pub(super) value: Option<Value>,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// An operation starts; if it happens, all these changes happen.
    Begin {
        /// The thread.
        thread: u8,
        /// Number of the operation, counted by thread.
        number: u64,
        /// The changes; empty if the operation must be refused, or only reads.
        changes: Vec<Change>,
    },
    /// The operation was acknowledged.
    Ack {
        /// The thread.
        thread: u8,
        /// The operation.
        number: u64,
    },
    /// The database gave a wrong answer.
    Fault {
        /// The thread.
        thread: u8,
        /// The operation.
        number: u64,
        /// Description of the fault.
        text: String,
    },
}

impl Frame {
    /// Writes the frame in one piece.
    pub(super) fn send(&self, mut pipe: impl Write) -> io::Result<()> {
        let bytes = self.encode();
        assert!(bytes.len() <= FRAME_MAX, "PRO-1: a longer frame could be cut or mixed");
        pipe.write_all(&bytes)
    }

    fn encode(&self) -> Vec<u8> {
        let (kind, thread, number) = match self {
            Frame::Begin { thread, number, .. } => (0_u8, *thread, *number),
            Frame::Ack { thread, number } => (1, *thread, *number),
            Frame::Fault { thread, number, .. } => (2, *thread, *number),
        };
        let mut bytes = vec![0, 0, kind, thread];
        bytes.extend(number.to_le_bytes());
        match self {
            Frame::Begin { changes, .. } => {
                bytes.push(changes.len() as u8);
                changes.iter().for_each(|change| encode_change(change, &mut bytes));
            }
            Frame::Ack { .. } => {}
            Frame::Fault { text, .. } => {
                let mut end = text.len().min(FRAME_MAX - bytes.len());
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                bytes.extend(&text.as_bytes()[..end]);
            }
        }
        let len = (bytes.len() - 2) as u16;
        bytes[..2].copy_from_slice(&len.to_le_bytes());
        bytes
    }

    /// Reads the next frame; `None` at the end of the pipe.
    ///
    /// # Errors
    /// The bytes are no frame, or the pipe cannot be read.
    pub(super) fn receive(mut pipe: impl Read) -> io::Result<Option<Frame>> {
        let mut len = [0; 2];
        match pipe.read_exact(&mut len) {
            Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let mut bytes = vec![0; usize::from(u16::from_le_bytes(len))];
        pipe.read_exact(&mut bytes)?;
        decode(&bytes).map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a frame of the victim"))
    }
}

fn encode_change(change: &Change, bytes: &mut Vec<u8>) {
    let tree = match change.tree {
        TreeId::Single => 0,
        TreeId::Rows => 1,
    };
    bytes.extend([tree, change.key.len() as u8]);
    bytes.extend(&change.key);
    bytes.push(u8::from(change.value.is_some()));
    if let Some(value) = change.value {
        bytes.extend(value.seed.to_le_bytes());
        bytes.extend(value.len.to_le_bytes());
    }
}

fn decode(mut bytes: &[u8]) -> Option<Frame> {
    let [kind, thread] = take(&mut bytes)?;
    let number = u64::from_le_bytes(take(&mut bytes)?);
    match kind {
        0 => {
            let [count] = take(&mut bytes)?;
            let changes = (0..count).map(|_| decode_change(&mut bytes)).collect::<Option<Vec<Change>>>()?;
            bytes.is_empty().then_some(Frame::Begin { thread, number, changes })
        }
        1 => bytes.is_empty().then_some(Frame::Ack { thread, number }),
        2 => Some(Frame::Fault { thread, number, text: String::from_utf8_lossy(bytes).into_owned() }),
        _ => None,
    }
}

fn decode_change(bytes: &mut &[u8]) -> Option<Change> {
    let [tree, key_len] = take(bytes)?;
    let tree = *TreeId::ALL.get(usize::from(tree))?;
    let (key, rest) = bytes.split_at_checked(usize::from(key_len))?;
    *bytes = rest;
    let [is_written] = take(bytes)?;
    let value = match is_written {
        0 => None,
        1 => Some(Value { seed: u64::from_le_bytes(take(bytes)?), len: u16::from_le_bytes(take(bytes)?) }),
        _ => return None,
    };
    Some(Change { tree, key: key.to_vec(), value })
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Vec<Frame> {
        let change = |tree, key: &[u8], value| Change { tree, key: key.to_vec(), value };
        vec![
            Frame::Begin { thread: 3, number: 1 << 40, changes: Vec::new() },
            Frame::Begin {
                thread: 255,
                number: 7,
                changes: vec![
                    change(TreeId::Rows, b"row", Some(Value { seed: u64::MAX, len: 2048 })),
                    change(TreeId::Single, b"", Some(Value { seed: 0, len: 0 })),
                    change(TreeId::Single, &[0xFF; 255], None),
                ],
            },
            Frame::Ack { thread: 0, number: 9 },
            Frame::Fault { thread: 1, number: 2, text: "key 'x' – gone".to_owned() },
        ]
    }

    #[test]
    fn frames_come_back_as_they_were_sent() {
        let mut pipe = Vec::new();
        frames().iter().for_each(|frame| frame.send(&mut pipe).unwrap());
        let mut pipe = pipe.as_slice();
        for frame in frames() {
            assert_eq!(Frame::receive(&mut pipe).unwrap(), Some(frame));
        }
        assert_eq!(Frame::receive(&mut pipe).unwrap(), None);
    }

    #[test]
    fn every_cut_or_padded_frame_is_refused() {
        for frame in frames() {
            let bytes = &frame.encode()[2..];
            for len in 0..bytes.len() {
                if !matches!(frame, Frame::Fault { .. }) {
                    assert_eq!(decode(&bytes[..len]), None);
                }
            }
            let padded = [bytes, &[0]].concat();
            assert!(matches!(frame, Frame::Fault { .. }) || decode(&padded).is_none());
        }
        assert_eq!(decode(&[9; 10]), None);
    }

    #[test]
    fn long_text_is_cut_to_what_a_pipe_takes_whole() {
        let frame = Frame::Fault { thread: 1, number: 2, text: "ü".repeat(5_000) };
        let mut pipe = Vec::new();
        frame.send(&mut pipe).unwrap();
        assert!(pipe.len() <= FRAME_MAX);
        assert!(
            matches!(Frame::receive(pipe.as_slice()).unwrap(), Some(Frame::Fault { text, .. }) if text.len() > 4_000)
        );
    }
}
