//! A model's weights, packed for the kernels, with as many KV pages as the memory holds; and the draft model of
//! speculative decoding, compared with the target model's vocabulary and loaded with separate KV memory.

use super::device::load_on_gpu;
use super::memory::{StateBudget, encoder_options, load_encoder, whole_text_options};
use super::seeing_model::with_tower;
use super::{DeviceNow, SharedArithmetic};
use crate::clock::{now, now_unix_s};
use crate::config::{DeviceChoice, Settings, Speculation, memory};
use crate::failure::Failure;
use crate::model_files::{FittingTower, ModelPurpose, ModelSource, ModelText, arithmetic_name};
use crate::model_lookup::find_model;
use crate::packed_cache::{CacheWriter, CachedLoad};
use cpu::{LoadOptions, Model, ModelBytes, PAGE_TOKENS, PAGES_MAX};
use kernels::{Isa, Pool};
use model::Forward;
use server::{LoadPhase, LoadProgress};
use std::sync::{Arc, Mutex};
use text::Tokenizer;
use weights::encoder::EncoderKind;
use weights::{Adapter, Config, ModelFiles, Packed, PackedSections};

/// The instruction set of a model's kernels: that of `MILLRACE_ISA`, or else the best one that is batch-invariant, if
/// `deterministic` demands that.
pub(crate) fn kernel_isa(deterministic: bool) -> Result<Isa, Failure> {
    let default_isa = if deterministic {
        Isa::best()
    } else {
        Isa::fastest()
    };
    let isa = Isa::from_env_or(default_isa).map_err(Failure::user)?;
    if deterministic && !isa.is_batch_invariant() {
        tracing::warn!(
            "{isa} was requested by name: results may depend on the other sequences of a batch"
        );
    }
    Ok(isa)
}

/// A model, and its bytes.
pub(super) type LoadedWeights = (ModelBytes, Box<dyn Forward>);

/// A model with its weights in memory.
pub(super) struct PackedModel {
    pub(super) model: Box<dyn Forward>,
    pub(super) bytes: ModelBytes,
    /// The arithmetic that computes it.
    pub(super) arithmetic: String,
    /// The arithmetic that computes it at a moment, where that may change.
    pub(super) arithmetic_now: Option<SharedArithmetic>,
    /// The device that computes it at a moment.
    pub(super) device: DeviceNow,
    /// Writes the packed weights to the cache.
    pub(super) cache_writer: Option<CacheWriter>,
}

impl PackedModel {
    /// Bytes with every page and every state used.
    pub(super) fn bytes_in_all(&self) -> u64 {
        let bytes = &self.bytes;
        (bytes.weights + bytes.kv + bytes.states + bytes.scratch) as u64
    }
}

/// Loads a model to its GPU, or packs its weights for the processor.
pub(super) fn load_weights(
    source: &ModelSource,
    (files, adapters, tower): (ModelFiles, &[Adapter], Option<FittingTower>),
    isa: Isa,
    settings: &Settings,
    report: &mut dyn FnMut(LoadProgress),
) -> Result<PackedModel, Failure> {
    let seen = tower.as_ref().map(|tower| tower.config.rows_max());
    let on_gpu = (&files, adapters, seen);
    match (load_on_gpu(source, on_gpu, isa, settings, report)?, tower) {
        (Some(model), None) => Ok(model),
        (Some(model), Some(tower)) => {
            let pool = compute_pool(&tower.files, settings)?;
            with_tower(model, tower, (isa, pool), report)
        }
        (None, tower) => load_on_processor((files, adapters, tower), isa, settings, report),
    }
}

/// Loads the weights, packed before or now, and packs the adapters, with progress in the log and in `report`.
pub(super) fn load_on_processor(
    (files, adapters, tower): (ModelFiles, &[Adapter], Option<FittingTower>),
    isa: Isa,
    settings: &Settings,
    report: &mut dyn FnMut(LoadProgress),
) -> Result<PackedModel, Failure> {
    let options = load_options(&files, settings)?;
    let mut tenths = 0;
    let mut progress = |packed: Packed| {
        let reached = packed.bytes_done * 10 / packed.bytes_total.max(1);
        if reached > tenths {
            tenths = reached;
            tracing::debug!(?packed, "packing");
        }
        report(load_progress(packed));
    };
    let started = now();
    let pool = compute_pool(&files, settings)?;
    let threads = pool.threads();
    let mut cached = CachedLoad::begin(settings, &files, (isa, options.mtp), now_unix_s());
    let sections = (
        &mut cached.sections,
        &mut progress as &mut dyn FnMut(Packed),
    );
    let (bytes, model) = match EncoderKind::of(files.metadata()) {
        Some(kind) => load_encoder(files, kind, (isa, pool), &options, sections)?,
        None => load_decoder((files, adapters, tower), (isa, pool), &options, sections)?,
    };
    let from = if cached.is_from_cache() {
        " from the packed cache"
    } else {
        ""
    };
    tracing::info!(
        isa = isa.name(),
        threads,
        weights_mib = bytes.weights >> 20,
        kv_mib = bytes.kv >> 20,
        states_mib = bytes.states >> 20,
        scratch_mib = bytes.scratch >> 20,
        context = model.dims().context_max,
        "loaded{from} in {:.2} s",
        (now() - started).as_secs_f64()
    );
    let (kv, quantize) = (settings.model.kv_type, settings.model.quantize);
    Ok(PackedModel {
        model,
        bytes,
        arithmetic: arithmetic_name(kv, quantize, isa),
        arithmetic_now: None,
        device: Arc::new(Mutex::new(DeviceChoice::Cpu.to_string())),
        cache_writer: cached.end(),
    })
}

