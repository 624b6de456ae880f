//! Configuration of a tower, typed and checked, from a file's metadata.

use super::minicpm::{self, RESAMPLER_OUT, ResamplerConfig};
use super::projector::{Activation, NormKind, Positions, Projector, TowerTraits};
use super::recipe;
use crate::config::keys::Keys;
use crate::config::{architecture_name, grouped, limits};
use crate::gguf::Gguf;
use crate::tensor_entry::TensorEntry;
use crate::{ConfigError, LoadError};
use kernels::Format;
use media::plan::Fit;
use media::{PatchOrder, Recipe, Rule};

/// `general.architecture` of a file with a tower.
const ARCHITECTURE: &str = "clip";
/// Pixels of a patch's edge.
const PATCH_MAX: usize = 64;
/// Pixels of a picture's edge.
pub(super) const EDGE_MAX: usize = media::plan::PARAMETER_MAX as usize;
/// Patches next to each other that become one row.
const MERGE_MAX: usize = 16;
/// The learned table of places.
pub(super) const POSITIONS: &str = "v.position_embd.weight";
/// Entries of the learned table along one edge.
pub(super) const TABLE_EDGE_MAX: usize = 1024;
/// Rows that a tower gives further text layers.
const DEEPSTACK_MAX: usize = 16;
/// Entries of a table of columns, and of one of rows.
const AXIS_MAX: usize = 1 << 16;
/// Layers whose outputs are side by side.
const FEATURES_MAX: usize = 16;
/// Pixels of the edge of a window of attention, where a file does not name it.
const WINDOW: usize = 112;
/// Epsilon of the norms where a file names none.
const EPS: f32 = 1e-6;

/// Rows of the stream that become one, two by two neighbors, in a tower that merges between layers.
pub const NEIGHBORS: usize = 4;

/// Which patches see each other. The recipe's order ([`media::PatchOrder::Windows`]) has the patches of a window together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windows {
    /// All of a picture.
    Whole,
    /// All of a picture in the last of so many layers, those of a window in the others.
    Layers {
        /// Layers from one that attends to the whole picture to the next.
        full_every: usize,
    },
    /// Those of a window, in all layers: each is a picture of its own, and places count from its corner.
    Pictures,
}

impl Windows {
    /// Whether patches see those of their own window only, in this layer.
    pub fn bound(self, layer: usize) -> bool {
        match self {
            Self::Whole => false,
            Self::Layers { full_every } => !(layer + 1).is_multiple_of(full_every),
            Self::Pictures => true,
        }
    }
}

/// Width and layers of the tower of InternVL whose norms are RMS norms (InternViT 6B): no key tells.
const INTERNVL_RMS: (usize, usize) = (3200, 45);

/// Whether a file holds a tower, and not a model of text.
pub fn is_tower(gguf: &Gguf) -> bool {
    architecture_name(gguf).is_ok_and(|name| name == ARCHITECTURE)
}

/// Configuration of a tower: all numbers that its pass needs besides the weights.
#[derive(Clone, Debug, PartialEq)]
pub struct VisionConfig {
    /// The kind of tower.
    pub projector: Projector,
    /// Properties of the kind.
    pub traits: TowerTraits,
    /// Layers that are computed.
    pub layers: usize,
    /// Layers that the file may have: later ones change no row.
    pub stored_layers: usize,
    /// Width of the stream.
    pub dim: usize,
    /// Width of the feed-forward parts.
    pub hidden: usize,
    /// Heads of attention; as many keys as queries.
    pub heads: usize,
    /// Pixels of a patch's edge.
    pub patch: usize,
    /// Entries of the learned table along one edge, in a tower with one; or of the table of each axis.
    pub table_edge: usize,
    /// Patches next to each other, in both directions, that become one row.
    pub merge: usize,
    /// Epsilon of every norm.
    pub norm_eps: f32,
    /// Non-linearity of the feed-forward parts.
    pub activation: Activation,
    /// Base of the frequencies of the 2D rope.
    pub theta: f32,
    /// Width of a row: that of the text's stream.
    pub projection_dim: usize,
    /// Layers after which rows for the next text layer are made, ascending.
    pub deepstack: Vec<usize>,
    /// Layers whose outputs stand side by side in the projector's input, in this order: 0 is the input of the first layer.
    /// Empty: the output of the last layer alone.
    pub features: Vec<usize>,
    /// Which patches see each other.
    pub windows: Windows,
    /// The resampler, in a tower with learned queries: patches of a slice become rows.
    pub resampler: Option<ResamplerConfig>,
    /// The layer after which two by two neighbors become one row of the stream; later layers compute these.
    pub merge_after: Option<usize>,
    /// The recipe by which an image becomes the tower's input.
    pub recipe: Recipe,
    /// The format that matrices of floats are converted to at load; `None`: they stay as they are stored.
    pub quantize: Option<Format>,
}

