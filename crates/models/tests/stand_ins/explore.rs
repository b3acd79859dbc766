//! The number and kinds of schedules.

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

/// Runs the model under so many schedules. Half are random; half have priorities that change at a few moments, which
/// finds bugs that need one thread to be late. They are the same each time; `SHUTTLE_RANDOM_SEED` chooses others.
pub(crate) fn explore(schedules: usize, model: impl Fn() + Send + Sync + Copy + 'static) {
    let full = std::env::var_os("MILLPOND_FULL").is_some();
    let schedules = if full { 20 * schedules } else { schedules };
    Runner::new(RandomScheduler::new_from_seed(1, schedules / 2), Config::default()).run(model);
    Runner::new(PctScheduler::new_from_seed(1, 3, schedules / 2), Config::default()).run(model);
}
