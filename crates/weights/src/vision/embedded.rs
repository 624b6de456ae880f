//! Towers inside of a text model's own GGUF, with the keys and names that an `mmproj` file would have.
//!
//! Ollama's converter writes keys `FAMILY.vision.*`, and tensors `v.*` and `mm.*` with names close to those of transformers
//! (<https://github.com/ollama/ollama>, `convert/`; the list of differences is its `llama/compat`). A text model that was joined
//! with its `mmproj` has the keys `clip.*` and llama.cpp's names.

use super::VisionConfig;
use super::halved_rows::{HalvedRows, LINE_END};
use crate::ConfigError;
use crate::config::architecture_name;
use crate::gguf::{Gguf, GgufWriter, TensorInfo, Value};
use crate::tensor_entry::TensorEntry;
use std::borrow::Cow;

/// Beginnings of names of tensors of encoders of images and sound, which no decoder has.
const TOWER_TENSORS: [&str; 4] = ["v.", "mm.", "resampler.", "a."];
/// Bytes of the value of a tower's key, and layers that one may name.
const VALUE_LEN_MAX: usize = 4096;
/// Keys with the same name after `FAMILY.vision.` and after `clip.vision.`.
const KEYS: [&str; 12] = [
    "block_count",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.layer_norm_epsilon",
    "patch_size",
    "image_size",
    "spatial_merge_size",
    "projector.scale_factor",
    "rope.freq_base",
    "image_mean",
    "image_std",
];
/// Keys with another name after `FAMILY.vision.`.
const RENAMED_KEYS: [(&str, &str); 2] = [
    ("shortest_edge", "image_min_pixels"),
    ("longest_edge", "image_max_pixels"),
];

/// How Ollama's converter stores the tower of a family.
struct EmbeddedFamily {
    /// The family of the text.
    name: &'static str,
    /// The projector's name in `mmproj` files.
    projector: &'static str,
    /// The key of the tower's activation.
    activation: &'static str,
    /// The epsilon of the tower's norms, where the file names none.
    epsilon: f32,
    /// Whether rows of queries and keys are in the order of transformers.
    in_halves: bool,
    /// Parts of tensors' names, and llama.cpp's.
    tensors: &'static [(&'static str, &'static str)],
}

const GEMMA3: &[(&str, &str)] = &[
    ("v.patch_embedding", "v.patch_embd"),
    ("v.position_embedding", "v.position_embd"),
    ("v.post_layernorm", "v.post_ln"),
    (".layer_norm1", ".ln1"),
    (".layer_norm2", ".ln2"),
    (".attn_output", ".attn_out"),
    (".mlp.fc1", ".ffn_up"),
    (".mlp.fc2", ".ffn_down"),
    ("mm.mm_input_projection", "mm.input_projection"),
    ("mm.mm_soft_emb_norm", "mm.soft_emb_norm"),
];
const QWEN3: &[(&str, &str)] = &[
    ("v.pos_embed", "v.position_embd"),
    ("v.patch_embed.", "v.patch_embd."),
    ("v.merger.norm", "v.post_ln"),
    ("v.merger.linear_fc1", "mm.0"),
    ("v.merger.linear_fc2", "mm.2"),
    (".mlp.linear_fc1", ".ffn_up"),
    (".mlp.linear_fc2", ".ffn_down"),
    (".norm1", ".ln1"),
    (".norm2", ".ln2"),
    (".linear_fc1", ".fc1"),
    (".linear_fc2", ".fc2"),
];
const QWEN25: &[(&str, &str)] = &[
    ("v.merger.ln_q", "v.post_ln"),
    ("v.merger.mlp.0", "mm.0"),
    ("v.merger.mlp.2", "mm.2"),
    ("v.patch_embd_0.weight", "v.patch_embd.weight"),
    ("v.patch_embd_1.weight", "v.patch_embd.weight.1"),
    (".mlp.gate_proj", ".ffn_gate"),
    (".mlp.up_proj", ".ffn_up"),
    (".mlp.down_proj", ".ffn_down"),
];
const MISTRAL3: &[(&str, &str)] = &[
    ("v.patch_conv", "v.patch_embd"),
    ("v.encoder_norm", "v.pre_ln"),
    (".attn_norm", ".ln1"),
    (".ffn_norm", ".ln2"),
    (".attn_output", ".attn_out"),
    ("mm.linear_1", "mm.1"),
    ("mm.linear_2", "mm.2"),
    ("mm.norm", "mm.input_norm"),
    ("mm.patch_merger.merging_layer", "mm.patch_merger"),
];
/// The bounds of all matrices of Gemma 4, which Ollama writes a second time next to those of each matrix, and the first of these.
const ALL_BOUNDS: &str = "v.clamp_data";
const FIRST_BOUND: &str = "v.blk.0.attn_q.input_min";
/// The tensors of a merger for a further text layer, which Qwen's files number by themselves.
const DEEPSTACK: &str = "v.deepstack_merger.";
/// The layers after which these are.
const DEEPSTACK_LAYERS: &str = "vision.deepstack_visual_indexes";

