//! Copy-on-write: an image never overwrites the previous image of its page.
//!
//! Whatever a crash tears, the image that the map names is whole. The map's tag distinguishes an image from an earlier
//! one in the same slot, which reveals a lost write.

use super::map::tag_of;
use super::placement::Placement;
use super::slots::Slots;
use crate::base::ids::{Lsn, SlotId};

/// The default page store.
pub(crate) struct CopyOnWrite;

impl Placement for CopyOnWrite {
    fn slots(&self, free: &mut Slots, current: &[Option<SlotId>]) -> Option<Vec<SlotId>> {
        free.take_many(current.len())
    }

    fn tag(&self, page_lsn: Lsn) -> u64 {
        tag_of(page_lsn)
    }
}
