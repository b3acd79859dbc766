//! Chooses the slot of an image: the only decision in which the page stores differ.

use super::slots::Slots;
use crate::base::ids::{Lsn, SlotId};

/// Where images go, and how the map distinguishes them.
pub(crate) trait Placement: Send + Sync {
    /// A slot for each image. `current` are the slots of the pages' previous images, if any. `None`: too few slots are
    /// free.
    fn slots(&self, free: &mut Slots, current: &[Option<SlotId>]) -> Option<Vec<SlotId>>;

    /// The image's tag in the map.
    fn tag(&self, page_lsn: Lsn) -> u64;
}
