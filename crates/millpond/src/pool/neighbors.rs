//! The dirty neighbours that are written with a page that is due. On a disk that seeks, writing them costs next to
//! nothing. This helps only where a page's number tells its place on the device.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::buffer_pool::Pool;
use super::pin::Pin;
use crate::base::ids::{FrameId, PageId};

/// The pages that are written with a page that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FlushNeighbors {
    /// None.
    #[default]
    None,
    /// All dirty pages of its area: 64 pages, or a sixteenth of the pool. As in InnoDB 5.5.
    Area,
    /// The dirty pages of its area without a gap up to it. As in InnoDB since 5.6.
    Seq,
}

/// Number of pages of an area.
const AREA: usize = 64;

/// The least number of pages of an area, in a small pool.
const AREA_MIN: usize = 4;

impl FlushNeighbors {
    /// The numbers of the pages that are written with page `number`, itself included; `is_dirty` tells of the others.
    fn around(self, number: u32, area: u32, is_dirty: impl Fn(u32) -> bool) -> Vec<u32> {
        let first = number - number % area;
        let (before, after) = (first..number, (number..=first.saturating_add(area - 1)).skip(1));
        let mut numbers: Vec<u32> = match self {
            FlushNeighbors::None => Vec::new(),
            FlushNeighbors::Area => before.chain(after).filter(|number| is_dirty(*number)).collect(),
            FlushNeighbors::Seq => {
                let before = before.rev().take_while(|number| is_dirty(*number));
                before.chain(after.take_while(|number| is_dirty(*number))).collect()
            }
        };
        numbers.push(number);
        numbers.sort_unstable();
        numbers
    }
}

impl Pool {
    /// Whether no other thread has the page pinned. A thread that has may be changing it, and a neighbour is not worth
    /// a wait for that latch. InnoDB leaves such pages out, too.
    fn is_pinned_once(&self, pin: &Pin<'_>) -> bool {
        // Relaxed: a guess, which may be outdated at once.
        self.frame(pin.frame_id()).pins.load(Ordering::Relaxed) == 1
    }

    /// The pinned pages of `due`, each followed by its neighbours of the same instance, up to `most` pages. Pages
    /// beyond that are unpinned. Also returns the number of neighbours.
    pub(crate) fn with_neighbors<'p>(
        &'p self,
        due: Vec<Pin<'p>>,
        which: FlushNeighbors,
        most: usize,
    ) -> (Vec<Pin<'p>>, usize) {
        let area = u32::try_from((self.len() / 16).clamp(AREA_MIN, AREA)).expect("64 at most");
        let (mut pages, mut neighbors): (Vec<Pin<'p>>, usize) = (Vec::with_capacity(most), 0);
        let mut taken: HashSet<FrameId> = HashSet::with_capacity(most);
        for pin in due {
            let instance = self.number_of_instance(pin.frame_id());
            let Some(id) = self.frame(pin.frame_id()).holds().filter(|_| pages.len() < most) else { break };
            if !taken.insert(pin.frame_id()) {
                continue;
            }
            pages.push(pin);
            let beside = |number| self.pin_dirty_page(PageId::new(id.space(), number));
            let numbers = which.around(id.number(), area, |number| beside(number).is_some());
            for number in numbers.into_iter().filter(|number| *number != id.number()) {
                let other = beside(number).filter(|other| self.number_of_instance(other.frame_id()) == instance);
                let other = other.filter(|other| pages.len() < most && self.is_pinned_once(other));
                let Some(other) = other else { continue };
                if taken.insert(other.frame_id()) {
                    pages.push(other);
                    neighbors += 1;
                }
            }
        }
        (pages, neighbors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_has_all_that_are_dirty_and_a_sequence_has_no_gap() {
        let dirty = [64, 65, 70, 71, 73, 127, 128];
        let around = |which: FlushNeighbors, number| which.around(number, 64, |number| dirty.contains(&number));
        assert_eq!(around(FlushNeighbors::None, 72), [72]);
        assert_eq!(around(FlushNeighbors::Area, 72), [64, 65, 70, 71, 72, 73, 127]);
        assert_eq!(around(FlushNeighbors::Seq, 72), [70, 71, 72, 73]);
        assert_eq!(around(FlushNeighbors::Seq, 64), [64, 65], "not those of the area before");
        assert_eq!(around(FlushNeighbors::Seq, 127), [127], "nor of the next");
        assert_eq!(around(FlushNeighbors::Area, u32::MAX), [u32::MAX]);
    }
}
