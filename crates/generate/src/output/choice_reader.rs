//! The output pipeline of one choice for one reader; output up to the position of the reader is not emitted.

use crate::output::collected::CollectedAnswer;
use crate::output::event::{Delta, DeltaKind, Event, EventSink, PartOrigin, Times, Usage};
use crate::output::pipeline::{OutputPipeline, PipelineOptions};
use crate::output::position::Position;
use crate::stream_source::{ChoiceLog, StartedGeneration, StreamMeta, StreamSource};
use engine::{Token, TopLogprob};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use stream::{AttachError, End, Read, Reader};

/// Tokens of one choice that may share an event, when a reader lags behind.
const TOKENS_PER_EVENT: usize = 32;
/// Tokens of one choice that are replayed before other choices are polled.
const TOKENS_PER_REPLAY: usize = 1024;

/// Readers of one choice's logs.
pub struct LogReaders {
    /// Sampled tokens.
    pub tokens: Reader<Token>,
    /// Alternatives of each token, where requested.
    pub top: Option<Reader<TopLogprob>>,
}

impl LogReaders {
    /// Readers from the first token, which the log always retains.
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
    /// The choice ended; withheld output is emitted before the end.
    Ended(End),
    /// The choice ended and the client has received the end; earlier output may have to be emitted again.
    EndedBefore(End),
}

