//! The CPU that the system lets this process use.
//!
//! The minimum of two limits: the CPUs in the process's affinity mask, and the smallest quota of the control groups
//! above it (version 1 and 2). A quota may be a fraction: 150 ms in 100 ms is 1.5 CPUs. The machine's number of CPUs
//! ignores both. A process that sizes its spinning or its threads by that number is stopped when its quota is used up.
//!
//! After the kernel's `Documentation/admin-guide/cgroup-v2.rst` (`cpu.max`, `cpu.stat`) and
//! `Documentation/scheduler/sched-bwc.rst` (`cpu.cfs_quota_us`, `cpu.cfs_period_us`).

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::thread::sched_getaffinity;
use rustix::time::{ClockId, clock_gettime};

use super::aligned::to_u64;

/// The CPU that the system grants.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Cpus {
    /// CPUs that the process may run on.
    pub affinity: f64,
    /// The smallest quota of a control group, in CPUs; `None`: there is none.
    pub quota: Option<f64>,
    /// Periods of that quota so far.
    pub periods: u64,
    /// Periods in which the system stopped the process because it had used up the quota.
    pub throttled: u64,
}

/// CPU time, in us, that this process has used since it began, in user mode and in the kernel.
pub(crate) fn used_us() -> u64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    let whole = u64::try_from(used.tv_sec).unwrap_or(0).saturating_mul(1_000_000);
    whole.saturating_add(u64::try_from(used.tv_nsec).unwrap_or(0) / 1000)
}

