//! This process in a cluster: the connection, the heartbeats, and what the process does for others or lets others do.
//!
//! ```text
//! mod              the process: start, roles, shutdown
//! served_models    models in this process's heartbeats, relayed ones included
//! model_searches   engines of a gateway's models, or why there is none; models that engines announce
//! ```

mod model_searches;
mod served_models;

pub use model_searches::{AnnouncedModel, EngineSearch};
pub use served_models::Relaying;

use crate::config::NatsConfig;
use crate::executor::{DecodeImages, ExecutorModel, ExecutorService};
use crate::instances::{InstanceState, LiveInstance, Membership, MembershipConfig};
use crate::messages::{Heartbeat, OwnedStreams, Role};
use crate::names::{InstanceId, Subjects};
use crate::nats::Connection;
use crate::placement::PlacementPolicy;
use crate::records::ClusterIdentity;
use crate::relay::{
    KnownInstance, RelayConfig, RelayCounters, RelayDriver, RelayLink, RelayedModel,
};
use model_searches::{ModelSearches, announced_models};
use served_models::ServedModels;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// Time between two looks for an engine.
const SEARCH_EVERY: Duration = Duration::from_millis(50);

/// Configuration of a process in a cluster.
pub struct NodeConfig {
    /// How NATS is reached.
    pub nats: NatsConfig,
    /// Name of the cluster, and id of the process.
    pub membership: MembershipConfig,
    /// Part in the cluster.
    pub role: Role,
    /// Which engine gets a request.
    pub placement: PlacementPolicy,
    /// Time that requests wait for an engine.
    pub engine_wait: Duration,
    /// The process in heartbeats, without models; called for each heartbeat.
    pub describe: Box<dyn Fn() -> Heartbeat + Send + Sync>,
}

/// A process in a cluster. Dropped, it leaves without a word.
pub struct ClusterNode {
    role: Role,
    placement: PlacementPolicy,
    subjects: Subjects,
    membership: Arc<Membership>,
    served: Arc<ServedModels>,
    searches: Arc<ModelSearches>,
    engine_wait: Duration,
    executor: Mutex<Option<ExecutorService>>,
    relay: Mutex<Option<RelayDriver>>,
    last_counters: Mutex<RelayCounters>,
    streams: Arc<OnceLock<CountStreams>>,
    identity: Arc<ClusterIdentity>,
}

/// Counts the streams that a process owns.
type CountStreams = Box<dyn Fn() -> OwnedStreams + Send + Sync>;

impl ClusterNode {
    /// Opens the connection and begins to send heartbeats. Returns at once: a server that is not reachable is tried again
    /// for ever. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// A setting or a file of the connection is invalid.
    pub async fn start(config: NodeConfig) -> Result<Arc<Self>, String> {
        let connection = Arc::new(Connection::open(&config.nats).await?);
        let served = Arc::new(ServedModels::new(InstanceId::random()?.0));
        let subjects = Subjects::new(&config.membership.name);
        let (describe, models) = (config.describe, Arc::clone(&served));
        let streams = Arc::<OnceLock<CountStreams>>::default();
        let (counted, joined) = (Arc::clone(&streams), tokio::time::Instant::now());
        let identity = ClusterIdentity::new(&config.membership.name);
        let own = Arc::clone(&identity);
        let describe = move || Heartbeat {
            cluster_id: own.announced(),
            models: models.describe(),
            streams: counted.get().map(|count| count()),
            uptime_s: joined.elapsed().as_secs(),
            ..describe()
        };
        let membership = Membership::start(connection, config.membership, describe);
        let node = Self {
            role: config.role,
            placement: config.placement,
            subjects,
            membership: Arc::new(membership),
            served,
            searches: Arc::default(),
            engine_wait: config.engine_wait,
            executor: Mutex::default(),
            relay: Mutex::default(),
            last_counters: Mutex::default(),
            streams,
            identity,
        };
        if node.role == Role::Gateway {
            let relay = node.start_relay().await?;
            *lock(&node.relay) = Some(relay);
        }
        Ok(Arc::new(node))
    }

