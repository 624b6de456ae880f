//! Records of streams on disk, so that a stream outlives the process that generates it.
//!
//! A server that is killed in the middle of an answer reads the journal at the next start and continues each stream
//! from the recorded tokens. *Output commit* makes that exact: a token is emitted to a client only after the journal was
//! written (`write`, not `fsync`), so a restarted process never computes another token than one that was emitted.
//! A sync in groups beside the writes protects against power loss.
//!
//! - [`Record`]: one fact about a stream; [`encode_record`] and [`RecordDecoder`] are also the encoding between machines
//! - [`Writer`]: appends records, rewrites live streams, frees space; a state machine that the caller drives
//! - [`lock_journal`]: the fast part of a start, before a socket is bound; [`LockedJournal::recover`] rebuilds the streams
//! - [`open_journal`]: both; [`read_journal`] reads without changing files
//! - [`JournalThread`]: a writer with a thread
//! - [`RecordTap`]: receives what is appended, for a copy on another machine; [`RemoteRecords`] reads such a copy
//! - [`FileSystem`]: the files, real or modeled
//! - [`BlobStore`]: inputs of streams that are too large for a record, such as images
//!
//! The caller is the recorder of the server's streams, in crate `gateway`.
//!
//! ```
//! use journal::{JournalConfig, JournalDirectory, Record, Tokens, open_journal};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = std::env::temp_dir().join(format!("journal-doc-{}", std::process::id()));
//! let directory = JournalDirectory::new(&path);
//! let (mut writer, _) = open_journal(directory.clone(), JournalConfig::default())?;
//! let stream = writer.open_stream(7, b"{\"prompt\": [1, 2]}")?;
//! let tokens = Tokens { ids: &[10, 11, 12], ..Tokens::default() };
//! writer.append(stream, &Record::Tokens(tokens))?;
//! writer.commit(Duration::ZERO); // From here on the tokens may be emitted.
//! drop(writer);
//!
//! let (_writer, recovered) = open_journal(directory, JournalConfig::default())?;
//! assert_eq!(recovered.streams[0].id, 7);
//! assert_eq!(recovered.streams[0].choices[0].ids, [10, 11, 12]);
//! # std::fs::remove_dir_all(path)?;
//! # Ok(())
//! # }
//! ```

mod blob_store;
mod commit;
mod durability;
mod file_system;
mod frame;
mod group_commit;
mod journal_config;
mod journal_directory;
mod journal_thread;
mod open_journal;
mod record;
mod record_encoding;
mod recovered_stream;
mod recovery;
mod remote_records;
mod replay;
mod replayed_stream;
mod reserve;
mod rewrite_cycle;
mod segment;
mod space;
mod start_error;
mod stream_copy;
mod stream_table;
mod writer;

pub use blob_store::{BLOBS_MAX, BLOBS_NAME, BlobError, BlobName, BlobReference, BlobStore};
pub use durability::{DiskError, Durability, Impairment, SyncDone, SyncJob};
pub use file_system::{FileSystem, JournalFile};
pub use journal_config::JournalConfig;
pub use journal_directory::{CLUSTER_NAME, INSTANCE_NAME, JournalDirectory, REPLICATED_NAME};
pub use journal_thread::{JournalThread, JournalWaker, Recorder};
pub use open_journal::{LockedJournal, lock_journal, open_journal, read_journal};
pub use record::{
    Alternative, Alternatives, BATCH_BYTES_MAX, CHOICES_MAX, FRAME_BYTES_MAX, OPEN_VERSION, Open,
    RECORD_BYTES_MAX, REWRITTEN, Record, SAMPLING_BYTES_MAX, TOKENS_PER_CHOICE_MAX,
    TOKENS_PER_RECORD_MAX, Tokens,
};
pub use record_encoding::{
    DecodedRecord, NotARecord, RecordAddress, RecordDecoder, RecordError, encode_record,
};
pub use recovered_stream::{
    Integrity, LossReason, Recovered, RecoveredChoice, RecoveredClaim, RecoveredStart,
    RecoveredStream, RecoveryReport, RefusedStream,
};
pub use remote_records::{RecordSource, RecordTap, RemoteRecords, RemoteStream, ReplayError};
pub use space::RELEASED;
pub use start_error::StartError;
pub use stream_copy::StreamCopy;
pub use stream_table::StreamKey;
pub use writer::{AppendError, Writer, WriterCounts, WriterSizes};
