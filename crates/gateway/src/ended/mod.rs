//! The ends of resumable streams, for clients that left: events for webhooks.
//!
//! ```text
//! ended_stream  what is reported of a stream that has ended
//! event_record  the report as an event: an object of the journal
//! end_watch     a task for each stream with a webhook that waits for the end and reports it
//! ```

mod end_watch;
mod ended_stream;
mod event_record;

pub use end_watch::EndReports;
pub use ended_stream::EndedStream;
pub(crate) use event_record::{EVENT_PREFIX, EventRecord};
