//! A reader: what it sees, and whether it may go on.

use std::sync::Arc;

use crate::base::error::Error;
use crate::read::snapshot::LiveSnapshot;
use crate::txn::own_changes::OwnChanges;
use crate::txn::view::View;

/// What a reader sees. It keeps its snapshot alive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reader {
    /// `None`: each row as it was committed last.
    pub(crate) snapshot: Option<Arc<LiveSnapshot>>,
    /// The changes of the reader's transaction.
    pub(crate) own: Option<Arc<OwnChanges>>,
    /// The transaction changes rows that were changed since its snapshot: then it sees the row as it has changed it,
    /// and the entry of the version at the snapshot.
    pub(crate) is_mixed: bool,
}

impl Reader {
    /// A reader outside of transactions, of the newest rows.
    pub(crate) fn newest() -> Reader {
        Reader::default()
    }

    /// A reader outside of transactions, at a snapshot.
    pub(crate) fn at(snapshot: &Arc<LiveSnapshot>) -> Reader {
        Reader { snapshot: Some(Arc::clone(snapshot)), ..Reader::default() }
    }

    pub(crate) fn view(&self) -> View {
        let at = self.snapshot.as_ref().map(|snapshot| snapshot.at());
        View { at, own: self.own.as_ref().and_then(|own| own.txn()) }
    }

    /// Whether the reader may see an entry whose row it sees otherwise: such an entry is to be left out.
    pub(crate) fn may_disagree(&self) -> bool {
        self.is_mixed && self.own.as_ref().is_some_and(|own| own.count() > 0)
    }

    /// Number of changes of the reader's transaction so far.
    pub(crate) fn changes(&self) -> u64 {
        self.own.as_ref().map_or(0, |own| own.count())
    }

    /// What was read, or the error that the reader's snapshot or transaction had ended before (SNAP-2).
    pub(crate) fn unless_ended<T>(&self, read: Result<T, Error>) -> Result<T, Error> {
        let read = self.snapshot.as_ref().map_or(Ok(()), |snapshot| snapshot.unless_ended(Ok(()))).and(read);
        match &self.own {
            Some(own) => own.unless_over(read),
            None => read,
        }
    }
}
