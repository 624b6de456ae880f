//! Synthetic towers: files of images' encoders (`mmproj`) with random weights, and a text model that fits.

use super::error::SynthError;
use super::mix::{Mix, Role};
use super::plan::{Fill, Planned};
use super::spec::SynthSpec;
use super::vision_marks::{
    GEMMA3_MARKS, GEMMA4_MARKS, IDEFICS3_MARKS, INTERNVL_MARKS, LFM2_MARKS, LLAVA_MARKS,
    MINICPM_MARKS, PIXTRAL_MARKS, QWEN_MARKS,
};
use super::write::write_planned;
use kernels::Format;
use weights::gguf::{GgufWriter, TensorKind, TensorPlan};
use weights::vision::{Activation, NEIGHBORS, NormKind, Positions, Projector, RESAMPLER_HEAD};

/// Sharpness of attention, as in decoders.
const SHARPNESS: f32 = 1.5;
/// Deviation of biases, and of what a place adds to a patch.
const SPREAD: f32 = 0.2;

/// Names of all presets of towers: two layers of 64, pictures of 32 pixels; `small-` have 256, and pictures of 128. Rows of a
/// resampler are 128 wide at least.
pub const VISION_PRESETS: &[&str] = &[
    "tiny-idefics3",
    "tiny-qwen3vl_merger",
    "tiny-gemma3",
    "tiny-qwen2vl_merger",
    "tiny-qwen2.5vl_merger",
    "tiny-pixtral",
    "tiny-mlp",
    "tiny-internvl",
    "tiny-lfm2",
    "tiny-resampler",
    "tiny-minicpmv4_6",
    "tiny-gemma4v",
    "tiny-gemma4uv",
    "small-idefics3",
    "small-qwen3vl_merger",
    "small-gemma3",
    "small-qwen2vl_merger",
    "small-qwen2.5vl_merger",
    "small-pixtral",
    "small-mlp",
    "small-internvl",
    "small-lfm2",
    "small-resampler",
    "small-minicpmv4_6",
    "small-gemma4v",
    "small-gemma4uv",
];

/// Queries of a resampler, and the version of the model that has it.
const QUERIES: u32 = 8;
const MINICPM_VERSION: u32 = 3;
/// Entries along one edge of a table that is not that of a slice.
const TABLE_EDGE: u32 = 10;
/// Entries of the tables of columns and rows.
const AXIS_ENTRIES: u32 = 512;

/// Description of a synthetic tower. Start from [`VisionSpec::preset`] and change fields.
#[derive(Clone, Debug, PartialEq)]
pub struct VisionSpec {
    /// The projector between tower and text.
    pub projector: Projector,
    /// Width of the stream.
    pub dim: u32,
    /// Layers.
    pub layers: u32,
    /// Heads; divides `dim`.
    pub heads: u32,
    /// Width of the feed-forward parts.
    pub ffn: u32,
    /// Pixels of a patch's edge.
    pub patch: u32,
    /// Pixels of a picture's edge, or of a tile's; a multiple of `patch * merge`.
    pub image: u32,
    /// Pixels of the longest edge before an image is cut into tiles.
    pub longest_edge: u32,
    /// Patches next to each other that become one row.
    pub merge: u32,
    /// Width of a row: that of the text's stream.
    pub projection_dim: u32,
    /// Layers after which there are rows for a further text layer.
    pub deepstack: Vec<u32>,
    /// Storage formats of the matrices.
    pub mix: Mix,
    /// Whether the names of the two matrices of a feed-forward part are exchanged, as in old files.
    pub swapped: bool,
    /// Seed of the weights.
    pub seed: u64,
}

