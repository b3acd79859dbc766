//! The state of an engine as text, in sections as in InnoDB's `SHOW ENGINE INNODB STATUS`.
//!
//! ```text
//! LOG
//!   current LSN          123456789
//!   checkpoint age       31 % of 256.0 MiB (83.1 MiB)
//! ```
//!
//! The text shows counters and names of open trees only: making it waits for no operation, page or device.

use std::fmt::{Display, Write as _};
use std::sync::Arc;
use std::time::Duration;

use bytesize::ByteSize;

use crate::base::aligned::to_u64;
use crate::base::clock;
use crate::base::cpus::Cpus;
use crate::base::sync::{Mutex, Rank};
use crate::base::waits::WaitSummary;
use crate::engine::Engine;
use crate::observe::stats::Stats;
use crate::observe::transactions::{OpenTransaction, deadlocks, open_transactions};
use crate::options::Options;
use crate::options::table::OptionInfo;

/// The number of stalls shown, the last ones.
const STALLS_SHOWN: usize = 10;

/// The number of seconds whose slowest operation is shown, with the second under way.
const SECONDS_SHOWN: usize = 10;

/// The number of open transactions shown, the oldest ones.
const TRANSACTIONS_SHOWN: usize = 10;

/// The number of open trees that are named.
const TREES_NAMED: usize = 20;

/// Facts about an engine that the engine itself does not keep.
#[derive(Clone)]
pub(crate) struct About {
    pub(crate) place: String,
    pub(crate) io_engine: &'static str,
    pub(crate) page_cache: &'static str,
    pub(crate) opened_ns: u64,
    /// The options that the database was opened with, and changes since.
    pub(crate) options: Arc<Mutex<Options>>,
    pub(crate) last_look: Arc<LastLook>,
}

/// The numbers of the last look, a request for the text: the next text shows the changes since. A request for numbers
/// (JSON, Prometheus) is no look.
pub(crate) struct LastLook(Mutex<Option<Look>>);

/// The numbers at a time.
#[derive(Clone)]
struct Look {
    at_ns: u64,
    stats: Stats,
    waits: Vec<WaitSummary>,
    /// For each class: (microseconds, waits).
    recorded: Vec<Vec<(u64, u64)>>,
}

impl Default for LastLook {
    fn default() -> Self {
        LastLook(Mutex::new(Rank::Status, None))
    }
}

/// The text so far.
struct Page(String);

impl Page {
    fn section(&mut self, title: &str) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(self.0, "\n{title}");
    }

    fn row(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.0, "  {name:<20} {value}");
    }
}

/// The whole text. If it `is_a_look`, the next text shows the changes since this one.
pub(crate) fn text(engine: &Engine, about: &About, is_a_look: bool) -> String {
    let recorded = engine.waits.recorded().into();
    let look = Look { at_ns: clock::now_ns(), stats: engine.stats(), waits: engine.waits.summary(), recorded };
    let stats = look.stats.clone();
    let open = Duration::from_nanos(look.at_ns.saturating_sub(about.opened_ns));
    let head = format!("millpond {}: '{}', ", env!("CARGO_PKG_VERSION"), about.place);
    let mut page = Page(format!("{head}process {}, open for {} s\n", std::process::id(), open.as_secs()));
    options(&mut page, about);
    log(&mut page, engine, &stats);
    if engine.core.log.pipeline.is_some() {
        log_threads(&mut page, &stats);
    }
    buffer_pool(&mut page, engine, &stats);
    cleaning(&mut page, &stats);
    pace(&mut page, engine, &stats);
    since_last(&mut page, engine, about, (&look, is_a_look));
    stalls(&mut page, engine, open);
    keeper(&mut page, &stats);
    transactions(&mut page, engine, &stats);
    store(&mut page, about, &stats);
    trees(&mut page, engine);
    process(&mut page, &stats);
    page.0
}

/// Options that the user has chosen, directly or by a profile: they show which policies are in force.
fn options(page: &mut Page, about: &About) {
    page.section("OPTIONS, other than the default");
    let (chosen, default) = (about.options.lock().clone(), Options::new());
    // The sections below show the present values of these two.
    let shown = |info: &&OptionInfo| !["buffer_pool_size", "redo_capacity"].contains(&info.name);
    for info in OptionInfo::ALL.iter().filter(shown) {
        if let Some(value) = info.get(&chosen).filter(|value| info.get(&default).as_ref() != Some(value)) {
            page.row(info.name, value);
        }
    }
}

