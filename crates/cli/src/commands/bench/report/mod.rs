//! The pages of runs.

mod machine;
pub(super) mod page;
pub(super) mod steps_page;

#[cfg(test)]
mod tests;
