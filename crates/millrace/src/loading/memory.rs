//! Memory of a model, loaded or not: keys and values, states of sequences in a model with recurrent layers, and the
//! sizes of a model that computes a text in one step and keeps nothing of it.

use super::adapters::OpenedAdapters;
use super::tower::find_tower;
use super::weights::{LoadedWeights, load_options};
use crate::config::Settings;
use crate::failure::Failure;
use crate::model_files::ModelSource;
use cpu::{
    ADAPTER_CHUNK_ROWS, EncoderModel, LoadOptions, PAGE_TOKENS, PAGES_MAX, ROWS_MAX,
    STATE_HEAD_ROWS, STATES_MAX,
};
use engine::EngineConfig;
use kernels::{Isa, KvKind, Pool};
use weights::config::{ExpertsConfig, StateHead};
use weights::encoder::{EncoderConfig, EncoderKind};
use weights::{Adapter, Config, ModelFiles, Packed, PackedSections};

/// Size of packed weights as a percentage of their size in the file, at most (docs/memory.md).
const PACKED_PERCENT: u64 = 106;
/// Workspace buffers for each row that are as wide as the residual stream, the queries, the keys, the feed-forward layer
/// and the rotation angles.
const WIDE: (usize, usize, usize, usize, usize) = (3, 2, 2, 2, 2);

/// Columns of a row's workspace for several states of the stream, besides those as wide as the stream (Gemma 3n).
const STATE_COLUMNS: usize = 68;

/// Bytes that a model would have once loaded, estimated from the header.
pub(crate) fn bytes_needed(source: &ModelSource, settings: &Settings) -> Result<u64, Failure> {
    let files = source.open(settings.model.quantize)?;
    let options = load_options(&files, settings)?;
    let tensors: u64 = files.tensors().iter().map(|tensor| tensor.bytes).sum();
    let tower = find_tower(source, &files, settings)?;
    let tower = tower.map_or(0, |tower| tower.bytes());
    let weights = tensors / 100 * PACKED_PERCENT + tensors % 100 + tower;
    let others = match EncoderKind::of(files.metadata()) {
        Some(kind) => encoder_scratch_bytes(&files, kind, &options)?,
        None => decoder_scratch_bytes(&files, &options)?,
    };
    let adapters = OpenedAdapters::open(&files, settings)?;
    let adapters = adapters_bytes(&adapters, &files, &options)?;
    Ok(weights.saturating_add(others).saturating_add(adapters))
}

/// Bytes that a decoder's KV cache, states and workspace would have once loaded.
fn decoder_scratch_bytes(files: &ModelFiles, options: &LoadOptions) -> Result<u64, Failure> {
    let config = options.config(files).map_err(Failure::user)?;
    let kv = config.kv_bytes(options.pages, PAGE_TOKENS, options.kv);
    let kept = config.state_bytes().unwrap_or(0);
    let kept = kept.saturating_mul(options.states) as u64;
    let kv = (kv.unwrap_or(usize::MAX) as u64).saturating_add(kept);
    let vocab = files
        .tensor("token_embd.weight")
        .map_or(0, |tensor| tensor.rows());
    let (stream, query, key, hidden, angles) = WIDE;
    // Further states, their predictions, and a low-rank path of each.
    let states = match config.states() {
        1 => 0,
        states => (2 * states + 1) * config.dim + STATE_COLUMNS,
    };
    let row = stream * config.dim
        + query * config.query_cols()
        + key * config.kv_cols()
        + hidden * config.hidden
        + angles * config.head_dim
        + (config.layers + 1) * config.per_layer
        + states
        + 3 * config.mtp_cols()
        + recurrent_columns(&config);
    let experts = config.experts.map_or(0, |experts| {
        let sums = if config.sums_experts() {
            4 * options.rows_max * config.dim
        } else {
            0
        };
        sums + experts_scratch_bytes(&experts, config.dim, options.rows_max)
    });
    let latent = config.latent.map_or(0, |latent| {
        options.rows_max * latent.workspace_row_bytes(config.heads)
    });
    let widest = config.cols_max();
    let scratch = options.rows_max * (4 * row + 6 * widest + 192)
        + 4 * options.logit_rows_max * vocab
        + experts
        + latent
        + state_head_bytes(&config, options.rows_max);
    Ok(kv.saturating_add(scratch as u64))
}

/// Bytes of the workspace of a head on hidden states: the outputs of all rows, and what is between two projections of some.
fn state_head_bytes(config: &Config, rows_max: usize) -> usize {
    let inner = match config.state_head {
        None => return 0,
        Some(StateHead::YesNo) => 0,
        Some(StateHead::Dense { inner, .. }) => inner,
    };
    let some = rows_max.min(STATE_HEAD_ROWS);
    4 * rows_max * config.hidden_dim() + some * (4 * inner + 6 * inner.max(config.dim) + 192)
}

