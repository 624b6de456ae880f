//! Tokens, ends and progress of requests: what an engine sends to a gateway, after each step and as the answer to a read.
//! They are many, so they are written by hand into memory that is reused.

#[cfg(test)]
mod tests;

use super::encoding::{Reader, open_message, phase_from, push_f32, push_run, push_varint};
use super::{MESSAGE_BYTES_MAX, MessageError, VERSION};
use crate::names::InstanceId;
use engine::{Phase, TOP_LOGPROBS_MAX, Token, TopLogprob};
use stream::{Clock, End, FailCode, Stop};

/// Bytes that an encoded run, end or progress takes at most, tokens left out.
const ENTRY_BYTES_MAX: usize = 48;
/// Bytes of a token with its log-probability, and of an alternative.
const TOKEN_BYTES_MAX: usize = 9;
/// Bit of a run: the tokens have log-probabilities.
const HAS_LOGPROBS: u8 = 1;

/// One attempt of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attempt {
    /// The gateway's number of the request.
    pub handle: u64,
    /// How often the gateway placed the request.
    pub attempt: u32,
}

/// Where tokens belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunKey {
    /// The gateway's number of the request.
    pub handle: u64,
    /// The attempt that computed the tokens.
    pub attempt: u32,
    /// Number of the choice within the request.
    pub choice: u32,
    /// Index of the first token in the choice's log.
    pub first: u32,
}

/// Tokens of one choice.
#[derive(Clone, Copy, Debug)]
pub struct TokenRun<'a> {
    /// Where the tokens belong.
    pub key: RunKey,
    /// At least one.
    pub tokens: &'a [Token],
    /// Alternatives: equally many for each token.
    pub top: &'a [TopLogprob],
}

/// The end of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChoiceEnd {
    /// The gateway's number of the request.
    pub handle: u64,
    /// The attempt that ended.
    pub attempt: u32,
    /// Number of the choice within the request.
    pub choice: u32,
    /// Items of the choice's log.
    pub len: u32,
    /// The end.
    pub end: End,
}

/// Progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestProgress {
    /// The gateway's number of the request.
    pub handle: u64,
    /// The attempt.
    pub attempt: u32,
    /// Phase of the request.
    pub phase: Phase,
    /// Prompt tokens whose keys and values exist.
    pub prompt_done: u64,
    /// Prompt tokens that were taken from the prefix cache.
    pub cached_tokens: u64,
    /// Updates in effect whose orders this attempt got. Their injected tokens are in the same message, or in an earlier one.
    pub updates_applied: u32,
    /// Orders that were applied.
    pub orders_applied: u32,
}

/// Index ranges of a run.
#[derive(Clone, Copy, Debug)]
struct RunRange {
    key: RunKey,
    tokens: (usize, usize),
    top: (usize, usize),
}

/// The content of one message. Flat lists, reused from message to message.
#[derive(Clone, Debug, Default)]
pub struct TokenBatch {
    engine: InstanceId,
    runs: Vec<RunRange>,
    tokens: Vec<Token>,
    top: Vec<TopLogprob>,
    ends: Vec<ChoiceEnd>,
    progress: Vec<RequestProgress>,
    unknown: Vec<Attempt>,
    vectors: VectorList,
    /// Upper bound of the encoded bytes.
    bytes: usize,
}

impl TokenBatch {
    /// An empty message of this engine.
    pub fn new(engine: InstanceId) -> Self {
        Self {
            engine,
            bytes: ENTRY_BYTES_MAX,
            ..Self::default()
        }
    }

    /// Removes everything but the engine.
    pub fn clear(&mut self) {
        self.runs.clear();
        self.tokens.clear();
        self.top.clear();
        self.ends.clear();
        self.progress.clear();
        self.unknown.clear();
        self.vectors.clear();
        self.bytes = ENTRY_BYTES_MAX;
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        let is_empty = self.runs.is_empty() && self.ends.is_empty();
        let is_empty = is_empty && self.progress.is_empty() && self.unknown.is_empty();
        is_empty && self.vectors.is_empty()
    }

    /// Adds tokens of one choice; no effect without tokens.
    ///
    /// # Errors
    /// The message has no room for them, or the alternatives are not equally many for each token, at most
    /// [`TOP_LOGPROBS_MAX`]; the message is unchanged.
    pub fn push_run(
        &mut self,
        key: RunKey,
        tokens: &[Token],
        top: &[TopLogprob],
    ) -> Result<(), MessageError> {
        if tokens.is_empty() {
            return Ok(());
        }
        let top_n = top.len() / tokens.len();
        if top.len() != top_n * tokens.len() || top_n > TOP_LOGPROBS_MAX as usize {
            return Err(MessageError::Malformed("alternatives"));
        }
        self.reserve(ENTRY_BYTES_MAX + (tokens.len() + top.len()) * TOKEN_BYTES_MAX)?;
        let starts = (self.tokens.len(), self.top.len());
        self.tokens.extend_from_slice(tokens);
        self.top.extend_from_slice(top);
        self.runs.push(RunRange {
            key,
            tokens: (starts.0, self.tokens.len()),
            top: (starts.1, self.top.len()),
        });
        Ok(())
    }

