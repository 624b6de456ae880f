//! A loaded model: weights, KV cache, scratch and threads under one owner.

use crate::decoder::Decoder;
use crate::files::ModelFiles;
use crate::weights::{Packed, Weights};
use crate::{Batch, Config, Dims, Forward, ForwardError, LoadError, PageId};
use kernels::{Isa, KvKind, Pool};

/// Positions in one page, unless told otherwise.
pub const PAGE_TOKENS: usize = 32;
/// The most positions a page may have.
pub const PAGE_TOKENS_MAX: usize = 4096;
/// The most pages; ids are u32.
pub const PAGES_MAX: usize = 1 << 24;
/// The most rows one batch may have; scratch grows with them.
pub const ROWS_MAX: usize = 1 << 16;

/// The sizes that are chosen, not given by the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    /// Positions a sequence may have; `None`: what the model was trained for.
    pub context_max: Option<usize>,
    /// Positions in one page, at most [`PAGE_TOKENS_MAX`].
    pub page_tokens: usize,
    /// Pages of the KV cache, at most [`PAGES_MAX`].
    pub pages: usize,
    /// How keys and values are kept.
    pub kv: KvKind,
    /// Rows one batch may have, at most [`ROWS_MAX`].
    pub rows_max: usize,
    /// Rows of logits one batch may ask for, at most `rows_max`.
    pub logit_rows_max: usize,
}

impl LoadOptions {
    fn check(&self) -> Result<(), LoadError> {
        let bound = |name, given, most| match (1..=most).contains(&given) {
            true => Ok(()),
            false => Err(LoadError::Option {
                name,
                given,
                least: 1,
                most,
            }),
        };
        bound("page_tokens", self.page_tokens, PAGE_TOKENS_MAX)?;
        bound("pages", self.pages, PAGES_MAX)?;
        bound("rows_max", self.rows_max, ROWS_MAX)?;
        bound("logit_rows_max", self.logit_rows_max, self.rows_max)
    }
}

/// Bytes a model keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelBytes {
    /// Packed weights.
    pub weights: usize,
    /// The KV cache, when every page has been used.
    pub kv: usize,
    /// What a forward pass works in.
    pub scratch: usize,
}

/// A model that is ready to run. Owns the kernel threads; whoever calls [`Forward::forward`] is
/// their first worker.
pub struct Model {
    config: Config,
    dims: Dims,
    weights: Weights,
    decoder: Decoder,
}

impl Model {
    /// Loads and packs a model's weights. Its files are closed; nothing of them stays in memory.
    /// `progress` is told after each tensor, first with nothing done, last with all.
    ///
    /// # Errors
    /// The first key, tensor or option that is missing or wrong; see [`LoadError`].
    pub fn load(
        files: impl Into<ModelFiles>,
        isa: Isa,
        mut pool: Pool,
        options: &LoadOptions,
        progress: &mut dyn FnMut(Packed),
    ) -> Result<Self, LoadError> {
        options.check()?;
        let files = files.into();
        let config = files.config(options.context_max)?;
        let weights = Weights::load(&files, &config, isa, &mut pool, progress)?;
        drop(files); // they must not outlive the load
        let dims = Dims {
            vocab: weights.vocab(),
            context_max: config.context_max,
            page_tokens: options.page_tokens,
            pages: options.pages,
            rows_max: options.rows_max,
            logit_rows_max: options.logit_rows_max,
        };
        let decoder = Decoder::new(&config, &weights, &dims, options.kv, isa, pool)?;
        Ok(Self {
            config,
            dims,
            weights,
            decoder,
        })
    }

    /// What the file's metadata says.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Memory, by what it is for.
    pub fn bytes(&self) -> ModelBytes {
        let (kv, scratch) = self.decoder.bytes();
        ModelBytes {
            weights: self.weights.bytes(),
            kv,
            scratch,
        }
    }
}

impl Forward for Model {
    fn dims(&self) -> Dims {
        self.dims
    }

    fn forward(&mut self, batch: &Batch) -> Result<&mut [f32], ForwardError> {
        self.decoder
            .forward(&self.config, &self.weights, &self.dims, batch)
    }

    fn hidden(&self) -> &[f32] {
        self.decoder.hidden()
    }

    fn hidden_dim(&self) -> usize {
        self.config.dim
    }

    fn copy_page(&mut self, from: PageId, to: PageId) {
        self.decoder.copy_page(from, to);
    }
}
