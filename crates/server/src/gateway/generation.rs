//! A running generation, as one of its readers sees it: all its choices, each with its fold, told as
//! one sequence of events.

use crate::gateway::metrics::{GenerationMetrics, Meter, MeteredRequest};
use crate::gateway::streams::{Changes, Entry, Leash, Listener, Run, StartedGeneration};
use generate::output::choice_reader::{ChoiceReader, Found, LogReaders};
use generate::output::event::{Event, Tell, Times, Usage};
use generate::output::position::Position;
use generate::stream_source::Submitted;
use std::sync::Arc;
use std::task::{Context, Poll};
use stream::End;

/// How far a generation is after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Something was told; there may be more.
    Open,
    /// Every choice ended well, and that was told.
    Ended,
    /// A choice ended badly: that stopped all the others, and what they had was told.
    Broken(End),
}

/// All choices of one stream, for one reader. Where it runs the stream too, dropping it stops what
/// still runs.
pub(crate) struct Generation {
    listener: Listener,
    choices: Vec<ChoiceReader>,
    open: usize,
    /// How it broke, once a choice ended badly.
    broken: Option<End>,
    /// How the first choice ended, once it ended well.
    first_end: Option<End>,
    /// The choice whose turn is next, when a turn ended early.
    next: usize,
    usage: Usage,
    meter: Option<Box<Meter>>,
    /// Of a plain stream, for its client.
    run: Option<Run>,
    /// Cancel-on-drop guard of a generation that may be detached.
    leash: Option<Leash>,
}

impl Generation {
    /// For the client of a plain stream, with the first readers of its logs. The stream is started.
    pub(crate) fn own(run: Run, readers: Vec<LogReaders>) -> Option<Self> {
        let entry = Arc::clone(run.entry());
        let started = entry.started()?;
        let nothing = vec![Position::default(); readers.len()];
        let listener = Listener::opening(&entry);
        let mut generation = Self::of(listener, started, readers, &nothing);
        generation.run = Some(run);
        Some(generation)
    }

    /// For one more reader, who was told `known` before (of each choice; `None`: nothing). `None` when
    /// the stream is not started or never said as much.
    pub(crate) fn attach(listener: Listener, known: Option<&[Position]>) -> Option<Self> {
        let entry = Arc::clone(listener.entry());
        let started = entry.started()?;
        let nothing = vec![Position::default(); started.choices.len()];
        let known = known.unwrap_or(&nothing);
        if !entry.has_reached(known)? {
            return None;
        }
        let readers: Result<Vec<_>, _> = started.choices.iter().map(LogReaders::attach).collect();
        Some(Self::of(listener, started, readers.ok()?, known))
    }

    fn of(
        listener: Listener,
        started: &StartedGeneration,
        readers: Vec<LogReaders>,
        known: &[Position],
    ) -> Self {
        let choices: Vec<_> = readers
            .into_iter()
            .zip(known)
            .enumerate()
            .map(|(choice, (readers, &known))| {
                ChoiceReader::new(choice, readers, (listener.entry().meta(), started), known)
            })
            .collect();
        Self {
            listener,
            open: choices.len(),
            choices,
            next: 0,
            broken: None,
            first_end: None,
            meter: None,
            usage: Usage {
                prompt_tokens: started.prompt_tokens,
                ..Usage::default()
            },
            run: None,
            leash: None,
        }
    }

    /// The stream.
    pub(crate) fn entry(&self) -> &Arc<Entry> {
        self.listener.entry()
    }

    /// The same, measured.
    pub(crate) fn metered(
        mut self,
        metrics: &Arc<GenerationMetrics>,
        request: MeteredRequest,
    ) -> Self {
        let mut meter = metrics.open_meter(request);
        meter.of(self.entry());
        self.meter = Some(meter);
        self
    }

    /// The same, for the client without whom the stream is not to go on.
    pub(crate) fn leashed(mut self, leash: Leash) -> Self {
        self.leash = Some(leash);
        self
    }

    /// How many answers there are.
    pub(crate) fn choices(&self) -> usize {
        self.choices.len()
    }

    /// How the first choice ended, once it ended well.
    pub(crate) fn first_end(&self) -> Option<End> {
        self.first_end
    }

    /// What happens to the stream.
    pub(crate) fn changes(&self) -> Changes {
        self.entry().transitions().follow()
    }

    /// Counts up to now.
    pub(crate) fn usage(&self) -> Usage {
        let cached_tokens = self
            .requests()
            .iter()
            .map(|r| r.progress.cached_tokens())
            .sum();
        let started = self.entry().started();
        Usage {
            cached_tokens,
            reasoning_tokens: self.choices.iter().map(ChoiceReader::thought).sum(),
            times: started.map_or_else(Times::default, |started| {
                Times::of(&started.engine, &started.requests)
            }),
            ..self.usage
        }
    }

