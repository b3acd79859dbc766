//! Checks of options, each by itself and in combination: one error reports all mistakes.

use std::time::Duration;

use crate::base::aligned::to_u64;
use crate::base::error::Error;
use crate::base::page::layout::is_page_size;
use crate::options::durability::Durability;
use crate::options::page_store::PageStoreKind;
use crate::options::policies::IO_CAPACITY_MAX;
use crate::options::table::OptionInfo;
use crate::options::value::{Value, size_text};
use crate::options::{FRAMES_MIN, Options, REDO_PAGES_MIN, bytes, invalid};
use crate::pace::classic_flushing::{AdaptiveFlushingMethod, Settings};
use crate::pool::memory::FRAMES_MAX;
use crate::pool::neighbors::FlushNeighbors;
use crate::pool::options::{DirtyTracking, EmptyFreeListAlgorithm, PageReplacement};
use crate::redo::files::CAPACITY_MAX;
use crate::redo::recent_closed::LogRecentClosed;
use crate::store::doublewrite::Doublewrite;

impl Options {
    /// Checks all options, for a database with pages of `page_size` and the page store `kind`. One error reports all
    /// mistakes.
    pub(crate) fn validate(&self, page_size: u64, kind: PageStoreKind) -> Result<(), Error> {
        invalid(self.mistakes(page_size, kind))
    }

    /// All mistakes that [`validate`](Self::validate) reports.
    pub(crate) fn mistakes(&self, page_size: u64, kind: PageStoreKind) -> Vec<String> {
        let settled = self.settled();
        let mut mistakes: Vec<String> = OptionInfo::ALL.iter().filter_map(|info| info.mistake(&settled)).collect();
        if is_page_size(page_size) {
            mistakes_in_sizes(self, page_size, &mut mistakes);
        }
        mistakes.extend(self.durability.validate().err());
        mistakes_in_the_pool(&settled, page_size, &mut mistakes);
        mistakes_in_flushing(&settled, &mut mistakes);
        mistakes_in_the_log(&settled, &mut mistakes);
        if kind == PageStoreKind::CopyOnWrite {
            mistakes_of_copy_on_write(&settled, &mut mistakes);
        }
        mistakes
    }
}

/// Refuses a target below 1 s or above an hour.
pub(crate) fn validate_recovery_time(target: Duration) -> Result<(), String> {
    let options = Options::new().recovery_time_target(Some(target));
    OptionInfo::find("recovery_time_target").and_then(|info| info.mistake(&options)).map_or(Ok(()), Err)
}

/// Refuses an age below 1 s or above a day.
pub(crate) fn validate_snapshot_age(age: Duration) -> Result<(), String> {
    let options = Options::new().max_snapshot_age(Some(age));
    OptionInfo::find("max_snapshot_age").and_then(|info| info.mistake(&options)).map_or(Ok(()), Err)
}

/// Refuses a time below 1 s or above a day.
pub(crate) fn validate_idle_timeout(timeout: Duration) -> Result<(), String> {
    let options = Options::new().idle_transaction_timeout(Some(timeout));
    OptionInfo::find("idle_transaction_timeout").and_then(|info| info.mistake(&options)).map_or(Ok(()), Err)
}

/// Sizes whose limits are numbers of pages.
fn mistakes_in_sizes(options: &Options, page_size: u64, mistakes: &mut Vec<String>) {
    let pool = options.buffer_pool_size;
    let pool_text = size_text(pool);
    let most = bytes(FRAMES_MAX * page_size);
    if !(FRAMES_MIN..=FRAMES_MAX).contains(&(pool.as_u64() / page_size)) {
        let least = bytes(FRAMES_MIN * page_size);
        mistakes
            .push(format!("buffer_pool_size is {pool_text}: use {least} ({FRAMES_MIN} pages) to {most} (2^24 pages)"));
    }
    if let Some(max) = options.buffer_pool_size_max
        && (max < pool || max.as_u64() / page_size > FRAMES_MAX)
    {
        let max = size_text(max);
        mistakes
            .push(format!("buffer_pool_size_max is {max}: use {pool_text} (buffer_pool_size) to {most} (2^24 pages)"));
    }
    let redo_min = REDO_PAGES_MIN * page_size;
    for (name, redo) in
        [("redo_capacity", options.redo_capacity), ("redo_capacity_min", Some(options.redo_capacity_min))]
    {
        if let Some(redo) = redo.filter(|redo| !(redo_min..=CAPACITY_MAX).contains(&redo.as_u64())) {
            let (least, most) = (bytes(redo_min), bytes(CAPACITY_MAX));
            mistakes.push(format!("{name} is {}: use {least} to {most}", size_text(redo)));
        }
    }
}

