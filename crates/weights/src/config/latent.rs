//! Latent attention (MLA, DeepSeek V2): keys and values of all heads are projections of one short vector, the latent.
//!
//! The projections of keys are part of the queries, and those of values follow attention (the absorbed form), so that the
//! cache holds one head for a position: the part of the key that turns, and the latent, which is also the value.

use super::keys::Keys;
use super::traits::Traits;
use super::{COLUMN_GROUP, ConfigError, HeadSizes, RopeConfig, limits};

/// Sizes of latent attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatentConfig {
    /// Inner width of the query projection; `None`: the projection is one matrix.
    pub query_rank: Option<usize>,
    /// Elements of a latent.
    pub rank: usize,
    /// Elements of a query or key head that turn; all heads have the same key of these.
    pub turned: usize,
    /// The other elements of a query or key head.
    pub plain: usize,
    /// Elements of a value head.
    pub value: usize,
}

const RANK: &str = "attention.kv_lora_rank";
const QUERY_RANK: &str = "attention.q_lora_rank";
const TURNED: &str = "rope.dimension_count";
const QUERIES: &str = "attention.head_count";
/// Files with projections in one piece have the second name only, which means other sizes elsewhere.
const KEY: [&str; 2] = ["attention.key_length_mla", "attention.key_length"];
const VALUE: [&str; 2] = ["attention.value_length_mla", "attention.value_length"];

impl LatentConfig {
    /// The sizes, in a family with latent attention.
    pub(super) fn read(keys: &Keys<'_>, traits: &Traits) -> Result<Option<Self>, ConfigError> {
        if !traits.latent {
            return Ok(None);
        }
        let turned = keys.required(TURNED, 2, limits::HEAD_DIM / 2)?;
        if !turned.is_multiple_of(2) {
            return Err(keys.range(TURNED, turned, "even"));
        }
        let rank = keys.required(RANK, COLUMN_GROUP, limits::HEAD_DIM - turned)?;
        check_group(keys, RANK, rank)?;
        let query_rank = keys.size(QUERY_RANK, 0, limits::DIM)?.unwrap_or(0);
        check_group(keys, QUERY_RANK, query_rank)?;
        let (name, key) = first_of(keys, KEY)?;
        let plain = key.saturating_sub(turned);
        if plain == 0 || !plain.is_multiple_of(COLUMN_GROUP) {
            let bound =
                format!("{turned} (rope.dimension_count) plus a multiple of {COLUMN_GROUP}");
            return Err(keys.range(name, key, bound));
        }
        let (name, value) = first_of(keys, VALUE)?;
        check_group(keys, name, value)?;
        Ok(Some(Self {
            query_rank: (query_rank > 0).then_some(query_rank),
            rank,
            turned,
            plain,
            value,
        }))
    }

    /// Heads as attention sees them: all queries read one key, which has the latent.
    pub(super) fn heads(&self, keys: &Keys<'_>) -> Result<HeadSizes, ConfigError> {
        Ok(HeadSizes {
            queries: keys.required(QUERIES, 1, limits::HEADS)?,
            keys: 1,
            dim: self.head_dim(),
            local_dim: self.head_dim(),
        })
    }

    /// Elements of a head in the cache: those that turn come first.
    pub fn head_dim(&self) -> usize {
        self.turned + self.rank
    }

    /// Elements of a query head before its key projection.
    pub fn query(&self) -> usize {
        self.plain + self.turned
    }

    /// Bytes of a row's workspace besides that of attention, of a model with so many heads.
    pub fn workspace_row_bytes(&self, heads: usize) -> usize {
        let by_head = 4 * (2 * self.plain + self.turned + self.rank + 2 * self.value);
        let inputs = 7 * self.plain.max(self.rank) + 192;
        let others = 4 * (self.query_rank.unwrap_or(0) + self.head_dim());
        heads * (by_head + inputs) + others
    }

    /// The widest input of a projection, of a model with so many heads.
    pub(super) fn cols_max(&self, heads: usize) -> usize {
        (heads * self.value).max(self.query_rank.unwrap_or(0))
    }

    /// Factor of the attention scores. YaRN's factor of queries and keys applies to their whole length, though only a part of
    /// them turns, and grows once more with `yarn_log_multiplier`, of which files have a tenth.
    ///
    /// Source: llama.cpp, `src/models/deepseek2.cpp`.
    pub(super) fn score_scale(
        &self,
        keys: &Keys<'_>,
        rope: &RopeConfig,
    ) -> Result<f32, ConfigError> {
        let weight = keys.float("rope.scaling.yarn_log_multiplier", limits::TEMPERATURE)?;
        let tenth_log = 0.1 * (1.0 / rope.freq_scale).max(1.0).ln();
        let magnitude = rope.attention_factor * (1.0 + tenth_log);
        let sharpened = magnitude * (1.0 + 10.0 * weight.unwrap_or(0.0) * tenth_log);
        Ok(sharpened * sharpened / (self.query() as f32).sqrt())
    }
}

/// The first of two keys that is there, and its length of a head.
fn first_of<'a>(keys: &Keys<'_>, names: [&'a str; 2]) -> Result<(&'a str, usize), ConfigError> {
    match keys.size(names[0], 1, limits::HEAD_DIM)? {
        Some(size) => Ok((names[0], size)),
        None => Ok((names[1], keys.required(names[1], 1, limits::HEAD_DIM)?)),
    }
}

fn check_group(keys: &Keys<'_>, name: &str, size: usize) -> Result<(), ConfigError> {
    if size.is_multiple_of(COLUMN_GROUP) {
        Ok(())
    } else {
        Err(keys.range(name, size, format!("a multiple of {COLUMN_GROUP}")))
    }
}