fn log(page: &mut Page, engine: &Engine, stats: &Stats) {
    let age = stats.log_checkpoint_age;
    page.section("LOG");
    page.row("current LSN", stats.log_lsn_current);
    page.row("durable up to", stats.log_lsn_last_flush);
    page.row("last checkpoint", stats.log_lsn_last_checkpoint);
    page.row("checkpoint age", part(age, stats.log_capacity, bytes));
    if let Some(news) = engine.redo_change.news() {
        page.row("other files", news);
    }
    page.row("held under", of_limit(stats.log_capacity_effective, age));
    match stats.log_max_modified_age_sync {
        0 => page.row("sync flushing from", "never: writers are slowed down instead"),
        limit => {
            page.row("oldest change", format!("{} ago", bytes(stats.log_modified_age)));
            if stats.log_max_modified_age_async > 0 {
                page.row("taken for full at", of_limit(stats.log_max_modified_age_async, stats.log_modified_age));
            }
            page.row("sync flushing from", of_limit(limit, stats.log_modified_age));
        }
    }
    let apply_rate = match stats.log_apply_rate {
        0 => "not measured yet".to_owned(),
        rate => format!("{}/s", bytes(rate)),
    };
    page.row("recovery now", format!("{:.1} s; applied: {apply_rate}", ms_of(stats.log_recovery_us) / 1e3));
    page.row("written", format!("{} in {} syncs", bytes(stats.log_bytes_written), stats.log_syncs));
    let (writes, syncs) = (stats.log_pending_writes, stats.log_pending_syncs);
    page.row("pending", format!("{writes} writes, {syncs} syncs"));
    let (waited_ms, for_pages) = (ms_of(stats.log_space_wait_us), stats.buffer_flush_sync_waits);
    let (waits, at_wall) = (stats.log_space_waits, stats.log_wall_waits);
    let of_these = format!("{for_pages} of them for a sync flush, {at_wall} because it was full");
    page.row("waits for room", format!("{waits}, {waited_ms:.1} ms, {of_these}"));
    if engine.core.log.recent_closed.is_some() {
        page.row("loops for the window", stats.log_on_recent_closed_wait_loops);
    }
}

/// Threads that write the log, and the spinning of threads that wait for them.
fn log_threads(page: &mut Page, stats: &Stats) {
    page.section("LOG THREADS");
    let (waits, sleeps) = (stats.log_on_flush_waits, stats.log_on_flush_wait_loops);
    page.row("waits for them", format!("{waits}, {sleeps} sleeps"));
    let (spins, in_time) = (stats.log_spins, stats.log_spins_in_time);
    let spun_ms = ms_of(stats.log_spin_us);
    page.row("of these, spinning", format!("{spins} for {spun_ms:.1} ms, {in_time} of them in time"));
    let believed = match (hundredths(stats.log_spin_cpu_abs), hundredths(stats.log_spin_cpus)) {
        (_, 0.0) => "not looked at yet".to_owned(),
        (abs, cpus) => {
            let all = hundredths(stats.log_spin_cpu_pct);
            format!("n_cpu {cpus:.2}, absolute {abs:.1} % of one, {all:.1} % of all")
        }
    };
    page.row("CPU use believed", believed);
}

