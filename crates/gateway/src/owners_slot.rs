//! What a gateway of a cluster knows of the owners of streams.

use crate::keys::Keys;
use cluster::names::InstanceId;
use cluster::records::{JetStreamRecords, LastMessage, SharedReplicator};
use std::sync::{Arc, OnceLock};
use stream::StreamId;
use tokio::sync::{Mutex, MutexGuard};

/// Streams that are looked up at one time.
pub(crate) const LOOKUPS_MAX: usize = 16;

/// Liveness of another instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerState {
    /// Heartbeats arrive; the address of the HTTP interface, if there is one.
    Alive(Option<String>),
    /// Heartbeats are missing, but not for long enough.
    Silent,
    /// The instance is gone, or was never seen.
    Gone,
}

/// The records of all gateways' streams, and the instances that are alive.
pub struct StreamOwners {
    pub(crate) store: JetStreamRecords,
    pub(crate) replicator: Arc<SharedReplicator>,
    pub(crate) state_of: Box<dyn Fn(InstanceId) -> OwnerState + Send + Sync>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) stream_bytes_max: usize,
}

impl StreamOwners {
    /// This instance is gone as an owner: the stream is not here.
    pub(crate) fn state_of_owner(&self, last: &LastMessage) -> OwnerState {
        match last.head.instance == self.replicator.lock().instance() {
            true => OwnerState::Gone,
            false => (self.state_of)(last.head.instance),
        }
    }
}

/// The place of [`StreamOwners`] in a gateway of a cluster.
#[derive(Default)]
pub struct OwnersSlot {
    owners: OnceLock<Arc<StreamOwners>>,
    /// One look-up of a stream at a time, and [`LOOKUPS_MAX`] of all streams.
    lookups: [Mutex<()>; LOOKUPS_MAX],
}

impl OwnersSlot {
    /// Sets the owners. To be called once.
    pub(crate) fn set(&self, owners: Arc<StreamOwners>) {
        let _ = self.owners.set(owners);
    }

    /// Whether there are other gateways.
    pub fn is_set(&self) -> bool {
        self.owners.get().is_some()
    }

    /// The owners, in a gateway of a cluster.
    pub(crate) fn get(&self) -> Option<&Arc<StreamOwners>> {
        self.owners.get()
    }

    /// Waits until no other request looks the stream up.
    pub(crate) async fn begin_lookup(&self, id: StreamId) -> MutexGuard<'_, ()> {
        let group = id.to_bits() % LOOKUPS_MAX as u128;
        self.lookups[group as usize].lock().await
    }
}
