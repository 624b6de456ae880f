//! Requests of the replicator to JetStream, and their outcomes.

use crate::messages::RecordsHead;
use crate::names::InstanceId;
use bytes::Bytes;
use std::time::Duration;

/// A request to JetStream. At most one for each stream is unanswered, beside purges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreRequest {
    /// Append a message if `expected` is the sequence of the subject's last one (0: there is none).
    Publish {
        /// The stream.
        id: u128,
        /// Number of the request.
        serial: u64,
        /// Sequence of the last message.
        expected: u64,
        /// Head and records.
        payload: Bytes,
    },
    /// Read the last message of the stream's subject.
    Check {
        /// The stream.
        id: u128,
    },
    /// Remove the messages of the stream's subject with sequences below this one.
    Purge {
        /// The stream.
        id: u128,
        /// The first sequence that stays.
        below: u64,
        /// The store that the sequence is of: in a store that was made again, it would be another message's.
        epoch: u64,
    },
}

/// The answer to a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishOutcome {
    /// Stored with this sequence.
    Stored(u64),
    /// Another message is the last one.
    WrongSequence,
    /// Not stored; to be sent again after this time.
    Busy(Duration),
    /// Perhaps stored.
    Unknown,
}

/// The last message of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastMessage {
    /// Sequence in JetStream.
    pub sequence: u64,
    /// The owner that sent it.
    pub head: RecordsHead,
}

/// Another instance owns a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// The stream.
    pub id: u128,
    /// The owner.
    pub by: InstanceId,
    /// The owner's generation.
    pub generation: u64,
}

/// Whether the records of a stream are in JetStream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    /// Everything so far is stored, or on the way.
    Followed,
    /// Records were dropped, and the stream is not yet written once more.
    Missing,
    /// Another instance owns the stream.
    Fenced,
}
