//! Verifies what the files of a store that is open hold of its map. Checkpoints go on meanwhile: damage counts only if
//! the place that was read is still the one in use.

use super::checkpoint::decode;
use super::map::{MapEntry, MapPage};
use super::page_store::PageStore;
use crate::base::error::{Error, MEND_MAP};
use crate::base::ids::{PageId, SpaceId};

impl PageStore {
    /// All map pages of a space.
    pub(crate) fn map_pages_of(&self, space: SpaceId) -> Vec<PageId> {
        let state = self.state.lock();
        let pages = state.map.spaces.get(&space).map_or(0, |space| space.pages.len());
        (0u32..).take(pages).map(|index| PageId::new(space, index)).collect()
    }

    fn place_of_map_page(&self, id: PageId) -> Option<MapEntry> {
        let state = self.state.lock();
        let page = state.map.spaces.get(&id.space())?.pages.get(usize::try_from(id.number()).ok()?)?;
        Some(page.place).filter(|place| place.is_some())
    }

    /// The damage of a map page in its file. `buf` has the length of a map page.
    pub(crate) fn damage_of_map_page(&self, id: PageId, buf: &mut [u8]) -> Result<Option<String>, Error> {
        while let Some(place) = self.place_of_map_page(id) {
            let (name, offset) = (self.map_file.name(), place.offset());
            let reading = |e| Error::io(&format!("read map page {id} at {offset} of '{name}'"), e);
            self.map_file.read_at(buf, offset).map_err(reading)?;
            let Err(what) = decode(id, &mut MapPage::new(place), self.uuid, buf) else { break };
            if self.place_of_map_page(id) == Some(place) {
                return Ok(Some(format!("map page {id} at offset {offset} of '{name}': {what}; {MEND_MAP}")));
            }
        }
        Ok(None)
    }
}
