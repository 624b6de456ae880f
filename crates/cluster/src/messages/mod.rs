//! Messages between instances. Every length is bounded; bytes of others are an error, never a panic.
//!
//! ```text
//! heartbeat   what an instance is, serves and has free     run, run_part, run_reply   a request for an engine
//! tokens      tokens, ends and progress of requests        read                       tokens that did not arrive
//! control     orders for requests on an engine             update                     control updates
//! records_head   the owner of a stream's records           encoding                   bytes of all but heartbeats and tokens
//! ```

use std::fmt;

mod control;
mod encoding;
mod heartbeat;
mod read;
mod records_head;
mod run;
mod run_part;
mod run_reply;
mod tokens;
mod update;

pub use control::{ORDERS_MAX, Order, OrderKind, decode_orders, encode_orders};
pub use heartbeat::{
    ContentIdentity, HEARTBEAT_BYTES_MAX, Heartbeat, KEYS_SAMPLE_MAX, MODELS_MAX, OwnedStreams,
    ReportedLoad, Role, ServedModel,
};
pub use read::{READS_MAX, ReadEntry, ReadRequest};
pub use records_head::{RECORDS_HEAD_BYTES_MAX, RecordsHead};
pub use run::{RUN_BYTES_MAX, Run, RunChoice};
pub use run_part::{ASSEMBLY_BYTES_MAX, Assembled, PART_BYTES_MAX, PART_WAIT, PartAssembly};
pub use run_reply::{Rejection, RunReply};
pub use tokens::{
    Attempt, ChoiceEnd, RequestProgress, RunKey, TokenBatch, TokenRun, VECTOR_ENTRIES_MAX,
};

/// Bytes of one message; a NATS server takes 1 MiB by default.
pub const MESSAGE_BYTES_MAX: usize = 960 << 10;

/// Version of the binary messages.
const VERSION: u8 = 2;

/// Why a message cannot be encoded or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// Written in another version of the encoding.
    Version(u8),
    /// More of these than the bound.
    TooMany(&'static str, usize),
    /// Bytes are missing, unknown or left over.
    Malformed(&'static str),
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "version {version} of a message, not {VERSION}"),
            Self::TooMany(field, max) => write!(f, "a message has at most {max} {field}"),
            Self::Malformed(field) => write!(f, "the {field} of a message cannot be read"),
        }
    }
}

impl std::error::Error for MessageError {}
