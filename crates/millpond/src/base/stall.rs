//! A slow operation, and where its time went.

use std::fmt;
use std::time::Duration;

use super::ids::{PageId, SpaceId};
use super::waits::WaitClass;

/// A slow operation, and where its time went.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stall {
    /// Which operation.
    pub operation: &'static str,
    /// How long it took, to a few milliseconds; at least as long as it waited.
    pub elapsed: Duration,
    /// When it ended: so long after the database was opened, to a few milliseconds.
    pub ended: Duration,
    /// What it waited for, and how long; classes without a wait are left out.
    pub waits: Vec<(WaitClass, Duration)>,
    /// CPU that its thread used, and the time for which it was runnable and had none: at most what is left beside its
    /// waits, for the system does not tell how much of either came within these. `None` where it tells neither.
    pub cpu: Option<(Duration, Duration)>,
    /// The latch for which it waited longest, if it waited for any.
    pub latch: Option<LatchWait>,
}

/// A wait for a page's latch. It is a part of [`WaitClass::PageLatch`] or, where whoever had the latch waited for the
/// window, of [`WaitClass::RecentClosed`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LatchWait {
    /// The space that the page is of: a tree has one. 0: the catalog; 1: undo pages.
    pub space: u32,
    /// The page's number in its space. 0: the root of a tree.
    pub page: u32,
    /// Levels between it and the leaves of its tree; 0: it is a leaf.
    pub level: u8,
    /// How long it was waited for.
    pub time: Duration,
    /// The tree, as `index 'k' of table 't'`; `None` where it is not open any more, and for undo pages.
    pub tree: Option<String>,
}

impl LatchWait {
    /// For `ns` nanoseconds, for a page of this level; the tree is not known yet.
    pub(crate) fn new(page: PageId, level: u8, ns: u64) -> LatchWait {
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
