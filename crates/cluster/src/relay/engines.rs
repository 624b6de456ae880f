//! Which engines serve a gateway's models, from their heartbeats.

use super::model_slots::RelayedModel;
use crate::messages::{Heartbeat, ReportedLoad, Role};
use crate::names::InstanceId;
use crate::placement::EngineLoad;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Step time of an engine that has not reported one.
const STEP: Duration = Duration::from_millis(10);

/// Another instance of the cluster that is not gone.
#[derive(Clone, Debug)]
pub struct KnownInstance {
    /// The last heartbeat.
    pub heartbeat: Arc<Heartbeat>,
    /// Arrival of the last heartbeat.
    pub heard: Instant,
    /// Whether the instance is neither silent nor leaving.
    pub accepts: bool,
}

/// Engines of one model.
#[derive(Clone, Debug, Default)]
pub struct ModelEngines {
    /// Engines that accept requests.
    pub loads: Vec<EngineLoad>,
    /// By engine: the arithmetic of the model's identity, which a gateway does not have.
    pub arithmetic: Vec<String>,
    /// By engine: entries of the vectors that it gives; 0: no embeddings.
    pub hidden_dims: Vec<u64>,
}

/// The engines as they are known now.
#[derive(Clone, Debug, Default)]
pub struct Engines {
    /// By model of the relay.
    pub models: Vec<ModelEngines>,
    /// All engines that are not gone, those that accept no requests included.
    pub alive: BTreeSet<InstanceId>,
}

impl Engines {
    /// The engines among the instances, for these models.
    pub fn new<'a>(
        models: impl Iterator<Item = &'a RelayedModel>,
        instances: &[KnownInstance],
    ) -> Self {
        let engines = instances
            .iter()
            .filter(|i| i.heartbeat.role != Role::Gateway);
        Self {
            models: models
                .map(|model| ModelEngines::new(model, instances))
                .collect(),
            alive: engines.map(|instance| instance.heartbeat.id).collect(),
        }
    }
}

impl ModelEngines {
    /// Engines that a request for an embedding with this many entries excludes.
    pub(super) fn without_vectors(&self, len: usize) -> Vec<InstanceId> {
        let dims = self.hidden_dims.iter().map(|dim| Some(*dim));
        let dims = dims.chain(std::iter::repeat(None));
        let unfit = |dim: &Option<u64>| *dim != Some(len as u64);
        let engines = self.loads.iter().zip(dims);
        engines
            .filter_map(|(load, dim)| unfit(&dim).then_some(load.id))
            .collect()
    }

    fn new(model: &RelayedModel, instances: &[KnownInstance]) -> Self {
        let mut engines = Self::default();
        for instance in instances.iter().filter(|instance| instance.accepts) {
            let heartbeat = &instance.heartbeat;
            let served = heartbeat.models.iter().find(|served| {
                served.key == model.key
                    && served.identity.has_content_of(&model.identity)
                    && served.context_max >= model.context_max as u64
            });
            if let Some((served, load)) = served.and_then(|served| Some((served, served.load?))) {
                engines.loads.push(engine_load(instance, &load));
                engines.arithmetic.push(served.identity.arithmetic.clone());
                engines.hidden_dims.push(served.hidden_dim);
            }
        }
        engines
    }
}

fn engine_load(instance: &KnownInstance, load: &ReportedLoad) -> EngineLoad {
    let free = load.pages_free.saturating_add(load.pages_cached);
    EngineLoad {
        id: instance.heartbeat.id,
        heard: instance.heard,
        cache_epoch: load.cache_epoch,
        cache_tokens: load.pages_total.saturating_mul(load.page_tokens),
        free_tokens: free.saturating_mul(load.page_tokens),
        slots: load.slots,
        queued: load.queued,
        running: load.running,
        prefill_pending: load.prefill_pending,
        prefill_tokens_per_s: load.prefill_tokens_per_s,
        step: match load.step_us {
            0 => STEP,
            step_us => Duration::from_micros(step_us),
        },
    }
}

#[cfg(test)]
mod tests {
    //! Promise (Cluster): engines with other content, or a shorter context, get no requests.

    use super::*;
    use crate::messages::{ContentIdentity, ServedModel};
    use engine::EngineConfig;
    use engine::remote::remote_handle;
    use model::Dims;

    fn identity(weights: &str, arithmetic: &str) -> ContentIdentity {
        ContentIdentity {
            weights: weights.into(),
            arithmetic: arithmetic.into(),
            ..ContentIdentity::default()
        }
    }

    fn instance(id: u64, role: Role, identity: ContentIdentity, now: Instant) -> KnownInstance {
        let model = ServedModel {
            key: "model".into(),
            identity,
            context_max: 64,
            hidden_dim: 8,
            load: (role != Role::Gateway).then(|| ReportedLoad {
                pages_total: 10,
                pages_free: 3,
                pages_cached: 4,
                page_tokens: 16,
                ..ReportedLoad::default()
            }),
        };
        let mut heartbeat = Heartbeat::new(InstanceId(id), role);
        heartbeat.models.push(model);
        KnownInstance {
            heartbeat: Arc::new(heartbeat),
            heard: now,
            accepts: true,
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a start of virtual time")]
    fn engines_with_the_models_content_are_placed_on() {
        let now = Instant::now();
        let dims = Dims {
            vocab: 64,
            context_max: 64,
            page_tokens: 16,
            pages: 8,
            rows_max: 8,
            logit_rows_max: 8,
        };
        let (_handle, inbox) = remote_handle(dims, EngineConfig::default(), now).unwrap();
        let model = RelayedModel {
            key: "model".into(),
            identity: identity("w", ""),
            context_max: 64,
            inbox,
        };
        let mut instances = [
            instance(1, Role::Engine, identity("w", "f32"), now),
            instance(2, Role::All, identity("w", "bf16"), now),
            instance(3, Role::Engine, identity("other", "f32"), now),
            instance(4, Role::Gateway, identity("w", ""), now),
            instance(5, Role::Engine, identity("w", "f32"), now),
            instance(6, Role::Engine, identity("w", "f32"), now),
        ];
        instances[4].accepts = false;
        let mut short = (*instances[5].heartbeat).clone();
        short.models[0].context_max = 63;
        instances[5].heartbeat = Arc::new(short);
        let engines = Engines::new([&model].into_iter(), &instances);
        let ids: Vec<u64> = engines.models[0]
            .loads
            .iter()
            .map(|load| load.id.0)
            .collect();
        assert_eq!(ids, [1, 2]);
        assert_eq!(engines.models[0].arithmetic, ["f32", "bf16"]);
        let without = |len| engines.models[0].without_vectors(len).len();
        assert_eq!((without(8), without(9)), (0, 2));
        assert_eq!(engines.alive, [1, 2, 3, 5, 6].map(InstanceId).into());
        let load = &engines.models[0].loads[0];
        assert_eq!(
            (load.cache_tokens, load.free_tokens, load.step),
            (160, 112, STEP)
        );
    }
}
