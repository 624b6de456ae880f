//! Messages to one gateway.

use crate::messages::{Attempt, ChoiceEnd, MessageError, RequestProgress, RunKey, TokenBatch};
use engine::{TOP_LOGPROBS_MAX, Token, TopLogprob};
use generate::stream_source::ChoiceLog;

/// Tokens that are copied at once.
const CHUNK: usize = 64;
/// Bound of the bytes of a token or an alternative in a message, and of an entry without its tokens.
const TOKEN_BYTES: usize = 9;
const ENTRY_BYTES: usize = 48;

/// Copies of tokens between a log and a message, reused.
pub(super) struct CopyBuffers {
    tokens: Vec<Token>,
    /// (CHUNK, TOP_LOGPROBS_MAX)
    top: Vec<TopLogprob>,
}

/// Items of one choice for a message.
pub(super) struct LogItems<'a> {
    pub(super) log: &'a ChoiceLog,
    /// Alternatives of each token.
    pub(super) top_n: usize,
    /// Where the items begin.
    pub(super) key: RunKey,
    /// Index after the last item.
    pub(super) to: u32,
}

impl CopyBuffers {
    pub(super) fn new() -> Self {
        let (id, logprob) = (0, f32::NAN);
        Self {
            tokens: vec![Token { id, logprob }; CHUNK],
            top: vec![TopLogprob { id, logprob }; CHUNK * TOP_LOGPROBS_MAX as usize],
        }
    }

    /// Adds items, as many as fit while `reserve` bytes stay free. Returns the index of the first that was not added.
    pub(super) fn push_items(
        &mut self,
        batch: &mut TokenBatch,
        items: &LogItems<'_>,
        reserve: usize,
    ) -> u32 {
        let (mut key, top_n) = (items.key, items.top_n);
        let reserved = reserve.div_ceil(TOKEN_BYTES * (1 + top_n));
        while key.first < items.to {
            let room = batch.tokens_left(top_n).saturating_sub(reserved);
            let count = ((items.to - key.first) as usize).min(CHUNK).min(room);
            let tokens = &mut self.tokens[..count];
            let top = &mut self.top[..count * top_n];
            let copied = items.log.tokens.copy_items(key.first.into(), tokens);
            if let Some(alternatives) = &items.log.top {
                alternatives.copy_items(u64::from(key.first) * top_n as u64, top);
            }
            if copied != count || count == 0 || batch.push_run(key, tokens, top).is_err() {
                break;
            }
            key.first += u32::try_from(count).unwrap_or(0);
        }
        key.first
    }
}

/// Bytes that a message needs for this many entries and tokens.
pub(super) fn bytes_of(entries: usize, tokens: usize, top_n: usize) -> usize {
    entries * ENTRY_BYTES + tokens * TOKEN_BYTES * (1 + top_n)
}

/// Bytes that a message needs for a vector.
pub(super) fn bytes_of_vector(vector: &[f32]) -> usize {
    ENTRY_BYTES + size_of_val(vector)
}

/// The message to one gateway that is being written. A full one is sent.
pub(super) struct Outgoing<'a> {
    pub(super) batch: &'a mut TokenBatch,
    pub(super) buffers: &'a mut CopyBuffers,
    pub(super) send: &'a mut dyn FnMut(&TokenBatch),
}

impl Outgoing<'_> {
    /// Sends what was written.
    pub(super) fn send(&mut self) {
        if !self.batch.is_empty() {
            (self.send)(self.batch);
            self.batch.clear();
        }
    }

    /// Sends what was written, unless the message has room for this many bytes.
    pub(super) fn make_room(&mut self, bytes: usize) {
        if self.batch.bytes_left() < bytes {
            self.send();
        }
    }

    /// Adds items, in several messages where one has no room for all.
    pub(super) fn push_items(&mut self, mut items: LogItems<'_>) {
        while items.key.first < items.to {
            let reached = self.buffers.push_items(self.batch, &items, 0);
            if reached == items.key.first && self.batch.is_empty() {
                return;
            }
            items.key.first = reached;
            if reached < items.to {
                self.send();
            }
        }
    }

    pub(super) fn push_vector(&mut self, attempt: Attempt, vector: &[f32]) {
        self.push(|batch| batch.push_vector(attempt, vector));
    }

    pub(super) fn push_end(&mut self, end: ChoiceEnd) {
        self.push(|batch| batch.push_end(end));
    }

    pub(super) fn push_progress(&mut self, progress: RequestProgress) {
        self.push(|batch| batch.push_progress(progress));
    }

    fn push(&mut self, push: impl Fn(&mut TokenBatch) -> Result<(), MessageError>) {
        if push(self.batch).is_err() {
            self.send();
            // An empty message has room for an entry.
            let _ = push(self.batch);
        }
    }
}
