//! Ordered trees of byte strings: B+trees with fence keys, without sibling pointers.
//!
//! BTREE-1  The root is page 0 of the tree's space, for the tree's whole life.
//! BTREE-2  Entry `i` of an inner page names the child that covers `[key i, key i + 1)`; key 0 is the page's low fence.
//! BTREE-3  Latches are taken parent before child, and a child's before its parent's is released. Who holds
//!          leaves waits for no inner page (it tries, and on a refusal releases everything), and for leaves only to
//!          the right of its own, in the order of trees and keys. So who waits for a leaf waits for somebody who
//!          waits, if at all, further right, and who has an inner page latched is waited for by nobody with a leaf.
//!          The order holds because a leaf keeps its low fence for life, and a live tree gives no page number out
//!          twice.
//! BTREE-4  A page that is not in memory is read with no latch held: the operation restarts from the root.

pub(crate) mod descent;
pub(crate) mod scan;
pub(crate) mod split;
pub(crate) mod verify;
