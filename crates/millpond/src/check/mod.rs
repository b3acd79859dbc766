//! The check of rows and indexes, of a database at rest or at work; the report; and the check beside a load.

pub(crate) mod beside_load;
pub(crate) mod indexes;
mod own_files;
pub(crate) mod report;
