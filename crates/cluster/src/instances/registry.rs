//! The registry of live instances. No clock and no network: messages and `now` are arguments.

use super::membership::Seal;
use super::silence::{ListeningClock, Silence, Verdict};
use super::warnings::{Difference, differences};
use crate::messages::{Heartbeat, MessageError, Role};
use crate::names::InstanceId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Instances of one cluster, including those that are gone and not forgotten yet.
pub const INSTANCES_MAX: usize = 1024;

/// Difference of the clocks of two gateways; a sealed heartbeat that is older says nothing.
const SKEW_MS_MAX: u64 = 30_000;

/// State of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstanceState {
    /// Heartbeats arrive.
    Alive,
    /// Three heartbeats are missing.
    Suspected,
    /// Shuts down, and takes no new requests.
    Leaving,
    /// Twelve heartbeats are missing, or three and the process has ended, or the instance has shut down.
    Gone,
}

impl InstanceState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Alive, Self::Suspected, Self::Leaving, Self::Gone];

    /// The state's name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Suspected => "suspected",
            Self::Leaving => "leaving",
            Self::Gone => "gone",
        }
    }
}

/// An instance, as it is known.
#[derive(Clone, Debug)]
pub struct LiveInstance {
    /// The last heartbeat.
    pub heartbeat: Arc<Heartbeat>,
    /// The state.
    pub state: InstanceState,
    /// Arrival of the last heartbeat.
    pub heard: Instant,
    /// Differences from this instance.
    pub differences: Arc<[Difference]>,
    /// Whether the last heartbeat was sealed with the secret of this instance, and fresh: its address can be trusted.
    pub is_sealed: bool,
    silence: Silence,
}

impl LiveInstance {
    /// Where a gateway is asked for what clients want, if the heartbeat can be trusted.
    pub fn trusted_address(&self) -> Option<&str> {
        self.heartbeat.http.as_deref().filter(|_| self.is_sealed)
    }
}

/// A change of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The first heartbeat arrived, or the first after the instance was gone.
    Joined(InstanceId),
    /// Heartbeats are missing.
    Suspected(InstanceId),
    /// Heartbeats arrive again.
    Recovered(InstanceId),
    /// The instance shuts down.
    Leaving(InstanceId),
    /// Too many heartbeats are missing, or the process has ended.
    Gone(InstanceId),
    /// The instance was gone for 240 heartbeats.
    Forgotten(InstanceId),
    /// The differences from this instance are others than before.
    Differs(InstanceId),
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegistryCounts {
    /// Heartbeats of other instances.
    pub received: u64,
    /// Heartbeats of this instance.
    pub own: u64,
    /// Messages that are no heartbeats.
    pub malformed: u64,
    /// Heartbeats of a newer version.
    pub newer: u64,
    /// Heartbeats of a cluster of another name.
    pub foreign: u64,
    /// Heartbeats above [`INSTANCES_MAX`] instances.
    pub over_limit: u64,
    /// Heartbeats in the name of an instance that seals its own, without a seal or of an earlier time.
    pub forged: u64,
    /// Instances that are gone without having left.
    pub lost: u64,
}

/// The registry.
#[derive(Debug)]
pub struct Registry {
    own: Arc<Heartbeat>,
    clock: ListeningClock,
    /// At most [`INSTANCES_MAX`].
    instances: BTreeMap<InstanceId, LiveInstance>,
    counts: RegistryCounts,
}

impl Registry {
    /// No instance is known yet. `own`: this instance, whose own heartbeats are ignored.
    pub fn new(own: Arc<Heartbeat>, heartbeat: Duration, now: Instant) -> Self {
        Self {
            own,
            clock: ListeningClock::new(heartbeat, now),
            instances: BTreeMap::new(),
            counts: RegistryCounts::default(),
        }
    }

    /// Replaces this instance's heartbeat, with which others are compared.
    pub fn set_own(&mut self, own: Arc<Heartbeat>) {
        self.own = own;
    }

    /// This instance's last heartbeat.
    pub fn own(&self) -> &Arc<Heartbeat> {
        &self.own
    }

    /// All other instances, by id.
    pub fn instances(&self) -> impl Iterator<Item = &LiveInstance> {
        self.instances.values()
    }

    /// An instance.
    pub fn get(&self, id: InstanceId) -> Option<&LiveInstance> {
        self.instances.get(&id)
    }

    /// Number of gateways that may take requests, this instance included: they have equal parts of the limits of API keys.
    /// With `needs_seal`, others count that have proved to be gateways.
    pub fn count_gateways(&self, needs_seal: bool) -> u32 {
        let is_counted = |instance: &&LiveInstance| {
            let is_live = matches!(
                instance.state,
                InstanceState::Alive | InstanceState::Suspected
            );
            let is_believed = instance.is_sealed || !needs_seal;
            is_live && is_believed && instance.heartbeat.role != Role::Engine
        };
        let others = self.instances().filter(is_counted).count();
        // At most INSTANCES_MAX.
        others as u32 + 1
    }

    /// Whether an instance that is not known is none: it would have been heard by now.
    pub fn has_heard_all(&self) -> bool {
        self.clock.has_heard_all()
    }

    /// Counts since the start.
    pub fn counts(&self) -> RegistryCounts {
        self.counts
    }

