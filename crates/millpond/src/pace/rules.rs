//! The rules of the controller that are in force.

/// Rules that the simulation switches off, one at a time, to see their effect. The engine uses all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Writers are slowed down only with evidence.
    pub(crate) evidence: bool,
    /// A deadline counts as at least some seconds away.
    pub(crate) floor: bool,
    /// The device's capacity is measured.
    pub(crate) measured: bool,
    /// Writers slow down gradually before the log is full.
    pub(crate) brake: bool,
    /// The slow average counts, too: a lull does not hide the log's growth.
    pub(crate) slow_average: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Rules { evidence: true, floor: true, measured: true, brake: true, slow_average: true }
    }
}
