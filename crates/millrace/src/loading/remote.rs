//! A model without weights: tokenizer, chat template and sizes from the model's files. Engines of other processes, or servers
//! of others, compute the tokens.

use super::tower::{find_tower, vision_of};
use super::{
    DescribedModel, LoadedEngine, StepSignal, describe_model, new_handle, vision_proxy_of,
};
use crate::bounds::engine_config;
use crate::clock::now;
use crate::cluster_node::{JoinedCluster, content_identity};
use crate::config::Settings;
use crate::failure::Failure;
use crate::model_files::{ModelPurpose, ModelSource, identity_of};
use crate::upstreams::UsedUpstreams;
use cluster::messages::VECTOR_ENTRIES_MAX;
use cluster::node::{EngineSearch, Relaying};
use cluster::relay::RelayedModel;
use cpu::{PAGE_TOKENS, PAGES_MAX};
use engine::Handle;
use engine::remote::{RemoteInbox, RemoteModel, remote_handle};
use generate::images::Vision;
use model::Dims;
use server::{
    EngineAbsence, EngineArithmetic, EngineSight, LoadPhase, LoadProgress, ModelIdentity,
};
use std::sync::Arc;
use upstream::UpstreamModel;
use weights::ModelFiles;
use weights::encoder::{EncoderConfig, EncoderKind};

/// Which engines compute for a model.
#[derive(Clone, Debug)]
pub(crate) enum EngineChoice {
    /// Those of the model's name; the load waits for the first.
    Wait,
    /// Those of one of these names; the load fails if there is none now.
    AnyOf(Vec<String>),
}

/// Why a model without weights was not loaded.
#[derive(Debug)]
pub(crate) enum RemoteLoadError {
    Failed(Failure),
    /// There is no engine, for this reason.
    NoEngine(String),
}

impl From<Failure> for RemoteLoadError {
    fn from(why: Failure) -> Self {
        Self::Failed(why)
    }
}

/// The relay of a loaded model.
pub(super) struct ModelRelay {
    /// Until it is moved to the model's requests.
    pub(super) absence: Option<EngineAbsence>,
    /// As [`Self::absence`].
    pub(super) arithmetic: Option<EngineArithmetic>,
    /// As [`Self::absence`].
    pub(super) sight: Option<EngineSight>,
    /// Ends with the drop.
    _relaying: Relaying,
}

/// Reads a model without its weights, finds an engine that has the same content, and opens a handle whose requests go to
/// engines.
pub(crate) fn load_remote(
    source: &ModelSource,
    settings: &Settings,
    (cluster, choice): (&JoinedCluster, &EngineChoice),
    report: &mut dyn FnMut(LoadProgress),
) -> Result<LoadedEngine, RemoteLoadError> {
    let model = WeightlessModel::read(source, settings, report)?;
    let search = |key: &str| EngineSearch {
        key: key.to_owned(),
        identity: content_identity(&model.identity),
        context_min: settings.model.context.unwrap_or(2),
    };
    let (key, engines_context) = match choice {
        EngineChoice::Wait => {
            let context = cluster.wait_for_engine(search(&source.name))?;
            (source.name.clone(), context)
        }
        EngineChoice::AnyOf(keys) => find_engine(cluster, keys, &search)?,
    };
    let served = model.served(Some(engines_context), settings)?;
    let context_max = served.dims.context_max;
    tracing::info!(context_max, "an engine serves model {key:?}");
    let (engine, inbox) = open_handle(served, settings)?;
    let vision = find_tower(source, &model.files, settings)?;
    let vision = vision.and_then(|tower| vision_of(&tower, settings));
    let tower = vision.as_ref().map(Vision::fingerprint_text);
    let tower = tower.unwrap_or_default();
    let relaying = cluster.relay(RelayedModel {
        key: key.clone(),
        identity: content_identity(&model.identity),
        context_max,
        tower: tower.clone(),
        inbox,
    })?;
    let loaded = model.into_loaded(source, (engine, vision), context_max, settings)?;
    Ok(LoadedEngine {
        relay: Some(ModelRelay {
            absence: Some(cluster.engine_absence(key.clone())),
            sight: Some(cluster.engine_sight(key.clone(), tower)),
            arithmetic: Some(cluster.engine_arithmetic(key)),
            _relaying: relaying,
        }),
        ..loaded
    })
}

/// Reads a model without its weights, waits for a server of somebody else that serves it, and opens a handle whose requests
/// go to such servers.
pub(crate) fn load_upstream(
    source: &ModelSource,
    settings: &Settings,
    upstreams: &UsedUpstreams,
    report: &mut dyn FnMut(LoadProgress),
) -> Result<LoadedEngine, Failure> {
    let model = WeightlessModel::read(source, settings, report)?;
    if !ModelPurpose::of(&model.files).is_causal {
        return Err(Failure::user(format!(
            "{} is an encoder ({}), which generates no text, and upstreams compute no embeddings: serve it without --upstream",
            source.name,
            model
                .files
                .metadata()
                .need::<&str>("general.architecture")
                .unwrap_or_default()
        )));
    }
    let served = model.served(upstreams.wait_until_usable(), settings)?;
    let context_max = served.dims.context_max;
    tracing::info!(context_max, "an upstream serves model {:?}", source.name);
    let without_embeddings = RemoteModel {
        hidden_dim: 0,
        ..served
    };
    let (engine, inbox) = open_handle(without_embeddings, settings)?;
    let loaded = model.into_loaded(source, (engine, None), context_max, settings)?;
    upstreams.relay(UpstreamModel {
        eos: Arc::clone(&loaded.handle.eos),
        tokenizer: Arc::clone(&loaded.handle.tokenizer),
        inbox,
    });
    Ok(loaded)
}