/// Tensors by their names.
pub(crate) type NamedTensors<'a> = dyn Fn(&str) -> Option<TensorEntry<'a>> + 'a;

impl VisionConfig {
    /// Reads and checks a file's metadata.
    ///
    /// # Errors
    /// The first key that is missing, of the wrong type, out of bounds or unsupported; a projector that is not computed is
    /// named.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, ConfigError> {
        Self::read(gguf, &|name| gguf.tensor(name).as_ref().map(Into::into))
    }

    /// Reads and checks metadata whose tensors are those of another file.
    pub(crate) fn read(gguf: &Gguf, tensors: &NamedTensors<'_>) -> Result<Self, ConfigError> {
        let name = architecture_name(gguf)?;
        if name != ARCHITECTURE {
            return Err(ConfigError::Architecture {
                found: name.chars().take(64).collect(),
            });
        }
        let clip = Keys::new(gguf, ARCHITECTURE);
        let keys = Keys::new(gguf, "clip.vision");
        let projector = read_projector(&clip, &keys)?;
        let mut traits = projector.traits();
        let dim = grouped(&keys, "embedding_length", limits::DIM)?;
        let LayerSizes {
            stored_layers,
            hidden,
            heads,
        } = LayerSizes::read(tensors, &keys, projector, dim)?;
        if projector == Projector::InternVl && (dim, stored_layers) == INTERNVL_RMS {
            traits.norm = NormKind::Rms;
        }
        let is_siglip = is_llava_of_siglip(tensors, projector);
        if is_siglip {
            traits = traits.of_siglip();
        }
        let (layers, features) = read_layers(&keys, projector, stored_layers)?;
        let (patch, merge) = read_patch(&keys, projector)?;
        let (image, table_edge) = read_table(tensors, &keys, projector, (patch, merge))?;
        let (windows, window_edge) = read_windows(&keys, projector, (patch, merge))?;
        let resampler = ResamplerConfig::read(&clip, projector)?;
        let merge_after = minicpm::read_merge_after(&keys, projector, (merge, layers))?;
        let mut recipe = recipe::read(&keys, projector, resampler, (image, patch, merge))?;
        adapt(&mut recipe, (merge, window_edge), is_siglip);
        let norm_eps = keys.float("attention.layer_norm_epsilon", limits::EPS)?;
        let theta = keys.float("rope.freq_base", limits::THETA)?;
        Ok(Self {
            projector,
            traits,
            layers,
            stored_layers,
            dim,
            hidden,
            heads,
            patch,
            // A picture has no more patches along an edge.
            table_edge: match recipe.rule {
                Rule::Slices(_) => table_edge,
                _ => table_edge.min(recipe.run_rows_max() as usize * merge),
            },
            merge,
            norm_eps: norm_eps.unwrap_or(EPS),
            activation: read_activation(&clip, projector, traits.activation)?,
            theta: theta.unwrap_or(traits.theta),
            projection_dim: read_projection(tensors, &keys, projector)?,
            deepstack: read_deepstack(&keys, layers)?,
            features,
            windows,
            resampler,
            merge_after,
            recipe,
            quantize: None,
        })
    }

    /// Elements of a head.
    pub fn head_dim(&self) -> usize {
        self.dim / self.heads
    }

    /// Factor of the scores of attention.
    pub fn score_scale(&self) -> f32 {
        if self.traits.normalized_values {
            1.0
        } else {
            1.0 / (self.head_dim() as f32).sqrt()
        }
    }

    /// Entries of the learned tables.
    pub fn table_entries(&self) -> usize {
        match self.traits.positions {
            None => 0,
            Some(Positions::Axes) => 2 * self.table_edge,
            Some(_) => self.table_edge * self.table_edge,
        }
    }

    /// Patches of one row.
    pub fn merged_patches(&self) -> usize {
        self.merge * self.merge
    }

    /// Rows of the stream that stand side by side in the projector's input, together as wide as this.
    pub fn side(&self) -> usize {
        let merged = if self.merge_after.is_some() {
            NEIGHBORS
        } else {
            1
        };
        self.dim * self.merged_patches() / merged * self.features.len().max(1)
    }

    /// Numbers of a patch: `3 * patch * patch`.
    pub fn patch_cols(&self) -> usize {
        3 * self.patch * self.patch
    }

    /// Elements of a row that the text takes: its stream, then what is added after its first layers.
    pub fn row_width(&self) -> usize {
        self.projection_dim * (1 + self.deepstack.len())
    }

    /// Rows of one picture, at most.
    pub fn rows_max(&self) -> usize {
        self.recipe.run_rows_max() as usize
    }

    /// Patches of one picture, at most.
    pub fn patches_max(&self) -> usize {
        match &self.recipe.rule {
            Rule::Slices(rule) => rule.patches_max() as usize,
            _ => self.rows_max().saturating_mul(self.merged_patches()),
        }
    }

    /// The name by which the marks of images in prompts are known: that of the projector, where the models of a projector
    /// were trained with the same.
    pub fn marks_name(&self) -> &'static str {
        match self.resampler {
            Some(resampler) if resampler.is_first => "resampler of MiniCPM-V 2.5",
            _ => self.projector.name(),
        }
    }

    /// Whether the tower fits to a text model, called `model`, with a stream of `dim` and rows for `deepstack` of its layers.
    ///
    /// # Errors
    /// The tower was made for another model: the key and both numbers.
    pub fn check_text(&self, model: &str, dim: usize, deepstack: usize) -> Result<(), LoadError> {
        let differs = |key: &str, found: usize, wanted: usize| {
            ConfigError::Range {
                key: format!("clip.vision.{key}"),
                found: found.to_string(),
                bound: format!("{wanted} as in model {model}: the tower is that of another model"),
            }
            .into()
        };
        if self.projection_dim != dim {
            return Err(differs("projection_dim", self.projection_dim, dim));
        }
        if self.deepstack.len() != deepstack {
            let found = self.deepstack.len();
            return Err(differs("is_deepstack_layers", found, deepstack));
        }
        Ok(())
    }
}

