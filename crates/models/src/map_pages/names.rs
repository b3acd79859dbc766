//! Makes states equal that differ by names only: names of places and of map pages, which are alike, and sequences.

use super::State;
use super::memory::{MapPage, Memory, Stage};

/// Everything that tells a place from others, except its name.
type Role = ([bool; 3], Option<([bool; 5], Vec<(bool, bool, MapPage)>)>);

impl Memory {
    /// The place's role in this process, and for its map pages.
    fn role(&self, place: usize) -> ([bool; 5], Vec<(bool, bool, MapPage)>) {
        let taken = matches!(&self.checkpoint, Stage::Taken(images) if images.contains(&place));
        let [replaced, frees, orphaned] =
            [&self.replaced, &self.frees, &self.orphans].map(|places| places.contains(&place));
        let live = self.live.iter().map(|page| (true, page));
        let pages = live.chain(self.dropped.iter().map(|page| (false, page)));
        let of_pages = pages.filter(|(_, page)| page.image == Some(place) || page.lot == Some(place));
        let nameless = |page: &MapPage| MapPage { image: page.image.map(|_| 0), lot: page.lot.map(|_| 0), ..*page };
        let of_pages = of_pages.map(|(live, page)| (live, page.lot == Some(place), nameless(page)));
        ([self.free[place], taken, replaced, frees, orphaned], of_pages.collect())
    }

    /// Renames each place, and the map pages by their places, as in `renamed`.
    fn rename(&mut self, renamed: &[usize]) {
        let mut free = vec![false; self.free.len()];
        renamed.iter().zip(&self.free).for_each(|(&new, &was_free)| free[new] = was_free);
        self.free = free;
        for page in self.live.iter_mut().chain(&mut self.dropped) {
            page.image.iter_mut().chain(&mut page.lot).for_each(|place| *place = renamed[*place]);
        }
        self.live.sort_unstable();
        self.dropped.sort_unstable();
        for places in [&mut self.replaced, &mut self.frees, &mut self.orphans] {
            rename_all(places, renamed);
        }
        if let Stage::Taken(images) = &mut self.checkpoint {
            rename_all(images, renamed);
        }
    }
}

impl State {
    /// The representative of all states that differ by names only.
    pub(super) fn normalise(&mut self) {
        // An even base, since parity decides which file a sequence belongs to.
        let base = self.device.sequences_mut().map(|sequence| *sequence).min().unwrap_or(0) / 2 * 2;
        let in_memory = self.memory.iter_mut().map(|memory| &mut memory.sequence).chain([&mut self.newest]);
        self.device.sequences_mut().chain(in_memory).for_each(|sequence| *sequence -= base);
        let mut order: Vec<usize> = (0..self.device.synced.len()).collect();
        order.sort_by_cached_key(|&place| self.role(place));
        let mut renamed = vec![0; order.len()];
        order.iter().enumerate().for_each(|(new, &old)| renamed[old] = new);
        // Whether an unnamed image is synced does not matter.
        self.device.synced = order.iter().map(|&old| self.device.synced[old] || !self.is_named(old)).collect();
        for images in self.device.directories.iter_mut().filter_map(|directory| directory.images.as_mut().ok()) {
            rename_all(images, &renamed);
        }
        if let Some(memory) = &mut self.memory {
            memory.rename(&renamed);
        }
    }

    fn is_named(&self, place: usize) -> bool {
        self.device.names(place) || self.memory.as_ref().is_some_and(|memory| !memory.free[place])
    }

    fn role(&self, place: usize) -> Role {
        let [first, second] = &self.device.directories;
        let unsynced = !self.device.synced[place] && self.is_named(place);
        let on_device = [first.names(place), second.names(place), unsynced];
        (on_device, self.memory.as_ref().map(|memory| memory.role(place)))
    }
}

fn rename_all(places: &mut [usize], renamed: &[usize]) {
    places.iter_mut().for_each(|place| *place = renamed[*place]);
    places.sort_unstable();
}
