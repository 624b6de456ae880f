//! The read side of the Durable Streams protocol (durable-streams.dev): an append-only list of JSON messages, which
//! clients read from an offset on.
//!
//! ```text
//! step_offset  offsets: positions in a stream, one choice after another
//! message      the messages: events of the jobs API without times
//! live_read    the cursor of live reads, and the control events between messages
//! ```
//!
//! A message depends only on the tokens up to its step. So the bytes between two offsets are the same in every read,
//! also after a restart of the server.

pub mod live_read;
pub mod message;
pub mod step_offset;
