//! Recurrent layers: which there are, and their sizes.

use super::error::ConfigError;
use super::keys::Keys;
use super::limits;
use super::recurrent_rule::{MambaLayers, RecurrentRule};
use super::shapes::LayerShape;
use super::traits::Traits;
use kernels::{STATE_COLUMN_GROUP, ScanRule, ScanShape, StateShape};

/// The recurrent layers of a model, which keep a state of fixed size in place of keys and values.
#[derive(Clone, Debug, PartialEq)]
pub struct RecurrentConfig {
    /// Whether each layer is recurrent; at least one is.
    pub layers: Vec<bool>,
    /// Taps of the convolution over time.
    pub taps: usize,
    /// The part after the convolution.
    pub part: RecurrentPart,
}

/// Parts of a recurrent layer besides a convolution over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecurrentPart {
    /// Gated DeltaNet, or Mamba-2.
    Scan(ScanShape),
    /// Nothing: a gated convolution of so many columns.
    Nothing(usize),
}

const TAPS: &str = "ssm.conv_kernel";
const STATE: &str = "ssm.state_size";
const INNER: &str = "ssm.inner_size";
const GROUPS: &str = "ssm.group_count";
const HEADS: &str = "ssm.time_step_rank";
const LAYERS: &str = "attention.recurrent_layers";
const PERIOD: &str = "full_attention_interval";
const KV_HEADS: &str = "attention.head_count_kv";

/// Each layer is recurrent except each fourth, unless the metadata say otherwise.
const PERIOD_DEFAULT: usize = 4;

/// Reads the recurrent layers of a family that has them, in a stream `dim` wide, with layers of these shapes; `ignored`
/// layers more are in the file.
pub(super) fn read(
    keys: &Keys<'_>,
    traits: &Traits,
    dim: usize,
    shapes: &[LayerShape],
    ignored: usize,
) -> Result<Option<RecurrentConfig>, ConfigError> {
    let Some(rule) = traits.recurrent else {
        return Ok(None);
    };
    let (taps, part) = match rule {
        RecurrentRule::Delta { grouped } => (TAPS, RecurrentPart::Scan(read_delta(keys, grouped)?)),
        RecurrentRule::Mamba(_) => (TAPS, RecurrentPart::Scan(read_mamba(keys)?)),
        RecurrentRule::Convolution => ("shortconv.l_cache", RecurrentPart::Nothing(dim)),
    };
    let taps = keys.required(taps, 2, limits::TAPS)?;
    let layers = match rule {
        RecurrentRule::Delta { .. } => read_layers(keys, shapes.len(), ignored)?,
        RecurrentRule::Mamba(MambaLayers::BesideAttention | MambaLayers::All) => {
            vec![true; shapes.len()]
        }
        RecurrentRule::Mamba(MambaLayers::WithoutOthers) => layers_without_others(keys, shapes)?,
        RecurrentRule::Mamba(MambaLayers::WithoutHeads) | RecurrentRule::Convolution => {
            let layers: Vec<_> = shapes.iter().map(|shape| !shape.attends()).collect();
            check_layers(keys, KV_HEADS, &layers)?;
            layers
        }
    };
    Ok(Some(RecurrentConfig { layers, taps, part }))
}

/// The layers with neither attention nor a feed-forward part; rejects a layer with both.
fn layers_without_others(keys: &Keys<'_>, shapes: &[LayerShape]) -> Result<Vec<bool>, ConfigError> {
    let mut each = Vec::with_capacity(shapes.len());
    for (layer, shape) in shapes.iter().enumerate() {
        if shape.attends() && shape.hidden > 0 {
            let bound = format!("0 in layer {layer}, which has a feed-forward part");
            return Err(keys.range(KV_HEADS, shape.kv_heads, bound));
        }
        each.push(!shape.attends() && shape.hidden == 0);
    }
    check_layers(keys, KV_HEADS, &each)?;
    Ok(each)
}

/// Heads of values and of keys.
fn read_heads(keys: &Keys<'_>) -> Result<(usize, usize), ConfigError> {
    let groups = keys.required(GROUPS, 1, limits::HEADS)?;
    let heads = keys.required(HEADS, 1, limits::HEADS)?;
    if !heads.is_multiple_of(groups) {
        let bound = format!("a multiple of {groups}, the number of key heads ({GROUPS})");
        return Err(keys.range(HEADS, heads, bound));
    }
    Ok((heads, groups))
}

