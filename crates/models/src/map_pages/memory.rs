//! The process: what it knows of map pages and of their places.

/// A map page in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MapPage {
    /// Where the last image is that is whole; `None`: there is none yet.
    pub(super) image: Option<usize>,
    /// No directory was taken since that image was written.
    pub(super) unnamed: bool,
    /// It knows of a MAP record that its last image does not have.
    pub(super) dirty: bool,
    /// Where the image is that is under way to the device.
    pub(super) lot: Option<usize>,
}

/// How far a checkpoint is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// There is none under way: the second thread sleeps, or waits for a data sync.
    None,
    /// The directory was taken.
    Taken(Vec<usize>),
    /// The directory is on the device.
    DirectoryWritten,
    /// It is durable, and so are all images whose writes had ended before.
    DirectorySynced,
    /// The superblock is on the device.
    SuperblockWritten,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Memory {
    /// Of the newest superblock.
    pub(super) sequence: usize,
    /// Replays the log: it has written nothing.
    pub(super) replays: bool,
    /// The map pages of the spaces.
    pub(super) live: Vec<MapPage>,
    /// Those of dropped spaces that are to be given back.
    pub(super) dropped: Vec<MapPage>,
    /// Places of a lot whose space was dropped meanwhile.
    pub(super) orphans: Vec<usize>,
    pub(super) free: Vec<bool>,
    /// Places that are free once the next superblock is durable.
    pub(super) replaced: Vec<usize>,
    /// Those that are free once the one under way is.
    pub(super) frees: Vec<usize>,
    pub(super) checkpoint: Stage,
}

impl MapPage {
    pub(super) fn new() -> MapPage {
        MapPage { image: None, unnamed: true, dirty: false, lot: None }
    }
}

impl Memory {
    pub(super) fn new(sequence: usize, images: &[usize], places: usize) -> Memory {
        let mut free = vec![true; places];
        images.iter().for_each(|&image| free[image] = false);
        let live = images.iter().map(|&image| MapPage { image: Some(image), unnamed: false, ..MapPage::new() });
        Memory {
            sequence,
            replays: false,
            live: live.collect(),
            dropped: Vec::new(),
            orphans: Vec::new(),
            free,
            replaced: Vec::new(),
            frees: Vec::new(),
            checkpoint: Stage::None,
        }
    }

    pub(super) fn lot_len(&self) -> usize {
        self.live.iter().filter(|page| page.lot.is_some()).count() + self.orphans.len()
    }

    /// Whether the keeper may begin something: it waits for its own writes, and not for a checkpoint under way, which
    /// is the second thread's.
    pub(super) fn keeper_is_free(&self) -> bool {
        !self.replays && self.lot_len() == 0
    }

    /// Where images are written that have not come to their end.
    pub(super) fn places_under_way(&self) -> impl Iterator<Item = usize> {
        self.live.iter().filter_map(|page| page.lot).chain(self.orphans.iter().copied())
    }

    /// Whether a map page has a place in the durable directory, one in that under way, and one written since.
    pub(super) fn has_three_places(&self) -> bool {
        let [page] = self.live.as_slice() else { return false };
        page.unnamed && page.image.is_some() && self.replaced.len() == 1 && self.frees.len() == 1
    }

    pub(super) fn free_what_is_replaced(&mut self) {
        std::mem::take(&mut self.frees).into_iter().for_each(|place| self.free[place] = true);
    }

    pub(super) fn images(&self) -> impl Iterator<Item = usize> {
        let pages = self.live.iter().chain(&self.dropped);
        pages.flat_map(|page| [page.image, page.lot]).flatten()
    }

    pub(super) fn places_have_one_owner(&self) -> bool {
        let mut owners: Vec<usize> = self.free.iter().map(|&free| usize::from(free)).collect();
        for place in self.images().chain([&self.orphans, &self.replaced, &self.frees].into_iter().flatten().copied()) {
            owners[place] += 1;
        }
        owners.iter().all(|&count| count == 1)
    }
}
