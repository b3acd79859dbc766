//! The options of the classic policies, and checks of their combinations.

use std::time::Duration;

use crate::base::aligned::to_u64;
use crate::base::clock;
use crate::options::classic_log::mistakes_in_the_log;
use crate::options::{FRAMES_MIN, Options, bytes};
use crate::pace::classic_flushing::{AdaptiveFlushingMethod, CleanerLsnAgeFactor, Settings};
use crate::pool::buffer_pool::{Freeing, PoolOptions};
use crate::pool::dirty::DirtyTracking;
use crate::pool::legacy::EmptyFreeListAlgorithm;
use crate::pool::neighbors::FlushNeighbors;
use crate::pool::replacement::PageReplacement;

/// Most instances of a buffer pool.
const INSTANCES_MAX: usize = 64;

/// Range of `lru_scan_depth`: pages of an LRU list that one pass looks at.
const LRU_SCAN_DEPTH_MIN: usize = 100;
const LRU_PAGES_MAX: usize = 1 << 20;

/// Least `free_list_target`: a split needs two frames together.
const FREE_LIST_TARGET_MIN: usize = 2;

/// Most threads that clean pages.
const PAGE_CLEANERS_MAX: usize = 64;

/// Default number of threads that clean pages, if there are as many instances.
const PAGE_CLEANERS: usize = 4;

/// Range and default of `io_capacity`, the write rate of the device, in pages a second.
const IO_CAPACITY_MIN: usize = 100;
const IO_CAPACITY_MAX: usize = 10_000_000;
const IO_CAPACITY: usize = 200;

/// Default `io_capacity_max`: twice `io_capacity`, but at least this.
const IO_CAPACITY_MAX_LEAST: usize = 2_000;

/// Default `old_blocks_time`, that of `innodb_old_blocks_time`, and the longest allowed.
const OLD_BLOCKS_TIME: Duration = Duration::from_secs(1);
pub(crate) const OLD_BLOCKS_TIME_MAX: Duration = Duration::from_hours(1);

/// Default and maximum of `max_dirty_pages_pct`.
const MAX_DIRTY_PAGES_PCT: usize = 75;
const DIRTY_PCT_MAX: usize = 99;

impl Options {
    /// The way to find the dirty pages that a checkpoint waits for. Default: [`DirtyTracking::Scan`], or
    /// [`DirtyTracking::FlushList`] with a classic [`adaptive_flushing_method`](Self::adaptive_flushing_method), which
    /// needs the lists.
    pub fn dirty_tracking(mut self, tracking: DirtyTracking) -> Self {
        self.dirty_tracking = Some(tracking);
        self
    }

    /// The action of an operation that finds no free frame. Default: [`EmptyFreeListAlgorithm::Handoff`].
    pub fn empty_free_list_algorithm(mut self, algorithm: EmptyFreeListAlgorithm) -> Self {
        self.empty_free_list_algorithm = algorithm;
        self
    }

    /// The choice of the pages that are evicted first. Default: [`PageReplacement::S3Fifo`] with
    /// [`EmptyFreeListAlgorithm::Handoff`]; otherwise [`PageReplacement::MidpointLru`], at the tail of whose list the
    /// other algorithms look for frames.
    pub fn page_replacement(mut self, replacement: PageReplacement) -> Self {
        self.page_replacement = Some(replacement);
        self
    }

    /// With [`PageReplacement::MidpointLru`]: the time after its first use at which another use makes an old page
    /// young. 0: the first use after the read does so, and scans evict pages in use. Range: 0 to an hour. Default: 1 s,
    /// as in InnoDB since MySQL 5.6; 0 before.
    pub fn old_blocks_time(mut self, time: Duration) -> Self {
        self.given("old_blocks_time");
        self.old_blocks_time = Some(time);
        self
    }

    /// Parts of the buffer pool, each with its own list of pages and free frames; 1 with
    /// [`EmptyFreeListAlgorithm::Handoff`]. Each has at least 32 frames. Range: 1 to 64; default: 1, or the number of
    /// the [`profile`](Self::profile).
    pub fn buffer_pool_instances(mut self, instances: usize) -> Self {
        self.buffer_pool_instances = Some(instances);
        self
    }

