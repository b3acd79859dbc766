//! The contents of a page, and the operations that change a page.
//!
//! ```text
//! | header 64 | fences: low, high | slot directory: heads, offsets -> | free | <- entries |
//! ```
//!
//! Every key between the fences begins with the bytes that both fences begin with: the **prefix**. Entries keep only
//! the rest of their keys, the **suffix**. The first four bytes of each suffix, its **head**, lie side by side in key
//! order. So a search reads a few cache lines at the page's beginning and, as a rule, one entry. Offsets lie behind the
//! heads and not between them, because a search needs only one offset. Fences are stored whole, so a reader gets a
//! slice.
//!
//! PAGE-1  A page changes only through [`op::PageOp`]: normal running builds the operation, applies it and logs the
//!         same bytes; recovery applies them. The result depends only on the bytes of the page and of the operation.
//! PAGE-2  Keys in a page ascend strictly, and lie in `[low fence, high fence)`.
//! PAGE-3  Offsets and lengths inside of a page are below 64 KiB: the last entry begins with a header, so before the
//!         end.
//! PAGE-4  The prefix is as long as the fences allow, and heads agree with the keys. Fences only come closer
//!         ([`op::PageOp::Truncate`]), unless a page is formatted anew. So the prefix of entries that stay never
//!         shrinks, and these never need more room.
//! PAGE-5  A page that was given back ([`op::PageOp::Free`]) covers no key, takes no operation but one that formats it,
//!         and is never written to the device.

pub(crate) mod apply;
mod key_heads;
pub(crate) mod layout;
pub(crate) mod op;
#[cfg(test)]
mod page_tests;
pub(crate) mod patch;
pub(crate) mod reader;
pub(crate) mod verify;
pub(crate) mod view;