    /// Adds the end of a choice.
    ///
    /// # Errors
    /// The message has no room.
    pub fn push_end(&mut self, end: ChoiceEnd) -> Result<(), MessageError> {
        self.reserve(ENTRY_BYTES_MAX)?;
        self.ends.push(end);
        Ok(())
    }

    /// Adds the progress of a request.
    ///
    /// # Errors
    /// The message has no room.
    pub fn push_progress(&mut self, progress: RequestProgress) -> Result<(), MessageError> {
        self.reserve(ENTRY_BYTES_MAX)?;
        self.progress.push(progress);
        Ok(())
    }

    /// Adds an attempt that was read and that the engine does not have.
    ///
    /// # Errors
    /// The message has no room.
    pub fn push_unknown(&mut self, attempt: Attempt) -> Result<(), MessageError> {
        self.reserve(ENTRY_BYTES_MAX)?;
        self.unknown.push(attempt);
        Ok(())
    }

    /// Adds the vector of an attempt's embedding.
    ///
    /// # Errors
    /// The message has no room, or the vector has no entry or more than [`VECTOR_ENTRIES_MAX`].
    pub fn push_vector(&mut self, attempt: Attempt, vector: &[f32]) -> Result<(), MessageError> {
        VectorList::check(vector)?;
        self.reserve(ENTRY_BYTES_MAX + size_of_val(vector))?;
        self.vectors.push(attempt, vector);
        Ok(())
    }

    /// Bytes of tokens, with alternatives, that [`TokenBatch::push_run`] accepts now.
    pub fn tokens_left(&self, top_n: usize) -> usize {
        self.bytes_left().saturating_sub(ENTRY_BYTES_MAX) / (TOKEN_BYTES_MAX * (1 + top_n))
    }

    /// Bytes that are free.
    pub fn bytes_left(&self) -> usize {
        MESSAGE_BYTES_MAX.saturating_sub(self.bytes)
    }

    /// The engine.
    pub fn engine(&self) -> InstanceId {
        self.engine
    }

