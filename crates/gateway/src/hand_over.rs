//! The orderly stop of a gateway in a cluster: streams that another gateway can continue are handed over at once.
//!
//! 1. The engines stop computing them. The journal has the tokens so far, and no end.
//! 2. Their records are stored in JetStream.
//! 3. The caller says to the other gateways that this one leaves: each may claim the streams from then on.
//! 4. The readers' connections are closed; their clients go on at another gateway.

use crate::handles::Gateway;
use crate::owners_slot::StreamOwners;
use crate::streams::StreamRecord;
use std::sync::Arc;
use std::time::Duration;
use stream::{Caller, EntryState, LIST_PAGE_MAX, ListCursor};
use tokio::time::timeout;

/// Time for the last tokens to be written to the journal.
const WRITE_MAX: Duration = Duration::from_secs(1);
/// Time for the last records to be stored.
const STORE_MAX: Duration = Duration::from_secs(3);
/// Time between two looks at the journal.
const LOOK: Duration = Duration::from_millis(2);

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
                tokio::time::sleep(LOOK).await;
            }
        };
        let is_written = timeout(WRITE_MAX, written).await.is_ok();
        let is_stored = self.owners.replicator.flush(STORE_MAX).await;
        let streams = self.streams.len();
        match is_written && is_stored {
            true => tracing::info!(streams, "streams are handed over to other gateways"),
            false => tracing::warn!(streams, "the last records of streams are not in JetStream"),
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
