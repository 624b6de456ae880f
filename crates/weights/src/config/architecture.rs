//! Families of decoders, by name.

/// A family of decoders, by its name in `general.architecture`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// Llama 1 to 3, Mistral, Mixtral, SmolLM, TinyLlama.
    Llama,
    /// Qwen 1.5, 2 and 2.5.
    Qwen2,
    /// Qwen 3, dense.
    Qwen3,
    /// Qwen 3.5 and later, dense.
    Qwen35,
    /// Gemma 2.
    Gemma2,
    /// Gemma 3, text.
    Gemma3,
    /// Phi 3, 3.5 and 4 mini.
    Phi3,
    /// Granite 3 and 4, dense.
    Granite,
    /// SmolLM 3.
    SmolLm3,
    /// Ministral 3 and Mistral Small with YaRN.
    Mistral3,
    /// OLMo 2 and 3.
    Olmo2,
    /// Gemma 1.
    Gemma,
    /// Command R and Command R+.
    CommandR,
    /// Command R7B, Command A, Aya.
    Cohere2,
    /// GLM 4, dense, from 0414 on.
    Glm4,
    /// EXAONE 4.
    Exaone4,
    /// Hunyuan, dense.
    HunyuanDense,
    /// ERNIE 4.5, dense.
    Ernie45,
    /// Phi 1, 1.5 and 2.
    Phi2,
    /// StableLM 1 and 2.
    StableLm,
    /// The text part of Qwen 2 VL and 2.5 VL.
    Qwen2Vl,
    /// The text part of Qwen 3 VL, dense.
    Qwen3Vl,
    /// Qwen 3 with experts.
    Qwen3Moe,
    /// Qwen 3.5 and later, with experts.
    Qwen35Moe,
    /// Qwen 3 Next.
    Qwen3Next,
    /// Granite 3 and 4 with experts, without recurrent layers.
    GraniteMoe,
    /// DeepSeek V2 and V3, GLM 4.7 Flash, Kimi K2: latent attention.
    DeepSeek2,
    /// OLMoE.
    Olmoe,
    /// LFM 2 and 2.5, dense.
    Lfm2,
    /// Granite 4 with Mamba-2 layers.
    GraniteHybrid,
    /// Mamba-2: no attention, no feed-forward part.
    Mamba2,
    /// Falcon H1: attention and Mamba-2 side by side.
    FalconH1,
    /// Nemotron H, dense: layers of one part.
    NemotronH,
    /// gpt-oss.
    GptOss,
    /// Gemma 4, text.
    Gemma4,
    /// Gemma 3n, text.
    Gemma3n,
    /// EmbeddingGemma, which gives embeddings only.
    GemmaEmbedding,
}

impl Architecture {
    /// All supported families.
    pub const ALL: [Self; 37] = [
        Self::Llama,
        Self::Qwen2,
        Self::Qwen3,
        Self::Qwen35,
        Self::Gemma2,
        Self::Gemma3,
        Self::Phi3,
        Self::Granite,
        Self::SmolLm3,
        Self::Mistral3,
        Self::Olmo2,
        Self::Gemma,
        Self::CommandR,
        Self::Cohere2,
        Self::Glm4,
        Self::Exaone4,
        Self::HunyuanDense,
        Self::Ernie45,
        Self::Phi2,
        Self::StableLm,
        Self::Qwen2Vl,
        Self::Qwen3Vl,
        Self::Qwen3Moe,
        Self::Qwen35Moe,
        Self::Qwen3Next,
        Self::GraniteMoe,
        Self::DeepSeek2,
        Self::Olmoe,
        Self::Lfm2,
        Self::GraniteHybrid,
        Self::Mamba2,
        Self::FalconH1,
        Self::NemotronH,
        Self::GptOss,
        Self::Gemma4,
        Self::Gemma3n,
        Self::GemmaEmbedding,
    ];

    /// The name in `general.architecture`, which is also the prefix of the keys.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Qwen35 => "qwen35",
            Self::Gemma2 => "gemma2",
            Self::Gemma3 => "gemma3",
            Self::Phi3 => "phi3",
            Self::Granite => "granite",
            Self::SmolLm3 => "smollm3",
            Self::Mistral3 => "mistral3",
            Self::Olmo2 => "olmo2",
            Self::Gemma => "gemma",
            Self::CommandR => "command-r",
            Self::Cohere2 => "cohere2",
            Self::Glm4 => "glm4",
            Self::Exaone4 => "exaone4",
            Self::HunyuanDense => "hunyuan-dense",
            Self::Ernie45 => "ernie4_5",
            Self::Phi2 => "phi2",
            Self::StableLm => "stablelm",
            Self::Qwen2Vl => "qwen2vl",
            Self::Qwen3Vl => "qwen3vl",
            Self::Qwen3Moe => "qwen3moe",
            Self::Qwen35Moe => "qwen35moe",
            Self::Qwen3Next => "qwen3next",
            Self::GraniteMoe => "granitemoe",
            Self::DeepSeek2 => "deepseek2",
            Self::Olmoe => "olmoe",
            Self::Lfm2 => "lfm2",
            Self::GraniteHybrid => "granitehybrid",
            Self::Mamba2 => "mamba2",
            Self::FalconH1 => "falcon-h1",
            Self::NemotronH => "nemotron_h",
            Self::GptOss => "gpt-oss",
            Self::Gemma4 => "gemma4",
            Self::Gemma3n => "gemma3n",
            Self::GemmaEmbedding => "gemma-embedding",
        }
    }

    /// The family with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.name() == name)
    }
}

impl std::fmt::Display for Architecture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
