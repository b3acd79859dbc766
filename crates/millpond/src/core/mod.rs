//! The core: page store, buffer pool and log of one database, as all rooms above share them.

use std::sync::Arc;

use crate::base::error::Error;
use crate::base::ids::{PageId, SpaceId};
use crate::pool::buffer_pool::Pool;
use crate::pool::pin::PageWrite;
use crate::redo::log::Log;
use crate::store::page_store::PageStore;
use crate::store::space::Share;

/// The page store, the buffer pool and the log of a database. Recovery has it before there are trees; the
/// engine adds all else.
pub(crate) struct Core {
    pub(crate) store: Arc<PageStore>,
    pub(crate) pool: Pool,
    pub(crate) log: Log,
}

impl Core {
    /// A new page, latched, which no other thread has seen. May wait on `file_growth`, then on `free_frame`: a thread
    /// that has the files grow holds no frame. Callers hold no latch and no frame.
    pub(crate) fn new_page(&self, space: SpaceId, share: Share) -> Result<(PageId, PageWrite<'_>), Error> {
        let id = self.store.allocate(space, share, self.pool.waits())?;
        match self.pool.take_frame() {
            Ok(ticket) => Ok((id, self.pool.install(id, ticket))),
            Err(error) => {
                self.store.give_back(id);
                Err(error)
            }
        }
    }
}