fn read_projector(clip: &Keys<'_>, keys: &Keys<'_>) -> Result<Projector, ConfigError> {
    let named = match keys.text("projector_type")? {
        Some(name) => Some(name),
        None => clip.text("projector_type")?,
    };
    let name = named.ok_or_else(|| clip.missing("projector_type"))?;
    if clip.flag("has_vision_encoder")? == Some(false) {
        return Err(clip.unsupported("has_vision_encoder", "a file without an encoder of images"));
    }
    Projector::from_name(name).ok_or_else(|| {
        let names = Projector::ALL.map(Projector::name).join(", ");
        let found = name.chars().take(64).collect::<String>();
        clip.range("projector_type", found, format!("one of {names}"))
    })
}

/// Puts the patches of windows together, and stretches a picture for SigLIP's tower, which was not trained with a ground.
fn adapt(recipe: &mut Recipe, (merge, window_edge): (usize, Option<u32>), is_siglip: bool) {
    if let Some(edge) = window_edge {
        let merge = merge as u32;
        recipe.order = PatchOrder::Windows { merge, edge };
    }
    if let Rule::Square(square) = &mut recipe.rule
        && is_siglip
    {
        square.fit = Fit::Stretch;
    }
}

/// Whether a tower of LLaVA is SigLIP's, which has no class token and no norm before the layers.
fn is_llava_of_siglip(tensors: &NamedTensors<'_>, projector: Projector) -> bool {
    let lacks = |name: &str| tensors(name).is_none();
    let has_table = projector == Projector::Llava && !lacks(POSITIONS);
    has_table && lacks("v.class_embd") && lacks("v.pre_ln.weight")
}

/// The layers that are computed: in LLaVA up to the last whose output the projector takes; and those whose outputs it takes, if
/// there are several. Files of the first converter have no others, and name none.
fn read_layers(
    keys: &Keys<'_>,
    projector: Projector,
    stored: usize,
) -> Result<(usize, Vec<usize>), ConfigError> {
    const NAME: &str = "feature_layer";
    if projector != Projector::Llava {
        return Ok((stored, Vec::new()));
    }
    let Some(found) = keys.numbers(NAME, FEATURES_MAX)? else {
        return Ok((stored, Vec::new()));
    };
    let least = if found.len() > 1 { 0 } else { 1 };
    let layers: Option<Vec<usize>> = found
        .iter()
        .map(|layer| usize::try_from(*layer).ok())
        .map(|layer| layer.filter(|layer| (least..=stored).contains(layer)))
        .collect();
    let last = |layers: &[usize]| layers.iter().copied().max().filter(|last| *last > 0);
    match layers
        .as_deref()
        .and_then(|layers| Some((layers, last(layers)?)))
    {
        Some((&[_], last)) => Ok((last, Vec::new())),
        Some((layers, last)) => Ok((last, layers.to_vec())),
        None => {
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            let bound = format!("{least} to {stored}, the last above 0");
            Err(keys.range(NAME, found.join(", "), bound))
        }
    }
}

