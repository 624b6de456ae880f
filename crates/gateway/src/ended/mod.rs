//! The ends of resumable streams, for clients that left: events for webhooks.
//!
//! ```text
//! ended_stream  what is reported of a stream that has ended
//! end_reports   the report as an event, and a task for each stream with a webhook that waits for the end
//! ```

mod end_reports;
mod ended_stream;

pub use end_reports::EndReports;
pub(crate) use end_reports::{EVENT_PREFIX, EventRecord};
pub use ended_stream::EndedStream;
