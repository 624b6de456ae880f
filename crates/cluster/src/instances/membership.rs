//! This process as an instance of a cluster, and the seal of its heartbeats: a code over the whole message, by the
//! secret of the gateways, in a header field of the message.

use super::registry::{Change, InstanceState, LiveInstance, Registry, RegistryCounts};
use super::silence::Probes;
use super::warnings::{LogBudget, LogTurn, describe, differences_of, rival_clusters, warnings};
use crate::messages::{Heartbeat, Role};
use crate::names::{ClusterName, InstanceId, Subjects};
use crate::nats::{Connection, SubjectKind, publish_in_time};
use crate::secret::ClusterSecret;
use async_nats::{HeaderMap, Subscriber};
use futures_util::StreamExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

/// Looks at the registry per heartbeat.
const LOOKS: u32 = 5;
/// Heartbeats between two attempts to reach an instance that was never reached.
const REACH_EVERY: u32 = 4;
/// Time for the last heartbeat to be sent.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// Name and id of this process in a cluster.
#[derive(Clone, Debug)]
pub struct MembershipConfig {
    /// Name of the cluster.
    pub name: ClusterName,
    /// Id of this process.
    pub id: InstanceId,
    /// Time between two heartbeats, the same at all instances.
    pub heartbeat: Duration,
    /// The secret of the gateways: own heartbeats are sealed, and others' addresses are believed if theirs are. An engine has
    /// none.
    pub secret: Option<ClusterSecret>,
}

/// Heartbeats of this instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishCounts {
    /// Given to the connection.
    pub sent: u64,
    /// Not sent: no connection, or longer than a heartbeat may be.
    pub skipped: u64,
}

/// The heartbeats of a cluster, sent and received; ends when dropped.
#[derive(Debug)]
pub struct Membership {
    shared: Arc<MembershipState>,
    driver: JoinHandle<()>,
}

#[derive(Debug)]
struct MembershipState {
    config: MembershipConfig,
    subjects: Subjects,
    connection: Arc<Connection>,
    registry: Mutex<Registry>,
    changes: watch::Sender<u64>,
    log_budget: Mutex<LogBudget>,
    /// [`Heartbeat::number`] of the last heartbeat.
    number: AtomicU64,
    is_leaving: AtomicBool,
    sent: AtomicU64,
    skipped: AtomicU64,
}

impl Membership {
    /// Begins to send this instance's heartbeats and to hear the others'. `describe` is called for each heartbeat; id,
    /// cluster and `leaving` of its result are replaced. Must be called inside a tokio runtime.
    pub fn start(
        connection: Arc<Connection>,
        config: MembershipConfig,
        describe: impl Fn() -> Heartbeat + Send + 'static,
    ) -> Self {
        let own = Arc::new(complete(describe(), &config, false));
        let number = AtomicU64::new(own.at_unix_ms);
        let shared = Arc::new(MembershipState {
            subjects: Subjects::new(&config.name),
            registry: Mutex::new(Registry::new(own, config.heartbeat, now())),
            config,
            connection,
            changes: watch::Sender::new(0),
            log_budget: Mutex::default(),
            number,
            is_leaving: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
        });
        let hearing = shared.connection.hearing();
        hearing.begin(shared.config.heartbeat, now());
        let driver = tokio::spawn(Arc::clone(&shared).run(describe));
        Self { shared, driver }
    }

    /// Id of this process.
    pub fn id(&self) -> InstanceId {
        self.shared.config.id
    }

    /// Name and id of this process.
    pub fn config(&self) -> &MembershipConfig {
        &self.shared.config
    }

    /// The connection.
    pub fn connection(&self) -> &Arc<Connection> {
        &self.shared.connection
    }

    /// This instance's last heartbeat.
    pub fn own(&self) -> Arc<Heartbeat> {
        Arc::clone(self.shared.registry().own())
    }

    /// All other instances, by id.
    pub fn instances(&self) -> Vec<LiveInstance> {
        self.shared.registry().instances().cloned().collect()
    }

