//! Named shapes.

use super::experts::{ExpertsSynth, LatentSynth};
use super::layers::LayersSynth;
use super::outline::TaskSynth;
use super::recurrent::RecurrentSynth;
use super::spec::{RopeScaling, RopeSynth, joins_heads};
use super::{Mix, SynthSpec};
use kernels::Format;
use weights::config::Architecture;

impl SynthSpec {
    /// The shape of this name; see [`super::preset_names`].
    pub fn preset(name: &str) -> Option<Self> {
        if let Some(base) = name.strip_suffix("-mtp") {
            return Self::preset(base).map(|spec| Self { mtp: true, ..spec });
        }
        match name {
            "gemma4-e2b" => Some(Self::gemma4_e2b()),
            "gemma4-26b-a4b-slice" => Some(Self::gemma4_26b_a4b_slice()),
            "qwen3-30b-a3b-slice" => Some(Self::qwen3_30b_a3b_slice()),
            "gpt-oss-20b-slice" => Some(Self::gpt_oss_20b_slice()),
            "qwen3.5-0.8b" => Some(Self::qwen35_800m()),
            "qwen3.5-35b-a3b-slice" => Some(Self::qwen35_35b_a3b_slice()),
            "qwen3.5-9b-slice" => Some(Self::qwen35_9b_slice()),
            "mamba2-370m" => Some(Self::mamba2_370m()),
            "llama-1b" => Some(Self::llama_1b()),
            "llama-8b" => Some(Self::llama_8b()),
            "gemma3-4b" => Some(Self::gemma3_4b()),
            "qwen3-0.6b" => Some(Self::qwen3_600m()),
            "server-layer" => Some(Self::server_layer()),
            _ => match name.split_once('-')? {
                ("tiny", family) => Self::of_family(family, Self::tiny),
                ("small", family) => Self::of_family(family, Self::small),
                _ => None,
            },
        }
    }

    /// A family's shape of one size.
    fn of_family(family: &str, sized: impl Fn(Architecture) -> Self) -> Option<Self> {
        use Architecture::*;
        Some(match family {
            "gemma4-31b" => sized(Gemma4).like_31b(),
            "gemma4-26b" => sized(Gemma4).like_26b(),
            "deepseek2-lite" => sized(DeepSeek2).like_v2_lite(),
            "granitehybrid-moe" => sized(GraniteHybrid).with_shared(),
            "qwen3-embedding" => sized(Qwen3).made_for(TaskSynth::Embedding),
            "qwen3-reranker" => sized(Qwen3).made_for(TaskSynth::Ranking),
            "mixtral" => sized(Llama).mixtral(),
            family => sized(Architecture::from_name(family)?),
        })
    }

    /// Two layers (four where layers alternate) of 64, f32.
    #[expect(clippy::too_many_lines, reason = "tables of families")]
    pub fn tiny(architecture: Architecture) -> Self {
        use Architecture::*;
        let windows = matches!(
            architecture,
            Gemma2 | Gemma3 | Gemma3n | Gemma4 | GemmaEmbedding | Olmo2 | Cohere2 | GptOss
        );
        let gemma = matches!(
            architecture,
            Gemma | Gemma2 | Gemma3 | Gemma3n | Gemma4 | GemmaEmbedding
        );
        // The others choose the head size freely.
        let wide = gemma
            || matches!(
                architecture,
                Qwen3
                    | Qwen3Vl
                    | Qwen35
                    | Qwen3Moe
                    | Qwen3VlMoe
                    | Qwen35Moe
                    | Qwen3Next
                    | GptOss
                    | FalconH1
                    | NemotronH
            );
        let untied = matches!(
            architecture,
            Qwen3Moe | Qwen3VlMoe | Qwen35Moe | Qwen3Next | GptOss | FalconH1 | NemotronH
        );
        let tied = wide && !untied
            || matches!(
                architecture,
                CommandR
                    | Cohere2
                    | Granite
                    | GraniteMoe
                    | GraniteHybrid
                    | HunyuanDense
                    | Lfm2
                    | Mamba2
            );
        let head_dim = match architecture {
            DeepSeek2 => 48,
            _ if wide => 32,
            _ => 16,
        };
        Self {
            architecture,
            dim: 64,
            layers: match architecture {
                Gemma4 => 6,
                // From the 21st on they read the keys and values of earlier ones.
                Gemma3n => 22,
                NemotronH => 6,
                DeepSeek2 => 3,
                SmolLm3 | Qwen35 | Qwen35Moe | Qwen3Next | Lfm2 | GraniteHybrid => 4,
                _ if windows => 4,
                _ => 2,
            },
            heads: 4,
            kv_heads: if architecture == Olmoe { 4 } else { 2 },
            head_dim,
            ffn: 128,
            vocab: 300,
            context: 256,
            mix: Mix::Uniform(Format::F32),
            tied,
            rope: RopeSynth {
                base: 10_000.0,
                dims: match architecture {
                    DeepSeek2 => Some(head_dim / 3),
                    Glm4 | Phi2 => Some(head_dim / 2),
                    StableLm | Qwen35 | Qwen35Moe | Qwen3Next => Some(head_dim / 4),
                    _ => None,
                },
                scaling: scaling(architecture),
            },
            window: windows.then_some(16),
            window_period: window_period(architecture),
            marks: &[],
            deepstack: 0,
            sections: match architecture {
                Qwen2Vl | Qwen3Vl | Qwen3VlMoe => Some(sections(head_dim)),
                Qwen35 | Qwen35Moe => Some(sections(head_dim / 4)),
                _ => None,
            },
            experts: ExpertsSynth::tiny(architecture),
            differing: LayersSynth::tiny(architecture),
            latent: LatentSynth::tiny(architecture),
            recurrent: RecurrentSynth::tiny(architecture),
            mtp: false,
            task: TaskSynth::of(architecture),
            seed: 1,
        }
    }

