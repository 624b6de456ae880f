//! Durable streams: the records of streams in the journal, and streams that continue after a restart of the process.
//!
//! ```text
//! description  what a stream was opened with       control_state  control updates of a stream
//! end_code     ends of streams as numbers          bounds         bounds of decoded values
//! by_name      names of wire protocols             json_record    JSON of bounded length
//! registration_barrier   requests wait until recovered streams are registered
//! rejection    errors of streams that never start     noted_end   notes on the end of a stream
//!
//! stream_journal   the journal with its thread     durable_stream   a stream's handle to its records
//! recorder         the journal's caller            rewriting        live streams once more, from memory
//! stream_slot      what handle and recorder share  stream_logs      gates and side logs of a stream
//! recorded_stream  what was recorded of a stream   watchdog         a journal that makes no progress
//! stream_table     the recorder's streams          news_list        streams with news for the recorder
//! pending_shows    what a commit will show         durability_log   lines about a journal that is not durable
//! forgotten_records   deletions that wait for the journal
//! ```
//!
//! # Output commit
//!
//! The token logs of a durable stream are gated: readers see a token, or an end, after the record was written. An append
//! wakes the recorder on the journal's thread; the recorder copies what is new into the journal, commits, and shows what
//! the journal has acknowledged. The engine waits for nothing of this. Where the journal makes no progress the watchdog
//! opens the gates: a stream never ends, and never stands still for longer than two seconds, because the disk is bad.

mod bounds;
mod by_name;
mod control_progress;
pub(crate) mod control_state;
pub(crate) mod description;
mod durability_log;
mod durable_stream;
pub(crate) mod end_code;
mod forgotten_records;
mod journal_metrics;
mod journal_state;
mod json_record;
mod news_list;
mod noted_end;
mod pending_shows;
mod recorded_stream;
mod recorder;
mod registration_barrier;
pub mod rejection;
mod rewriting;
mod stream_journal;
mod stream_logs;
mod stream_news;
mod stream_slot;
mod stream_table;
mod token_buffers;
mod unix_time;
mod watchdog;

pub use control_state::ControlState;
pub use description::{
    DESCRIPTION_BYTES_MAX, DescriptionKind, RecordedPrompts, StreamDescription, key_of_description,
};
pub use durable_stream::{DurableStream, StoredBlob};
pub use end_code::{end_code, end_from_code};
pub use forgotten_records::ForgottenRecords;
pub use journal_metrics::JournalGauges;
pub use json_record::DescriptionError;
pub(crate) use json_record::{from_json, to_json};
pub(crate) use noted_end::NotedEnd;
pub use registration_barrier::RegistrationBarrier;
pub use rejection::is_rejection;
pub use stream_journal::{AdoptedStream, JournalSlot, StreamJournal};
pub use stream_news::Claim;
pub(crate) use unix_time::unix_us;
pub use watchdog::watch_journal;
