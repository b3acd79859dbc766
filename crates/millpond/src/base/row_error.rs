//! The row that an error is about, with its text made only when it is shown.
//!
//! A writer that meets a duplicate or a conflict often goes on with another key, so such an error must cost little:
//! it takes no memory of its own. Each thread keeps the memory of the last one that it dropped, and uses it again.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use crate::base::quoted::quoted;

/// Most bytes of memory for a key that a thread keeps.
const KEPT_MAX: usize = 8 << 10;

thread_local! {
    static KEPT: Cell<Option<Box<Inner>>> = const { Cell::new(None) };
}

/// The row that an [`Error`](crate::Error) is about: the tree, table or index, and the key.
///
/// It is made without an allocation if its thread has dropped an earlier one with a key as long. Displayed, it is the
/// whole sentence. It keeps the memory of its tree's state, but neither pages nor the database.
pub struct RowError(Option<Box<Inner>>);

struct Inner {
    /// `None` in memory that is kept.
    of: Option<Arc<dyn RowsOwner>>,
    key: Vec<u8>,
    case: Case,
}

/// A tree, a table or an index, as errors show it.
pub(crate) trait RowsOwner: fmt::Display + Send + Sync {
    /// The tree's name, or that of the table.
    fn name(&self) -> &str;

    /// The name of the index, if it is one.
    fn index(&self) -> Option<&str>;
}

/// The way in which the row is not as the writer wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    Exists,
    /// Another row has the fields in a unique index.
    Taken,
    Missing,
    /// Not as the batch expects.
    Unexpected,
    /// Changed by another transaction since this one's snapshot.
    Changed,
}

impl RowError {
    #[cold]
    pub(crate) fn new(of: Arc<dyn RowsOwner>, key: &[u8], case: Case) -> RowError {
        let kept = KEPT.try_with(Cell::take).ok().flatten();
        let mut inner = kept.unwrap_or_else(|| Box::new(Inner { of: None, key: Vec::new(), case }));
        (inner.of, inner.case) = (Some(of), case);
        inner.key.clear();
        inner.key.extend_from_slice(key);
        RowError(Some(inner))
    }

    fn inner(&self) -> (&dyn RowsOwner, &Inner) {
        let inner = self.0.as_deref().expect("only `drop` takes it");
        (inner.of.as_deref().expect("only kept memory is without"), inner)
    }

    /// Whether the row is not as the writer expected: unlike a change since a snapshot, the writer may read it again.
    pub(crate) fn is_unexpected(&self) -> bool {
        self.inner().1.case == Case::Unexpected
    }

    /// The name of the tree or the table.
    pub fn name(&self) -> &str {
        self.inner().0.name()
    }

    /// The name of the index in which another row has the same fields. `None`: the error is about a key of the tree or
    /// the table.
    pub fn index(&self) -> Option<&str> {
        self.inner().0.index()
    }

    /// The key; for an [`index`](Self::index) the fields.
    pub fn key(&self) -> &[u8] {
        &self.inner().1.key
    }
}

impl Drop for RowError {
    fn drop(&mut self) {
        if let Some(mut inner) = self.0.take()
            && inner.key.capacity() <= KEPT_MAX
        {
            // Must not keep a dropped tree's state.
            inner.of = None;
            // Fails while the thread ends: then the memory is freed.
            let _ = KEPT.try_with(|kept| kept.set(Some(inner)));
        }
    }
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (of, Inner { key, case, .. }) = self.inner();
        let key = quoted(key);
        match case {
            Case::Exists => write!(f, "{of} has key {key} already: update or put it"),
            Case::Taken => {
                let way_out = "change that row first, or give this one another value";
                write!(f, "{of} is unique, and another row has {key} there: {way_out}")
            }
            Case::Missing => write!(f, "{of} has no key {key}: insert or put it"),
            Case::Unexpected => write!(f, "key {key} of {of} is not as the batch expects: read it again and retry"),
            Case::Changed => {
                let way_out = "roll back and begin again";
                write!(f, "key {key} of {of} was changed by another transaction since this one's snapshot: {way_out}")
            }
        }
    }
}

impl fmt::Debug for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (of, Inner { key, case, .. }) = self.inner();
        let key = key.escape_ascii().to_string();
        f.debug_struct("RowError")
            .field("name", &of.name())
            .field("index", &of.index())
            .field("key", &key)
            .field("case", case)
            .finish()
    }
}
