//! The displayed figures: rates between two samples, debts of the later one, waits and slowest operations.

use std::fmt::Write as _;
use std::iter;
use std::time::Duration;

use millpond::ByteSize;

use super::source::Sample;

/// The number of seconds for which a block of text shows the slowest operation.
const SECONDS_IN_TEXT: usize = 10;

/// Widths of a cell, and of the name of its line.
const NAME_WIDTH: usize = 14;
const VALUE_WIDTH: usize = 20;
const LINE_NAME_WIDTH: usize = 9;

/// Columns of a line of one cell; with fewer, values would be cut.
pub(super) const NARROW: usize = LINE_NAME_WIDTH + NAME_WIDTH + VALUE_WIDTH;

/// Columns of a line of two cells.
pub(super) const WIDE: usize = NARROW + 2 + NAME_WIDTH + VALUE_WIDTH;

/// From this duration on an operation is a broken promise, in ms: the default stall threshold.
pub(super) const STALL_MS: f64 = 100.0;

/// From this share of its limit on, a checkpoint age may lead to throttled writers, in percent.
const AGE_NEAR_PCT: u64 = 80;

/// Rating of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Calm,
    /// Near a limit.
    Near,
    /// A promise was broken.
    Broken,
}

/// A line of text.
pub(super) type Line = (String, Mark);

/// Cells that share one line if there is room; otherwise each cell has a line of its own.
#[derive(Clone)]
struct Row<'a> {
    name: &'a str,
    /// Names and values.
    cells: Vec<(&'a str, String)>,
    mark: Mark,
}

/// Waits of a class.
#[derive(Clone, Debug, PartialEq)]
struct Waits {
    class: String,
    per_s: f64,
    /// Waiting time of all threads together, in ms a second.
    ms_per_s: f64,
    /// Mean length of the waits that have ended, in ms.
    mean_ms: f64,
    /// Threads that wait now, and the mean age of their waits, in ms.
    waiting: u64,
    waiting_ms: f64,
}

/// A sample, and its differences to an earlier one.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    since: Duration,
    now: Sample,
    before: Sample,
    waits: Vec<Waits>,
    /// Milliseconds of the slowest operation of each of the last whole seconds, the newest last.
    pub(super) slowest_ms: Vec<f64>,
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no exact count")]
fn float(count: u64) -> f64 {
    count as f64
}

fn size(bytes: u64) -> String {
    ByteSize::b(bytes).to_string()
}

fn per_cent(part: u64, whole: u64) -> u64 {
    part.saturating_mul(100).checked_div(whole).unwrap_or(0)
}

impl Figures {
    pub(super) fn between(before: &Sample, now: &Sample) -> Figures {
        let since = now.at.saturating_duration_since(before.at);
        let mut waits: Vec<Waits> =
            now.classes.iter().filter_map(|class| waits_of(class, before, now, since)).collect();
        waits.sort_by(|a, b| b.ms_per_s.total_cmp(&a.ms_per_s));
        // The first entry is the second under way: its worst operation may still end.
        let mut slowest_ms: Vec<f64> = now.slowest_us.iter().skip(1).rev().map(|us| float(*us) / 1e3).collect();
        // While all operations stand still, none ends, and the strip would look calm. The oldest wait is at least as
        // long as the mean of the current waits.
        let waiting_ms = waits.iter().map(|of| of.waiting_ms).fold(0.0, f64::max);
        if let Some(newest) = slowest_ms.last_mut().filter(|newest| **newest < waiting_ms && waiting_ms >= STALL_MS) {
            *newest = waiting_ms;
        }
        Figures { since, now: now.clone(), before: before.clone(), waits, slowest_ms }
    }

    fn grown(&self, name: &str) -> u64 {
        // A restarted engine counts from 0 again.
        self.now.number(name).saturating_sub(self.before.number(name))
    }

    fn per_s(&self, names: &[&str]) -> f64 {
        let grown: u64 = names.iter().map(|name| self.grown(name)).sum();
        float(grown) / self.since.as_secs_f64().max(1e-3)
    }

    /// Whether there is no earlier sample, and so no rate.
    fn is_first(&self) -> bool {
        self.since.is_zero()
    }

