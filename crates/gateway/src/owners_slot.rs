//! Knowledge of a gateway of a cluster about the owners of streams.

use crate::keys::Keys;
use cluster::job_names::JetStreamName;
use cluster::names::InstanceId;
use cluster::records::{
    JetStreamRecords, LastMessage, ReplicaState, ReplicatorCounters, SharedReplicator, StoreStatus,
};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use stream::{Owner, StreamId};
use tokio::sync::{Mutex, MutexGuard};
use wire::clock;
use wire::shared::job_outcome::JobId;

/// Streams that are looked up at one time.
pub(crate) const LOOKUPS_MAX: usize = 16;

/// Pause between two looks whether an object is stored.
const STORED_LOOK: Duration = Duration::from_millis(50);
/// Looks at one object.
const STORED_LOOKS_MAX: usize = 600;

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
    /// The other gateways that are known, also those that are gone.
    pub(crate) others: Box<dyn Fn() -> Vec<InstanceId> + Send + Sync>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) stream_bytes_max: usize,
    /// Whether another gateway may own streams of this process's journal.
    pub(crate) may_be_replicated: bool,
    pub(crate) status: Arc<StoreStatus>,
}

/// The records of a gateway's streams in JetStream, for metrics and reports.
#[derive(Clone, Debug, Default)]
pub struct RecordsReport {
    /// Whether records can be stored.
    pub is_stored: bool,
    /// Why not.
    pub problem: Option<String>,
    /// Bytes of all gateways' records in JetStream.
    pub store_bytes: u64,
    /// Bytes of records that are not stored.
    pub behind_bytes: usize,
    /// Age of the oldest of them.
    pub lag: Duration,
    /// Streams whose records are stored, or on the way.
    pub followed: usize,
    /// Streams of which records are missing.
    pub missing: usize,
    /// Counts since the start.
    pub counters: ReplicatorCounters,
}

/// A stream in the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamReplica {
    /// Whether the records are stored, or on the way.
    pub is_followed: bool,
    /// Owners that the stream had, this one included.
    pub generation: u64,
    /// The owner.
    pub instance: InstanceId,
}

impl StreamOwners {
    /// This instance is gone as an owner: the stream is not here.
    pub(crate) fn state_of_owner(&self, last: &LastMessage) -> OwnerState {
        if last.head.instance == self.replicator.lock().instance() {
            OwnerState::Gone
        } else {
            (self.state_of)(last.head.instance)
        }
    }

    /// Whether an instance is gone for certain.
    pub fn is_gone(&self, instance: InstanceId) -> bool {
        (self.state_of)(instance) == OwnerState::Gone
    }

    /// Whether a stream has records.
    ///
    /// # Errors
    /// JetStream does not answer.
    pub async fn has_records(&self, stream: u128) -> Result<bool, String> {
        let last = self.store.last_message(stream).await;
        last.map(|last| last.is_some())
    }

    /// The records of the name of an owner's job; `None` where the NATS servers have no JetStream.
    pub fn job_name_records(&self, owner: Owner, id: &JobId) -> Option<JetStreamName> {
        let store = (!self.status.is_not_enabled()).then(|| self.store.clone());
        store.map(|store| JetStreamName::new(store, owner.0, id.as_str()))
    }

    /// Sizes and counts.
    pub fn report(&self) -> RecordsReport {
        let replicator = self.replicator.lock();
        RecordsReport {
            is_stored: self.status.is_there(),
            problem: self.status.problem(),
            store_bytes: self.status.bytes(),
            behind_bytes: replicator.behind_bytes(),
            lag: replicator.lag(clock::now()),
            followed: replicator.count_in(ReplicaState::Followed),
            missing: replicator.count_in(ReplicaState::Missing),
            counters: replicator.counters(),
        }
    }

    /// Waits until an object of the journal is stored, as long as it exists and JetStream is there; at most half a minute.
    pub(crate) async fn wait_stored(&self, id: u128) {
        for _ in 0..STORED_LOOKS_MAX {
            let is_stored = self.replicator.lock().is_stored(id);
            if is_stored != Some(false) || !self.status.is_there() {
                return;
            }
            tokio::time::sleep(STORED_LOOK).await;
        }
    }

    /// The records of a stream of this gateway.
    pub fn replica_of(&self, id: StreamId) -> Option<StreamReplica> {
        let replicator = self.replicator.lock();
        let state = replicator.state_of(id.to_bits())?;
        Some(StreamReplica {
            is_followed: state == ReplicaState::Followed && self.status.is_there(),
            generation: replicator.generation_of(id.to_bits())?,
            instance: replicator.instance(),
        })
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
    pub fn get(&self) -> Option<&Arc<StreamOwners>> {
        self.owners.get()
    }

    /// Whether the owners of streams in this process's journal are to be found out.
    pub(crate) fn may_be_replicated(&self) -> bool {
        self.get().is_some_and(|owners| owners.may_be_replicated)
    }

    /// Waits until no other request looks the stream up.
    pub(crate) async fn begin_lookup(&self, id: StreamId) -> MutexGuard<'_, ()> {
        let group = id.to_bits() % LOOKUPS_MAX as u128;
        self.lookups[group as usize].lock().await
    }
}
