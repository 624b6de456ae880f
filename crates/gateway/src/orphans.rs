//! Work of gateways that are gone for which no client asks: background responses, jobs, and what was recorded of ends.
//!
//! A stream that a client reads is taken over when the client comes back (`stream_owners`). Nobody comes back for a
//! background response or a delivery, so the gateways that are left look through the records some seconds after a gateway
//! has gone, and once after their start. Several may look at the same time: each claim has one winner.

use crate::handles::Gateway;
use crate::owners_slot::{OwnerState, StreamOwners};
use crate::records::{DescriptionKind, StreamDescription};
use crate::stream_owners::{StreamPlace, claim};
use cluster::names::InstanceId;
use futures_util::StreamExt;
use journal::RecoveredStream;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stream::StreamId;
use tokio::time::{Instant, sleep, sleep_until};
use wire::protocol::Protocol;

/// Time that a gateway has to come back and continue its own work.
const COMEBACK: Duration = Duration::from_secs(4);
/// Pause between two looks at the other gateways.
const LOOK: Duration = Duration::from_millis(500);
/// Streams that are looked at or claimed at one time.
const CLAIMS_MAX: usize = 4;

/// Takes over the work of gateways that are gone, forever. Ready at once in a process without other gateways.
pub async fn take_over_orphans(gateway: Gateway) {
    let Some(owners) = gateway.owners.get() else {
        return;
    };
    let mut present = HashSet::new();
    let mut due = Some(Instant::now() + COMEBACK);
    loop {
        let now_present = present_gateways(owners);
        if !present.is_subset(&now_present) {
            due = Some(Instant::now() + COMEBACK);
        }
        present = now_present;
        match due {
            Some(at) if at <= Instant::now() => {
                let is_done = look_through(owners, &gateway).await;
                due = (!is_done).then(|| Instant::now() + COMEBACK);
            }
            Some(at) => sleep_until(at.min(Instant::now() + LOOK)).await,
            None => sleep(LOOK).await,
        }
    }
}

fn present_gateways(owners: &StreamOwners) -> HashSet<InstanceId> {
    let others = (owners.others)().into_iter();
    let is_present = |id: &InstanceId| (owners.state_of)(*id) != OwnerState::Gone;
    others.filter(is_present).collect()
}

/// Claims what nobody asks for. False: something could not be decided.
async fn look_through(owners: &StreamOwners, gateway: &Gateway) -> bool {
    let ids = match owners.store.streams().await {
        Ok(ids) => ids,
        Err(why) => {
            tracing::debug!("the streams of gateways that are gone are not known: {why}");
            return false;
        }
    };
    let is_done = AtomicBool::new(true);
    let looks = futures_util::stream::iter(ids);
    let looks = looks.for_each_concurrent(CLAIMS_MAX, |id| {
        let is_done = &is_done;
        async move {
            if !look_at(owners, gateway, id).await {
                is_done.store(false, Ordering::Relaxed);
            }
        }
    });
    looks.await;
    is_done.into_inner()
}

/// Claims one stream if its owner is gone and nobody asks for it. False: the owner is silent, or JetStream does not answer.
async fn look_at(owners: &StreamOwners, gateway: &Gateway, id: u128) -> bool {
    let stream = StreamId::from_bits(id);
    let _one = gateway.owners.begin_lookup(stream).await;
    let (own, is_here) = {
        let replicator = owners.replicator.lock();
        (replicator.instance(), replicator.state_of(id).is_some())
    };
    if is_here {
        return true;
    }
    let last = match owners.store.last_message(id).await {
        Ok(Some(last)) if last.head.instance != own => last,
        // Purged meanwhile, or about to be.
        Ok(_) => return true,
        Err(_) => return false,
    };
    match (owners.state_of)(last.head.instance) {
        OwnerState::Alive(_) => true,
        OwnerState::Silent => false,
        OwnerState::Gone => {
            if let StreamPlace::Undecided(why) = claim(owners, gateway, stream, is_unattended).await
            {
                tracing::debug!(%stream, "a stream of a dead gateway is not taken over: {why}");
            }
            true
        }
    }
}

/// Whether no client has to come back for an object to matter.
fn is_unattended(stored: &RecoveredStream) -> bool {
    match DescriptionKind::of(&stored.description) {
        // One that is retired is removed by the gateway that claims it.
        Some(DescriptionKind::WebhookDelivery | DescriptionKind::Retired) => true,
        Some(DescriptionKind::Generation) => StreamDescription::decode(&stored.description)
            .is_ok_and(|description| {
                let options = &description.stream_options;
                let is_job = description.protocol == Protocol::Job;
                options.background || is_job || options.webhook.is_some()
            }),
        Some(DescriptionKind::WorkflowRun | DescriptionKind::StoredBlob) | None => false,
    }
}
