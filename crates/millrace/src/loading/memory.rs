//! Memory of a model, loaded or not.

use super::weights::load_options;
use crate::config::Settings;
use crate::failure::Failure;
use crate::model_files::ModelSource;
use model::{Model, PAGE_TOKENS};

/// Size of packed weights as a percentage of their size in the file, at most (docs/memory.md).
const PACKED_PERCENT: u64 = 106;
/// Workspace buffers for each row that are as wide as the residual stream, the queries, the keys, the feed-forward layer
/// and the rotation angles.
const WIDE: (usize, usize, usize, usize, usize) = (3, 2, 2, 2, 2);

/// Bytes of a loaded model with every page used.
pub(super) fn bytes_of(model: &Model) -> u64 {
    let bytes = model.bytes();
    (bytes.weights + bytes.kv + bytes.scratch) as u64
}

/// Bytes that a model would have once loaded, estimated from the header.
pub(crate) fn bytes_needed(source: &ModelSource, settings: &Settings) -> Result<u64, Failure> {
    let files = source.open(settings.model.quantize)?;
    let options = load_options(&files, settings)?;
    let config = files.config(options.context_max).map_err(Failure::user)?;
    let tensors: u64 = files.tensors().iter().map(|tensor| tensor.bytes).sum();
    let kv = config.kv_shape(options.pages, PAGE_TOKENS, options.kv);
    let kv = kv.bytes().unwrap_or(usize::MAX) as u64;
    let vocab = files
        .tensor("token_embd.weight")
        .map_or(0, |tensor| tensor.rows());
    let (stream, query, key, hidden, angles) = WIDE;
    let row = stream * config.dim
        + query * config.query_cols()
        + key * config.kv_cols()
        + hidden * config.hidden
        + angles * config.head_dim;
    let widest = config.dim.max(config.hidden).max(config.query_cols());
    let scratch =
        options.rows_max * (4 * row + 6 * widest + 192) + 4 * options.logit_rows_max * vocab;
    let weights = tensors / 100 * PACKED_PERCENT + tensors % 100;
    Ok(weights.saturating_add(kv).saturating_add(scratch as u64))
}
