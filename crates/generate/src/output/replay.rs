//! Replay: an answer decoded again from the token log, so that no copy of the text is stored.

use crate::output::choice_reader::{ChoiceReader, ChoiceTurn, LogReaders};
use crate::output::collected::CollectedAnswer;
use crate::output::event::{Event, Times, Usage};
use crate::output::position::Position;
use crate::stream_source::{ChoiceLog, StartedGeneration, StreamSource};
use std::task::{Context, Poll, Waker};
use stream::End;

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
        cached_tokens: started.cached_tokens(),
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