    /// Returns credit for everything read so far: what was told has left for the client. Only the
    /// reader that governs does, and only where the client does not do it itself.
    pub(crate) fn accept(&mut self) {
        let explicit = self.entry().opening().explicit_acks;
        // Who was let go of for want of acknowledgements does not come back by listening.
        let let_go = explicit && self.entry().governor().has_let_go();
        let governs = !let_go && self.listener.governs();
        self.meter.iter_mut().for_each(|meter| meter.taken(governs));
        if governs && !explicit {
            self.choices.iter().for_each(ChoiceReader::accept);
        }
    }

    /// One turn over the choices, at most one delta and one end each; it ends early when `tell` has
    /// enough, and goes on from there the next time. `Pending` leaves the waker with every open
    /// choice, and accepts what was read without anything to tell (a token held back must not
    /// cost credit for ever).
    pub(crate) fn poll_turn(&mut self, cx: &mut Context<'_>, tell: &mut dyn Tell) -> Poll<Turn> {
        let turn = self.turn(cx, tell);
        if let Some(meter) = &mut self.meter {
            meter.told(turn, self.usage.completion_tokens);
        }
        #[cfg(feature = "otlp")]
        self.tell_finished(turn);
        if let Some(run) = &mut self.run {
            if turn.is_pending() {
                run.waits();
            }
            run.read(self.usage.completion_tokens, self.open);
        }
        turn
    }

    /// The account of the whole request, once it is over.
    #[cfg(feature = "otlp")]
    fn tell_finished(&mut self, turn: Poll<Turn>) {
        let broken = match turn {
            Poll::Ready(Turn::Ended) => None,
            Poll::Ready(Turn::Broken(end)) => Some(end),
            Poll::Ready(Turn::Open) | Poll::Pending => return,
        };
        let (usage, choices) = (self.usage(), self.choices.len() as u64);
        if let Some(meter) = &mut self.meter {
            meter.finished(crate::gateway::metrics::FinishedRequest {
                broken,
                times: usage.times,
                tokens: usage.completion_tokens,
                choices,
            });
        }
    }

    fn turn(&mut self, cx: &mut Context<'_>, tell: &mut dyn Tell) -> Poll<Turn> {
        let (from, n) = (std::mem::take(&mut self.next), self.choices.len());
        let mut told = false;
        for index in (from..n).chain(0..from) {
            let choice = &mut self.choices[index];
            let Poll::Ready(found) = choice.poll(cx, &mut self.usage.completion_tokens, tell)
            else {
                continue;
            };
            told = true;
            let more = match found {
                Found::News => self.tell_delta(index, tell),
                Found::Ended(end) | Found::EndedBefore(end) if !is_good(end) => {
                    self.break_off(end);
                    self.tell_delta(index, tell)
                }
                Found::Ended(end) => {
                    self.tell_delta(index, tell);
                    self.tell_end(index, end, tell)
                }
                Found::EndedBefore(end) => {
                    self.end_well(index, end);
                    self.tell_delta(index, tell)
                }
            };
            if !more {
                self.next = (index + 1) % n;
                break;
            }
        }
        match (self.open, told) {
            (0, _) => Poll::Ready(self.broken.map_or(Turn::Ended, Turn::Broken)),
            (_, true) => Poll::Ready(Turn::Open),
            (_, false) => {
                self.accept();
                Poll::Pending
            }
        }
    }

    /// A choice ended badly. The others are stopped, and read to their ends: what is told does not depend
    /// on which of them a reader looked at first.
    fn break_off(&mut self, end: End) {
        self.open -= 1;
        if self.broken.is_none() {
            self.broken = Some(self.entry().broke(end));
            self.entry().cancel();
        }
    }

    fn tell_delta(&mut self, index: usize, tell: &mut dyn Tell) -> bool {
        let usage = self.usage();
        self.choices[index].tell(usage, tell)
    }

    fn end_well(&mut self, index: usize, end: End) {
        self.open -= 1;
        if index == 0 {
            self.first_end = Some(end);
        }
    }

    fn tell_end(&mut self, index: usize, end: End, tell: &mut dyn Tell) -> bool {
        self.end_well(index, end);
        let choice = &mut self.choices[index];
        let (reached, tokens) = (choice.last_step(), choice.read);
        tell.event(Event::End {
            choice: index,
            end,
            usage: self.usage(),
            tokens,
            reached,
        })
    }

    fn requests(&self) -> &[Submitted] {
        self.entry()
            .started()
            .map_or(&[], |started| &started.requests)
    }
}

/// Whether a choice that ended so leaves the others to go on.
pub(crate) fn is_good(end: End) -> bool {
    matches!(end, End::Stop(_) | End::Length)
}
