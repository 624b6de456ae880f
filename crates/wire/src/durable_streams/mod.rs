//! The read side of the Durable Streams protocol (durable-streams.dev): an append-only list of JSON messages, which
//! clients read from an offset on.
//!
//! ```text
//! message  the messages, events of the jobs API without times; their offsets; live reads
//! ```
//!
//! A message depends only on the tokens up to its step. So the bytes between two offsets are the same in every read,
//! also after a restart of the server.

pub mod message;
