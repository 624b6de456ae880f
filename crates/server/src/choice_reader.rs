//! One choice on its way from its log to one reader: folded, in silence up to where the reader was.

use crate::fold::{Fold, FoldOptions};
use crate::streams::{ChoiceLog, Entry, Started};
use engine::{Token, TopLogprob};
use std::sync::Arc;
use std::task::{Context, Poll};
use stream::{AttachError, End, Read, Reader};

/// Tokens of one choice that may share an event: what a lagging reader gets merged.
const TOKENS_PER_EVENT: usize = 32;
/// Tokens of one choice that are folded again in silence before others have their turn.
const TOKENS_PER_REPLAY: usize = 1024;

/// The readers of one choice's logs.
pub(crate) struct LogReaders {
    pub(crate) tokens: Reader<Token>,
    pub(crate) top: Option<Reader<TopLogprob>>,
}

impl LogReaders {
    /// From the first token, which is always there.
    pub(crate) fn attach(log: &ChoiceLog) -> Result<Self, AttachError> {
        Ok(Self {
            tokens: log.tokens.attach(0)?,
            top: log.top.as_ref().map(|top| top.attach(0)).transpose()?,
        })
    }
}

/// What a look at a choice found.
pub(crate) enum Found {
    /// Something to tell.
    News,
    /// It ended, and what was held back is to be told first.
    Ended(End),
    /// It ended, and its client knows.
    EndedBefore(End),
}

/// One choice on its way from the log to the client.
pub(crate) struct ChoiceReader {
    /// `None` after its end: its segments go back at once.
    readers: Option<LogReaders>,
    top_n: usize,
    /// (TOKENS_PER_EVENT, top_n)
    top_buffer: Vec<TopLogprob>,
    pub(crate) fold: Fold,
    /// Text told before the first token (`echo`).
    pub(crate) preface: Option<Arc<str>>,
    /// Steps taken; see [`Cursor`](crate::streams::Cursor).
    pub(crate) step: u64,
    /// Steps its client was told before: these are taken in silence.
    silent: u64,
    /// Tokens read, and those of them that were part of an event.
    pub(crate) read: u64,
    pub(crate) told: u64,
}

impl ChoiceReader {
    /// Nothing was read of it yet; the first `silent` steps will not be told.
    pub(crate) fn new(
        readers: LogReaders,
        log: &ChoiceLog,
        (entry, started): (&Entry, &Started),
        silent: u64,
    ) -> Self {
        let opening = entry.opening();
        let options = FoldOptions {
            at_text_start: log.at_text_start,
            logprobs: opening.logprobs,
            top_n: opening.top_n,
        };
        let nothing = TopLogprob {
            id: 0,
            logprob: f32::NEG_INFINITY,
        };
        Self {
            readers: Some(readers),
            top_n: opening.top_n,
            top_buffer: vec![nothing; TOKENS_PER_EVENT * opening.top_n],
            fold: Fold::new(&started.tokenizer, &opening.stops, options),
            preface: log.preface.clone(),
            step: 0,
            silent,
            read: 0,
            told: silent.saturating_sub(u64::from(log.preface.is_some())),
        }
    }

    /// Reads until there is something to tell or the end. Counts tokens in `read`.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, read: &mut u64) -> Poll<Found> {
        if self.readers.is_some() && self.preface.is_some() {
            if self.silent == 0 {
                return Poll::Ready(Found::News);
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
            let behind = usize::try_from(self.silent.saturating_sub(self.step));
            let room = match behind {
                Ok(0) => TOKENS_PER_EVENT,
                behind => behind.unwrap_or(usize::MAX).min(TOKENS_PER_EVENT),
            };
            match readers.tokens.poll_read(cx, &mut buffer[..room]) {
                Poll::Ready(Read::Items(n)) => {
                    self.take(&buffer[..n]);
                    *read += n as u64;
                    if self.step <= self.silent {
                        self.fold.clear();
                        self.told = self.read;
                        replayed += n;
                    } else if self.fold.has_news() {
                        return Poll::Ready(Found::News);
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

    /// Two steps: what the fold held back, and the ending.
    fn end(&mut self, end: End) -> Found {
        self.readers = None;
        let end = self.fold.finish(end);
        self.step += 1;
        if self.silent >= self.step {
            self.fold.clear();
        }
        if self.silent > self.step {
            return Found::EndedBefore(end);
        }
        Found::Ended(end)
    }

    pub(crate) fn accept(&self) {
        if let Some(LogReaders { tokens, top }) = &self.readers {
            tokens.accept(tokens.cursor());
            top.iter().for_each(|top| top.accept(top.cursor()));
        }
    }
}

/// Alternatives are appended before their token, so they are there. Should some be missing (the
/// engine died between the two), they stay as they were.
fn read_alternatives(top: Option<&mut Reader<TopLogprob>>, mut buffer: &mut [TopLogprob]) {
    let Some(top) = top else { return };
    while !buffer.is_empty() {
        let Read::Items(n) = top.read(buffer) else {
            return;
        };
        buffer = &mut buffer[n..];
    }
}
