//! The output pipeline of one choice for one reader, in silence up to the reader's position.

use crate::output::event::{Delta, DeltaKind, Event, EventSink, PartOrigin, Usage};
use crate::output::pipeline::{OutputPipeline, PipelineOptions};
use crate::output::position::Position;
use crate::stream_meta::StreamMeta;
use crate::stream_source::{ChoiceLog, StartedGeneration};
use engine::{Token, TopLogprob};
use std::sync::Arc;
use std::task::{Context, Poll};
use stream::{AttachError, End, Read, Reader};

/// Tokens of one choice that may share an event, when a reader lags behind.
const TOKENS_PER_EVENT: usize = 32;
/// Tokens of one choice that are replayed before other choices have their turn.
const TOKENS_PER_REPLAY: usize = 1024;

/// Readers of one choice's logs.
pub struct LogReaders {
    /// Sampled tokens.
    pub tokens: Reader<Token>,
    /// Alternatives of each token, where requested.
    pub top: Option<Reader<TopLogprob>>,
}

impl LogReaders {
    /// Readers from the first token, which is always kept.
    pub fn attach(log: &ChoiceLog) -> Result<Self, AttachError> {
        Ok(Self {
            tokens: log.tokens.attach(0)?,
            top: log.top.as_ref().map(|top| top.attach(0)).transpose()?,
        })
    }
}

/// Result of polling a choice.
pub enum ChoiceTurn {
    /// Output to emit.
    News,
    /// The choice ended; held-back output is to be emitted first.
    Ended(End),
    /// The choice ended and the client has its end; earlier output may be left to emit again.
    EndedBefore(End),
}

/// One choice on the way from its log to a client.
pub struct ChoiceReader {
    choice: usize,
    /// `None` after the end: segments are returned at once.
    readers: Option<LogReaders>,
    /// Tokens still to come that belong to the prompt and do not count as generated.
    echoed: u64,
    top_n: usize,
    /// (TOKENS_PER_EVENT, top_n)
    top_buffer: Vec<TopLogprob>,
    fold: OutputPipeline,
    /// Echo text, emitted before the first token.
    preface: Option<Arc<str>>,
    /// Steps taken; see [`Position`].
    step: u64,
    /// The client's position: output up to it is not emitted again.
    known: Position,
    /// Tokens read, and those of them that were part of an event.
    pub read: u64,
    told: u64,
}

impl ChoiceReader {
    /// A reader at the beginning; output up to `known` is not emitted.
    pub fn new(
        choice: usize,
        readers: LogReaders,
        (meta, started): (&StreamMeta, &StartedGeneration),
        known: Position,
    ) -> Self {
        let log = &started.choices[choice];
        let before = u64::from(log.preface.is_some());
        let options = PipelineOptions {
            at_text_start: log.at_text_start,
            logprobs: meta.logprobs,
            top_n: meta.top_n,
            call_ids: log.reading.call_ids(meta.id, choice),
            known,
            steps: before,
            echoed: log.echoed,
        };
        let nothing = TopLogprob {
            id: 0,
            logprob: f32::NEG_INFINITY,
        };
        Self {
            choice,
            readers: Some(readers),
            echoed: log.echoed,
            top_n: meta.top_n,
            top_buffer: vec![nothing; TOKENS_PER_EVENT * meta.top_n],
            fold: OutputPipeline::new(&started.tokenizer, &meta.stops, &log.reading, options),
            preface: log.preface.clone(),
            step: 0,
            known,
            read: 0,
            told: known.begun().saturating_sub(before),
        }
    }

