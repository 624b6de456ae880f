//! Synthetic encoders: BERT's shapes with random weights and a small vocabulary.

use super::Mix;
use super::error::SynthError;
use super::mix::Role;
use super::plan::{Fill, Planned, ROUTER_SPREAD};
use super::vocab::EncoderVocab;
use super::write::write_planned;
use kernels::Format;
use weights::encoder::EncoderKind;
use weights::gguf::{GgufWriter, TensorKind, TensorPlan};

/// Sharpness of attention, as in decoders.
const SHARPNESS: f32 = 1.5;
/// Classes of a classification head.
const CLASSES: u32 = 1;
/// Experts of a layer, experts that a row uses, and layers of which the second has experts.
const EXPERTS: (u32, u32, u32) = (6, 2, 2);

/// Names of all presets of encoders: `tiny-FAMILY` has two layers of 64, `small-FAMILY` the same of 256, `base-FAMILY` the
/// twelve layers of 768 of BERT base and nomic-embed-text; those with `-rank` have a classification head. `xlm-r` is BERT
/// with XLM-R's kind of vocabulary.
pub const ENCODER_PRESETS: &[&str] = &[
    "tiny-bert",
    "tiny-bert-rank",
    "tiny-xlm-r",
    "tiny-xlm-r-rank",
    "tiny-nomic-bert",
    "tiny-nomic-bert-rank",
    "tiny-nomic-bert-moe",
    "small-bert",
    "small-bert-rank",
    "small-xlm-r",
    "small-xlm-r-rank",
    "small-nomic-bert",
    "small-nomic-bert-rank",
    "small-nomic-bert-moe",
    "base-bert-rank",
    "base-nomic-bert",
];

/// How hidden states become one vector (`pooling_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolingSynth {
    /// The mean of all tokens.
    Mean,
    /// The first token.
    First,
    /// The score of a classification head.
    Rank,
}

/// Description of a synthetic encoder. Start from [`EncoderSpec::preset`] and change fields.
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderSpec {
    /// Family of encoders.
    pub kind: EncoderKind,
    /// Kind of the vocabulary.
    pub vocabulary: EncoderVocab,
    /// Width of the stream.
    pub dim: u32,
    /// Layers.
    pub layers: u32,
    /// Heads; divides `dim`.
    pub heads: u32,
    /// Width of the feed-forward part.
    pub ffn: u32,
    /// Positions.
    pub context: u32,
    /// Storage formats of the matrices.
    pub mix: Mix,
    /// Pooling in the metadata.
    pub pooling: PoolingSynth,
    /// Seed of the weights.
    pub seed: u64,
}

impl EncoderSpec {
    /// The shape of this name; see [`ENCODER_PRESETS`].
    pub fn preset(name: &str) -> Option<Self> {
        let (name, ranks) = match name.strip_suffix("-rank") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let (size, family) = name.split_once('-')?;
        let (kind, vocabulary) = match family {
            "xlm-r" => (EncoderKind::Bert, EncoderVocab::Unigram),
            "nomic-bert-moe" => (EncoderKind::NomicBertMoe, EncoderVocab::Unigram),
            "nomic-bert" => (EncoderKind::NomicBert, EncoderVocab::WordPiece),
            "bert" => (EncoderKind::Bert, EncoderVocab::WordPiece),
            _ => return None,
        };
        let (dim, layers, heads, ffn, context) = match size {
            "tiny" => (64, 2, 2, 128, 64),
            "small" => (256, 2, 2, 512, 64),
            "base" => (768, 12, 12, 3072, 512),
            _ => return None,
        };
        Some(Self {
            kind,
            vocabulary,
            dim,
            layers,
            heads,
            ffn,
            context,
            mix: Mix::Uniform(Format::F32),
            pooling: match (ranks, kind) {
                (true, _) => PoolingSynth::Rank,
                (false, EncoderKind::Bert) => PoolingSynth::First,
                (false, EncoderKind::NomicBert | EncoderKind::NomicBertMoe) => PoolingSynth::Mean,
            },
            seed: 1,
        })
    }

