//! Transfers between accounts by several threads: each a transaction that is retried after a conflict or a deadlock.
//!
//! `cargo run --package millpond --example bank [DIR]`: in DIR, or in a directory that it removes.

use std::io::Write;
use std::path::{Path, PathBuf};

use millpond::{Db, Error, Options, Transaction, Tree, TxnOptions, key};

const ACCOUNTS: u32 = 10;
const THREADS: u32 = 4;
const TRANSFERS: u32 = 50;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let temporary = tempfile::tempdir()?;
    let dir = std::env::args_os().nth(1).map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    show(&dir, &mut std::io::stdout())
}

/// The balance in a row.
fn balance(row: &[u8]) -> i64 {
    i64::from_be_bytes(row.try_into().expect("eight bytes"))
}

/// Moves an amount. False: there is not enough.
fn transfer(txn: &mut Transaction, accounts: &Tree, from: u32, to: u32, amount: i64) -> millpond::Result<bool> {
    // Reads at the transaction's snapshot: if another transfer changes one of the two accounts first, the write of it
    // below fails, and the whole transaction is tried again.
    let read = |account: u32| Ok::<_, Error>(txn.get(accounts, key::encode(&account))?.map_or(0, |row| balance(&row)));
    let (of_giver, of_taker) = (read(from)?, read(to)?);
    if of_giver < amount || from == to {
        return Ok(false);
    }
    txn.put(accounts, key::encode(&from), (of_giver - amount).to_be_bytes())?;
    txn.put(accounts, key::encode(&to), (of_taker + amount).to_be_bytes())?;
    Ok(true)
}

/// Opens the database in `dir`, moves money about, and sums it up.
pub(crate) fn show(dir: &Path, out: &mut impl Write) -> Outcome {
    let db = Db::open(dir, Options::new())?;
    let accounts = db.open_or_create_tree("accounts")?;
    for account in 0..ACCOUNTS {
        accounts.put(key::encode(&account), 100i64.to_be_bytes())?;
    }
    let work = |thread: u32| -> millpond::Result<u32> {
        let mut moved = 0;
        for turn in 0..TRANSFERS {
            let (from, to) = ((thread + turn) % ACCOUNTS, (3 * thread + 7 * turn) % ACCOUNTS);
            let amount = i64::from(turn % 30 + 1);
            moved += u32::from(db.retry(&TxnOptions::new(), |txn| transfer(txn, &accounts, from, to, amount))?);
        }
        Ok(moved)
    };
    let moved = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<Result<u32, Error>>()
    })?;
    assert!(moved > 0, "some transfers were possible");
    // A snapshot has all rows of one moment.
    let snapshot = db.snapshot()?;
    let sum = snapshot.scan(&accounts, ..)?.map(|row| Ok(balance(&row?.1))).sum::<millpond::Result<i64>>()?;
    writeln!(out, "{} accounts have {sum} together", snapshot.scan(&accounts, ..)?.count())?;
    drop((snapshot, accounts));
    db.close()?;
    Ok(())
}
