//! The page store: from a page id to an image on a device.
//!
//! Each image goes to a slot of the data file, which [`placement`] chooses. The **map** names each page's newest
//! durable image. Between checkpoints it changes by map groups in the log. Map pages keep it on the device. A directory
//! names the places of the map pages. A superblock names the directory, and the LSN from which the log's map groups
//! must be replayed.
//!
//! STORE-1  A slot is free only if the map names no image in it, also after a crash. A replaced image's slot is free
//!          once the log is durable past the map group that replaced it; a dropped space's, past the drop. A map page's
//!          place is free once a superblock is durable whose directory does not name it.
//! STORE-2  A map group names only images that are durable by a data sync that began after their writes had ended. A
//!          superblock is written only when its directory, the map pages in that, and the log up to its `durable_lsn`
//!          are synced.
//! STORE-3  Every page id given out is charged a slot, and every map page its places. So rewriting a page never fails
//!          for lack of space; only giving out a page id can.
//! STORE-4  A superblock never overwrites the valid one of higher sequence. Before anything uses the space that a
//!          superblock frees, it is durable. So an open writes the superblock that it read once more, and syncs it: the
//!          previous process may have ended before its sync, or the sync failed.
//! STORE-5  An image is written only when the log is durable past its page LSN: no LSN ever has two contents.
//! STORE-6  A page has one image in flight: from its write until a map group names it, the page is not written again.
//!          The store holds the image's count ([`DirtyCounts`](crate::redo::dirty_counts::DirtyCounts)) meanwhile.
//! STORE-7  A space number is given out once: remains of a dropped space, in frames, slots and log, are never taken for
//!          those of another.
//! STORE-8  The data file is synced by one thread at a time, and never after a failed sync: the kernel reports a lost
//!          write once, and the next sync would succeed.
//! STORE-9  A page that was given back has no image: the map names none, and none is in flight. None is written before
//!          the id is given out again, which happens when no frame holds the page any more. Map groups and given-back
//!          pages reach the map in log order, for a map page only knows how far it has come.

pub(crate) mod checkpoint;
pub(crate) mod copy_on_write;
pub(crate) mod counters;
pub(crate) mod cut;
pub(crate) mod directory;
pub(crate) mod doublewrite;
pub(crate) mod files;
pub(crate) mod frozen;
pub(crate) mod image;
pub(crate) mod in_place;
pub(crate) mod look;
pub(crate) mod lot;
pub(crate) mod map;
pub(crate) mod open;
mod own_files;
pub(crate) mod page_store;
#[cfg(test)]
mod page_store_tests;
mod pins;
pub(crate) mod placement;
pub(crate) mod rewrite;
pub(crate) mod slots;
pub(crate) mod space;
pub(crate) mod superblock;
mod torn_pages;
pub(crate) mod zones;
