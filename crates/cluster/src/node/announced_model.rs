//! Models that engines of a cluster announce.

use super::EngineSearch;
use crate::instances::{InstanceState, LiveInstance};
use crate::messages::Role;
use std::collections::BTreeMap;

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
