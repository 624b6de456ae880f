//! From settings to a running engine: the files, the weights, the tokenizer, the chat template, the prompt cache on
//! disk.

mod adapters;
mod device;
mod memory;
mod remote;
mod seeing_model;
mod tower;
mod weights;

pub(crate) use adapters::OpenedAdapters;
#[cfg(feature = "gpu")]
pub(crate) use device::device_selection;
pub(crate) use device::measure_on_gpu;
#[cfg(feature = "gpu")]
pub(crate) use device::with_drivers;
pub(crate) use memory::bytes_needed;
pub(crate) use remote::{EngineChoice, RemoteLoadError, load_remote, load_upstream};
pub(crate) use weights::kernel_isa;

use crate::bounds::engine_config;
use crate::clock::now;
use crate::config::Settings;
use crate::failure::Failure;
use crate::model_files::{ModelPurpose, ModelSource, ModelText, facts_of, identity_of};
use crate::model_lookup::find_model;
use crate::packed_cache::CacheWriter;
use crate::progress_bar::LoadBar;
use ::weights::ModelFiles;
use engine::{
    DiskCacheConfig, Engine, EngineThread, Handle, Observer, RequestId, Speculation, StepFacts,
    Transition,
};
use generate::images::Vision;
use generate::model_handle::ModelHandle;
use remote::ModelRelay;
use server::{
    DeviceName, EngineAbsence, EngineArithmetic, EngineSight, LoadPhase, LoadProgress, ModelFacts,
    ModelIdentity, ModelTask, StepMetrics, VisionProxy,
};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Instant;
use stream::{PoolLimits, SegmentPool};
use text::{AnswerFormat, Capabilities, ChatTemplate, ToolSupport};
use tower::{find_tower, vision_of};
use weights::{DraftModel, PackedModel, load_options, load_weights};

/// A model in memory with an engine thread.
pub(crate) struct LoadedEngine {
    pub(crate) name: String,
    pub(crate) facts: ModelFacts,
    pub(crate) identity: ModelIdentity,
    pub(crate) handle: ModelHandle,
    /// The model that describes images for this one.
    pub(crate) vision_proxy: Option<Arc<VisionProxy>>,
    pub(crate) steps: Arc<StepMetrics>,
    /// Called after each step.
    pub(crate) step_signal: StepSignal,
    /// Bytes of memory, with every page used.
    pub(crate) bytes: u64,
    /// `None`: engines of other processes compute.
    thread: Option<EngineThread>,
    /// The relay to those engines.
    relay: Option<ModelRelay>,
    /// The arithmetic at a moment, of a device that may be given up.
    pub(crate) arithmetic_now: Option<SharedArithmetic>,
    /// The device at a moment; `None`: engines of other processes compute.
    device: Option<DeviceNow>,
    /// Packed weights that are being written to the cache.
    _cache_writers: Vec<CacheWriter>,
}

/// The arithmetic at a moment: as [`EngineArithmetic`], for the server and for the cluster.
pub(crate) type SharedArithmetic = Arc<dyn Fn() -> BTreeSet<String> + Send + Sync>;

/// Name of the device that computes a model, which may be given up: `cpu`, or that of a GPU with its driver.
pub(crate) type DeviceNow = Arc<Mutex<String>>;

/// Facts of a model's files without the weights.
struct DescribedModel {
    text: ModelText,
    template: ChatTemplate,
    answers: AnswerFormat,
    capabilities: Capabilities,
    facts: ModelFacts,
    adapters: OpenedAdapters,
}

/// Loads the model of the settings and starts the engine, with a progress bar.
pub(crate) fn load_model(settings: &Settings) -> Result<LoadedEngine, Failure> {
    load_source(&find_model(settings)?, settings)
}

/// Loads a model that was found and starts the engine, with a progress bar.
pub(crate) fn load_source(
    source: &ModelSource,
    settings: &Settings,
) -> Result<LoadedEngine, Failure> {
    let mut bar = LoadBar::new();
    load_from(source, settings, &mut |progress| bar.show(progress))
}

