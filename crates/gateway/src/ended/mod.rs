//! The ends of resumable streams, for clients that left: webhooks.
//!
//! ```text
//! ended_stream  what is reported of a stream that has ended
//! end_watch     a task for each resumable stream that waits for the end and reports it
//! ```

mod end_watch;
mod ended_stream;

pub use end_watch::EndReports;
pub use ended_stream::EndedStream;
