//! The owner of recovered streams in a cluster: this gateway claims the streams of its journal, and ends those that another
//! gateway has taken over. Until the owner is known, nothing of a stream is sent or computed.
//!
//! This process waits for JetStream, however long: another gateway may have taken the stream over while this one was
//! stopped, and two owners would send two texts. New requests do not wait for that ([`HELD_MAX`]).

use super::coordinator::continue_streams;
use super::recovered_state::RecoveredState;
use super::stream_recovery::StreamRecovery;
use crate::handles::Gateway;
use crate::owners_slot::{LOOKUPS_MAX, OwnerState, StreamOwners};
use cluster::records::{ClaimOutcome, ClaimedPlace, Fenced, LastMessage};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use journal::RecoveredStream;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stream::{Caller, StreamId};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};
use wire::clock;

/// Time in which new requests wait behind recovered streams whose owner is not known.
const HELD_MAX: Duration = Duration::from_secs(2);
/// Time between two groups of streams that are continued together.
const GROUP: Duration = Duration::from_millis(20);

/// A stream whose owner is not known.
pub(crate) type UndecidedStream = (StreamRecovery, oneshot::Receiver<()>);

/// The streams that this process owns, and those whose owner is not known in time.
pub(crate) async fn split_decided(
    mut claims: Claims,
    streams: Vec<StreamRecovery>,
) -> (Vec<StreamRecovery>, Vec<UndecidedStream>) {
    let deadline = Instant::now() + HELD_MAX;
    let (mut owned, mut undecided) = (Vec::new(), Vec::new());
    for stream in streams {
        let Some(mut decision) = claims.decision(stream.records.id) else {
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
fn owned_stream(stream: StreamRecovery) -> Option<StreamRecovery> {
    let record = stream.run.record();
    if record.has_left() {
        return None;
    }
    record.publish_recovered();
    match stream.state {
        RecoveredState::Rejected(error) => {
            stream.run.reject_recovered(error);
            None
        }
        _ => Some(stream),
    }
}

/// Pause between two attempts to claim the streams of this gateway's journal.
const CLAIM_AGAIN: Duration = Duration::from_millis(500);

/// Streams of this gateway's journal whose owner is being found out.
#[derive(Default)]
pub(crate) struct Claims(HashMap<u128, oneshot::Receiver<()>>);

impl Claims {
    /// Ready when the owner of a stream is known: [`crate::streams::StreamRecord::has_left`] says that it is another
    /// gateway.
    pub(crate) fn decision(&mut self, id: u128) -> Option<oneshot::Receiver<()>> {
        self.0.remove(&id)
    }
}

/// Claims the streams of this gateway's journal in a task. One that another gateway has taken over, or has continued, ends
/// here. To be called when the streams are registered.
pub(crate) fn begin_claims(gateway: &Gateway, streams: Vec<Arc<RecoveredStream>>) -> Claims {
    let mut claims = Claims::default();
    if gateway.owners.is_set() {
        let is_awaited = gateway.owners.may_be_replicated();
        let streams = streams.into_iter().map(|stream| {
            let (decided, decision) = oneshot::channel();
            if is_awaited {
                claims.0.insert(stream.id, decision);
            }
            (stream, decided)
        });
        let streams: Vec<_> = streams.collect();
        tokio::spawn(claim_streams(gateway.clone(), streams));
    }
    claims
}

async fn claim_streams(
    gateway: Gateway,
    streams: Vec<(Arc<RecoveredStream>, oneshot::Sender<()>)>,
) {
    let Some(owners) = gateway.owners.get() else {
        return;
    };
    let is_told = AtomicBool::new(false);
    let claims = futures_util::stream::iter(streams);
    let claims = claims.for_each_concurrent(LOOKUPS_MAX, |(stream, decided)| {
        let (gateway, is_told) = (&gateway, &is_told);
        async move {
            while let Err(why) = claim_stream(owners, gateway, &stream).await {
                if !is_told.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "recovered streams wait until JetStream tells their owners: {why}. Where JetStream is given up for \
                         good: stop this process and remove the file `replicated` in journal.directory"
                    );
                }
                tokio::time::sleep(CLAIM_AGAIN).await;
            }
            // Nobody waits at the end of the process.
            let _ = decided.send(());
        }
    });
    claims.await;
}

async fn claim_stream(
    owners: &StreamOwners,
    gateway: &Gateway,
    stream: &RecoveredStream,
) -> Result<(), String> {
    let instance = owners.replicator.lock().instance();
    let may_replace = |last: &LastMessage, stored: &RecoveredStream| {
        owners.state_of_owner(last) == OwnerState::Gone && is_behind(stored, stream)
    };
    let claimed = owners
        .store
        .claim(stream.id, instance, owners.stream_bytes_max, may_replace);
    let place = match claimed.await? {
        ClaimOutcome::Claimed(claimed) => claimed.place,
        // Nothing is stored, as before the first claim.
        ClaimOutcome::Unknown => ClaimedPlace {
            generation: 1,
            sequence: 0,
            handle: 0,
        },
        // An owner that is silent may be alive: the next attempt decides.
        ClaimOutcome::OwnedBy(last) if owners.state_of_owner(&last) == OwnerState::Silent => {
            return Err("the stream's owner is silent".to_owned());
        }
        ClaimOutcome::OwnedBy(last) => {
            let fenced = Fenced {
                id: stream.id,
                by: last.head.instance,
                generation: last.head.generation,
            };
            end_fenced_stream(gateway, fenced);
            return Ok(());
        }
    };
    let mut replicator = owners.replicator.lock();
    replicator.claim_stream(stream.id, place, clock::now());
    replicator.set_key(stream.id, stream.key, clock::now());
    drop(replicator);
    if let Some(journal) = gateway.generations.journal.get() {
        journal.wake();
    }
    Ok(())
}

/// Whether the stored records have nothing that the recovered ones do not have.
fn is_behind(stored: &RecoveredStream, recovered: &RecoveredStream) -> bool {
    let choices = stored.choices.iter().enumerate();
    choices.into_iter().all(|(number, stored)| {
        let found = recovered.choices.get(number).map(|choice| &choice.ids[..]);
        found.unwrap_or_default().starts_with(&stored.ids)
    })
}

/// Another gateway has taken a stream over, which this one has regarded as dead: the work here ends.
pub(crate) fn end_fenced_stream(gateway: &Gateway, fenced: Fenced) {
    let id = StreamId::from_bits(fenced.id);
    let (by, generation) = (fenced.by, fenced.generation);
    if gateway.outbox.remove_object(fenced.id) {
        return;
    }
    tracing::warn!(stream = %id, %by, generation, "another gateway has taken a stream over");
    let streams = &gateway.generations.streams;
    if let Ok(record) = streams.registry().lookup(id, Caller::Admin) {
        record.fence();
    }
    streams.remove_stream(id);
}
