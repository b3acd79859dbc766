//! Memory for frames, in chunks of 1,024, each with its pages in one mapping.
//!
//! A chunk is made when its first frame is wanted, and stays until the pool is dropped. So no thread has to ask whether
//! a frame still exists. Pages take memory when they are first touched, so a large pool opens at once. The first thread
//! to touch a huge page waits until the kernel has zeroed all of it, and so do threads that come meanwhile. Therefore
//! the first pages are touched as the pool is made. Others are touched ahead of the threads that take frames, in the
//! order in which frames are free at first (`Pool::touch_ahead`). Only memory touched like that gets huge pages. The
//! first use of other memory waits for a small page.

#![allow(unsafe_code, reason = "pages are parts of one mapping, so that the kernel can back them with huge pages")]

use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::frame::Frame;
use super::page_buf::PageBuf;
use crate::base::error::Error;
use crate::base::ids::FrameId;

/// Number of frames of a chunk.
const CHUNK: usize = 1024;

/// Maximum number of chunks, for 16 Mi frames.
const CHUNKS_MAX: usize = 16 << 10;

/// Maximum number of frames of a pool.
pub(crate) const FRAMES_MAX: u64 = 16 << 20;

/// Bytes of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// Bytes that one step touches at most.
const TOUCHED_A_STEP: usize = HUGE_PAGE;

/// Bytes that are touched while the pool is made.
const TOUCHED_AT_ONCE: usize = HUGE_PAGE;

/// Bytes that are touched ahead of the frames taken so far: as many as those have, within these bounds. Once no more
/// than half of that is left, more are touched. So a small database, or a short command, does not have the kernel zero
/// memory that nobody uses.
const TOUCHED_AHEAD: std::ops::RangeInclusive<usize> = 4 << 20..=64 << 20;

