//! CPU time that others took: other programs, the kernel's own threads, and other virtual machines.
//!
//! CAN-2  Time counts as taken only as far as threads of this process were runnable and had no CPU. So an engine whose
//!        threads sleep is not excused by a busy neighbour.
//! CAN-3  Nothing counts as taken by other programs in a window in which they used less than a quarter of the CPUs. So
//!        threads of this process that keep each other from the CPUs are not excused.
//! CAN-4  Of the time that the hypervisor stole, this process lost the part that is its part of the CPUs' work. If that
//!        is a tenth of the CPUs or more, the whole window is taken: a stolen CPU also stops the thread that others
//!        wait for, and the completion of I/O. (Measured 2026-11 on two CPUs: with a fifth stolen, the rate of durable
//!        updates fell by a half, and writes and syncs took 1.6 times as long.)
//!
//! A CPU canary that sleeps most of the time is woken soon even on a busy machine, so it does not show that the
//! engine's threads have to share. Every 100 ms a thread therefore reads the counters of the CPUs and of each thread of
//! this process (`Look`). What lies between two looks is a window. Others' time in it is the time of the CPUs less
//! the idle time, the stolen time and this process's own; it is divided by the number of CPUs. The taken part of a
//! window stands at its begin: where in the window others ran is not known.
//!
//! Fields after the kernel's `Documentation/filesystems/proc.rst` (`stat`) and
//! `Documentation/scheduler/sched-stats.rst` (`schedstat`).

use std::collections::VecDeque;
use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::spans::{Span, union};

/// Others that used less than this share of the CPUs took nothing.
const OTHERS_MIN: f64 = 0.25;

/// From this stolen share of the CPUs on the whole window is taken.
const STOLEN_MIN: f64 = 0.1;

/// The windows that a thread's wait can reach back to: ten seconds.
const OPEN_WINDOWS: usize = 100;

/// Nanoseconds in a tick of `/proc/stat`: the kernel shows user space 100 ticks a second on every machine.
const TICK_NS: u64 = 10_000_000;

/// The counters at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    at_ns: u64,
    /// Idle time of the CPUs that this process may use.
    idle_ns: u64,
    /// Time of these CPUs that the hypervisor gave to other machines while there was work.
    stolen_ns: u64,
    /// CPU time of this process.
    own_ns: u64,
    /// Of each thread of this process: its number, and how long it was runnable without a CPU, sorted by number.
    waited_ns: Vec<(u32, u64)>,
}

impl Look {
    /// Reads the counters: a small file for each thread of this process, some 10 us each. `None`: the system does not
    /// show them.
    pub(super) fn read(at_ns: u64, cpus: &CpuSet) -> Option<Look> {
        let own = clock_gettime(ClockId::ProcessCPUTime);
        let own_ns = u64::try_from(own.tv_sec).ok()? * 1_000_000_000 + u64::try_from(own.tv_nsec).ok()?;
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let (idle_ns, stolen_ns) = idle_and_stolen_ns(&stat, |cpu| cpu < CpuSet::MAX_CPU && cpus.is_set(cpu))?;
        let threads = fs::read_dir("/proc/self/task").ok()?.flatten();
        let mut waited_ns: Vec<(u32, u64)> = threads
            .filter_map(|thread| {
                let number = thread.file_name().to_str()?.parse().ok()?;
                let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
                Some((number, text.split_ascii_whitespace().nth(1)?.parse().ok()?))
            })
            .collect();
        waited_ns.sort_unstable();
        Some(Look { at_ns, idle_ns, stolen_ns, own_ns, waited_ns })
    }

    /// How long each thread was runnable without a CPU since the look `before`, in ns. A new thread has waited since
    /// its begin.
    fn waits_since<'a>(&'a self, before: &'a Look) -> impl Iterator<Item = u64> + 'a {
        self.waited_ns.iter().map(|&(number, waited_ns)| {
            let known = before.waited_ns.binary_search_by_key(&number, |&(number, _)| number);
            waited_ns.saturating_sub(known.map_or(0, |at| before.waited_ns[at].1))
        })
    }
}

/// The CPUs that this process may use.
pub(super) fn own_cpus() -> Option<CpuSet> {
    sched_getaffinity(None).ok()
}

