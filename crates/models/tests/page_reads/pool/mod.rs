//! The engine's pool as far as pages come and go: the real loads and evictions, table and queue for frames, over the
//! model's frames and store.

pub(crate) mod buffer_pool;
pub(crate) mod frame;
#[path = "../../../../millpond/src/pool/frame_ticket.rs"]
mod frame_ticket;
#[path = "../../../../millpond/src/pool/free_frames.rs"]
#[expect(dead_code, reason = "the pool uses more of it than the model")]
mod free_frames;
pub(crate) mod pin;
mod primitives;
#[path = "../../../../millpond/src/pool/residence.rs"]
#[expect(dead_code, reason = "replacement remembers which page left")]
mod residence;
#[path = "../../../../millpond/src/pool/table.rs"]
mod table;
