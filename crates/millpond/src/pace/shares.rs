//! How writes for free frames and writes for the log share the device: each gets at least a fourth of it while it has
//! work.
//!
//! Frames come first: a thread that needs one waits now, while a log deadline is mostly far away. When the log is
//! nearly full, the log comes first. The second gets one page for each three of the first that were written while the
//! second had work.

/// The smallest part of each while both have work.
const SHARE: f64 = 0.25;

/// The second's turn comes at this many pages of arrears.
const TURN_PAGES: f64 = 32.0;

/// The purpose of a page write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// Free frames.
    Frames,
    /// The log.
    Log,
}

/// The arrears of each of the two, in pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shares {
    behind: [f64; 2],
}

impl Shares {
    /// The purpose of the next write, if both have work. `urgent`: the log is nearly full.
    pub(crate) fn next(&self, urgent: bool) -> For {
        let (first, second) = if urgent { (For::Log, For::Frames) } else { (For::Frames, For::Log) };
        if self.behind[second as usize] >= TURN_PAGES { second } else { first }
    }

    /// Records that `pages` pages are written for `what`, while both have work.
    pub(super) fn written(&mut self, what: For, pages: f64) {
        let [frames, log] = &mut self.behind;
        let (own, other) = if what == For::Frames { (frames, log) } else { (log, frames) };
        *own = (*own - pages).max(0.0);
        *other = (*other + pages * SHARE / (1.0 - SHARE)).min(2.0 * TURN_PAGES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_fourth_while_both_have_work() {
        for (urgent, part) in [(false, 0.75), (true, 0.25)] {
            for lot in [4.0, 64.0] {
                let mut shares = Shares::default();
                let (mut frames, mut in_a_row, mut longest, mut last) = (0.0, 0.0, 0.0_f64, For::Log);
                for _ in 0..1000 {
                    let next = shares.next(urgent);
                    shares.written(next, lot);
                    in_a_row = if next == last { in_a_row + lot } else { lot };
                    longest = longest.max(in_a_row);
                    last = next;
                    frames += if next == For::Frames { lot } else { 0.0 };
                }
                let found = frames / (1000.0 * lot);
                assert!((found - part).abs() < 0.09, "{urgent}, lots of {lot}: {found}");
                assert!(longest <= 256.0, "each is served soon: {longest}");
            }
        }
    }
}
