//! A guide for users with such a stall. For each experiment: the symptom, its cause, counters and options of a real
//! server, Millpond's solution, and the time of a run. Also the glossary of the page, and the cited texts.

use std::time::Duration;

use maud::{Markup, html};
use millpond::OptionInfo;

use super::findings::Findings;
use super::outcome::Figures;

/// A cited text.
pub(super) struct Text {
    /// Its name in verdicts.
    pub(super) number: &'static str,
    pub(super) title: &'static str,
    pub(super) author: &'static str,
    pub(super) published: &'static str,
    pub(super) address: &'static str,
}

/// The texts that experiments reproduce.
pub(super) const TEXTS: [Text; 5] = [
    Text {
        number: "text 000",
        title: "Tail Latencies in Percona Server because of InnoDB Stalls on Empty Free List",
        author: "J-F Gagné's MySQL blog",
        published: "30 November 2022",
        address: "https://jfg-mysql.blogspot.com/2022/11/\
                  tail-latencies-in-percona-server-because-innodb-stalls-on-empty-free-list.html",
    },
    Text {
        number: "text 001",
        title: "Spinning in the cloud: redo log commit",
        author: "MySQL performance blog at mysqlperf.github.io",
        published: "on MySQL 8.0",
        address: "https://mysqlperf.github.io/mysql/spinning-in-the-cloud-redo-log-commit/",
    },
    Text {
        number: "text 002",
        title: "Bug #95390: wake up log_closer background thread in log_wait_for_space_in_log_recent_closed",
        author: "Fungo Wang",
        published: "16 May, MySQL 8.0.16",
        address: "https://bugs.mysql.com/bug.php?id=95390",
    },
    Text {
        number: "text 003",
        title: "Disaster: MySQL 5.5 Flushing, with its comments",
        author: "Vadim Tkachenko, Percona",
        published: "18 September 2011",
        address: "https://www.percona.com/blog/2011/09/18/disaster-mysql-5-5-flushing/",
    },
    Text {
        number: "text 004",
        title: "innodb_page_cleaners, part 2: big server, database not cached",
        author: "Mark Callaghan, Small Datum",
        published: "7 July 2023",
        address: "https://smalldatum.blogspot.com/2023/07/",
    },
];

/// The guide to an experiment. Words between backquotes are names.
pub(super) struct Guide {
    pub(super) name: &'static str,
    pub(super) seen: &'static str,
    pub(super) why: &'static str,
    /// Counters to read and options to set on a real server.
    pub(super) on_a_server: &'static str,
    pub(super) here: &'static str,
    /// Approximate minutes of a run: with `--quick`, and without.
    pub(super) minutes: (u32, u32),
}

/// The guide to an experiment.
pub(super) fn of(name: &str) -> Option<&'static Guide> {
    GUIDES.iter().find(|guide| guide.name == name)
}