    /// Pages at the tail of an instance's list that one pass looks at for frames, and writes if dirty. LRU managers use
    /// it with [`EmptyFreeListAlgorithm::Backoff`]; page cleaners of [`AdaptiveFlushingMethod::Adaptive`] with
    /// [`EmptyFreeListAlgorithm::Legacy`]. Range: 100 to 1,048,576; default: 1,024.
    pub fn lru_scan_depth(mut self, pages: usize) -> Self {
        self.lru_scan_depth = pages;
        self
    }

    /// Frames that LRU managers or page cleaners keep free in an instance, but at most a fourth of its frames. Used
    /// with the same policies as [`lru_scan_depth`](Self::lru_scan_depth); the hand-off itself finds out how many are
    /// needed. Range: 2 to 1,048,576; default: `lru_scan_depth`, as in InnoDB.
    pub fn free_list_target(mut self, frames: usize) -> Self {
        self.free_list_target = Some(frames);
        self
    }

    /// The policy that decides how many dirty pages are written, and when. Default:
    /// [`AdaptiveFlushingMethod::Envelope`].
    pub fn adaptive_flushing_method(mut self, method: AdaptiveFlushingMethod) -> Self {
        self.adaptive_flushing_method = method;
        self
    }

    /// Threads that clean pages, each one instance of the buffer pool at a time. Only with
    /// [`AdaptiveFlushingMethod::Adaptive`], and no more than there are instances. Range: 1 to 64; default: 4, or the
    /// number of instances if that is less.
    pub fn page_cleaners(mut self, threads: usize) -> Self {
        self.given("page_cleaners");
        self.page_cleaners = Some(threads);
        self
    }

    /// Pages a second that background writes may give to the device, as stated by its operator. Only with a classic
    /// [`adaptive_flushing_method`](Self::adaptive_flushing_method); the envelope measures the device. Range: 100
    /// to 10,000,000; default: 200, as in InnoDB up to MySQL 8.0.
    pub fn io_capacity(mut self, pages_per_s: usize) -> Self {
        self.given("io_capacity");
        self.io_capacity = Some(pages_per_s);
        self
    }

    /// Pages a second that writes may give to the device when the log runs full. Only with
    /// [`AdaptiveFlushingMethod::Adaptive`]. Range: `io_capacity` to 10,000,000; default: twice `io_capacity`, but at
    /// least 2,000.
    pub fn io_capacity_max(mut self, pages_per_s: usize) -> Self {
        self.io_capacity_max = Some(pages_per_s);
        self
    }

    /// Per cent of the pool's pages that may be dirty before pages are written for that reason alone. Only with a
    /// classic [`adaptive_flushing_method`](Self::adaptive_flushing_method). Range: 0 to 99; default: 75.
    pub fn max_dirty_pages_pct(mut self, per_cent: usize) -> Self {
        self.given("max_dirty_pages_pct");
        self.max_dirty_pages_pct = Some(per_cent);
        self
    }

    /// Dirty per cent of the pool's pages from which on [`AdaptiveFlushingMethod::Adaptive`] writes some of them: the
    /// more, the nearer it comes to [`max_dirty_pages_pct`](Self::max_dirty_pages_pct). 0: none before that. Range: 0
    /// to `max_dirty_pages_pct`; default: 0, as in InnoDB before MySQL 8.0; 10 since.
    pub fn max_dirty_pages_pct_lwm(mut self, per_cent: usize) -> Self {
        self.given("max_dirty_pages_pct_lwm");
        self.max_dirty_pages_pct_lwm = Some(per_cent);
        self
    }

    /// How steeply the flush rate rises with the checkpoint age, with [`AdaptiveFlushingMethod::Adaptive`]. Default:
    /// [`CleanerLsnAgeFactor::Legacy`], MySQL's; Percona Server's is [`CleanerLsnAgeFactor::HighCheckpoint`].
    pub fn cleaner_lsn_age_factor(mut self, factor: CleanerLsnAgeFactor) -> Self {
        self.given("cleaner_lsn_age_factor");
        self.cleaner_lsn_age_factor = Some(factor);
        self
    }

    /// The dirty pages that are written with a page that is due. Only with a classic
    /// [`adaptive_flushing_method`](Self::adaptive_flushing_method), and with
    /// [`PageStoreKind::InPlace`](crate::PageStoreKind::InPlace), where a page's number tells its place. Default:
    /// [`FlushNeighbors::None`], as in InnoDB since MySQL 8.0; [`FlushNeighbors::Seq`] before, and
    /// [`FlushNeighbors::Area`] in 5.5.
    pub fn flush_neighbors(mut self, neighbors: FlushNeighbors) -> Self {
        self.given("flush_neighbors");
        self.flush_neighbors = neighbors;
        self
    }

