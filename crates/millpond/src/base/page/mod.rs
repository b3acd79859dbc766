//! What is in a page, and the operations that change one.
//!
//! ```text
//! | header 64 | fences: low, high | slot directory -> | free | <- entries |
//! ```
//!
//! PAGE-1  A page changes only through [`op::PageOp`]: normal running builds the operation, applies it and logs the
//!         same bytes; recovery applies them. An operation is a function of the page's bytes and its own alone.
//! PAGE-2  Keys in a page ascend strictly, and lie in `[low fence, high fence)`.

pub(crate) mod apply;
pub(crate) mod layout;
pub(crate) mod op;
pub(crate) mod verify;
pub(crate) mod view;
