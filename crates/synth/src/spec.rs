//! Description of a synthetic model.

use super::Mix;
use super::error::SynthError;
use super::experts::{ExpertsSynth, LatentSynth};
use super::layers::LayersSynth;
use super::outline::TaskSynth;
use super::recurrent::RecurrentSynth;
use super::vocab::VOCAB_MIN;
use weights::config::Architecture;
use weights::config::traits::ExpertRule;

/// Description of a synthetic model. Start from [`SynthSpec::preset`] and change fields.
#[derive(Clone, Debug, PartialEq)]
pub struct SynthSpec {
    /// Family of decoders.
    pub architecture: Architecture,
    /// Width of the residual stream.
    pub dim: u32,
    /// Layers.
    pub layers: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads; divides `heads`.
    pub kv_heads: u32,
    /// Elements of one head.
    pub head_dim: u32,
    /// Width of the feed-forward part.
    pub ffn: u32,
    /// Entries of the vocabulary, unless taken from another file.
    pub vocab: u32,
    /// Context length in the metadata.
    pub context: u32,
    /// Storage formats of the matrices.
    pub mix: Mix,
    /// Whether the embedding is the output matrix as well.
    pub tied: bool,
    /// Rotary embedding.
    pub rope: RopeSynth,
    /// Sliding window, for architectures with windows.
    pub window: Option<u32>,
    /// Each `period`-th layer has no window, if there is a window. `None` means the architecture's default.
    pub window_period: Option<u32>,
    /// Pairs that turn by each of four positions (M-RoPE).
    pub sections: Option<[u32; 4]>,
    /// Control tokens at the end of the vocabulary, in addition to those of all models: the marks around images.
    pub marks: &'static [&'static str],
    /// First layers after which something is added to rows that are vectors; 0 for none.
    pub deepstack: u32,
    /// Experts of the feed-forward part.
    pub experts: Option<ExpertsSynth>,
    /// How layers differ, in a family whose layers do.
    pub differing: Option<LayersSynth>,
    /// Latent attention, in a family that has it.
    pub latent: Option<LatentSynth>,
    /// Recurrent layers, in a family that has them.
    pub recurrent: Option<RecurrentSynth>,
    /// Whether the model has an MTP head.
    pub mtp: bool,
    /// What the model was made for.
    pub task: TaskSynth,
    /// Seed of the weights.
    pub seed: u64,
}

/// The rotary embedding of a synthetic model.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSynth {
    /// Base of the frequencies.
    pub base: f32,
    /// Number of rotated elements of a head; `None` for all. llama requires all.
    pub dims: Option<u32>,
    /// Scaling of the context.
    pub scaling: RopeScaling,
}

impl RopeSynth {
    /// All dimensions turn, without scaling.
    pub(super) const fn plain(base: f32) -> Self {
        Self {
            base,
            dims: None,
            scaling: RopeScaling::None,
        }
    }
}

/// Scaling of a model's context beyond the original training.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// No scaling.
    None,
    /// Positions are divided by a factor.
    Linear {
        /// The factor.
        factor: f32,
    },
    /// Low frequencies are divided by a factor: the tensor `rope_freqs.weight` of Llama 3.1 and later.
    Llama3 {
        /// The factor.
        factor: f32,
        /// Positions of the original training.
        original_context: u32,
    },
    /// Two lists of divisors, for short and long contexts: phi 3.
    Longrope {
        /// Positions of the original training.
        original_context: u32,
        /// Factor of sine and cosine.
        attention_factor: f32,
    },
    /// YaRN (Peng et al. 2023).
    Yarn {
        /// The factor.
        factor: f32,
        /// Positions of the original training.
        original_context: u32,
    },
}

impl SynthSpec {
    /// Whether queries and keys have a norm with weights for each head, as large models of some families have:
    /// Command R+ (64 layers) and StableLM 2 12B (40 layers), whose blocks run side by side then.
    pub(super) fn has_each_head_norm(&self) -> bool {
        match self.architecture {
            Architecture::CommandR => self.layers >= 64,
            Architecture::StableLm => self.layers >= 40,
            _ => false,
        }
    }

    /// Checks that the architecture allows this shape.
    ///
    /// # Errors
    /// [`SynthError::Shape`], with the violated rule.
    pub fn check(&self) -> Result<(), SynthError> {
        let mut rules = self.size_rules().into_iter().chain(self.family_rules());
        match rules.find(|(holds, _)| !holds) {
            Some((_, why)) => Err(SynthError::Shape(why)),
            None => Ok(()),
        }
    }

    /// Rules of all families: whether each holds, and its text.
    fn size_rules(&self) -> [(bool, String); 5] {
        let rope_dims = self.rope_dims();
        let sizes = [
            self.dim,
            self.layers,
            self.heads,
            self.kv_heads,
            self.head_dim,
            self.ffn,
        ];
        [
            (
                !sizes.contains(&0) && self.context > 0,
                "no size may be zero".to_owned(),
            ),
            (
                self.vocab >= VOCAB_MIN,
                format!(
                    "a vocabulary has {VOCAB_MIN} entries at least, not {}",
                    self.vocab
                ),
            ),
            (
                self.kv_heads > 0 && self.heads.is_multiple_of(self.kv_heads),
                format!(
                    "{} kv heads do not divide {} heads",
                    self.kv_heads, self.heads
                ),
            ),
            (
                rope_dims.is_multiple_of(2) && (2..=self.head_dim).contains(&rope_dims),
                format!("rope cannot turn {rope_dims} of {} elements", self.head_dim),
            ),
            (
                self.window != Some(0),
                "a window of 0 sees nothing".to_owned(),
            ),
        ]
    }

