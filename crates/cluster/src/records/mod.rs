//! Records of streams in JetStream, so that another gateway can take a stream over.
//!
//! ```text
//! replicator         write-behind of all streams         replicated_stream  one stream: what is sent, stored, missing
//! journal_tap        the journal's side of the replicator  store            what the replicator wants, and what came of it
//! jet_stream         requests to JetStream               driver             the replicator on NATS
//! claim              a stream read and claimed           cluster_identity   which cluster the records belong to
//! ```
//!
//! # Copy
//!
//! A stream has one subject. Its owner appends batches of the journal's records, one message at a time, each with the
//! expected sequence of the subject's last message. Nothing waits for JetStream: what is not stored yet is kept in a
//! bounded buffer. Where that is full, or the store has lost messages, the stream is written once more from memory; the
//! older messages are purged when the copy is complete.
//!
//! # Files
//!
//! Images are no records. Where a stream's description names files, they are stored before its records, each in parts under
//! subjects of its own, and removed with the records: who finds records finds their files.
//!
//! # Owner
//!
//! The head of each message names the owner and a generation. A gateway takes a stream over by appending a claim with the
//! next generation: JetStream accepts one message after the last one, so one claim wins, and the next message of the
//! earlier owner is rejected. The earlier owner then reads the subject's last message, and learns that it is *fenced*.
//! There are no leases and no clocks of two machines: liveness decides when a claim is attempted, the comparison decides
//! which one counts.

mod claim;
mod cluster_identity;
mod driver;
mod jet_stream;
mod journal_tap;
mod replicated_stream;
mod replicator;
#[cfg(test)]
mod simulation;
mod store;
#[cfg(test)]
mod tests;

pub use claim::{
    CLAIM_TAKEOVER, ClaimError, ClaimOutcome, ClaimPlan, ClaimedPlace, ClaimedStream,
    SubjectMessage,
};
pub use cluster_identity::{ClusterIdentity, IdentityCheck};
pub use driver::{ReadFile, RecordsDriver, RecordsLink};
pub use jet_stream::JetStreamRecords;
pub use journal_tap::{JournalTap, SharedReplicator};
pub use replicator::{FileReader, KeyReader, RecordsConfig, Replicator, ReplicatorCounters};
pub use store::{
    Fenced, FilesOutcome, LastMessage, PublishOutcome, ReplicaState, StoreProblem, StoreRequest,
    StoreStatus,
};
