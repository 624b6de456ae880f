//! Bounds of the format. A length in a file is compared with its bound before memory is allocated.

/// Bytes of one record's body: a request of 8 MiB of prompt text and the token ids as JSON.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

/// Bytes of records that are collected before they are written, beside the last record.
pub const BATCH_BYTES_MAX: usize = 1 << 20;

/// Kind, handle, sequence number and length of a record.
pub(crate) const RECORD_HEADER_BYTES_MAX: usize = 1 + 10 + 10 + 5;

/// Bytes of a frame's records.
pub const FRAME_BYTES_MAX: usize = BATCH_BYTES_MAX + RECORD_BYTES_MAX + RECORD_HEADER_BYTES_MAX;

/// Tokens of one record; longer runs are divided into several records.
pub const TOKENS_PER_RECORD_MAX: usize = 4096;

/// Choices of a stream.
pub const CHOICES_MAX: u32 = 1024;

/// Tokens of one choice.
pub const TOKENS_PER_CHOICE_MAX: u32 = 1 << 30;

/// Bytes of resolved sampling parameters.
pub const SAMPLING_BYTES_MAX: usize = 1 << 20;

/// Segments beyond which the live streams are rewritten, so that restarts do not collect small files.
pub(crate) const SEGMENTS_MAX: usize = 256;

/// Bytes that a search for frames among unreadable bytes checks in vain before the rest of the segment is given up:
/// an edited file may contain a plausible header in every 44 bytes.
pub(crate) const WASTED_BYTES_MAX: u64 = 1 << 30;
