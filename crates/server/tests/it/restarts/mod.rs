//! Streams after a restart of the server.
//!
//! A copy of the journal's directory, taken while the server runs, is what a killed process leaves. A second server on the
//! copy continues the streams, and readers of both servers together get what the readers of an uninterrupted server get.

mod control;
mod copies;
mod endings;
mod every_token;
mod offsets;
mod poison;
#[cfg(target_os = "linux")]
mod poisoned_grammar;
mod stored;
mod unread;
mod waiting;
