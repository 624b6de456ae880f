//! The models whose requests this process relays, or that wait for an engine; the engines of a model among the live
//! instances, and the models that engines announce.

use crate::instances::{InstanceState, LiveInstance};
use crate::messages::{ContentIdentity, Role, ServedModel};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// All searches, in the order of their begin; a few for each loaded model.
#[derive(Default)]
pub(super) struct ModelSearches(Mutex<SearchTable>);

#[derive(Default)]
struct SearchTable {
    searches: Vec<TrackedSearch>,
    next: u64,
}

struct TrackedSearch {
    number: u64,
    search: EngineSearch,
    /// When an engine was there last; the begin before there was one.
    found: Instant,
}

/// A search; ends when dropped.
pub(super) struct OpenSearch {
    searches: Arc<ModelSearches>,
    number: u64,
}

impl ModelSearches {
    pub(super) fn begin(self: &Arc<Self>, search: EngineSearch, now: Instant) -> OpenSearch {
        let mut table = self.lock();
        let number = table.next;
        table.next += 1;
        table.searches.push(TrackedSearch {
            number,
            search,
            found: now,
        });
        OpenSearch {
            searches: Arc::clone(self),
            number,
        }
    }

    /// Notes which models have engines.
    pub(super) fn look(&self, instances: &[LiveInstance], now: Instant) {
        for tracked in &mut self.lock().searches {
            if tracked.search.contexts(instances).next().is_some() {
                tracked.found = now;
            }
        }
    }

    /// Why no model has an engine; `None`: one has, or there is no model.
    pub(super) fn problem(&self, instances: &[LiveInstance]) -> Option<String> {
        let table = self.lock();
        let problems = || {
            let searches = table.searches.iter();
            searches.map(|tracked| tracked.search.problem(instances))
        };
        if problems().any(|problem| problem.is_none()) {
            None
        } else {
            problems().next().flatten()
        }
    }

    /// Whether no search was ever begun.
    pub(super) fn is_new(&self) -> bool {
        self.lock().next == 0
    }

    /// Why the model has had no engine for this time.
    pub(super) fn absence(
        &self,
        key: &str,
        instances: &[LiveInstance],
        wait: Duration,
        now: Instant,
    ) -> Option<String> {
        let table = self.lock();
        let mut searches = table.searches.iter();
        let tracked = searches.find(|tracked| tracked.search.key == key)?;
        let is_over = now.saturating_duration_since(tracked.found) >= wait;
        let problem = is_over.then(|| tracked.search.problem(instances));
        problem.flatten()
    }

    /// The arithmetics of all engines of the model.
    pub(super) fn arithmetic(&self, key: &str, instances: &[LiveInstance]) -> BTreeSet<String> {
        let table = self.lock();
        let mut searches = table.searches.iter();
        let tracked = searches.find(|tracked| tracked.search.key == key);
        tracked.map_or_else(BTreeSet::new, |found| found.search.arithmetic(instances))
    }

    /// Whether an engine of the model has this tower; true without engines.
    pub(super) fn see(&self, key: &str, tower: &str, instances: &[LiveInstance]) -> bool {
        let table = self.lock();
        let mut searches = table.searches.iter();
        let tracked = searches.find(|tracked| tracked.search.key == key);
        tracked.is_none_or(|found| found.search.see(tower, instances))
    }

