//! How many schedules are tried.

/// Runs the model under so many schedules: half of them random, half with priorities that change at a few moments, which
/// finds what needs one thread to be late.
pub(crate) fn explore(schedules: usize, model: impl Fn() + Send + Sync + Copy + 'static) {
    let full = std::env::var_os("MILLPOND_FULL").is_some();
    let schedules = if full { 20 * schedules } else { schedules };
    shuttle::check_random(model, schedules / 2);
    shuttle::check_pct(model, schedules / 2, 3);
}