/// The model in the error for a tower of another one, which the search for towers has named.
const THIS_MODEL: &str = "that is loaded";

fn load_decoder(
    (files, adapters, tower): (ModelFiles, &[Adapter], Option<FittingTower>),
    (isa, pool): (Isa, Pool),
    options: &LoadOptions,
    (sections, progress): (&mut PackedSections, &mut dyn FnMut(Packed)),
) -> Result<LoadedWeights, Failure> {
    let model = Model::load_with(files, (isa, pool), options, sections, progress);
    let mut model = model.map_err(Failure::user)?;
    model.adapt(adapters).map_err(Failure::user)?;
    if let Some(FittingTower { files, config, .. }) = tower {
        let loaded = model.load_tower(files, config, THIS_MODEL, progress);
        loaded.map_err(Failure::user)?;
    }
    Ok((model.bytes(), Box::new(model)))
}

/// The compute threads of the settings, or as many as the model can use.
fn compute_threads(files: &ModelFiles, settings: &Settings) -> Result<usize, Failure> {
    match settings.model.threads {
        Some(threads) => Ok(threads),
        None => {
            let processors = std::thread::available_parallelism()?.get();
            Ok(default_threads(files.file_bytes(), processors))
        }
    }
}

/// Bytes of a model's files for each compute thread that is worth its synchronization: a thread reads them in some tens of
/// microseconds, and a step has a few dozen barriers of a microsecond each.
const THREAD_BYTES_MIN: u64 = 1 << 20;

/// The compute threads of a model, started.
fn compute_pool(files: &ModelFiles, settings: &Settings) -> Result<Pool, Failure> {
    Pool::try_new(compute_threads(files, settings)?).map_err(|why| {
        Failure::user(format!(
            "{why} (the limit is that of processes, ulimit -u, or pids.max of the control group)"
        ))
    })
}

/// Compute threads of a model whose files have `bytes`, on a machine with `processors`.
fn default_threads(bytes: u64, processors: usize) -> usize {
    let useful = usize::try_from(bytes / THREAD_BYTES_MIN).unwrap_or(usize::MAX);
    useful.clamp(1, processors.max(1))
}

/// Progress of packing; the phase after the last tensor is the start of the engine.
pub(super) fn load_progress(packed: Packed) -> LoadProgress {
    let all = packed.tensors_done == packed.tensors_total;
    LoadProgress {
        phase: if all {
            LoadPhase::Starting
        } else {
            LoadPhase::Weights
        },
        bytes_done: packed.bytes_done,
        bytes_total: packed.bytes_total,
        tensors_done: packed.tensors_done,
        tensors_total: packed.tensors_total,
    }
}

/// Bytes of a page's table, with its tokens (docs/memory.md): all that a page has in a model without keys and values.
const PAGE_TABLE_BYTES: usize = 128 + 4 * PAGE_TOKENS;

/// Sizes of a loaded model: as many pages as the KV memory holds, and no more than all sequences could ever use (without
/// keys and values, than the usual number of sequences uses); a context that fits into these pages.
pub(super) fn load_options(
    files: &ModelFiles,
    settings: &Settings,
) -> Result<LoadOptions, Failure> {
    if let Some(kind) = EncoderKind::of(files.metadata()) {
        return encoder_options(files, kind, settings);
    }
    let (config, engine) = (decoder_config(files, settings)?, &settings.engine);
    if !config.is_causal() {
        return Ok(whole_text_options(config.context_max, settings));
    }
    let kv = settings.model.kv_type.into();
    let page_bytes = config.kv_bytes(1, PAGE_TOKENS, kv);
    let page_bytes =
        page_bytes.ok_or_else(|| Failure::user("a page of this model is too large"))?;
    let has_keys = page_bytes > 0;
    let page_bytes = page_bytes.max(PAGE_TABLE_BYTES);
    let position_bytes = page_bytes.div_ceil(PAGE_TOKENS) as u64;
    let states = StateBudget::wanted(&config, engine.sequences_max);
    let kv_bytes = match settings.model.kv_mib {
        Some(mib) => mib << 20,
        None => {
            let usual = engine.sequences_max.min(memory::STATE_SEQUENCES);
            let usual = StateBudget::wanted(&config, usual).bytes();
            let bytes = memory::kv_bytes(position_bytes, usual as u64);
            usize::try_from(bytes).unwrap_or(usize::MAX)
        }
    };
    let states = states.within(kv_bytes, has_keys)?;
    let affordable = (kv_bytes - states.bytes()) / page_bytes;
    let whole = config.context_max.div_ceil(PAGE_TOKENS);
    let useful = if has_keys {
        engine.sequences_max.saturating_mul(whole)
    } else {
        whole.max(memory::STATE_SEQUENCES * memory::KV_POSITIONS as usize / PAGE_TOKENS)
    };
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
        states: states.count,
        rows_max: engine.step_tokens,
        logit_rows_max: engine.sequences_max.min(engine.step_tokens),
        mtp: config.mtp,
    })
}