fn buffer_pool(page: &mut Page, engine: &Engine, stats: &Stats) {
    page.section("BUFFER POOL AND MEMORY");
    let total = stats.buffer_pool_pages_total;
    page.row("memory at most", bytes(stats.memory_budget));
    page.row("frames", format!("{total}, {} each", bytes(to_u64(engine.core.store.page_size()))));
    let wanted = match stats.buffer_pool_free_target {
        0 => "none are kept free ahead of need".to_owned(),
        target => format!("{target} wanted"),
    };
    page.row("free", format!("{}, {wanted}", stats.buffer_pool_pages_free));
    page.row("with pages", part(stats.buffer_pool_pages_data, total, |pages| pages.to_string()));
    page.row("dirty", part(stats.buffer_pool_pages_dirty, total, |pages| pages.to_string()));
    page.row("leaving", stats.buffer_pool_pages_leaving);
    let (lru, flush_list) = (stats.buffer_pool_pending_lru, stats.buffer_pool_pending_flush_list);
    let single_page = stats.buffer_pool_pending_single_page;
    page.row("pending reads", stats.data_pending_reads);
    page.row("pending writes", format!("LRU {lru}, flush list {flush_list}, single page {single_page}"));
    let waited_ms = ms_of(stats.buffer_pool_wait_free_us);
    let (waits, sleeps) = (stats.buffer_pool_wait_free, stats.buffer_pool_wait_free_loops);
    page.row("waits for a frame", format!("{waits}, {waited_ms:.1} ms, {sleeps} sleeps, the engine's own among them"));
    let searches = |searches: u64, looked_at: u64| format!("{searches} searches, {looked_at} pages looked at");
    page.row("for a clean page", searches(stats.buffer_lru_search_num_scan, stats.buffer_lru_search_scanned));
    let (single, of_single) = (stats.buffer_lru_single_flush_num_scan, stats.buffer_lru_single_flush_scanned);
    page.row("for one to write", searches(single, of_single));
    page.row("ahead of need", searches(stats.buffer_lru_batch_num_scan, stats.buffer_lru_batch_scanned));
    let (evicted, lots) = (stats.buffer_lru_batch_evict_total_pages, stats.buffer_lru_batches_evict);
    page.row("left in these", format!("{evicted} clean pages, in {lots} of them"));
    page.row("read ahead", format!("{} pages", stats.buffer_pool_read_ahead));

    let instances = engine.core.pool.instance_pages();
    if instances.len() < 2 {
        return;
    }
    page.section("INDIVIDUAL BUFFER POOL INFO");
    let _ = writeln!(page.0, "  {:<8} {:>12} {:>12} {:>12} {:>12}", "pool", "frames", "free", "with pages", "dirty");
    for (at, of) in instances.iter().enumerate() {
        let (total, free, data, dirty) = (of.total, of.free, of.data(), of.dirty);
        let _ = writeln!(page.0, "  {at:<8} {total:>12} {free:>12} {data:>12} {dirty:>12}");
    }
}

fn cleaning(page: &mut Page, stats: &Stats) {
    page.section("CLEANING AND CHECKPOINTS");
    page.row("pages written", format!("{} in {} calls", stats.data_page_writes, stats.data_write_calls));
    let lots = |pages: u64, lots: u64| format!("{pages} in {lots} lots");
    page.row("for frames", lots(stats.buffer_lru_batch_flush_total_pages, stats.buffer_lru_batches_flush));
    page.row("for the log", lots(stats.buffer_flush_adaptive_total_pages, stats.buffer_flush_adaptive));
    page.row("while idle", lots(stats.buffer_flush_background_total_pages, stats.buffer_flush_background));
    page.row("at once", lots(stats.buffer_flush_sync_total_pages, stats.buffer_flush_sync));
    page.row("looked at for these", stats.buffer_flush_sync_scanned);
    page.row("neighbours of all", lots(stats.buffer_flush_neighbor_total_pages, stats.buffer_flush_neighbor));
    page.row("by clients", stats.buffer_pool_single_page_flushes);
    let (twice, writes) = (stats.dblwr_pages_written, stats.dblwr_writes);
    page.row("doublewrite", format!("{twice} pages in {writes} writes, {} put back", stats.dblwr_pages_put_back));
    page.row("failed calls", stats.data_write_failures);
    page.row("unsynced images", stats.data_images_unsynced);
    page.row("data syncs", format!("{}, {} pending", stats.data_syncs, stats.data_pending_syncs));
    page.row("map records", format!("{} in {} groups", stats.map_records, stats.map_groups));
    page.row("checkpoints", stats.checkpoints);
}

fn pace(page: &mut Page, engine: &Engine, stats: &Stats) {
    page.section("PACE");
    let known = |rate: u64| if rate == 0 { "not seen yet".to_owned() } else { format!("{rate} pages/s") };
    page.row("device writes", known(stats.pace_write_capacity));
    page.row("log grows", format!("{}/s", bytes(stats.pace_redo_rate)));
    if let Some(classic) = &engine.classic_flushing {
        let goes_by = classic.settings();
        let dirty = percent(stats.buffer_pool_pages_dirty, stats.buffer_pool_pages_total);
        page.row("dirty pages", format!("{dirty} %, of {} % allowed", goes_by.max_dirty_pages_pct));
        page.row("io_capacity", format!("{} pages/s, {} at most", goes_by.io_capacity, goes_by.io_capacity_max));
    } else {
        let owed = stats.pace_flush_owed;
        page.row("needed for the log", format!("{} pages/s, {owed} pages owed", stats.pace_flush_rate));
        let limit = match stats.pace_redo_limit {
            0 => "none".to_owned(),
            limit => format!("{}/s", bytes(limit)),
        };
        page.row("limit", format!("{limit}; in force for {:.1} s so far", ms_of(stats.pace_limited_us) / 1e3));
    }
    page.row("controller", format!("{:.1} ms so far", ms_of(stats.pace_tick_us)));
    page.row("log found full", format!("{} times", stats.log_wall_waits));
    let us = |ns: u64| format!("{:.1} us", ms_of(ns));
    let costs = match (stats.pace_write_cost_ns, stats.pace_page_cost_ns) {
        (0, 0) => "not told apart yet".to_owned(),
        (write, of_page) => format!("{} a write, {} a page", us(write), us(of_page)),
    };
    page.row("device takes", costs);
    let (zones, pages) = (stats.data_zones_emptied, stats.data_pages_moved);
    page.row("emptied for long writes", format!("{zones} zones, {pages} pages moved"));
}

