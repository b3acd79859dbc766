//! Ordered trees of byte strings: B+trees with fence keys and without sibling pointers.
//!
//! BTREE-1  The root is page 0 of the tree's space, for the tree's whole life.
//! BTREE-2  Entry `i` of an inner page names the child that covers `[key i, key i + 1)`; key 0 is the page's low fence.
//! BTREE-3  Latches are taken parent before child, and a child's before its parent's is released. A thread that holds
//!          leaves waits for no inner page: it tries, and on a refusal releases everything. It waits for leaves only to
//!          the right of its own, in the order of trees and keys. So a thread that waits for a leaf waits for a holder
//!          that waits, if at all, further right. No thread with a leaf waits for the holder of an inner page. The
//!          order holds because a leaf keeps its low fence for life. A leaf whose latch is waited for is named by its
//!          latched parent, so that it is not given back meanwhile: a holder of leaves only tries a leaf that a route
//!          names. A merge latches parent and child as other operations do, and only tries the child's neighbours.
//! BTREE-4  A page that is not in memory is read with no latch held: the operation restarts from the root. By then the
//!          page may have been given back: it covers no key, has no image, or is another page of the tree. An operation
//!          that came to it by a route descends with latches. One that finds no image starts again.
//! BTREE-5  A page is given back in the mini-transaction that moves its last entry elsewhere and removes its separator
//!          from the parent, with all of them latched exclusively. The root is never given back.

pub(crate) mod bulk_build;
pub(crate) mod descent;
pub(crate) mod merge;
pub(crate) mod scan;
pub(crate) mod split;
pub(crate) mod verify;
