//! Recovery: streams of an earlier process, registered again from the journal's records, and continued.
//!
//! ```text
//! starting_journal  a locked journal -> its streams in the registry; a stream of another gateway that is gone
//! recovered_state   metadata, terms and tokens of the records, and what becomes of a stream
//! stream_recovery   one stream in the registry
//! coordinator       one task for each model                       ownership        streams that another gateway may own
//! continuation      the submission of a stream
//! attempt           how often the process died with a stream, and the order of submissions
//! ```
//!
//! # From the start of the process to the last submission
//!
//! 1. The journal is locked and the socket is bound; requests that may name a stream wait at the barrier.
//! 2. The journal is read, beside the loading of the model. Every stream is registered as a waiting stream with the
//!    recorded metadata, in the order of opening, and the barrier opens: readers get `200` and keep-alives.
//! 3. When a model is ready, new requests for the model are on hold; the recorded tokens of ended streams become readable;
//!    the others are claimed in the journal, admitted beyond the limits, and submitted with the tokens so far.
//! 4. After the last submission the hold ends.
//!
//! Nothing is forgotten in the journal on the way, so a crash during the recovery loses nothing.

pub(crate) mod attempt;
pub(crate) mod continuation;
pub(crate) mod coordinator;
pub(crate) mod ownership;
pub(crate) mod recovered_state;
pub mod starting_journal;
pub(crate) mod stream_recovery;

pub use coordinator::Recovery;
pub use starting_journal::StartingJournal;