    /// All searches.
    pub(super) fn all(&self) -> Vec<EngineSearch> {
        let table = self.lock();
        let searches = table.searches.iter();
        searches.map(|tracked| tracked.search.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, SearchTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenSearch {
    fn drop(&mut self) {
        let mut table = self.searches.lock();
        table
            .searches
            .retain(|tracked| tracked.number != self.number);
    }
}

/// A gateway's model, for which engines are searched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineSearch {
    /// Name of the model.
    pub key: String,
    /// Content of the model; the arithmetic is left out.
    pub identity: ContentIdentity,
    /// Least context of an engine, in tokens.
    pub context_min: usize,
}

impl EngineSearch {
    /// Contexts of all engines that can take requests for the model.
    pub fn contexts(&self, instances: &[LiveInstance]) -> impl Iterator<Item = usize> {
        let alive = engines(instances).filter(|engine| engine.state == InstanceState::Alive);
        let served = alive.filter_map(|engine| self.find(engine));
        let contexts = served
            .filter(|served| {
                served.load.is_some() && served.identity.has_content_of(&self.identity)
            })
            .map(|served| usize::try_from(served.context_max).unwrap_or(usize::MAX));
        contexts.filter(|context| *context >= self.context_min)
    }

    /// The arithmetics of all engines of the model that are not gone.
    pub fn arithmetic(&self, instances: &[LiveInstance]) -> BTreeSet<String> {
        let served = self.served(instances);
        served
            .map(|served| served.identity.arithmetic.clone())
            .collect()
    }

    /// Whether an engine of the model has this tower; true without engines.
    fn see(&self, tower: &str, instances: &[LiveInstance]) -> bool {
        let mut served = self.served(instances).peekable();
        served.peek().is_none() || served.any(|served| served.tower == tower)
    }

    /// The model at all engines that are not gone.
    fn served<'a>(
        &'a self,
        instances: &'a [LiveInstance],
    ) -> impl Iterator<Item = &'a ServedModel> {
        let here = engines(instances).filter(|engine| engine.state != InstanceState::Gone);
        let served = here.filter_map(|engine| self.find(engine));
        served.filter(|served| served.identity.has_content_of(&self.identity))
    }

    /// Why no engine takes requests for the model; `None`: one does.
    pub fn problem(&self, instances: &[LiveInstance]) -> Option<String> {
        if self.contexts(instances).next().is_some() {
            return None;
        }
        let key = &self.key;
        let here = || engines(instances).filter(|engine| engine.state != InstanceState::Gone);
        if let Some(served) = here().find_map(|engine| self.find(engine)) {
            let (context, least) = (served.context_max, self.context_min);
            return Some(if !served.identity.has_content_of(&self.identity) {
                format!("no engine serves model {key:?} with the content that this gateway has")
            } else if context < least as u64 {
                format!(
                    "no engine serves model {key:?} with a context of {least} tokens, as this gateway: at most {context}"
                )
            } else {
                format!("all engines of model {key:?} are silent or shut down")
            });
        }
        Some(match here().count() {
            0 => format!("there is no engine for model {key:?}"),
            count => format!("none of {count} engines serves model {key:?}"),
        })
    }

    fn find<'a>(&self, engine: &'a LiveInstance) -> Option<&'a ServedModel> {
        let mut models = engine.heartbeat.models.iter();
        models.find(|served| served.key == self.key)
    }
}

fn engines(instances: &[LiveInstance]) -> impl Iterator<Item = &LiveInstance> {
    let is_engine = |instance: &&LiveInstance| instance.heartbeat.role != Role::Gateway;
    instances.iter().filter(is_engine)
}

/// Announced models that are looked at: the first by name.
const ANNOUNCED_MAX: usize = 256;

/// A model of a cluster, by the name that its engines have for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnouncedModel {
    /// Name of the model.
    pub key: String,
    /// Engines that take requests now. Of a model that this gateway has read: those with equal content.
    pub engines: usize,
}

/// The models of all engines, silent ones included, and those of these searches, by name.
pub(super) fn announced_models(
    instances: &[LiveInstance],
    searches: &[EngineSearch],
) -> Vec<AnnouncedModel> {
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for instance in instances {
        let heartbeat = &instance.heartbeat;
        if heartbeat.role == Role::Gateway {
            continue;
        }
        for served in &heartbeat.models {
            let accepts = instance.state == InstanceState::Alive && served.load.is_some();
            *found.entry(&served.key).or_default() += usize::from(accepts);
        }
    }
    for search in searches {
        found.insert(&search.key, search.contexts(instances).count());
    }
    let models = found.into_iter().take(ANNOUNCED_MAX);
    models
        .map(|(key, engines)| AnnouncedModel {
            key: key.to_owned(),
            engines,
        })
        .collect()
}