/// Decodes the log of one choice for one client.
pub struct ChoiceReader {
    choice: usize,
    /// `None` after the end, so that segments are released at once.
    readers: Option<LogReaders>,
    /// Tokens still to come that belong to the prompt and do not count as generated.
    echoed: u64,
    top_n: usize,
    /// (TOKENS_PER_EVENT, top_n)
    top_buffer: Vec<TopLogprob>,
    pipeline: OutputPipeline,
    /// Echo text, emitted before the first token.
    echo_text: Option<Arc<str>>,
    /// Steps taken; see [`Position`].
    step: u64,
    /// The position of the client: output up to this position is not emitted again.
    known: Position,
    /// Tokens that may share an event.
    tokens_per_event: usize,
    /// Tokens read so far.
    pub read: u64,
    emitted: u64,
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
        let before = u64::from(log.echo_text.is_some());
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
            pipeline: OutputPipeline::new(&started.tokenizer, &meta.stops, &log.reading, options),
            echo_text: log.echo_text.clone(),
            step: 0,
            known,
            tokens_per_event: TOKENS_PER_EVENT,
            read: 0,
            emitted: known.begun().saturating_sub(before),
        }
    }

    /// The reader with one token per event: events then depend neither on time nor on the client's position.
    pub fn by_step(self) -> Self {
        Self {
            tokens_per_event: 1,
            emitted: 0,
            ..self
        }
    }

    /// Reads until there is output to emit, or the end. Adds tokens to `read`. Output that the client has received is
    /// skipped.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        read: &mut u64,
        sink: &mut dyn EventSink,
    ) -> Poll<ChoiceTurn> {
        if self.readers.is_some() && self.echo_text.is_some() {
            if self.known.steps == 0 {
                return Poll::Ready(ChoiceTurn::News);
            }
            (self.echo_text, self.step) = (None, 1);
        }
        let mut replayed = 0;
        loop {
            let Some(readers) = &mut self.readers else {
                return Poll::Pending;
            };
            let mut buffer = [Token::default(); TOKENS_PER_EVENT];
            let behind = usize::try_from(self.known.steps.saturating_sub(self.step));
            let room = match behind {
                Ok(0) => self.tokens_per_event,
                behind => behind.unwrap_or(usize::MAX).min(TOKENS_PER_EVENT),
            };
            match readers.tokens.poll_read(cx, &mut buffer[..room]) {
                Poll::Ready(Read::Items(n)) => {
                    self.take_tokens(&buffer[..n]);
                    let echoed = self.echoed.min(n as u64);
                    self.echoed -= echoed;
                    *read += n as u64 - echoed;
                    if self.pipeline.has_news() {
                        return Poll::Ready(ChoiceTurn::News);
                    }
                    if self.step <= self.known.begun() {
                        self.emit_parts(Usage::default(), sink);
                        replayed += n;
                    }
                    if replayed >= TOKENS_PER_REPLAY {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
                Poll::Ready(Read::Ended(end)) => return Poll::Ready(self.finish_choice(end)),
                Poll::Ready(Read::Empty) | Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Emits final output and removes it from the pipeline.
    pub fn emit_parts(&mut self, usage: Usage, sink: &mut dyn EventSink) -> bool {
        let mut more = true;
        if let Some(text) = self.echo_text.take() {
            self.step += 1;
            let at = PartOrigin {
                choice: self.choice,
                logprobs: self.pipeline.no_logprobs(),
                usage,
                position: Position::whole(self.step),
                first: 0,
                tokens: 0,
            };
            let (kind, text) = (DeltaKind::Text, &*text);
            more = sink.emit(Event::Delta(Delta {
                kind,
                text,
                origin: at,
            }));
        }
        for (placed, logprobs) in self.pipeline.final_parts() {
            let first = self.emitted.min(placed.read);
            let at = PartOrigin {
                choice: self.choice,
                logprobs,
                usage,
                position: placed.position,
                first,
                tokens: placed.read - first,
            };
            let event = Event::from_part(&placed, at);
            if placed.is_known {
                if self.tokens_per_event == 1 {
                    self.emitted = placed.read;
                }
                sink.replay(&event);
            } else {
                self.emitted = placed.read;
                more = sink.emit(event);
            }
        }
        self.pipeline.clear();
        more
    }

    /// Counts the end of the choice as the last step.
    pub fn last_step(&mut self) -> Position {
        self.step += 1;
        Position::whole(self.step)
    }

    fn take_tokens(&mut self, tokens: &[Token]) {
        let n = self.top_n;
        let top = self
            .readers
            .as_mut()
            .and_then(|readers| readers.top.as_mut());
        read_alternatives(top, &mut self.top_buffer[..tokens.len() * n]);
        for (i, token) in tokens.iter().enumerate() {
            self.pipeline
                .push(*token, &self.top_buffer[i * n..(i + 1) * n]);
        }
        self.step += tokens.len() as u64;
        self.read += tokens.len() as u64;
    }

    /// Counts two steps: the output that the pipeline withheld, and the end.
    fn finish_choice(&mut self, end: End) -> ChoiceTurn {
        self.readers = None;
        let end = self.pipeline.finish(end);
        self.step += 1;
        if self.known.steps > self.step {
            return ChoiceTurn::EndedBefore(end);
        }
        ChoiceTurn::Ended(end)
    }

    /// Reasoning tokens among the tokens read.
    pub fn reasoning_tokens(&self) -> u64 {
        self.pipeline.reasoning_tokens()
    }

    /// Whether the end was not read.
    pub fn is_open(&self) -> bool {
        self.readers.is_some()
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
/// two), the buffer keeps the values.
fn read_alternatives(top: Option<&mut Reader<TopLogprob>>, mut buffer: &mut [TopLogprob]) {
    let Some(top) = top else { return };
    while !buffer.is_empty() {
        let Read::Items(n) = top.read(buffer) else {
            return;
        };
        buffer = &mut buffer[n..];
    }
}

/// The collected answers so far, in order of choices; none before the stream is started. Takes time with the length of
/// the answers.
pub fn answers(source: &StreamSource) -> Vec<CollectedAnswer> {
    let started = source.started();
    let choices = started.map_or(0, |started| started.choices.len());
    (0..choices).map(|choice| answer(source, choice)).collect()
}

/// The collected answer of one choice.
pub fn answer(source: &StreamSource, choice: usize) -> CollectedAnswer {
    let mut answer = CollectedAnswer::default();
    let end = each(source, choice, &mut |event: &Event<'_>| answer.take(event));
    answer.end = end;
    answer
}

/// Emits the events of a choice so far and returns its end, if it has ended. The end is not emitted.
pub fn each(source: &StreamSource, choice: usize, sink: &mut dyn FnMut(&Event<'_>)) -> Option<End> {
    let started = source.started()?;
    let mut reader = reader(source, started, choice)?;
    // No task waits for further tokens.
    let mut cx = Context::from_waker(Waker::noop());
    let mut emit = |event: Event<'_>| {
        sink(&event);
        true
    };
    loop {
        let found = reader.poll(&mut cx, &mut 0, &mut emit);
        reader.emit_parts(Usage::default(), &mut emit);
        match found {
            Poll::Ready(ChoiceTurn::News) => {}
            Poll::Ready(ChoiceTurn::Ended(end) | ChoiceTurn::EndedBefore(end)) => return Some(end),
            Poll::Pending => return None,
        }
    }
}

/// Usage of a stream so far, with these answers.
pub fn usage(source: &StreamSource, answers: &[CollectedAnswer]) -> Usage {
    let Some(started) = source.started() else {
        return Usage::default();
    };
    let tokens = started.choices.iter().map(ChoiceLog::answered);
    Usage {
        prompt_tokens: started.prompt_tokens,
        image_tokens: started.image_tokens,
        cached_tokens: started.cached_tokens(),
        encoding: started.encoding(),
        completion_tokens: tokens.sum(),
        reasoning_tokens: answers.iter().map(|answer| answer.reasoning_tokens).sum(),
        times: Times::of(started),
    }
}

/// A reader of one choice from the first token, which the log always retains.
fn reader(
    source: &StreamSource,
    started: &StartedGeneration,
    choice: usize,
) -> Option<ChoiceReader> {
    let readers = LogReaders::attach(started.choices.get(choice)?).ok()?;
    let nothing = Position::default();
    Some(ChoiceReader::new(
        choice,
        readers,
        (source.meta(), started),
        nothing,
    ))
}