    /// All figures but the slowest operations, in lines of [`NARROW`] columns, or of [`WIDE`] if `columns` is enough.
    pub(super) fn lines(&self, columns: usize) -> Vec<Line> {
        let is_wide = columns >= WIDE;
        let rows = |rows: Vec<Row<'_>>| rows.into_iter().flat_map(move |row| row.lines(is_wide)).collect::<Vec<_>>();
        let words = |name: &str, words: &str| vec![(format!("{name:<LINE_NAME_WIDTH$}{words}"), Mark::Calm)];
        let debts = rows([self.debts(), self.snapshots()].concat());
        if self.is_first() {
            return [words("rates", "with the next look"), debts, words("waits", "with the next look")].concat();
        }
        let ended: Vec<&Waits> = self.waits.iter().filter(|of| of.ms_per_s > 0.0).collect();
        let waits = if ended.is_empty() { words("waits", "none") } else { waits_lines(&ended, is_wide) };
        let now = rows(self.waits.iter().filter(|of| of.waiting > 0).map(Waits::now).collect());
        let now = if now.is_empty() { words("now", "no thread waits") } else { now };
        [rows(self.rates()), debts, now, waits].concat()
    }

    /// A block of plain text, at most 80 columns wide.
    pub(super) fn block(&self, target: &str) -> String {
        let mut text = format!("{}\n", self.head(target, WIDE));
        for (line, _) in self.lines(WIDE) {
            let _ = writeln!(text, "{line}");
        }
        let from = self.slowest_ms.len().saturating_sub(SECONDS_IN_TEXT);
        let slowest: String = self.slowest_ms[from..].iter().map(|ms| format!("{ms:>7.1}")).collect();
        let seconds = self.slowest_ms.len() - from;
        let _ = writeln!(text, "slowest  ms, in each of the last {seconds} s, the newest last\n         {slowest}");
        text
    }

    /// The heading: the engine's target and the interval. Of a long path only the end is shown.
    pub(super) fn head(&self, target: &str, columns: usize) -> String {
        let stopped =
            if self.now.number("stopped") > 0 { "stopped after a failure, reopen the database: " } else { "" };
        let over = if self.is_first() { String::new() } else { format!(", over {:.1} s", self.since.as_secs_f64()) };
        let begin = format!("{stopped}millpond at ");
        let room = columns.saturating_sub(begin.len() + over.len());
        let shown: String = target.chars().skip(target.chars().count().saturating_sub(room)).collect();
        format!("{begin}{shown}{over}")
    }

    fn rates(&self) -> Vec<Row<'static>> {
        let rate = |names: &[&str]| format!("{:.1}", self.per_s(names));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate of bytes, not negative")]
        let [made, log] = ["log_lsn_current", "log_bytes_written"].map(|name| size(self.per_s(&[name]) as u64));
        let (stalls, walls) = (self.grown("stalls"), self.grown("log_wall_waits"));
        let mark = |count: u64| if count > 0 { Mark::Broken } else { Mark::Calm };
        let (broken, full) = (mark(stalls), mark(walls));
        let reads = rate(&["operation_gets", "operation_scans"]);
        let (page_writes, page_reads) = (rate(&["data_page_writes"]), rate(&["data_page_reads"]));
        vec![
            row("rates", [("writes/s", rate(&["operation_writes"])), ("reads/s", reads)], Mark::Calm),
            row("", [("page writes/s", page_writes), ("page reads/s", page_reads)], Mark::Calm),
            row("", [("log made/s", made), ("log written/s", log)], Mark::Calm),
            row("", [("log syncs/s", rate(&["log_syncs"])), ("log found full", walls.to_string())], full),
            row("", [("stalls", stalls.to_string())], broken),
        ]
    }

    fn debts(&self) -> Vec<Row<'static>> {
        let number = |name: &str| self.now.number(name);
        let (age, held_under) = match number("log_max_modified_age_sync") {
            0 => (number("log_checkpoint_age"), number("log_capacity_effective")),
            // With a classic flushing method, all writers wait from here on.
            limit => (number("log_modified_age"), limit),
        };
        let (dirty, frames) = (number("buffer_pool_pages_dirty"), number("buffer_pool_pages_total"));
        let limit = match number("pace_redo_limit") {
            0 => "none".to_owned(),
            limit => format!("{}/s", size(limit)),
        };
        let age_mark = match per_cent(age, held_under) {
            near if near < AGE_NEAR_PCT => Mark::Calm,
            near if near < 100 => Mark::Near,
            _ => Mark::Broken,
        };
        let limit_mark = if limit == "none" { Mark::Calm } else { Mark::Near };
        let age = format!("{} % of {}", per_cent(age, held_under), size(held_under));
        let dirty = format!("{} % of {frames}", per_cent(dirty, frames));
        let free = match (number("buffer_pool_pages_free"), number("buffer_pool_free_target")) {
            (free, 0) => free.to_string(),
            (free, target) => format!("{free} of {target}"),
        };
        let (purge, unsynced) = (number("purge_pages").to_string(), number("data_images_unsynced").to_string());
        vec![
            row("debts", [("age", age), ("dirty", dirty)], age_mark),
            row("", [("free frames", free), ("purge pages", purge)], Mark::Calm),
            row("", [("unsynced", unsynced), ("writers' limit", limit)], limit_mark),
        ]
    }

    /// Live snapshots, what they keep, and how far their readers go back.
    fn snapshots(&self) -> Vec<Row<'static>> {
        let number = |name: &str| self.now.number(name);
        let oldest = format!("{:.1} s", float(number("snapshot_age_us")) / 1e6);
        let (steps, rows) = (self.per_s(&["snapshot_steps"]), self.per_s(&["snapshot_old_rows"]));
        let back = format!("{:.1}, {} at most", steps / rows.max(1.0), number("snapshot_steps_max"));
        let (live, kept) = (number("snapshots").to_string(), size(number("undo_bytes_retained")));
        vec![
            row("history", [("snapshots", live), ("oldest", oldest)], Mark::Calm),
            row("", [("kept for them", kept), ("versions back", back)], Mark::Calm),
        ]
    }
}