    /// Another instance.
    pub fn get(&self, id: InstanceId) -> Option<LiveInstance> {
        self.shared.registry().get(id).cloned()
    }

    /// Number of gateways that may take requests, this instance included; with a secret, those that have it.
    pub fn count_gateways(&self) -> u32 {
        let needs_seal = self.shared.config.secret.is_some();
        self.shared.registry().count_gateways(needs_seal)
    }

    /// Whether an instance that is not known is none: it would have been heard by now.
    pub fn has_heard_all(&self) -> bool {
        self.shared.registry().has_heard_all()
    }

    /// Number of other instances in this state.
    pub fn count_in(&self, state: InstanceState) -> usize {
        let registry = self.shared.registry();
        let instances = registry.instances();
        instances.filter(|instance| instance.state == state).count()
    }

    /// What an operator has to look after although this instance works, a line each: instances that differ from this one, and
    /// two clusters under one name.
    pub fn warnings(&self) -> Vec<String> {
        warnings(&self.shared.registry())
    }

    /// Number of other instances that are not gone and differ from this one in this kind ([`crate::instances::Difference::KINDS`]).
    pub fn count_different(&self, kind: &str) -> usize {
        let registry = self.shared.registry();
        let differs = |instance: &&LiveInstance| {
            let mut differences = instance.differences.iter();
            instance.state != InstanceState::Gone && differences.any(|found| found.kind() == kind)
        };
        registry.instances().filter(differs).count()
    }

    /// A number that changes with the state of any instance.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    /// Counts of received messages.
    pub fn counts(&self) -> RegistryCounts {
        self.shared.registry().counts()
    }

    /// Counts of this instance's heartbeats.
    pub fn published(&self) -> PublishCounts {
        PublishCounts {
            sent: self.shared.sent.load(Ordering::Relaxed),
            skipped: self.shared.skipped.load(Ordering::Relaxed),
        }
    }