    /// Number of instances of the buffer pool.
    pub(crate) fn instances(&self) -> usize {
        let of_profile = match self.empty_free_list_algorithm {
            EmptyFreeListAlgorithm::Handoff => 1,
            _ => self.profile.instances(self.buffer_pool_size.as_u64()),
        };
        self.buffer_pool_instances.unwrap_or(of_profile)
    }

    /// The page replacement policy in force.
    pub(crate) fn replacement(&self) -> PageReplacement {
        let follows = match self.empty_free_list_algorithm {
            EmptyFreeListAlgorithm::Handoff => PageReplacement::S3Fifo,
            EmptyFreeListAlgorithm::Legacy | EmptyFreeListAlgorithm::Backoff => PageReplacement::MidpointLru,
        };
        self.page_replacement.unwrap_or(follows)
    }

    /// The dirty page tracking in force.
    pub(crate) fn tracking(&self) -> DirtyTracking {
        let follows = match self.adaptive_flushing_method {
            AdaptiveFlushingMethod::Envelope => DirtyTracking::Scan,
            _ => DirtyTracking::FlushList,
        };
        self.dirty_tracking.unwrap_or(follows)
    }

    /// The options of a buffer pool of `frames`.
    pub(crate) fn pool(&self, frames: u32, frames_max: usize) -> PoolOptions {
        PoolOptions {
            frames,
            frames_max,
            tracking: self.tracking(),
            replacement: self.replacement(),
            instances: self.instances(),
            freeing: self.freeing(),
        }
    }

    /// The settings by which frames come free.
    pub(crate) fn freeing(&self) -> Freeing {
        let is_refilled = self.empty_free_list_algorithm == EmptyFreeListAlgorithm::Backoff || self.cleaners_refill();
        Freeing {
            empty: self.empty_free_list_algorithm,
            lru_scan_depth: self.lru_scan_depth,
            free_list_target: is_refilled.then(|| self.free_list_target.unwrap_or(self.lru_scan_depth)),
            old_blocks_ns: clock::nanos(self.old_blocks_time.unwrap_or(OLD_BLOCKS_TIME)),
        }
    }

    /// Whether page cleaners refill the free lists.
    fn cleaners_refill(&self) -> bool {
        self.empty_free_list_algorithm == EmptyFreeListAlgorithm::Legacy
            && self.adaptive_flushing_method == AdaptiveFlushingMethod::Adaptive
    }

    /// Number of page cleaners, which share the instances.
    pub(crate) fn cleaners(&self) -> usize {
        self.page_cleaners.unwrap_or(PAGE_CLEANERS).min(self.instances())
    }

    /// The settings of a classic flushing method.
    pub(crate) fn settings(&self) -> Settings {
        let io_capacity = self.io_capacity.unwrap_or(IO_CAPACITY);
        Settings {
            io_capacity,
            io_capacity_max: self
                .io_capacity_max
                .unwrap_or((2 * io_capacity).clamp(IO_CAPACITY_MAX_LEAST, IO_CAPACITY_MAX)),
            max_dirty_pages_pct: self.max_dirty_pages_pct.unwrap_or(MAX_DIRTY_PAGES_PCT),
            max_dirty_pages_pct_lwm: self.max_dirty_pages_pct_lwm.unwrap_or(0),
            cleaner_lsn_age_factor: self.cleaner_lsn_age_factor.unwrap_or_default(),
        }
    }
}

/// Mistakes in the options of the classic policies: values out of range, and combinations that conflict.
pub(crate) fn mistakes_in_classic_policies(options: &Options, page_size: u64) -> Vec<String> {
    let mut mistakes = mistakes_in_the_pool(options, page_size);
    mistakes.extend(mistakes_in_flushing(options));
    mistakes.extend(mistakes_in_the_log(options, options.tracking()));
    mistakes
}