/// Private, zeroed memory from the kernel.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is only reached through the `PageBuf`s cut from it, each of which is behind its frame's latch.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(len: usize) -> Result<Mapping, Error> {
        if cfg!(miri) {
            return Mapping::from_allocator(len);
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address that the kernel chooses overlaps nothing.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) };
        let start = start.map_err(|e| Error::io(&format!("map {len} bytes for the buffer pool"), e.into()))?;
        // For memory that is not touched ahead.
        // SAFETY: the range is the mapping just made; the advice changes no contents.
        let _ = unsafe { madvise(start, len, Advice::LinuxNoHugepage) };
        let start = NonNull::new(start.cast()).ok_or_else(|| Error::Bug("a mapping at address 0".into()))?;
        Ok(Mapping { start, len })
    }

    /// Has the kernel provide memory for `len` bytes of this mapping. Contents stay as they are.
    fn touch(&self, from: usize, len: usize) {
        debug_assert!(from + len <= self.len, "inside of the mapping");
        if cfg!(miri) {
            return;
        }
        // Both are only advice. Without huge pages there are more TLB misses. An old kernel, or one short of memory,
        // populates a page only at its first use. For less than a huge page the kernel would clear and hold a whole
        // one.
        let huge = (len >= HUGE_PAGE).then_some(Advice::LinuxHugepage);
        for advice in huge.into_iter().chain([Advice::LinuxPopulateWrite]) {
            // SAFETY: the range is inside of the mapping, which lives as long as `self`; neither changes contents.
            let _ = unsafe { madvise(self.start.as_ptr().add(from).cast(), len, advice) };
        }
    }

    /// Memory from the allocator, for Miri, which does not support `madvise`.
    fn from_allocator(len: usize) -> Result<Mapping, Error> {
        let memory = vec![0u8; len].into_boxed_slice();
        let start =
            NonNull::new(Box::into_raw(memory).cast()).ok_or_else(|| Error::Bug("a box at address 0".into()))?;
        Ok(Mapping { start, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if cfg!(miri) {
            let memory = std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len);
            // SAFETY: it came from a box of that length; the frames, which point into it, were dropped before it.
            drop(unsafe { Box::from_raw(memory) });
            return;
        }
        // SAFETY: the mapping is ours, and the frames, which point into it, were dropped before it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Frames whose pages are adjacent. Fields drop in order: the frames before their memory.
struct Chunk {
    frames: Box<[Frame]>,
    rec_lsns: Box<[AtomicU64]>,
    memory: Mapping,
}

impl Chunk {
    fn new(page_size: usize) -> Result<Chunk, Error> {
        let memory = Mapping::new(CHUNK * page_size)?;
        let page = |index: usize| {
            // SAFETY: `index` is below `CHUNK`, so the page is inside of the mapping.
            let start = unsafe { memory.start.add(index * page_size) };
            // SAFETY: a part of the mapping, disjoint from every other page. The mapping is zeroed, and outlives the
            // frames.
            unsafe { PageBuf::new(start, page_size) }
        };
        let frames = (0..CHUNK).map(|index| Frame::new(page(index))).collect();
        let rec_lsns = (0..CHUNK).map(|_| AtomicU64::new(0)).collect();
        Ok(Chunk { frames, rec_lsns, memory })
    }
}

/// The frames of a pool.
pub(super) struct Frames {
    chunks: Box<[OnceLock<Chunk>]>,
    page_size: usize,
    /// Index of the first frame whose memory was not touched. Written by `touch_step` and `forget_touched`, read by
    /// `reach`.
    touched: AtomicUsize,
    /// Index after the highest frame that was taken near the end of the touched memory.
    reached: AtomicUsize,
    /// Whether the keeper was asked to have more memory touched.
    asked: AtomicBool,
}

impl Frames {
    /// Makes `count` frames, at most [`FRAMES_MAX`].
    pub(super) fn new(count: usize, page_size: usize) -> Result<Frames, Error> {
        let frames = Frames {
            chunks: (0..CHUNKS_MAX).map(|_| OnceLock::new()).collect(),
            page_size,
            touched: AtomicUsize::new(0),
            reached: AtomicUsize::new(0),
            asked: AtomicBool::new(false),
        };
        frames.make(count)?;
        while frames.touch_step(count.min(TOUCHED_AT_ONCE / page_size)) {}
        Ok(frames)
    }

    /// Touches the next untouched memory of existing frames before `upto`. False: there is none left. One caller at a
    /// time.
    fn touch_step(&self, upto: usize) -> bool {
        let from = self.touched.load(Ordering::Relaxed);
        let upto = upto.min(from + TOUCHED_A_STEP / self.page_size).min((from / CHUNK + 1) * CHUNK);
        if from >= upto {
            return false;
        }
        if let Some(chunk) = self.chunks[from / CHUNK].get() {
            chunk.memory.touch(from % CHUNK * self.page_size, (upto - from) * self.page_size);
        }
        self.touched.store(upto, Ordering::Relaxed);
        true
    }

    /// Notes that frame `frame` of `count` is taken. True: more memory is to be touched, and the keeper was not asked
    /// yet.
    pub(super) fn reach(&self, frame: FrameId, count: usize) -> bool {
        // Relaxed, all of it: a guess. A wrong one costs only the time that touching ahead would have saved.
        let touched = self.touched.load(Ordering::Relaxed);
        if touched >= count || frame.index() + self.ahead() / 2 < touched {
            return false;
        }
        self.reached.fetch_max(frame.index() + 1, Ordering::Relaxed);
        !self.asked.swap(true, Ordering::Relaxed)
    }

    /// Whether the keeper was asked to have memory touched.
    pub(super) fn is_to_touch(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Touches one step of memory for frames before `count`. False: there is enough. One caller at a time.
    pub(super) fn touch_ahead(&self, count: usize) -> bool {
        self.asked.store(false, Ordering::Relaxed);
        self.touch_step(count.min(self.reached.load(Ordering::Relaxed) + self.ahead()))
    }

    /// Notes that memory of frames from `count` on, at least some, was given back to the kernel.
    pub(super) fn forget_touched(&self, count: usize) {
        self.touched.fetch_min(count, Ordering::Relaxed);
    }

    /// Number of frames whose memory was touched.
    #[cfg(test)]
    pub(super) fn touched(&self) -> usize {
        self.touched.load(Ordering::Relaxed)
    }

    /// Number of frames whose memory is touched ahead of the frames taken.
    fn ahead(&self) -> usize {
        let taken = self.reached.load(Ordering::Relaxed) * self.page_size;
        taken.clamp(*TOUCHED_AHEAD.start(), *TOUCHED_AHEAD.end()) / self.page_size
    }

    /// Makes the first `count` frames exist. One caller at a time.
    pub(super) fn make(&self, count: usize) -> Result<(), Error> {
        for chunk in &self.chunks[..count.div_ceil(CHUNK)] {
            if chunk.get().is_none() {
                let _ = chunk.set(Chunk::new(self.page_size)?);
            }
        }
        Ok(())
    }

    /// Number of frames that exist, in use or not.
    pub(super) fn made(&self) -> usize {
        self.chunks.iter().take_while(|chunk| chunk.get().is_some()).count() * CHUNK
    }

    fn chunk(&self, frame: FrameId) -> &Chunk {
        self.chunks[frame.index() / CHUNK].get().expect("POOL-1: a frame id was given out, so its chunk is there")
    }

    pub(super) fn get(&self, frame: FrameId) -> &Frame {
        &self.chunk(frame).frames[frame.index() % CHUNK]
    }

    /// The start LSN of the oldest change to the frame's page that no image has; 0: clean.
    pub(super) fn rec_lsn(&self, frame: FrameId) -> &AtomicU64 {
        &self.chunk(frame).rec_lsns[frame.index() % CHUNK]
    }

    /// The dirty frames among the first `count`, each with its `rec_lsn`: one pass over dense memory.
    pub(super) fn dirty(&self, count: usize) -> impl Iterator<Item = (u64, FrameId)> {
        let chunks = self.chunks[..count.div_ceil(CHUNK)].iter().filter_map(OnceLock::get);
        let lsns = chunks.flat_map(|chunk| chunk.rec_lsns.iter()).take(count);
        let numbered = lsns.zip((0..).map(FrameId));
        numbered.map(|(lsn, frame)| (lsn.load(Ordering::Relaxed), frame)).filter(|(lsn, _)| *lsn != 0)
    }

    /// Gives a frame's memory back to the kernel, if it is whole kernel pages and no thread has it latched. The next
    /// touch finds zeroes. The frame is in the caller's hand.
    pub(super) fn release_memory(&self, frame: FrameId) {
        if !self.page_size.is_multiple_of(rustix::param::page_size()) {
            return;
        }
        let Some(mut page) = self.get(frame).page.try_write() else { return };
        if cfg!(miri) {
            return page.fill(0);
        }
        let start = page.as_mut_ptr();
        // SAFETY: the range is this page's own memory, in whole kernel pages, latched exclusively. Private anonymous
        // memory reads as zeroes afterwards, which is a valid content. On failure the memory stays as it is.
        let _ = unsafe { madvise(start.cast(), self.page_size, Advice::LinuxDontNeed) };
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::little_endian::U64;

    use super::*;
    use crate::base::page::layout::{header_mut, page_lsn};
    use crate::pool::route::Route;

    /// Threads write frames at the same time, next to each other and across the end of a chunk.
    #[test]
    fn pages_lie_side_by_side_and_apart() {
        let frames = Frames::new(CHUNK + 2, 4096).expect("memory");
        let ids: Vec<_> = [0, 1, 2, 1023, 1024, 1025].map(FrameId).to_vec();
        std::thread::scope(|scope| {
            for id in &ids {
                let frames = &frames;
                scope.spawn(move || {
                    for value in 1..=3 {
                        frames.get(*id).page.write().fill(value);
                        let page = frames.get(*id).page.read();
                        assert_eq!((page[0], page[2047], page[4095]), (value, value, value));
                    }
                });
            }
        });
        frames.release_memory(FrameId(1));
        let seen: Vec<_> = ids.iter().map(|id| frames.get(*id).page.read()[4095]).collect();
        assert_eq!(seen, [3, 0, 3, 3, 3, 3]);
        assert_eq!(frames.made(), 2 * CHUNK);
    }

    /// Number of this thread's page faults.
    #[cfg(not(miri))]
    fn faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("readable");
        let (_, behind_name) = stat.rsplit_once(')').expect("a name in brackets");
        behind_name.split_whitespace().nth(7).expect("ten fields").parse().expect("a number")
    }

    /// Number of page faults while this thread writes into the frames `these`.
    #[cfg(not(miri))]
    fn faults_in(frames: &Frames, these: std::ops::Range<u32>) -> u64 {
        let before = faults();
        these.for_each(|frame| frames.get(FrameId(frame)).page.write()[0] = 1);
        faults() - before
    }

    #[test]
    #[cfg(not(miri))]
    fn memory_is_touched_with_the_pool_and_then_ahead_of_takers() {
        // 128 MiB; a few faults come from counting them.
        let (count, few) = (8 * CHUNK, 4);
        let frames = Frames::new(count, 16_384).expect("memory");
        assert!(faults_in(&frames, 0..128) < few, "2 MiB");
        assert!(!frames.is_to_touch(), "no frame is taken");
        assert!(frames.reach(FrameId(0), count) && frames.is_to_touch());
        assert!(!frames.reach(FrameId(1), count), "the keeper was asked");
        while frames.touch_ahead(count) {}
        assert!(!frames.is_to_touch());
        assert!(faults_in(&frames, 128..2 + 256) < few, "4 MiB ahead");
        assert!(!frames.reach(FrameId(129), count), "half of that is there");
        assert!(frames.reach(FrameId(130), count));
        while frames.touch_ahead(count) {}
        // Up to the most: 64 MiB.
        for taken in [260, 512, 1024, 2050] {
            assert!(frames.reach(FrameId(taken), count), "{taken}");
            while frames.touch_ahead(count) {}
            let ahead = (taken + 1).min(4096);
            assert!(faults_in(&frames, taken..taken + 1 + ahead) < few, "{taken}");
        }
        let untouched = faults_in(&frames, 2051 + 4096..8192);
        assert!(untouched >= 8, "{untouched} faults in 32 MiB that were not touched");
        assert!(frames.reach(FrameId(6000), count));
        while frames.touch_ahead(count) {}
        assert!(!frames.reach(FrameId(8191), count), "that is all");
        // The pool shrinks and grows again.
        (0..CHUNK).for_each(|frame| frames.release_memory(FrameId(u32::try_from(7 * CHUNK + frame).expect("small"))));
        frames.forget_touched(7 * CHUNK);
        assert!(frames.reach(FrameId(6000), count));
        while frames.touch_ahead(count) {}
        assert!(faults_in(&frames, 7 * 1024..8192) < few);
    }

    /// A thread reads the copy of a page while others drop it and make another.
    #[test]
    fn a_copy_lives_as_long_as_somebody_looks_at_it() {
        let frames = Frames::new(1, 4096).expect("memory");
        let frame = frames.get(FrameId(0));
        let rounds = if cfg!(miri) { 20 } else { 10_000 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..rounds {
                    let mut page = frame.page.write();
                    let _ = frame.clear_route();
                    header_mut(&mut page).page_lsn = U64::new(round);
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let guard = crossbeam_epoch::pin();
                        let seen = frame.route(&guard);
                        {
                            let page = frame.page.read();
                            if !frame.has_route() {
                                let _ = frame.set_route(Route::new(&page), &guard);
                            }
                            let now = frame.route(&guard).expect("no thread drops it under the latch");
                            assert_eq!(now.view().header().page_lsn.get(), page_lsn(&page).0);
                        }
                        assert!(seen.is_none_or(|route| route.len() >= 4096));
                    }
                });
            }
        });
    }
}