/// Columns of a row's workspace for recurrent layers and gates of attention.
fn recurrent_columns(config: &Config) -> usize {
    let Some(recurrent) = &config.recurrent else {
        return 0;
    };
    recurrent.workspace_cols() + config.gate_cols()
}

/// Bytes that adapters and the workspace of their products would have once loaded.
fn adapters_bytes(
    opened: &OpenedAdapters,
    files: &ModelFiles,
    options: &LoadOptions,
) -> Result<u64, Failure> {
    let adapters = &opened.adapters;
    let Some(rank) = adapters.iter().map(Adapter::rank).max() else {
        return Ok(0);
    };
    let config = options.config(files).map_err(Failure::user)?;
    let widest = config.cols_max().max(config.kv_cols());
    let (rows, read) = (options.rows_max.min(ADAPTER_CHUNK_ROWS), widest.max(rank));
    let packed: usize = adapters.iter().map(Adapter::packed_bytes).sum();
    Ok((packed + rows * (4 * (2 * widest + rank) + 7 * read + 192)) as u64)
}

/// Bytes of the workspace of experts: scores and lists of the choices, and the gathered rows.
pub(super) fn experts_scratch_bytes(experts: &ExpertsConfig, dim: usize, rows: usize) -> usize {
    let gathered = rows.max(experts.used);
    rows * (4 * experts.count + 16 * experts.used) + gathered * 4 * (2 * experts.hidden + dim)
}

/// Divisor for the share of the KV memory that states have at most.
const STATES_PART: usize = 2;

/// Divisor for the share that pages have at least in a model without keys and values, where a page is a table.
const TABLES_PART: usize = 16;

/// States of sequences; none in a model without recurrent layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateBudget {
    /// Number of states.
    pub(super) count: usize,
    /// Bytes of a state.
    each: usize,
}

impl StateBudget {
    /// The states that so many sequences need.
    pub(super) fn wanted(config: &Config, sequences: usize) -> Self {
        match config.state_bytes() {
            Some(each) => Self {
                count: EngineConfig::states_for(sequences).min(STATES_MAX),
                each,
            },
            None => Self { count: 0, each: 0 },
        }
    }

    /// Bytes of all states.
    pub(super) fn bytes(&self) -> usize {
        self.count.saturating_mul(self.each)
    }

    /// As many states as a half of `kv_bytes` holds, or nearly all of it in a model without keys and values.
    ///
    /// # Errors
    /// That part has no room for the states of a single sequence.
    pub(super) fn within(self, kv_bytes: usize, has_keys: bool) -> Result<Self, Failure> {
        let (part, name) = if has_keys {
            (kv_bytes / STATES_PART, "half")
        } else {
            (kv_bytes - kv_bytes / TABLES_PART, "fifteen sixteenths")
        };
        let count = match part.checked_div(self.each) {
            Some(affordable) => self.count.min(affordable),
            None => return Ok(self),
        };
        let sequences = EngineConfig::sequences_for(count);
        if sequences == 0 {
            return Err(Failure::user(format!(
                "model.kv_mib = {}: {name} of it has no room for {} states of {} bytes, which a sequence needs",
                kv_bytes >> 20,
                EngineConfig::states_for(1),
                self.each
            )));
        }
        if count < self.count {
            tracing::info!(
                "at most {sequences} sequences at a time: {name} of model.kv_mib has room for {count} states of {} bytes",
                self.each
            );
        }
        Ok(Self { count, ..self })
    }
}

/// Rows of a batch for each page in addition to those of the longest text: texts that are shorter on average fill no batch.
const ROWS_PER_PAGE: usize = 4;

/// Sizes of a loaded encoder.
pub(super) fn encoder_options(
    files: &ModelFiles,
    kind: EncoderKind,
    settings: &Settings,
) -> Result<LoadOptions, Failure> {
    let config = EncoderConfig::from_gguf(files.metadata(), kind, settings.model.context);
    let config = config.map_err(Failure::user)?;
    Ok(whole_text_options(config.context_max, settings))
}

/// Sizes of a model of this context that computes whole texts: a step has room for the longest text, and pages for a batch of
/// texts. `model.kv_mib` and `model.kv_type` have no part in them.
pub(super) fn whole_text_options(context_max: usize, settings: &Settings) -> LoadOptions {
    let context = context_max.min(ROWS_MAX);
    let engine = &settings.engine;
    let rows_max = engine.step_tokens.clamp(context, ROWS_MAX);
    let pages = context.div_ceil(PAGE_TOKENS) + rows_max.div_ceil(ROWS_PER_PAGE);
    LoadOptions {
        context_max: Some(context),
        page_tokens: PAGE_TOKENS,
        pages: pages.min(PAGES_MAX),
        kv: KvKind::F16,
        states: 0,
        rows_max,
        logit_rows_max: engine.sequences_max.min(rows_max),
        mtp: false,
    }
}

