//! Streams of this gateway's journal in a cluster: claimed, or ended where another gateway has taken them over.

use crate::handles::Gateway;
use crate::owners_slot::{LOOKUPS_MAX, OwnerState, StreamOwners};
use cluster::records::{Adopted, ClaimOutcome, Fenced, LastMessage};
use futures_util::StreamExt;
use journal::RecoveredStream;
use std::sync::Arc;
use std::time::Duration;
use stream::{Caller, StreamId};
use wire::clock;

/// Pause between two attempts to claim the streams of this gateway's journal.
const CLAIM_AGAIN: Duration = Duration::from_secs(2);

/// Claims the streams of this gateway's journal, which an earlier process of it has owned. One that another gateway has
/// taken over, or has continued, ends here.
pub(crate) async fn reclaim_streams(gateway: Gateway, streams: Vec<Arc<RecoveredStream>>) {
    let Some(owners) = gateway.owners.get() else {
        return;
    };
    let claims = futures_util::stream::iter(streams);
    let claims = claims.for_each_concurrent(LOOKUPS_MAX, |stream| {
        let gateway = &gateway;
        async move {
            while let Err(why) = reclaim_stream(owners, gateway, &stream).await {
                tracing::debug!("the owner of a recovered stream is not known: {why}");
                tokio::time::sleep(CLAIM_AGAIN).await;
            }
        }
    });
    claims.await;
}

async fn reclaim_stream(
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
    let adopted = match claimed.await? {
        ClaimOutcome::Claimed(claimed) => claimed.adopted,
        // Nothing is stored, as before the first claim.
        ClaimOutcome::Unknown => Adopted {
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
    replicator.adopt_stream(stream.id, adopted, clock::now());
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
    if gateway.outbox.remove_object(fenced.id) || gateway.mailboxes.remove_object(fenced.id) {
        return;
    }
    tracing::warn!(stream = %id, %by, generation, "another gateway has taken a stream over");
    let streams = &gateway.generations.streams;
    if let Ok(record) = streams.registry().lookup(id, Caller::Admin) {
        record.fence();
    }
    streams.remove_stream(id);
}