fn mistakes_in_the_pool(options: &Options, page_size: u64) -> Vec<String> {
    let mut mistakes = Vec::new();
    let instances = options.instances();
    let is_handoff = options.empty_free_list_algorithm == EmptyFreeListAlgorithm::Handoff;
    let is_envelope = options.adaptive_flushing_method == AdaptiveFlushingMethod::Envelope;
    if !is_handoff && options.replacement() == PageReplacement::S3Fifo {
        mistakes.push("page_replacement is s3_fifo, and empty_free_list_algorithm is not handoff: the other algorithms look for frames at the tail of an LRU list: leave one of the two out".to_owned());
    }
    if let Some(time) = options.old_blocks_time {
        if options.replacement() == PageReplacement::S3Fifo {
            mistakes.push(format!("old_blocks_time is {time:?}, and page_replacement is s3_fifo, which has no old part: leave it out, or use midpoint_lru"));
        } else if time > OLD_BLOCKS_TIME_MAX {
            mistakes.push(format!("old_blocks_time is {time:?}: use 0 to 3600 s"));
        }
    }
    if !(1..=INSTANCES_MAX).contains(&instances) {
        mistakes.push(format!("buffer_pool_instances is {instances}: use 1 to {INSTANCES_MAX}"));
    } else if is_handoff && instances > 1 {
        mistakes.push(format!("buffer_pool_instances is {instances}, and empty_free_list_algorithm is handoff, which has one line for free frames: use 1, or legacy or backoff"));
    } else if instances > 1 && options.buffer_pool_size.as_u64() / page_size.max(1) < FRAMES_MIN * to_u64(instances) {
        let size = bytes(FRAMES_MIN * to_u64(instances) * page_size);
        mistakes.push(format!(
            "buffer_pool_size is {}, and buffer_pool_instances is {instances}: use {size} or more, or fewer instances",
            bytes(options.buffer_pool_size.as_u64())
        ));
    }
    if !(LRU_SCAN_DEPTH_MIN..=LRU_PAGES_MAX).contains(&options.lru_scan_depth) {
        let depth = options.lru_scan_depth;
        mistakes.push(format!("lru_scan_depth is {depth}: use {LRU_SCAN_DEPTH_MIN} to {LRU_PAGES_MAX}"));
    }
    if let Some(target) = options.free_list_target {
        if !(FREE_LIST_TARGET_MIN..=LRU_PAGES_MAX).contains(&target) {
            mistakes.push(format!("free_list_target is {target}: use {FREE_LIST_TARGET_MIN} to {LRU_PAGES_MAX}"));
        } else if is_handoff {
            mistakes.push(format!("free_list_target is {target}, and empty_free_list_algorithm is handoff, which finds out how many are needed: leave it out"));
        } else if options.empty_free_list_algorithm == EmptyFreeListAlgorithm::Legacy && is_envelope {
            mistakes.push(format!("free_list_target is {target}, and empty_free_list_algorithm is legacy: only page cleaners keep frames free with it: use adaptive_flushing_method adaptive, or leave it out"));
        }
    }
    mistakes
}

