//! Sizes that are chosen at load.

use kernels::KvKind;
use weights::{Config, LoadError};

/// The most positions that a page may have.
const PAGE_TOKENS_MAX: usize = 4096;
/// The most states of sequences.
const STATES_MAX: usize = 1 << 20;
/// The most draws of a batch.
const DRAWS_MAX: usize = 1 << 20;
/// The most pages.
const PAGES_MAX: usize = 1 << 24;
/// The most rows of a batch; workspace on the device grows with them.
const ROWS_MAX: usize = 1 << 14;

/// Sizes that are chosen at load, not given by the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Positions of a sequence; `None` means the context of the training.
    pub context_max: Option<usize>,
    /// Positions in one page, 1 to 4096.
    pub page_tokens: usize,
    /// Pages of keys and values, 1 to 2^24.
    pub pages: usize,
    /// Rows of one batch, 1 to 16,384.
    pub rows_max: usize,
    /// Rows of logits in one batch, 1 to `rows_max`.
    pub logit_rows_max: usize,
    /// Sequences of one batch, 1 to `rows_max`; the page tables of so many are uploaded with each batch.
    pub spans_max: usize,
    /// Draws of one batch, 1 to 2^20.
    pub draws_max: usize,
    /// Storage format of keys and values.
    pub kv: KvKind,
    /// States of sequences, 1 to 2^20, in a model with recurrent layers; without effect in others.
    pub states: usize,
    /// Rows of a block, at most, where that is more than `rows_max`: rows of an image that see each other.
    pub block_rows: usize,
    /// Whether the file's MTP head is loaded.
    pub mtp: bool,
    /// Whether rows may be vectors in place of tokens, from an encoder.
    pub vectors: bool,
    /// Whether a row has the same bits in batches of all sizes; else it has them in batches of fewer than 16 rows, and
    /// larger ones are computed faster.
    pub exact: bool,
}

impl Options {
    /// Rejects an option that is out of bounds.
    pub(crate) fn check(&self) -> Result<(), LoadError> {
        bound("page_tokens", self.page_tokens, PAGE_TOKENS_MAX)?;
        bound("pages", self.pages, PAGES_MAX)?;
        bound("rows_max", self.rows_max, ROWS_MAX)?;
        bound("block_rows", self.block_rows.max(1), ROWS_MAX)?;
        bound("logit_rows_max", self.logit_rows_max, self.rows_max)?;
        bound("spans_max", self.spans_max, self.rows_max)?;
        bound("draws_max", self.draws_max, DRAWS_MAX)
    }

    /// Rejects a number of states that a model with recurrent layers cannot have.
    pub(crate) fn check_states(&self, config: &Config) -> Result<(), LoadError> {
        match config.recurrent {
            Some(_) => bound("states", self.states, STATES_MAX),
            None => Ok(()),
        }
    }
}

fn bound(name: &'static str, given: usize, most: usize) -> Result<(), LoadError> {
    if (1..=most).contains(&given) {
        return Ok(());
    }
    Err(LoadError::Option {
        name,
        given,
        least: 1,
        most,
    })
}
