//! Reads undo records, for rollback and for purge. Writers do both, and the thread `mp-purge` what they leave.
//!
//! [`rollback`] undoes the changes of transactions that failed or that a crash cut short. [`purge`] removes deleted
//! rows that no transaction can still ask for. The records and their queue are in [`crate::txn`].

pub(crate) mod purge;
pub(crate) mod rollback;
