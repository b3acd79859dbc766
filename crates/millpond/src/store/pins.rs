//! Whether a backup has pinned slots.

use std::collections::BTreeSet;

use crate::base::ids::SlotId;

/// The pins of a backup, as a whole.
#[derive(Default)]
pub(super) struct Pins {
    pub(super) is_there: bool,
    /// Writers needed the slots.
    pub(super) is_broken: bool,
    /// In place: slots that were being overwritten when the map was frozen.
    pub(super) overwritten: BTreeSet<SlotId>,
}