impl VisionSpec {
    /// The shape of this name; see [`VISION_PRESETS`].
    pub fn preset(name: &str) -> Option<Self> {
        let (size, projector) = name.split_once('-')?;
        let projector = Projector::from_name(projector)?;
        let (dim, heads, ffn, image) = match size {
            "tiny" => (64, 2, 128, 32),
            "small" => (256, 4, 512, 128),
            _ => return None,
        };
        let is_gemma4 = matches!(projector, Projector::Gemma4V | Projector::Gemma4Uv);
        let has_deepstack = projector == Projector::Qwen3Vl;
        let merge = match projector {
            Projector::Llava | Projector::Resampler => 1,
            Projector::MiniCpm46 => 4,
            Projector::Gemma4V | Projector::Gemma4Uv => 3,
            _ => 2,
        };
        Some(Self {
            projector,
            dim,
            layers: 2,
            heads,
            ffn,
            patch: 8,
            image: if is_gemma4 { image / 2 * 3 } else { image },
            longest_edge: 2 * image,
            merge,
            projection_dim: if projector == Projector::Resampler {
                dim.max(RESAMPLER_HEAD as u32)
            } else {
                dim
            },
            deepstack: if has_deepstack { vec![0] } else { Vec::new() },
            mix: Mix::Uniform(Format::F32),
            swapped: false,
            seed: 1,
        })
    }

    /// A text model with a stream of this tower's rows: `llama`, or the family of the projector.
    pub fn text(&self) -> Option<SynthSpec> {
        let (name, marks) = match self.projector {
            Projector::Idefics3 => ("tiny-llama", IDEFICS3_MARKS),
            Projector::Qwen2Vl | Projector::Qwen25Vl => ("tiny-qwen2vl", QWEN_MARKS),
            Projector::Qwen3Vl => ("tiny-qwen3vl", QWEN_MARKS),
            Projector::Gemma3 => ("tiny-gemma3", GEMMA3_MARKS),
            Projector::Pixtral => ("tiny-llama", PIXTRAL_MARKS),
            Projector::Llava => ("tiny-llama", LLAVA_MARKS),
            Projector::InternVl => ("tiny-qwen2", INTERNVL_MARKS),
            Projector::Lfm2 => ("tiny-lfm2", LFM2_MARKS),
            Projector::Resampler => ("tiny-qwen3", MINICPM_MARKS),
            Projector::MiniCpm46 => ("tiny-qwen35", MINICPM_MARKS),
            Projector::Gemma4V => ("tiny-gemma4", GEMMA4_MARKS),
            Projector::Gemma4Uv => ("tiny-gemma4-31b", GEMMA4_MARKS),
        };
        let mut spec = SynthSpec::preset(name)?;
        spec.dim = self.projection_dim;
        spec.vocab += marks.len() as u32;
        spec.marks = marks;
        spec.deepstack = self.deepstack.len() as u32;
        Some(spec)
    }

