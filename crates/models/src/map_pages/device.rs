//! The device: the state that survives a process, and a loss of power.

/// A directory's file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Directory {
    /// The sequence in its head: that of its superblock.
    pub(super) sequence: usize,
    /// The head's previous sequence, while the file is not synced.
    pub(super) before: Option<usize>,
    /// The places that it names, or the reason why they are useless.
    pub(super) images: Result<Vec<usize>, Refusal>,
}

/// A superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Superblock {
    pub(super) sequence: usize,
    /// Written over a damaged superblock; it names no directory.
    pub(super) mended: bool,
}

/// The sector of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sector {
    /// `None`: it is damaged.
    pub(super) durable: Option<Superblock>,
    /// Written, but not synced.
    pub(super) written: Option<Superblock>,
}

/// The files. Superblocks and directories of even sequences come first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Device {
    /// For each place: whether the image written last is synced.
    pub(super) synced: Vec<bool>,
    pub(super) directories: [Directory; 2],
    pub(super) superblocks: [Sector; 2],
}

/// Why a database does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    /// The damaged superblock may have been the newer one.
    MayBeNewer,
    /// The directory is torn, or not the one that the superblock names.
    WrongDirectory,
    /// A place that the directory names has a torn image, or another one.
    WrongImage,
}

impl Sector {
    /// The superblock that a process reads.
    pub(super) fn read(self) -> Option<Superblock> {
        self.written.or(self.durable)
    }

    fn sync(&mut self) {
        self.durable = self.read();
        self.written = None;
    }
}

impl Device {
    pub(super) fn new(places: usize) -> Device {
        let directory = |sequence| Directory { sequence, before: None, images: Ok(Vec::new()) };
        let sector = |sequence| Sector { durable: Some(Superblock { sequence, mended: false }), written: None };
        Device {
            synced: vec![true; places],
            directories: [directory(0), directory(1)],
            superblocks: [sector(0), sector(1)],
        }
    }

    /// Syncs the data file, which holds the superblocks.
    pub(super) fn sync_superblocks(&mut self) {
        self.superblocks.iter_mut().for_each(Sector::sync);
    }

    /// Overwrites this place: directories that name it lose its image.
    pub(super) fn overwrite(&mut self, place: usize) {
        for directory in self.directories.iter_mut().filter(|directory| directory.names(place)) {
            directory.images = Err(Refusal::WrongImage);
        }
    }

    /// Whether a directory names this place.
    pub(super) fn names(&self, place: usize) -> bool {
        self.directories.iter().any(|directory| directory.names(place))
    }

    /// The power fails. The flags say whether unsynced superblocks, and unsynced heads of directories, survive.
    pub(super) fn lose_power(&mut self, superblocks: bool, heads: bool) {
        for place in 0..self.synced.len() {
            if !std::mem::replace(&mut self.synced[place], true) {
                self.overwrite(place);
            }
        }
        for directory in &mut self.directories {
            if let Some(before) = directory.before.take() {
                directory.images = Err(Refusal::WrongDirectory);
                directory.sequence = if heads { directory.sequence } else { before };
            }
        }
        if superblocks {
            self.sync_superblocks();
        }
        self.superblocks.iter_mut().for_each(|sector| sector.written = None);
    }

    /// The superblock that counts, and the places that its directory names. `blindly`: any superblock that is not
    /// damaged counts.
    pub(super) fn find(&self, blindly: bool) -> Result<(Superblock, &[usize]), Refusal> {
        let found = self.superblocks.map(Sector::read);
        let newest = found.into_iter().flatten().max_by_key(|superblock| superblock.sequence);
        let newest = newest.ok_or(Refusal::MayBeNewer)?;
        let place = newest.sequence % 2;
        let older = newest.sequence.checked_sub(1);
        if found[1 - place].is_none() && older != Some(self.directories[1 - place].sequence) && !blindly {
            return Err(Refusal::MayBeNewer);
        }
        let directory = &self.directories[place];
        if newest.mended || directory.sequence != newest.sequence {
            return Err(Refusal::WrongDirectory);
        }
        directory.images.as_ref().map(|images| (newest, images.as_slice())).map_err(|&refusal| refusal)
    }

    /// All sequences.
    pub(super) fn sequences_mut(&mut self) -> impl Iterator<Item = &mut usize> {
        let superblocks = self.superblocks.iter_mut().flat_map(|sector| [&mut sector.durable, &mut sector.written]);
        let heads = self.directories.iter_mut().flat_map(|file| [Some(&mut file.sequence), file.before.as_mut()]);
        superblocks.flatten().map(|superblock| &mut superblock.sequence).chain(heads.flatten())
    }
}

impl Directory {
    pub(super) fn names(&self, place: usize) -> bool {
        self.images.as_ref().is_ok_and(|images| images.contains(&place))
    }
}