/// Checks a model's header, so that a file that is no model, is cut off, or has a format that is not supported is an error
/// before a socket is bound.
pub(crate) fn check_header(source: &ModelSource, settings: &Settings) -> Result<(), Failure> {
    let files = source.open(settings.model.quantize)?;
    check_configuration(source, &files, settings)?;
    OpenedAdapters::open(&files, settings)?;
    find_tower(source, &files, settings)?;
    let tensors = files.tensors();
    match tensors.iter().find(|tensor| tensor.format().is_none()) {
        None => Ok(()),
        Some(tensor) => Err(Failure::user(format!(
            "{}: tensor `{}` is stored as {}, which this program cannot read",
            source.name, tensor.name, tensor.kind
        ))),
    }
}

/// Names a file that is no model, before what else it lacks.
fn check_configuration(
    source: &ModelSource,
    files: &ModelFiles,
    settings: &Settings,
) -> Result<(), Failure> {
    match load_options(files, settings) {
        Ok(_) => Ok(()),
        Err(Failure::User(why)) => Err(Failure::user(format!("{}: {why}", source.name))),
        Err(why) => Err(why),
    }
}

/// Loads a model and starts the engine. `report` gets the progress.
pub(crate) fn load_from(
    source: &ModelSource,
    settings: &Settings,
    report: &mut dyn FnMut(LoadProgress),
) -> Result<LoadedEngine, Failure> {
    let files = source.open(settings.model.quantize)?;
    check_configuration(source, &files, settings)?;
    report(LoadProgress {
        phase: LoadPhase::Tokenizer,
        bytes_total: files.tensors().iter().map(|tensor| tensor.bytes).sum(),
        tensors_total: files.tensors().len() as u64,
        ..LoadProgress::default()
    });
    let described = describe_model(source, &files, settings)?;
    let tower = find_tower(source, &files, settings)?;
    let vision = tower.as_ref().and_then(|tower| vision_of(tower, settings));
    let draft = DraftModel::find(settings, &described.text.tokenizer)?;
    let isa = kernel_isa(settings.model.deterministic)?;
    let mut identity = find_identity(&files, &described);
    let adapters = &described.adapters.adapters;
    let mut model = load_weights(source, (files, adapters, tower), isa, settings, report)?;
    let vision_proxy = vision_proxy_of(vision.is_some(), &described, settings)?;
    let (arithmetic_now, device) = (model.arithmetic_now.take(), Arc::clone(&model.device));
    identity.arithmetic.clone_from(&model.arithmetic);
    tracing::debug!(arithmetic = model.arithmetic, "arithmetic of the model");
    let context_max = model.model.dims().context_max;
    let (mut engine, bytes, cache_writers) = new_engine(model, draft, settings)?;
    cache_on_disk(&mut engine, &identity, settings);
    let steps = Arc::new(StepMetrics::default());
    let step_signal = StepSignal::default();
    engine.observe(Box::new(SignallingObserver {
        inner: steps.observer(),
        signal: Arc::clone(&step_signal),
    }));
    let (engine, thread) =
        engine::spawn(engine).map_err(|why| Failure::no_thread("engine", &why))?;
    Ok(LoadedEngine {
        name: source.name.clone(),
        facts: described.facts.clone(),
        identity,
        handle: new_handle(described, (engine, vision), context_max, settings),
        vision_proxy,
        steps,
        step_signal,
        bytes,
        thread: Some(thread),
        arithmetic_now,
        device: Some(device),
        relay: None,
        _cache_writers: cache_writers,
    })
}

