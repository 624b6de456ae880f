//! Recovery: streams of an earlier process, registered again from the journal's records, and continued.
//!
//! ```text
//! attempt          how often the process died with a stream, and whether the stream runs again
//! continuation_order  which recovered stream is submitted next
//! registration     a barrier: requests that name a stream wait until recovered streams are registered
//! wall_time        instants of this process from recorded wall times
//! ```

#![expect(dead_code, reason = "the coordinator of recovered streams follows")]

pub(crate) mod attempt;
pub(crate) mod continuation_order;
pub mod registration;
pub(crate) mod wall_time;
