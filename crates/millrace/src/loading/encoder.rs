//! Sizes of a model that computes a text in one step and keeps nothing of it: of encoders, and of decoders whose tokens see
//! later ones.

use super::memory::experts_scratch_bytes;
use super::weights::LoadedWeights;
use crate::config::Settings;
use crate::failure::Failure;
use cpu::{EncoderModel, LoadOptions, PAGE_TOKENS, PAGES_MAX, ROWS_MAX};
use kernels::{Isa, KvKind, Pool};
use weights::encoder::{EncoderConfig, EncoderKind};
use weights::{ModelFiles, Packed, PackedSections};

/// Rows of a batch for each page beside those of the longest text: texts that are shorter on average fill no batch.
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
