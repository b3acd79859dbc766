//! The engine's pool as far as pages come and go: the real ways in and out, table and line for frames, over frames and
//! a store of the model.

pub(crate) mod buffer_pool;
pub(crate) mod frame;
#[path = "../../../../millpond/src/pool/frame_ticket.rs"]
mod frame_ticket;
#[path = "../../../../millpond/src/pool/free_frames.rs"]
#[expect(dead_code, reason = "the pool uses more of it than the model")]
mod free_frames;
mod primitives;
#[path = "../../../../millpond/src/pool/residence.rs"]
#[expect(dead_code, reason = "replacement remembers which page left")]
mod residence;
#[path = "../../../../millpond/src/pool/table.rs"]
mod table;