/// Loads an encoder's weights.
pub(super) fn load_encoder(
    files: ModelFiles,
    kind: EncoderKind,
    (isa, pool): (Isa, Pool),
    options: &LoadOptions,
    (sections, progress): (&mut PackedSections, &mut dyn FnMut(Packed)),
) -> Result<LoadedWeights, Failure> {
    let model = EncoderModel::load_with(files, kind, (isa, pool), options, sections, progress);
    let model = model.map_err(Failure::user)?;
    Ok((model.bytes(), Box::new(model)))
}

/// Bytes that an encoder's keys, values and workspace would have once loaded.
pub(super) fn encoder_scratch_bytes(
    files: &ModelFiles,
    kind: EncoderKind,
    options: &LoadOptions,
) -> Result<u64, Failure> {
    let config = EncoderConfig::from_gguf(files.metadata(), kind, options.context_max);
    let config = config.map_err(Failure::user)?;
    let kv = config.kv_shape(options.pages, PAGE_TOKENS).bytes();
    let feed_forward = if config.is_gated() {
        2 * config.hidden
    } else {
        config.hidden
    };
    let row = 3 * config.dim
        + 2 * config.query_cols()
        + 2 * config.kv_cols()
        + feed_forward
        + config.head_dim;
    let widest = config.dim.max(config.hidden).max(config.query_cols());
    let experts = config.experts.map_or(0, |each| {
        experts_scratch_bytes(&each.experts, config.dim, options.rows_max)
    });
    let scratch = options.rows_max * (4 * row + 6 * widest + 192) + experts;
    Ok((kv.unwrap_or(usize::MAX) as u64).saturating_add(scratch as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpu::Model;
    use kernels::{Isa, KvKind, Pool};
    use synth::SynthSpec;
    use weights::gguf::Gguf;

    #[test]
    fn estimates_are_near_what_a_loaded_model_has() {
        for (preset, mtp) in [
            ("small-llama", false),
            ("small-qwen3moe", false),
            ("small-deepseek2", false),
            ("small-qwen35", false),
            ("small-qwen35", true),
            ("small-mamba2", false),
            ("small-falcon-h1", false),
            ("small-nemotron_h", false),
            ("small-gemma4", false),
            ("small-gemma4-26b", false),
            ("small-gemma3n", false),
            ("small-gemma-embedding", false),
            ("small-qwen3-reranker", false),
        ] {
            let mut spec = SynthSpec::preset(preset).unwrap();
            spec.mtp = mtp;
            let bytes = spec.to_bytes().unwrap();
            let files = || ModelFiles::from(Gguf::from_bytes(bytes.clone()).unwrap());
            let options = LoadOptions {
                context_max: Some(256),
                page_tokens: PAGE_TOKENS,
                pages: 16,
                kv: KvKind::F16,
                states: 6,
                rows_max: 512,
                logit_rows_max: 16,
                mtp,
            };
            let estimate = decoder_scratch_bytes(&files(), &options).unwrap() as f64;
            let pool = Pool::new(1);
            let model = Model::load(files(), Isa::detect(), pool, &options, &mut |_| {});
            let bytes = model.unwrap().bytes();
            let found = (bytes.kv + bytes.states + bytes.scratch) as f64;
            let ratio = estimate / found;
            assert!(
                (0.85..1.2).contains(&ratio),
                "{preset}: {estimate} for {found}"
            );
        }
    }

    #[test]
    fn states_take_half_of_the_memory_at_most() {
        let wanted = StateBudget {
            count: 683,
            each: 1 << 20,
        };
        let count = |mib: usize, has_keys| {
            let budget = wanted.within(mib << 20, has_keys);
            budget.map(|budget| budget.count).ok()
        };
        assert_eq!(count(4096, true), Some(683));
        assert_eq!(count(1024, true), Some(512));
        assert_eq!(count(4, true), Some(2));
        assert_eq!(count(3, true), None);
        assert_eq!([count(512, false), count(3, false)], [Some(480), Some(2)]);
        for (has_keys, part) in [(true, "half"), (false, "fifteen sixteenths")] {
            let why = wanted.within(2 << 20, has_keys).unwrap_err().to_string();
            let begin = format!("model.kv_mib = 2: {part} of it has no room for");
            assert!(why.contains(&begin), "{why}");
        }
        let none = StateBudget { count: 0, each: 0 };
        assert_eq!(none.within(0, true).ok(), Some(none));
    }
}
