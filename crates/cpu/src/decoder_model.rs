//! A loaded model: owner of weights, KV cache, workspace and threads.

use crate::decoder::Decoder;
use crate::tower::Tower;
use kernels::{Isa, KvKind, Pool};
use model::{
    AdvanceBlock, Batch, Capabilities, Dims, Encode, EncodeError, EncoderDims, EncoderInput,
    ExportPages, Forward, ForwardError, PageId, Predict,
};
use weights::adapters::check_adapters;
use weights::parameters::Weights;
use weights::vision::VisionConfig;
use weights::{Adapter, Config, ConfigError, LoadError, ModelFiles, Packed, PackedSections};

/// Default number of positions in a page.
pub const PAGE_TOKENS: usize = 32;
/// The most positions a page may have.
pub const PAGE_TOKENS_MAX: usize = 4096;
/// The most pages; ids are u32.
pub const PAGES_MAX: usize = 1 << 24;
/// The most states of sequences.
pub const STATES_MAX: usize = 1 << 20;
/// Largest number of rows in a batch; the workspace grows with the rows.
pub const ROWS_MAX: usize = 1 << 16;

/// A model without a tower is asked for rows.
const NO_TOWER: EncodeError = EncodeError::BadInput("the model has no tower");

/// Sizes that are chosen at load, not given by the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    /// Positions of a sequence; `None` means the context of the training.
    pub context_max: Option<usize>,
    /// Positions in one page, at most [`PAGE_TOKENS_MAX`].
    pub page_tokens: usize,
    /// Pages of the KV cache, at most [`PAGES_MAX`].
    pub pages: usize,
    /// Storage format of keys and values.
    pub kv: KvKind,
    /// States of sequences, at most [`STATES_MAX`], in a model with recurrent layers; without effect in others.
    pub states: usize,
    /// Rows of one batch, at most [`ROWS_MAX`].
    pub rows_max: usize,
    /// Rows of logits in one batch, at most `rows_max`.
    pub logit_rows_max: usize,
    /// Whether the file's MTP head is loaded, for [`Forward::mtp_head`].
    pub mtp: bool,
}

impl LoadOptions {
    pub(crate) fn check(&self) -> Result<(), LoadError> {
        let bound = |name, given, most| {
            if (1..=most).contains(&given) {
                Ok(())
            } else {
                Err(LoadError::Option {
                    name,
                    given,
                    least: 1,
                    most,
                })
            }
        };
        bound("page_tokens", self.page_tokens, PAGE_TOKENS_MAX)?;
        bound("pages", self.pages, PAGES_MAX)?;
        bound("rows_max", self.rows_max, ROWS_MAX)?;
        bound("logit_rows_max", self.logit_rows_max, self.rows_max)
    }

    /// The decoder that is loaded from these files.
    ///
    /// # Errors
    /// As for [`ModelFiles::config`]; or there is no MTP head to load.
    pub fn config(&self, files: &ModelFiles) -> Result<Config, ConfigError> {
        let config = files.config(self.context_max)?;
        if self.mtp {
            config.with_mtp()
        } else {
            Ok(config)
        }
    }

    /// Rejects a number of states that a model with recurrent layers cannot have.
    fn check_states(&self, config: &Config) -> Result<(), LoadError> {
        let Some(bytes) = config.state_bytes() else {
            return Ok(());
        };
        let most = STATES_MAX.min(isize::MAX as usize / bytes.max(1));
        if (1..=most).contains(&self.states) {
            Ok(())
        } else {
            Err(LoadError::Option {
                name: "states",
                given: self.states,
                least: 1,
                most,
            })
        }
    }
}

/// Memory of a model, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelBytes {
    /// Packed weights, and adapters.
    pub weights: usize,
    /// The KV cache with every page in use.
    pub kv: usize,
    /// The states of sequences with every state in use, in a model with recurrent layers.
    pub states: usize,
    /// The workspace of the forward pass.
    pub scratch: usize,
}

/// A model that is ready to run. Owns the kernel threads; the thread that calls [`Forward::forward`] is the
/// first worker.
pub struct Model {
    config: Config,
    dims: Dims,
    weights: Weights,
    decoder: Decoder,
    /// The encoder of images, if there is one.
    tower: Option<Tower>,
}

impl Model {
    /// Loads and packs a model's weights. The files are closed, and none of their memory remains. `progress`
    /// is called at the beginning and after each tensor.
    ///
    /// # Errors
    /// The first key, tensor or option that is missing or invalid; see [`LoadError`].
    pub fn load(
        files: impl Into<ModelFiles>,
        isa: Isa,
        pool: Pool,
        options: &LoadOptions,
        progress: &mut dyn FnMut(Packed),
    ) -> Result<Self, LoadError> {
        let sections = &mut PackedSections::none();
        Self::load_with(files, (isa, pool), options, sections, progress)
    }

