//! Messages between instances. Every length is bounded; bytes of others are an error, never a panic.
//!
//! ```text
//! heartbeat   what an instance is, serves and has free     run       a request for an engine, and the answers
//! tokens      tokens, ends and progress of requests        control   orders, control updates, reads of missing tokens
//! files       files that requests name                   encoding  bytes of all but heartbeats and tokens, the head of records
//! ```

mod control;
mod encoding;
mod files;
mod heartbeat;
mod run;
mod tokens;

pub use control::{
    ORDERS_MAX, Order, OrderKind, READS_MAX, ReadEntry, ReadRequest, decode_orders, encode_orders,
};
pub use encoding::{RECORDS_HEAD_BYTES_MAX, RecordsHead};
pub use files::{
    FILE_BYTES_MAX, FILE_PART_BYTES, FILES_MAX, FileDigest, FileMessage, FileReply, file_parts,
};
pub use heartbeat::{
    ContentIdentity, HEARTBEAT_BYTES_MAX, Heartbeat, KEYS_SAMPLE_MAX, MODELS_MAX, OwnedStreams,
    ReportedLoad, Role, ServedModel,
};
pub use run::{
    ASSEMBLY_BYTES_MAX, Assembled, PART_BYTES_MAX, PART_WAIT, PartAssembly, RUN_BYTES_MAX,
    Rejection, Run, RunChoice, RunReply,
};
pub use tokens::{
    Attempt, ChoiceEnd, RequestProgress, RunKey, TokenBatch, TokenRun, VECTOR_ENTRIES_MAX,
};

/// Bytes of one message; a NATS server takes 1 MiB by default.
pub const MESSAGE_BYTES_MAX: usize = 960 << 10;

/// Version of the binary messages.
const VERSION: u8 = 2;

/// Why a message cannot be encoded or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Written in another version of the encoding.
    #[error("version {0} of a message, not {VERSION}")]
    Version(u8),
    /// More of these than the bound.
    #[error("a message has at most {1} {0}")]
    TooMany(&'static str, usize),
    /// Bytes are missing, unknown or left over.
    #[error("the {0} of a message cannot be read")]
    Malformed(&'static str),
}