    /// This shape in another architecture: the sizes are kept, as far as the architecture leaves them free.
    #[must_use]
    pub fn in_architecture(self, architecture: Architecture) -> Self {
        let tiny = Self::tiny(architecture);
        let has_kinds = tiny.differing.is_some() || tiny.recurrent.is_some();
        let mut spec = Self {
            dim: self.dim,
            layers: if has_kinds {
                tiny.layers
            } else {
                self.layers.max(tiny.layers)
            },
            heads: self.heads,
            kv_heads: if tiny.kv_heads == tiny.heads {
                self.heads
            } else {
                self.kv_heads
            },
            ffn: self.ffn,
            vocab: self.vocab,
            context: self.context,
            mix: self.mix,
            seed: self.seed,
            ..tiny
        };
        spec.fit_heads();
        spec
    }

    /// Sets the size of a head where the architecture derives it from the width.
    pub fn fit_heads(&mut self) {
        let is_derived = joins_heads(self.architecture) && self.heads > 0;
        if !is_derived || !self.dim.is_multiple_of(self.heads) {
            return;
        }
        let head_dim = self.dim / self.heads;
        let scaled = |dims: u32| dims * head_dim / self.head_dim.max(1);
        self.rope.dims = self.rope.dims.map(scaled);
        self.sections = self.sections.map(|parts| parts.map(scaled));
        self.head_dim = head_dim;
    }

    fn made_for(self, task: TaskSynth) -> Self {
        Self { task, ..self }
    }

    fn qwen3_30b_a3b_slice() -> Self {
        Self {
            dim: 2048,
            layers: 4,
            heads: 32,
            kv_heads: 4,
            head_dim: 128,
            ffn: 6144,
            vocab: 151_936,
            context: 40_960,
            mix: Mix::Q4_K_M,
            rope: RopeSynth::plain(1e6),
            experts: Some(ExpertsSynth {
                count: 128,
                used: 8,
                ffn: 768,
                shared: 0,
            }),
            ..Self::tiny(Architecture::Qwen3Moe)
        }
    }

    fn gpt_oss_20b_slice() -> Self {
        Self {
            dim: 2880,
            layers: 4,
            heads: 64,
            kv_heads: 8,
            head_dim: 64,
            ffn: 2880,
            vocab: 201_088,
            context: 131_072,
            mix: Mix::MXFP4_MOE,
            rope: RopeSynth {
                base: 150_000.0,
                dims: None,
                scaling: RopeScaling::Yarn {
                    factor: 32.0,
                    original_context: 4096,
                },
            },
            window: Some(128),
            experts: Some(ExpertsSynth {
                count: 32,
                used: 4,
                ffn: 2880,
                shared: 0,
            }),
            ..Self::tiny(Architecture::GptOss)
        }
    }

