//! The pages of runs.

pub(super) mod page;
pub(super) mod steps_page;

#[cfg(test)]
mod tests;
