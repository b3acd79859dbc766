//! The engine's threads: the keeper, and the threads that clean pages, write the log, and resize it.

pub(crate) mod flush;
pub(crate) mod keeper;
pub(crate) mod log_resize;
pub(crate) mod log_threads;
pub(crate) mod lru_managers;
pub(crate) mod page_cleaners;
pub(crate) mod sync_flush;
pub(crate) mod threads;
