//! Recovery: streams of an earlier process, registered again from the journal's records, and continued.
//!
//! ```text
//! starting_journal  a locked journal -> its streams in the registry
//! restored_stream   one stream in the registry    recorded_terms     metadata and terms of a description
//! stream_plan       what becomes of a stream      attempt            how often the process died with a stream
//! coordinator       one task for each model       continuation_order which stream is submitted next
//! model_wait        the wait for the model        model_match        whether the model is the stream's, by content
//! continuation      the submission of a stream    recorded_choices   tokens of the choices
//! settlement        streams without further tokens    first_news     the wait for a stream's first new token
//! wall_time         instants of this process from recorded wall times
//! takeover          a stream of another process that is gone
//! reclaim           streams that another gateway may have taken over
//! ownership         the wait until that is known
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
pub(crate) mod continuation_order;
pub(crate) mod coordinator;
pub(crate) mod first_news;
pub(crate) mod model_match;
pub(crate) mod model_wait;
pub(crate) mod ownership;
pub(crate) mod reclaim;
pub(crate) mod recorded_choices;
pub(crate) mod recorded_terms;
pub(crate) mod restored_stream;
pub(crate) mod settlement;
pub mod starting_journal;
pub(crate) mod stream_plan;
pub mod takeover;
pub(crate) mod wall_time;

pub use coordinator::Recovery;
pub use starting_journal::StartingJournal;
