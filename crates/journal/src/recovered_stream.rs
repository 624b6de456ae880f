//! Streams as a restarted process finds them.

use crate::record::Alternative;
use crate::stream_table::StreamKey;

/// Whether all records of a stream were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Integrity {
    /// All records that were written.
    #[default]
    Intact,
    /// Other parts of the journal are damaged, after the last record of the stream: tokens at the end may be
    /// missing, but for choices with an end.
    TailInDoubt,
    /// Records are missing. The tokens are a prefix; the stream must not be continued.
    Lost(LossReason),
}

/// Why a stream is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// A record is missing before one that was found.
    Hole,
    /// The disk was full or broken, and the stream went on without a journal.
    NotWritten,
    /// A record contradicts those before.
    Contradiction,
    /// The memory for rebuilt streams is used up.
    Memory,
}

/// A stream rebuilt from records.
#[derive(Clone, Debug)]
pub struct RecoveredStream {
    /// Key for further records of the stream.
    pub key: StreamKey,
    /// Id of the stream.
    pub id: u128,
    /// Description of the request, as written.
    pub description: Vec<u8>,
    /// Number of the process that opened the stream, or rewrote all records last.
    pub boot: u64,
    /// The last start of the sequences.
    pub started: Option<RecoveredStart>,
    /// Choices up to the highest with a record.
    pub choices: Vec<RecoveredChoice>,
    /// Sampling parameters after the last control update.
    pub sampling: Option<Vec<u8>>,
    /// Whether a client paused the stream.
    pub is_paused: bool,
    /// The first choice that ended badly.
    pub broke: Option<u32>,
    /// The last owner.
    pub claim: Option<RecoveredClaim>,
    /// The prompts as they were submitted; `None` before the submission, and where the description has them since the
    /// last rewriting.
    pub prepared: Option<Vec<u8>>,
    /// The stored response.
    pub outcome: Option<Vec<u8>>,
    /// Whether records are missing.
    pub integrity: Integrity,
}

/// A record `Started` with the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveredStart {
    /// Prompt tokens found in the prefix cache.
    pub cached_tokens: u64,
    /// Wall time.
    pub at_unix_us: u64,
    /// Number of the process that wrote the record.
    pub boot: u64,
}

/// A record `Claimed` with the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveredClaim {
    /// Grows with each owner.
    pub generation: u64,
    /// The owner.
    pub instance: u64,
    /// How many times the stream was submitted to an engine.
    pub attempt: u32,
    /// The caller's code of the reason.
    pub why: u32,
    /// Tokens of all choices at the claim.
    pub tokens: u64,
    /// Number of the process that wrote the record.
    pub boot: u64,
}

/// One choice of a recovered stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecoveredChoice {
    /// Token ids from the first on.
    pub ids: Vec<u32>,
    /// Empty, or the log-probability of each token (NaN where a record has none).
    pub logprobs: Vec<f32>,
    /// Empty, or how many of `alternatives` belong to each token.
    pub alternative_counts: Vec<u8>,
    /// Alternatives of all tokens, flattened.
    pub alternatives: Vec<Alternative>,
    /// Code of the end and wall time in microseconds.
    pub end: Option<(u32, u64)>,
}

/// A stream that a newer version opened. The records stay in the journal until the stream is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedStream {
    /// Key for forgetting the stream.
    pub key: StreamKey,
    /// Id of the stream.
    pub id: u128,
    /// Version of the description.
    pub version: u32,
}

/// Everything that a journal contained.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Streams in the order of their beginning or last rewriting.
    pub streams: Vec<RecoveredStream>,
    /// Streams of newer versions.
    pub refused: Vec<RefusedStream>,
    /// Counts for the log and for metrics.
    pub report: RecoveryReport,
}

/// Counts of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Number of the process that wrote last; 0 in an empty journal.
    pub last_boot: u64,
    /// Whether that process shut down in order.
    pub is_sealed: bool,
    /// Segments that were read.
    pub segments: u64,
    /// Frames with a right checksum.
    pub frames: u64,
    /// Bytes of those frames.
    pub bytes: u64,
    /// Bytes after the last usable frame that were removed: written, but not synced before the process died.
    pub cut_bytes: u64,
    /// Places where synced frames are missing.
    pub damages: u64,
    /// Records of streams whose beginning is missing.
    pub orphan_records: u64,
    /// Streams of which there are later records only, and none that they were forgotten.
    pub lost_beginnings: u64,
    /// Records of kinds that a newer version wrote.
    pub unknown_records: u64,
    /// Streams that were dropped for lack of memory.
    pub dropped_streams: u64,
    /// Segments that could not be read to their end.
    pub read_errors: u64,
}
