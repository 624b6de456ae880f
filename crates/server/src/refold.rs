//! An answer once more, from its log: whoever needs the whole of it when it ends need not have kept it
//! while it came.

use crate::choice_reader::{ChoiceReader, Found, LogReaders};
use crate::dialect::Answer;
use crate::event::{Times, Usage};
use crate::streams::{ChoiceLog, Entry, Started};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// What there is of every choice now, in order; none as long as the stream is not started. Takes time with
/// the length of the answers.
pub(crate) fn answers(entry: &Arc<Entry>) -> Vec<Answer> {
    let started = entry.started();
    let choices = started.map_or(0, |started| started.choices.len());
    (0..choices).map(|choice| answer(entry, choice)).collect()
}

/// The same of one choice.
pub(crate) fn answer(entry: &Arc<Entry>, choice: usize) -> Answer {
    let started = entry.started();
    let log = started.and_then(|started| Some((started, started.choices.get(choice)?)));
    let Some((started, log)) = log else {
        return Answer::default();
    };
    folded(entry, started, log).unwrap_or_default()
}

/// What is counted of a stream now.
pub(crate) fn usage(entry: &Entry) -> Usage {
    let Some(started) = entry.started() else {
        return Usage::default();
    };
    let requests = &started.requests;
    let tokens = started.choices.iter().map(|log| log.tokens.len());
    Usage {
        prompt_tokens: started.prompt_tokens,
        cached_tokens: requests.iter().map(|r| r.progress.cached_tokens()).sum(),
        completion_tokens: tokens.sum(),
        times: Times::of(&started.engine, requests),
    }
}

/// The first token of a log is always there, so there is something to fold.
fn folded(entry: &Arc<Entry>, started: &Started, log: &ChoiceLog) -> Option<Answer> {
    let readers = LogReaders::attach(log).ok()?;
    let mut reader = ChoiceReader::new(readers, log, (entry, started), 0);
    let mut answer = Answer::default();
    // Nobody waits for more than there is.
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        let found = reader.poll(&mut cx, &mut 0);
        if let Some(text) = reader.preface.take() {
            answer.text.push_str(&text);
        }
        let fold = &mut reader.fold;
        answer.text.push_str(fold.text());
        let logprobs = fold.logprobs();
        answer.entries.extend_from_slice(logprobs.entries);
        answer.top.extend_from_slice(logprobs.top);
        answer.top_n = logprobs.top_n;
        fold.clear();
        match found {
            Poll::Ready(Found::News) => {}
            Poll::Ready(Found::Ended(end) | Found::EndedBefore(end)) => {
                answer.end = Some(end);
                return Some(answer);
            }
            Poll::Pending => return Some(answer),
        }
    }
}
