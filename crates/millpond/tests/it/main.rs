//! The engine's integration tests: one binary, linked once.

mod api;
mod bad_input;
mod crash_matrix;
mod inspect;
mod model_btreemap;
mod races;
mod rebuild;
mod scenarios;
mod support;
mod tidy;
