//! A running generation, as one of its readers sees it: all its choices, each with its fold, told as
//! one sequence of events.

use crate::event::{Delta, Event, Times, Usage};
use crate::fold::{Fold, FoldOptions};
use crate::metrics::{Meter, Metrics, Opened};
use crate::streams::{ChoiceLog, Entry, Run, Seat, Started};
use engine::{Phase, Progress, RequestId, Token, TopLogprob};
use std::sync::Arc;
use std::task::{Context, Poll};
use stream::{AttachError, End, Read, Reader};

/// Tokens of one choice that may share an event: what a lagging reader gets merged.
const TOKENS_PER_EVENT: usize = 32;
/// Tokens of one choice that are folded again in silence before others have their turn.
const TOKENS_PER_REPLAY: usize = 1024;

/// Where events go; false says "enough for one turn".
pub(crate) type Tell<'a> = dyn FnMut(Event<'_>) -> bool + 'a;

/// How far a generation is after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Something was told; there may be more.
    Open,
    /// Every choice ended well, and that was told.
    Ended,
    /// A choice ended badly: that is the end of all of it.
    Broken(End),
}

/// The readers of one choice's logs.
pub(crate) struct LogReaders {
    pub(crate) tokens: Reader<Token>,
    pub(crate) top: Option<Reader<TopLogprob>>,
}

impl LogReaders {
    /// From the first token, which is always there.
    fn attach(log: &ChoiceLog) -> Result<Self, AttachError> {
        Ok(Self {
            tokens: log.tokens.attach(0)?,
            top: log.top.as_ref().map(|top| top.attach(0)).transpose()?,
        })
    }
}

/// What a look at a choice found.
enum Found {
    /// Something to tell.
    News,
    /// It ended, and what was held back is to be told first.
    Ended(End),
    /// It ended, and its client knows.
    EndedBefore(End),
}

/// One choice on its way from the log to the client.
struct ChoiceReader {
    /// `None` after its end: its segments go back at once.
    readers: Option<LogReaders>,
    top_n: usize,
    /// (TOKENS_PER_EVENT, top_n)
    top_buffer: Vec<TopLogprob>,
    fold: Fold,
    /// Text told before the first token (`echo`).
    preface: Option<Arc<str>>,
    /// Steps taken; see [`Cursor`](crate::streams::Cursor).
    step: u64,
    /// Steps its client was told before: these are taken in silence.
    silent: u64,
    /// Tokens read, and those of them that were part of an event.
    read: u64,
    told: u64,
}