/// The decoder in these files, with its MTP head if speculation uses one.
fn decoder_config(files: &ModelFiles, settings: &Settings) -> Result<Config, Failure> {
    let config = files.config(settings.model.context);
    let config = config.map_err(Failure::user)?;
    match settings.engine.speculation {
        Speculation::Mtp => config.with_mtp().map_err(Failure::user),
        _ => Ok(config),
    }
}

/// An open draft model with the target model's vocabulary.
pub(super) struct DraftModel {
    source: ModelSource,
    files: ModelFiles,
    settings: Settings,
}

impl DraftModel {
    /// Finds the draft model of the settings, if speculation uses one.
    pub(super) fn find(settings: &Settings, large: &Tokenizer) -> Result<Option<Self>, Failure> {
        let engine = &settings.engine;
        let Some(path) = engine
            .draft_model
            .as_ref()
            .filter(|_| engine.speculation == Speculation::Draft)
        else {
            return Ok(None);
        };
        let mut settings = settings.clone();
        settings.model.path = Some(path.clone());
        settings.model.kv_mib = None;
        settings.model.context = None;
        settings.model.adapters.clear();
        let source = find_model(&settings)?;
        let files = source.open(settings.model.quantize)?;
        if !ModelPurpose::of(&files).is_causal {
            return Err(Failure::user(format!(
                "engine.draft_model {}: is an encoder, which drafts no tokens",
                path.display()
            )));
        }
        let draft_text = ModelText::read(&source, &files)?;
        expect_same_vocabulary(large, &draft_text.tokenizer).map_err(|why| {
            Failure::user(format!("engine.draft_model {}: {why}", path.display()))
        })?;
        Ok(Some(Self {
            source,
            files,
            settings,
        }))
    }

    /// Packs the draft model's weights.
    pub(super) fn load(self) -> Result<PackedModel, Failure> {
        let isa = kernel_isa(self.settings.model.deterministic)?;
        load_weights(
            &self.source,
            (self.files, &[], None),
            isa,
            &self.settings,
            &mut |_| {},
        )
    }
}

/// A draft token is an id, which must stand for the same text in both vocabularies.
fn expect_same_vocabulary(large: &Tokenizer, draft: &Tokenizer) -> Result<(), String> {
    let (ours, theirs) = (large.vocab_size(), draft.vocab_size());
    if ours != theirs {
        return Err(format!(
            "it has {theirs} tokens, the model has {ours}; they must have the same vocabulary"
        ));
    }
    let pair = |id| (large.piece(id), draft.piece(id));
    match (0..ours as u32)
        .find(|&id| large.piece(id) != draft.piece(id))
        .map(|id| (id, pair(id)))
    {
        None => Ok(()),
        Some((id, (a, b))) => Err(format!(
            "token {id} is {:?}, the model's is {:?}; they must have the same vocabulary",
            b.unwrap_or_default(),
            a.unwrap_or_default()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model_files::model_text::vocabulary;
    use synth::SynthSpec;
    use testing::folder::Folder;
    use weights::gguf::Gguf;

    #[test]
    fn tiny_models_have_few_threads() {
        assert_eq!(default_threads(712_192, 2), 1, "the server-layer preset");
        assert_eq!(default_threads(3 << 20, 64), 3);
        assert_eq!(default_threads(3 << 20, 2), 2);
        assert_eq!(default_threads(u64::MAX, 64), 64);
        assert_eq!(default_threads(0, 0), 1);
    }

    #[test]
    fn encoder_is_refused() {
        let folder = Folder::new("draft-encoder");
        let path = folder.0.join("draft.gguf");
        let spec = SynthSpec::preset("tiny-gemma-embedding").unwrap();
        let gguf = Gguf::from_bytes(spec.to_bytes().unwrap()).unwrap();
        spec.create(None, &path).unwrap();
        let mut settings = Settings::default();
        settings.engine.speculation = Speculation::Draft;
        settings.engine.draft_model = Some(path);
        let large = vocabulary(&gguf.tokenizer().unwrap()).unwrap();
        let large = Tokenizer::from_vocab(large).unwrap();
        let found = DraftModel::find(&settings, &large).err().unwrap();
        assert!(
            found
                .to_string()
                .contains("is an encoder, which drafts no tokens"),
            "{found}"
        );
    }
}