    /// As [`Model::load`]; packed matrices come from `sections` as far as it has them. All bits are those of a load without.
    ///
    /// # Errors
    /// As for [`Model::load`]: a section that is missing or damaged is packed from the files.
    pub fn load_with(
        files: impl Into<ModelFiles>,
        (isa, mut pool): (Isa, Pool),
        options: &LoadOptions,
        sections: &mut PackedSections,
        progress: &mut dyn FnMut(Packed),
    ) -> Result<Self, LoadError> {
        options.check()?;
        let files = files.into();
        let config = options.config(&files)?;
        options.check_states(&config)?;
        let weights = Weights::load(&files, &config, isa, &mut pool, sections, progress)?;
        drop(files); // the mapping must not outlive the load
        let dims = Dims {
            vocab: weights.vocab(),
            context_max: config.context_max,
            page_tokens: options.page_tokens,
            pages: options.pages,
            rows_max: options.rows_max,
            logit_rows_max: options.logit_rows_max,
        };
        let cache = (options.kv, options.states);
        let decoder = Decoder::new(&config, &weights, &dims, cache, isa, pool)?;
        Ok(Self {
            config,
            dims,
            weights,
            decoder,
            tower: None,
        })
    }

    /// Loads a tower for the model, to be computed by the same threads. `config` is that of the files; `name` is the
    /// model's, for errors.
    ///
    /// # Errors
    /// The tower is that of another model, or as for [`Tower::load`].
    pub fn load_tower(
        &mut self,
        files: impl Into<ModelFiles>,
        config: VisionConfig,
        name: &str,
        progress: &mut dyn FnMut(Packed),
    ) -> Result<(), LoadError> {
        config.check_text(name, self.config.dim, self.config.deepstack)?;
        let machine = self.decoder.machine();
        self.tower = Some(Tower::load(files, config, machine, progress)?);
        Ok(())
    }

    /// The tower, if one is loaded.
    pub fn tower(&self) -> Option<&Tower> {
        self.tower.as_ref()
    }

    /// Replaces the adapters that batches may name: the adapter of number `i` is `adapters[i]`.
    ///
    /// # Errors
    /// As for [`check_adapters`].
    pub fn adapt(&mut self, adapters: &[Adapter]) -> Result<(), LoadError> {
        check_adapters(adapters)?;
        let sizes = (&self.config, &self.dims);
        let adapted = self.decoder.adapt(sizes, &mut self.weights, adapters);
        adapted.map_err(|error| LoadError::Pack {
            tensor: "of an adapter".into(),
            error,
        })
    }

    /// The model's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Memory by purpose.
    pub fn bytes(&self) -> ModelBytes {
        let (kv, states, scratch) = self.decoder.bytes();
        let (tower, picture) = self.tower.as_ref().map_or((0, 0), Tower::bytes);
        ModelBytes {
            weights: self.weights.bytes() + self.weights.adapter_bytes() + tower,
            kv,
            states,
            scratch: scratch + picture,
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

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            is_causal: self.config.is_causal(),
            states: self.decoder.state_count(),
            adapters: self.decoder.adapters(),
            hidden_dim: self.config.hidden_dim(),
            axes: self.config.has_axes(),
        }
    }

    fn hidden(&self) -> &[f32] {
        self.decoder.hidden()
    }

    fn copy_page(&mut self, from: PageId, to: PageId) {
        self.decoder.copy_page(from, to);
    }

    fn mtp_head(&mut self) -> Option<&mut dyn Predict> {
        if self.config.mtp { Some(self) } else { None }
    }

    fn encoder(&mut self) -> Option<&mut dyn Encode> {
        if self.tower.is_some() {
            Some(self)
        } else {
            None
        }
    }

    fn blocks(&mut self) -> Option<&mut dyn AdvanceBlock> {
        if self.config.has_blocks() {
            Some(self)
        } else {
            None
        }
    }

    fn page_export(&mut self) -> Option<&mut dyn ExportPages> {
        Some(self)
    }
}

impl AdvanceBlock for Model {
    fn begin_block(&mut self, batch: &Batch) -> Result<usize, ForwardError> {
        self.decoder.begin_block(&self.config, &self.dims, batch)
    }

    fn next_cost(&self, units_max: usize) -> u64 {
        self.decoder
            .next_block_cost(&self.config, &self.dims, units_max)
    }

    fn advance_block(&mut self, units_max: usize) -> Result<usize, ForwardError> {
        self.decoder
            .advance_block(&self.config, &self.weights, &self.dims, units_max)
    }
}

/// The tower. Without one every call is refused; [`Forward::encoder`] gives no such encoder.
impl Encode for Model {
    fn dims(&self) -> EncoderDims {
        let none = EncoderDims {
            row_width: 0,
            rows_max: 0,
        };
        self.tower.as_ref().map_or(none, Tower::dims)
    }

    fn begin(&mut self, input: &EncoderInput) -> Result<usize, EncodeError> {
        self.tower.as_mut().ok_or(NO_TOWER)?.begin(input)
    }

    fn next_cost(&self) -> u64 {
        self.tower.as_ref().map_or(1, Tower::next_cost)
    }

    fn advance(&mut self) -> Result<Option<&[f32]>, EncodeError> {
        let (_, pool) = self.decoder.machine();
        self.tower.as_mut().ok_or(NO_TOWER)?.advance(pool)
    }
}

impl Predict for Model {
    fn predict(&mut self, batch: &Batch) -> Result<&mut [f32], ForwardError> {
        self.decoder
            .guess(&self.config, &self.weights, &self.dims, batch)
    }
}

impl ExportPages for Model {
    fn page_bytes(&self) -> usize {
        self.decoder.page_bytes()
    }

    fn export_page(&self, page: PageId, bytes: &mut [u8]) -> Result<(), ForwardError> {
        self.decoder.export_page(page, bytes);
        Ok(())
    }

    fn import_page(&mut self, page: PageId, bytes: &[u8]) {
        self.decoder.import_page(page, bytes);
    }
}