    /// Reads until there is output to emit, or the end. Adds tokens to `read`. Output that the client has is passed over.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        read: &mut u64,
        tell: &mut dyn EventSink,
    ) -> Poll<ChoiceTurn> {
        if self.readers.is_some() && self.preface.is_some() {
            if self.known.steps == 0 {
                return Poll::Ready(ChoiceTurn::News);
            }
            (self.preface, self.step) = (None, 1);
        }
        let mut replayed = 0;
        loop {
            let Some(readers) = &mut self.readers else {
                return Poll::Pending;
            };
            let mut buffer = [Token {
                id: 0,
                logprob: 0.0,
            }; TOKENS_PER_EVENT];
            let behind = usize::try_from(self.known.steps.saturating_sub(self.step));
            let room = match behind {
                Ok(0) => TOKENS_PER_EVENT,
                behind => behind.unwrap_or(usize::MAX).min(TOKENS_PER_EVENT),
            };
            match readers.tokens.poll_read(cx, &mut buffer[..room]) {
                Poll::Ready(Read::Items(n)) => {
                    self.take(&buffer[..n]);
                    let echoed = self.echoed.min(n as u64);
                    self.echoed -= echoed;
                    *read += n as u64 - echoed;
                    if self.fold.has_news() {
                        return Poll::Ready(ChoiceTurn::News);
                    }
                    if self.step <= self.known.begun() {
                        self.tell(Usage::default(), tell);
                        replayed += n;
                    }
                    if replayed >= TOKENS_PER_REPLAY {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
                Poll::Ready(Read::Ended(end)) => return Poll::Ready(self.end(end)),
                Poll::Ready(Read::Empty) | Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Emits final output and forgets it.
    pub fn tell(&mut self, usage: Usage, tell: &mut dyn EventSink) -> bool {
        let mut more = true;
        if let Some(text) = self.preface.take() {
            self.step += 1;
            let at = PartOrigin {
                choice: self.choice,
                logprobs: self.fold.no_logprobs(),
                usage,
                position: Position::whole(self.step),
                first: 0,
                tokens: 0,
            };
            let (kind, text) = (DeltaKind::Text, &*text);
            more = tell.event(Event::Delta(Delta {
                kind,
                text,
                origin: at,
            }));
        }
        for (told, logprobs) in self.fold.told() {
            let first = self.told.min(told.read);
            let at = PartOrigin {
                choice: self.choice,
                logprobs,
                usage,
                position: told.position,
                first,
                tokens: told.read - first,
            };
            let event = Event::from_part(&told, at);
            if told.is_known {
                tell.known(&event);
            } else {
                self.told = told.read;
                more = tell.event(event);
            }
        }
        self.fold.clear();
        more
    }

    /// Counts the end of the choice as its last step.
    pub fn last_step(&mut self) -> Position {
        self.step += 1;
        Position::whole(self.step)
    }

    fn take(&mut self, tokens: &[Token]) {
        let n = self.top_n;
        let top = self
            .readers
            .as_mut()
            .and_then(|readers| readers.top.as_mut());
        read_alternatives(top, &mut self.top_buffer[..tokens.len() * n]);
        for (i, token) in tokens.iter().enumerate() {
            self.fold.push(*token, &self.top_buffer[i * n..(i + 1) * n]);
        }
        self.step += tokens.len() as u64;
        self.read += tokens.len() as u64;
    }

    /// Counts two steps: the rest that the pipeline held back, and the end.
    fn end(&mut self, end: End) -> ChoiceTurn {
        self.readers = None;
        let end = self.fold.finish(end);
        self.step += 1;
        if self.known.steps > self.step {
            return ChoiceTurn::EndedBefore(end);
        }
        ChoiceTurn::Ended(end)
    }

    /// Reasoning tokens among those that were read.
    pub fn thought(&self) -> u64 {
        self.fold.thought()
    }

    /// Returns credit for everything read so far.
    pub fn accept(&self) {
        if let Some(LogReaders { tokens, top }) = &self.readers {
            tokens.accept(tokens.cursor());
            top.iter().for_each(|top| top.accept(top.cursor()));
        }
    }
}

/// Alternatives are appended before their token, so they are present. If some are missing (the engine died between the
/// two), the buffer keeps its values.
fn read_alternatives(top: Option<&mut Reader<TopLogprob>>, mut buffer: &mut [TopLogprob]) {
    let Some(top) = top else { return };
    while !buffer.is_empty() {
        let Read::Items(n) = top.read(buffer) else {
            return;
        };
        buffer = &mut buffer[n..];
    }
}
