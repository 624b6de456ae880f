//! Encoders: texts in, hidden states or scores out.
//!
//! Every token of a text sees every other token, so a text is computed in one pass and keeps nothing afterwards. The
//! pages that the engine gives a text hold keys and values of one layer at a time.

mod pass;
mod scratch;

use crate::{LoadOptions, ModelBytes};
use kernels::{Isa, Pool};
use model::{Batch, Capabilities, Dims, Forward, ForwardError, PageId};
use pass::EncoderPass;
use weights::encoder::{EncoderConfig, EncoderKind};
use weights::parameters::{ClassifierHead, EncoderWeights};
use weights::{LoadError, ModelFiles, Packed, PackedSections};

/// An encoder that is ready to run. Owns the kernel threads, as [`Model`](crate::Model) does.
pub struct EncoderModel {
    config: EncoderConfig,
    dims: Dims,
    weights: EncoderWeights,
    pass: EncoderPass,
}

impl EncoderModel {
    /// Loads and packs an encoder's weights. The files are closed, and none of their memory remains. `progress` is
    /// called at the beginning and after each tensor. The storage format of keys and values is not chosen: an encoder
    /// keeps none.
    ///
    /// # Errors
    /// The first key, tensor or option that is missing or invalid; see [`LoadError`].
    pub fn load(
        files: impl Into<ModelFiles>,
        kind: EncoderKind,
        isa: Isa,
        pool: Pool,
        options: &LoadOptions,
        progress: &mut dyn FnMut(Packed),
    ) -> Result<Self, LoadError> {
        let sections = &mut PackedSections::none();
        Self::load_with(files, kind, (isa, pool), options, sections, progress)
    }

    /// As [`EncoderModel::load`]; packed matrices come from `sections` as far as it has them.
    ///
    /// # Errors
    /// As for [`EncoderModel::load`].
    pub fn load_with(
        files: impl Into<ModelFiles>,
        kind: EncoderKind,
        (isa, mut pool): (Isa, Pool),
        options: &LoadOptions,
        sections: &mut PackedSections,
        progress: &mut dyn FnMut(Packed),
    ) -> Result<Self, LoadError> {
        options.check()?;
        let files = files.into();
        let config = EncoderConfig::from_gguf(files.metadata(), kind, options.context_max)?;
        let weights = EncoderWeights::load(&files, &config, isa, &mut pool, sections, progress)?;
        drop(files); // the mapping must not outlive the load
        let dims = Dims {
            vocab: weights.embedding.rows(),
            context_max: config.context_max,
            page_tokens: options.page_tokens,
            pages: options.pages,
            rows_max: options.rows_max,
            logit_rows_max: options.logit_rows_max,
        };
        let pass = EncoderPass::new(&config, &weights, &dims, isa, pool)?;
        Ok(Self {
            config,
            dims,
            weights,
            pass,
        })
    }

    /// The encoder's configuration.
    pub fn config(&self) -> &EncoderConfig {
        &self.config
    }

    /// Memory by purpose.
    pub fn bytes(&self) -> ModelBytes {
        let (kv, scratch) = self.pass.bytes();
        ModelBytes {
            weights: self.weights.bytes(),
            kv,
            states: 0,
            scratch,
        }
    }
}

impl Forward for EncoderModel {
    fn dims(&self) -> Dims {
        self.dims
    }

    fn forward(&mut self, batch: &Batch) -> Result<&mut [f32], ForwardError> {
        self.pass
            .forward(&self.config, &self.weights, &self.dims, batch)?;
        Ok(&mut [])
    }

    fn capabilities(&self) -> Capabilities {
        let scores = self.weights.head.as_ref();
        Capabilities {
            is_causal: false,
            hidden_dim: scores.map_or(self.config.dim, ClassifierHead::classes),
            ..Capabilities::LOGITS
        }
    }

    fn hidden(&self) -> &[f32] {
        self.pass.hidden(self.config.ranks)
    }

    /// Nothing: no text outlives its batch.
    fn copy_page(&mut self, _: PageId, _: PageId) {}
}