    async fn start_relay(&self) -> Result<RelayDriver, String> {
        let (membership, searches) = (Arc::clone(&self.membership), Arc::clone(&self.searches));
        let instances = move || {
            let instances = membership.instances();
            searches.look(&instances, now());
            known_instances(instances)
        };
        let link = RelayLink {
            client: self.connection().client().clone(),
            usable: self.connection().usable_watch(),
            subjects: self.subjects.clone(),
            gateway: self.membership.id(),
            instances: Box::new(instances),
            unreadable: Arc::clone(self.connection().unreadable()),
            hearing: Arc::clone(self.connection().hearing()),
        };
        let config = RelayConfig {
            placement: self.placement,
            unplaced_max: self.engine_wait,
            ..RelayConfig::default()
        };
        RelayDriver::start(link, config).await
    }

    /// Part in the cluster.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Adds the streams that this process owns to the heartbeats. To be called once.
    pub fn count_streams(&self, count: impl Fn() -> OwnedStreams + Send + Sync + 'static) {
        // A second one would be of a second server.
        let _ = self.streams.set(Box::new(count));
    }

    /// Which cluster this process belongs to, beside its name.
    pub fn identity(&self) -> &Arc<ClusterIdentity> {
        &self.identity
    }

    /// Heartbeats of this process and of the others.
    pub fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    /// The connection.
    pub fn connection(&self) -> &Arc<Connection> {
        self.membership.connection()
    }

    /// The subjects of the cluster.
    pub fn subjects(&self) -> &Subjects {
        &self.subjects
    }

    /// Counts of the relay; zeros where this process relays nothing.
    pub fn relay_counters(&self) -> RelayCounters {
        let relay = lock(&self.relay);
        let mut last = lock(&self.last_counters);
        if let Some(relay) = &*relay {
            *last = relay.counters();
        }
        *last
    }

