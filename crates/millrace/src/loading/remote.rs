//! A model without weights: tokenizer, chat template and sizes from the model's files. Engines of other processes, or servers
//! of others, compute the tokens.

use super::{DescribedModel, LoadedEngine, StepSignal, describe_model, new_handle};
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
use engine::Handle;
use engine::remote::{RemoteInbox, remote_handle};
use model::{Dims, ModelFiles, PAGE_TOKENS, PAGES_MAX};
use server::{EngineAbsence, EngineArithmetic, LoadPhase, LoadProgress, ModelIdentity};
use std::sync::Arc;
use upstream::UpstreamModel;

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
    let context_max = model.context_max(Some(engines_context), settings)?;
    tracing::info!(context_max, "an engine serves model {key:?}");
    let (engine, inbox) =
        model.open_handle((context_max, model.hidden_dim(settings)?), settings)?;
    let relaying = cluster.relay(RelayedModel {
        key: key.clone(),
        identity: content_identity(&model.identity),
        context_max,
        inbox,
    })?;
    let loaded = model.into_loaded(source, engine, context_max, settings);
    Ok(LoadedEngine {
        relay: Some(ModelRelay {
            absence: Some(cluster.engine_absence(key.clone())),
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
    let context_max = model.context_max(upstreams.wait_until_usable(), settings)?;
    tracing::info!(context_max, "an upstream serves model {:?}", source.name);
    let (engine, inbox) = model.open_handle((context_max, 0), settings)?;
    let loaded = model.into_loaded(source, engine, context_max, settings);
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
        if !ModelPurpose::of(&files).is_causal {
            let family = files.metadata().str("general.architecture");
            return Err(Failure::user(format!(
                "{} is an encoder ({}), which a gateway does not serve: a server of the role all does",
                source.name,
                family.unwrap_or_default()
            )));
        }
        let mut report = |phase| {
            report(LoadProgress {
                phase,
                ..LoadProgress::default()
            });
        };
        report(LoadPhase::Tokenizer);
        let described = describe_model(source, &files, settings)?;
        // The arithmetic is that of the engines.
        let identity = identity_of(
            (&files, &described.adapters),
            &described.text,
            described.answers,
            String::new(),
        );
        report(LoadPhase::Starting);
        Ok(Self {
            files,
            described,
            identity,
        })
    }

    /// The context that the model has here and there.
    fn context_max(&self, there: Option<usize>, settings: &Settings) -> Result<usize, Failure> {
        let own = self.files.config(settings.model.context);
        let own = own.map_err(Failure::user)?.context_max;
        Ok(there.map_or(own, |there| there.min(own)))
    }

    /// Entries of the vectors that engines give; 0: they are too long for messages.
    fn hidden_dim(&self, settings: &Settings) -> Result<usize, Failure> {
        let own = self.files.config(settings.model.context);
        match own.map_err(Failure::user)?.hidden_dim() {
            dim @ 0..=VECTOR_ENTRIES_MAX => Ok(dim),
            _ => Ok(0),
        }
    }

    fn open_handle(
        &self,
        (context_max, hidden_dim): (usize, usize),
        settings: &Settings,
    ) -> Result<(Handle, RemoteInbox), Failure> {
        let dims = remote_dims(&self.files, context_max, settings)?;
        remote_handle((dims, hidden_dim), engine_config(settings), now()).map_err(Failure::user)
    }

    fn into_loaded(
        self,
        source: &ModelSource,
        engine: Handle,
        context_max: usize,
        settings: &Settings,
    ) -> LoadedEngine {
        LoadedEngine {
            name: source.name.clone(),
            facts: self.described.facts.clone(),
            identity: self.identity,
            handle: new_handle(self.described, engine, context_max, settings),
            steps: Default::default(),
            step_signal: StepSignal::default(),
            bytes: 0,
            thread: None,
            relay: None,
        }
    }
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