/// Facts of a model's files beside the weights.
struct WeightlessModel {
    files: ModelFiles,
    described: DescribedModel,
    identity: ModelIdentity,
}

impl WeightlessModel {
    fn read(
        source: &ModelSource,
        settings: &Settings,
        report: &mut dyn FnMut(LoadProgress),
    ) -> Result<Self, Failure> {
        let files = source.open(settings.model.quantize)?;
        let mut report = |phase| {
            report(LoadProgress {
                phase,
                ..LoadProgress::default()
            });
        };
        report(LoadPhase::Tokenizer);
        let described = describe_model(source, &files, settings)?;
        let identity = identity_of(
            (&files, &described.adapters),
            &described.text,
            described.answers,
        );
        report(LoadPhase::Starting);
        Ok(Self {
            files,
            described,
            identity,
        })
    }

    /// The model on engines, or at a server of somebody else, whose context is `there`.
    fn served(&self, there: Option<usize>, settings: &Settings) -> Result<RemoteModel, Failure> {
        let (files, own) = (&self.files, settings.model.context);
        let (context_max, hidden_dim, is_causal) = match EncoderKind::of(files.metadata()) {
            Some(kind) => {
                let config = EncoderConfig::from_gguf(files.metadata(), kind, own);
                let config = config.map_err(Failure::user)?;
                (config.context_max, files.hidden_dim(&config), false)
            }
            None => {
                let config = files.config(own).map_err(Failure::user)?;
                (config.context_max, config.hidden_dim(), config.is_causal())
            }
        };
        let context_max = there.map_or(context_max, |there| there.min(context_max));
        Ok(RemoteModel {
            dims: remote_dims(files, context_max, settings)?,
            // Longer vectors have no place in a message.
            hidden_dim: match hidden_dim {
                0..=VECTOR_ENTRIES_MAX => hidden_dim,
                _ => 0,
            },
            is_causal,
        })
    }

    fn into_loaded(
        self,
        source: &ModelSource,
        engine: (Handle, Option<Vision>),
        context_max: usize,
        settings: &Settings,
    ) -> Result<LoadedEngine, Failure> {
        let vision_proxy = vision_proxy_of(engine.1.is_some(), &self.described, settings)?;
        Ok(LoadedEngine {
            name: source.name.clone(),
            facts: self.described.facts.clone(),
            identity: self.identity,
            handle: new_handle(self.described, engine, context_max, settings),
            vision_proxy,
            steps: Default::default(),
            step_signal: StepSignal::default(),
            bytes: 0,
            thread: None,
            relay: None,
            arithmetic_now: None,
            device: None,
            _cache_writers: Vec::new(),
        })
    }
}

fn open_handle(served: RemoteModel, settings: &Settings) -> Result<(Handle, RemoteInbox), Failure> {
    remote_handle(served, engine_config(settings), now()).map_err(Failure::user)
}

/// The first of these names under which an engine has the content, and the engine's context.
fn find_engine(
    cluster: &JoinedCluster,
    keys: &[String],
    search: &dyn Fn(&str) -> EngineSearch,
) -> Result<(String, usize), RemoteLoadError> {
    let mut problem = None;
    for key in keys {
        match cluster.node.find_engine(&search(key)) {
            Ok(context) => return Ok((key.clone(), context)),
            Err(why) => problem = problem.or(Some(why)),
        }
    }
    let none = || "no engine of this cluster serves the model".to_owned();
    Err(RemoteLoadError::NoEngine(problem.unwrap_or_else(none)))
}

/// Sizes of a model whose engines are other processes. Pages are no bound here: engines join and leave, and each admits
/// what it has pages for.
fn remote_dims(
    files: &ModelFiles,
    context_max: usize,
    settings: &Settings,
) -> Result<Dims, Failure> {
    let engine = &settings.engine;
    let embeddings = files.tensor("token_embd.weight");
    let embeddings =
        embeddings.ok_or_else(|| Failure::user("the model has no tensor `token_embd.weight`"))?;
    let useful = engine
        .sequences_max
        .saturating_mul(context_max.div_ceil(PAGE_TOKENS));
    Ok(Dims {
        vocab: embeddings.rows(),
        context_max,
        page_tokens: PAGE_TOKENS,
        pages: useful.min(PAGES_MAX),
        rows_max: engine.step_tokens,
        logit_rows_max: engine.sequences_max.min(engine.step_tokens),
    })
}
