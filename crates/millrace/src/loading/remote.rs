//! A gateway's model: tokenizer, chat template and sizes from the model's files, without weights. Engines of other processes
//! compute the tokens.

use super::{LoadedEngine, StepSignal, describe_model, new_handle};
use crate::bounds::engine_config;
use crate::clock::now;
use crate::cluster_node::{JoinedCluster, content_identity};
use crate::config::Settings;
use crate::failure::Failure;
use crate::model_files::{ModelSource, identity_of};
use cluster::node::EngineSearch;
use cluster::relay::RelayedModel;
use engine::remote::remote_handle;
use model::{Dims, ModelFiles, PAGE_TOKENS, PAGES_MAX};
use server::{LoadPhase, LoadProgress};

/// Reads a model without its weights, waits for an engine that has the same content, and opens a handle whose requests go
/// to engines.
pub(crate) fn load_remote(
    source: &ModelSource,
    settings: &Settings,
    cluster: &JoinedCluster,
    report: &mut dyn FnMut(LoadProgress),
) -> Result<LoadedEngine, Failure> {
    let files = source.open(settings.model.quantize)?;
    report(LoadProgress {
        phase: LoadPhase::Tokenizer,
        ..LoadProgress::default()
    });
    let described = describe_model(source, &files, settings)?;
    // The arithmetic is the engines' own.
    let identity = identity_of(&files, &described.text, described.answers, String::new());
    let search = EngineSearch {
        key: source.name.clone(),
        identity: content_identity(&identity),
        context_min: settings.model.context.unwrap_or(2),
    };
    report(LoadProgress {
        phase: LoadPhase::Starting,
        ..LoadProgress::default()
    });
    let engines_context = cluster.wait_for_engine(&search);
    let own = files
        .config(settings.model.context)
        .map_err(Failure::user)?;
    let context_max = engines_context.min(own.context_max);
    tracing::info!(context_max, "an engine serves model {:?}", source.name);
    let dims = remote_dims(&files, context_max, settings)?;
    let (engine, inbox) =
        remote_handle(dims, engine_config(settings), now()).map_err(Failure::user)?;
    cluster.relay(RelayedModel {
        key: search.key,
        identity: search.identity,
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
    })
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