    /// Tokens, by choice.
    pub fn runs(&self) -> impl Iterator<Item = TokenRun<'_>> {
        self.runs.iter().map(|run| TokenRun {
            key: run.key,
            tokens: &self.tokens[run.tokens.0..run.tokens.1],
            top: &self.top[run.top.0..run.top.1],
        })
    }

    /// Ends of choices.
    pub fn ends(&self) -> &[ChoiceEnd] {
        &self.ends
    }

    /// Progress of requests.
    pub fn progress(&self) -> &[RequestProgress] {
        &self.progress
    }

    /// Attempts that were read and that the engine does not have.
    pub fn unknown(&self) -> &[Attempt] {
        &self.unknown
    }

    /// Vectors of embeddings, by attempt.
    pub fn vectors(&self) -> impl Iterator<Item = (Attempt, &[f32])> {
        self.vectors.iter()
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), MessageError> {
        if self.bytes + bytes > MESSAGE_BYTES_MAX {
            return Err(MessageError::TooMany("bytes", MESSAGE_BYTES_MAX));
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Appends the message to `out`, whose capacity is reused.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        push_varint(out, self.engine.0);
        push_varint(out, self.runs.len() as u64);
        self.runs().for_each(|run| push_run(out, &run));
        push_varint(out, self.ends.len() as u64);
        for end in &self.ends {
            push_varint(out, end.handle);
            let rest = [end.attempt, end.choice, end.len, end_code(end.end)];
            rest.iter()
                .for_each(|&value| push_varint(out, value.into()));
        }
        push_varint(out, self.progress.len() as u64);
        for progress in &self.progress {
            push_varint(out, progress.handle);
            push_varint(out, progress.attempt.into());
            out.push(progress.phase as u8);
            push_varint(out, progress.prompt_done);
            push_varint(out, progress.cached_tokens);
            push_varint(out, progress.updates_applied.into());
            push_varint(out, progress.orders_applied.into());
        }
        push_varint(out, self.unknown.len() as u64);
        for attempt in &self.unknown {
            push_varint(out, attempt.handle);
            push_varint(out, attempt.attempt.into());
        }
        self.vectors.encode(out);
    }

    /// Replaces the content by that of a message. After an error the content is empty.
    ///
    /// # Errors
    /// The version is another one, or bytes are too many, missing, unknown or left over.
    pub fn decode_into(&mut self, message: &[u8]) -> Result<(), MessageError> {
        self.clear();
        let mut reader = Reader(open_message(message, "tokens", MESSAGE_BYTES_MAX)?);
        let decoded = self.take(&mut reader);
        if decoded.is_none() || !reader.0.is_empty() {
            self.clear();
            return Err(MessageError::Malformed("tokens"));
        }
        Ok(())
    }

    fn take(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        self.engine = InstanceId(reader.take_u64()?);
        for _ in 0..reader.take_count(MESSAGE_BYTES_MAX, 8)? {
            self.take_run(reader)?;
        }
        for _ in 0..reader.take_count(MESSAGE_BYTES_MAX, 5)? {
            self.ends.push(ChoiceEnd {
                handle: reader.take_u64()?,
                attempt: reader.take_u32()?,
                choice: reader.take_u32()?,
                len: reader.take_u32()?,
                end: end_from_code(reader.take_u32()?),
            });
        }
        for _ in 0..reader.take_count(MESSAGE_BYTES_MAX, 7)? {
            self.progress.push(RequestProgress {
                handle: reader.take_u64()?,
                attempt: reader.take_u32()?,
                phase: phase_from(reader.take_u8()?)?,
                prompt_done: reader.take_u64()?,
                cached_tokens: reader.take_u64()?,
                updates_applied: reader.take_u32()?,
                orders_applied: reader.take_u32()?,
            });
        }
        for _ in 0..reader.take_count(MESSAGE_BYTES_MAX, 2)? {
            self.unknown.push(Attempt {
                handle: reader.take_u64()?,
                attempt: reader.take_u32()?,
            });
        }
        self.vectors.take(reader)
    }

    fn take_run(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        let key = RunKey {
            handle: reader.take_u64()?,
            attempt: reader.take_u32()?,
            choice: reader.take_u32()?,
            first: reader.take_u32()?,
        };
        let flags = reader.take_u8()?;
        let top_n = reader.take_u8()?;
        if flags & !HAS_LOGPROBS != 0 || u32::from(top_n) > TOP_LOGPROBS_MAX {
            return None;
        }
        let bytes = if flags == 0 { 1 } else { 5 } + usize::from(top_n) * 5;
        let count = reader.take_count(MESSAGE_BYTES_MAX, bytes)?;
        key.first.checked_add(u32::try_from(count).ok()?)?;
        if count == 0 {
            return None;
        }
        let starts = (self.tokens.len(), self.top.len());
        for _ in 0..count {
            let id = reader.take_u32()?;
            let logprob = match flags {
                0 => f32::NAN,
                _ => reader.take_f32()?,
            };
            self.tokens.push(Token { id, logprob });
            for _ in 0..top_n {
                let (id, logprob) = (reader.take_u32()?, reader.take_f32()?);
                self.top.push(TopLogprob { id, logprob });
            }
        }
        self.runs.push(RunRange {
            key,
            tokens: (starts.0, self.tokens.len()),
            top: (starts.1, self.top.len()),
        });
        Some(())
    }
}

/// First code of [`End::TimedOut`].
const TIMED_OUT: u32 = 16;
/// First code of [`End::Failed`].
const FAILED: u32 = 32;
/// First code of [`FailCode::Upstream`]; the place is added.
const UPSTREAM: u32 = 256;
/// First code of [`Stop::StopString`]; the index is added.
const STOP_STRING: u32 = 1 << 16;

/// Ends with a code of their own.
const CODES: [(u32, End); 20] = [
    (0, End::Lost),
    (1, End::Stop(Stop::Eos)),
    (2, End::Stop(Stop::ToolCalls)),
    (3, End::Length),
    (4, End::Cancelled),
    (5, End::Deadline),
    (TIMED_OUT, End::TimedOut(Clock::Queue)),
    (TIMED_OUT + 1, End::TimedOut(Clock::FirstToken)),
    (TIMED_OUT + 2, End::TimedOut(Clock::Idle)),
    (TIMED_OUT + 3, End::TimedOut(Clock::Total)),
    (TIMED_OUT + 4, End::TimedOut(Clock::Reader)),
    (FAILED, End::Failed(FailCode::Inference)),
    (FAILED + 1, End::Failed(FailCode::NotFinite)),
    (FAILED + 2, End::Failed(FailCode::Panic)),
    (FAILED + 3, End::Failed(FailCode::Shutdown)),
    (FAILED + 4, End::Failed(FailCode::Constraint)),
    (FAILED + 5, End::Failed(FailCode::ModelChanged)),
    (FAILED + 6, End::Failed(FailCode::CrashedEngines)),
    (FAILED + 7, End::Failed(FailCode::NoEngine)),
    (FAILED + 8, End::Failed(FailCode::Device)),
];

