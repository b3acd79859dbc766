//! The process: its knowledge of map pages and of their places.

/// A map page in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MapPage {
    /// Place of the last whole image; `None` if there is none yet.
    pub(super) image: Option<usize>,
    /// No directory was taken since that image was written.
    pub(super) unnamed: bool,
    /// It has a MAP record that its last image lacks.
    pub(super) dirty: bool,
    /// Place of the image that is under way to the device.
    pub(super) lot: Option<usize>,
}

/// Progress of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// No checkpoint is under way: the second thread sleeps, or waits for a data sync.
    None,
    /// The directory was taken.
    Taken(Vec<usize>),
    /// The directory is on the device.
    DirectoryWritten,
    /// The directory is durable, and so are all images whose writes ended before.
    DirectorySynced,
    /// The superblock is on the device.
    SuperblockWritten,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Memory {
    /// Sequence of the newest superblock.
    pub(super) sequence: usize,
    /// Replays the log: it has written nothing yet.
    pub(super) replays: bool,
    /// The map pages of the spaces.
    pub(super) live: Vec<MapPage>,
    /// Map pages of dropped spaces, whose places are to be given back.
    pub(super) dropped: Vec<MapPage>,
    /// Places in a lot whose space was dropped meanwhile.
    pub(super) orphans: Vec<usize>,
    pub(super) free: Vec<bool>,
    /// Places that are free once the next superblock is durable.
    pub(super) replaced: Vec<usize>,
    /// Places that are free once the superblock under way is durable.
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

    /// Whether the keeper may begin something: it waits for its own writes, but not for a checkpoint under way, which
    /// belongs to the second thread.
    pub(super) fn keeper_is_free(&self) -> bool {
        !self.replays && self.lot_len() == 0
    }

    /// Places of images whose writes have not ended.
    pub(super) fn places_under_way(&self) -> impl Iterator<Item = usize> {
        self.live.iter().filter_map(|page| page.lot).chain(self.orphans.iter().copied())
    }

    /// Whether a map page has a place in the durable directory, one in the directory under way, and one written since.
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
