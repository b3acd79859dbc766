//! In place: a page keeps the slot of its first image.
//!
//! The classic design, without doublewrite: half the data file, and no map records but for new pages. A write that a
//! crash tears leaves a page that can no longer be read: it is found by its checksum and reported. A lost write is
//! found only where the log knows the page.

use super::placement::Placement;
use super::slots::Slots;
use crate::base::ids::{Lsn, SlotId};

/// The classic page store.
pub(crate) struct InPlace;

impl Placement for InPlace {
    fn slots(&self, free: &mut Slots, current: &[Option<SlotId>]) -> Option<Vec<SlotId>> {
        let mut fresh = free.take_many(current.iter().filter(|slot| slot.is_none()).count())?.into_iter();
        current.iter().map(|slot| slot.or_else(|| fresh.next())).collect()
    }

    fn tag(&self, _page_lsn: Lsn) -> u64 {
        0
    }
}
