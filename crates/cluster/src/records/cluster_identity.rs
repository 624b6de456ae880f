//! Which cluster a gateway belongs to: a cluster's name does not tell two clusters apart that use it by mistake.
//!
//! The id of a cluster is drawn once. It is stored beside the records of streams, where the first one wins (compare-and-set),
//! and in the journal's directory of each gateway. A gateway that knows an id stores it again where the store was wiped; one
//! that finds another id there belongs to another cluster, and neither stores records nor takes streams over.
//!
//! A gateway without an id joins the cluster whose id is stored, once it has heard all gateways, unless none of them has one
//! of its API keys: then the two cannot be one cluster yet. It draws an id of its own for heartbeats, which is not remembered.

use crate::instances::{InstanceState, Membership};
use crate::messages::Role;
use crate::names::{ClusterId, ClusterName, InstanceId};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of the file that are read.
const FILE_BYTES_MAX: u64 = 128;

/// The other gateways, as heartbeats tell of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HeardGateways {
    /// Whether one that lives would have been heard by now.
    pub(super) are_all_heard: bool,
    /// Gateways that are not gone.
    pub(super) present: usize,
    /// Those of them with an API key of this one, or without keys as this one.
    pub(super) with_own_keys: usize,
    /// Whether one of them knows the cluster's id.
    pub(super) is_id_known: bool,
}

/// What is to be done about the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdentityStep {
    /// The stored id is that of this gateway.
    Agreed,
    /// Not decided yet.
    Wait,
    /// This id is to be stored.
    Store(ClusterId),
    /// Another cluster has the name.
    Conflict,
}

/// The cluster of this process.
#[derive(Debug)]
pub struct ClusterIdentity {
    name: ClusterName,
    state: Mutex<IdentityState>,
}

#[derive(Debug, Default)]
struct IdentityState {
    /// Where the id is remembered; `None`: this process remembers none after its end.
    file: Option<PathBuf>,
    /// The cluster that this process belongs to.
    remembered: Option<ClusterId>,
    /// An id for heartbeats while the process belongs to no cluster.
    provisional: Option<ClusterId>,
    problem: Option<String>,
}

impl ClusterIdentity {
    /// A process that does not know its cluster.
    pub fn new(name: &ClusterName) -> Arc<Self> {
        Arc::new(Self {
            name: name.clone(),
            state: Mutex::default(),
        })
    }

    /// Reads the id from a file of an earlier process, where later ones will be stored.
    pub fn remember_in(&self, file: PathBuf) {
        let text = read_start(&file);
        let mut state = self.lock();
        // The id of a cluster of another name says nothing about this one.
        state.remembered = text.as_deref().and_then(|text| {
            let (name, id) = text.trim().split_once(' ')?;
            id.parse().ok().filter(|_| name == self.name.as_str())
        });
        state.file = Some(file);
    }

    /// The id for heartbeats.
    pub fn announced(&self) -> Option<ClusterId> {
        let state = self.lock();
        state.remembered.or(state.provisional)
    }

    /// Why this process must not touch the records of the cluster: they belong to another one.
    pub fn problem(&self) -> Option<String> {
        self.lock().problem.clone()
    }

    /// Compares with the stored id.
    pub(super) fn compare(&self, stored: Option<ClusterId>, others: HeardGateways) -> IdentityStep {
        let mut state = self.lock();
        match (state.remembered, stored) {
            (Some(own), Some(stored)) if own == stored => state.problem = None,
            (Some(own), Some(stored)) => {
                let problem = other_cluster(&self.name, own, stored, state.file.as_deref());
                state.tell(problem);
                return IdentityStep::Conflict;
            }
            // The store was wiped. Who was told of the other cluster leaves the name to it.
            (Some(_), None) if state.problem.is_some() && others.is_id_known => {
                return IdentityStep::Conflict;
            }
            (Some(own), None) => {
                state.problem = None;
                return IdentityStep::Store(own);
            }
            (None, _) if !others.are_all_heard => return IdentityStep::Wait,
            (None, Some(stored)) if others.present > 0 && others.with_own_keys == 0 => {
                if state.provisional.is_none() {
                    state.provisional = random();
                }
                let problem = other_keys(&self.name, stored, state.provisional);
                state.tell(problem);
                return IdentityStep::Conflict;
            }
            (None, Some(stored)) => state.remember(&self.name, stored),
            // They store the id that they know.
            (None, None) if others.is_id_known => return IdentityStep::Wait,
            (None, None) => return random().map_or(IdentityStep::Wait, IdentityStep::Store),
        }
        IdentityStep::Agreed
    }

