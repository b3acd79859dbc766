//! One file or folder a command.

pub(crate) mod backup;
pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod compact;
pub(crate) mod crashtest;
pub(crate) mod dump;
pub(crate) mod info;
pub(crate) mod lab;
pub(crate) mod options;
pub(crate) mod probe;
pub(crate) mod rebuild;
pub(crate) mod rows;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod verify;
