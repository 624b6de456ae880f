//! Positions of readers in a stream's logs: offsets of the Durable Streams protocol, and the wait of a client that has more
//! than the records of an owner that is gone, until the tokens were computed once more.

use super::stream_logs::NO_TOKEN;
use super::stream_record::StreamRecord;
use engine::Token;
use generate::output::choice_reader as replay;
use generate::output::generation_reader::is_good;
use generate::output::position::Position;
use generate::stream_source::ChoiceLog;
use std::future::poll_fn;
use std::task::{Context, Poll};
use stream::{Read, Reader};
use wire::durable_streams::message::StepOffset;

/// The place of a reader at an offset.
pub enum OffsetPlace {
    /// These positions, one per choice.
    Positions(Vec<Position>),
    /// After the last message of a stream that failed.
    AfterFailure,
}

/// The end of a stream's messages so far.
pub struct StreamTail {
    /// The offset after the last message.
    pub offset: StepOffset,
    /// Whether no message will follow.
    pub is_closed: bool,
}

/// The place of an offset; `None` if the stream has not come so far.
pub fn offset_place(record: &StreamRecord, offset: StepOffset) -> Option<OffsetPlace> {
    let nothing = || OffsetPlace::Positions(vec![Position::default(); record.meta().choices]);
    if record.is_over() && has_failed(record) && offset == failure_offset(record) {
        return Some(OffsetPlace::AfterFailure);
    }
    let Some(started) = record.started() else {
        return (offset == StepOffset::default()).then(nothing);
    };
    let position = |(choice, log): (usize, &ChoiceLog)| {
        let has_ended = || log.tokens.end().is_some();
        match choice {
            choice if choice < offset.choice => has_ended().then(|| Position::whole(log.steps())),
            choice if choice == offset.choice => {
                (offset.steps <= log.steps()).then(|| Position::whole(offset.steps))
            }
            _ => Some(Position::default()),
        }
    };
    let positions = started.choices.iter().enumerate().map(position);
    positions.collect::<Option<_>>().map(OffsetPlace::Positions)
}

/// The offset after the failure of an ended stream, which is the last message: one step after the last choice.
pub fn failure_offset(record: &StreamRecord) -> StepOffset {
    let logs = record.started().map_or(&[][..], |started| &started.choices);
    StepOffset {
        choice: record.meta().choices.saturating_sub(1),
        steps: logs.last().map_or(0, ChoiceLog::steps) + 1,
    }
}

/// The end of the messages so far. Takes time with the length of the answers.
pub fn stream_tail(record: &StreamRecord) -> StreamTail {
    let mut offset = StepOffset::default();
    if record.rejection().is_some() {
        return closed_at(failure_offset(record));
    }
    let Some(started) = record.started() else {
        return open_at(offset);
    };
    for (choice, log) in started.choices.iter().enumerate() {
        let end = replay::each(record.source(), choice, &mut |event| {
            let position = event.position().filter(|position| position.parts == 0);
            let steps = position.map(|position| position.steps);
            offset = steps.map_or(offset, |steps| StepOffset { choice, steps });
        });
        match end {
            None => return open_at(offset),
            Some(end) if is_good(end) => {
                let steps = log.steps();
                offset = StepOffset { choice, steps };
            }
            Some(_) => {}
        }
    }
    closed_at(if has_failed(record) {
        failure_offset(record)
    } else {
        offset
    })
}

/// Whether the stream was rejected or a choice ended badly.
fn has_failed(record: &StreamRecord) -> bool {
    let logs = record.started().map_or(&[][..], |started| &started.choices);
    let mut ends = logs.iter().filter_map(|log| log.tokens.end());
    record.rejection().is_some() || ends.any(|end| !is_good(end))
}

fn open_at(offset: StepOffset) -> StreamTail {
    StreamTail {
        offset,
        is_closed: false,
    }
}

fn closed_at(offset: StepOffset) -> StreamTail {
    StreamTail {
        offset,
        is_closed: true,
    }
}

/// Tokens read at a time.
const TOKENS_PER_READ: usize = 32;

/// Waits until each choice has the client's position, or has ended. The client has the tokens, so that they cost no credit.
pub async fn wait_for_positions(record: &StreamRecord, positions: &[Position]) {
    let Some(started) = record.started() else {
        return;
    };
    let pairs = started.choices.iter().zip(positions);
    let behind = pairs.filter(|(log, position)| position.begun() > log.steps());
    let attach = |log: &ChoiceLog| log.tokens.attach(0);
    let readers = behind.filter_map(|(log, position)| Some((attach(log).ok()?, log, *position)));
    let mut readers: Vec<_> = readers.collect();
    poll_fn(|cx| {
        readers.retain_mut(|(reader, log, position)| !has_reached(reader, log, *position, cx));
        if readers.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// Reads what is there; false: the waker is registered for more.
fn has_reached(
    reader: &mut Reader<Token>,
    log: &ChoiceLog,
    position: Position,
    cx: &mut Context<'_>,
) -> bool {
    let mut buffer = [NO_TOKEN; TOKENS_PER_READ];
    loop {
        if position.begun() <= log.steps() {
            return true;
        }
        match reader.poll_read(cx, &mut buffer) {
            Poll::Ready(Read::Items(_)) => reader.accept(reader.cursor()),
            Poll::Ready(Read::Ended(_)) => return true,
            Poll::Ready(Read::Empty) | Poll::Pending => return false,
        }
    }
}
