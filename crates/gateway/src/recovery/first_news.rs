//! The wait until a submitted stream has a new token: until then, the stream's work competes with the next stream's.

use crate::streams::StreamRecord;
use engine::Token;
use futures_util::StreamExt;
use generate::stream_change::Change;
use std::future::poll_fn;
use std::task::{Context, Poll};
use stream::{Read, Reader};

/// Waits until a choice has a token that was not recovered, or the stream has ended or computes nothing.
pub(crate) async fn wait_for_news(record: &StreamRecord) {
    let Some(started) = record.started() else {
        return;
    };
    let mut changes = record.transitions().follow_changes();
    let attach = |log: &generate::stream_source::ChoiceLog| log.tokens.attach(log.tokens.len());
    let open = started
        .choices
        .iter()
        .filter(|log| log.tokens.end().is_none());
    let mut readers: Vec<_> = open.filter_map(|log| attach(log).ok()).collect();
    if readers.is_empty() {
        return;
    }
    poll_fn(|cx| {
        if readers.iter_mut().any(|reader| has_news(reader, cx)) {
            return Poll::Ready(());
        }
        loop {
            match changes.poll_next_unpin(cx) {
                Poll::Ready(Some(change)) if !computes(change) => return Poll::Ready(()),
                Poll::Ready(Some(_)) => {}
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
}

fn has_news(reader: &mut Reader<Token>, cx: &mut Context<'_>) -> bool {
    let mut token = [Token {
        id: 0,
        logprob: 0.0,
    }];
    match reader.poll_read(cx, &mut token) {
        Poll::Ready(Read::Items(_) | Read::Ended(_)) => true,
        Poll::Ready(Read::Empty) | Poll::Pending => false,
    }
}

/// Whether the engine may work for a stream after this change.
fn computes(change: Change) -> bool {
    match change {
        Change::Opened
        | Change::Recovered
        | Change::Claimed
        | Change::Moved
        | Change::Started
        | Change::Resumed => true,
        Change::Backpressure
        | Change::SlowConsumer
        | Change::Parked { .. }
        | Change::Ended { .. } => false,
    }
}