/// Options that copy-on-write excludes.
fn mistakes_of_copy_on_write(options: &Options, mistakes: &mut Vec<String>) {
    if options.classic.doublewrite.is_some_and(|wanted| wanted != Doublewrite::Off) {
        mistakes.push("doublewrite is for page_store=in_place, and this database is copy_on_write, which overwrites nothing: leave the option out".to_owned());
    }
    if options.classic.flush_neighbors != FlushNeighbors::None {
        mistakes.push("flush_neighbors is for page_store=in_place, and this database is copy_on_write, which places pages that are written together side by side: leave the option out".to_owned());
    }
}

fn mistakes_in_the_pool(options: &Options, page_size: u64, mistakes: &mut Vec<String>) {
    let classic = &options.classic;
    let instances = options.instances();
    let is_handoff = classic.empty_free_list_algorithm == EmptyFreeListAlgorithm::Handoff;
    let is_envelope = classic.adaptive_flushing_method == AdaptiveFlushingMethod::Envelope;
    if !is_handoff && options.replacement() == PageReplacement::S3Fifo {
        mistakes.push("page_replacement is s3_fifo, and empty_free_list_algorithm is not handoff: the other algorithms look for frames at the tail of an LRU list: leave one of the two out".to_owned());
    }
    if let Some(time) = classic.old_blocks_time
        && options.replacement() == PageReplacement::S3Fifo
    {
        let time = time.text();
        mistakes.push(format!("old_blocks_time is {time}, and page_replacement is s3_fifo, which has no old part: leave it out, or use midpoint_lru"));
    }
    if is_handoff && instances > 1 {
        mistakes.push(format!("buffer_pool_instances is {instances}, and empty_free_list_algorithm is handoff, which has one line for free frames: use 1, or legacy or backoff"));
    } else if instances > 1 && options.buffer_pool_size.as_u64() / page_size.max(1) < FRAMES_MIN * to_u64(instances) {
        let (pool, size) = (size_text(options.buffer_pool_size), bytes(FRAMES_MIN * to_u64(instances) * page_size));
        mistakes.push(format!("buffer_pool_size is {pool}, and buffer_pool_instances is {instances}: use {size} or more, or fewer instances"));
    }
    if let Some(target) = classic.free_list_target {
        if is_handoff {
            mistakes.push(format!("free_list_target is {target}, and empty_free_list_algorithm is handoff, which finds out how many are needed: leave it out"));
        } else if classic.empty_free_list_algorithm == EmptyFreeListAlgorithm::Legacy && is_envelope {
            mistakes.push(format!("free_list_target is {target}, and empty_free_list_algorithm is legacy: only page cleaners keep frames free with it: use adaptive_flushing_method adaptive, or leave it out"));
        }
    }
}

fn mistakes_in_flushing(options: &Options, mistakes: &mut Vec<String>) {
    let classic = &options.classic;
    let Settings { io_capacity, max_dirty_pages_pct, .. } = options.settings();
    if classic.adaptive_flushing_method == AdaptiveFlushingMethod::Envelope {
        let given = [
            ("page_cleaners", classic.page_cleaners),
            ("io_capacity", classic.io_capacity),
            ("io_capacity_max", classic.io_capacity_max),
            ("max_dirty_pages_pct", classic.max_dirty_pages_pct),
            ("max_dirty_pages_pct_lwm", classic.max_dirty_pages_pct_lwm),
        ];
        for (name, value) in given.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            mistakes.push(format!("{name} is {value}, and adaptive_flushing_method is envelope, which measures what the device can do: leave it out"));
        }
        if classic.cleaner_lsn_age_factor.is_some() {
            mistakes.push("cleaner_lsn_age_factor is given, and adaptive_flushing_method is envelope, which goes by deadlines: leave it out".to_owned());
        }
        if classic.flush_neighbors != FlushNeighbors::None {
            mistakes.push("flush_neighbors is not none, and adaptive_flushing_method is envelope, which writes the oldest pages only: leave one of the two out".to_owned());
        }
    } else {
        // Options of adaptive alone are accepted with the other classic methods, too: the method may change to
        // adaptive.
        let given = [
            ("io_capacity_max", classic.io_capacity_max, io_capacity..=IO_CAPACITY_MAX),
            ("max_dirty_pages_pct_lwm", classic.max_dirty_pages_pct_lwm, 0..=max_dirty_pages_pct),
        ];
        for (name, value, range) in given.into_iter().filter_map(|(name, value, range)| Some((name, value?, range))) {
            if !range.contains(&value) {
                mistakes.push(format!("{name} is {value}: use {} to {}", range.start(), range.end()));
            }
        }
        if options.tracking() == DirtyTracking::Scan {
            mistakes.push("dirty_tracking is scan, and adaptive_flushing_method is not envelope: the other methods need flush lists: leave one of the two out".to_owned());
        }
    }
    let instances = options.instances();
    if let Some(cleaners) = classic.page_cleaners.filter(|cleaners| *cleaners > instances) {
        mistakes.push(format!("page_cleaners is {cleaners}, and buffer_pool_instances is {instances}: each cleaner cleans one instance at a time: use {instances} or fewer"));
    }
}