    /// Takes requests of gateways for these models, whose images are decoded by `decode`. `step` gets the waker that the
    /// engines' observers call after each step. To be called once.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn execute(
        &self,
        (models, decode): (Vec<ExecutorModel>, Option<DecodeImages>),
        step: &OnceLock<Waker>,
    ) -> Result<(), String> {
        let client = self.connection().client().clone();
        for model in &models {
            self.served.add_executed(model)?;
        }
        let (subjects, id) = (self.subjects.clone(), self.membership.id());
        let unreadable = Arc::clone(self.connection().unreadable());
        let work = (models, decode);
        let executor = ExecutorService::start(client, subjects, id, work, unreadable).await?;
        // A second waker would be of a second executor.
        let _ = step.set(executor.step_waker());
        *lock(&self.executor) = Some(executor);
        Ok(())
    }

    /// Waits for an engine of a gateway's model; returns the context of the engine in tokens.
    pub async fn wait_for_engine(&self, search: &EngineSearch) -> usize {
        let _open = self.searches.begin(search.clone(), now());
        loop {
            if let Ok(context) = self.find_engine(search) {
                return context;
            }
            tokio::time::sleep(SEARCH_EVERY).await;
        }
    }

    /// The longest context of an engine of a gateway's model, in tokens.
    ///
    /// # Errors
    /// There is none now; the message says why.
    pub fn find_engine(&self, search: &EngineSearch) -> Result<usize, String> {
        let instances = self.membership.instances();
        let found = search.contexts(&instances).max();
        found.ok_or_else(|| search.problem(&instances).unwrap_or_default())
    }

    /// Sends requests for this model to engines of other processes, until the result is dropped and the model's handle shut
    /// down.
    ///
    /// # Errors
    /// The process is no gateway, has too many models, or ends.
    pub fn relay(&self, model: RelayedModel) -> Result<Relaying, String> {
        let search = EngineSearch {
            key: model.key.clone(),
            identity: model.identity.clone(),
            context_min: model.context_max,
        };
        let relay = lock(&self.relay);
        let relay = relay
            .as_ref()
            .ok_or("this process relays no requests (any more)")?;
        let served = &self.served;
        let number = served.add_relayed(&model)?;
        let relaying = Relaying {
            served: Arc::clone(served),
            number,
            _search: self.searches.begin(search, now()),
        };
        relay.add(model)?;
        Ok(relaying)
    }

    /// The models that engines announce, and those of this gateway.
    pub fn announced_models(&self) -> Vec<AnnouncedModel> {
        announced_models(&self.membership.instances(), &self.searches.all())
    }

    /// Why requests for a relayed model cannot wait for an engine any longer: there has been none for the time of
    /// [`NodeConfig::engine_wait`].
    pub fn engine_absence(&self, key: &str) -> Option<String> {
        let instances = self.membership.instances();
        self.searches
            .absence(key, &instances, self.engine_wait, now())
    }

    /// The arithmetics of all engines of a relayed model.
    pub fn engine_arithmetic(&self, key: &str) -> BTreeSet<String> {
        let instances = self.membership.instances();
        self.searches.arithmetic(key, &instances)
    }

    /// Whether an engine of a relayed model has this tower; true while the model has no engine.
    pub fn engines_see(&self, key: &str, tower: &str) -> bool {
        let instances = self.membership.instances();
        self.searches.see(key, tower, &instances)
    }

    /// Why this process cannot do its part now; `None`: it can. A process that has its own engine serves without
    /// NATS, and never in two clusters under one name.
    pub fn problem(&self) -> Option<String> {
        if self.role == Role::All {
            return self.identity.problem();
        }
        let problem = self.connection().problem();
        if let Some(why) = problem.or_else(|| self.identity.problem()) {
            return Some(why);
        }
        let instances = self.membership.instances();
        if self.role == Role::Gateway && self.searches.is_new() {
            Some(no_model_problem(&instances))
        } else {
            self.searches.problem(&instances)
        }
    }

    /// Begins the shutdown: gateways send no further requests. An engine without streams of its own gives the running
    /// requests back, to continue on other engines. At most five seconds.
    pub async fn leave(&self) {
        self.membership.leave().await;
        if self.role == Role::Engine {
            let executor = lock(&self.executor).take();
            if let Some(executor) = executor {
                executor.leave().await;
                // Rejects requests that are still on their way here.
                *lock(&self.executor) = Some(executor);
            }
        }
    }

    /// Ends what is left, after all streams of this process have ended.
    pub async fn finish(&self) {
        self.stop_executor().await;
        let _ = self.relay_counters();
        let relay = lock(&self.relay).take();
        if let Some(relay) = relay {
            relay.finish().await;
        }
    }

    async fn stop_executor(&self) {
        let executor = lock(&self.executor).take();
        if let Some(executor) = executor {
            executor.leave().await;
        }
    }
}

/// Why a gateway that was started without a model has none yet.
fn no_model_problem(instances: &[LiveInstance]) -> String {
    let models = announced_models(instances, &[]);
    let names: Vec<_> = models.iter().map(|model| model.key.as_str()).collect();
    if names.is_empty() {
        return "there is no engine".to_owned();
    }
    format!(
        "engines serve {}: this gateway reads the files of one (models.directories)",
        names.join(", ")
    )
}

/// The instances that are not gone, for a relay.
fn known_instances(instances: Vec<LiveInstance>) -> Vec<KnownInstance> {
    let here = instances
        .into_iter()
        .filter(|instance| instance.state != InstanceState::Gone);
    here.map(|instance: LiveInstance| KnownInstance {
        accepts: instance.state == InstanceState::Alive,
        heartbeat: instance.heartbeat,
        heard: instance.heard,
    })
    .collect()
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
