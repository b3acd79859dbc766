//! What looks at or mends a database that nobody has open: check, rebuild, inspect.

pub(crate) mod check;
pub(crate) mod check_indexes;
pub(crate) mod check_report;
pub(crate) mod inspect;
pub(crate) mod rebuild;