    /// This process has stored an id.
    pub(super) fn note_stored(&self, id: ClusterId) {
        self.lock().remember(&self.name, id);
    }

    fn lock(&self) -> MutexGuard<'_, IdentityState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IdentityState {
    fn remember(&mut self, name: &ClusterName, id: ClusterId) {
        (self.provisional, self.problem) = (None, None);
        if self.remembered == Some(id) {
            return;
        }
        tracing::info!("this gateway belongs to cluster {id} ({:?})", name.as_str());
        self.remembered = Some(id);
        if let Some(file) = &self.file
            && let Err(why) = std::fs::write(file, format!("{} {id}\n", name.as_str()))
        {
            // The next process takes the stored id.
            tracing::warn!("{}: {why}", file.display());
        }
    }

    fn tell(&mut self, problem: String) {
        if self.problem.as_ref() != Some(&problem) {
            tracing::error!("{problem}");
            self.problem = Some(problem);
        }
    }
}

fn other_cluster(
    name: &ClusterName,
    own: ClusterId,
    stored: ClusterId,
    file: Option<&Path>,
) -> String {
    let file = file.map(|file| file.display().to_string());
    let file = file.unwrap_or_else(|| "the memory of this process".to_owned());
    format!(
        "two clusters use the name {:?} at one NATS: the records of streams there belong to cluster {stored}, this gateway \
         to {own} ({file}); give one of the clusters another cluster.name, or remove the file and start this gateway again \
         to have it join {stored}",
        name.as_str()
    )
}

fn other_keys(name: &ClusterName, stored: ClusterId, own: Option<ClusterId>) -> String {
    let own = own.map(|id| format!(" ({id})")).unwrap_or_default();
    format!(
        "two clusters use the name {:?} at one NATS, or key files differ: no gateway of cluster {stored} has an API key of \
         this one{own}; give one of the clusters another cluster.name, or this gateway their key file",
        name.as_str()
    )
}