    /// [`SynthSpec::tiny`] with rows that are whole blocks of 256, as Q4_K_M.
    pub fn small(architecture: Architecture) -> Self {
        let tiny = Self::tiny(architecture);
        Self {
            dim: 256,
            head_dim: tiny.head_dim * 4,
            ffn: 512,
            vocab: 512,
            context: 512,
            mix: Mix::Q4_K_M,
            rope: RopeSynth {
                dims: tiny.rope.dims.map(|dims| dims * 4),
                ..tiny.rope
            },
            experts: tiny.experts.map(|experts| ExpertsSynth {
                ffn: experts.ffn * 4,
                shared: experts.shared * 4,
                ..experts
            }),
            sections: tiny.sections.map(|_| {
                let dims = tiny.rope.dims.unwrap_or(tiny.head_dim);
                sections(dims * 4)
            }),
            differing: tiny.differing.map(|layers| LayersSynth {
                local_head_dim: layers.local_head_dim * 4,
                per_layer: 256,
                ..layers
            }),
            latent: tiny.latent.map(LatentSynth::small),
            recurrent: tiny.recurrent.map(|recurrent| RecurrentSynth {
                head_dim: recurrent.head_dim * 4,
                state_dim: recurrent.state_dim * 4,
                ..recurrent
            }),
            ..tiny
        }
    }

    fn llama_1b() -> Self {
        Self {
            dim: 2048,
            layers: 16,
            heads: 32,
            kv_heads: 8,
            head_dim: 64,
            ffn: 8192,
            vocab: 128_256,
            context: 131_072,
            mix: Mix::Q4_K_M,
            tied: true,
            rope: RopeSynth {
                base: 500_000.0,
                dims: None,
                scaling: RopeScaling::Llama3 {
                    factor: 32.0,
                    original_context: 8192,
                },
            },
            ..Self::tiny(Architecture::Llama)
        }
    }

    fn gemma3_4b() -> Self {
        Self {
            dim: 2560,
            layers: 34,
            heads: 8,
            kv_heads: 4,
            head_dim: 256,
            ffn: 10_240,
            vocab: 262_208,
            context: 131_072,
            mix: Mix::Q4_K_M,
            rope: RopeSynth {
                scaling: RopeScaling::Linear { factor: 8.0 },
                ..RopeSynth::plain(1_000_000.0)
            },
            window: Some(1024),
            window_period: Some(6),
            ..Self::tiny(Architecture::Gemma3)
        }
    }

    fn llama_8b() -> Self {
        Self {
            dim: 4096,
            layers: 32,
            head_dim: 128,
            ffn: 14_336,
            tied: false,
            rope: RopeSynth {
                base: 500_000.0,
                dims: None,
                scaling: RopeScaling::Llama3 {
                    factor: 8.0,
                    original_context: 8192,
                },
            },
            ..Self::llama_1b()
        }
    }

    fn qwen3_600m() -> Self {
        Self {
            dim: 1024,
            layers: 28,
            heads: 16,
            kv_heads: 8,
            head_dim: 128,
            ffn: 3072,
            vocab: 151_936,
            context: 40_960,
            mix: Mix::Q4_K_M,
            rope: RopeSynth::plain(1e6),
            ..Self::tiny(Architecture::Qwen3)
        }
    }

    fn server_layer() -> Self {
        Self {
            vocab: 4096,
            context: 4096,
            mix: Mix::Uniform(Format::Q8_0),
            rope: RopeSynth::plain(10_000.0),
            ..Self::tiny(Architecture::Llama)
        }
    }
}

/// The context scaling of a tiny model.
fn scaling(architecture: Architecture) -> RopeScaling {
    match architecture {
        Architecture::Llama => RopeScaling::Llama3 {
            factor: 8.0,
            original_context: 64,
        },
        Architecture::Phi3 => RopeScaling::Longrope {
            original_context: 64,
            attention_factor: 1.19,
        },
        Architecture::Mistral3 | Architecture::GptOss | Architecture::DeepSeek2 => {
            RopeScaling::Yarn {
                factor: 4.0,
                original_context: 64,
            }
        }
        _ => RopeScaling::None,
    }
}

/// A third of the pairs each for time, height and width, and none for the fourth position.
fn sections(head_dim: u32) -> [u32; 4] {
    let pairs = head_dim / 2;
    [
        pairs.div_ceil(3),
        (pairs - 1).div_ceil(3),
        (pairs - 2).div_ceil(3),
        0,
    ]
}

/// One of so many layers of a tiny model has no window.
fn window_period(architecture: Architecture) -> Option<u32> {
    match architecture {
        Architecture::Gemma3 | Architecture::GemmaEmbedding => Some(2),
        Architecture::Gemma4 => Some(3),
        Architecture::Gemma3n => Some(5),
        _ => None,
    }
}
