//! A running generation: the readers of all its choices, each with its fold, told as one sequence
//! of events.

use crate::admission::Permit;
use crate::clock;
use crate::event::{Delta, Event, Usage};
use crate::fold::Fold;
use crate::keys::KeyPermit;
use crate::metrics::{Meter, Metrics, Opened};
use crate::pace::Pace;
use engine::{Handle, Phase, Progress, RequestId, Token, TopLogprob};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use stream::{End, Read, Reader};

/// Tokens of one choice that may share an event: what a lagging reader gets merged.
const TOKENS_PER_EVENT: usize = 32;

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

/// One choice on its way from the log to the client.
pub(crate) struct ChoiceReader {
    /// `None` after its end: its segments go back at once.
    tokens: Option<Reader<Token>>,
    top: Option<Reader<TopLogprob>>,
    top_n: usize,
    /// (TOKENS_PER_EVENT, top_n)
    top_buffer: Vec<TopLogprob>,
    fold: Fold,
    /// Text told before the first token (`echo`).
    preface: Option<Arc<str>>,
}

impl ChoiceReader {
    /// A choice nothing was read of yet.
    pub(crate) fn new(
        tokens: Reader<Token>,
        top: Option<(Reader<TopLogprob>, usize)>,
        fold: Fold,
        preface: Option<Arc<str>>,
    ) -> Self {
        let (top, top_n) = top.map_or((None, 0), |(reader, n)| (Some(reader), n));
        let nothing = TopLogprob {
            id: 0,
            logprob: f32::NEG_INFINITY,
        };
        Self {
            tokens: Some(tokens),
            top,
            top_n,
            top_buffer: vec![nothing; TOKENS_PER_EVENT * top_n],
            fold,
            preface,
        }
    }

