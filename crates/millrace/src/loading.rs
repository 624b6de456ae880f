//! From settings to a running engine: the file, its weights, its tokenizer, its template.

mod absent;
mod built_in;
mod draft;
mod facts;
mod need;
mod place;
mod words;

pub(crate) use absent::{absent, can_be_pulled, is_model};
pub(crate) use built_in::NAME as BUILT_IN;
pub(crate) use need::bytes_needed;
pub(crate) use place::{Place, find, has_safetensors, is_config};

use crate::bounds::engine_config;
use crate::config::{Settings, memory};
use crate::failure::Failure;
use engine::{Engine, EngineThread, Handle, Token, TopLogprob};
use kernels::{Isa, Pool};
use model::{Forward, LoadOptions, Model, ModelFiles, PAGE_TOKENS, PAGES_MAX, Packed};
use server::{LoadPhase, LoadProgress, ModelFacts, StepMetrics};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use stream::{PoolLimits, SegmentPool};
use text::{
    AnswerFormat, Capabilities, ChatTemplate, Message, RenderInput, Tokenizer, ToolSupport,
};
use words::Words;

/// A model that answers, and everything that turns words into its ids and back.
pub(crate) struct Loaded {
    pub(crate) name: String,
    pub(crate) facts: ModelFacts,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) template: Arc<ChatTemplate>,
    pub(crate) answers: AnswerFormat,
    pub(crate) capabilities: Capabilities,
    pub(crate) engine: Handle,
    pub(crate) joiner: EngineThread,
    pub(crate) steps: Arc<StepMetrics>,
    pub(crate) context_max: usize,
    /// Bytes of memory, when every page was used.
    pub(crate) bytes: u64,
    pub(crate) tokens: SegmentPool<Token>,
    pub(crate) tops: SegmentPool<TopLogprob>,
}

/// Loads the model that the settings name and starts its engine.
pub(crate) fn load(settings: &Settings) -> Result<Loaded, Failure> {
    load_from(&find(settings)?, settings, &mut |_| {})
}

/// Whether a model that was found can be what it says, as far as its header tells: what is no model, is cut off, or is
/// of a kind that does not run here is refused before a socket is bound for it.
pub(crate) fn check(place: &Place, settings: &Settings) -> Result<(), Failure> {
    let files = place.open(settings.model.quantize)?;
    load_options(&files, settings)?;
    let tensors = files.tensors();
    match tensors.iter().find(|tensor| tensor.format().is_none()) {
        None => Ok(()),
        Some(tensor) => Err(Failure::user(format!(
            "{}: tensor `{}` is stored as {}, which this program cannot read",
            place.name, tensor.name, tensor.kind
        ))),
    }
}

/// Loads a model that was found before. `tell` hears how far it is.
pub(crate) fn load_from(
    place: &Place,
    settings: &Settings,
    tell: &mut dyn FnMut(LoadProgress),
) -> Result<Loaded, Failure> {
    let files = place.open(settings.model.quantize)?;
    tell(LoadProgress {
        phase: LoadPhase::Tokenizer,
        bytes_total: files.tensors().iter().map(|tensor| tensor.bytes).sum(),
        tensors_total: files.tensors().len() as u64,
        ..LoadProgress::default()
    });
    let words = Words::read(place, &files)?;
    for warning in words.tokenizer.warnings() {
        tracing::warn!("tokenizer: {warning}");
    }
    let template = words.chat_template()?;
    let is_token = |text: &str| words.tokenizer.id_of(text).is_some();
    let answers = settings.answers.format(words.template.as_deref(), is_token);
    let (answers, capabilities) =
        capabilities(&template, settings.answers.with_json_fallback(answers));
    let facts = facts::facts(&files, place)?;
    let draft = draft::find(settings, &words.tokenizer)?;
    let model = Box::new(weights(files, settings, tell)?);
    let context_max = model.dims().context_max;
    let mut bytes = need::of_model(&model);
    let config = engine_config(settings);
    let engine = match draft {
        None => Engine::new(model, config, now()),
        Some(draft) => {
            let draft = draft.load()?;
            bytes += need::of_model(&draft);
            Engine::with_draft(model, draft, config, now())
        }
    };
    let mut engine = engine.map_err(Failure::user)?;
    let steps = Arc::new(StepMetrics::default());
    engine.observe(steps.observer());
    let (engine, joiner) =
        engine::spawn(engine).map_err(|why| Failure::no_thread("engine", &why))?;
    let limits = segments(settings, context_max);
    Ok(Loaded {
        name: place.name.clone(),
        facts,
        tokenizer: Arc::new(words.tokenizer),
        template: Arc::new(template),
        answers,
        capabilities,
        engine,
        joiner,
        steps,
        context_max,
        bytes,
        tokens: SegmentPool::new(limits),
        tops: SegmentPool::new(limits),
    })
}

