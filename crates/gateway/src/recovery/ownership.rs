//! Recovered streams that another gateway may own by now: nothing of them is told or computed until that is known.
//!
//! This process waits for JetStream, however long: another gateway may have taken the stream over while this one was
//! stopped, and two owners would tell two texts. New requests do not wait for that ([`HELD_MAX`]).

use super::coordinator::continue_streams;
use super::reclaim::Reclaims;
use super::restored_stream::RestoredStream;
use super::stream_plan::StreamPlan;
use crate::handles::Gateway;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};

/// Time in which new requests wait behind recovered streams whose owner is not known.
const HELD_MAX: Duration = Duration::from_secs(2);
/// Time between two groups of streams that are continued together.
const GROUP: Duration = Duration::from_millis(20);

/// A stream whose owner is not known.
pub(crate) type UndecidedStream = (RestoredStream, oneshot::Receiver<()>);

/// The streams that this process owns, and those whose owner is not known in time.
pub(crate) async fn split_decided(
    mut reclaims: Reclaims,
    streams: Vec<RestoredStream>,
) -> (Vec<RestoredStream>, Vec<UndecidedStream>) {
    let deadline = Instant::now() + HELD_MAX;
    let (mut owned, mut undecided) = (Vec::new(), Vec::new());
    for stream in streams {
        let Some(mut decision) = reclaims.decision(stream.recovered.id) else {
            owned.push(stream);
            continue;
        };
        match timeout_at(deadline, &mut decision).await {
            Ok(_) => owned.extend(owned_stream(stream)),
            Err(_) => undecided.push((stream, decision)),
        }
    }
    if !undecided.is_empty() {
        let streams = undecided.len();
        tracing::warn!(
            streams,
            "recovered streams wait until JetStream says whether another gateway has taken them over"
        );
    }
    (owned, undecided)
}

/// Continues streams as it becomes known that this process owns them.
pub(crate) async fn continue_when_decided(gateway: &Gateway, undecided: Vec<UndecidedStream>) {
    let decisions = undecided.into_iter().map(|(stream, decision)| async {
        let is_decided = decision.await.is_ok();
        (stream, is_decided)
    });
    let mut decisions: FuturesUnordered<_> = decisions.collect();
    while let Some(first) = decisions.next().await {
        sleep(GROUP).await;
        let mut group = vec![first];
        while let Some(Some(next)) = decisions.next().now_or_never() {
            group.push(next);
        }
        let decided = group.into_iter().filter(|(_, is_decided)| *is_decided);
        let owned = decided.filter_map(|(stream, _)| owned_stream(stream));
        let (gateway, owned) = (gateway.clone(), owned.collect());
        tokio::spawn(async move { continue_streams(&gateway, owned).await });
    }
}

/// The stream, if this process owns it and it goes on.
fn owned_stream(stream: RestoredStream) -> Option<RestoredStream> {
    let record = stream.run.record();
    if record.is_moved() {
        return None;
    }
    record.note_owned();
    match stream.plan {
        StreamPlan::Rejected(error) => {
            stream.run.reject_recovered(error);
            None
        }
        _ => Some(stream),
    }
}