const fn family(
    name: &'static str,
    projector: &'static str,
    tensors: &'static [(&'static str, &'static str)],
) -> EmbeddedFamily {
    EmbeddedFamily {
        name,
        projector,
        activation: "clip.use_gelu",
        epsilon: 1e-6,
        in_halves: false,
        tensors,
    }
}

/// The key of the epsilon of the tower's norms.
const EPSILON: &str = "vision.attention.layer_norm_epsilon";

/// Families whose files may have a tower. Some projectors are not computed: the error names them.
const FAMILIES: [EmbeddedFamily; 14] = [
    family("gemma3", "gemma3", GEMMA3),
    family("qwen3vl", "qwen3vl_merger", QWEN3),
    family("qwen3vlmoe", "qwen3vl_merger", QWEN3),
    family("qwen35", "qwen3vl_merger", QWEN3),
    family("qwen35moe", "qwen3vl_merger", QWEN3),
    EmbeddedFamily {
        activation: "clip.use_silu",
        ..family("qwen25vl", "qwen2.5vl_merger", QWEN25)
    },
    family("gemma4", "gemma4v", &[]),
    family("gemma3n", "gemma3nv", &[]),
    family("llama4", "llama4", &[]),
    family("mllama", "mllama", &[]),
    EmbeddedFamily {
        activation: "clip.use_silu",
        epsilon: 1e-5,
        in_halves: true,
        ..family("mistral3", "pixtral", MISTRAL3)
    },
    family("deepseekocr", "deepseekocr", &[]),
    family("glmocr", "glm4v", &[]),
    family("nemotron_h_omni", "nemotron_v2_vl", &[]),
];

/// Whether a tensor of a text model's file belongs to a tower.
pub(crate) fn is_tower_tensor(name: &str) -> bool {
    TOWER_TENSORS.iter().any(|start| name.starts_with(start))
}

/// Whether a tensor belongs to a tower of images.
pub(crate) fn is_of_images(name: &str) -> bool {
    ["v.", "mm.", "resampler."]
        .iter()
        .any(|start| name.starts_with(start))
}

/// The tower in a text model's GGUF.
#[derive(Debug)]
pub struct EmbeddedTower {
    /// The model's file.
    gguf: Gguf,
    /// The keys of an equivalent `mmproj`, without tensors.
    metadata: Gguf,
    /// Name in `mmproj` files and name in the file, of each tensor, sorted.
    names: Vec<(String, String)>,
    /// The family of the text; the keys are `clip.*` where it is empty.
    family: String,
    /// Whether rows are not as in an `mmproj`, and those that are not.
    in_halves: bool,
    rows: Option<HalvedRows>,
}