fn read_delta(keys: &Keys<'_>, grouped: bool) -> Result<ScanShape, ConfigError> {
    let (value_heads, key_heads) = read_heads(keys)?;
    let dim = keys.required(STATE, STATE_COLUMN_GROUP, limits::HEAD_DIM)?;
    check_columns(keys, (STATE, dim), dim, value_heads)?;
    let inner = keys.required(INNER, 1, limits::HIDDEN)?;
    if inner != value_heads * dim {
        let wanted = value_heads * dim;
        return Err(keys.range(
            INNER,
            inner,
            format!("{wanted}, which is {HEADS} times {STATE}"),
        ));
    }
    Ok(ScanShape {
        key_heads,
        value_heads,
        key_dim: dim,
        value_dim: dim,
        grouped,
        rule: ScanRule::Delta,
    })
}

fn read_mamba(keys: &Keys<'_>) -> Result<ScanShape, ConfigError> {
    let (value_heads, key_heads) = read_heads(keys)?;
    let inner = keys.required(INNER, 1, limits::HIDDEN)?;
    if !inner.is_multiple_of(value_heads) {
        let bound = format!("a multiple of {value_heads}, the number of heads ({HEADS})");
        return Err(keys.range(INNER, inner, bound));
    }
    let value_dim = inner / value_heads;
    check_columns(keys, (INNER, inner), value_dim, value_heads)?;
    Ok(ScanShape {
        key_heads,
        value_heads,
        key_dim: keys.required(STATE, 1, limits::HEAD_DIM)?,
        value_dim,
        grouped: true,
        rule: ScanRule::Linear,
    })
}

/// Rejects heads of values with columns that kernels cannot read.
fn check_columns(
    keys: &Keys<'_>,
    (name, found): (&str, usize),
    dim: usize,
    heads: usize,
) -> Result<(), ConfigError> {
    let whole = dim.is_multiple_of(STATE_COLUMN_GROUP) && dim <= limits::HEAD_DIM;
    if whole && (heads * dim).is_multiple_of(limits::COLUMN_GROUP) {
        return Ok(());
    }
    let bound = format!(
        "a multiple of {STATE_COLUMN_GROUP} for each head ({HEADS}), at most {}, and of {} for all",
        limits::HEAD_DIM,
        limits::COLUMN_GROUP
    );
    Err(keys.range(name, found, bound))
}

fn read_layers(keys: &Keys<'_>, layers: usize, ignored: usize) -> Result<Vec<bool>, ConfigError> {
    if let Some(each) = keys.flags(LAYERS, layers + ignored)? {
        let each = each[..layers].to_vec();
        check_layers(keys, LAYERS, &each)?;
        return Ok(each);
    }
    let period = keys.size(PERIOD, 1, limits::LAYERS)?;
    let period = period.unwrap_or(PERIOD_DEFAULT);
    let each: Vec<_> = (1..=layers).map(|layer| layer % period != 0).collect();
    check_layers(keys, PERIOD, &each)?;
    Ok(each)
}

/// Rejects a model in which all layers are recurrent, or none.
fn check_layers(keys: &Keys<'_>, name: &str, each: &[bool]) -> Result<(), ConfigError> {
    if each.contains(&true) && each.contains(&false) {
        return Ok(());
    }
    let found = if each.contains(&true) { "all" } else { "none" };
    let bound = format!("recurrent layers and others among the {}", each.len());
    Err(keys.range(name, found, bound))
}

impl RecurrentConfig {
    /// Number of recurrent layers.
    pub fn count(&self) -> usize {
        self.layers.iter().filter(|recurrent| **recurrent).count()
    }

    /// Columns of the convolution.
    pub fn conv_cols(&self) -> usize {
        match &self.part {
            RecurrentPart::Scan(heads) => heads.cols(),
            RecurrentPart::Nothing(cols) => *cols,
        }
    }

    /// The widest input of a projection.
    pub fn cols_max(&self) -> usize {
        match &self.part {
            RecurrentPart::Scan(heads) => heads.value_cols(),
            RecurrentPart::Nothing(cols) => *cols,
        }
    }

    /// Sizes of a sequence's state in these layers.
    pub fn state_shape(&self) -> StateShape {
        StateShape {
            layers: self.count(),
            conv_rows: self.taps - 1,
            conv_cols: self.conv_cols(),
            scan_len: match &self.part {
                RecurrentPart::Scan(heads) => heads.state_len(),
                RecurrentPart::Nothing(_) => 0,
            },
        }
    }

    /// Columns of a row's workspace, in f32.
    pub fn workspace_cols(&self) -> usize {
        let mixed = 2 * self.conv_cols();
        mixed
            + match &self.part {
                RecurrentPart::Scan(heads) => 2 * heads.value_cols() + 4 * heads.value_heads,
                RecurrentPart::Nothing(cols) => 3 * cols,
            }
    }
}
