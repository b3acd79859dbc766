//! Reading the log from a checkpoint to its end.

use super::files::LogFiles;
use super::group::BUFFER_MAX;
use super::group::{GROUP_HEADER_LEN, Group, GroupKind, Place, claimed_len, epoch_nonce, read_group};
use crate::base::aligned::{AlignedBuf, BLOCK, BLOCK_U64, aligned, round_down, round_up, to_u64, to_usize};
use crate::base::error::Error;
use crate::base::ids::Lsn;

/// Bytes read at once: of a long log. A scan begins with fewer, since most logs that are opened were closed.
const CHUNK: usize = 1 << 20;
const FIRST_CHUNK: usize = 64 << 10;

/// How far behind the log's end to look for a group that proves that the log went on.
///
/// Such a group got its place after the flush of the group at the end, and records that. That flush held at most one
/// buffer, and meanwhile the other buffer could fill.
pub(crate) const PROOF_WINDOW: u64 = 3 * BUFFER_MAX + (1 << 20);

/// Zero bytes that the search skips at once.
const ZEROES: usize = 32;

/// Bytes of the longest possible group (REDO-5).
pub(crate) const LONGEST: usize = 1 << 20;

/// Walks the groups of the log. The log ends at the first group that is not whole, or not of this place and epoch.
pub(crate) struct LogScan<'a> {
    files: &'a LogFiles,
    nonce: u64,
    next: Lsn,
    limit: Lsn,
    /// Log bytes from `window_start` on.
    window: Vec<u8>,
    window_start: Lsn,
    window_end: Lsn,
    buf: AlignedBuf,
}

impl<'a> LogScan<'a> {
    /// A scan that begins with the group at `from`, in the epoch of `nonce`.
    pub(crate) fn new(files: &'a LogFiles, nonce: u64, from: Lsn) -> Self {
        let window_start = Lsn(round_down(from.0));
        let limit = Lsn(round_down(files.wall(from).0) + BLOCK_U64);
        LogScan {
            files,
            nonce,
            next: from,
            limit,
            window: Vec::new(),
            window_start,
            window_end: window_start,
            buf: aligned(0),
        }
    }

    /// The scan's position: behind the last good group.
    pub(crate) fn position(&self) -> Lsn {
        self.next
    }

    /// The nonce of the groups from [`position`](Self::position) on.
    pub(crate) fn nonce(&self) -> u64 {
        self.nonce
    }

    /// The next group. `None` at the log's end.
    pub(crate) fn next(&mut self) -> Result<Option<Group<'_>>, Error> {
        let at = self.next;
        if !self.fill(GROUP_HEADER_LEN)? {
            return Ok(None);
        }
        let start = to_usize(at.since(self.window_start));
        let Some(len) = claimed_len(&self.window[start..], LONGEST) else { return Ok(None) };
        if !self.fill(len)? {
            return Ok(None);
        }
        let start = to_usize(at.since(self.window_start));
        let Some(group) = read_group(&self.window[start..start + len], Place { nonce: self.nonce, at }) else {
            return Ok(None);
        };
        self.next = group.end;
        if group.kind == GroupKind::Epoch
            && let Some(nonce) = epoch_nonce(group.payload)
        {
            self.nonce = nonce;
        }
        Ok(Some(group))
    }

    /// At the end: the reason why it is the end.
    pub(crate) fn why_ended(&mut self) -> Result<String, Error> {
        if !self.fill(GROUP_HEADER_LEN)? {
            return Ok("the ring ends here".to_owned());
        }
        let start = to_usize(self.next.since(self.window_start));
        if self.window[start..start + GROUP_HEADER_LEN].iter().all(|byte| *byte == 0) {
            return Ok("zeroes: nothing was written behind".to_owned());
        }
        Ok(match claimed_len(&self.window[start..], LONGEST) {
            None => "no group: its length is not a possible one".to_owned(),
            Some(len) => format!("no group: {len} bytes that are not whole, or of another lap or epoch"),
        })
    }

    /// At the end: looks behind it for a whole group that got its place when the log was durable beyond the end.
    pub(crate) fn proof_of_more(&mut self) -> Result<Option<Lsn>, Error> {
        let end = self.next;
        let found = self.proof_behind(end);
        self.next = end;
        self.window.clear();
        (self.window_start, self.window_end) = (Lsn(round_down(end.0)), Lsn(round_down(end.0)));
        found
    }

    /// Moves through the bytes behind `end`, a part at a time: memory that was used already is fast.
    fn proof_behind(&mut self, end: Lsn) -> Result<Option<Lsn>, Error> {
        let all = end.plus(PROOF_WINDOW.min(self.limit.since(end)));
        self.next = end.plus(1).min(all);
        while self.next < all {
            let at = self.next;
            let part = to_usize(all.since(at)).min(CHUNK);
            // The last group that begins in this part may reach into the next ones.
            let len = to_usize(all.since(at)).min(part + LONGEST);
            if !self.fill(len)? {
                return Ok(None);
            }
            let from = to_usize(at.since(self.window_start));
            let bytes = &self.window[from..from + len];
            let mut next = 0;
            while next < part {
                let offset = next;
                let rest = &bytes[offset..];
                // Most of a ring's first lap is zeroes, and no group's length is zero.
                if rest.first_chunk() == Some(&[0; ZEROES]) {
                    next += ZEROES - size_of::<u32>() + 1;
                    continue;
                }
                next += 1;
                let Some(group) = claimed_len(rest, LONGEST.min(rest.len())).map(|len| &rest[..len]) else { continue };
                let place = Place { nonce: self.nonce, at: at.plus(to_u64(offset)) };
                // The trailer first: that saves the checksum of almost all bytes that are no group.
                if group[..4] == group[group.len() - 4..]
                    && let Some(group) = read_group(group, place)
                    && group.durable > end
                {
                    return Ok(Some(group.start));
                }
            }
            self.next = at.plus(to_u64(part));
        }
        Ok(None)
    }

    /// Makes sure that the window has `len` bytes from `next` on. False if the ring does not hold so many.
    fn fill(&mut self, len: usize) -> Result<bool, Error> {
        let wanted = self.next.plus(to_u64(len));
        if wanted > self.limit {
            return Ok(false);
        }
        while self.window_end < wanted {
            let keep_from = Lsn(round_down(self.next.0));
            self.window.drain(..to_usize(keep_from.since(self.window_start)));
            self.window_start = keep_from;
            let chunk = (2 * self.buf.len()).clamp(FIRST_CHUNK, CHUNK);
            let chunk = chunk.min(to_usize(round_up(self.limit.since(self.window_end)))).max(BLOCK);
            if self.buf.len() < chunk {
                self.buf = aligned(chunk);
            }
            self.files.read(&mut self.buf[..chunk], self.window_end)?;
            self.window.extend_from_slice(&self.buf[..chunk]);
            self.window_end = self.window_end.plus(to_u64(chunk));
        }
        Ok(true)
    }
}

const _: () = assert!(BUFFER_MAX / 4 == 1 << 20);