    /// Sends that this instance shuts down, now and in all later heartbeats.
    pub async fn leave(&self) {
        let shared = &self.shared;
        shared.is_leaving.store(true, Ordering::Relaxed);
        let own = (*self.own()).clone();
        shared.publish(complete(own, &shared.config, true)).await;
        if shared.connection.is_usable() {
            // Without a connection the others see silence.
            let flushed = shared.connection.client().flush();
            let _ = tokio::time::timeout(LEAVE_MAX, flushed).await;
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl MembershipState {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(self: Arc<Self>, describe: impl Fn() -> Heartbeat + Send + 'static) {
        let subject = self.subjects.heartbeat();
        let heard = self.connection.client().subscribe(subject).await;
        let Ok(mut heard) = heard else {
            // The subject is valid, so the connection has ended.
            return;
        };
        let mut looks = tokio::time::interval(self.config.heartbeat / LOOKS);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut next_beat, mut beats) = (now(), 0_u32);
        let mut probes = Probes::default();
        let mut rivals = None;
        loop {
            tokio::select! {
                is_open = self.hear(&mut heard) => {
                    if !is_open {
                        return;
                    }
                }
                Some(id) = probes.next_refused() => {
                    let change = self.registry().refuse(id);
                    self.announce(change.as_slice());
                }
                _ = looks.tick() => {}
            }
            let at = now();
            if at >= next_beat {
                next_beat = at + self.config.heartbeat;
                let is_leaving = self.is_leaving.load(Ordering::Relaxed);
                let own = complete(describe(), &self.config, is_leaving);
                self.publish(own).await;
                self.probe(&mut probes, beats.is_multiple_of(REACH_EVERY));
                beats = beats.wrapping_add(1);
            }
            let is_usable = self.connection.is_usable();
            let changes = self.registry().look(is_usable, at);
            self.announce(&changes);
            self.tell_rivals(&mut rivals);
            if changes
                .iter()
                .any(|change| matches!(change, Change::Suspected(_)))
            {
                self.probe(&mut probes, false);
            }
        }
    }

    /// Logs which clusters use the name of this one, when that changes.
    fn tell_rivals(&self, told: &mut Option<String>) {
        let rivals = rival_clusters(&self.registry());
        if rivals == *told {
            return;
        }
        match &rivals {
            Some(rivals) => tracing::error!("{rivals}"),
            None => tracing::info!("one cluster uses its name again"),
        }
        *told = rivals;
    }

    /// Tries connections to silent instances, and to those that were never reached if `all` are due. Engines, which place
    /// nothing, try none.
    fn probe(&self, probes: &mut Probes, all: bool) {
        let registry = self.registry();
        if registry.own().role == Role::Engine {
            return;
        }
        probes.retain(|id| registry.get(id).is_some());
        for instance in registry.instances() {
            let id = instance.heartbeat.id;
            let is_due = match instance.state {
                InstanceState::Alive => all && !probes.has_reached(id),
                InstanceState::Suspected => probes.has_reached(id),
                InstanceState::Leaving | InstanceState::Gone => false,
            };
            if let Some(address) = instance.heartbeat.http.clone().filter(|_| is_due) {
                probes.start(id, address);
            }
        }
    }

    /// Takes one message. `false`: the subscription has ended.
    async fn hear(&self, heard: &mut Subscriber) -> bool {
        let Some(message) = heard.next().await else {
            return false;
        };
        let (before, changes, after) = {
            let mut registry = self.registry();
            let before = registry.counts();
            let secret = self.config.secret.as_ref();
            let (header, subject) = (message.headers.as_ref(), message.subject.as_str());
            let seal = check(secret, header, subject, &message.payload);
            let changes = registry.receive(&message.payload, seal, now());
            (before, changes, registry.counts())
        };
        if after.own > before.own {
            self.connection.hearing().note_heartbeat(now());
        }
        self.announce(&changes);
        log_first(before, after, &message.subject);
        if after.malformed + after.newer > before.malformed + before.newer {
            let unreadable = self.connection.unreadable();
            unreadable.note(SubjectKind::Heartbeat, "no heartbeat of this version");
        }
        true
    }

    async fn publish(&self, own: Heartbeat) {
        let number = self.number.fetch_add(1, Ordering::Relaxed) + 1;
        let own = Arc::new(Heartbeat { number, ..own });
        let encoded = own.encode();
        self.registry().set_own(own);
        let sent = match encoded {
            Ok(bytes) if self.connection.is_usable() => {
                let subject = self.subjects.heartbeat();
                let client = self.connection.client();
                let secret = self.config.secret.as_ref();
                let header = secret.map(|secret| header(secret, &subject, &bytes));
                let sent = publish_in_time(client, subject, header, bytes.into());
                sent.await.is_ok()
            }
            Ok(_) => false,
            Err(why) => {
                if self.skipped.load(Ordering::Relaxed) == 0 {
                    tracing::error!("this instance has no heartbeat: {why}");
                }
                false
            }
        };
        let count = if sent { &self.sent } else { &self.skipped };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Logs changes, and wakes those that wait for one.
    fn announce(&self, changes: &[Change]) {
        for change in changes {
            self.log(*change);
        }
        if !changes.is_empty() {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Logs a change, if there is a line left for it: the ids come from the network.
    fn log(&self, change: Change) {
        if matches!(change, Change::Forgotten(_)) {
            return;
        }
        let budget = self.log_budget.lock();
        let turn = budget.unwrap_or_else(PoisonError::into_inner).take(now());
        match turn {
            LogTurn::Line => {}
            LogTurn::LineAfter(left_out) => {
                tracing::warn!("{left_out} changes of instances were not logged before this one");
            }
            LogTurn::LeftOut { is_first } => {
                if is_first {
                    tracing::warn!(
                        "many instances come and go: further changes of this minute are not logged"
                    );
                }
                return;
            }
        }
        let found = |id| {
            let registry = self.registry();
            let instance = registry.get(id)?;
            Some((describe(&instance.heartbeat), differences_of(instance)))
        };
        let of = |id| found(id).unwrap_or_else(|| (format!("{id}"), String::new()));
        match change {
            Change::Joined(id) => tracing::info!("instance {} is there", of(id).0),
            Change::Suspected(id) => tracing::info!("instance {} is silent", of(id).0),
            Change::Recovered(id) => tracing::info!("instance {} is there again", of(id).0),
            Change::Leaving(id) => tracing::info!("instance {} shuts down", of(id).0),
            Change::Gone(id) => match self
                .registry()
                .get(id)
                .map(|instance| instance.heartbeat.leaving)
            {
                Some(true) => tracing::info!("instance {id} has ended"),
                _ => tracing::warn!("instance {id} is gone: no heartbeat"),
            },
            Change::Forgotten(_) => {}
            Change::Differs(id) => match of(id) {
                (name, differences) if differences.is_empty() => {
                    tracing::info!("instance {name} has no differences any more");
                }
                (name, differences) => tracing::error!("instance {name} differs: {differences}"),
            },
        }
    }
}

/// A heartbeat with what this module decides.
fn complete(described: Heartbeat, config: &MembershipConfig, is_leaving: bool) -> Heartbeat {
    Heartbeat {
        id: config.id,
        cluster: config.name.as_str().to_owned(),
        leaving: described.leaving || is_leaving,
        ..described
    }
}

/// Logs the first message of each kind that is dropped; all are counted.
fn log_first(before: RegistryCounts, after: RegistryCounts, subject: &str) {
    let is_first = |count: fn(&RegistryCounts) -> u64| count(&before) == 0 && count(&after) == 1;
    if is_first(|counts| counts.newer) {
        tracing::error!(
            "an instance sends heartbeats of a newer version, which this instance cannot read"
        );
    }
    if is_first(|counts| counts.foreign) {
        tracing::error!("an instance of a cluster of another name sends heartbeats on {subject:?}");
    }
    if is_first(|counts| counts.forged) {
        tracing::error!(
            "a heartbeat in the name of another gateway is not sealed with its secret, or was sent before: dropped"
        );
    }
    if is_first(|counts| counts.over_limit) {
        tracing::error!("there are too many instances; the heartbeats of new ones are dropped");
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Header field of the code.
const FIELD: &str = "Millrace-Seal";
/// Purpose of the code.
const PURPOSE: &str = "heartbeat";

/// What the seal says of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// This instance has no secret.
    NotChecked,
    /// An instance with the secret of this one has sent the message, at any time.
    Valid,
    /// There is none, or one by another secret.
    Missing,
}

/// The header with the seal of a message.
pub(super) fn header(secret: &ClusterSecret, subject: &str, message: &[u8]) -> HeaderMap {
    let mut header = HeaderMap::new();
    let code = secret.mac(PURPOSE, &[subject.as_bytes(), message]);
    header.insert(FIELD, code.to_hex());
    header
}

/// What the header of a message says.
pub(super) fn check(
    secret: Option<&ClusterSecret>,
    header: Option<&HeaderMap>,
    subject: &str,
    message: &[u8],
) -> Seal {
    let Some(secret) = secret else {
        return Seal::NotChecked;
    };
    let code = secret.mac(PURPOSE, &[subject.as_bytes(), message]);
    let told = header.and_then(|header| header.get(FIELD));
    if told.is_some_and(|told| code.is(told.as_str())) {
        Seal::Valid
    } else {
        Seal::Missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seal_is_valid_for_its_message_subject_and_secret_only() {
        let (secret, other) = (ClusterSecret::of("a"), ClusterSecret::of("b"));
        let sealed = header(&secret, "mr.c.hb", b"{}");
        let check = |secret, subject, message| check(secret, Some(&sealed), subject, message);
        assert_eq!(check(Some(&secret), "mr.c.hb", b"{}"), Seal::Valid);
        assert_eq!(check(Some(&secret), "mr.d.hb", b"{}"), Seal::Missing);
        assert_eq!(check(Some(&secret), "mr.c.hb", b"{} "), Seal::Missing);
        assert_eq!(check(Some(&other), "mr.c.hb", b"{}"), Seal::Missing);
        assert_eq!(check(None, "mr.c.hb", b"{}"), Seal::NotChecked);
        let none = super::check(Some(&secret), None, "mr.c.hb", b"{}");
        assert_eq!(none, Seal::Missing);
    }
}
