//! Memory of a model, loaded or not.

use super::adapters::OpenedAdapters;
use super::encoder::encoder_scratch_bytes;
use super::weights::load_options;
use crate::config::Settings;
use crate::failure::Failure;
use crate::model_files::ModelSource;
use cpu::ADAPTER_CHUNK_ROWS;
use cpu::{LoadOptions, PAGE_TOKENS, STATE_HEAD_ROWS};
use weights::Config;
use weights::config::{ExpertsConfig, StateHead};
use weights::encoder::EncoderKind;
use weights::{Adapter, ModelFiles};

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
    let weights = tensors / 100 * PACKED_PERCENT + tensors % 100;
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
}