/// A line for each class of waits, or several lines if there are few columns.
fn waits_lines(waits: &[&Waits], is_wide: bool) -> Vec<Line> {
    let names = ["waits"].into_iter().chain(iter::repeat(""));
    let lines = |(name, waits): (&'static str, &&Waits)| {
        if is_wide { vec![waits.line(name)] } else { waits.row(name).lines(is_wide) }
    };
    names.zip(waits).flat_map(lines).collect()
}

impl Waits {
    fn line(&self, name: &str) -> Line {
        let Waits { class, per_s, ms_per_s, mean_ms, .. } = self;
        let text = format!(
            "{name:<LINE_NAME_WIDTH$}{class:<NAME_WIDTH$}{ms_per_s:>11.1} ms/s{per_s:>12.1} waits/s\
             {mean_ms:>12.2} ms each"
        );
        (text, self.mark())
    }

    /// The same figures in cells.
    fn row<'a>(&'a self, name: &'a str) -> Row<'a> {
        let Waits { class, per_s, ms_per_s, mean_ms, .. } = self;
        let (all, each) = (format!("{ms_per_s:.1} ms/s"), format!("{mean_ms:.2} ms each"));
        let cells = vec![(class.as_str(), all), ("", format!("{per_s:.1} waits/s")), ("", each)];
        Row { name, cells, mark: self.mark() }
    }

    /// Number of threads that wait now, and the mean age of their waits.
    fn now(&self) -> Row<'_> {
        let mark = if self.waiting_ms >= STALL_MS { Mark::Broken } else { Mark::Calm };
        let value = format!("{} for {:.0} ms", self.waiting, self.waiting_ms);
        Row { name: "now", cells: vec![(&self.class, value)], mark }
    }

    fn mark(&self) -> Mark {
        if self.mean_ms >= STALL_MS { Mark::Broken } else { Mark::Calm }
    }
}

/// The waits of a class between two samples, if there were any. A wait under way counts with its length so far.
fn waits_of(class: &str, before: &Sample, now: &Sample, since: Duration) -> Option<Waits> {
    let of = |sample: &Sample, name: &str| float(sample.number(&name.replace("CLASS", class)));
    let grown = |name: &str| (of(now, name) - of(before, name)).max(0.0);
    let under_way_us = "waiting_us{class=\"CLASS\"}";
    let waiting_us = of(now, under_way_us);
    let (count, ended_ms) = (grown("wait_CLASS_us_count"), grown("wait_CLASS_us_sum") / 1e3);
    let waited_ms = (ended_ms + (waiting_us - of(before, under_way_us)) / 1e3).max(0.0);
    let waiting = now.number(&format!("waiting{{class=\"{class}\"}}"));
    let seconds = since.as_secs_f64().max(1e-3);
    // A wait may be reported under another class while it lasts than when it ends. So its whole length may appear in
    // one interval; the sum is capped by count times interval.
    let waited_ms = waited_ms.min((count + float(waiting)) * seconds * 1e3);
    (count > 0.0 || waiting > 0).then(|| Waits {
        class: class.to_owned(),
        per_s: count / seconds,
        ms_per_s: waited_ms / seconds,
        mean_ms: ended_ms / count.max(1.0),
        waiting,
        waiting_ms: waiting_us / 1e3 / float(waiting.max(1)),
    })
}

