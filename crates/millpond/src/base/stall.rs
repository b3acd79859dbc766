//! A slow operation, and how its time was spent.

use std::fmt;
use std::time::Duration;

use super::ids::{PageId, SpaceId};
use super::wait_class::WaitClass;

/// A slow operation, and how its time was spent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stall {
    /// The kind of operation.
    pub operation: &'static str,
    /// The duration, to a few milliseconds; at least the sum of its waits.
    pub elapsed: Duration,
    /// The time from the opening of the database to the end of the operation, to a few milliseconds.
    pub ended: Duration,
    /// Each wait class that the operation waited for, and for how long; classes without a wait are left out.
    pub waits: Vec<(WaitClass, Duration)>,
    /// CPU time of the operation's thread, and the time for which that was runnable without a CPU. Both are capped at
    /// the time outside of waits, for the system does not tell which part fell into waits. `None`: the system tells
    /// neither.
    pub cpu: Option<(Duration, Duration)>,
    /// The latch with the longest wait, if the operation waited for any.
    pub latch: Option<LatchWait>,
}

/// A wait for a page's latch. It is part of [`WaitClass::PageLatch`], or of [`WaitClass::RecentClosed`] where the
/// latch's holder itself waited for the window.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LatchWait {
    /// The page's space: each tree has its own. 0: the catalog; 1: undo pages.
    pub space: u32,
    /// The page's number in its space. 0: the root of a tree.
    pub page: u32,
    /// The page's level above the leaves of its tree; 0: a leaf.
    pub level: u8,
    /// The duration of the wait.
    pub time: Duration,
    /// The tree, as `index 'k' of table 't'`; `None` where it is no longer open, and for undo pages.
    pub tree: Option<String>,
}

impl LatchWait {
    /// A wait of `ns` nanoseconds for a page of this level. The tree is filled in later.
    pub(super) fn new(page: PageId, level: u8, ns: u64) -> LatchWait {
        let time = Duration::from_nanos(ns);
        LatchWait { space: page.space().0, page: page.number(), level, time, tree: None }
    }
}

impl fmt::Display for LatchWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match (self.space == SpaceId::UNDO.0, self.page, self.level) {
            (true, ..) => "undo page",
            (_, 0, _) => "root",
            (_, _, 0) => "leaf",
            _ => "inner page",
        };
        write!(f, "{kind} {}:{}", self.space, self.page)?;
        if let Some(tree) = &self.tree {
            write!(f, " of {tree}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        write!(f, "{} took {:.1} ms:", self.operation, ms(self.elapsed))?;
        let cpu = self.cpu.map(|(cpu, runnable)| [("cpu", cpu), ("runnable", runnable)]);
        let waits = self.waits.iter().map(|(class, time)| (class.name(), *time));
        for (name, time) in waits.chain(cpu.into_iter().flatten()) {
            let percent = ms(time) * 100.0 / ms(self.elapsed).max(1e-6);
            write!(f, " {name} {:.1} ms ({percent:.0} %)", ms(time))?;
        }
        if let Some(latch) = &self.latch {
            write!(f, "; longest latch {:.1} ms: {latch}", ms(latch.time))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_stall_tells_each_share_and_the_longest_latch() {
        let ms = Duration::from_millis;
        let waits = vec![(WaitClass::FreeFrame, ms(90)), (WaitClass::PageRead, ms(5))];
        let cpu = Some((ms(4), ms(1)));
        let mut stall = Stall { operation: "get", elapsed: ms(100), ended: ms(0), waits, cpu, latch: None };
        let line = "get took 100.0 ms: free_frame 90.0 ms (90 %) page_read 5.0 ms (5 %) cpu 4.0 ms (4 %) runnable 1.0 ms (1 %)";
        assert_eq!(stall.to_string(), line);
        stall.latch = Some(LatchWait::new(PageId::new(SpaceId(7), 12), 0, 2_500_000));
        assert_eq!(stall.to_string(), format!("{line}; longest latch 2.5 ms: leaf 7:12"));
    }

    #[test]
    fn a_latch_is_told_by_what_its_page_is() {
        let of = |space, page, level, tree: Option<&str>| {
            let latch = LatchWait::new(PageId::new(SpaceId(space), page), level, 1_000_000);
            LatchWait { tree: tree.map(str::to_owned), ..latch }.to_string()
        };
        assert_eq!(of(7, 0, 2, Some("tree 't'")), "root 7:0 of tree 't'");
        assert_eq!(of(7, 0, 0, None), "root 7:0", "a leaf that is the root");
        assert_eq!(of(7, 3, 1, Some("table 't'")), "inner page 7:3 of table 't'");
        assert_eq!(of(7, 3, 0, None), "leaf 7:3");
        assert_eq!(of(1, 3, 0, None), "undo page 1:3");
    }
}