/// Nanoseconds for which this thread ran, and for which it was runnable without a CPU.
pub(super) fn schedstat() -> Option<(u64, u64)> {
    // Opened at each call: one file kept open in each thread would be too many in a process of many threads.
    let mut text = [0; 64];
    let len = File::open("/proc/thread-self/schedstat").ok()?.read_at(&mut text, 0).ok()?;
    let mut numbers = str::from_utf8(&text[..len]).ok()?.split_ascii_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

impl Cpus {
    /// Reads the limits: some small files of `/proc` and `/sys`, about 50 microseconds.
    pub fn read() -> Cpus {
        let affinity = sched_getaffinity(None).map_or(1, |set| set.count());
        let file = |path: &str| std::fs::read_to_string(path).ok();
        Self::from(f64::from(affinity), file)
    }

    /// CPUs that the process can keep busy, with fractions.
    pub fn effective(&self) -> f64 {
        self.quota.map_or(self.affinity, |quota| quota.min(self.affinity))
    }

    /// [`effective`](Self::effective) in hundredths of a CPU, rounded.
    pub(crate) fn effective_pct(&self) -> u64 {
        whole(self.effective() * 100.0)
    }

    /// CPUs in the process's affinity mask.
    pub(crate) fn count(&self) -> u64 {
        whole(self.affinity)
    }

    /// As [`read`](Self::read), with the contents of files from `file`.
    fn from(affinity: f64, file: impl Fn(&str) -> Option<String>) -> Cpus {
        let mut cpus = Cpus { affinity, quota: None, periods: 0, throttled: 0 };
        let groups = file("/proc/self/cgroup").unwrap_or_default();
        let mounts = file("/proc/self/mountinfo").unwrap_or_default();
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':');
            let (_, Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
            let unified = controllers.is_empty();
            if !unified && !controllers.split(',').any(|name| name == "cpu") {
                continue;
            }
            let Some(mount) = Mount::find(&mounts, unified) else { continue };
            for directory in mount.directories(path) {
                let quota = if unified {
                    file(&format!("{directory}/cpu.max")).and_then(|text| quota_v2(&text))
                } else {
                    let number = |name: &str| file(&format!("{directory}/{name}"))?.trim().parse::<f64>().ok();
                    number("cpu.cfs_quota_us").zip(number("cpu.cfs_period_us")).and_then(|(q, p)| share(q, p))
                };
                let Some(quota) = quota else { continue };
                if cpus.quota.is_none_or(|smallest| quota < smallest) {
                    cpus.quota = Some(quota);
                    let stat = file(&format!("{directory}/cpu.stat")).unwrap_or_default();
                    cpus.periods = counter(&stat, "nr_periods");
                    cpus.throttled = counter(&stat, "nr_throttled");
                }
            }
        }
        cpus
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few CPUs, or hundredths of them")]
fn whole(number: f64) -> u64 {
    number.round().max(0.0) as u64
}

fn share(quota_us: f64, period_us: f64) -> Option<f64> {
    (quota_us > 0.0 && period_us > 0.0).then_some(quota_us / period_us)
}

/// Parses `max 100000` or `150000 100000`.
fn quota_v2(text: &str) -> Option<f64> {
    let mut numbers = text.split_ascii_whitespace();
    let (quota, period) = (numbers.next()?, numbers.next()?);
    share(quota.parse().ok()?, period.parse().ok()?)
}

fn counter(stat: &str, name: &str) -> u64 {
    let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

/// Where a hierarchy of control groups is mounted, and which of its groups the mount shows as its root.
struct Mount<'m> {
    root: &'m str,
    point: &'m str,
}

impl<'m> Mount<'m> {
    /// Fields 4 and 5 of a line of `mountinfo` are root and mount point. Type, source and options follow after ` - `.
    fn find(mounts: &'m str, unified: bool) -> Option<Mount<'m>> {
        mounts.lines().find_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let mut about = after.split(' ');
            let (kind, _, options) = (about.next()?, about.next()?, about.next().unwrap_or(""));
            let wanted =
                if unified { kind == "cgroup2" } else { kind == "cgroup" && options.split(',').any(|o| o == "cpu") };
            let mut fields = before.split(' ').skip(3);
            wanted.then_some(Mount { root: fields.next()?, point: fields.next()? })
        })
    }

    /// The directories of the group at `path` and of all groups above it.
    fn directories(&self, path: &str) -> Vec<String> {
        // In a container the mount may show the container's own group as its root.
        let below = path.strip_prefix(self.root.trim_end_matches('/')).unwrap_or("");
        let below = below.trim_matches('/');
        let mut directories = vec![self.point.to_owned()];
        for part in below.split('/').filter(|part| !part.is_empty() && *part != "..") {
            let last = directories.last().map_or("", String::as_str);
            directories.push(format!("{last}/{part}"));
        }
        directories
    }
}

/// The number of threads that can run at the same time: effective CPUs, rounded, at least 1.
pub(crate) fn threads(cpus: &Cpus) -> usize {
    let rounded = cpus.effective().round().max(1.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and the number of CPUs")]
    let threads = rounded as usize;
    debug_assert!(to_u64(threads) < 1 << 20);
    threads
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn cpus(affinity: f64, files: &[(&str, &str)]) -> Cpus {
        let files: BTreeMap<_, _> = files.iter().copied().collect();
        Cpus::from(affinity, |path| files.get(path).map(|text| (*text).to_owned()))
    }

    const V2: (&str, &str) =
        ("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n");

    #[test]
    fn without_groups_the_affinity_counts() {
        let found = cpus(6.0, &[]);
        assert_eq!((found.effective(), found.quota), (6.0, None));
        assert_eq!(cpus(6.0, &[V2, ("/proc/self/cgroup", "0::/\n")]).effective(), 6.0);
    }

    #[test]
    fn the_smallest_quota_of_all_levels_counts_with_its_fraction() {
        let found = cpus(
            8.0,
            &[
                V2,
                ("/proc/self/cgroup", "0::/system.slice/db.service\n"),
                ("/sys/fs/cgroup/system.slice/cpu.max", "150000 100000\n"),
                ("/sys/fs/cgroup/system.slice/cpu.stat", "usage_usec 5\nnr_periods 40\nnr_throttled 7\n"),
                ("/sys/fs/cgroup/system.slice/db.service/cpu.max", "max 100000\n"),
            ],
        );
        assert_eq!((found.effective(), found.periods, found.throttled), (1.5, 40, 7));
        assert_eq!((threads(&found), found.count(), found.effective_pct()), (2, 8, 150));
        assert_eq!(threads(&Cpus { quota: Some(0.2), ..found }), 1);
    }

    #[test]
    fn version_1_in_a_container_is_found_below_the_mounts_root() {
        let files = [
            ("/proc/self/cgroup", "5:cpu,cpuacct:/docker/abc/inner\n4:memory:/docker/abc\n"),
            (
                "/proc/self/mountinfo",
                "41 30 0:31 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
                 40 30 0:30 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n",
            ),
            ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_quota_us", "-1\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_period_us", "100000\n"),
        ];
        assert_eq!(cpus(16.0, &files).effective(), 4.0);
        assert_eq!(cpus(3.0, &files).effective(), 3.0);
    }

    #[test]
    fn nonsense_is_no_quota() {
        for text in ["", "max", "0 100000", "x 100000", "100000 0", "-5 100000"] {
            assert_eq!(quota_v2(text), None, "{text}");
        }
        assert_eq!(counter("nr_periods x\n", "nr_periods"), 0);
    }

    #[test]
    fn this_machine_grants_something() {
        assert!(Cpus::read().effective() > 0.0 && used_us() > 0);
    }
}