    /// Rules of single families.
    #[expect(clippy::too_many_lines, reason = "a table of rules")]
    fn family_rules(&self) -> [(bool, String); 11] {
        use Architecture::*;
        let architecture = self.architecture;
        let joined = u64::from(self.heads) * u64::from(self.head_dim) == u64::from(self.dim);
        [
            (
                turns_parts(architecture) || self.rope_dims() == self.head_dim,
                format!(
                    "the rope of {architecture} turns all {} elements of a head, not {}",
                    self.head_dim,
                    self.rope_dims()
                ),
            ),
            (
                !joins_heads(architecture) || joined,
                format!(
                    "the width of {architecture} is heads * head_dim: {} heads of {} make {}, not {}",
                    self.heads,
                    self.head_dim,
                    u64::from(self.heads) * u64::from(self.head_dim),
                    self.dim
                ),
            ),
            (
                !matches!(
                    architecture,
                    Gemma | Gemma2 | CommandR | Cohere2 | GemmaEmbedding
                ) || self.tied,
                format!(
                    "{architecture} has no output matrix of its own: its embedding must be tied"
                ),
            ),
            (
                !matches!(architecture, Olmo2 | Phi2 | StableLm | Olmoe) || !self.tied,
                format!(
                    "{architecture} has an output matrix of its own: its embedding must not be tied"
                ),
            ),
            (
                self.experts.is_none() == (self.architecture.traits().experts == ExpertRule::Never)
                    || matches!(architecture, Llama | Gemma4 | GraniteHybrid),
                match self.experts {
                    Some(_) => format!("{architecture} has no experts"),
                    None => format!("{architecture} needs experts"),
                },
            ),
            (
                self.experts
                    .is_none_or(|experts| (1..=experts.count).contains(&experts.used)),
                "a row uses at least one expert, and at most all".to_owned(),
            ),
            (
                self.differing.is_some() == architecture.traits().layers_differ
                    && self.has_sources(),
                if architecture.traits().layers_differ {
                    format!(
                        "the layers of {architecture} differ, and those that read keys and values of earlier ones need layers \
                         with and without a window before them: {} layers do not have them",
                        self.layers
                    )
                } else {
                    format!("the layers of {architecture} do not differ")
                },
            ),
            (
                self.recurrent.is_some() == architecture.traits().recurrent.is_some()
                    && self.has_recurrent_and_others(),
                match architecture.traits().recurrent {
                    Some(_) => format!(
                        "{architecture} needs recurrent layers and others: {} layers do not have both",
                        self.layers
                    ),
                    None => format!("{architecture} has no recurrent layers"),
                },
            ),
            (
                self.latent.is_some() == architecture.traits().latent
                    && self.latent.is_none_or(|_| self.rope_dims() < self.head_dim),
                if architecture.traits().latent {
                    format!(
                        "{architecture} needs latents, and its rope turns a part of each head: {} of {} elements are not",
                        self.rope_dims(),
                        self.head_dim
                    )
                } else {
                    format!("{architecture} has no latents")
                },
            ),
            (
                match architecture {
                    GemmaEmbedding => self.task == TaskSynth::Embedding,
                    Qwen3 | Qwen3Vl => true,
                    _ => self.task != TaskSynth::Ranking,
                },
                match self.task {
                    TaskSynth::Text => format!("{architecture} does not generate text"),
                    TaskSynth::Embedding => format!("{architecture} is not made for embeddings"),
                    TaskSynth::Ranking => format!("{architecture} is not made for ranking"),
                },
            ),
            (
                !self.mtp || matches!(architecture, Qwen35 | Qwen35Moe),
                format!("{architecture} has no MTP head"),
            ),
        ]
    }

    fn rope_dims(&self) -> u32 {
        self.rope.dims.unwrap_or(self.head_dim)
    }
}

/// Whether the heads make up the width: `heads * head_dim = dim`.
pub(super) fn joins_heads(architecture: Architecture) -> bool {
    use Architecture::*;
    matches!(
        architecture,
        Qwen2
            | Phi3
            | Olmo2
            | CommandR
            | Cohere2
            | Exaone4
            | Phi2
            | StableLm
            | Qwen2Vl
            | Olmoe
            | Lfm2
    )
}

/// Whether the rope may leave a part of each head as it is.
fn turns_parts(architecture: Architecture) -> bool {
    use Architecture::*;
    matches!(
        architecture,
        DeepSeek2
            | Phi3
            | Glm4
            | Phi2
            | StableLm
            | Qwen3
            | Qwen35
            | Qwen35Moe
            | Qwen3Next
            | Gemma2
            | Gemma3
    )
}