impl EmbeddedTower {
    /// The tower of a text model's file; `None`: the file has none.
    ///
    /// # Errors
    /// A key that cannot be read. Other keys and the tensors are checked by [`EmbeddedTower::config`] and at load.
    pub fn of(gguf: Gguf) -> Result<Option<Self>, ConfigError> {
        if !gguf.tensors().any(|tensor| is_of_images(tensor.name)) {
            return Ok(None);
        }
        let name = architecture_name(&gguf)?.to_owned();
        let is_joined = ["clip.projector_type", "clip.vision.projector_type"]
            .iter()
            .any(|key| gguf.get(key).is_some());
        let rules = FAMILIES.iter().find(|family| family.name == name);
        let in_halves = !is_joined && rules.is_some_and(|family| family.in_halves);
        let layers = deepstack_layers(&gguf, &name)?;
        let renamed = |stored: &str| match rules.filter(|_| !is_joined) {
            Some(family) => renamed(family.tensors, &layers, stored),
            None => stored.to_owned(),
        };
        let has_bounds = gguf.tensor(FIRST_BOUND).is_some();
        let names = gguf.tensors();
        let mut names: Vec<_> = names
            .filter(|tensor| is_of_images(tensor.name))
            .filter(|tensor| !(has_bounds && tensor.name == ALL_BOUNDS))
            .map(|tensor| (renamed(tensor.name), tensor.name.to_owned()))
            .collect();
        names.sort();
        let keys = EmbeddedKeys {
            gguf: &gguf,
            names: &names,
            family: &name,
        };
        let metadata = if is_joined {
            keys.joined()?
        } else {
            keys.of_family(rules, &layers)?
        };
        Ok(Some(Self {
            rows: HalvedRows::of(&gguf, &name).filter(|_| in_halves),
            in_halves,
            metadata: empty_gguf(&metadata)?,
            names,
            family: if is_joined { String::new() } else { name },
            gguf,
        }))
    }

    /// The keys of an equivalent `mmproj`.
    pub fn metadata(&self) -> &Gguf {
        &self.metadata
    }

    /// The model's file.
    pub(crate) fn gguf(&self) -> &Gguf {
        &self.gguf
    }

    /// The tower's configuration; errors have the names of keys in the file.
    pub(crate) fn config(&self) -> Result<VisionConfig, ConfigError> {
        if self.in_halves && self.rows.is_none() {
            return Err(ConfigError::Unsupported {
                key: "tokenizer.ggml.tokens".to_owned(),
                what: "a tower of Mistral 3 without a token [IMG_BREAK]",
            });
        }
        VisionConfig::read(&self.metadata, &|name| self.entry(name)).map_err(|why| {
            why.renamed(|key| match key.strip_prefix("clip.vision.") {
                Some(rest) if !self.family.is_empty() => format!("{}.vision.{rest}", self.family),
                _ => key.to_owned(),
            })
        })
    }

    /// The tensors, with the names of an equivalent `mmproj`.
    pub(crate) fn entries(&self) -> impl Iterator<Item = TensorEntry<'_>> {
        let names = self.names.iter();
        let stored =
            names.filter_map(|(name, stored)| Some(entry(name, &self.gguf.tensor(stored)?)));
        stored.chain(self.rows.as_ref().map(HalvedRows::line_end))
    }

    /// The bytes of a tensor, its rows in the order of an `mmproj`.
    pub(crate) fn read(&self, name: &str) -> Cow<'_, [u8]> {
        match (&self.rows, self.stored(name)) {
            (Some(rows), None) if name == LINE_END => Cow::Borrowed(&rows.line_end),
            (Some(rows), Some(tensor)) => rows.read(name, &tensor),
            (_, tensor) => Cow::Borrowed(tensor.map_or(&[], |tensor| tensor.bytes)),
        }
    }

    /// The tensor with this name in `mmproj` files.
    pub(crate) fn entry(&self, name: &str) -> Option<TensorEntry<'_>> {
        if name == LINE_END
            && let Some(rows) = &self.rows
        {
            return Some(rows.line_end());
        }
        let at = self
            .names
            .binary_search_by(|(ours, _)| ours.as_str().cmp(name));
        let (name, stored) = &self.names[at.ok()?];
        Some(entry(name, &self.gguf.tensor(stored)?))
    }

    /// The tensor in the file.
    pub(crate) fn stored(&self, name: &str) -> Option<TensorInfo<'_>> {
        self.gguf.tensor(&self.label(name))
    }

    /// The name of a tensor in the file.
    pub(crate) fn label(&self, name: &str) -> String {
        let found = self.names.iter().find(|(ours, _)| ours == name);
        found.map_or(name, |(_, stored)| stored).to_owned()
    }
}