fn mistakes_in_the_log(options: &Options, mistakes: &mut Vec<String>) {
    let classic = &options.classic;
    let has_window = classic.log_recent_closed != LogRecentClosed::None;
    if has_window && options.tracking() == DirtyTracking::Scan {
        mistakes.push("log_recent_closed is not none, and dirty pages are found by a scan, which has no order to keep: use dirty_tracking flush_list, or leave it out".to_owned());
    }
    if let Some(size) = classic.log_recent_closed_size
        && !has_window
    {
        let size = size_text(size);
        mistakes.push(format!("log_recent_closed_size is {size}, and log_recent_closed is none: leave it out, or use poll, wake or wake_if_unset"));
    }
    if !classic.log_writer_threads {
        let given = |name: &str, value: String| {
            format!("{name} is {value}, and log_writer_threads is false, so no thread spins: leave it out")
        };
        mistakes.extend(classic.log_spin_cpu_abs_lwm.map(|pct| given("log_spin_cpu_abs_lwm", pct.to_string())));
        mistakes.extend(classic.log_spin_cpu_pct_hwm.map(|pct| given("log_spin_cpu_pct_hwm", pct.to_string())));
        mistakes.extend(classic.log_spin.map(|_| given("log_spin", "given".to_owned())));
    }
    if classic.flush_log_at_commit.is_some() && options.durability != Durability::Commit {
        mistakes.push("flush_log_at_commit and durability set the same in two ways: leave one out".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytesize::ByteSize;

    use super::*;
    use crate::options::ClassicOptions;
    use crate::pace::classic_flushing::CleanerLsnAgeFactor;
    use crate::redo::log_spin::LogSpin;

    type Change = fn(ClassicOptions) -> ClassicOptions;

    fn adaptive(classic: ClassicOptions) -> ClassicOptions {
        classic.adaptive_flushing_method(AdaptiveFlushingMethod::Adaptive)
    }

    fn legacy(classic: ClassicOptions) -> ClassicOptions {
        classic.empty_free_list_algorithm(EmptyFreeListAlgorithm::Legacy)
    }

    fn midpoint(classic: ClassicOptions) -> ClassicOptions {
        classic.page_replacement(PageReplacement::MidpointLru)
    }

    fn window(classic: ClassicOptions) -> ClassicOptions {
        classic.dirty_tracking(DirtyTracking::FlushList).log_recent_closed(LogRecentClosed::Poll)
    }

    fn threads(classic: ClassicOptions) -> ClassicOptions {
        classic.log_writer_threads(true)
    }

    #[test]
    fn every_mistake_is_named_with_its_value_and_the_way_out() {
        let options = Options::new()
            .buffer_pool_size(ByteSize::kib(8))
            .redo_capacity(ByteSize::kib(1))
            .durability(Durability::Background(0));
        let options = options
            .classic(|classic| classic.doublewrite(Doublewrite::On).flush_neighbors(FlushNeighbors::Area))
            .stall_threshold(Duration::ZERO);
        let error = options.validate(16384, PageStoreKind::CopyOnWrite).expect_err("six mistakes").to_string();
        for part in [
            "buffer_pool_size is 8KiB",
            "512KiB",
            "redo_capacity is 1KiB",
            "background(0 ms)",
            "doublewrite is for page_store=in_place",
            "flush_neighbors is for page_store=in_place",
            "stall_threshold is 0ms: use 1ms to 3600s",
        ] {
            assert!(error.contains(part), "{part} in: {error}");
        }
        let odd = Options::new().page_size(ByteSize::b(5000)).validate(5000, PageStoreKind::CopyOnWrite);
        assert!(odd.expect_err("odd").to_string().contains("page_size is 5000B: use 4KiB, 8KiB"));
        assert!(Options::new().validate(16384, PageStoreKind::CopyOnWrite).is_ok());
        // The error shows the exact size: rounded, it would seem to be in its range.
        let nearly = Options::new().redo_capacity(ByteSize::kib(2047)).validate(16384, PageStoreKind::CopyOnWrite);
        let nearly = nearly.expect_err("too small").to_string();
        assert!(nearly.contains("redo_capacity is 2047KiB: use 2MiB to"), "{nearly}");
    }

    #[test]
    fn what_does_not_go_together_is_refused_with_the_reason() {
        let refused: [(Change, &str); 23] = [
            (|of| of.io_capacity(500), "io_capacity is 500, and adaptive_flushing_method is envelope"),
            (|of| of.max_dirty_pages_pct(0), "max_dirty_pages_pct is 0, and adaptive_flushing_method is envelope"),
            (|of| adaptive(of).io_capacity(99), "io_capacity is 99: use 100 to 10000000"),
            (
                |of| adaptive(of).io_capacity(4_000).io_capacity_max(3_999),
                "io_capacity_max is 3999: use 4000 to 10000000",
            ),
            (|of| adaptive(of).max_dirty_pages_pct(100), "max_dirty_pages_pct is 100: use 0 to 99"),
            (|of| adaptive(of).max_dirty_pages_pct_lwm(76), "max_dirty_pages_pct_lwm is 76: use 0 to 75"),
            (
                |of| of.max_dirty_pages_pct_lwm(1),
                "max_dirty_pages_pct_lwm is 1, and adaptive_flushing_method is envelope",
            ),
            (
                |of| of.cleaner_lsn_age_factor(CleanerLsnAgeFactor::Legacy),
                "cleaner_lsn_age_factor is given, and adaptive_flushing_method is envelope",
            ),
            (|of| of.old_blocks_time(Duration::ZERO), "old_blocks_time is 0ms, and page_replacement is s3_fifo"),
            (
                |of| midpoint(of).old_blocks_time(Duration::from_secs(3_601)),
                "old_blocks_time is 3601s: use 0ms to 3600s",
            ),
            (|of| adaptive(of).page_cleaners(2), "page_cleaners is 2, and buffer_pool_instances is 1"),
            (|of| adaptive(of).dirty_tracking(DirtyTracking::Scan), "dirty_tracking is scan"),
            (|of| of.page_cleaners(1), "page_cleaners is 1, and adaptive_flushing_method is envelope"),
            (|of| of.io_capacity_max(4_000), "io_capacity_max is 4000, and adaptive_flushing_method is envelope"),
            (
                |of| of.flush_neighbors(FlushNeighbors::Seq),
                "flush_neighbors is not none, and adaptive_flushing_method is envelope",
            ),
            (|of| legacy(of).free_list_target(64), "only page cleaners keep frames free with it"),
            (|of| adaptive(of).free_list_target(64), "empty_free_list_algorithm is handoff, which finds out"),
            (|of| of.log_recent_closed(LogRecentClosed::Wake), "dirty pages are found by a scan"),
            (|of| of.log_recent_closed_size(ByteSize::kib(16)), "log_recent_closed is none"),
            (|of| window(of).log_recent_closed_size(ByteSize::kib(3)), "log_recent_closed_size is 3KiB: use 4KiB"),
            (|of| of.log_spin(LogSpin::Never), "log_spin is given, and log_writer_threads is false"),
            (|of| of.log_spin_cpu_abs_lwm(80), "log_spin_cpu_abs_lwm is 80, and log_writer_threads is false"),
            (|of| threads(of).log_spin_cpu_pct_hwm(101), "log_spin_cpu_pct_hwm is 101: use 0 to 100"),
        ];
        let refused = refused.map(|(change, reason)| (Options::new().classic(change), reason));
        let both = Options::new().durability(Durability::None);
        for (options, reason) in refused.into_iter().chain([
            (Options::new().classic(|of| of.flush_log_at_commit(3)), "flush_log_at_commit is 3: use 0 to 2"),
            (both.classic(|of| of.flush_log_at_commit(0)), "in two ways"),
        ]) {
            let error = options.validate(16384, PageStoreKind::InPlace).expect_err(reason).to_string();
            assert!(error.contains(reason), "{reason} in: {error}");
        }
        let accepted: [Change; 11] = [
            |of| legacy(adaptive(of)).buffer_pool_instances(4).page_cleaners(4).free_list_target(64),
            |of| adaptive(of).io_capacity(4_000).max_dirty_pages_pct(99).max_dirty_pages_pct_lwm(99),
            |of| adaptive(of).cleaner_lsn_age_factor(CleanerLsnAgeFactor::HighCheckpoint),
            |of| midpoint(of).old_blocks_time(Duration::from_hours(1)),
            |of| of.adaptive_flushing_method(AdaptiveFlushingMethod::KeepAverage).io_capacity(100),
            |of| adaptive(of).flush_neighbors(FlushNeighbors::Area),
            |of| window(of).log_recent_closed_size(ByteSize::kib(16)),
            |of| threads(of).flush_log_at_commit(2).log_spin(LogSpin::Affinity).log_spin_cpu_abs_lwm(0),
            |of| of.flush_log_at_commit(0),
            |of| of.flush_log_at_commit(2),
            |of| of,
        ];
        for change in accepted {
            let options = Options::new().classic(change);
            options.validate(16384, PageStoreKind::InPlace).expect("these go together");
        }
        let written = Options::new().durability(Durability::Written);
        written.validate(16384, PageStoreKind::InPlace).expect("these go together");
    }
}