/// The start of a small text file.
fn read_start(file: &Path) -> Option<String> {
    use std::io::Read;
    let mut text = String::new();
    let opened = std::fs::File::open(file).ok()?;
    opened.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

fn random() -> Option<ClusterId> {
    InstanceId::random().ok().map(|id| ClusterId(id.0))
}

/// The cluster of this process, with the instances that it is compared with.
#[derive(Clone, Debug)]
pub struct IdentityCheck {
    /// The cluster of this process.
    pub identity: Arc<ClusterIdentity>,
    /// The instances.
    pub membership: Arc<Membership>,
}

impl IdentityCheck {
    /// Compares with the stored id.
    pub(super) fn compare(&self, stored: Option<ClusterId>) -> IdentityStep {
        self.identity.compare(stored, self.others())
    }

    fn others(&self) -> HeardGateways {
        let own = self.membership.own();
        let mut others = HeardGateways {
            are_all_heard: self.membership.has_heard_all(),
            ..HeardGateways::default()
        };
        for instance in self.membership.instances() {
            let heartbeat = &instance.heartbeat;
            if instance.state == InstanceState::Gone || heartbeat.role == Role::Engine {
                continue;
            }
            others.present += 1;
            others.with_own_keys += usize::from(heartbeat.shares_keys_with(&own));
            others.is_id_known |= heartbeat.cluster_id.is_some();
        }
        others
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use IdentityStep::{Agreed, Conflict, Store, Wait};
    use testing::folder::Folder;

    const HEARD: HeardGateways = HeardGateways {
        are_all_heard: true,
        present: 0,
        with_own_keys: 0,
        is_id_known: false,
    };
    const STORED: Option<ClusterId> = Some(ClusterId(7));

    fn new() -> Arc<ClusterIdentity> {
        ClusterIdentity::new(&ClusterName::new("c").unwrap())
    }

    fn remembering(folder: &Folder) -> Arc<ClusterIdentity> {
        let identity = new();
        identity.remember_in(folder.0.join("cluster"));
        identity
    }

    #[test]
    fn first_gateway_draws_an_id_and_others_join() {
        let folder = Folder::new("identity");
        let first = remembering(&folder);
        let early = HeardGateways::default();
        assert_eq!(first.compare(None, early), Wait);
        assert_eq!(first.compare(STORED, early), Wait);
        assert_eq!(first.announced(), None);
        let Store(id) = first.compare(None, HEARD) else {
            panic!("an id is stored");
        };
        first.note_stored(id);
        assert_eq!(first.compare(Some(id), HEARD), Agreed);
        assert_eq!(first.announced(), Some(id));
        let second = new();
        let one_knows = HeardGateways {
            present: 1,
            with_own_keys: 1,
            is_id_known: true,
            ..HEARD
        };
        assert_eq!(second.compare(None, one_knows), Wait, "the other stores it");
        assert_eq!(second.compare(Some(id), one_knows), Agreed);
        assert_eq!(second.announced(), Some(id));
        assert_eq!(
            remembering(&folder).announced(),
            Some(id),
            "after a restart"
        );
    }

    #[test]
    fn wiped_store_gets_the_id_again() {
        let identity = new();
        identity.note_stored(ClusterId(7));
        assert_eq!(identity.compare(STORED, HEARD), Agreed);
        assert_eq!(identity.compare(None, HEARD), Store(ClusterId(7)));
        assert_eq!(identity.problem(), None);
    }

    #[test]
    fn gateway_of_another_cluster_is_told_until_the_store_is_its_own() {
        let folder = Folder::new("identity-other");
        let identity = remembering(&folder);
        identity.note_stored(ClusterId(8));
        assert_eq!(identity.compare(STORED, HEARD), Conflict);
        let why = identity.problem().unwrap();
        for part in ["0000000000000007", "0000000000000008", "cluster.name"] {
            assert!(why.contains(part), "{why}");
        }
        assert_eq!(identity.announced(), Some(ClusterId(8)));
        let others_live = HeardGateways {
            present: 1,
            is_id_known: true,
            ..HEARD
        };
        assert_eq!(identity.compare(None, others_live), Conflict, "wiped");
        assert_eq!(identity.compare(None, HEARD), Store(ClusterId(8)));
        assert_eq!(identity.problem(), None);
        let other_name = ClusterIdentity::new(&ClusterName::new("d").unwrap());
        other_name.remember_in(folder.0.join("cluster"));
        assert_eq!(other_name.announced(), None, "remembered for another name");
    }

    #[test]
    fn gateway_without_an_id_and_with_other_keys_does_not_join() {
        let identity = new();
        let strangers = HeardGateways {
            present: 2,
            ..HEARD
        };
        assert_eq!(identity.compare(STORED, strangers), Conflict);
        let own = identity.announced().expect("an id for heartbeats");
        let why = identity.problem().unwrap();
        assert!(why.contains(&own.to_string()), "{why}");
        assert!(why.contains("API key"), "{why}");
        assert_eq!(identity.compare(STORED, strangers), Conflict);
        assert_eq!(identity.announced(), Some(own), "one id");
        let same_keys = HeardGateways {
            with_own_keys: 1,
            ..strangers
        };
        assert_eq!(identity.compare(STORED, same_keys), Agreed);
        assert_eq!((identity.announced(), identity.problem()), (STORED, None));
    }
}