/// The code of an end.
fn end_code(end: End) -> u32 {
    if let End::Stop(Stop::StopString(index)) = end {
        return STOP_STRING + u32::from(index);
    }
    if let End::Failed(FailCode::Upstream(place)) = end {
        return UPSTREAM + u32::from(place);
    }
    let code = CODES.iter().find(|row| row.1 == end);
    code.map_or(0, |row| row.0)
}

/// The end with this code; [`End::Lost`] for a code that this version does not have.
fn end_from_code(code: u32) -> End {
    if let Some(index) = code.checked_sub(STOP_STRING) {
        return u16::try_from(index).map_or(End::Lost, |index| End::Stop(Stop::StopString(index)));
    }
    if let Some(place) = code.checked_sub(UPSTREAM) {
        return u8::try_from(place)
            .map_or(End::Lost, |place| End::Failed(FailCode::Upstream(place)));
    }
    let end = CODES.iter().find(|row| row.0 == code);
    end.map_or(End::Lost, |row| row.1)
}

/// Entries of a vector. Models with longer hidden states give no embeddings to gateways.
pub const VECTOR_ENTRIES_MAX: usize = 1 << 16;

/// Vectors by attempt. Flat lists, reused from message to message.
#[derive(Clone, Debug, Default)]
struct VectorList {
    ranges: Vec<(Attempt, (usize, usize))>,
    entries: Vec<f32>,
}

impl VectorList {
    fn clear(&mut self) {
        self.ranges.clear();
        self.entries.clear();
    }

    fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// # Errors
    /// The length is 0 or above [`VECTOR_ENTRIES_MAX`].
    fn check(vector: &[f32]) -> Result<(), MessageError> {
        match vector.len() {
            0 => Err(MessageError::Malformed("vector")),
            1..=VECTOR_ENTRIES_MAX => Ok(()),
            _ => Err(MessageError::TooMany(
                "entries of a vector",
                VECTOR_ENTRIES_MAX,
            )),
        }
    }

    fn push(&mut self, attempt: Attempt, vector: &[f32]) {
        let begin = self.entries.len();
        self.entries.extend_from_slice(vector);
        self.ranges.push((attempt, (begin, self.entries.len())));
    }

    fn iter(&self) -> impl Iterator<Item = (Attempt, &[f32])> {
        let ranges = self.ranges.iter();
        ranges.map(|&(attempt, (begin, end))| (attempt, &self.entries[begin..end]))
    }

    /// Appends the vectors.
    fn encode(&self, out: &mut Vec<u8>) {
        push_varint(out, self.ranges.len() as u64);
        for (attempt, vector) in self.iter() {
            push_varint(out, attempt.handle);
            push_varint(out, attempt.attempt.into());
            push_varint(out, vector.len() as u64);
            vector.iter().for_each(|&entry| push_f32(out, entry));
        }
    }

    /// Adds the vectors of a message.
    fn take(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        for _ in 0..reader.take_count(MESSAGE_BYTES_MAX, 7)? {
            let attempt = Attempt {
                handle: reader.take_u64()?,
                attempt: reader.take_u32()?,
            };
            let len = reader.take_count(VECTOR_ENTRIES_MAX, 4)?;
            let begin = self.entries.len();
            for _ in 0..len {
                self.entries.push(reader.take_f32()?);
            }
            self.ranges.push((attempt, (begin, begin + len)));
            (len > 0).then_some(())?;
        }
        Some(())
    }
}

#[cfg(test)]
mod end_code_tests {
    use super::*;

    #[test]
    fn ends_are_read_back() {
        let stops = [0, 7, u16::MAX].map(|index| End::Stop(Stop::StopString(index)));
        let upstreams = [0, u8::MAX].map(|place| End::Failed(FailCode::Upstream(place)));
        let others = stops.into_iter().chain(upstreams);
        for end in CODES.iter().map(|row| row.1).chain(others) {
            assert_eq!(end_from_code(end_code(end)), end);
        }
    }

    #[test]
    fn unknown_codes_are_lost() {
        for code in [6, 15, 21, 31, 41, 65_535, STOP_STRING + 65_536, u32::MAX] {
            assert_eq!(end_from_code(code), End::Lost, "{code}");
        }
    }
}
