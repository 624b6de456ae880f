//! From settings to a running engine: the files, the weights, the tokenizer, the chat template.

mod draft;
mod memory;
mod weights;

pub(crate) use memory::bytes_needed;
pub(crate) use weights::kernel_isa;

use crate::bounds::engine_config;
use crate::clock::now;
use crate::config::Settings;
use crate::failure::Failure;
use crate::model_files::{ModelSource, ModelText, arithmetic_name, facts_of, identity_of};
use crate::model_lookup::find_model;
use crate::progress_bar::LoadBar;
use draft::DraftModel;
use engine::{Engine, EngineThread};
use generate::model_handle::ModelHandle;
use kernels::Isa;
use model::{Forward, Model, ModelFiles};
use server::{LoadPhase, LoadProgress, ModelFacts, ModelIdentity, StepMetrics};
use std::sync::Arc;
use stream::{PoolLimits, SegmentPool};
use text::{AnswerFormat, Capabilities, ChatTemplate, ToolSupport};
use weights::{load_options, load_weights};

/// A model in memory with an engine thread.
pub(crate) struct LoadedEngine {
    pub(crate) name: String,
    pub(crate) facts: ModelFacts,
    pub(crate) identity: ModelIdentity,
    pub(crate) handle: ModelHandle,
    pub(crate) steps: Arc<StepMetrics>,
    /// Bytes of memory, with every page used.
    pub(crate) bytes: u64,
    thread: EngineThread,
}

/// Loads the model of the settings and starts the engine, with a progress bar.
pub(crate) fn load_model(settings: &Settings) -> Result<LoadedEngine, Failure> {
    let source = find_model(settings)?;
    let mut bar = LoadBar::new();
    load_from(&source, settings, &mut |progress| bar.show(progress))
}

/// Checks a model's header, so that a file that is no model, is cut off, or has a format that is not supported is an error
/// before a socket is bound.
pub(crate) fn check_header(source: &ModelSource, settings: &Settings) -> Result<(), Failure> {
    let files = source.open(settings.model.quantize)?;
    load_options(&files, settings)?;
    let tensors = files.tensors();
    match tensors.iter().find(|tensor| tensor.format().is_none()) {
        None => Ok(()),
        Some(tensor) => Err(Failure::user(format!(
            "{}: tensor `{}` is stored as {}, which this program cannot read",
            source.name, tensor.name, tensor.kind
        ))),
    }
}

/// Loads a model and starts the engine. `report` gets the progress.
pub(crate) fn load_from(
    source: &ModelSource,
    settings: &Settings,
    report: &mut dyn FnMut(LoadProgress),
) -> Result<LoadedEngine, Failure> {
    let files = source.open(settings.model.quantize)?;
    report(LoadProgress {
        phase: LoadPhase::Tokenizer,
        bytes_total: files.tensors().iter().map(|tensor| tensor.bytes).sum(),
        tensors_total: files.tensors().len() as u64,
        ..LoadProgress::default()
    });
    let model_text = ModelText::read(source, &files)?;
    for warning in model_text.tokenizer.warnings() {
        tracing::warn!("tokenizer: {warning}");
    }
    let template = model_text.chat_template()?;
    let is_token = |text: &str| model_text.tokenizer.id_of(text).is_some();
    let answers = settings
        .answers
        .format(model_text.template.as_deref(), is_token);
    let (answers, capabilities) =
        log_capabilities(&template, settings.answers.with_json_fallback(answers));
    let facts = facts_of(&files, source)?;
    let draft = DraftModel::find(settings, &model_text.tokenizer)?;
    let isa = kernel_isa(settings.model.deterministic)?;
    let identity = find_identity(&files, &model_text, answers, arithmetic(isa, settings));
    let model = Box::new(load_weights(files, isa, settings, report)?);
    let context_max = model.dims().context_max;
    let (mut engine, bytes) = new_engine(model, draft, settings)?;
    let steps = Arc::new(StepMetrics::default());
    engine.observe(steps.observer());
    let (engine, thread) =
        engine::spawn(engine).map_err(|why| Failure::no_thread("engine", &why))?;
    let limits = token_pool_limits(settings, context_max);
    Ok(LoadedEngine {
        name: source.name.clone(),
        facts,
        identity,
        handle: ModelHandle {
            eos: model_text.tokenizer.eos_ids().into(),
            tokenizer: Arc::new(model_text.tokenizer),
            template: Arc::new(template),
            answers,
            capabilities,
            engine,
            context_max,
            token_pool: SegmentPool::new(limits),
            top_pool: SegmentPool::new(limits),
        },
        steps,
        bytes,
        thread,
    })
}

/// An engine, and the bytes of its models with every page used.
fn new_engine(
    model: Box<Model>,
    draft: Option<DraftModel>,
    settings: &Settings,
) -> Result<(Engine, u64), Failure> {
    let mut bytes = memory::bytes_of(&model);
    let config = engine_config(settings);
    let engine = match draft {
        None => Engine::new(model, config, now()),
        Some(draft) => {
            let draft = draft.load()?;
            bytes += memory::bytes_of(&draft);
            Engine::with_draft(model, draft, config, now())
        }
    };
    Ok((engine.map_err(Failure::user)?, bytes))
}

fn find_identity(
    files: &ModelFiles,
    model_text: &ModelText,
    answers: AnswerFormat,
    arithmetic: String,
) -> ModelIdentity {
    let started = now();
    let identity = identity_of(files, model_text, answers, arithmetic);
    let ms = (now() - started).as_secs_f64() * 1000.0;
    tracing::debug!(
        weights = identity.weights,
        tokenizer = identity.tokenizer,
        template = identity.template,
        arithmetic = identity.arithmetic,
        "the model was identified in {ms:.1} ms"
    );
    identity
}

fn arithmetic(isa: Isa, settings: &Settings) -> String {
    let model = &settings.model;
    arithmetic_name(model.kv_type, model.quantize, isa)
}

/// What a model supports of tools and reasoning, with a line in the log.
fn log_capabilities(
    template: &ChatTemplate,
    answers: AnswerFormat,
) -> (AnswerFormat, Capabilities) {
    let capabilities = template.capabilities(answers);
    tracing::info!(
        tools = answers.tools.name(),
        tool_prompt = capabilities.tools.name(),
        reasoning = answers.reasoning.name(),
        thinking = capabilities.thinking,
        "output parser selected"
    );
    match capabilities.tools {
        ToolSupport::Template | ToolSupport::SystemMessage => {}
        ToolSupport::Generic(_) => tracing::info!(
            "the chat template does not support tools: they are described in the prompt (generic tool prompt)"
        ),
        ToolSupport::None => tracing::warn!(
            "the chat template does not support tools and answers.tool_parser is none: requests with tools are rejected"
        ),
    }
    (answers, capabilities)
}

impl LoadedEngine {
    /// Shuts the engine down and joins the thread.
    pub(crate) fn close(self) {
        self.handle.engine.shutdown(now());
        if self.thread.join().is_err() {
            tracing::error!("the engine thread panicked");
        }
    }
}

/// Limits of a pool with which every open request can use the whole context once.
fn token_pool_limits(settings: &Settings, context_max: usize) -> PoolLimits {
    let each = context_max.div_ceil(stream::SEGMENT_ITEMS);
    PoolLimits {
        segments_max: settings.server.open_requests_max.saturating_mul(each),
    }
}