    /// Reads until there is something to tell (`None`) or the end. Counts tokens in `read`.
    fn poll(&mut self, cx: &mut Context<'_>, read: &mut u64) -> Poll<Option<End>> {
        let Some(tokens) = &mut self.tokens else {
            return Poll::Pending;
        };
        if self.preface.is_some() {
            return Poll::Ready(None);
        }
        let mut buffer = [Token {
            id: 0,
            logprob: 0.0,
        }; TOKENS_PER_EVENT];
        loop {
            match tokens.poll_read(cx, &mut buffer) {
                Poll::Ready(Read::Items(n)) => {
                    read_alternatives(self.top.as_mut(), &mut self.top_buffer[..n * self.top_n]);
                    for (i, token) in buffer[..n].iter().enumerate() {
                        self.fold.push(
                            *token,
                            &self.top_buffer[i * self.top_n..(i + 1) * self.top_n],
                        );
                    }
                    *read += n as u64;
                    if self.fold.has_news() {
                        return Poll::Ready(None);
                    }
                }
                Poll::Ready(Read::Ended(end)) => {
                    tokens.accept(tokens.cursor());
                    (self.tokens, self.top) = (None, None);
                    return Poll::Ready(Some(self.fold.finish(end)));
                }
                Poll::Ready(Read::Empty) | Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn accept(&self) {
        if let Some(tokens) = &self.tokens {
            tokens.accept(tokens.cursor());
        }
        if let Some(top) = &self.top {
            top.accept(top.cursor());
        }
    }
}

/// A request as the engine knows it.
pub(crate) struct Submitted {
    pub(crate) id: RequestId,
    pub(crate) progress: Arc<Progress>,
}

/// All choices of one caller's request. Dropping it stops what still runs.
pub(crate) struct Generation {
    engine: Handle,
    requests: Vec<Submitted>,
    choices: Vec<ChoiceReader>,
    open: usize,
    /// The choice whose turn is next, when a turn ended early.
    next: usize,
    usage: Usage,
    meter: Option<Box<Meter>>,
    key: KeyPermit,
    /// Tokens of `usage` that the key was charged.
    charged: u64,
    pace: Pace,
}

impl Generation {
    /// A generation that was submitted as `requests`, whose choices are `choices` in order.
    pub(crate) fn new(
        engine: Handle,
        requests: Vec<Submitted>,
        choices: Vec<ChoiceReader>,
        prompt_tokens: u64,
        permit: Permit,
        key: KeyPermit,
    ) -> Self {
        let open = choices.len();
        let usage = Usage {
            prompt_tokens,
            ..Usage::default()
        };
        Self {
            engine,
            requests,
            choices,
            open,
            next: 0,
            meter: None,
            usage,
            key,
            charged: 0,
            pace: Pace::new(permit),
        }
    }

    /// The same, measured.
    pub(crate) fn metered(mut self, metrics: &Arc<Metrics>, opened: Opened) -> Self {
        self.meter = Some(metrics.opened(opened, self.usage.prompt_tokens));
        self
    }

    /// How many answers there are.
    pub(crate) fn choices(&self) -> usize {
        self.choices.len()
    }

    /// Counts up to now.
    pub(crate) fn usage(&self) -> Usage {
        let cached_tokens = self
            .requests
            .iter()
            .map(|r| r.progress.cached_tokens())
            .sum();
        Usage {
            cached_tokens,
            ..self.usage
        }
    }

    /// Returns credit for everything read so far: what was told has left for the client.
    pub(crate) fn accept(&mut self) {
        self.meter.iter_mut().for_each(|meter| meter.taken());
        self.choices.iter().for_each(ChoiceReader::accept);
        if self
            .requests
            .iter()
            .any(|request| request.progress.phase() == Phase::Parked)
        {
            self.engine.wake();
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
        if turn.is_pending() {
            self.pace.waits();
        }
        self.charge();
        turn
    }

    fn turn(&mut self, cx: &mut Context<'_>, tell: &mut Tell<'_>) -> Poll<Turn> {
        let (from, n) = (std::mem::take(&mut self.next), self.choices.len());
        let mut told = false;
        for index in (from..n).chain(0..from) {
            let choice = &mut self.choices[index];
            let Poll::Ready(end) = choice.poll(cx, &mut self.usage.completion_tokens) else {
                continue;
            };
            told = true;
            let more = match end {
                Some(end) if !is_good(end) => {
                    self.tell_delta(index, tell);
                    return Poll::Ready(Turn::Broken(end));
                }
                Some(end) => {
                    self.tell_delta(index, tell);
                    self.tell_end(index, end, tell)
                }
                None => self.tell_delta(index, tell),
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

    /// Charges the key for what was read since the last time, and tells admission how quick it was.
    fn charge(&mut self) {
        let made = self.usage.completion_tokens - self.charged;
        if made > 0 {
            let now = clock::now();
            self.key.generated(made, now);
            let (engine, requests) = (&self.engine, &self.requests);
            let first = || first_token(engine, requests).unwrap_or(now);
            self.pace.read(made, self.open, first, now);
            self.charged = self.usage.completion_tokens;
        }
    }

    fn tell_delta(&mut self, index: usize, tell: &mut Tell<'_>) -> bool {
        let usage = self.usage();
        let choice = &mut self.choices[index];
        let mut more = true;
        if let Some(text) = choice.preface.take() {
            let logprobs = choice.fold.no_logprobs();
            more = tell(Event::Delta(Delta {
                choice: index,
                text: &text,
                logprobs,
                usage,
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
            }));
            fold.clear();
        }
        more
    }

    fn tell_end(&mut self, index: usize, end: End, tell: &mut Tell<'_>) -> bool {
        self.open -= 1;
        tell(Event::End {
            choice: index,
            end,
            usage: self.usage(),
        })
    }
}

/// When the engine made the first token of all.
fn first_token(engine: &Handle, requests: &[Submitted]) -> Option<Instant> {
    let stamps = requests
        .iter()
        .map(|request| request.progress.first_token_ns());
    let first = stamps.filter(|&ns| ns > 0).min()?;
    Some(engine.epoch() + Duration::from_nanos(first))
}

/// Whether a choice that ended so leaves the others to go on.
fn is_good(end: End) -> bool {
    matches!(end, End::Stop(_) | End::Length)
}

impl Drop for Generation {
    /// Dropped readers tell the engine too, at its next step; the cancel also reaches an engine
    /// that is waiting.
    fn drop(&mut self) {
        if self.open > 0 {
            self.requests
                .iter()
                .for_each(|request| self.engine.cancel(request.id));
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
