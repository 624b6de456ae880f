//! A gateway's model: tokenizer, chat template and sizes from the model's files, without weights. Engines of other processes
//! compute the tokens.

use super::{LoadedEngine, StepSignal, describe_model, new_handle};
use crate::bounds::engine_config;
use crate::clock::now;
use crate::cluster_node::{JoinedCluster, content_identity};
use crate::config::Settings;
use crate::failure::Failure;
use crate::model_files::{ModelSource, identity_of};
use cluster::messages::ContentIdentity;
use cluster::node::{EngineSearch, Relaying};
use cluster::relay::RelayedModel;
use engine::remote::remote_handle;
use model::{Dims, ModelFiles, PAGE_TOKENS, PAGES_MAX};
use server::{EngineAbsence, LoadPhase, LoadProgress};

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
    let files = source.open(settings.model.quantize)?;
    report(LoadProgress {
        phase: LoadPhase::Tokenizer,
        ..LoadProgress::default()
    });
    let described = describe_model(source, &files, settings)?;
    // The arithmetic is the engines' own.
    let identity = identity_of(&files, &described.text, described.answers, String::new());
    report(LoadProgress {
        phase: LoadPhase::Starting,
        ..LoadProgress::default()
    });
    let search = |key: &str| EngineSearch {
        key: key.to_owned(),
        identity: content_identity(&identity),
        context_min: settings.model.context.unwrap_or(2),
    };
    let (key, engines_context) = match choice {
        EngineChoice::Wait => {
            let context = cluster.wait_for_engine(&search(&source.name));
            (source.name.clone(), context)
        }
        EngineChoice::AnyOf(keys) => find_engine(cluster, keys, &search)?,
    };
    let own = files
        .config(settings.model.context)
        .map_err(Failure::user)?;
    let context_max = engines_context.min(own.context_max);
    tracing::info!(context_max, "an engine serves model {key:?}");
    let dims = remote_dims(&files, context_max, settings)?;
    let (engine, inbox) =
        remote_handle(dims, engine_config(settings), now()).map_err(Failure::user)?;
    let content: ContentIdentity = content_identity(&identity);
    let relaying = cluster.relay(RelayedModel {
        key: key.clone(),
        identity: content,
        context_max,
        inbox,
    })?;
    Ok(LoadedEngine {
        name: source.name.clone(),
        facts: described.facts.clone(),
        identity,
        handle: new_handle(described, engine, context_max, settings),
        steps: Default::default(),
        step_signal: StepSignal::default(),
        bytes: 0,
        thread: None,
        relay: Some(ModelRelay {
            absence: Some(cluster.engine_absence(key)),
            _relaying: relaying,
        }),
    })
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