/// Of the chosen CPUs in the text of `/proc/stat`: the time without work, or waiting for I/O only, and the stolen time.
fn idle_and_stolen_ns(stat: &str, is_own: impl Fn(usize) -> bool) -> Option<(u64, u64)> {
    let (mut idle, mut stolen) = (0, 0);
    for line in stat.lines() {
        let mut words = line.split_ascii_whitespace();
        let cpu: Option<usize> = words.next().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
        if cpu.is_some_and(&is_own) {
            // user, nice, system, idle, iowait, irq, softirq, steal
            let ticks: Vec<u64> = words.take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
            idle += ticks.get(3)? + ticks.get(4)?;
            stolen += ticks.get(7)?;
        }
    }
    Some((idle * TICK_NS, stolen * TICK_NS))
}

/// A window between two looks. All times but the wait are those of one CPU on average.
#[derive(Clone, Copy, Debug)]
struct Window {
    span: Span,
    own_ns: u64,
    others_ns: u64,
    stolen_ns: u64,
    /// Time for which threads of this process were runnable without a CPU, added up.
    waited_ns: u64,
}

impl Window {
    /// The taken part.
    fn taken(&self) -> Span {
        let share = |ns: u64| ns as f64 / self.span.len_ns().max(1) as f64;
        let worked_ns = (self.own_ns + self.others_ns).max(1);
        let stolen_ns = (self.stolen_ns as f64 * (self.own_ns as f64 / worked_ns as f64)) as u64;
        let others_ns = if share(self.others_ns) < OTHERS_MIN { 0 } else { self.others_ns.min(self.waited_ns) };
        let taken_ns = if share(stolen_ns) < STOLEN_MIN { stolen_ns + others_ns } else { u64::MAX };
        Span::new(self.span.from_ns, self.span.from_ns + taken_ns.min(self.span.len_ns()))
    }
}

/// The time that others took in a run.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// The last windows, in order: a wait that ends later may still reach back into them.
    open: VecDeque<Window>,
    /// The taken parts of earlier windows: 16 bytes for each tenth of a second in which others took time.
    closed: Vec<Span>,
}

impl Taken {
    /// Adds the window between two looks at this number of CPUs.
    pub(super) fn add(&mut self, before: &Look, now: &Look, cpus: u32) {
        let span = Span::new(before.at_ns, now.at_ns);
        let of_one_cpu = |now: u64, before: u64| now.saturating_sub(before) / u64::from(cpus.max(1));
        let own_ns = of_one_cpu(now.own_ns, before.own_ns);
        let stolen_ns = of_one_cpu(now.stolen_ns, before.stolen_ns);
        let idle_ns = of_one_cpu(now.idle_ns, before.idle_ns);
        let others_ns = span.len_ns().saturating_sub(own_ns + stolen_ns + idle_ns);
        self.open.push_back(Window { span, own_ns, others_ns, stolen_ns, waited_ns: 0 });
        now.waits_since(before).for_each(|waited_ns| self.reach_back(waited_ns));
        if self.open.len() > OPEN_WINDOWS {
            self.closed.extend(self.open.pop_front().map(|window| window.taken()).filter(|taken| taken.len_ns() > 0));
        }
    }

    /// The kernel counts a wait when it ends. So a wait longer than the last window began in one before.
    fn reach_back(&mut self, mut waited_ns: u64) {
        for window in self.open.iter_mut().rev() {
            let part_ns = waited_ns.min(window.span.len_ns());
            window.waited_ns += part_ns;
            waited_ns -= part_ns;
            if waited_ns == 0 {
                break;
            }
        }
    }

    /// These spans, as taken.
    #[cfg(test)]
    pub(crate) fn of(spans: Vec<Span>) -> Taken {
        Taken { open: VecDeque::new(), closed: spans }
    }

