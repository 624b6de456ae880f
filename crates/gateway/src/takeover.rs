//! Streams of gateways that stop, and of gateways that are gone.
//!
//! A gateway that stops in order hands its streams over at once:
//!
//! 1. The engines stop computing them. The journal has the tokens so far, and no end.
//! 2. Their records are stored in JetStream.
//! 3. The caller tells the other gateways that this one leaves: each may claim the streams from then on.
//! 4. The readers' connections are closed; their clients continue at another gateway.
//!
//! Of a gateway that is gone, a stream that a client reads is taken over when the client comes back (`stream_owners`). No
//! one comes back for a background response, a job or a delivery, so the gateways that are left look through the records some
//! seconds after a gateway has gone, and once after their start. Several may look at the same time: each claim has one
//! winner.

use crate::handles::Gateway;
use crate::owners_slot::{OwnerState, StreamOwners};
use crate::records::{DescriptionKind, StreamDescription};
use crate::stream_owners::{StreamPlace, claim};
use crate::streams::StreamRecord;
use cluster::names::InstanceId;
use futures_util::StreamExt;
use journal::RecoveredStream;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stream::{Caller, EntryState, LIST_PAGE_MAX, ListCursor, StreamId};
use tokio::time::{Instant, sleep, sleep_until, timeout};
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

/// Time for the last tokens to be written to the journal.
const WRITE_MAX: Duration = Duration::from_secs(1);
/// Time for the last records to be stored.
const STORE_MAX: Duration = Duration::from_secs(3);
/// Time between two looks at the journal.
const WRITE_LOOK: Duration = Duration::from_millis(2);

/// Streams on their way to other gateways.
pub struct HandOver {
    owners: Arc<StreamOwners>,
    streams: Vec<Arc<StreamRecord>>,
}

impl HandOver {
    /// Ends the work for all streams that others can continue. `None`: this is no gateway of a cluster, or records cannot
    /// be stored.
    pub fn begin(gateway: &Gateway) -> Option<Self> {
        let owners = gateway
            .owners
            .get()
            .filter(|owners| owners.status.is_there())?;
        let mut streams = open_streams(gateway);
        let is_followed = |record: &Arc<StreamRecord>| {
            let replica = owners.replica_of(record.id());
            replica.is_some_and(|replica| replica.is_followed)
        };
        streams.retain(|record| is_followed(record) && record.begin_move());
        Some(Self {
            owners: Arc::clone(owners),
            streams,
        })
    }

    /// Waits until the streams' records are stored, at most four seconds.
    pub async fn store(&self) {
        let written = async {
            while !self.streams.iter().all(|record| record.is_at_rest()) {
                tokio::time::sleep(WRITE_LOOK).await;
            }
        };
        let is_written = timeout(WRITE_MAX, written).await.is_ok();
        let is_stored = self.owners.replicator.flush(STORE_MAX).await;
        let streams = self.streams.len();
        if is_written && is_stored {
            tracing::info!(streams, "streams are handed over to other gateways");
        } else {
            tracing::warn!(streams, "the last records of streams are not in JetStream");
        }
    }

    /// Closes the connections of the streams' readers.
    pub fn finish(self) {
        self.streams.iter().for_each(|record| record.finish_move());
    }
}

fn open_streams(gateway: &Gateway) -> Vec<Arc<StreamRecord>> {
    let registry = gateway.generations.streams.registry();
    let mut open = Vec::new();
    let mut after = ListCursor(0);
    loop {
        let page = registry.list(Caller::Admin, Some(after), LIST_PAGE_MAX);
        let entries = page.entries.into_iter();
        let entries = entries.filter(|entry| entry.state == EntryState::Open);
        open.extend(entries.map(|entry| entry.payload));
        match page.next {
            Some(next) => after = next,
            None => return open,
        }
    }
}
