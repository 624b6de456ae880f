//! An answer once more, from its log: whoever needs the whole of it when it ends need not have kept it
//! while it came.

use crate::output::choice_reader::{ChoiceReader, ChoiceTurn, LogReaders};
use crate::output::collected::CollectedAnswer;
use crate::output::event::{Event, Times, Usage};
use crate::output::position::Position;
use crate::stream_source::{ChoiceLog, StartedGeneration, StreamSource};
use std::task::{Context, Poll, Waker};
use stream::End;

/// What there is of every choice now, in order; none as long as the stream is not started. Takes time with
/// the length of the answers.
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

/// Tells what there is of a choice now, event by event, and how it ended, if it did; the ending is no event
/// here.
pub fn each(source: &StreamSource, choice: usize, tell: &mut dyn FnMut(&Event<'_>)) -> Option<End> {
    let started = source.started()?;
    let mut reader = reader(source, started, choice)?;
    // Nobody waits for more than there is.
    let mut cx = Context::from_waker(Waker::noop());
    let mut tell = |event: Event<'_>| {
        tell(&event);
        true
    };
    loop {
        let found = reader.poll(&mut cx, &mut 0, &mut tell);
        reader.tell(Usage::default(), &mut tell);
        match found {
            Poll::Ready(ChoiceTurn::News) => {}
            Poll::Ready(ChoiceTurn::Ended(end) | ChoiceTurn::EndedBefore(end)) => return Some(end),
            Poll::Pending => return None,
        }
    }
}

/// What is counted of a stream now, whose answers these are.
pub fn usage(source: &StreamSource, answers: &[CollectedAnswer]) -> Usage {
    let Some(started) = source.started() else {
        return Usage::default();
    };
    let requests = &started.requests;
    let tokens = started.choices.iter().map(ChoiceLog::answered);
    Usage {
        prompt_tokens: started.prompt_tokens,
        cached_tokens: requests.iter().map(|r| r.progress.cached_tokens()).sum(),
        completion_tokens: tokens.sum(),
        reasoning_tokens: answers.iter().map(|answer| answer.thought).sum(),
        times: Times::of(&started.engine, requests),
    }
}

/// The first token of a log is always there.
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
