//! Streams by name: opened once, read by many subscribers, resumed after a lost connection.
//!
//! Every generation is registered when the request is parsed, for all routes and for streamed and collected
//! responses. A subscriber that resumes a stream reads the logs from the first token, decodes without emitting up to
//! the subscriber's position, and continues from there: neither text nor frames are stored.
//!
//! A plain stream is canceled when the client disconnects, and removed at the end. A resumable stream
//! (`X-Stream-Resumable: 1`) continues without a client, up to the credit window and `detached_tokens`, and is kept for
//! `retention` after the end. With the policy `detach` a plain stream becomes resumable when the client takes nothing
//! for too long.
//!
//! # The state of a stream
//!
//! | question | type |
//! |---|---|
//! | Where do the tokens come from? | [`StreamOrigin`]: a request to this process, its journal, or the records of another gateway |
//! | Is the stream generating? | [`StreamState`], derived from the start, the pause and the engine's requests |
//! | How did the stream end? | [`stream::End`] of each choice, or the error of a stream that never started |
//! | Does another gateway continue the stream? | [`StreamRecord::has_left`] |
//! | How far is a token? | written (in the log), recorded (in the journal), shown (to readers) |
//!
//! # Output commit
//!
//! The token logs of a durable stream are gated: readers see a token, or an end, after the record was written. An append
//! wakes the recorder on the journal's thread; the recorder copies what is new into the journal, commits, and shows what
//! the journal has acknowledged. The engine waits for nothing of this. Where the journal makes no progress the watchdog
//! opens the gates: a stream never ends, and never stands still for longer than two seconds, because the disk is bad.
//!
//! ```text
//! stream_journal  the journal with its thread, and whether it makes progress     durable_stream  a stream's handle to its records
//! stream_slot     what handle and recorder share  stream_logs     gates and side logs of a stream
//! recorder        the journal's caller            stream_table    the recorder's streams
//! journal_copy    what the journal has of a stream, and live streams once more, from memory
//! ```
//!
//! # The collaborators of a stream record
//!
//! The registry owns the [`StreamRecord`]: metadata, terms, logs and state. These values act on the record, each in
//! the drop of the value:
//!
//! | value | held by | effect of the drop |
//! |---|---|---|
//! | [`StreamRun`] | the generation of a plain stream; the detached driver of others | rejects a stream that never started, cancels a running stream, marks the output as drained, and removes the stream from the registry, unless `StreamRun::finish_stream` has retained the stream |
//! | `DetachedDriver` | a task for each resumable or detachable stream | drops the driver's `StreamRun`. The task reads every log, so that no log is abandoned, and cancels the stream if no client returns in time |
//! | `CancelOnDrop` | the generation of a detachable stream's client | cancels the stream, unless the client's credit was revoked before |
//! | [`Subscriber`] | every reader, from before the first read until the reader leaves | the credit owner gives the credit up, and the stream gets `detached_tokens` |
//! | `PermitHolder` | the engine, one sequence permit for each request | the admission permit is released with the last sequence permit; a stream without a driver is added to `UndeliveredStreams` |
//!
//! These act without a drop:
//!
//! - `CreditOwner`, in the record: the subscriber whose reading returns credit. There is no owner after the owner
//!   has left; the next subscriber that reads becomes the owner.
//! - `UndeliveredStreams`: ended streams that the client has not read to the end, within the bounds for retained
//!   streams. The one that ended first is cut when the bounds are exceeded.
//! - `ConnectionHandle`, in the record: closes the connection of such a stream. [`ResponseStream`] travels with the
//!   response and connects the two.
//! - `Attendance`, in the record: the readers that are present, and whether the end was read. An [`EndReceipt`] is the end on the way to one of them.
//! - `AnswerStorage`, in the record: where the answer is stored after the end. Readers get the end when the answer is in the journal.
//! - `ControlHistory`, in the record: the last control updates.
//! - `ImageProgress`, in the record: images that another model describes before the start.
//! - `Transitions`, shared with the engine's followers: the state changes, published to the [`StreamFeed`].

pub(crate) mod answer_storage;
pub(crate) mod change_of_owner;
pub mod control;
pub mod describe;
pub(crate) mod durable_stream;
pub(crate) mod feed;
pub(crate) mod image_progress;
pub(crate) mod journal_copy;
pub mod positions;
pub(crate) mod recorder;
pub mod run_control;
pub(crate) mod stream_credit;
pub(crate) mod stream_journal;
pub(crate) mod stream_logs;
pub(crate) mod stream_metrics;
pub mod stream_record;
pub mod stream_registry;
pub(crate) mod stream_run;
pub(crate) mod stream_slot;
pub(crate) mod stream_table;
pub(crate) mod subscriber;
pub(crate) mod transitions;
pub(crate) mod undelivered;

pub use change_of_owner::{StreamOrigin, lost_error};
pub use durable_stream::{DurableStream, ForgottenRecords, StoredBlob};
pub use feed::{FeedEvent, FeedView, StreamFeed};
pub use generate::stream_source::{ChoiceLog, StartedGeneration};
pub use image_progress::{ImageChange, ImageFollower};
pub(crate) use run_control::RunControl;
pub(crate) use stream_credit::SocketMetrics;
pub use stream_journal::{
    JournalGauges, JournalSlot, RecoveredHandle, StreamJournal, watch_journal,
};
pub use stream_record::{
    STREAM_MOVED, Started, StreamRecord, StreamState, StreamTerms, moved_error,
};
pub use stream_registry::{RegistrationBarrier, StreamRegistry, UnreadPage, registry_caller};
pub use stream_run::StreamRun;
pub(crate) use stream_run::{PermitHolder, cancelled_error};
pub use stream_slot::Claim;
pub(crate) use subscriber::{CancelOnDrop, DetachedDriver};
pub use subscriber::{EndReceipt, Subscriber};
pub(crate) use transitions::Changes;
pub use undelivered::{ResponseStream, StreamLimits};