static GUIDES: [Guide; 10] = [
    Guide {
        name: "free-list",
        seen: "Single reads of a row that take a tenth of a second or more, the first ones after some quiet, or all \
               at once beside a scan. The slow log shows few pages, no lock and no I/O of that length.",
        why: "The free list is empty, and with `backoff` an operation that needs a frame waits for the LRU manager, \
              which no thread wakes. The LRU manager sleeps 1 ms longer after each round without work, up to 1 s: \
              sqrt(2t) ms after t ms.",
        on_a_server: "Look at `Innodb_buffer_pool_wait_free` (`buffer_pool_wait_free` in `INNODB_METRICS`), which \
                      grows many times a stall, and also with waits too short to notice; and at \
                      `Innodb_buffer_pool_pages_free`. Set `innodb_empty_free_list_algorithm=legacy`; a larger \
                      `innodb_lru_scan_depth` makes fewer stalls, each longer.",
        here: "The engine keeps twice as many frames free as users take while one batch of pages is written. An \
               operation without a free frame takes a clean page, or queues (FIFO) for the next free frame. \
               `buffer_pool_wait_free` counts a wait once, and the stall log names it: `free_frame`.",
        minutes: (2, 26),
    },
    Guide {
        name: "free-list-writes",
        seen: "Many writers of more data than the pool holds: throughput far below what the device can do, and \
               transactions of hundreds of ms. Stack traces show users in single-page flushes.",
        why: "The tail of the LRU list is dirty. With `legacy` a user that finds no clean page writes one, twice with \
              the doublewrite buffer and with a sync between, and all others queue behind that user; with `backoff` \
              all wait for the LRU manager.",
        on_a_server: "Look at `buffer_LRU_single_flush_*` in `INNODB_METRICS` (after `innodb_monitor_enable`), and \
                      at `single page` of the pending writes in `SHOW ENGINE INNODB STATUS`. Set \
                      `innodb_page_cleaners` to as many as `innodb_buffer_pool_instances`, and \
                      `innodb_lru_scan_depth` so that a second's demand is kept free.",
        here: "No user writes a page for a frame. One thread writes the pages that are evicted next, in batches and \
               ahead of need as far as the device allows, and waiters get frames in FIFO order. At full load users \
               wait for frames here, too, but each wait is bounded.",
        minutes: (1, 6),
    },
    Guide {
        name: "cpu-quota",
        seen: "In a container, fewer commits than its CPU should do: `log_write_up_to` at the top of a profile, and \
               a process that is throttled (`nr_throttled` in `cpu.stat`).",
        why: "Since 8.0 a thread that waits for the log spins while little CPU is in use, in percent of the CPUs in \
              the affinity mask. A quota is not counted: all of a quota of one CPU is 17 % of six.",
        on_a_server: "Compare the CPUs of `taskset -p` with the quota in `cpu.max`. Set \
                      `innodb_log_spin_cpu_pct_hwm` to 50 times the quota's CPUs over those of the mask: 8 for one \
                      of six. `innodb_log_spin_cpu_abs_lwm` is the use of CPU below which no thread spins. Several \
                      CPUs together use up a quota early in each 100 ms, and then no thread runs for the rest; with \
                      no more CPUs than the quota has (`cpuset`) that rest is short.",
        here: "By default no thread spins: commits that wait for the log are parked, and one of them writes it for \
               all. `cpu_granted_pct` shows the CPU that the engine assumes to have, quota included.",
        minutes: (1, 9),
    },
    Guide {
        name: "log-closer",
        seen: "With many writers threads wait in `log_wait_for_space_in_log_recent_closed`, page latches held, so \
               that readers of these pages wait, too.",
        why: "Pages are marked dirty out of order within a window, `recent_closed`. A writer that finds it full sleeps \
              20 us and checks again; the closer that would empty it sleeps by the clock, and no thread wakes it.",
        on_a_server: "Enable `log_on_recent_closed_wait_loops` in `INNODB_METRICS` (`innodb_monitor_enable`) and look \
                      at it. The window has 2 MiB, and the text saw no loops with that in 8.0.16; its stall, and the \
                      one here, are of 16 KiB, which `innodb_log_recent_closed_size` sets in experimental builds \
                      alone.",
        here: "There is no window (`log_recent_closed=none`): a counter tracks up to which LSN all pages are clean, so \
               no writer has to wait for an order.",
        minutes: (1, 6),
    },
    Guide {
        name: "sync-flush",
        seen: "Seconds to minutes in which no transaction ends, again and again, under a load of writes that ran well \
               before. The device is busy.",
        why: "Pages are written lazily until three quarters of the log are full; then all wait until enough of them \
              are written. Memory is changed faster than a device writes, and a fixed `innodb_io_capacity` does \
              not follow a device that slows down.",
        on_a_server: "In `SHOW ENGINE INNODB STATUS`, `Log flushed up to` less `Last checkpoint at` is over 75 % of \
                      `innodb_log_file_size` times `innodb_log_files_in_group`, and `flush list` of the pending \
                      writes grows. A lower `innodb_max_dirty_pages_pct` or a smaller log cure little; a pool so small \
                      that pages are written for its frames ends the stalls, and costs nineteen twentieths of the \
                      throughput in the text; `innodb_io_capacity` has to match the device at its slowest.",
        here: "Pages are written as fast as the log requires and the device, which is measured, allows. If that is not \
               enough, the engine delays writers early and little (`throttle`). Look at `log_checkpoint_age` and \
               `log_wall_waits`.",
        minutes: (4, 19),
    },
    Guide {
        name: "insert-benchmark",
        seen: "Inserts that stand still for up to ten seconds once tables and indexes are larger than the pool; \
               throughput that swings from second to second.",
        why: "Page cleaners are late: a pass waits for its slowest instance, and users write single pages meanwhile.",
        on_a_server: "Look at `buffer_LRU_single_flush_num_scan` and `buffer_LRU_batch_flush_avg_time_slot` in \
                      `INNODB_METRICS`. Set `innodb_page_cleaners` and `innodb_buffer_pool_instances` alike, 4 and 4 \
                      in the text; a small `innodb_lru_scan_depth` makes passes short. Without the doublewrite \
                      buffer it is faster, and not safe.",
        here: "As in free-list-writes: frames are freed ahead of need, by the demand. There are no instances to \
               balance, and no doublewrite buffer, since pages are not written over their old images.",
        minutes: (2, 16),
    },
    Guide {
        name: "ddl-drop",
        seen: "Clients of other tables wait while an index is made, or a table is dropped.",
        why: "DDL takes many frames at once, and leaves dirty pages behind: the free list is empty for all others. \
              All settings here drop things in the engine's own way; servers have more to wait for.",
        on_a_server: "No text tells of it. While the DDL runs, look at `Innodb_buffer_pool_wait_free` and \
                      `buffer_LRU_single_flush_*`, as in free-list.",
        here: "Frames are kept free ahead of the demand, from users or DDL, and waiters get frames in FIFO order.",
        minutes: (1, 6),
    },
    Guide {
        name: "long-reader",
        seen: "Writers wait while a report or a backup reads a table for minutes.",
        why: "The reader takes frames at its own rate, on top of the load's: a free list for a second's demand is \
              no longer enough. On a server the reader also keeps old versions that purge cannot remove; there are no \
              snapshots here yet.",
        on_a_server: "No text tells of it. Look at `Innodb_buffer_pool_wait_free`, and at the history list in `SHOW \
                      ENGINE INNODB STATUS`.",
        here: "The number of free frames follows the demand, and pages that are read once are evicted before pages \
               that are used again.",
        minutes: (1, 8),
    },
    Guide {
        name: "hiccup",
        seen: "A volume that stands still for half a second now and then, and clients that wait for longer than \
               that, even clients that only read.",
        why: "A read of a page needs a free frame; without a clean page there is none until a write has ended, and \
              then all waiters go on at once.",
        on_a_server: "Look at the device (`iostat -x 1`: `w_await`), and at `Innodb_buffer_pool_wait_free` at the \
                      same time. The list of free frames is filled once a second, up to a length set by \
                      `innodb_lru_scan_depth`: a longer list bridges longer stops, and more load.",
        here: "Among the pages that are evicted next, the engine keeps as many clean as users take in half a second, \
               the length of a stop. While the thread that frees frames waits for the device, an operation evicts a \
               clean page for itself. Of a longer stop, users notice only the rest.",
        minutes: (1, 13),
    },
    Guide {
        name: "burst",
        seen: "A load that is no problem all day, and stalls when it nearly doubles for some seconds.",
        why: "The log is kept as full as the usual load leaves it. In a burst it reaches its limit before flushing, \
              which goes by the second and by `innodb_io_capacity`, has noticed.",
        on_a_server: "Look at the checkpoint age as in sync-flush. Set the log as large as recovery time allows, and \
                      `innodb_io_capacity_max` to what the device can do.",
        here: "Every 20 ms the engine sets anew how fast pages have to be written, by the growth of the log. If the \
               device cannot keep up, the rest is spread over writers as short delays (`throttle`).",
        minutes: (2, 10),
    },
];

