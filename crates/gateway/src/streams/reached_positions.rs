//! The wait of a client that has more of a stream than the records of an owner that is gone: until the tokens were computed
//! once more.

use super::stream_record::StreamRecord;
use engine::Token;
use generate::output::position::Position;
use generate::stream_source::ChoiceLog;
use std::future::poll_fn;
use std::task::{Context, Poll};
use stream::{Read, Reader};

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
        match readers.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
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
    let nothing = Token {
        id: 0,
        logprob: 0.0,
    };
    let mut buffer = [nothing; TOKENS_PER_READ];
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
