//! Reading the log from a checkpoint to its end.

use super::files::LogFiles;
use super::group::{GROUP_FRAME_LEN, GROUP_HEADER_LEN, claimed_len, read_group};
use super::log::Log;
use crate::base::aligned::{BLOCK, aligned, round_down, to_u64, to_usize};
use crate::base::error::Error;
use crate::base::ids::Lsn;

/// Bytes read at once.
const CHUNK: usize = 1 << 20;

/// A whole group, of its place and epoch.
pub(crate) struct Group<'a> {
    pub(crate) start: Lsn,
    pub(crate) end: Lsn,
    pub(crate) payload: &'a [u8],
}

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
}

impl<'a> LogScan<'a> {
    /// A scan that begins with the group at `from`.
    pub(crate) fn new(files: &'a LogFiles, nonce: u64, from: Lsn) -> Self {
        let window_start = Lsn(round_down(from.0));
        let limit = window_start.plus(files.capacity());
        LogScan { files, nonce, next: from, limit, window: Vec::new(), window_start, window_end: window_start }
    }

    /// Where the scan stands: after the last good group.
    pub(crate) fn position(&self) -> Lsn {
        self.next
    }

    /// The next group. `None` at the log's end.
    pub(crate) fn next(&mut self) -> Result<Option<Group<'_>>, Error> {
        let at = self.next;
        if !self.fill(GROUP_HEADER_LEN)? {
            return Ok(None);
        }
        let start = to_usize(at.since(self.window_start));
        let Some(len) =
            claimed_len(&self.window[start..], Log::group_payload_max(self.files.capacity()) + GROUP_FRAME_LEN)
        else {
            return Ok(None);
        };
        if !self.fill(len)? {
            return Ok(None);
        }
        let start = to_usize(at.since(self.window_start));
        let Some(payload) = read_group(&self.window[start..start + len], self.nonce, at) else { return Ok(None) };
        self.next = at.plus(to_u64(len));
        Ok(Some(Group { start: at, end: self.next, payload }))
    }

    /// Has at least `len` bytes from `next` on in the window; false: the ring does not hold so many.
    fn fill(&mut self, len: usize) -> Result<bool, Error> {
        let wanted = self.next.plus(to_u64(len));
        if wanted > self.limit {
            return Ok(false);
        }
        while self.window_end < wanted {
            let keep_from = Lsn(round_down(self.next.0));
            self.window.drain(..to_usize(keep_from.since(self.window_start)));
            self.window_start = keep_from;
            let chunk = CHUNK.min(to_usize(self.limit.since(self.window_end))).max(BLOCK);
            let mut buf = aligned(chunk);
            self.files.read(&mut buf, self.window_end)?;
            self.window.extend_from_slice(&buf);
            self.window_end = self.window_end.plus(to_u64(chunk));
        }
        Ok(true)
    }
}