/// The table's columns.
pub(super) const COLUMNS: [(&str, &str); 13] = [
    ("transactions a second", "completed: the mean, in the median second, in the worst one"),
    ("brownout", "seconds with under half the completions of the median one; at a fixed rate, of the arrivals"),
    ("longest gap", "the longest time without a completion while an operation waited"),
    ("response time", "p99, p99.9: 99 of 100, and 999 of 1,000, took no longer; at a fixed rate from arrival"),
    ("slowest", "the slowest operation of all, the figure that users call a stall"),
    (
        "stalls",
        "operations of the engine over the stall threshold (`stall_threshold`), each counted once; the time that a \
         transaction is queued at a fixed rate is not included, but is part of its response time",
    ),
    (
        "the machine beside it",
        "device: the slowest pair of a 4 KiB write and a sync, one each 100 ms, that was the device's own; CPU: the \
         largest delay of a thread that asks to sleep for 10 ms; the worst of all rounds",
    ),
    (
        "loops",
        "`buffer_pool_wait_free_loops`, `log_on_recent_closed_wait_loops`: checks of waiters, which servers count",
    ),
    ("single", "`buffer_pool_single_page_flushes`: pages that users wrote because they found no free frame"),
    ("spins", "`log_spins`: waits for the log that began with a spin"),
    ("synced", "`buffer_flush_sync_total_pages`: pages written because the log was full"),
    ("the slowest waited for", "of operations over a tenth of the slowest: their time by wait class"),
    ("ours", "a claim that is in no text: about Millpond, or about what an experiment has to show"),
];