/// What the model can be asked for, which the log says.
fn capabilities(template: &ChatTemplate, answers: AnswerFormat) -> (AnswerFormat, Capabilities) {
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

impl Loaded {
    /// Prompt ids of a conversation, the opening of the answer included.
    pub(crate) fn chat_ids(&self, messages: &[Message]) -> Result<Vec<u32>, Failure> {
        let typed = |message: &Message| message.clone().with_escaped_text(&self.tokenizer);
        let messages: Vec<_> = messages.iter().map(typed).collect();
        let input = RenderInput {
            messages: &messages,
            add_generation_prompt: true,
            now_unix_s: now_unix_s(),
            ..RenderInput::default()
        };
        let prompt = self
            .template
            .render(&input)
            .map_err(|why| Failure::user(format!("{why:?}")))?;
        self.tokenizer
            .encode_rendered(&prompt)
            .map_err(Failure::user)
    }

    /// Lets the engine end and waits for it.
    pub(crate) fn close(self) {
        self.engine.shutdown(now());
        if self.joiner.join().is_err() {
            tracing::error!("the engine thread panicked");
        }
    }
}

/// A message of plain text.
pub(crate) fn message(role: &str, text: &str) -> Message {
    Message {
        role: role.to_owned(),
        content: text.into(),
        rest: serde_json::Map::new(),
    }
}

/// Seconds since the Unix epoch.
#[expect(
    clippy::disallowed_methods,
    reason = "the outermost floor reads the wall clock"
)]
pub(crate) fn now_unix_s() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    since.as_secs() as i64
}

/// The monotonic clock, for the engine's epoch and its end.
#[expect(
    clippy::disallowed_methods,
    reason = "the outermost floor reads the clock"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// What a model's arithmetic runs on: what `MILLRACE_ISA` says, or else the best that does as wished.
pub(crate) fn isa(deterministic: bool) -> Result<Isa, Failure> {
    let wished = if deterministic {
        Isa::best()
    } else {
        Isa::fastest()
    };
    let isa = Isa::from_env_or(wished).map_err(Failure::user)?;
    if deterministic && !isa.is_batch_invariant() {
        tracing::warn!(
            "{isa} was requested by name: results may depend on the other sequences of a batch"
        );
    }
    Ok(isa)
}

/// Packs the weights, telling the log how far it is.
fn weights(
    files: ModelFiles,
    settings: &Settings,
    tell: &mut dyn FnMut(LoadProgress),
) -> Result<Model, Failure> {
    let isa = isa(settings.model.deterministic)?;
    let threads = match settings.model.threads {
        Some(threads) => threads,
        None => std::thread::available_parallelism()?.get(),
    };
    let options = load_options(&files, settings)?;
    let mut tenths = 0;
    let mut progress = |packed: Packed| {
        let reached = packed.bytes_done * 10 / packed.bytes_total.max(1);
        if reached > tenths {
            tenths = reached;
            tracing::debug!(?packed, "packing");
        }
        tell(told(packed));
    };
    let started = now();
    let pool = Pool::try_new(threads).map_err(|why| {
        Failure::user(format!(
            "{why} (the limit is that of processes, ulimit -u, or pids.max of the control group)"
        ))
    })?;
    let model = Model::load(files, isa, pool, &options, &mut progress).map_err(Failure::user)?;
    let bytes = model.bytes();
    tracing::info!(
        isa = isa.name(),
        threads,
        weights_mib = bytes.weights >> 20,
        kv_mib = bytes.kv >> 20,
        scratch_mib = bytes.scratch >> 20,
        context = model.dims().context_max,
        "loaded in {:.1} s",
        (now() - started).as_secs_f64()
    );
    Ok(model)
}

/// When all is packed, memory and threads are what is left.
fn told(packed: Packed) -> LoadProgress {
    let all = packed.tensors_done == packed.tensors_total;
    LoadProgress {
        phase: match all {
            true => LoadPhase::Starting,
            false => LoadPhase::Weights,
        },
        bytes_done: packed.bytes_done,
        bytes_total: packed.bytes_total,
        tensors_done: packed.tensors_done,
        tensors_total: packed.tensors_total,
    }
}

/// As many pages as the KV memory holds, and no more than all sequences could ever use; a context
/// that fits in them.
fn load_options(files: &ModelFiles, settings: &Settings) -> Result<LoadOptions, Failure> {
    let config = files
        .config(settings.model.context)
        .map_err(Failure::user)?;
    let kv = settings.model.kv_type.into();
    let page_bytes = config.kv_shape(1, PAGE_TOKENS, kv).bytes();
    let page_bytes =
        page_bytes.ok_or_else(|| Failure::user("a page of this model is too large"))?;
    let position_bytes = page_bytes.div_ceil(PAGE_TOKENS) as u64;
    let kv_bytes = match settings.model.kv_mib {
        Some(mib) => mib << 20,
        None => usize::try_from(memory::kv_bytes(position_bytes)).unwrap_or(usize::MAX),
    };
    let affordable = kv_bytes / page_bytes;
    let engine = &settings.engine;
    let useful = engine
        .sequences_max
        .saturating_mul(config.context_max.div_ceil(PAGE_TOKENS));
    let pages = affordable.min(useful).min(PAGES_MAX);
    if pages < 2 {
        let why = format!(
            "model.kv_mib = {} holds no two pages of {page_bytes} bytes",
            kv_bytes >> 20
        );
        return Err(Failure::user(why));
    }
    let context = config.context_max.min(pages * PAGE_TOKENS);
    if settings
        .model
        .context
        .is_some_and(|wanted| wanted > context)
    {
        tracing::warn!("context reduced to {context} tokens: model.kv_mib holds no more");
    }
    Ok(LoadOptions {
        context_max: Some(context),
        page_tokens: PAGE_TOKENS,
        pages,
        kv,
        rows_max: engine.step_tokens,
        logit_rows_max: engine.sequences_max.min(engine.step_tokens),
    })
}

/// Segments for every open request to use the whole context once.
fn segments(settings: &Settings, context_max: usize) -> PoolLimits {
    let each = context_max.div_ceil(stream::SEGMENT_ITEMS);
    PoolLimits {
        segments_max: settings.server.open_requests_max.saturating_mul(each),
    }
}