impl ChoiceReader {
    fn new(
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
    fn poll(&mut self, cx: &mut Context<'_>, read: &mut u64) -> Poll<Found> {
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

    fn accept(&self) {
        if let Some(LogReaders { tokens, top }) = &self.readers {
            tokens.accept(tokens.cursor());
            top.iter().for_each(|top| top.accept(top.cursor()));
        }
    }
}

/// A request as the engine knows it.
pub(crate) struct Submitted {
    pub(crate) id: RequestId,
    pub(crate) progress: Arc<Progress>,
}

/// All choices of one stream, for one reader. Where it runs the stream too, dropping it stops what
/// still runs.
pub(crate) struct Generation {
    entry: Arc<Entry>,
    seat: Seat,
    choices: Vec<ChoiceReader>,
    open: usize,
    /// The choice whose turn is next, when a turn ended early.
    next: usize,
    usage: Usage,
    meter: Option<Box<Meter>>,
    /// Of a plain stream, for its client.
    run: Option<Run>,
}

impl Generation {
    /// For the client of a plain stream, with the first readers of its logs. The stream is started.
    pub(crate) fn own(run: Run, readers: Vec<LogReaders>) -> Option<Self> {
        let entry = Arc::clone(run.entry());
        let started = entry.started()?;
        let silent = vec![0; readers.len()];
        let mut generation = Self::of(&entry, started, readers, &silent);
        generation.run = Some(run);
        Some(generation)
    }

    /// For one more reader, who was told `steps` before (of each choice; `None`: nothing). `None` when
    /// the stream is not started or never said as much.
    pub(crate) fn attach(entry: &Arc<Entry>, steps: Option<&[u64]>) -> Option<Self> {
        let started = entry.started()?;
        let nothing = vec![0; started.choices.len()];
        let steps = steps.unwrap_or(&nothing);
        if !entry.has_steps(steps)? {
            return None;
        }
        let readers: Result<Vec<_>, _> = started.choices.iter().map(LogReaders::attach).collect();
        Some(Self::of(entry, started, readers.ok()?, steps))
    }

    fn of(entry: &Arc<Entry>, started: &Started, readers: Vec<LogReaders>, silent: &[u64]) -> Self {
        let choices: Vec<_> = readers
            .into_iter()
            .zip(&started.choices)
            .zip(silent)
            .map(|((readers, log), &silent)| {
                ChoiceReader::new(readers, log, (entry, started), silent)
            })
            .collect();
        Self {
            entry: Arc::clone(entry),
            seat: entry.seat(),
            open: choices.len(),
            choices,
            next: 0,
            meter: None,
            usage: Usage {
                prompt_tokens: started.prompt_tokens,
                ..Usage::default()
            },
            run: None,
        }
    }

    /// From now on this reader returns credit, whoever did before.
    pub(crate) fn govern(&self) {
        self.entry.governor().take(self.seat);
    }

    /// The stream.
    #[cfg(test)]
    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// The same, measured.
    pub(crate) fn metered(mut self, metrics: &Arc<Metrics>, opened: Opened) -> Self {
        self.meter = Some(metrics.opened(opened));
        self
    }

    /// How many answers there are.
    pub(crate) fn choices(&self) -> usize {
        self.choices.len()
    }

    /// Counts up to now.
    pub(crate) fn usage(&self) -> Usage {
        let cached_tokens = self
            .requests()
            .iter()
            .map(|r| r.progress.cached_tokens())
            .sum();
        let started = self.entry.started();
        Usage {
            cached_tokens,
            times: started.map_or_else(Times::default, |started| {
                Times::of(&started.engine, &started.requests)
            }),
            ..self.usage
        }
    }

    /// Returns credit for everything read so far: what was told has left for the client. Only the
    /// reader that governs does, and only where the client does not do it itself.
    pub(crate) fn accept(&mut self) {
        self.meter.iter_mut().for_each(|meter| meter.taken());
        if !self.entry.governor().governs(self.seat) || self.entry.opening().explicit_acks {
            return;
        }
        self.choices.iter().for_each(ChoiceReader::accept);
        let parked = |request: &Submitted| request.progress.phase() == Phase::Parked;
        if let Some(started) = self.entry.started()
            && started.requests.iter().any(parked)
        {
            started.engine.wake();
        }
    }

    /// One turn over the choices, at most one delta and one end each; it ends early when `tell` has
    /// enough, and goes on from there the next time. `Pending` leaves the waker with every open
    /// choice, and accepts what was read without anything to tell (a token held back must not
    /// cost credit for ever).
    pub(crate) fn poll_turn(&mut self, cx: &mut Context<'_>, tell: &mut Tell<'_>) -> Poll<Turn> {
        let turn = self.turn(cx, tell);
        if let Some(meter) = &mut self.meter {
            meter.told(turn, self.usage.completion_tokens);
        }
        if let Some(run) = &mut self.run {
            if turn.is_pending() {
                run.waits();
            }
            run.read(self.usage.completion_tokens, self.open);
        }
        turn
    }

    fn turn(&mut self, cx: &mut Context<'_>, tell: &mut Tell<'_>) -> Poll<Turn> {
        let (from, n) = (std::mem::take(&mut self.next), self.choices.len());
        let mut told = false;
        for index in (from..n).chain(0..from) {
            let choice = &mut self.choices[index];
            let Poll::Ready(found) = choice.poll(cx, &mut self.usage.completion_tokens) else {
                continue;
            };
            told = true;
            let more = match found {
                Found::News => self.tell_delta(index, tell),
                Found::Ended(end) | Found::EndedBefore(end) if !is_good(end) => {
                    self.tell_delta(index, tell);
                    return Poll::Ready(Turn::Broken(self.entry.broke(end)));
                }
                Found::Ended(end) => {
                    self.tell_delta(index, tell);
                    self.tell_end(index, end, tell)
                }
                Found::EndedBefore(_) => {
                    self.open -= 1;
                    true
                }
            };
            if !more {
                self.next = (index + 1) % n;
                break;
            }
        }
        match (self.open, told) {
            (0, _) => Poll::Ready(Turn::Ended),
            (_, true) => Poll::Ready(Turn::Open),
            (_, false) => {
                self.accept();
                Poll::Pending
            }
        }
    }

    fn tell_delta(&mut self, index: usize, tell: &mut Tell<'_>) -> bool {
        let usage = self.usage();
        let choice = &mut self.choices[index];
        let mut more = true;
        if let Some(text) = choice.preface.take() {
            let logprobs = choice.fold.no_logprobs();
            choice.step += 1;
            more = tell(Event::Delta(Delta {
                choice: index,
                text: &text,
                logprobs,
                usage,
                step: choice.step,
                first: 0,
                tokens: 0,
            }));
        }
        let fold = &mut choice.fold;
        if fold.has_news() {
            let (text, logprobs) = (fold.text(), fold.logprobs());
            more = tell(Event::Delta(Delta {
                choice: index,
                text,
                logprobs,
                usage,
                step: choice.step,
                first: choice.told.min(choice.read),
                tokens: choice.read.saturating_sub(choice.told),
            }));
            choice.told = choice.read;
            fold.clear();
        }
        more
    }

    fn tell_end(&mut self, index: usize, end: End, tell: &mut Tell<'_>) -> bool {
        self.open -= 1;
        let choice = &mut self.choices[index];
        choice.step += 1;
        let step = choice.step;
        tell(Event::End {
            choice: index,
            end,
            usage: self.usage(),
            step,
        })
    }

    fn requests(&self) -> &[Submitted] {
        self.entry
            .started()
            .map_or(&[], |started| &started.requests)
    }
}

/// Whether a choice that ended so leaves the others to go on.
pub(crate) fn is_good(end: End) -> bool {
    matches!(end, End::Stop(_) | End::Length)
}

impl Drop for Generation {
    /// A plain stream's [`Run`] stops the work; a resumable one gets what it may have alone.
    fn drop(&mut self) {
        if self.entry.governor().leave(self.seat) && self.run.is_none() {
            self.entry.detach();
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