/// Source of the keys of an equivalent `mmproj`.
struct EmbeddedKeys<'a> {
    gguf: &'a Gguf,
    /// As [`EmbeddedTower::names`].
    names: &'a [(String, String)],
    /// The family of the text.
    family: &'a str,
}

impl EmbeddedKeys<'_> {
    /// The keys of a file that was joined with its `mmproj`.
    fn joined(&self) -> Result<GgufWriter, ConfigError> {
        let mut out = GgufWriter::new();
        out.str("general.architecture", "clip");
        let keys = self.gguf.metadata();
        for (key, value) in keys.filter(|(key, _)| key.starts_with("clip.")) {
            put(&mut out, key, key, value)?;
        }
        Ok(out)
    }

    /// The keys of a file of Ollama's converter.
    fn of_family(
        &self,
        rules: Option<&EmbeddedFamily>,
        layers: &[usize],
    ) -> Result<GgufWriter, ConfigError> {
        let mut out = GgufWriter::new();
        let projector = rules.map_or(self.family, |family| family.projector);
        out.str("general.architecture", "clip");
        out.str("clip.projector_type", projector);
        out.bool(
            rules.map_or("clip.use_gelu", |family| family.activation),
            true,
        );
        let same = KEYS.iter().map(|key| (*key, *key));
        for (theirs, ours) in same.chain(RENAMED_KEYS) {
            let key = format!("{}.vision.{theirs}", self.family);
            if let Some(value) = self.gguf.get(&key) {
                put(&mut out, &format!("clip.vision.{ours}"), &key, value)?;
            }
        }
        // Mistral 3 has it among the keys of the text.
        if let Some(merge) = self
            .number("spatial_merge_size")
            .filter(|_| self.lacks("vision.spatial_merge_size"))
        {
            out.u32("clip.vision.spatial_merge_size", merge);
        }
        let key = format!("{}.embedding_length", self.family);
        if let Some(value) = self.gguf.get(&key) {
            put(&mut out, "clip.vision.projection_dim", &key, value)?;
        }
        if let Some(family) = rules
            && self.lacks(EPSILON)
        {
            out.f32("clip.vision.attention.layer_norm_epsilon", family.epsilon);
        }
        self.put_sizes_of_tensors(&mut out);
        self.put_pooling(&mut out);
        let count = self.number("vision.block_count").unwrap_or(0);
        if !layers.is_empty() && count as usize <= VALUE_LEN_MAX {
            let flags: Vec<bool> = (0..count as usize).map(|at| layers.contains(&at)).collect();
            out.bools("clip.vision.is_deepstack_layers", &flags);
        }
        Ok(out)
    }

    /// Sizes for which Qwen's files have no keys.
    fn put_sizes_of_tensors(&self, out: &mut GgufWriter) {
        let rows = |name: &str| {
            let (_, stored) = self.names.iter().find(|(ours, _)| ours == name)?;
            self.gguf.tensor(stored)?.dims.get(1).copied()
        };
        if self.lacks("vision.feed_forward_length")
            && let Some(rows) = rows("v.blk.0.ffn_up.weight").and_then(|rows| rows.try_into().ok())
        {
            out.u32("clip.vision.feed_forward_length", rows);
        }
        if self.lacks("vision.image_size")
            && let Some(places) = rows("v.position_embd.weight")
        {
            let edge = places.isqrt();
            let patch = self.number("vision.patch_size").unwrap_or(0);
            let pixels = u32::try_from(edge)
                .ok()
                .and_then(|edge| edge.checked_mul(patch));
            if let Some(pixels) = pixels.filter(|_| edge * edge == places) {
                out.u32("clip.vision.image_size", pixels);
            }
        }
    }

    /// Gemma 3: patches of a picture and its rows give the number of patches that become one row.
    fn put_pooling(&self, out: &mut GgufWriter) {
        let sizes = [
            "vision.image_size",
            "vision.patch_size",
            "mm.tokens_per_image",
        ];
        if let [Some(image), Some(patch), Some(tokens)] = sizes.map(|name| self.number(name))
            && let Some(across) = image.checked_div(patch)
            && let Some(merge) = across.checked_div(tokens.isqrt())
            && self.family == "gemma3"
        {
            out.u32("clip.vision.projector.scale_factor", merge);
        }
    }

    fn lacks(&self, name: &str) -> bool {
        self.gguf.get(&format!("{}.{name}", self.family)).is_none()
    }

    /// A number after the family's name.
    fn number(&self, name: &str) -> Option<u32> {
        self.gguf
            .need::<u32>(&format!("{}.{name}", self.family))
            .ok()
    }
}

