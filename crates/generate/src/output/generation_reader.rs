//! One reader's view of a generation: decodes the token logs of all choices into a single sequence of events.

use crate::output::choice_reader::{ChoiceReader, ChoiceTurn, LogReaders};
use crate::output::event::{Event, EventSink, Times, Usage};
use crate::output::position::Position;
use crate::stream_source::{StartedGeneration, StreamSource};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use stream::End;

/// State of a generation after a turn over the choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Events were emitted; there may be more.
    Open,
    /// Every choice ended well and all ends were emitted.
    Ended,
    /// A choice failed: the others are stopped, and their output was emitted.
    Broken(End),
}

/// All choices of one stream, for one reader.
pub struct GenerationReader {
    source: Arc<StreamSource>,
    choices: Vec<ChoiceReader>,
    open: usize,
    /// The end of the stream, after a choice failed.
    broken: Option<End>,
    /// The end of the first choice, unless the choice ended badly.
    first_end: Option<End>,
    /// First choice of the next turn, if a turn ended early.
    next: usize,
    /// Choices are read one after another.
    one_by_one: bool,
    usage: Usage,
}

impl GenerationReader {
    /// A reader of a started stream from the beginning; output up to `known` (one position per choice) is not
    /// emitted. `None` if the stream is not started.
    pub fn new(
        source: &Arc<StreamSource>,
        readers: Vec<LogReaders>,
        known: Option<&[Position]>,
    ) -> Option<Self> {
        let started = source.started()?;
        let known_of = |choice| known.and_then(|known| known.get(choice).copied());
        let choices: Vec<_> = readers
            .into_iter()
            .enumerate()
            .map(|(choice, readers)| {
                let known = known_of(choice).unwrap_or_default();
                ChoiceReader::new(choice, readers, (source.meta(), started), known)
            })
            .collect();
        Some(Self {
            open: choices.len(),
            choices,
            next: 0,
            one_by_one: false,
            broken: None,
            first_end: None,
            usage: Usage {
                image_tokens: started.image_tokens,
                prompt_tokens: started.prompt_tokens,
                ..Usage::default()
            },
            source: Arc::clone(source),
        })
    }

    /// A reader with new readers of the stream's logs. `None` if the stream is not started.
    pub fn attach(source: &Arc<StreamSource>, known: Option<&[Position]>) -> Option<Self> {
        let logs = &source.started()?.choices;
        let readers: Result<Vec<_>, _> = logs.iter().map(LogReaders::attach).collect();
        Self::new(source, readers.ok()?, known)
    }

    /// The reader with one token per event, and one choice after another: the sequence of events is the same for all
    /// readers at all times. Output of a choice is emitted after the ends of the choices before.
    pub fn by_step(self) -> Self {
        let choices = self.choices.into_iter();
        Self {
            choices: choices.map(ChoiceReader::by_step).collect(),
            one_by_one: true,
            ..self
        }
    }

    /// Number of choices.
    pub fn choices(&self) -> usize {
        self.choices.len()
    }

    /// Choices that have not ended.
    pub fn open_choices(&self) -> usize {
        self.open
    }

    /// Tokens read so far of all choices.
    pub fn tokens_read(&self) -> u64 {
        self.usage.completion_tokens
    }

    /// The end of the first choice, unless the choice ended badly.
    pub fn first_end(&self) -> Option<End> {
        self.first_end
    }

    /// Counts up to now.
    pub fn usage(&self) -> Usage {
        let started = self.source.started();
        Usage {
            cached_tokens: started.map_or(0, StartedGeneration::cached_tokens),
            encoding: started.map_or(Duration::ZERO, StartedGeneration::encoding),
            reasoning_tokens: self
                .choices
                .iter()
                .map(ChoiceReader::reasoning_tokens)
                .sum(),
            times: started.map_or_else(Times::default, Times::of),
            ..self.usage
        }
    }

    /// Returns credit for everything read so far. A reader of one choice after another returns the credit of the later
    /// choices as well: these must not wait for the end of the current one.
    pub fn return_credit(&self) {
        self.choices.iter().for_each(ChoiceReader::accept);
        let later = if self.one_by_one {
            self.current_choice() + 1
        } else {
            self.choices.len()
        };
        let logs = self
            .source
            .started()
            .map_or(&[][..], |started| &started.choices);
        for log in logs.iter().skip(later) {
            log.tokens.accept(u64::MAX);
            log.top.iter().for_each(|top| top.accept(u64::MAX));
        }
    }

    /// The first choice that is not read to its end.
    fn current_choice(&self) -> usize {
        let open = self.choices.iter().position(ChoiceReader::is_open);
        open.unwrap_or(self.choices.len())
    }

    /// One turn over the choices, at most one delta and one end each. A turn ends early when `sink` returns false, and
    /// the next one continues from there. `Pending` leaves the waker with every open choice. `stop` is called once, when
    /// the first choice ends badly: the function stops the others and returns the end that all readers of the stream report.
    pub fn poll_turn(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut dyn EventSink,
        stop: &mut dyn FnMut(End) -> End,
    ) -> Poll<Turn> {
        let (from, n) = (std::mem::take(&mut self.next), self.choices.len());
        let turn = if self.one_by_one {
            (self.current_choice()..n.min(self.current_choice() + 1)).chain(0..0)
        } else {
            (from..n).chain(0..from)
        };
        let mut emitted = false;
        for index in turn {
            let choice = &mut self.choices[index];
            let Poll::Ready(found) = choice.poll(cx, &mut self.usage.completion_tokens, sink)
            else {
                continue;
            };
            emitted = true;
            let more = match found {
                ChoiceTurn::News => self.emit_delta(index, sink),
                ChoiceTurn::Ended(end) | ChoiceTurn::EndedBefore(end) if !is_good(end) => {
                    self.break_off(end, stop);
                    self.emit_delta(index, sink)
                }
                ChoiceTurn::Ended(end) => {
                    self.emit_delta(index, sink);
                    self.emit_end(index, end, sink)
                }
                ChoiceTurn::EndedBefore(end) => {
                    self.end_well(index, end);
                    self.emit_delta(index, sink)
                }
            };
            if !more {
                self.next = (index + 1) % n;
                break;
            }
        }
        match (self.open, emitted) {
            (0, _) => Poll::Ready(self.broken.map_or(Turn::Ended, Turn::Broken)),
            (_, true) => Poll::Ready(Turn::Open),
            (_, false) => Poll::Pending,
        }
    }

    /// Stops the other choices, which are read to their ends, so that events do not depend on the order of polling.
    fn break_off(&mut self, end: End, stop: &mut dyn FnMut(End) -> End) {
        self.open -= 1;
        if self.broken.is_none() {
            self.broken = Some(stop(end));
        }
    }

    fn emit_delta(&mut self, index: usize, sink: &mut dyn EventSink) -> bool {
        let usage = self.usage();
        self.choices[index].emit_parts(usage, sink)
    }

    fn end_well(&mut self, index: usize, end: End) {
        self.open -= 1;
        if index == 0 {
            self.first_end = Some(end);
        }
    }

    fn emit_end(&mut self, index: usize, end: End, sink: &mut dyn EventSink) -> bool {
        self.end_well(index, end);
        let choice = &mut self.choices[index];
        let (position, tokens) = (choice.last_step(), choice.read);
        sink.emit(Event::ChoiceEnded {
            choice: index,
            end,
            usage: self.usage(),
            tokens,
            position,
        })
    }
}

/// Whether the other choices continue after a choice with this end.
pub fn is_good(end: End) -> bool {
    matches!(end, End::Stop(_) | End::Length)
}