/// The changes since the last look.
struct Since<'s> {
    now: &'s Look,
    last: Option<&'s Look>,
    seconds: f64,
}

impl Since<'_> {
    /// The growth of a counter.
    fn grown(&self, counter: impl Fn(&Stats) -> u64) -> u64 {
        counter(&self.now.stats).saturating_sub(self.last.map_or(0, |last| counter(&last.stats)))
    }

    /// The growth of a counter a second.
    fn per_s(&self, counter: impl Fn(&Stats) -> u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no exact count")]
        let grown = self.grown(counter) as f64;
        grown / self.seconds.max(1e-3)
    }

    /// The begin of the period.
    fn name(&self) -> &'static str {
        if self.last.is_some() { "the last look" } else { "open" }
    }
}

/// Rates and waits since the last look. If this is a look, it becomes the last one.
fn since_last(page: &mut Page, engine: &Engine, about: &About, (look, is_a_look): (&Look, bool)) {
    // Another thread may have looked after `look` was taken: then there are no changes since its look.
    let last = {
        let mut kept = about.last_look.0.lock();
        if is_a_look { kept.replace(look.clone()) } else { kept.clone() }
    };
    let begin_ns = last.as_ref().map_or(about.opened_ns, |last| last.at_ns);
    let seconds = Duration::from_nanos(look.at_ns.saturating_sub(begin_ns)).as_secs_f64();
    let since = Since { now: look, last: last.as_ref(), seconds };
    rates(page, engine, &since);
    waits(page, &since);
}

fn rates(page: &mut Page, engine: &Engine, since: &Since<'_>) {
    page.section(&format!("RATES, over the {:.1} s since {}", since.seconds, since.name()));
    let (gets, scans) = (since.per_s(|stats| stats.operation_gets), since.per_s(|stats| stats.operation_scans));
    let writes = since.per_s(|stats| stats.operation_writes);
    page.row("operations", format!("{gets:.1} gets/s, {scans:.1} leaves of scans/s, {writes:.1} writes/s"));
    let operations =
        |stats: &Stats| stats.operation_gets + stats.operation_scans + stats.operation_writes + stats.operation_others;
    let (all, missed) = (since.grown(operations), since.grown(|stats| stats.operation_misses));
    let hits = match (all.saturating_sub(missed) * 1_000).checked_div(all) {
        None => "no operations".to_owned(),
        Some(hits) => format!("{hits} of 1,000 operations found all their pages in the pool"),
    };
    page.row("hit rate", hits);
    let (reads, writes) = (since.per_s(|stats| stats.data_page_reads), since.per_s(|stats| stats.data_page_writes));
    page.row("pages", format!("{reads:.1} reads/s, {writes:.1} writes/s"));
    let kib_per_s = |of: fn(&Stats) -> u64| since.per_s(of) / 1024.0;
    let (made, written) = (kib_per_s(|stats| stats.log_lsn_current), kib_per_s(|stats| stats.log_bytes_written));
    let syncs = since.per_s(|stats| stats.log_syncs);
    page.row("log", format!("{made:.1} KiB/s made, {written:.1} KiB/s written, {syncs:.1} syncs/s"));

    let slowest: Vec<_> = engine.waits.slowest_by_second().us.into_iter().take(SECONDS_SHOWN).collect();
    let slowest: Vec<_> = slowest.into_iter().map(|us| format!("{:.1}", ms_of(us))).collect();
    page.row("slowest by second", format!("{} ms, the newest first", slowest.join(" ")));
}