    /// Takes a message that arrived on the subject of heartbeats. Whatever it is, it is counted and never an error.
    pub fn receive(&mut self, message: &[u8], seal: Seal, now: Instant) -> Vec<Change> {
        let heartbeat = match Heartbeat::decode(message) {
            Ok(heartbeat) => heartbeat,
            Err(MessageError::Version(_)) => {
                self.counts.newer += 1;
                return Vec::new();
            }
            Err(_) => {
                self.counts.malformed += 1;
                return Vec::new();
            }
        };
        if heartbeat.cluster != self.own.cluster {
            self.counts.foreign += 1;
            return Vec::new();
        }
        if heartbeat.id == self.own.id {
            self.counts.own += 1;
            return Vec::new();
        }
        let is_sealed = seal == Seal::Valid && self.is_fresh(&heartbeat);
        let known = self.instances.get(&heartbeat.id);
        if known.is_some_and(|known| known.is_sealed) && !is_sealed {
            self.counts.forged += 1;
            return Vec::new();
        }
        if known.is_none() && !self.make_room(is_sealed) {
            self.counts.over_limit += 1;
            return Vec::new();
        }
        self.counts.received += 1;
        self.store(Arc::new(heartbeat), is_sealed, now)
    }

    /// Whether a sealed heartbeat is newer than all others of its instance, and not older than some seconds where there is no
    /// other: whoever reads the subject can send it again.
    fn is_fresh(&self, heartbeat: &Heartbeat) -> bool {
        let known = self.instances.get(&heartbeat.id);
        let known = known.filter(|known| known.is_sealed);
        let is_next = known.is_none_or(|known| heartbeat.number > known.heartbeat.number);
        let skew = self.own.at_unix_ms.abs_diff(heartbeat.at_unix_ms);
        is_next && skew <= SKEW_MS_MAX
    }

    /// Counts silence. To be called several times per heartbeat, also without a connection.
    pub fn look(&mut self, is_connected: bool, now: Instant) -> Vec<Change> {
        let time = self.clock.look(is_connected, now);
        if time.is_zero() {
            return Vec::new();
        }
        let mut changes = Vec::new();
        for (&id, instance) in &mut self.instances {
            instance.silence.add(time);
            let verdict = self.clock.judge(instance.silence);
            let change = judge(id, instance, verdict);
            if change == Some(Change::Gone(id)) && !instance.heartbeat.leaving {
                self.counts.lost += 1;
            }
            changes.extend(change);
        }
        for change in &changes {
            if let Change::Forgotten(id) = change {
                self.instances.remove(id);
            }
        }
        changes
    }

    /// A silent instance's address refuses connections: its process has ended.
    pub fn refuse(&mut self, id: InstanceId) -> Option<Change> {
        let instance = self.instances.get_mut(&id)?;
        if instance.state != InstanceState::Suspected {
            return None;
        }
        instance.state = InstanceState::Gone;
        self.counts.lost += 1;
        Some(Change::Gone(id))
    }

    fn store(&mut self, heartbeat: Arc<Heartbeat>, is_sealed: bool, now: Instant) -> Vec<Change> {
        let id = heartbeat.id;
        let found: Arc<[Difference]> = differences(&self.own, &heartbeat).into();
        let state = if heartbeat.leaving {
            InstanceState::Leaving
        } else {
            InstanceState::Alive
        };
        let instance = LiveInstance {
            heartbeat,
            state,
            heard: now,
            differences: Arc::clone(&found),
            is_sealed,
            silence: Silence::default(),
        };
        let before = self.instances.insert(id, instance);
        let was = before.as_ref().map(|before| before.state);
        let mut changes = Vec::new();
        match (was, state) {
            (None | Some(InstanceState::Gone), _) => changes.push(Change::Joined(id)),
            (Some(InstanceState::Suspected), InstanceState::Alive) => {
                changes.push(Change::Recovered(id));
            }
            _ => {}
        }
        if state == InstanceState::Leaving && was != Some(state) {
            changes.push(Change::Leaving(id));
        }
        let differed = before
            .as_ref()
            .map_or(&[][..], |before| &before.differences);
        if *found != *differed {
            changes.push(Change::Differs(id));
        }
        changes
    }

    /// Whether another instance can be stored; the one that was silent for longest makes room if it is gone, and for a
    /// sealed one also if it is not sealed.
    fn make_room(&mut self, is_sealed: bool) -> bool {
        if self.instances.len() < INSTANCES_MAX {
            return true;
        }
        let gone = self.instances.iter();
        let gone = gone.filter(|(_, instance)| {
            let gives_way = is_sealed && !instance.is_sealed;
            instance.state == InstanceState::Gone || gives_way
        });
        let longest = gone.max_by_key(|(_, instance)| instance.silence);
        let Some((&id, _)) = longest else {
            return false;
        };
        self.instances.remove(&id).is_some()
    }
}

/// Applies a verdict.
fn judge(id: InstanceId, instance: &mut LiveInstance, verdict: Verdict) -> Option<Change> {
    match (verdict, instance.state) {
        (Verdict::Suspected, InstanceState::Alive) => {
            instance.state = InstanceState::Suspected;
            Some(Change::Suspected(id))
        }
        // A process that leaves is silent when it has ended.
        (Verdict::Suspected, InstanceState::Leaving)
        | (
            Verdict::Gone,
            InstanceState::Alive | InstanceState::Suspected | InstanceState::Leaving,
        ) => {
            instance.state = InstanceState::Gone;
            Some(Change::Gone(id))
        }
        (Verdict::Forgotten, _) => Some(Change::Forgotten(id)),
        _ => None,
    }
}
