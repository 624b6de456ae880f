//! The store of records: requests of the replicator with their outcomes, and the store as this process has seen it
//! last.

use crate::messages::{FileDigest, RecordsHead};
use crate::names::InstanceId;
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A request to JetStream. At most one for each stream is unanswered, purges aside.
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
    /// Store the files that the stream's records name.
    Files {
        /// The stream.
        id: u128,
        /// The files.
        files: Vec<FileDigest>,
        /// Whether what is stored is removed before, since it is old.
        renews: bool,
    },
    /// Remove all files of the stream.
    PurgeFiles {
        /// The stream.
        id: u128,
    },
}

/// The answer to a request to store files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesOutcome {
    /// Stored.
    Stored,
    /// A file is not on this machine any more: the stream cannot be continued elsewhere.
    Missing,
    /// Not stored; to be sent again after this time.
    Busy(Duration),
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

/// Why records cannot be stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreProblem {
    /// The NATS server has no JetStream.
    #[error("JetStream is not enabled at the NATS server (jetstream in its configuration)")]
    NotEnabled,
    /// Everything else, in words for the operator.
    #[error("{0}")]
    Other(String),
}

impl StoreProblem {
    pub(super) fn no_answer() -> Self {
        Self::Other("JetStream does not answer".to_owned())
    }
}

/// Shared by the driver, metrics and the report of the cluster.
#[derive(Debug, Default)]
pub struct StoreStatus {
    bytes: AtomicU64,
    is_there: AtomicBool,
    problem: Mutex<Option<StoreProblem>>,
}

impl StoreStatus {
    /// Bytes of all records in JetStream.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Why records cannot be stored; `None`: they can, or the store was not looked at yet.
    pub fn problem(&self) -> Option<String> {
        self.lock().as_ref().map(StoreProblem::to_string)
    }

    /// Whether the NATS servers have no JetStream.
    pub fn is_not_enabled(&self) -> bool {
        *self.lock() == Some(StoreProblem::NotEnabled)
    }

    /// Whether records can be stored.
    pub fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Relaxed)
    }

    pub(super) fn note_facts(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        if !self.is_there.swap(true, Ordering::Relaxed) {
            tracing::info!("the records of streams are stored in JetStream");
        }
        *self.lock() = None;
    }

    /// Logs a problem that is another one than before.
    pub(super) fn note_problem(&self, why: StoreProblem) {
        self.is_there.store(false, Ordering::Relaxed);
        let mut problem = self.lock();
        if problem.as_ref() != Some(&why) {
            tracing::warn!("streams are not replicated: {why}");
            *problem = Some(why);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<StoreProblem>> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_is_shown_until_the_store_is_there() {
        let status = StoreStatus::default();
        assert_eq!((status.problem(), status.is_there()), (None, false));
        status.note_problem(StoreProblem::NotEnabled);
        assert!(status.is_not_enabled() && status.problem().is_some());
        status.note_facts(7);
        let seen = (status.problem(), status.is_there(), status.bytes());
        assert_eq!(seen, (None, true, 7));
        status.note_problem(StoreProblem::Other("gone".to_owned()));
        assert_eq!(status.problem().as_deref(), Some("gone"));
        assert!(!status.is_there() && !status.is_not_enabled());
    }
}