fn waits(page: &mut Page, since: &Since<'_>) {
    page.section("WAITS");
    let (of_all, of_last) = ("since open", format!("since {}, {:.1} s", since.name(), since.seconds));
    let _ = writeln!(page.0, "  {:<14} {of_all:^43} | {of_last:^37} | {:^16}", "", "now");
    let _ = writeln!(
        page.0,
        "  {:<14} {:>10} {:>12} {:>8} {:>10} | {:>8} {:>10} {:>8} {:>8} | {:>7} {:>8}",
        "class",
        "count",
        "total ms",
        "p99 ms",
        "longest ms",
        "count",
        "total ms",
        "mean ms",
        "p99 ms",
        "threads",
        "mean ms"
    );
    for (at, wait) in since.now.waits.iter().enumerate() {
        let (counted, waited) =
            since.last.map_or((0, Duration::ZERO), |last| (last.waits[at].count, last.waits[at].total));
        let (count, new) = (wait.count, wait.count.saturating_sub(counted));
        let of_new = wait.total.saturating_sub(waited);
        let p99_of_new = p99_since(&since.now.recorded[at], since.last.map_or(&[], |last| &last.recorded[at]));
        let of_each = |time: Duration, count: u64| {
            time.as_secs_f64() * 1e3 / f64::from(u32::try_from(count.max(1)).unwrap_or(u32::MAX))
        };
        let (mean, threads, so_far) = (of_each(of_new, new), wait.waiting, of_each(wait.waiting_for, wait.waiting));
        let [total, p99, longest, of_new, p99_of_new] =
            [wait.total, wait.p99, wait.longest, of_new, p99_of_new].map(|time| time.as_secs_f64() * 1e3);
        let _ = writeln!(
            page.0,
            "  {:<14} {count:>10} {total:>12.1} {p99:>8.2} {longest:>10.2} | {new:>8} {of_new:>10.1} {mean:>8.2} \
             {p99_of_new:>8.2} | {threads:>7} {so_far:>8.1}",
            wait.class.name()
        );
    }
}

/// The time that 99 of 100 waits did not exceed, of those in `now` that are not in `before`; both are (microseconds,
/// waits), the shortest first.
fn p99_since(now: &[(u64, u64)], before: &[(u64, u64)]) -> Duration {
    let mut before = before.iter().peekable();
    let new: Vec<(u64, u64)> = now
        .iter()
        .map(|&(us, waits)| {
            let had = before.next_if(|(other, _)| *other == us).map_or(0, |(_, waits)| *waits);
            (us, waits.saturating_sub(had))
        })
        .collect();
    let all: u64 = new.iter().map(|(_, waits)| waits).sum();
    // At most 1 of 100 waits is longer.
    let mut left = all / 100;
    for (us, waits) in new.into_iter().rev() {
        if waits > left {
            return Duration::from_micros(us);
        }
        left -= waits;
    }
    Duration::ZERO
}

fn stalls(page: &mut Page, engine: &Engine, open: Duration) {
    let (count, stalls) = engine.waits.stalls();
    page.section("STALLS");
    page.row("so far", count);
    page.row("at least", format!("{:.0} ms each", engine.waits.stall_threshold().as_secs_f64() * 1e3));
    let by_class = engine.waits.summary().into_iter().filter(|of| of.stalls > 0);
    let by_class: Vec<String> = by_class.map(|of| format!("{} {}", of.class.name(), of.stalls)).collect();
    page.row("half or more", if by_class.is_empty() { "of no class".to_owned() } else { by_class.join(", ") });
    let shown = engine.with_trees(stalls.into_iter().rev().take(STALLS_SHOWN).collect());
    for stall in shown {
        page.row(&format!("{:.1} s ago", open.saturating_sub(stall.ended).as_secs_f64()), stall);
    }
}

fn keeper(page: &mut Page, stats: &Stats) {
    page.section("KEEPER");
    page.row("state", if stats.stopped == 1 { "stopped after a failure: reopen the database" } else { "at work" });
    page.row("merges wished for", stats.tree_merge_wishes);
    page.row("trees being dropped", stats.trees_dropping);
    page.row("undo pages", format!("{}, {} to be purged", stats.undo_pages, stats.purge_pages));
    page.row("rows purged", stats.purged_rows);
    page.row("snapshots", snapshots_text(stats));
    page.row("pages given back", stats.tree_pages_freed);
}

