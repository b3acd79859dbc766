//! Transactions: their ids, their undo records, and which of them are active.
//!
//! TXN-1  A transaction has its id before its first latch, and is active until its group has its place in the log. So
//!        a stamp below the oldest active id is of a transaction that is committed.
//! TXN-2  What undoes a change is in the group of the change.
//! TXN-3  An undo page is appended to by whoever has its slot, and by nobody else. It is latched behind leaves.
//! TXN-4  An undo page is given back, or to another slot, when no slot has it, and purge went through all of it.
//!
//! An undo page is a page of entries like a leaf: the key is the record's number in the page, two bytes, the largest
//! first; the value is the [record](record). Which slots there are is known in memory only: at open the undo pages that
//! are there belong to none, and are purged.

pub(crate) mod record;
pub(crate) mod slots;
