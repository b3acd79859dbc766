//! Page id to image on a device.
//!
//! An image goes to a slot of the data file ([`placement`] says which). The **map** says where each page's newest
//! durable image is. It changes by map groups in the log, between checkpoints; map pages keep it on the device, a
//! directory says where they are, a superblock names the directory and the LSN from which the log's map groups are
//! still to be replayed.
//!
//! STORE-1  A slot is free only if no image is in it that the map names, or would name after a crash: a replaced one is
//!          free once the log is durable past the map group that replaced it, that of a dropped space past the drop; a
//!          map page's place once a superblock is durable whose directory does not name it.
//! STORE-2  A map group names only images that a data sync has made durable, which began after their writes had ended.
//!          A superblock is written only when the directory, the map pages it names, and the log up to its
//!          `durable_lsn` are synced.
//! STORE-3  Every page id that is given out is charged a slot, and every map page its places, so that rewriting never
//!          fails for want of space: only giving out a page id does.
//! STORE-4  The valid superblock of the higher sequence is never overwritten by another, and it is durable before
//!          anything is that it gives room for: opening writes what it has read once more, and syncs it, for the
//!          process before may not have come to that, or its sync may have failed.
//! STORE-5  An image leaves only when the log is durable past its page LSN: no LSN is ever given to two contents.
//! STORE-6  A page has one image in flight: from its write until a map group names it, it is not written again. The
//!          image's count ([`DirtyCounts`](crate::redo::dirty_counts::DirtyCounts)) is the store's in that time.
//! STORE-7  A space number is given out once: what is left of a dropped space, in frames, slots and log, is never taken
//!          for another's.
//! STORE-8  One sync of the data file at a time, and none after one that failed: the kernel tells of a lost write once,
//!          and the next sync would pass.
//! STORE-9  A page that was given back has no image from then on: the map names none, none is in flight, and none comes
//!          to be before its id is given out again, which is when the page is in no frame any more. The map learns of
//!          map groups and of pages given back in the order of the log, for a map page knows only how far it has come.

pub(crate) mod checkpoint;
pub(crate) mod copy_on_write;
pub(crate) mod counters;
pub(crate) mod directory;
pub(crate) mod doublewrite;
pub(crate) mod in_place;
pub(crate) mod look;
pub(crate) mod map;
pub(crate) mod open;
pub(crate) mod page_store;
pub(crate) mod placement;
pub(crate) mod rewrite;
pub(crate) mod slots;
pub(crate) mod space;
pub(crate) mod superblock;
pub(crate) mod zones;
