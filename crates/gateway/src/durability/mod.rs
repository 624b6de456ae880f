//! Durable streams: the records of streams in the journal, and streams that continue after a restart of the process.
//!
//! ```text
//! description  what a stream was opened with       control_state  control updates of a stream
//! end_code     ends of streams as numbers          bounds         bounds of decoded values
//! by_name      names of wire protocols             json_record    JSON of bounded length
//! recovery     streams of an earlier process
//! ```

mod bounds;
mod by_name;
pub(crate) mod control_state;
pub(crate) mod description;
pub(crate) mod end_code;
mod json_record;
pub mod recovery;

pub use control_state::ControlState;
pub use description::{DESCRIPTION_BYTES_MAX, DescriptionKind, RecordedPrompts, StreamDescription};
pub use end_code::{end_code, end_from_code};
pub use json_record::DescriptionError;