/// Reads the tokenizer and the chat template of an open model.
fn describe_model(
    source: &ModelSource,
    files: &ModelFiles,
    settings: &Settings,
) -> Result<DescribedModel, Failure> {
    let text = ModelText::read(source, files)?;
    let text = text.with_template_file(settings.model.chat_template.as_deref())?;
    for warning in text.tokenizer.warnings() {
        tracing::warn!("tokenizer: {warning}");
    }
    let generates = ModelPurpose::of(files).is_causal;
    let template = if generates {
        text.chat_template()?
    } else {
        text.fallback_template()
    };
    let is_token = |word: &str| text.tokenizer.id_of(word).is_some();
    let answers = settings.answers.format(text.template.as_deref(), is_token);
    let answers = settings.answers.with_json_fallback(answers);
    let capabilities = if generates {
        template.capabilities(answers)
    } else {
        Capabilities::NONE
    };
    if generates {
        log_capabilities(answers, capabilities);
    }
    Ok(DescribedModel {
        facts: ModelFacts {
            template: text.template.clone(),
            prompt_format: if generates {
                template.format_name()
            } else {
                ""
            },
            ..facts_of(files, source)?
        },
        adapters: OpenedAdapters::open(files, settings)?,
        text,
        template,
        answers,
        capabilities,
    })
}

/// The proxy of a model; `None` of one that sees images itself, or generates no text.
fn vision_proxy_of(
    sees_images: bool,
    described: &DescribedModel,
    settings: &Settings,
) -> Result<Option<Arc<VisionProxy>>, Failure> {
    if sees_images || described.facts.task != ModelTask::Generation {
        return Ok(None);
    }
    let proxy = settings.vision_proxy().map_err(Failure::User)?;
    Ok(proxy.map(Arc::new))
}

fn new_handle(
    described: DescribedModel,
    (engine, vision): (Handle, Option<Vision>),
    context_max: usize,
    settings: &Settings,
) -> ModelHandle {
    let limits = token_pool_limits(settings, context_max);
    let tokenizer = described.text.tokenizer;
    let tokenizer = match &vision {
        Some(vision) => tokenizer.reserving(vision.marks.texts()),
        None => tokenizer,
    };
    ModelHandle {
        vision: vision.map(Arc::new),
        adapters: Arc::new(described.adapters.named),
        eos: tokenizer.eos_ids().into(),
        tokenizer: Arc::new(tokenizer),
        template: Arc::new(described.template),
        answers: described.answers,
        capabilities: described.capabilities,
        engine,
        context_max,
        token_pool: SegmentPool::new(limits),
        top_pool: SegmentPool::new(limits),
    }
}

/// An engine, the bytes of its models with every page used, and what is being written of them to the cache.
fn new_engine(
    model: PackedModel,
    draft: Option<DraftModel>,
    settings: &Settings,
) -> Result<(Engine, u64, Vec<CacheWriter>), Failure> {
    let mut bytes = model.bytes_in_all();
    let mut cache_writers = Vec::from_iter(model.cache_writer);
    let model = model.model;
    let config = engine_config(settings);
    let is_recurrent = model.capabilities().states > 0;
    if is_recurrent && config.speculation == Speculation::Draft {
        tracing::warn!(
            "engine.draft_model has no effect on a model with recurrent layers: engine.speculation may be prompt_lookup, or mtp"
        );
    }
    let engine = match draft.filter(|_| !is_recurrent) {
        None => Engine::new(model, config, now()),
        Some(draft) => {
            let draft = draft.load()?;
            bytes += draft.bytes_in_all();
            cache_writers.extend(draft.cache_writer);
            Engine::with_draft(model, draft.model, config, now())
        }
    };
    Ok((engine.map_err(Failure::user)?, bytes, cache_writers))
}

/// The identity of an open model, without its arithmetic.
fn find_identity(files: &ModelFiles, described: &DescribedModel) -> ModelIdentity {
    let started = now();
    let identity = identity_of(
        (files, &described.adapters),
        &described.text,
        described.answers,
    );
    let ms = (now() - started).as_secs_f64() * 1000.0;
    tracing::debug!(
        weights = identity.weights,
        tokenizer = identity.tokenizer,
        template = identity.template,
        "the model was identified in {ms:.1} ms"
    );
    identity
}

