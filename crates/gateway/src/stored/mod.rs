//! Answers that are stored: responses, and chat completions with `"store": true`.
//!
//! ```text
//! response_store   all of them: found, listed, changed, evicted     fair_lru   their bounds, shared by owners
//! response_record  one of them: the running stream, or the ended answer
//! stored_snapshot  one of them as bytes for the journal           image_files   the images of requests, files of the journal
//! ```

mod fair_lru;
mod image_files;
mod response_record;
mod response_store;
mod stored_snapshot;

pub use image_files::ImageFiles;
pub use response_record::{EndedResponse, ResponseLookup, ResponseRecord};
pub use response_store::{HistoryImages, ResponseStore, StoredChat};
pub(crate) use stored_snapshot::hex_id;
pub use stored_snapshot::{StoredNote, StoredSummary, is_stored_answer};