fn entry<'a>(name: &'a str, tensor: &TensorInfo<'a>) -> TensorEntry<'a> {
    TensorEntry {
        name,
        dims: tensor.dims,
        kind: tensor.kind,
        bytes: tensor.bytes.len() as u64,
    }
}

/// Copies a value of a bounded length.
fn put(out: &mut GgufWriter, to: &str, key: &str, value: Value<'_>) -> Result<(), ConfigError> {
    let len = match &value {
        Value::Array(array) => array.encoded().len(),
        Value::String(text) => text.as_bytes().len(),
        _ => 1,
    };
    if len > VALUE_LEN_MAX {
        return Err(ConfigError::Range {
            key: key.to_owned(),
            found: len.to_string(),
            bound: format!("at most {VALUE_LEN_MAX} bytes"),
        });
    }
    out.value(to, value);
    Ok(())
}

/// The layers after which rows for further text layers are made.
fn deepstack_layers(gguf: &Gguf, family: &str) -> Result<Vec<usize>, ConfigError> {
    let key = format!("{family}.{DEEPSTACK_LAYERS}");
    let wrong = || ConfigError::Type {
        key: key.clone(),
        wanted: "an array of a few layers",
    };
    match gguf.get(&key) {
        None => Ok(Vec::new()),
        Some(Value::Array(array)) if array.len() <= VALUE_LEN_MAX => {
            let layers = array.values().map(|value| value.integer()?.try_into().ok());
            layers.collect::<Option<_>>().ok_or_else(wrong)
        }
        Some(_) => Err(wrong()),
    }
}

/// llama.cpp's name of a tensor.
fn renamed(rules: &[(&str, &str)], layers: &[usize], stored: &str) -> String {
    let numbered = || {
        let (number, rest) = stored.strip_prefix(DEEPSTACK)?.split_once('.')?;
        let layer = layers.get(number.parse::<usize>().ok()?)?;
        Some(format!("v.deepstack.{layer}.{rest}"))
    };
    let name = numbered().unwrap_or_else(|| stored.to_owned());
    rules
        .iter()
        .fold(name, |name, (from, to)| name.replacen(from, to, 1))
}

/// A GGUF of these keys without tensors.
fn empty_gguf(keys: &GgufWriter) -> Result<Gguf, ConfigError> {
    let mut bytes = Vec::new();
    let written = keys.write(&mut bytes, |_, _| Ok(()));
    let gguf = written.ok().and_then(|_| Gguf::from_bytes(bytes).ok());
    // Keys were read from a checked file, so that only two of one name are left.
    gguf.ok_or_else(|| ConfigError::Unsupported {
        key: "clip.vision".to_owned(),
        what: "a key twice",
    })
}