    /// The tower's file in memory.
    ///
    /// # Errors
    /// See [`SynthError`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, SynthError> {
        let sizes = [
            self.dim,
            self.layers,
            self.heads,
            self.ffn,
            self.patch,
            self.merge,
            self.projection_dim,
        ];
        if sizes.contains(&0) || !self.image.is_multiple_of(self.patch * self.merge) {
            let why = "no size may be zero, and a picture has whole rows of patches";
            return Err(SynthError::Shape(why.to_owned()));
        }
        let plan = self.plan()?;
        let mut writer = GgufWriter::new();
        self.put_keys(&mut writer);
        let mut bytes = Vec::new();
        write_planned(writer, &plan, self.seed, &mut bytes)?;
        Ok(bytes)
    }

    fn put_keys(&self, out: &mut GgufWriter) {
        let key = |part: &str| format!("clip.vision.{part}");
        let title = format!("Synthetic tower {}x{} {}", self.dim, self.layers, self.mix);
        out.str("general.architecture", "clip")
            .str("general.type", "mmproj")
            .str("general.name", &title)
            .u32("general.file_type", self.mix.file_type())
            .u32("general.quantization_version", 2)
            .bool("clip.has_vision_encoder", true)
            .str("clip.projector_type", self.projector.name())
            .bool("clip.use_gelu", self.uses_gelu())
            .bool("clip.use_silu", self.activation() == Activation::Silu)
            .u32(&key("image_size"), self.image)
            .u32(&key("patch_size"), self.patch)
            .u32(&key("embedding_length"), self.dim)
            .u32(&key("feed_forward_length"), self.ffn)
            .u32(&key("projection_dim"), self.projection_dim)
            .u32(&key("block_count"), self.layers)
            .u32(&key("attention.head_count"), self.heads)
            .f32(&key("attention.layer_norm_epsilon"), 1e-6)
            .f32s(&key("image_mean"), &[0.5; 3])
            .f32s(&key("image_std"), &[0.5; 3]);
        self.put_keys_of_family(out);
    }

    fn put_keys_of_family(&self, out: &mut GgufWriter) {
        let key = |part: &str| format!("clip.vision.{part}");
        match self.projector {
            Projector::Idefics3 => {
                out.u32(&key("projector.scale_factor"), self.merge)
                    .u32(&key("preproc_image_size"), self.longest_edge);
            }
            Projector::Gemma3 | Projector::Gemma4V | Projector::Gemma4Uv => {
                out.u32(&key("projector.scale_factor"), self.merge);
            }
            Projector::Pixtral => {
                out.u32(&key("spatial_merge_size"), self.merge);
            }
            Projector::InternVl => {
                out.u32(&key("projector.scale_factor"), self.merge)
                    .u32(&key("preproc_max_tiles"), 4);
            }
            Projector::Lfm2 => {
                let unit = (self.patch * self.merge) * (self.patch * self.merge);
                out.u32(&key("projector.scale_factor"), self.merge)
                    .u32(&key("preproc_image_size"), self.image)
                    .u32(&key("preproc_max_tiles"), 4)
                    .u32(&key("image_min_pixels"), 2 * unit)
                    .u32(&key("image_max_pixels"), 6 * unit);
            }
            Projector::Resampler => {
                out.u32("clip.minicpmv_version", MINICPM_VERSION)
                    .u32("clip.minicpmv_query_num", QUERIES)
                    .u32(&key("preproc_max_tiles"), 4);
            }
            Projector::MiniCpm46 => {
                out.u32(&key("projector.scale_factor"), self.merge)
                    .i32s(&key("wa_layer_indexes"), &[0])
                    .u32(&key("preproc_max_tiles"), 4);
            }
            Projector::Llava => {
                let (one, two) = (self.image as i32, 2 * self.image as i32);
                let resolutions = [one, two, two, one, two, two];
                out.i32s(&key("image_grid_pinpoints"), &resolutions)
                    .i32s(&key("feature_layer"), &[self.layers as i32]);
            }
            Projector::Qwen2Vl | Projector::Qwen25Vl | Projector::Qwen3Vl => {
                let flags = (0..self.layers).map(|layer| self.deepstack.contains(&layer));
                out.u32(&key("spatial_merge_size"), self.merge)
                    .bools(&key("is_deepstack_layers"), &flags.collect::<Vec<_>>())
                    .u32(&key("image_min_pixels"), self.image * self.image)
                    .u32(
                        &key("image_max_pixels"),
                        self.longest_edge * self.longest_edge,
                    )
                    .u32(&key("n_wa_pattern"), 2)
                    .u32(&key("window_size"), self.image);
            }
        }
    }

    /// Whether patches have a kernel for each of two frames.
    fn has_frames(&self) -> bool {
        matches!(
            self.projector,
            Projector::Qwen2Vl | Projector::Qwen25Vl | Projector::Qwen3Vl
        )
    }

    /// Whether the key of both kinds of gelu is set.
    fn uses_gelu(&self) -> bool {
        matches!(self.activation(), Activation::Gelu | Activation::GeluErf)
    }

    fn activation(&self) -> Activation {
        match self.projector {
            Projector::InternVl => Activation::GeluErf,
            Projector::Idefics3
            | Projector::Gemma3
            | Projector::Qwen3Vl
            | Projector::Lfm2
            | Projector::Resampler
            | Projector::MiniCpm46
            | Projector::Gemma4V
            | Projector::Gemma4Uv => Activation::Gelu,
            Projector::Qwen2Vl | Projector::Llava => Activation::QuickGelu,
            Projector::Qwen25Vl | Projector::Pixtral => Activation::Silu,
        }
    }

    fn plan(&self) -> Result<Vec<Planned>, SynthError> {
        let merged = if self.projector == Projector::MiniCpm46 {
            NEIGHBORS as u32
        } else {
            1
        };
        let (dim, side) = (self.dim, self.dim * self.merge * self.merge / merged);
        let traits = self.projector.traits();
        let mut planner = TowerPlanner {
            spec: self,
            tensors: Vec::new(),
        };
        if self.projector == Projector::Gemma4Uv {
            planner.patch_matrix()?;
        } else {
            planner.patches();
            if traits.pre_norm {
                planner.norm("v.pre_ln", dim);
            }
            for layer in 0..self.layers {
                planner.layer(layer)?;
            }
        }
        if traits.post_norm || self.has_frames() {
            planner.norm("v.post_ln", dim);
        }
        for layer in &self.deepstack {
            let name = |part: &str| format!("v.deepstack.{layer}.{part}");
            planner.norm(&name("norm"), side);
            planner.linear(&name("fc1"), (side, side), 1.0)?;
            planner.linear(&name("fc2"), (side, self.projection_dim), 1.0)?;
        }
        planner.head(side)?;
        Ok(planner.tensors)
    }
}

