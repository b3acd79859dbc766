//! Transactions that are run again when others were in their way.

use crate::api::database::Db;
use crate::api::transaction::Transaction;
use crate::api::txn_options::TxnOptions;
use crate::base::clock;
use crate::base::error::Error;
use crate::base::random::random_u64;
use crate::base::sync;

/// Most times that [`Db::retry`] runs a transaction.
const TRIES_MAX: u32 = 100;

/// The pause before the second try of [`Db::retry`] is at most this long, and each later one at most twice as long as
/// the one before, up to the longest.
const PAUSE_NS: u64 = 50_000;
const PAUSE_NS_MAX: u64 = 20_000_000;

impl Db {
    /// Runs `run` in a transaction, and commits it. If that fails with [`Error::Conflict`], [`Error::Deadlock`] or
    /// [`Error::SnapshotTooOld`], rolls back, waits for a short random time, and runs it again: side effects of `run`
    /// may happen more than once.
    ///
    /// # Errors
    /// Any other error of `run` or of the commit; after 100 tries the last error.
    pub fn retry<T>(
        &self,
        options: &TxnOptions,
        mut run: impl FnMut(&mut Transaction) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut pause_ns = PAUSE_NS;
        for tried in 1.. {
            let mut txn = self.begin(options.clone())?;
            let done = run(&mut txn).and_then(|done| txn.commit().map(|_| done));
            match done {
                Err(Error::Conflict(_) | Error::Deadlock(_) | Error::SnapshotTooOld(_)) if tried < TRIES_MAX => {}
                done => return done,
            }
            sync::sleep_until(clock::now_ns() + random_u64() % pause_ns);
            pause_ns = (2 * pause_ns).min(PAUSE_NS_MAX);
        }
        Err(Error::Bug("a transaction was tried without end".into()))
    }
}
