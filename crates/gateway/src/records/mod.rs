//! Records of streams as bytes of the journal: JSON of bounded length, read back with checked values.
//!
//! ```text
//! description  what a stream was opened with, and the content of its model     control_state  control updates of a stream
//! outcome      errors of streams that never start, and notes on the end
//! end_name     names of ends
//! json_record  JSON of bounded length, and bounds of decoded values
//! ```

pub(crate) mod control_state;
pub(crate) mod description;
pub(crate) mod end_name;
pub(crate) mod json_record;
pub mod outcome;

pub use control_state::ControlState;
pub(crate) use description::images_of_description;
pub use description::{
    DESCRIPTION_BYTES_MAX, DescriptionKind, ModelIdentity, RecordedPrompts, StreamDescription,
    files_of_description, key_of_description,
};
pub(crate) use end_name::end_name;
pub use end_name::end_words;
pub use json_record::DescriptionError;
pub(crate) use json_record::{from_json, to_json};
pub(crate) use outcome::NotedEnd;
pub use outcome::is_rejection;

use std::time::{Instant, UNIX_EPOCH};
use wire::clock;

/// Wall time of an instant: microseconds since the Unix epoch.
pub(crate) fn unix_us(at: Instant) -> u64 {
    let since = clock::wall(at).duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}