fn transactions(page: &mut Page, engine: &Engine, stats: &Stats) {
    page.section("TRANSACTIONS");
    let open = open_transactions(engine);
    page.row("open", open.len());
    for OpenTransaction { id, age, idle, is_waiting, .. } in open.iter().take(TRANSACTIONS_SHOWN) {
        let state = match idle {
            _ if *is_waiting => "waits for a lock".to_owned(),
            Some(idle) => format!("idle for {:.1} s", idle.as_secs_f64()),
            None => "at work".to_owned(),
        };
        page.row("", format!("{id}: {:.1} s old, {state}", age.as_secs_f64()));
    }
    page.row("not committed", stats.batches_in_flight);
    page.row("undone", stats.rollbacks);
    page.row("deadlocks", stats.deadlocks);
    if let Some(last) = deadlocks(engine).first() {
        page.row("the last one", format!("{:.1} s ago", last.ago.as_secs_f64()));
        last.to_string().lines().for_each(|line| page.row("", line));
    }
}

fn store(page: &mut Page, about: &About, stats: &Stats) {
    page.section("STORE");
    page.row("I/O by", about.io_engine);
    page.row("page cache", about.page_cache);
    page.row("page images read", stats.data_page_reads);
    page.row("slots", format!("{}, {} free", stats.data_slots_total, stats.data_slots_free));
    page.row("map pages written", stats.map_page_writes);
    let (redo, pages) = (bytes(stats.open_redo_bytes), stats.open_redo_pages);
    page.row("opening took", format!("{:.1} ms, {redo} of log, {pages} pages", ms_of(stats.open_us)));
}

fn trees(page: &mut Page, engine: &Engine) {
    page.section("TREES");
    let names: Vec<String> = {
        let open_trees = engine.open_trees.lock();
        page.row("opened", open_trees.len());
        open_trees.values().take(TREES_NAMED).map(ToString::to_string).collect()
    };
    names.iter().for_each(|name| page.row("", name));
}

fn process(page: &mut Page, stats: &Stats) {
    page.section("PROCESS");
    let cpus = Cpus::read();
    page.row("CPUs", format!("{} to run on, {:.2} granted", cpus.affinity, cpus.effective()));
    page.row("throttled", format!("{} of {} periods", cpus.throttled, cpus.periods));
    page.row("law violations", stats.law_violations);
}

/// Live snapshots, the age of the oldest, and what they keep.
fn snapshots_text(stats: &Stats) -> String {
    if stats.snapshots == 0 {
        return "none".to_owned();
    }
    let age_s = stats.snapshot_age_us as f64 / 1e6;
    let kept = bytes(stats.undo_bytes_retained);
    let steps = stats.snapshot_steps as f64 / stats.snapshot_old_rows.max(1) as f64;
    let most = stats.snapshot_steps_max;
    format!("{}, the oldest of {age_s:.1} s; {kept} kept; {steps:.1} versions back, at most {most}", stats.snapshots)
}

/// A limit, and the part of it that is taken.
fn of_limit(limit: u64, taken: u64) -> String {
    format!("{}, {} % of it taken", bytes(limit), percent(taken, limit))
}

/// Converts a count of hundredths.
fn hundredths(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / 100.0
}

fn bytes(count: u64) -> String {
    ByteSize::b(count).to_string()
}

/// A part in per cent of a whole, the whole, and the part.
fn part(part: u64, whole: u64, show: impl Fn(u64) -> String) -> String {
    format!("{} % of {} ({})", percent(part, whole), show(whole), show(part))
}

/// A part in per cent of a whole, rounded.
fn percent(part: u64, whole: u64) -> u64 {
    (part * 100 + whole / 2).checked_div(whole).unwrap_or(0)
}

fn ms_of(us: u64) -> f64 {
    Duration::from_micros(us).as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_p99_of_what_is_new_is_not_that_of_what_was() {
        let us = |now: &[(u64, u64)], before: &[(u64, u64)]| p99_since(now, before).as_micros();
        let before = [(10, 1_000), (5_000, 40)];
        assert_eq!(us(&before, &[]), 5_000);
        assert_eq!(us(&before, &before), 0, "nothing is new");
        // 200 of 20 us and two of 900: one of 100 may be longer.
        assert_eq!(us(&[(10, 1_000), (20, 198), (900, 2), (5_000, 40)], &before), 20);
        assert_eq!(us(&[(10, 1_000), (20, 197), (900, 3), (5_000, 40)], &before), 900);
        assert_eq!(us(&[(10, 1_000), (5_000, 41)], &before), 5_000, "one by itself");
    }
}