/// The parts of an operation's time.
pub(super) const PARTS: [(&str, &str); 16] = [
    (
        "free_frame",
        "a free frame of the buffer pool, or a place behind others that wait; ended by the thread that frees one",
    ),
    ("admission", "leave to miss pages, if many operations do so at once; ended when one of these is done"),
    ("log_space", "room in the log's buffer or files; ended by the thread that flushes the log, or by a checkpoint"),
    ("log_write", "the write of the log up to a commit that waits for no sync, its own write included"),
    ("log_flush", "the log being durable up to a commit, its own write and sync included"),
    ("page_read", "a page's read from the device, its own or another thread's"),
    ("page_latch", "a page's latch; ended by the thread that holds it"),
    ("checkpoint", "a checkpoint that was asked for, or another duty of the background thread"),
    ("lane", "the lane of one, for operations that were restarted often"),
    ("metadata", "another thread that creates, drops or closes a tree, table or index"),
    ("row_lock", "a row that another batch has changed or read; ended when that batch is committed or undone"),
    ("file_growth", "room in the data files; ended by the thread that makes them grow"),
    ("throttle", "a delay for the log that the operation wrote, while the device is behind; ended by time"),
    (
        "recent_closed",
        "room in the window of `log_recent_closed`, page latches held; ended by the closer, by the clock",
    ),
    ("cpu", "no wait: the thread ran"),
    ("runnable", "no wait of the engine: the thread could run, and no CPU was free, or a quota was used up"),
];

/// The stall threshold of an experiment, in ms: that of its settings.
pub(super) fn stall_ms(findings: &Findings) -> Option<f64> {
    let options = &findings.settings.first()?.options;
    let own = options.iter().find(|(name, _)| name == THRESHOLD).map(|(_, value)| value.clone());
    let text = own.or_else(|| OptionInfo::find(THRESHOLD).map(OptionInfo::default))?;
    humantime::parse_duration(&text).ok().map(|time: Duration| time.as_secs_f64() * 1e3)
}

const THRESHOLD: &str = "stall_threshold";

/// Whether there are stalls, or an operation waited as long from its arrival.
pub(super) fn is_slow(figures: &Figures, threshold_ms: Option<f64>) -> bool {
    figures.stalls > 0.0 || threshold_ms.is_some_and(|threshold| figures.slowest_ms >= threshold)
}

/// Marks up a text with names between backquotes.
pub(super) fn marked_up(text: &str) -> Markup {
    html! {
        @for (at, part) in text.split('`').enumerate() {
            @if at % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

#[cfg(test)]
mod tests {
    use millpond::metrics::WaitClass;

    use super::*;
    use crate::commands::lab::experiments::EXPERIMENTS;
    use crate::commands::lab::laboratory::options;
    use crate::commands::lab::tests::findings_of;

    #[test]
    fn every_experiment_is_explained_and_every_source_is_listed() {
        for experiment in &EXPERIMENTS {
            let guide = of(experiment.name).unwrap_or_else(|| unreachable!("no guide to {}", experiment.name));
            for text in [guide.seen, guide.why, guide.on_a_server, guide.here] {
                assert!(text.matches('`').count() % 2 == 0 && text.ends_with('.'), "{text}");
            }
            for number in experiment.source.match_indices("text ").map(|(at, _)| &experiment.source[at..at + 8]) {
                assert!(TEXTS.iter().any(|text| text.number == number), "{number}");
            }
        }
    }

    #[test]
    fn every_class_of_waits_is_explained_and_each_number_exists() {
        let parts: Vec<&str> = PARTS.iter().map(|(name, _)| *name).collect();
        let classes = WaitClass::ALL.iter().map(|class| class.name()).chain(["cpu", "runnable"]);
        assert_eq!(parts, classes.collect::<Vec<_>>());
        let numbers = COLUMNS.iter().flat_map(|(_, meaning)| meaning.split('`').skip(1).step_by(2));
        let of_engine = GUIDES.iter().flat_map(|guide| guide.here.split('`').skip(1).step_by(2));
        for name in numbers.chain(of_engine) {
            let option = name.split('=').next().and_then(OptionInfo::find);
            let is_metric = millpond::metrics::METRICS.iter().any(|metric| metric.name == name);
            assert!(is_metric || option.is_some() || parts.contains(&name), "{name}");
        }
    }

    #[test]
    fn slow_are_stalls_and_waits_as_long_from_arrival() {
        let slow = |stalls, slowest_ms| is_slow(&Figures { stalls, slowest_ms, ..Figures::default() }, Some(100.0));
        assert_eq!([slow(0.0, 99.0), slow(0.0, 100.0), slow(1.0, 99.0)], [false, true, true]);
    }

    #[test]
    fn the_stall_threshold_is_that_of_the_settings_or_the_default() {
        let mut findings = findings_of(vec![("a", Vec::new()), ("default", Vec::new())]);
        assert_eq!(stall_ms(&findings), Some(100.0));
        findings.settings[0].options = options(&["cached=true", "stall_threshold=20ms"]);
        assert_eq!(stall_ms(&findings), Some(20.0));
    }
}