/// The width of a row. Files of LLaVA have another number under the key, the width of CLIP's own projection, and those of
/// MiniCPM-V mostly 0.
fn read_projection(
    tensors: &NamedTensors<'_>,
    keys: &Keys<'_>,
    projector: Projector,
) -> Result<usize, ConfigError> {
    const NAME: &str = "projection_dim";
    let tensor = match projector {
        Projector::Llava => tensors("mm.2.weight"),
        Projector::Resampler => tensors(RESAMPLER_OUT),
        _ => None,
    };
    let width = match tensor.map(|tensor| tensor.rows()) {
        None => keys.required(NAME, 1, limits::DIM)?,
        Some(width) if (1..=limits::DIM).contains(&width) => width,
        Some(width) => return Err(keys.range(NAME, width, format!("1 to {}", limits::DIM))),
    };
    if projector == Projector::Resampler {
        minicpm::check_width(width)?;
    }
    Ok(width)
}

/// The width of the feed-forward parts. The first converter of Qwen2-VL writes 0, and exchanges the names of the matrices.
fn read_hidden(
    tensors: &NamedTensors<'_>,
    keys: &Keys<'_>,
    dim: usize,
) -> Result<usize, ConfigError> {
    const NAME: &str = "feed_forward_length";
    let up = tensors("v.blk.0.ffn_up.weight");
    let hidden = match (keys.required(NAME, 0, limits::HIDDEN)?, up) {
        (0, Some(up)) if up.rows() == dim => up.cols(),
        (0, Some(up)) => up.rows(),
        (hidden, _) => hidden,
    };
    if (1..=limits::HIDDEN).contains(&hidden) {
        return Ok(hidden);
    }
    Err(keys.range(NAME, hidden, format!("1 to {}", limits::HIDDEN)))
}

/// Sizes of a tower's layers.
struct LayerSizes {
    stored_layers: usize,
    hidden: usize,
    heads: usize,
}

impl LayerSizes {
    fn read(
        tensors: &NamedTensors<'_>,
        keys: &Keys<'_>,
        projector: Projector,
        dim: usize,
    ) -> Result<Self, ConfigError> {
        if projector == Projector::Gemma4Uv {
            // There are none, whatever the file says of them.
            return Ok(Self {
                stored_layers: 0,
                hidden: 0,
                heads: dim / limits::COLUMN_GROUP,
            });
        }
        Ok(Self {
            stored_layers: keys.required("block_count", 1, limits::LAYERS)?,
            hidden: read_hidden(tensors, keys, dim)?,
            heads: read_heads(keys, dim, projector.traits().rope.is_some())?,
        })
    }
}

fn read_heads(keys: &Keys<'_>, dim: usize, roped: bool) -> Result<usize, ConfigError> {
    const NAME: &str = "attention.head_count";
    let heads = keys.required(NAME, 1, limits::HEADS)?;
    // The 2D rope turns two halves of a head, in pairs.
    let unit = if roped { 4 } else { 1 };
    let fits = dim.is_multiple_of(heads) && (dim / heads).is_multiple_of(unit);
    if fits && dim / heads <= limits::HEAD_DIM {
        return Ok(heads);
    }
    let bound = format!("a divisor of {dim} with heads of a multiple of {unit}");
    Err(keys.range(NAME, heads, bound))
}

/// Pixels of a patch's edge, and patches along an edge that become one row.
fn read_patch(keys: &Keys<'_>, projector: Projector) -> Result<(usize, usize), ConfigError> {
    let patch = keys.required("patch_size", 1, PATCH_MAX)?;
    let merge = match projector {
        Projector::Resampler => 1,
        Projector::MiniCpm46 => {
            minicpm::read_merge(keys, read_merge(keys, projector.traits().merge)?)?
        }
        _ => read_merge(keys, projector.traits().merge)?,
    };
    if projector != Projector::Gemma4Uv {
        return Ok((patch, merge));
    }
    // Patches are as large as rows.
    if patch * merge > PATCH_MAX {
        let bound = format!("at most {}", PATCH_MAX / merge);
        return Err(keys.range("patch_size", patch, bound));
    }
    Ok((patch * merge, 1))
}

