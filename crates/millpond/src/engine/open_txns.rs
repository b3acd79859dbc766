//! Transactions of statements that are open, as their users' handles and the engine share them.
//!
//! A transaction is in the list from its first change or lock until it is committed or given up. The keeper's tick
//! gives up those that their users have left alone for too long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::clock::{self, nanos};
use crate::base::error::Error;
use crate::base::ids::TxnId;
use crate::base::sync::{Mutex, Rank};
use crate::txn::own_changes::OwnChanges;
use crate::txn::slot::Own;

/// The open transactions of a database that have changed or locked something.
pub(crate) struct OpenTxns {
    list: Mutex<BTreeMap<TxnId, Arc<OpenTxn>>>,
    /// The time after which an idle one is rolled back, in ns; 0: never.
    idle_timeout_ns: AtomicU64,
}

impl OpenTxns {
    pub(crate) fn new(idle_timeout: Option<Duration>) -> OpenTxns {
        let list = Mutex::new(Rank::OpenTransactions, BTreeMap::new());
        OpenTxns { list, idle_timeout_ns: AtomicU64::new(idle_timeout.map_or(0, nanos)) }
    }

    /// Lists a transaction that changes or locks something for the first time.
    pub(crate) fn add(&self, txn: TxnId, open: &Arc<OpenTxn>) {
        open.began_ns.store(clock::coarse_ns(), Ordering::Relaxed);
        self.list.lock().insert(txn, Arc::clone(open));
    }

    /// Takes a transaction out of the list.
    pub(crate) fn remove(&self, txn: TxnId) {
        self.list.lock().remove(&txn);
    }

    /// All of them, oldest first.
    pub(crate) fn all(&self) -> Vec<(TxnId, Arc<OpenTxn>)> {
        self.list.lock().iter().map(|(txn, open)| (*txn, Arc::clone(open))).collect()
    }

    /// Sets the time after which an idle one is rolled back; `None`: never. From the next tick on.
    pub(crate) fn set_idle_timeout(&self, timeout: Option<Duration>) {
        self.idle_timeout_ns.store(timeout.map_or(0, nanos), Ordering::Relaxed);
    }

    /// The time after which an idle one is rolled back.
    pub(crate) fn idle_timeout(&self) -> Option<Duration> {
        Some(self.idle_timeout_ns.load(Ordering::Relaxed)).filter(|ns| *ns > 0).map(Duration::from_nanos)
    }
}

/// A transaction of statements.
pub(crate) struct OpenTxn {
    pub(crate) changes: Arc<OwnChanges>,
    state: Mutex<State>,
    /// When it first changed or locked something, in ns of the coarse clock.
    began_ns: AtomicU64,
}

/// Whether the transaction goes on.
#[expect(
    clippy::large_enum_variant,
    reason = "in memory of the transaction; a box would be an allocation for each call"
)]
enum State {
    /// Between two calls. `None`: it has neither changed nor locked anything.
    Open(Option<Own>),
    /// A call is under way.
    AtWork,
    /// It is over, for this reason.
    Over(&'static str),
}

/// The reason for which a transaction is over that its user has left alone for too long.
const IDLE: &str = "it was idle for longer than idle_transaction_timeout, and was rolled back";

impl OpenTxn {
    pub(crate) fn new() -> OpenTxn {
        let state = Mutex::new(Rank::OpenTransaction, State::Open(None));
        OpenTxn { changes: Arc::default(), state, began_ns: AtomicU64::new(0) }
    }

    /// Takes what the transaction has to itself, for a call that [puts](Self::put) it back or [ends](Self::end) the
    /// transaction. An error says why it is over.
    pub(crate) fn take(&self) -> Result<Option<Own>, Error> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::AtWork) {
            State::Open(own) => Ok(own),
            State::AtWork => Err(Error::Bug("two calls on one transaction at a time".into())),
            State::Over(why) => {
                *state = State::Over(why);
                Err(over(why))
            }
        }
    }

    /// Puts back what a call has taken.
    pub(crate) fn put(&self, own: Option<Own>) {
        self.changes.touch();
        *self.state.lock() = State::Open(own);
    }

    /// Ends the transaction, whose call has taken what it had.
    pub(crate) fn end(&self, why: &'static str) {
        *self.state.lock() = State::Over(why);
    }

    /// Fails if the transaction is over.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match &*self.state.lock() {
            State::Over(why) => Err(over(why)),
            State::Open(_) | State::AtWork => Ok(()),
        }
    }

    /// The place in its changes between two calls.
    pub(crate) fn savepoint(&self) -> u32 {
        match &*self.state.lock() {
            State::Open(Some(own)) => own.savepoint(),
            _ => 0,
        }
    }

    /// Ends a transaction that has been idle for this time, and returns what it had to itself.
    pub(super) fn take_if_idle(&self, now_ns: u64, timeout: Duration) -> Option<Own> {
        let mut state = self.state.lock();
        if self.changes.idle(now_ns) < timeout || !matches!(&*state, State::Open(Some(_))) {
            return None;
        }
        match std::mem::replace(&mut *state, State::Over(IDLE)) {
            State::Open(own) => own,
            State::AtWork | State::Over(_) => None,
        }
    }

    /// Since when it is open, and for how long it has been idle; `None`: a call is under way.
    pub(crate) fn ages(&self, now_ns: u64) -> (Duration, Option<Duration>) {
        let age = Duration::from_nanos(now_ns.saturating_sub(self.began_ns.load(Ordering::Relaxed)));
        let is_at_work = matches!(&*self.state.lock(), State::AtWork);
        (age, (!is_at_work).then(|| self.changes.idle(now_ns)))
    }
}

#[cold]
fn over(why: &str) -> Error {
    Error::TransactionOver(format!("the transaction is over: {why}; begin another").into())
}
