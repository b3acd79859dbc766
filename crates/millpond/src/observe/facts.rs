//! Facts about the trees and tables of an open database, as names and values for people.

use bytesize::ByteSize;

use crate::base::aligned::to_u64;
use crate::base::error::Error;
use crate::base::ids::SpaceId;
use crate::ddl::catalog;
use crate::engine::Engine;
use crate::schema::catalog_entry::Entry;

/// The slots, and each tree, table and index with its pages.
pub(crate) fn tree_facts(engine: &Engine) -> Result<Vec<(String, String)>, Error> {
    let store = &engine.core.store;
    let (total, free) = store.slot_counts();
    let all = {
        let _ddl = engine.ddl();
        engine.check_open()?;
        catalog::all(&engine.core)?
    };
    let tables = all.iter().filter(|(_, entry)| matches!(entry, Entry::Table(_))).count();
    let mut facts = vec![
        ("slots".to_owned(), format!("{total}, {} used, {free} free", total - free)),
        ("trees".to_owned(), (all.len() - tables).to_string()),
        ("tables".to_owned(), tables.to_string()),
    ];
    let mut fact = |name: &str, space: SpaceId, more: &str| {
        let count = store.used_count(space);
        let size = bytes(count * to_u64(store.page_size()));
        facts.push((name.to_owned(), format!("space {space}, {count} pages, {size}{more}")));
    };
    fact("tree (the catalog)", SpaceId::CATALOG, "");
    fact("tree (undo)", SpaceId::UNDO, "");
    for (name, mut entry) in all {
        let name = name.escape_debug();
        let chunks = *entry.chunks();
        match entry {
            Entry::Tree { rows, .. } => fact(&format!("tree '{name}'"), rows, ""),
            Entry::Table(entry) => {
                fact(&format!("table '{name}'"), entry.rows, "");
                for (index, space) in entry.indexes() {
                    fact(&format!("  index '{}'", index.name.escape_debug()), space, &format!(": {index}"));
                }
            }
        }
        if let Some(space) = chunks {
            fact("  chunks of long values", space, "");
        }
    }
    Ok(facts)
}

/// A number of bytes, exactly and for people.
pub(crate) fn bytes(count: u64) -> String {
    format!("{count} bytes ({})", ByteSize::b(count))
}