    /// The model in memory.
    ///
    /// # Errors
    /// See [`SynthError`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, SynthError> {
        let sizes = [self.dim, self.layers, self.heads, self.ffn, self.context];
        if sizes.contains(&0) || !self.dim.is_multiple_of(2 * self.heads.max(1)) {
            let why = "no size may be zero, and heads have an even part of dim";
            return Err(SynthError::Shape(why.to_owned()));
        }
        let plan = self.plan(self.vocabulary.len())?;
        let mut writer = GgufWriter::new();
        self.put_keys(&mut writer);
        self.vocabulary.put(&mut writer);
        let mut bytes = Vec::new();
        write_planned(writer, &plan, self.seed, &mut bytes)?;
        Ok(bytes)
    }

    fn put_keys(&self, out: &mut GgufWriter) {
        let name = self.kind.name();
        let key = |part: &str| format!("{name}.{part}");
        let title = format!(
            "Synthetic encoder {}x{} {}",
            self.dim, self.layers, self.mix
        );
        out.str("general.architecture", name)
            .str("general.type", "model")
            .str("general.name", &title)
            .u32("general.file_type", self.mix.file_type())
            .u32("general.quantization_version", 2)
            .u32(&key("context_length"), self.context)
            .u32(&key("embedding_length"), self.dim)
            .u32(&key("block_count"), self.layers)
            .u32(&key("feed_forward_length"), self.ffn)
            .u32(&key("attention.head_count"), self.heads)
            .f32(&key("attention.layer_norm_epsilon"), 1e-12)
            .bool(&key("attention.causal"), false);
        let pooling = match self.pooling {
            PoolingSynth::Mean => 1,
            PoolingSynth::First => 2,
            PoolingSynth::Rank => 4,
        };
        out.u32(&key("pooling_type"), pooling);
        if self.kind != EncoderKind::Bert {
            out.f32(&key("rope.freq_base"), 1000.0);
        }
        if self.kind == EncoderKind::NomicBertMoe {
            let (count, used, period) = EXPERTS;
            out.u32(&key("expert_count"), count)
                .u32(&key("expert_used_count"), used)
                .u32(&key("moe_every_n_layers"), period);
        }
    }

    fn plan(&self, vocab: u32) -> Result<Vec<Planned>, SynthError> {
        let (dim, is_bert) = (self.dim, self.kind == EncoderKind::Bert);
        let mut planner = EncoderPlanner {
            spec: self,
            tensors: Vec::new(),
        };
        planner.matrix("token_embd", (dim, vocab), 1.0)?;
        planner.table("token_types", (dim, self.vocabulary.token_types()));
        planner.norm("token_embd_norm");
        if is_bert {
            planner.table("position_embd", (dim, self.context));
        }
        for layer in 0..self.layers {
            let name = |part: &str| format!("blk.{layer}.{part}");
            if is_bert {
                planner.linear(&name("attn_q"), (dim, dim), SHARPNESS)?;
                planner.linear(&name("attn_k"), (dim, dim), SHARPNESS)?;
                planner.linear(&name("attn_v"), (dim, dim), 1.0)?;
            } else {
                planner.linear(&name("attn_qkv"), (dim, 3 * dim), SHARPNESS)?;
            }
            planner.linear(&name("attn_output"), (dim, dim), 1.0)?;
            planner.norm(&name("attn_output_norm"));
            planner.feed_forward(layer)?;
            planner.norm(&name("layer_output_norm"));
        }
        if self.pooling == PoolingSynth::Rank {
            planner.linear("cls", (dim, dim), 1.0)?;
            planner.linear("cls.output", (dim, CLASSES), 1.0)?;
        }
        Ok(planner.tensors)
    }
}

struct EncoderPlanner<'a> {
    spec: &'a EncoderSpec,
    tensors: Vec<Planned>,
}

impl EncoderPlanner<'_> {
    fn feed_forward(&mut self, layer: u32) -> Result<(), SynthError> {
        let (dim, ffn, kind) = (self.spec.dim, self.spec.ffn, self.spec.kind);
        let name = |part: &str| format!("blk.{layer}.{part}");
        let (count, _, period) = EXPERTS;
        if kind == EncoderKind::NomicBertMoe && layer % period == 1 {
            let deviation = ROUTER_SPREAD / (dim as f32).sqrt();
            let (format, dims) = (Format::F32, vec![dim.into(), count.into()]);
            let fill = Fill::Noise { format, deviation };
            self.push(name("ffn_gate_inp.weight"), dims, format, fill);
            self.weights(&name("ffn_up_exps"), vec![dim, ffn, count], 1.0)?;
            return self.weights(&name("ffn_down_exps"), vec![ffn, dim, count], 1.0);
        }
        if kind == EncoderKind::NomicBert {
            self.matrix(&name("ffn_gate"), (dim, ffn), 1.0)?;
        }
        self.linear(&name("ffn_up"), (dim, ffn), 1.0)?;
        self.linear(&name("ffn_down"), (ffn, dim), 1.0)
    }

    /// A matrix with a bias, for families that have biases.
    fn linear(&mut self, name: &str, dims: (u32, u32), gain: f32) -> Result<(), SynthError> {
        self.matrix(name, dims, gain)?;
        if self.spec.kind != EncoderKind::NomicBert {
            self.noise(format!("{name}.bias"), dims.1);
        }
        Ok(())
    }

    /// A matrix of `(cols, rows)` that preserves the magnitude of its input, times `gain`.
    fn matrix(
        &mut self,
        name: &str,
        (cols, rows): (u32, u32),
        gain: f32,
    ) -> Result<(), SynthError> {
        self.weights(name, vec![cols, rows], gain)
    }

    /// A table that llama.cpp's converters leave in F32 whatever the other tensors have: it adds no other format to rows.
    fn table(&mut self, name: &str, (cols, rows): (u32, u32)) {
        let fill = Fill::Noise {
            format: Format::F32,
            deviation: 1.0 / (cols as f32).sqrt(),
        };
        let dims = vec![cols.into(), rows.into()];
        self.push(format!("{name}.weight"), dims, Format::F32, fill);
    }

    /// One matrix or several, as [`Self::matrix`].
    fn weights(&mut self, name: &str, dims: Vec<u32>, gain: f32) -> Result<(), SynthError> {
        let (mix, layers, cols) = (self.spec.mix, self.spec.layers, dims[0]);
        let format = mix.format(Role::Plain, layers, cols.into())?;
        let deviation = gain / (cols as f32).sqrt();
        let fill = Fill::Noise { format, deviation };
        let dims = dims.into_iter().map(u64::from).collect();
        self.push(format!("{name}.weight"), dims, format, fill);
        Ok(())
    }

    fn norm(&mut self, name: &str) {
        let dim = self.spec.dim;
        let fill = Fill::Norm { mean: 1.0 };
        self.push(
            format!("{name}.weight"),
            vec![dim.into()],
            Format::F32,
            fill,
        );
        self.noise(format!("{name}.bias"), dim);
    }

    fn noise(&mut self, name: String, len: u32) {
        let fill = Fill::Noise {
            format: Format::F32,
            deviation: 0.2,
        };
        self.push(name, vec![len.into()], Format::F32, fill);
    }

    fn push(&mut self, name: String, dims: Vec<u64>, format: Format, fill: Fill) {
        let kind = TensorKind::from(format);
        let tensor = TensorPlan { name, dims, kind };
        self.tensors.push(Planned { tensor, fill });
    }
}