    /// The taken time, as sorted, disjoint spans.
    pub fn spans(&self) -> Vec<Span> {
        let open = self.open.iter().map(Window::taken).filter(|taken| taken.len_ns() > 0);
        union(self.closed.iter().copied().chain(open).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Looks each 100 ms at two CPUs that are never idle. Each item: this process's CPU time in the window, and the
    /// waits of its threads that ended in it, in ms.
    fn taken(windows: &[(u64, &[u64])]) -> Vec<Span> {
        taken_beside(windows, 0)
    }

    /// The same, with a stolen time of this many ms in each window.
    fn taken_beside(windows: &[(u64, &[u64])], stolen_ms: u64) -> Vec<Span> {
        let mut taken = Taken::default();
        let mut before = Look::default();
        for (number, (own_ms, waits_ms)) in windows.iter().enumerate() {
            let mut now = before.clone();
            now.at_ns += 100 * MS;
            now.own_ns += own_ms * MS;
            now.stolen_ns += stolen_ms * MS;
            now.waited_ns.resize(now.waited_ns.len().max(waits_ms.len()), (0, 0));
            for (thread, wait_ms) in waits_ms.iter().enumerate() {
                now.waited_ns[thread].0 = thread as u32;
                now.waited_ns[thread].1 += wait_ms * MS;
            }
            assert_eq!(now.at_ns, (number as u64 + 1) * 100 * MS);
            taken.add(&before, &now, 2);
            before = now;
        }
        taken.spans()
    }

    fn spans_ms(spans: &[(u64, u64)]) -> Vec<Span> {
        spans.iter().map(|&(from, to)| Span::new(from * MS, to * MS)).collect()
    }

    #[test]
    fn others_take_what_they_used_while_own_threads_waited() {
        // Of 200 ms of two CPUs others used 100: half of the window.
        assert_eq!(taken(&[(200, &[]), (100, &[70, 60])]), spans_ms(&[(100, 150)]));
        assert_eq!(taken(&[(100, &[20, 10])]), spans_ms(&[(0, 30)]), "no more than own threads waited");
    }

    #[test]
    fn sleeping_threads_and_own_crowds_are_not_excused() {
        assert_eq!(taken(&[(0, &[0, 0]), (0, &[])]), [], "others used both CPUs; no thread wanted one");
        assert_eq!(taken(&[(199, &[90, 90, 90])]), [], "own threads waited for each other");
        assert_eq!(taken(&[(152, &[90, 90])]), [], "under a quarter");
    }

    #[test]
    fn wait_counts_in_the_windows_in_which_it_was() {
        // A thread waits for 138 ms, and the kernel counts that at its end; others had both CPUs, then most of them.
        assert_eq!(taken(&[(200, &[0]), (0, &[0]), (40, &[138])]), spans_ms(&[(100, 138), (200, 280)]));
    }

    #[test]
    fn windows_of_long_ago_keep_their_taken_time() {
        let spans = taken(&vec![(100, &[100_u64] as &[u64]); 3 * OPEN_WINDOWS]);
        assert_eq!((spans.len(), spans.iter().map(|span| span.len_ns()).sum::<u64>()), (300, 300 * 50 * MS));
    }

    #[test]
    fn stolen_time_is_lost_by_the_part_that_worked() {
        assert_eq!(taken_beside(&[(190, &[])], 10), spans_ms(&[(0, 5)]), "little: only itself");
        assert_eq!(taken_beside(&[(180, &[])], 20), spans_ms(&[(0, 100)]), "a tenth: the window");
        assert_eq!(taken_beside(&[(90, &[])], 20), spans_ms(&[(0, 5)]), "half of it was stolen from others");
        assert_eq!(taken_beside(&[(0, &[])], 100), [], "this process had no work");
    }

    #[test]
    fn idle_time_is_that_of_own_cpus() {
        let stat = "cpu  9 9 9 99 9 0 0 4 0 0\ncpu0 1 2 3 40 5 0 0 1 0 0\ncpu1 1 2 3 600 7 0 0 3 0 0\nintr 5 cpu\n";
        assert_eq!(idle_and_stolen_ns(stat, |_| true), Some((652 * TICK_NS, 4 * TICK_NS)));
        assert_eq!(idle_and_stolen_ns(stat, |cpu| cpu == 1), Some((607 * TICK_NS, 3 * TICK_NS)));
        assert_eq!(idle_and_stolen_ns("cpu0 1 2", |_| true), None);
    }

    #[test]
    fn look_at_this_machine_sees_this_thread() {
        let cpus = own_cpus().unwrap();
        let look = Look::read(5, &cpus).unwrap();
        let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert!(look.waited_ns.iter().any(|&(thread, _)| thread == me));
        assert!(look.own_ns > 0);
    }
}
