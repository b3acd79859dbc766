//! Into which slot an image goes: the one decision in which the page stores differ.

use super::slots::Slots;
use crate::base::ids::{Lsn, SlotId};

/// Where images go, and how the map tells them apart.
pub(crate) trait Placement: Send + Sync {
    /// A slot for each image; `current` are the slots of the pages' images, if they have one. `None`: too few are free.
    fn slots(&self, free: &mut Slots, current: &[Option<SlotId>]) -> Option<Vec<SlotId>>;

    /// The tag that the map keeps of an image.
    fn tag(&self, page_lsn: Lsn) -> u64;
}
