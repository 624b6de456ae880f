//! Records of a stream: everything that decides future tokens and frames; their kinds and bounds. A length in a file is
//! compared with its bound before memory is allocated for it.

/// Version of a stream's opening description that this crate writes and reads.
pub const OPEN_VERSION: u32 = 1;

/// Reason of [`Record::Forgotten`] where the stream was rewritten under another handle. Other reasons are the caller's.
pub const REWRITTEN: u32 = 0;

/// One fact about a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Record<'a> {
    /// Beginning of the stream; binds the handle.
    Open(Open<'a>),
    /// The first step of the stream's sequences in this process.
    Started {
        /// Prompt tokens found in the prefix cache.
        cached_tokens: u64,
        /// Wall time.
        at_unix_us: u64,
    },
    /// Tokens of one choice.
    Tokens(Tokens<'a>),
    /// A control update, with the resulting sampling parameters.
    Steered {
        /// Encoded by the caller.
        sampling: &'a [u8],
    },
    /// A client paused the stream, or resumed the stream.
    Paused {
        /// True while paused.
        on: bool,
    },
    /// The first choice that ended badly.
    Broke {
        /// Number of the choice.
        choice: u32,
    },
    /// End of one choice.
    Ended {
        /// Number of the choice.
        choice: u32,
        /// The caller's code of the end.
        end: u32,
        /// Wall time.
        at_unix_us: u64,
    },
    /// A process took the stream over.
    Claimed {
        /// Grows with each owner.
        generation: u64,
        /// The process.
        instance: u64,
        /// How many times the stream was submitted to an engine.
        attempt: u32,
        /// The caller's code of the reason.
        why: u32,
        /// Tokens of all choices at the claim.
        tokens: u64,
    },
    /// The prompts as they were submitted to an engine.
    Prepared {
        /// Encoded by the caller.
        body: &'a [u8],
    },
    /// The response that is stored after the end.
    Kept {
        /// Encoded by the caller.
        outcome: &'a [u8],
    },
    /// End of retention; unbinds the handle.
    Forgotten {
        /// The caller's code, or [`REWRITTEN`].
        why: u32,
        /// Handle of the copy that replaces a stream that was [`REWRITTEN`], so that a copy of another process, whose end
        /// was never written, is not taken for it. 0: none, or not known, as in records of earlier versions.
        copy: u64,
    },
    /// Records after this one were not written: the disk was full or broken.
    Gap,
    /// Orderly shutdown of the process, under handle 0.
    Seal,
    /// A kind that a newer version wrote.
    Unknown {
        /// The number of the kind.
        kind: u8,
        /// The bytes of the body.
        body: &'a [u8],
    },
}

/// Beginning of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open<'a> {
    /// Id of the stream, 128 bits.
    pub id: u128,
    /// Version of `body`: a reader with a lower [`OPEN_VERSION`] does not use the stream and keeps the bytes.
    pub version: u32,
    /// Handle of the copy that this one replaces, after it was written in full; 0 at the beginning of a stream.
    pub replaces: u64,
    /// Description of the request, encoded by the caller.
    pub body: &'a [u8],
}

impl<'a> Open<'a> {
    /// The beginning of a stream in the current version.
    pub fn new(id: u128, body: &'a [u8]) -> Self {
        Self {
            id,
            version: OPEN_VERSION,
            replaces: 0,
            body,
        }
    }
}

/// Tokens of one choice. The optional parts are empty, or have an entry for each token.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tokens<'a> {
    /// Number of the choice.
    pub choice: u32,
    /// Index of the first token in the choice.
    pub first: u32,
    /// Token ids.
    pub ids: &'a [u32],
    /// Log-probabilities of the tokens.
    pub logprobs: &'a [f32],
    /// Alternatives to the tokens.
    pub alternatives: Alternatives<'a>,
}

/// Likeliest tokens at several places, flattened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Alternatives<'a> {
    /// How many of `items` belong to each token.
    pub counts: &'a [u8],
    /// The alternatives of the first token, then those of the second.
    pub items: &'a [Alternative],
}

/// One of the likeliest tokens at a place.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Alternative {
    /// Token id.
    pub id: u32,
    /// Logarithm of the probability.
    pub logprob: f32,
}

impl<'a> Tokens<'a> {
    /// Divides a run into records of at most [`TOKENS_PER_RECORD_MAX`](crate::TOKENS_PER_RECORD_MAX) tokens.
    pub fn split_runs(self) -> impl Iterator<Item = Self> {
        let mut rest = Some(self);
        std::iter::from_fn(move || {
            let run = rest.take().filter(|run| !run.ids.is_empty())?;
            let (head, tail) = run.split_at(run.ids.len().min(crate::TOKENS_PER_RECORD_MAX));
            rest = Some(tail);
            Some(head)
        })
    }

    fn split_at(self, place: usize) -> (Self, Self) {
        let (ids, ids_after) = self.ids.split_at(place);
        let (logprobs, logprobs_after) = self.logprobs.split_at(place.min(self.logprobs.len()));
        let (alternatives, alternatives_after) = self.alternatives.split_at(place);
        let head = Self {
            ids,
            logprobs,
            alternatives,
            ..self
        };
        let tail = Self {
            first: self.first.saturating_add(place as u32),
            ids: ids_after,
            logprobs: logprobs_after,
            alternatives: alternatives_after,
            ..self
        };
        (head, tail)
    }
}

impl Alternatives<'_> {
    fn split_at(self, place: usize) -> (Self, Self) {
        let (counts, counts_after) = self.counts.split_at(place.min(self.counts.len()));
        let items: usize = counts.iter().map(|count| usize::from(*count)).sum();
        let (items, items_after) = self.items.split_at(items.min(self.items.len()));
        (
            Self { counts, items },
            Self {
                counts: counts_after,
                items: items_after,
            },
        )
    }
}

/// Numbers of the record kinds. A number is never used again for another kind.
pub(crate) mod kind {
    pub(crate) const OPEN: u8 = 1;
    pub(crate) const STARTED: u8 = 2;
    pub(crate) const TOKENS: u8 = 3;
    pub(crate) const STEERED: u8 = 4;
    pub(crate) const PAUSED: u8 = 5;
    pub(crate) const BROKE: u8 = 6;
    pub(crate) const ENDED: u8 = 7;
    pub(crate) const CLAIMED: u8 = 8;
    pub(crate) const KEPT: u8 = 9;
    pub(crate) const FORGOTTEN: u8 = 10;
    pub(crate) const SEAL: u8 = 11;
    pub(crate) const GAP: u8 = 12;
    pub(crate) const PREPARED: u8 = 13;
}

/// Flags of a record of tokens.
pub(crate) const HAS_LOGPROBS: u8 = 1;
pub(crate) const HAS_ALTERNATIVES: u8 = 2;

/// Bytes of one record's body: a request of 8 MiB of prompt text and the token ids as JSON.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

/// Bytes of records that are collected before they are written, without the last record.
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