/// Logs what a model supports of tools and reasoning.
fn log_capabilities(answers: AnswerFormat, capabilities: Capabilities) {
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
}

impl LoadedEngine {
    /// Whether the engine is a thread of this process.
    pub(crate) fn computes_here(&self) -> bool {
        self.thread.is_some()
    }

    /// Why engines of other processes cannot be waited for any longer.
    pub(crate) fn take_engine_absence(&mut self) -> Option<EngineAbsence> {
        self.relay.as_mut()?.absence.take()
    }

    /// The arithmetic of engines of other processes, or of a device that may be given up.
    pub(crate) fn take_engine_arithmetic(&mut self) -> Option<EngineArithmetic> {
        let of_device = self.arithmetic_now.clone();
        let of_device = of_device.map(|now| Box::new(move || now()) as EngineArithmetic);
        of_device.or_else(|| self.relay.as_mut()?.arithmetic.take())
    }

    /// The device that computes, where it is one of this process.
    pub(crate) fn device_name(&self) -> Option<DeviceName> {
        let device = self.device.clone()?;
        Some(Box::new(move || {
            let now = device.lock().unwrap_or_else(PoisonError::into_inner);
            now.clone()
        }))
    }

    /// Whether engines of other processes have the tower of the handle.
    pub(crate) fn take_engine_sight(&mut self) -> Option<EngineSight> {
        self.relay.as_mut()?.sight.take()
    }

    /// Shuts the engine down and joins the thread.
    pub(crate) fn close(self) {
        self.handle.engine.shutdown(now());
        if self.thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the engine thread panicked");
        }
    }
}

/// Limits of a pool with which every open request can use the whole context once.
fn token_pool_limits(settings: &Settings, context_max: usize) -> PoolLimits {
    let each = context_max.div_ceil(stream::SEGMENT_ITEMS);
    PoolLimits {
        segments_max: (settings.server.open_requests_max.saturating_mul(each))
            .min(PoolLimits::SEGMENTS_MAX),
    }
}

/// Opens the prompt cache on disk, where the settings have one. Without it the engine works as well, so a directory that cannot
/// be used is a warning.
fn cache_on_disk(engine: &mut Engine, identity: &ModelIdentity, settings: &Settings) {
    let Some(bytes_max) = settings.cache.disk_bytes() else {
        return;
    };
    let Some(directory) = settings.cache.directory() else {
        tracing::warn!(
            "no prompt cache on disk: neither cache.disk_directory, XDG_CACHE_HOME nor HOME names a directory"
        );
        return;
    };
    let shown = directory.display().to_string();
    let opened = engine.cache_on_disk(DiskCacheConfig {
        directory,
        bytes_max,
        identity: identity_text(identity),
        warn: Box::new(|why| tracing::warn!("prompt cache on disk: {why}")),
    });
    match opened {
        Ok(()) => tracing::info!(
            directory = shown,
            bytes_max,
            "prefixes of prompts are kept on disk"
        ),
        Err(why) => tracing::warn!("no prompt cache on disk (cache.disk_gib): {why}"),
    }
}

/// Everything but the tokens that decides the bits of keys and values, and this program's version, since the layout of a page
/// may differ between versions. The identity of the weights has the adapters.
fn identity_text(identity: &ModelIdentity) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let (weights, arithmetic) = (&identity.weights, &identity.arithmetic);
    format!("millrace {version}; weights {weights}; {arithmetic}")
}

/// The waker that is called after each step, once there is one.
pub(crate) type StepSignal = Arc<OnceLock<Waker>>;

/// An observer that also calls the signal.
struct SignallingObserver {
    inner: Box<dyn Observer>,
    signal: StepSignal,
}

impl Observer for SignallingObserver {
    fn transition(&mut self, id: RequestId, transition: Transition, now: Instant) {
        self.inner.transition(id, transition, now);
    }

    fn step(&mut self, facts: &StepFacts) {
        self.inner.step(facts);
        if let Some(waker) = self.signal.get() {
            waker.wake_by_ref();
        }
    }
}
