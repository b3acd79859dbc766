//! Checks of options, each by itself and in combination: one error reports all mistakes.

use crate::base::error::Error;
use crate::base::page::layout::is_page_size;
use crate::options::classic::mistakes_in_classic_policies;
use crate::options::text::size_text;
use crate::options::{
    FRAMES_MIN, Options, PageStoreKind, READ_AHEAD_MAX, REDO_PAGES_MIN, bytes, invalid, validate_recovery_time,
};
use crate::pool::memory::FRAMES_MAX;
use crate::pool::neighbors::FlushNeighbors;
use crate::redo::files::CAPACITY_MAX;
use crate::store::doublewrite::Doublewrite;

impl Options {
    /// Options that the database's page store excludes.
    fn mistakes_of_store(&self, kind: PageStoreKind) -> Vec<String> {
        let settled = self.settled();
        let mut mistakes = Vec::new();
        if kind == PageStoreKind::CopyOnWrite && settled.doublewrite.is_some_and(|wanted| wanted != Doublewrite::Off) {
            let message = "doublewrite is for page_store=in_place, and this database is copy_on_write, which overwrites nothing: leave the option out";
            mistakes.push(message.to_owned());
        }
        if kind == PageStoreKind::CopyOnWrite && settled.flush_neighbors != FlushNeighbors::None {
            let message = "flush_neighbors is for page_store=in_place, and this database is copy_on_write, which places pages that are written together side by side: leave the option out";
            mistakes.push(message.to_owned());
        }
        mistakes
    }

    /// Checks all options, for a database with pages of `page_size` and the page store `kind`. One error reports all
    /// mistakes.
    pub(crate) fn validate(&self, page_size: u64, kind: PageStoreKind) -> Result<(), Error> {
        invalid(self.mistakes(page_size, kind))
    }

    /// All mistakes that [`validate`](Self::validate) reports.
    pub(crate) fn mistakes(&self, page_size: u64, kind: PageStoreKind) -> Vec<String> {
        let settled = self.settled();
        let mut mistakes = Vec::new();
        if !is_page_size(page_size) {
            mistakes.push(format!("page_size is {}: use 4KiB, 8KiB, 16KiB, 32KiB or 64KiB", bytes(page_size)));
        } else {
            let pool = self.buffer_pool_size.as_u64();
            let pool_min = FRAMES_MIN * page_size;
            if pool < pool_min || pool / page_size > FRAMES_MAX {
                mistakes.push(format!(
                    "buffer_pool_size is {}: use {} ({FRAMES_MIN} pages) to {} (2^24 pages)",
                    size_text(self.buffer_pool_size),
                    bytes(pool_min),
                    bytes(FRAMES_MAX * page_size)
                ));
            }
            if let Some(max) = self.buffer_pool_size_max
                && (max < self.buffer_pool_size || max.as_u64() / page_size > FRAMES_MAX)
            {
                mistakes.push(format!(
                    "buffer_pool_size_max is {}: use {} (buffer_pool_size) to {} (2^24 pages)",
                    size_text(max),
                    size_text(self.buffer_pool_size),
                    bytes(FRAMES_MAX * page_size)
                ));
            }
            let redo_min = REDO_PAGES_MIN * page_size;
            if let Some(redo) = self.redo_capacity
                && !(redo_min..=CAPACITY_MAX).contains(&redo.as_u64())
            {
                let (redo, redo_min) = (size_text(redo), bytes(redo_min));
                mistakes.push(format!("redo_capacity is {redo}: use {redo_min} to 1TiB"));
            }
        }
        if self.read_ahead_pages > READ_AHEAD_MAX {
            mistakes.push(format!("read_ahead_pages is {}: use 0 to {READ_AHEAD_MAX}", self.read_ahead_pages));
        }
        if let Some(Err(mistake)) = self.recovery_time_target.map(validate_recovery_time) {
            mistakes.push(mistake);
        }
        if let Err(mistake) = self.durability.validate() {
            mistakes.push(mistake);
        }
        mistakes.extend(mistakes_in_classic_policies(&settled, page_size));
        mistakes.extend(self.mistakes_of_store(kind));
        mistakes
    }
}
