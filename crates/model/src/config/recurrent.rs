//! Recurrent layers: which there are, and their sizes.

use super::error::ConfigError;
use super::keys::Keys;
use super::limits;
use super::traits::Traits;
use kernels::{DeltaShape, STATE_COLUMN_GROUP, StateShape};

/// The recurrent layers of a model: gated DeltaNet, which keeps a state of fixed size in place of keys and values.
#[derive(Clone, Debug, PartialEq)]
pub struct RecurrentConfig {
    /// Whether each layer is recurrent; at least one is, and at least one is not.
    pub layers: Vec<bool>,
    /// Taps of the convolution over time.
    pub taps: usize,
    /// Heads and their sizes.
    pub heads: DeltaShape,
}

const TAPS: &str = "ssm.conv_kernel";
const STATE: &str = "ssm.state_size";
const INNER: &str = "ssm.inner_size";
const KEY_HEADS: &str = "ssm.group_count";
const VALUE_HEADS: &str = "ssm.time_step_rank";
const LAYERS: &str = "attention.recurrent_layers";
const PERIOD: &str = "full_attention_interval";

/// Each layer is recurrent except each fourth, unless the metadata say otherwise.
const PERIOD_DEFAULT: usize = 4;

/// Reads the recurrent layers of a family that has them. `ignored` layers more are in the file.
pub(super) fn read(
    keys: &Keys<'_>,
    traits: &Traits,
    layers: usize,
    ignored: usize,
) -> Result<Option<RecurrentConfig>, ConfigError> {
    let Some(rule) = traits.recurrent else {
        return Ok(None);
    };
    let key_heads = keys.required(KEY_HEADS, 1, limits::HEADS)?;
    let value_heads = keys.required(VALUE_HEADS, 1, limits::HEADS)?;
    if !value_heads.is_multiple_of(key_heads) {
        let bound = format!("a multiple of {key_heads}, the number of key heads ({KEY_HEADS})");
        return Err(keys.range(VALUE_HEADS, value_heads, bound));
    }
    let dim = keys.required(STATE, STATE_COLUMN_GROUP, limits::HEAD_DIM)?;
    if !dim.is_multiple_of(STATE_COLUMN_GROUP)
        || !(value_heads * dim).is_multiple_of(limits::COLUMN_GROUP)
    {
        let bound = format!(
            "a multiple of {STATE_COLUMN_GROUP}, and times the heads ({VALUE_HEADS}) one of {}",
            limits::COLUMN_GROUP
        );
        return Err(keys.range(STATE, dim, bound));
    }
    let inner = keys.required(INNER, 1, limits::HIDDEN)?;
    if inner != value_heads * dim {
        let bound = format!(
            "{}, which is {VALUE_HEADS} times {STATE}",
            value_heads * dim
        );
        return Err(keys.range(INNER, inner, bound));
    }
    Ok(Some(RecurrentConfig {
        layers: read_layers(keys, layers, layers + ignored)?,
        taps: keys.required(TAPS, 2, limits::TAPS)?,
        heads: DeltaShape {
            key_heads,
            value_heads,
            key_dim: dim,
            value_dim: dim,
            grouped: rule.grouped,
        },
    }))
}

fn read_layers(keys: &Keys<'_>, layers: usize, all: usize) -> Result<Vec<bool>, ConfigError> {
    let each = match keys.flags(LAYERS, all)? {
        Some(each) => each[..layers].to_vec(),
        None => {
            let period = keys
                .size(PERIOD, 1, limits::LAYERS)?
                .unwrap_or(PERIOD_DEFAULT);
            (1..=layers).map(|layer| layer % period != 0).collect()
        }
    };
    match (each.contains(&true), each.contains(&false)) {
        (true, true) => Ok(each),
        _ => {
            let name = if keys.get(LAYERS).is_some() {
                LAYERS
            } else {
                PERIOD
            };
            let found = if each.contains(&true) { "all" } else { "none" };
            let bound = format!("recurrent layers and others among the {layers}");
            Err(keys.range(name, found, bound))
        }
    }
}

impl RecurrentConfig {
    /// Number of recurrent layers.
    pub fn count(&self) -> usize {
        self.layers.iter().filter(|recurrent| **recurrent).count()
    }

    /// What a sequence keeps in these layers.
    pub fn state_shape(&self) -> StateShape {
        StateShape {
            layers: self.count(),
            conv_rows: self.taps - 1,
            conv_cols: self.heads.cols(),
            scan_len: self.heads.state_len(),
        }
    }
}