fn mistakes_in_flushing(options: &Options) -> Vec<String> {
    let mut mistakes = Vec::new();
    let method = options.adaptive_flushing_method;
    let Settings { io_capacity, max_dirty_pages_pct, .. } = options.settings();
    // Options of adaptive alone are accepted with the other classic methods, too: the method may change to adaptive.
    let given = [
        ("page_cleaners", options.page_cleaners, 1..=PAGE_CLEANERS_MAX),
        ("io_capacity", options.io_capacity, IO_CAPACITY_MIN..=IO_CAPACITY_MAX),
        ("io_capacity_max", options.io_capacity_max, io_capacity..=IO_CAPACITY_MAX),
        ("max_dirty_pages_pct", options.max_dirty_pages_pct, 0..=DIRTY_PCT_MAX),
        ("max_dirty_pages_pct_lwm", options.max_dirty_pages_pct_lwm, 0..=max_dirty_pages_pct),
    ];
    for (name, value, range) in given.into_iter().filter_map(|(name, value, range)| Some((name, value?, range))) {
        if method == AdaptiveFlushingMethod::Envelope {
            mistakes.push(format!("{name} is {value}, and adaptive_flushing_method is envelope, which measures what the device can do: leave it out"));
        } else if !range.contains(&value) {
            mistakes.push(format!("{name} is {value}: use {} to {}", range.start(), range.end()));
        }
    }
    if method == AdaptiveFlushingMethod::Envelope && options.cleaner_lsn_age_factor.is_some() {
        mistakes.push("cleaner_lsn_age_factor is given, and adaptive_flushing_method is envelope, which goes by deadlines: leave it out".to_owned());
    }
    if let Some(cleaners) = options.page_cleaners.filter(|cleaners| *cleaners > options.instances()) {
        let instances = options.instances();
        mistakes.push(format!("page_cleaners is {cleaners}, and buffer_pool_instances is {instances}: each cleaner cleans one instance at a time: use {instances} or fewer"));
    }
    if method == AdaptiveFlushingMethod::Envelope && options.flush_neighbors != FlushNeighbors::None {
        mistakes.push("flush_neighbors is not none, and adaptive_flushing_method is envelope, which writes the oldest pages only: leave one of the two out".to_owned());
    }
    if method != AdaptiveFlushingMethod::Envelope && options.tracking() == DirtyTracking::Scan {
        mistakes.push("dirty_tracking is scan, and adaptive_flushing_method is not envelope: the other methods need flush lists: leave one of the two out".to_owned());
    }
    mistakes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PageStoreKind;

    #[test]
    fn what_does_not_go_together_is_refused_with_the_reason() {
        let new = Options::new;
        let adaptive = || new().adaptive_flushing_method(AdaptiveFlushingMethod::Adaptive);
        let legacy = |options: Options| options.empty_free_list_algorithm(EmptyFreeListAlgorithm::Legacy);
        let refused = [
            (new().io_capacity(500), "io_capacity is 500, and adaptive_flushing_method is envelope"),
            (new().max_dirty_pages_pct(0), "max_dirty_pages_pct is 0, and adaptive_flushing_method is envelope"),
            (adaptive().io_capacity(99), "io_capacity is 99: use 100 to 10000000"),
            (adaptive().io_capacity(4_000).io_capacity_max(3_999), "io_capacity_max is 3999: use 4000 to 10000000"),
            (adaptive().max_dirty_pages_pct(100), "max_dirty_pages_pct is 100: use 0 to 99"),
            (adaptive().max_dirty_pages_pct_lwm(76), "max_dirty_pages_pct_lwm is 76: use 0 to 75"),
            (
                new().max_dirty_pages_pct_lwm(1),
                "max_dirty_pages_pct_lwm is 1, and adaptive_flushing_method is envelope",
            ),
            (
                new().cleaner_lsn_age_factor(CleanerLsnAgeFactor::Legacy),
                "cleaner_lsn_age_factor is given, and adaptive_flushing_method is envelope",
            ),
            (new().old_blocks_time(Duration::ZERO), "old_blocks_time is 0ns, and page_replacement is s3_fifo"),
            (
                new().page_replacement(PageReplacement::MidpointLru).old_blocks_time(Duration::from_secs(3_601)),
                "old_blocks_time is 3601s: use 0 to 3600 s",
            ),
            (adaptive().page_cleaners(2), "page_cleaners is 2, and buffer_pool_instances is 1"),
            (adaptive().dirty_tracking(DirtyTracking::Scan), "dirty_tracking is scan"),
            (new().page_cleaners(1), "page_cleaners is 1, and adaptive_flushing_method is envelope"),
            (new().io_capacity_max(4_000), "io_capacity_max is 4000, and adaptive_flushing_method is envelope"),
            (
                new().flush_neighbors(FlushNeighbors::Seq),
                "flush_neighbors is not none, and adaptive_flushing_method is envelope",
            ),
            (legacy(new()).free_list_target(64), "only page cleaners keep frames free with it"),
            (adaptive().free_list_target(64), "empty_free_list_algorithm is handoff, which finds out"),
        ];
        for (options, reason) in refused {
            let error = options.validate(16384, PageStoreKind::InPlace).expect_err(reason).to_string();
            assert!(error.contains(reason), "{reason} in: {error}");
        }
        for options in [
            legacy(adaptive()).buffer_pool_instances(4).page_cleaners(4).free_list_target(64),
            adaptive().io_capacity(4_000).max_dirty_pages_pct(99).max_dirty_pages_pct_lwm(99),
            adaptive().cleaner_lsn_age_factor(CleanerLsnAgeFactor::HighCheckpoint),
            new().page_replacement(PageReplacement::MidpointLru).old_blocks_time(OLD_BLOCKS_TIME_MAX),
            new().adaptive_flushing_method(AdaptiveFlushingMethod::KeepAverage).io_capacity(100),
            adaptive().flush_neighbors(FlushNeighbors::Area),
        ] {
            options.validate(16384, PageStoreKind::InPlace).expect("these go together");
        }
    }
}