/// Pixels of a picture's edge, and entries of the learned table along one edge. Tables of axes are as long as their tensor.
fn read_table(
    tensors: &NamedTensors<'_>,
    keys: &Keys<'_>,
    projector: Projector,
    (patch, merge): (usize, usize),
) -> Result<(usize, usize), ConfigError> {
    if minicpm::has_slices(projector) {
        let slice = keys.required("image_size", patch * merge, EDGE_MAX)?;
        return Ok((slice, minicpm::table_edge(tensors)?));
    }
    if projector.traits().positions == Some(Positions::Axes) {
        let entries = tensors(POSITIONS).and_then(|table| table.dims.get(1).copied());
        let entries = entries.map_or(0, |entries| usize::try_from(entries).unwrap_or(usize::MAX));
        if (1..=AXIS_MAX).contains(&entries) {
            return Ok((patch, entries));
        }
        return Err(ConfigError::Range {
            key: format!("{POSITIONS} (second dimension)"),
            found: entries.to_string(),
            bound: format!("1 to {AXIS_MAX}"),
        });
    }
    let image = keys.required("image_size", patch, EDGE_MAX)?;
    let table_edge = image / patch;
    if table_edge > TABLE_EDGE_MAX {
        let bound = format!("at most {TABLE_EDGE_MAX} patches");
        return Err(keys.range("image_size", image, bound));
    }
    Ok((image, table_edge))
}

fn read_merge(keys: &Keys<'_>, usual: usize) -> Result<usize, ConfigError> {
    for name in ["projector.scale_factor", "spatial_merge_size"] {
        if let Some(merge) = keys.size(name, 1, MERGE_MAX)? {
            return Ok(merge);
        }
    }
    Ok(usual)
}

fn read_activation(
    clip: &Keys<'_>,
    projector: Projector,
    known: Option<Activation>,
) -> Result<Activation, ConfigError> {
    if let Some(activation) = known {
        return Ok(activation);
    }
    let gelu = clip.flag("use_gelu")?.unwrap_or(false);
    let silu = clip.flag("use_silu")?.unwrap_or(false);
    match (gelu, silu) {
        (true, true) => Err(clip.unsupported("use_silu", "two activations at once")),
        // One key for both kinds: the models were trained with that of transformers' class.
        (true, false) if projector == Projector::InternVl => Ok(Activation::GeluErf),
        (true, false) => Ok(Activation::Gelu),
        (false, true) => Ok(Activation::Silu),
        (false, false) => Ok(Activation::QuickGelu),
    }
}

/// Which patches see each other, and the patches along the edge of a window.
fn read_windows(
    keys: &Keys<'_>,
    projector: Projector,
    (patch, merge): (usize, usize),
) -> Result<(Windows, Option<u32>), ConfigError> {
    if projector == Projector::Llava && keys.get("image_grid_pinpoints").is_some() {
        return Ok((Windows::Pictures, None));
    }
    if projector != Projector::Qwen25Vl {
        return Ok((Windows::Whole, None));
    }
    let full_every = keys.required("n_wa_pattern", 1, limits::LAYERS)?;
    let pixels = keys.size("window_size", 1, EDGE_MAX)?.unwrap_or(WINDOW);
    match pixels / (patch * merge) {
        0 => Err(keys.range("window_size", pixels, format!("at least {}", patch * merge))),
        blocks => Ok((
            Windows::Layers { full_every },
            Some((blocks * merge) as u32),
        )),
    }
}

fn read_deepstack(keys: &Keys<'_>, layers: usize) -> Result<Vec<usize>, ConfigError> {
    const NAME: &str = "is_deepstack_layers";
    let flags = keys.flags(NAME, layers)?.unwrap_or_default();
    let flags = flags.into_iter().enumerate();
    let after: Vec<usize> = flags
        .filter_map(|(layer, is)| is.then_some(layer))
        .collect();
    if after.len() > DEEPSTACK_MAX {
        return Err(keys.range(NAME, after.len(), format!("at most {DEEPSTACK_MAX} layers")));
    }
    Ok(after)
}
