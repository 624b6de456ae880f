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
    /// The text part of Qwen 3 VL with experts.
    Qwen3VlMoe,
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

/// All supported families, in the order of the enum, with their names in `general.architecture`.
const NAMES: [(Architecture, &str); 38] = [
    (Architecture::Llama, "llama"),
    (Architecture::Qwen2, "qwen2"),
    (Architecture::Qwen3, "qwen3"),
    (Architecture::Qwen35, "qwen35"),
    (Architecture::Gemma2, "gemma2"),
    (Architecture::Gemma3, "gemma3"),
    (Architecture::Phi3, "phi3"),
    (Architecture::Granite, "granite"),
    (Architecture::SmolLm3, "smollm3"),
    (Architecture::Mistral3, "mistral3"),
    (Architecture::Olmo2, "olmo2"),
    (Architecture::Gemma, "gemma"),
    (Architecture::CommandR, "command-r"),
    (Architecture::Cohere2, "cohere2"),
    (Architecture::Glm4, "glm4"),
    (Architecture::Exaone4, "exaone4"),
    (Architecture::HunyuanDense, "hunyuan-dense"),
    (Architecture::Ernie45, "ernie4_5"),
    (Architecture::Phi2, "phi2"),
    (Architecture::StableLm, "stablelm"),
    (Architecture::Qwen2Vl, "qwen2vl"),
    (Architecture::Qwen3Vl, "qwen3vl"),
    (Architecture::Qwen3Moe, "qwen3moe"),
    (Architecture::Qwen3VlMoe, "qwen3vlmoe"),
    (Architecture::Qwen35Moe, "qwen35moe"),
    (Architecture::Qwen3Next, "qwen3next"),
    (Architecture::GraniteMoe, "granitemoe"),
    (Architecture::DeepSeek2, "deepseek2"),
    (Architecture::Olmoe, "olmoe"),
    (Architecture::Lfm2, "lfm2"),
    (Architecture::GraniteHybrid, "granitehybrid"),
    (Architecture::Mamba2, "mamba2"),
    (Architecture::FalconH1, "falcon-h1"),
    (Architecture::NemotronH, "nemotron_h"),
    (Architecture::GptOss, "gpt-oss"),
    (Architecture::Gemma4, "gemma4"),
    (Architecture::Gemma3n, "gemma3n"),
    (Architecture::GemmaEmbedding, "gemma-embedding"),
];

impl Architecture {
    /// All supported families.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMES.iter().map(|row| row.0)
    }

    /// The name in `general.architecture`, which is also the prefix of the keys.
    pub const fn name(self) -> &'static str {
        NAMES[self as usize].1
    }

    /// The family with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|family| family.name() == name)
    }
}

impl std::fmt::Display for Architecture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_the_enum() {
        for (at, (family, name)) in NAMES.into_iter().enumerate() {
            assert_eq!(family as usize, at, "{name}");
        }
    }
}
