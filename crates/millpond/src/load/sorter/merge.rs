//! A merge of several runs: a tree of losers, where each record costs one comparison a level (Knuth, The Art of
//! Computer Programming, volume 3, 5.4.1). Most comparisons are of the first 8 bytes of two keys.

use super::head_of;
use super::run::{Run, RunReader, record_at};
use crate::base::error::Error;

/// A merge in progress.
pub(crate) struct Merge {
    readers: Vec<RunReader>,
    /// The head of each run's current record, which orders most records. `None`: the run has ended.
    heads: Vec<Option<u64>>,
    /// The run that lost at each inner node of the tree, from 1; at 0, the winner. The leaf of run r is node
    /// `heads.len() + r`, and the parent of node n is n / 2.
    losers: Vec<usize>,
    /// Whether the winner's current record was lent.
    is_lent: bool,
}

/// Stands for a run that wins against all, while the tree is made.
const FIRST: usize = usize::MAX;

impl Merge {
    /// A merge of these runs, which reads up to `blocks` blocks of a run at once, in as much memory for each.
    pub(super) fn new(runs: impl Iterator<Item = Run>, blocks: usize) -> Result<Merge, Error> {
        let readers: Vec<_> = runs.map(|run| RunReader::new(run, blocks)).collect();
        let (heads, losers) = (vec![None; readers.len()], vec![FIRST; readers.len()]);
        let mut merge = Merge { readers, heads, losers, is_lent: false };
        for run in 0..merge.readers.len() {
            merge.advance(run)?;
            merge.play(run);
        }
        Ok(merge)
    }

    /// Goes on to the run's next record.
    fn advance(&mut self, run: usize) -> Result<(), Error> {
        let reader = &mut self.readers[run];
        self.heads[run] = if reader.advance()? { Some(head_of(record_at(reader.record()).0)) } else { None };
        Ok(())
    }

    /// Plays the run against the losers on its way to the top.
    fn play(&mut self, run: usize) {
        let (mut winner, mut node) = (run, (self.heads.len() + run) / 2);
        while node > 0 {
            if self.is_before(self.losers[node], winner) {
                std::mem::swap(&mut self.losers[node], &mut winner);
            }
            node /= 2;
        }
        self.losers[0] = winner;
    }

    fn is_before(&self, one: usize, other: usize) -> bool {
        if one == FIRST || other == FIRST {
            return one == FIRST;
        }
        match (self.heads[one], self.heads[other]) {
            (Some(a), Some(b)) if a == b => {
                let key = |run: usize| record_at(self.readers[run].record()).0;
                key(one) < key(other)
            }
            (Some(a), Some(b)) => a < b,
            (a, _) => a.is_some(),
        }
    }

    /// The next record, lent until the next call.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, Error> {
        let Some(&last) = self.losers.first() else { return Ok(None) };
        if self.is_lent {
            self.advance(last)?;
            self.play(last);
        }
        let winner = self.losers[0];
        self.is_lent = self.heads[winner].is_some();
        Ok(self.is_lent.then(|| self.readers[winner].record()))
    }
}