struct TowerPlanner<'a> {
    spec: &'a VisionSpec,
    tensors: Vec<Planned>,
}

impl TowerPlanner<'_> {
    /// The kernel of the patches, and what a place adds to it.
    fn patches(&mut self) {
        let (spec, traits) = (self.spec, self.spec.projector.traits());
        let is_sliced = matches!(spec.projector, Projector::Resampler | Projector::MiniCpm46);
        let table = if is_sliced {
            TABLE_EDGE
        } else {
            spec.image / spec.patch
        };
        let dim = spec.dim;
        self.kernel("v.patch_embd.weight");
        if spec.has_frames() {
            self.kernel("v.patch_embd.weight.1");
        }
        let name = "v.position_embd.weight";
        match traits.positions {
            None => {}
            Some(Positions::Axes) => return self.numbers(name, &[dim, AXIS_ENTRIES, 2], SPREAD),
            Some(_) => {
                let class = u32::from(traits.class_token);
                self.numbers(name, &[dim, table * table + class], SPREAD);
            }
        }
        if traits.class_token {
            self.numbers("v.class_embd", &[dim], SPREAD);
        } else if traits.positions.is_some() {
            self.numbers("v.patch_embd.bias", &[dim], SPREAD);
        }
    }

    /// The matrix of the patches in a model without a tower, and its norms.
    fn patch_matrix(&mut self) -> Result<(), SynthError> {
        let (dim, edge) = (self.spec.dim, self.spec.patch * self.spec.merge);
        self.norm("v.patch_norm.1", 3 * edge * edge);
        self.linear("v.patch_embd", (3 * edge * edge, dim), 1.0)?;
        self.norm("v.patch_norm.2", dim);
        self.numbers("v.position_embd.weight", &[dim, AXIS_ENTRIES, 2], SPREAD);
        self.norm("v.patch_norm.3", dim);
        Ok(())
    }

    fn layer(&mut self, layer: u32) -> Result<(), SynthError> {
        let (spec, dim, ffn) = (self.spec, self.spec.dim, self.spec.ffn);
        let name = |part: &str| format!("v.blk.{layer}.{part}");
        let is_gemma4 = spec.projector == Projector::Gemma4V;
        self.norm(&name("ln1"), dim);
        if spec.projector == Projector::Qwen3Vl {
            self.linear(&name("attn_qkv"), (dim, 3 * dim), SHARPNESS)?;
        } else {
            self.linear(&name("attn_q"), (dim, dim), SHARPNESS)?;
            self.linear(&name("attn_k"), (dim, dim), SHARPNESS)?;
            self.linear(&name("attn_v"), (dim, dim), 1.0)?;
        }
        if is_gemma4 {
            self.norm(&name("attn_q_norm"), dim / spec.heads);
            self.norm(&name("attn_k_norm"), dim / spec.heads);
        }
        self.linear(&name("attn_out"), (dim, dim), 1.0)?;
        if is_gemma4 {
            self.norm(&name("attn_post_norm"), dim);
        }
        self.norm(&name("ln2"), dim);
        if spec.projector == Projector::InternVl {
            for scale in ["ls1.weight", "ls2.weight"] {
                self.numbers(&name(scale), &[dim], 1.0);
            }
        }
        let (up, down) = if spec.swapped {
            ("ffn_down", "ffn_up")
        } else {
            ("ffn_up", "ffn_down")
        };
        if is_gemma4 || spec.activation() == Activation::Silu {
            self.linear(&name("ffn_gate"), (dim, ffn), 1.0)?;
        }
        self.linear(&name(up), (dim, ffn), 1.0)?;
        self.linear(&name(down), (ffn, dim), 1.0)?;
        if is_gemma4 {
            self.norm(&name("ffn_post_norm"), dim);
        }
        Ok(())
    }

    fn head(&mut self, side: u32) -> Result<(), SynthError> {
        let (dim, out) = (self.spec.dim, self.spec.projection_dim);
        match self.spec.projector {
            Projector::Idefics3 => self.matrix("mm.model.fc", (side, out), 1.0),
            Projector::Qwen2Vl | Projector::Qwen25Vl | Projector::Qwen3Vl => {
                self.linear("mm.0", (side, side), 1.0)?;
                self.linear("mm.2", (side, out), 1.0)
            }
            Projector::Pixtral => {
                if self.spec.merge > 1 {
                    self.norm("mm.input_norm", dim);
                    self.matrix("mm.patch_merger", (side, dim), 1.0)?;
                }
                self.numbers("v.token_embd.img_break", &[out], 1.0);
                self.linear("mm.1", (dim, out), 1.0)?;
                self.linear("mm.2", (out, out), 1.0)
            }
            Projector::InternVl => {
                self.norm("mm.model.mlp.0", side);
                self.linear("mm.model.mlp.1", (side, out), 1.0)?;
                self.linear("mm.model.mlp.3", (out, out), 1.0)
            }
            Projector::Lfm2 => {
                self.norm("mm.input_norm", side);
                self.linear("mm.1", (side, 2 * out), 1.0)?;
                self.linear("mm.2", (2 * out, out), 1.0)
            }
            Projector::Resampler => self.resampler(),
            Projector::MiniCpm46 => {
                self.neighbors(side)?;
                self.norm("mm.input_norm", side);
                self.linear("mm.up", (side, side), 1.0)?;
                self.linear("mm.down", (side, out), 1.0)
            }
            Projector::Llava => {
                self.numbers("model.image_newline", &[out], 1.0);
                self.linear("mm.0", (dim, out), 1.0)?;
                self.linear("mm.2", (out, out), 1.0)
            }
            Projector::Gemma4V | Projector::Gemma4Uv => {
                self.matrix("mm.input_projection", (dim, out), 1.0)
            }
            Projector::Gemma3 => {
                self.numbers(
                    "mm.input_projection.weight",
                    &[out, dim],
                    1.0 / (dim as f32).sqrt(),
                );
                let (dims, fill) = (vec![dim.into()], Fill::Norm { mean: 1.0 });
                self.push(
                    "mm.soft_emb_norm.weight".to_owned(),
                    dims,
                    Format::F32,
                    fill,
                );
                Ok(())
            }
        }
    }

    /// Learned queries, and the attention by which they become rows.
    fn resampler(&mut self) -> Result<(), SynthError> {
        let (dim, out) = (self.spec.dim, self.spec.projection_dim);
        self.numbers("resampler.query", &[out, QUERIES], 1.0);
        self.matrix("resampler.kv", (dim, out), 1.0)?;
        for part in ["q", "kv", "post"] {
            self.norm(&format!("resampler.ln_{part}"), out);
        }
        for (part, gain) in [("q", SHARPNESS), ("k", SHARPNESS), ("v", 1.0), ("out", 1.0)] {
            self.linear(&format!("resampler.attn.{part}"), (out, out), gain)?;
        }
        self.matrix("resampler.proj", (out, out), 1.0)
    }

    /// The merger of neighbors between two layers.
    fn neighbors(&mut self, side: u32) -> Result<(), SynthError> {
        let (dim, inner) = (self.spec.dim, 2 * self.spec.ffn);
        let name = |part: &str| format!("v.vit_merger.{part}");
        self.norm(&name("ln1"), dim);
        for (part, gain) in [("q", SHARPNESS), ("k", SHARPNESS), ("v", 1.0), ("out", 1.0)] {
            self.linear(&name(&format!("attn_{part}")), (dim, dim), gain)?;
        }
        self.norm(&name("ds_ln"), side);
        self.linear(&name("ds_ffn_up"), (side, inner), 1.0)?;
        self.linear(&name("ds_ffn_down"), (inner, dim), 1.0)
    }

    /// The kernel of the patches.
    fn kernel(&mut self, name: &str) {
        let (edge, dim) = (self.spec.patch, self.spec.dim);
        let deviation = 1.0 / (3.0 * (edge * edge) as f32).sqrt();
        self.numbers(name, &[edge, edge, 3, dim], deviation);
    }

    /// A matrix of `(cols, rows)` with a bias.
    fn linear(&mut self, name: &str, dims: (u32, u32), gain: f32) -> Result<(), SynthError> {
        self.matrix(name, dims, gain)?;
        self.numbers(&format!("{name}.bias"), &[dims.1], SPREAD);
        Ok(())
    }

    /// A matrix of `(cols, rows)` that preserves the magnitude of its input, times `gain`.
    fn matrix(
        &mut self,
        name: &str,
        (cols, rows): (u32, u32),
        gain: f32,
    ) -> Result<(), SynthError> {
        let (mix, layers) = (self.spec.mix, self.spec.layers);
        let format = mix.format(Role::Plain, layers, cols.into())?;
        let deviation = gain / (cols as f32).sqrt();
        let fill = Fill::Noise { format, deviation };
        let dims = vec![cols.into(), rows.into()];
        self.push(format!("{name}.weight"), dims, format, fill);
        Ok(())
    }

    fn norm(&mut self, name: &str, dim: u32) {
        let fill = Fill::Norm { mean: 1.0 };
        let dims = vec![dim.into()];
        self.push(format!("{name}.weight"), dims, Format::F32, fill);
        if self.spec.projector.traits().norm == NormKind::Layer {
            self.numbers(&format!("{name}.bias"), &[dim], SPREAD);
        }
    }

    fn numbers(&mut self, name: &str, dims: &[u32], deviation: f32) {
        let format = Format::F32;
        let fill = Fill::Noise { format, deviation };
        let dims = dims.iter().map(|&dim| dim.into()).collect();
        self.push(name.to_owned(), dims, format, fill);
    }

    fn push(&mut self, name: String, dims: Vec<u64>, format: Format, fill: Fill) {
        let kind = TensorKind::from(format);
        let tensor = TensorPlan { name, dims, kind };
        self.tensors.push(Planned { tensor, fill });
    }
}
