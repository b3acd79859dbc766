//! How an engine is doing, as text: in sections, as InnoDB's `SHOW ENGINE INNODB STATUS` has them.
//!
//! ```text
//! LOG
//!   current LSN          123456789
//!   checkpoint age       31 % of 256.0 MiB (83.1 MiB)
//! ```
//!
//! It looks at counters and names of open trees only: it waits for no operation, page or device.

use std::fmt::{Display, Write as _};
use std::time::Duration;

use bytesize::ByteSize;

use super::database::Db;
use super::engine::Engine;
use crate::base::aligned::to_u64;
use crate::base::clock;
use crate::base::cpus::Cpus;

/// Stalls that are shown, the last ones.
const STALLS_SHOWN: usize = 5;

/// Open trees that are named.
const TREES_NAMED: usize = 20;

/// What an engine does not know of itself.
#[derive(Clone, Debug)]
pub(super) struct About {
    pub(super) place: String,
    pub(super) io_engine: &'static str,
    pub(super) opened_ns: u64,
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

impl Db {
    /// How the engine is doing, in words, for people: log, buffer pool, cleaning, waits, keeper, store, trees. Waits
    /// for nothing. The same comes out of the [status socket](crate::Options::status_socket).
    pub fn status_text(&self) -> String {
        text(self.engine(), &self.about())
    }
}

/// The whole text.
pub(super) fn text(engine: &Engine, about: &About) -> String {
    let stats = engine.stats();
    let open = Duration::from_nanos(clock::now_ns().saturating_sub(about.opened_ns));
    let head = format!("millpond {}: '{}', ", env!("CARGO_PKG_VERSION"), about.place);
    let mut page = Page(format!("{head}process {}, open for {} s\n", std::process::id(), open.as_secs()));

    page.section("LOG");
    page.row("current LSN", stats.log_lsn_current);
    page.row("durable up to", stats.log_lsn_last_flush);
    page.row("last checkpoint", stats.log_lsn_last_checkpoint);
    page.row("checkpoint age", part(stats.log_checkpoint_age, stats.log_capacity, bytes));
    let apply_rate = match stats.log_apply_rate {
        0 => "not measured yet".to_owned(),
        rate => format!("{}/s", bytes(rate)),
    };
    page.row("held under", bytes(stats.log_capacity_effective));
    page.row("recovery now", format!("{:.1} s; applied: {apply_rate}", ms_of(stats.log_recovery_us) / 1e3));
    page.row("written", format!("{} in {} syncs", bytes(stats.log_bytes_written), stats.log_syncs));
    page.row("waits for room", format!("{}, {:.1} ms", stats.log_space_waits, ms_of(stats.log_space_wait_us)));

    page.section("BUFFER POOL");
    let total = stats.buffer_pool_pages_total;
    page.row("frames", format!("{total}, {} each", bytes(to_u64(engine.core.store.page_size()))));
    page.row("free", format!("{}, of {} wanted", stats.buffer_pool_pages_free, stats.buffer_pool_free_target));
    page.row("with pages", part(stats.buffer_pool_pages_data, total, |pages| pages.to_string()));
    page.row("dirty", part(stats.buffer_pool_pages_dirty, total, |pages| pages.to_string()));
    page.row("leaving", stats.buffer_pool_pages_leaving);
    let waited_ms = ms_of(stats.buffer_pool_wait_free_us);
    page.row("waits for a frame", format!("{}, {waited_ms:.1} ms", stats.buffer_pool_wait_free));
    page.row("read ahead", format!("{} pages", stats.buffer_pool_read_ahead));

    page.section("CLEANING AND CHECKPOINTS");
    page.row("pages written", format!("{} in {} calls", stats.data_page_writes, stats.data_write_calls));
    page.row("for frames", stats.buffer_pool_pages_lru_flushed);
    page.row("for the log", stats.buffer_flush_adaptive_total_pages);
    page.row("at once", stats.buffer_flush_sync_total_pages);
    page.row("by clients", stats.buffer_pool_single_page_flushes);
    let (lru, flush_list) = (stats.buffer_pool_pending_lru, stats.buffer_pool_pending_flush_list);
    let single_page = stats.buffer_pool_pending_single_page;
    page.row("pending", format!("LRU {lru}, flush list {flush_list}, single page {single_page}"));
    page.row("failed calls", stats.data_write_failures);
    page.row("unsynced images", stats.data_images_unsynced);
    page.row("data syncs", stats.data_syncs);
    page.row("map records", format!("{} in {} groups", stats.map_records, stats.map_groups));
    page.row("checkpoints", stats.checkpoints);

    page.section("PACE");
    let known = |rate: u64| if rate == 0 { "not seen yet".to_owned() } else { format!("{rate} pages/s") };
    page.row("device writes", known(stats.pace_write_capacity));
    let owed = stats.pace_flush_owed;
    page.row("needed for the log", format!("{} pages/s, {owed} pages owed", stats.pace_flush_rate));
    page.row("log grows", format!("{}/s", bytes(stats.pace_redo_rate)));
    let limit = match stats.pace_redo_limit {
        0 => "none".to_owned(),
        limit => format!("{}/s", bytes(limit)),
    };
    page.row("limit", format!("{limit}; in force for {:.1} s so far", ms_of(stats.pace_limited_us) / 1e3));
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

    page.section("WAITS");
    let _ =
        writeln!(page.0, "  {:<20} {:>12} {:>14} {:>10} {:>12}", "class", "count", "total ms", "p99 ms", "longest ms");
    for wait in engine.waits.summary() {
        let [total, p99, longest] = [wait.total, wait.p99, wait.longest].map(|time| time.as_secs_f64() * 1e3);
        let (name, count) = (wait.class.name(), wait.count);
        let _ = writeln!(page.0, "  {name:<20} {count:>12} {total:>14.1} {p99:>10.2} {longest:>12.2}");
    }
    let (count, stalls) = engine.waits.stalls();
    page.row("stalls", count);
    for stall in stalls.iter().rev().take(STALLS_SHOWN) {
        page.row("", stall);
    }

    page.section("KEEPER");
    page.row("state", if stats.stopped == 1 { "stopped after a failure: reopen the database" } else { "at work" });
    page.row("merges wished for", stats.tree_merge_wishes);
    page.row("trees being dropped", stats.trees_dropping);
    page.row("undo pages", format!("{}, {} to be purged", stats.undo_pages, stats.purge_pages));
    page.row("rows purged", stats.purged_rows);
    page.row("batches in flight", stats.batches_in_flight);
    page.row("batches undone", stats.rollbacks);
    page.row("pages given back", stats.tree_pages_freed);

    page.section("STORE");
    page.row("I/O by", about.io_engine);
    page.row("page images read", stats.data_page_reads);
    page.row("slots", format!("{}, {} free", stats.data_slots_total, stats.data_slots_free));
    page.row("map pages written", stats.map_page_writes);
    page.row(
        "opening took",
        format!(
            "{:.1} ms, {} of log, {} pages",
            ms_of(stats.open_us),
            bytes(stats.open_redo_bytes),
            stats.open_redo_pages
        ),
    );

    page.section("TREES");
    let names: Vec<String> = {
        let open_trees = engine.open_trees.lock();
        page.row("opened", open_trees.len());
        open_trees.values().take(TREES_NAMED).map(ToString::to_string).collect()
    };
    names.iter().for_each(|name| page.row("", name));

    page.section("PROCESS");
    page.row("memory at most", bytes(stats.memory_budget));
    let cpus = Cpus::read();
    page.row("CPUs", format!("{} to run on, {:.2} granted", cpus.affinity, cpus.effective()));
    page.row("throttled", format!("{} of {} periods", cpus.throttled, cpus.periods));
    page.row("law violations", stats.law_violations);
    page.0
}

fn bytes(count: u64) -> String {
    ByteSize::b(count).to_string()
}

/// A share, its whole, and the part itself.
fn part(part: u64, whole: u64, show: impl Fn(u64) -> String) -> String {
    format!("{} % of {} ({})", (part * 100).checked_div(whole).unwrap_or(0), show(whole), show(part))
}

fn ms_of(us: u64) -> f64 {
    Duration::from_micros(us).as_secs_f64() * 1e3
}
