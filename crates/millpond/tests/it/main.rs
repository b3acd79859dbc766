//! The engine's integration tests: one binary, linked once.

mod api;
mod bad_input;
mod bit_flips;
mod bulk_load;
mod by_the_book;
mod crash_matrix;
mod crash_tables;
mod decoders;
mod failing_syncs;
mod inspect;
mod killed;
mod large_batches;
mod long_keys;
mod merges;
mod metrics;
mod model_btreemap;
mod pool;
mod races;
mod rebuild;
mod rebuild_loss;
mod rows;
mod scenarios;
mod status;
mod support;
mod tables;
mod tidy;
