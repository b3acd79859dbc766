//! What is in a page, and the operations that change one.
//!
//! ```text
//! | header 64 | fences: low, high | slot directory: heads, offsets -> | free | <- entries |
//! ```
//!
//! What both fences begin with, every key between them begins with too: the **prefix**. Entries keep only the rest of
//! their keys. Four bytes of each rest, its **head**, lie side by side with the others' in key order, so that a search
//! reads a few cache lines at the page's beginning and, as a rule, one entry. Offsets are behind the heads and not
//! between them, because a search needs one of them only. Fences are whole: who asks for one gets a slice.
//!
//! PAGE-1  A page changes only through [`op::PageOp`]: normal running builds the operation, applies it and logs the
//!         same bytes; recovery applies them. An operation is a function of the page's bytes and its own alone.
//! PAGE-2  Keys in a page ascend strictly, and lie in `[low fence, high fence)`.
//! PAGE-3  Offsets and lengths inside of a page are below 64 KiB: an entry has a header, so the last one begins before.
//! PAGE-4  The prefix is as long as the fences allow, and heads are what the keys say. Fences only come closer
//!         ([`op::PageOp::Truncate`]), unless a page is formatted anew: so a prefix never shrinks under entries that
//!         stay, and these never need more room.
//! PAGE-5  A page that was given back ([`op::PageOp::Free`]) covers no key, takes no operation but one that formats it,
//!         and no image of it leaves.

pub(crate) mod apply;
mod key_heads;
pub(crate) mod layout;
pub(crate) mod op;
#[cfg(test)]
mod page_tests;
pub(crate) mod patch;
pub(crate) mod verify;
pub(crate) mod view;
