//! Profiles: groups of options with the defaults of a server version. `docs/classic.md` has the source of each value.

/// The server version whose default policies apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Profile {
    /// The engine's own.
    #[default]
    Millpond,
    /// MySQL 5.5.
    Mysql55,
    /// MySQL 5.6, and 5.7 with one page cleaner.
    Mysql56,
    /// MySQL 8.0.
    Mysql80,
    /// Percona Server 5.7.
    Percona57,
    /// Percona Server 8.0: as MySQL 8.0, but for how steeply the flush rate rises with the checkpoint age.
    Percona80,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Profile; 6] = [
        Profile::Millpond,
        Profile::Mysql55,
        Profile::Mysql56,
        Profile::Mysql80,
        Profile::Percona57,
        Profile::Percona80,
    ];

    /// Default number of instances of a buffer pool of `pool_bytes`: since 5.6, eight from 1 GiB on.
    pub(crate) fn instances(self, pool_bytes: u64) -> usize {
        match self {
            Profile::Millpond | Profile::Mysql55 => 1,
            _ if pool_bytes < 1 << 30 => 1,
            _ => 8,
        }
    }
}
