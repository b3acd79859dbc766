//! Page id to image on a device, copy-on-write.
//!
//! An image never overwrites the one before it: it goes to a free slot. The **map** says where each page's newest image
//! is. In memory it changes as images are written; on the device it changes only at a checkpoint, whole, under two
//! alternating superblocks. So whatever a crash tears, the map of the last checkpoint and all that it names are intact.
//!
//! STORE-1  A slot is free only if neither the map in memory, nor that of the last durable checkpoint, nor that of a
//!          checkpoint under way names it.
//! STORE-2  A superblock is written only when the map it names, all images that the map names, and the log up to its
//!          `durable` LSN are synced.
//! STORE-3  Every page id that is given out is charged a slot, so that rewriting a page never fails for want of space:
//!          only giving out a page id does.
//! STORE-4  The valid superblock of the higher sequence is never overwritten.
//! STORE-5  An image leaves only when the log is durable past its page LSN. Checked when it leaves, and again when
//!          recovery meets it: an image ahead of the log's end is damage.

pub(crate) mod map;
pub(crate) mod page_store;
pub(crate) mod slots;
pub(crate) mod superblock;
