//! What the tests share.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond::simulation::{Image, ServiceTime, SimulatedDisk};
use millpond::{ByteSize, CheckOptions, Db, Error, Options, check_on};

/// The contents of a database, by tree and key.
pub(crate) type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// Small pages, a pool of a few dozen frames, a log of a few laps.
pub(crate) fn small_options() -> Options {
    Options::new().page_size(ByteSize::kib(4)).buffer_pool_size(ByteSize::kib(4 * 40)).redo_capacity(ByteSize::kib(512))
}

/// The same for a database that exists.
pub(crate) fn reopen_options() -> Options {
    Options::new().create(false).buffer_pool_size(ByteSize::kib(4 * 40))
}

pub(crate) fn disk_of(image: Image) -> SimulatedDisk {
    SimulatedDisk::with_image(image, ServiceTime::default())
}

pub(crate) fn contents(db: &Db) -> Result<Contents, Error> {
    let mut all = Contents::new();
    for name in db.trees()? {
        let tree = db.open_tree(&name)?;
        all.insert(name, tree.scan(..).collect::<Result<_, _>>()?);
    }
    Ok(all)
}

/// Opens what is on `disk`, reads all of it, closes it, checks it.
pub(crate) fn recover(disk: &SimulatedDisk) -> Result<Contents, String> {
    let db = Db::open_on(Arc::new(disk.clone()), reopen_options()).map_err(|e| format!("open: {e}"))?;
    let found = contents(&db).map_err(|e| format!("read: {e}"))?;
    db.close().map_err(|e| format!("close: {e}"))?;
    let report = check_on(Arc::new(disk.clone()), &CheckOptions::default()).map_err(|e| format!("check: {e}"))?;
    match report.problems.first() {
        None => Ok(found),
        Some(problem) => Err(format!("check: {problem}")),
    }
}
