//! The models of a gateway: those that engines of its cluster announce and whose files this machine has.

use super::Library;
use crate::clock::now;
use crate::cluster_node::JoinedCluster;
use cluster::node::AnnouncedModel;
use server::LocalModel;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The tag that a name without a tag stands for.
const LATEST: &str = ":latest";
/// How long a found file is used: the operator's directories may change.
const FRESH: Duration = Duration::from_secs(1);
/// Time between two looks for the first model of the engines.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Names whose files are known; a full table is emptied.
const FOUND_MAX: usize = 512;

/// The local models of announced names, as of the last look.
#[derive(Default)]
pub(super) struct FoundModels(Mutex<HashMap<String, (Instant, Option<LocalModel>)>>);

impl Library {
    /// The cluster, if the engines of this process's models are other processes.
    pub(super) fn gateway(&self) -> Option<&JoinedCluster> {
        self.cluster.as_ref().filter(|cluster| cluster.is_gateway())
    }

    /// Waits for a model that an engine serves and whose files are here: it becomes the one that the server was started
    /// with. Of several, the first by name.
    pub(super) fn wait_for_start(&self, cluster: &JoinedCluster) {
        loop {
            let mut announced = self.announced(cluster).into_iter();
            if let Some((model, local)) = announced.find(|(model, _)| model.engines > 0) {
                tracing::info!(
                    "no model was given: {:?} is the first of the engines' models",
                    model.key
                );
                let source = self.store.source_of(local.weights.as_deref());
                let _ = self.start_weights.set(local.weights);
                let source = source.with_start_name(Some(model.key));
                self.store.start(&self.engines.settings(), source);
                // What was found until now does not know the start model.
                let mut found = self.found.0.lock().unwrap_or_else(PoisonError::into_inner);
                found.clear();
                return;
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    /// The models of a list that engines announce, and the one that the server was started with. Files are named as the
    /// engines name them.
    pub(super) fn announced_of(
        &self,
        cluster: &JoinedCluster,
        all: Vec<LocalModel>,
    ) -> Vec<LocalModel> {
        let announced = self.announced(cluster);
        let listed = all.into_iter().filter_map(|local| {
            let engines = engines_of(&announced, local.weights.as_deref());
            if engines.is_none() && local.weights.is_some() {
                return None;
            }
            let is_this = |found: &&(AnnouncedModel, LocalModel)| {
                found.1.name == local.name && local.made.is_none()
            };
            let named = announced.iter().find(is_this);
            Some(LocalModel {
                name: named.map_or_else(|| local.name.clone(), |found| found.0.key.clone()),
                engines: Some(engines.unwrap_or(0)),
                ..local
            })
        });
        listed.collect()
    }

    /// A model of this machine as a gateway names it.
    pub(super) fn as_announced(
        &self,
        cluster: &JoinedCluster,
        name: &str,
        local: LocalModel,
    ) -> LocalModel {
        let announced = self.announced(cluster);
        let bare = name.strip_suffix(LATEST).unwrap_or(name);
        let is_key = announced.iter().any(|(model, _)| model.key == bare);
        LocalModel {
            engines: engines_of(&announced, local.weights.as_deref()).or(Some(0)),
            name: if is_key && local.made.is_none() {
                bare.to_owned()
            } else {
                local.name.clone()
            },
            ..local
        }
    }

    /// The names that engines have for a model, those with engines now first.
    pub(super) fn announced_names(
        &self,
        cluster: &JoinedCluster,
        weights: Option<&str>,
    ) -> Vec<AnnouncedModel> {
        let announced = self.announced(cluster).into_iter();
        let mut names: Vec<_> = announced
            .filter(|(_, local)| self.is_same_model(local.weights.as_deref(), weights))
            .map(|(model, _)| model)
            .collect();
        names.sort_by_key(|model| model.engines == 0);
        names
    }

    /// Whether two places of weights are one model. A request that came before the start model was chosen knows that model by
    /// its file, later ones by no file.
    pub(super) fn is_same_model(&self, one: Option<&str>, other: Option<&str>) -> bool {
        let start = self.start_weights.get().and_then(Option::as_deref);
        let place = |weights: Option<&str>| weights.filter(|_| weights != start).map(str::to_owned);
        place(one) == place(other)
    }

    /// Why requests for a model cannot be computed, if no engine announces the model.
    pub(super) fn missing_engine(
        &self,
        cluster: &JoinedCluster,
        name: &str,
        weights: Option<&str>,
    ) -> Option<String> {
        let names = self.announced_names(cluster, weights);
        if names.iter().any(|model| model.engines > 0) {
            return None;
        }
        Some(format!(
            "no engine of the cluster serves model {name:?} now"
        ))
    }

    /// Why a model that engines announce is not served here.
    pub(super) fn missing_files(&self, cluster: &JoinedCluster, name: &str) -> Option<String> {
        let bare = name.strip_suffix(LATEST).unwrap_or(name);
        let announced = cluster.node.announced_models();
        let is_announced = announced.iter().any(|model| model.key == bare);
        (is_announced && self.find_announced(bare).is_none()).then(|| missing_files(bare))
    }

    /// The announced models whose files are here.
    fn announced(&self, cluster: &JoinedCluster) -> Vec<(AnnouncedModel, LocalModel)> {
        let announced = cluster.node.announced_models().into_iter();
        let found = announced.filter_map(|model| {
            let local = self.find_announced(&model.key)?;
            Some((model, local))
        });
        found.collect()
    }

    /// The local model of an announced name. The files are searched at most once in [`FRESH`].
    fn find_announced(&self, key: &str) -> Option<LocalModel> {
        let lock = || self.found.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(key).cloned();
        let at = now();
        if let Some((since, found)) = &known
            && at.saturating_duration_since(*since) < FRESH
        {
            return found.clone();
        }
        let found = self.store.find_local(key);
        if found.is_none() && known.is_none() {
            tracing::warn!("{}", missing_files(key));
        }
        let mut table = lock();
        if table.len() >= FOUND_MAX {
            table.clear();
        }
        table.insert(key.to_owned(), (at, found.clone()));
        found
    }
}

/// Engines of all names of these weights; `None`: no name is announced.
fn engines_of(announced: &[(AnnouncedModel, LocalModel)], weights: Option<&str>) -> Option<usize> {
    let of_weights = announced
        .iter()
        .filter(|(_, local)| local.weights.as_deref() == weights);
    let engines = of_weights.map(|(model, _)| model.engines);
    engines.reduce(|sum, more| sum + more)
}

fn missing_files(key: &str) -> String {
    format!(
        "engines of the cluster serve model {key:?}, but this gateway does not have its files (models.directories)"
    )
}
