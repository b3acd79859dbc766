//! The way in which page images get to the device.

/// The way in which page images get to the device; fixed at creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PageStoreKind {
    /// A page's new image goes to a free place. A crash leaves the old or the new image whole.
    #[default]
    CopyOnWrite,
    /// A page's new image overwrites the old one. If a crash tears the write, the next open restores the page from a
    /// copy, or the page is lost: see [`ClassicOptions::doublewrite`](crate::classic::ClassicOptions::doublewrite).
    InPlace,
}