fn row<'a>(name: &'a str, cells: impl Into<Vec<(&'a str, String)>>, mark: Mark) -> Row<'a> {
    Row { name, cells: cells.into(), mark }
}

impl Row<'_> {
    fn lines(&self, is_wide: bool) -> Vec<Line> {
        let in_a_line = if is_wide { self.cells.len() } else { 1 };
        let line = |(at, cells): (usize, &[(&str, String)])| {
            let cells: Vec<String> =
                cells.iter().map(|(name, value)| format!("{name:<NAME_WIDTH$}{value:>VALUE_WIDTH$}")).collect();
            let name = if at == 0 { self.name } else { "" };
            (format!("{name:<LINE_NAME_WIDTH$}{}", cells.join("  ")), self.mark)
        };
        self.cells.chunks(in_a_line).enumerate().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::tests::TEXT;
    use super::*;

    fn two() -> (Sample, Sample) {
        let before = Sample::parse(TEXT).expect("an engine's");
        let more = "millpond_operation_writes_total 50\nmillpond_operation_gets_total 7\n\
            millpond_operation_scans_total 3\nmillpond_log_bytes_written_total 4096\n\
            millpond_log_checkpoint_age 900\nmillpond_log_capacity_effective 1000\n\
            millpond_buffer_pool_pages_dirty 16\nmillpond_wait_page_read_us_sum 4000\n\
            millpond_wait_page_read_us_count 2\n";
        let text =
            format!("{}{more}", TEXT.replace("_us_sum 900", "_us_sum 1900").replace("_us_count 3", "_us_count 5"))
                .replace("lsn_current_total 1000", "lsn_current_total 3048");
        let mut now = Sample::parse(&text).expect("an engine's");
        now.at = before.at + Duration::from_secs(2);
        (before, now)
    }

    #[test]
    fn rates_are_of_the_time_between_and_debts_of_the_later_moment() {
        let (before, now) = two();
        let block = Figures::between(&before, &now).block("sock");
        let words: Vec<&str> = block.split_whitespace().collect();
        let after = |name: &str| words.iter().position(|word| *word == name).map(|at| words[at + 1]);
        assert!(block.starts_with("millpond at sock, over 2.0 s\nrates    writes/s "), "{block}");
        assert_eq!((after("writes/s"), after("reads/s")), (Some("25.0"), Some("5.0")), "{block}");
        // Generated log, and written log: a block that is written twice counts twice.
        assert!(words.join(" ").contains(" log made/s 1.0 KiB log written/s 2.0 KiB "), "{block}");
        assert!(block.contains("log syncs/s ") && block.contains(" 90 % of 1000 B  dirty"), "{block}");
        assert!(block.contains("25 % of 64"), "{block}");
        // The class with the longest waiting time comes first.
        let waits = block.split_once("\nwaits    page_read ").expect("first").1;
        assert!(
            waits.contains("2.0 ms/s") && waits.contains("1.0 waits/s") && waits.contains("2.00 ms each"),
            "{block}"
        );
        assert!(waits.contains("\n         log_flush ") && waits.contains("0.50 ms each"), "{block}");
        assert!(block.ends_with("in each of the last 1 s, the newest last\n             2.5\n"), "{block}");
        assert!(block.lines().all(|line| line.chars().count() <= 80), "{block}");
    }

    #[test]
    fn widest_numbers_fit_and_a_restarted_engine_has_no_rate() {
        let wide: String =
            // A pool has 2^24 frames at most.
            TEXT.replace(" 1000\n", " 18446744073709551615\n").replace(" 64\n", " 16777216\n");
        let later = Sample::parse(&wide).expect("an engine's");
        let figures = Figures::between(&Sample::parse(TEXT).expect("an engine's"), &later);
        let block = figures.block(&"x".repeat(300));
        assert!(block.lines().all(|line| line.chars().count() <= 80), "{block}");
        let (mut anew, before) = two();
        anew.at = before.at + Duration::from_secs(1);
        let block = Figures::between(&before, &anew).block("sock");
        assert!(block.contains("writes/s                       0.0"), "{block}");
        assert!(block.contains("\nnow      no thread waits\nwaits    none\n"), "{block}");
    }

    #[test]
    fn what_is_near_a_limit_or_broken_is_marked() {
        let (before, now) = two();
        let marks = |now: &Sample| -> Vec<Mark> {
            let lines = Figures::between(&before, now).lines(WIDE);
            lines.into_iter().map(|(_, mark)| mark).filter(|mark| *mark != Mark::Calm).collect()
        };
        assert_eq!(marks(&now), [Mark::Near], "the age");
        let broken = format!("{TEXT}millpond_stalls_total 1\nmillpond_pace_redo_limit 5\n");
        let broken = Sample::parse(&broken).expect("an engine's");
        assert_eq!(marks(&broken), [Mark::Broken, Mark::Near], "a stall, and a limit");
    }

    /// Sixteen threads wait; of the few that waited before, some are done.
    #[test]
    fn waiters_are_shown_and_none_waits_longer_than_the_interval() {
        let of = |sum: u64, count: u64, waiting: u64, us: u64| {
            let waits = format!(
                "millpond_wait_log_space_us_sum {sum}\nmillpond_wait_log_space_us_count {count}\n\
                 millpond_waiting{{class=\"log_space\"}} {waiting}\n\
                 millpond_waiting_us{{class=\"log_space\"}} {us}\n"
            );
            Sample::parse(&format!("{TEXT}{waits}")).expect("an engine's")
        };
        let (before, mut now) = (of(0, 0, 2, 6_000_000), of(7_000_000, 2, 16, 16_000_000));
        now.at = before.at + Duration::from_secs(1);
        let block = Figures::between(&before, &now).block("sock");
        assert!(block.contains("\nnow      log_space           16 for 1000 ms\nwaits    log_space "), "{block}");
        assert!(
            block.contains(" 17000.0 ms/s ") && block.contains(" 2.0 waits/s ") && block.contains("3500.00 ms each")
        );
        let broken = |line: &&Line| line.1 == Mark::Broken;
        assert_eq!(Figures::between(&before, &now).lines(WIDE).iter().filter(broken).count(), 2, "{block}");
        // Their time was reported under another class while they lasted; it is capped by the interval.
        let (before, mut now) = (of(0, 0, 0, 0), of(160_000_000, 16, 0, 0));
        now.at = before.at + Duration::from_secs(1);
        let block = Figures::between(&before, &now).block("sock");
        assert!(block.contains(" 16000.0 ms/s ") && block.contains(" 10000.00 ms each"), "{block}");
        // None of them has ended: the strip's newest second must not look calm.
        let (before, mut now) = (of(0, 0, 16, 0), of(0, 0, 16, 16_000_000));
        now.at = before.at + Duration::from_secs(1);
        assert_eq!(Figures::between(&before, &now).slowest_ms.last(), Some(&1_000.0));
        // All of the time belongs to waits that have not ended.
        let before = of(0, 0, 2, 6_000_000);
        let mut now = of(0, 0, 2, 8_000_000);
        now.at = before.at + Duration::from_secs(1);
        let block = Figures::between(&before, &now).block("sock");
        assert!(block.contains(" 2000.0 ms/s ") && block.contains(" 0.0 waits/s "), "{block}");
    }

    #[test]
    fn classic_flushing_compares_the_age_with_its_own_limit() {
        let age = |modified: u64| {
            let text = format!("{TEXT}millpond_log_modified_age {modified}\nmillpond_log_max_modified_age_sync 1000\n");
            let now = Sample::parse(&text).expect("an engine's");
            let lines = Figures::between(&now, &now).lines(WIDE);
            lines.into_iter().find(|(line, _)| line.starts_with("debts")).expect("there")
        };
        assert!(age(790).0.contains(" 79 % of 1000 B"));
        assert_eq!([790, 800, 1_000].map(|modified| age(modified).1), [Mark::Calm, Mark::Near, Mark::Broken]);
    }

    #[test]
    fn the_first_look_has_no_rates_and_says_so() {
        let (_, now) = two();
        let block = Figures::between(&now, &now).block("sock");
        assert!(block.starts_with("millpond at sock\nrates    with the next look\ndebts    age "), "{block}");
        assert!(block.contains("\nwaits    with the next look\nslowest "), "{block}");
    }

    #[test]
    fn lines_in_few_columns_have_the_same_values_below_each_other() {
        let (before, now) = two();
        let figures = Figures::between(&before, &now);
        let words = |columns: usize| -> Vec<String> {
            let lines = figures.lines(columns);
            assert!(lines.iter().all(|(line, _)| line.chars().count() <= columns), "{lines:?}");
            let words = lines.iter().flat_map(|(line, _)| line.split_whitespace());
            words.map(str::to_owned).collect()
        };
        assert_eq!(words(NARROW), words(WIDE));
        assert_eq!(words(WIDE - 1), words(WIDE));
        assert_eq!(figures.head(&"/long".repeat(30), NARROW).len(), NARROW);
    }
}
