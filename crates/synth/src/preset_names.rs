//! Names of shapes.

/// Presets of one size.
const SHAPES: &[&str] = &[
    "llama-1b",
    "llama-8b",
    "gemma3-4b",
    "qwen3-0.6b",
    "qwen3-30b-a3b-slice",
    "gpt-oss-20b-slice",
    "gemma4-e2b",
    "gemma4-26b-a4b-slice",
    "qwen3.5-0.8b",
    "qwen3.5-9b-slice",
    "qwen3.5-35b-a3b-slice",
    "mamba2-370m",
    "server-layer",
];

/// Names after `tiny-` and `small-`.
const FAMILIES: &[&str] = &[
    "llama",
    "qwen2",
    "qwen3",
    "qwen35",
    "qwen35-mtp",
    "gemma2",
    "gemma3",
    "phi3",
    "granite",
    "smollm3",
    "mistral3",
    "olmo2",
    "gemma",
    "command-r",
    "cohere2",
    "glm4",
    "exaone4",
    "hunyuan-dense",
    "ernie4_5",
    "phi2",
    "stablelm",
    "qwen2vl",
    "qwen3vl",
    "mixtral",
    "qwen3moe",
    "qwen3vlmoe",
    "qwen35moe",
    "qwen3next",
    "granitemoe",
    "olmoe",
    "deepseek2",
    "deepseek2-lite",
    "lfm2",
    "granitehybrid",
    "granitehybrid-moe",
    "mamba2",
    "falcon-h1",
    "nemotron_h",
    "gpt-oss",
    "gemma3n",
    "gemma4",
    "gemma4-31b",
    "gemma4-26b",
    "gemma-embedding",
    "qwen3-embedding",
    "qwen3-reranker",
];

/// Names of all presets.
///
/// * `llama-1b`, `llama-8b`, `qwen3-0.6b`: the shapes of Llama 3.2 1B, Llama 3.1 8B and Qwen 3 0.6B, as Q4_K_M;
/// * `tiny-ARCHITECTURE`: two to six layers of 64 (Gemma 3n: 22), f32, for tests of every format with blocks of 32;
/// * `small-ARCHITECTURE`: the same of 256, for formats with blocks of 256;
/// * `qwen3-30b-a3b-slice`: four of the 48 layers of Qwen 3 30B A3B, as Q4_K_M;
/// * `gpt-oss-20b-slice`: four of the 24 layers of gpt-oss 20B, experts in MXFP4 and the rest in Q8_0;
/// * `gemma4-e2b`, and `gemma4-26b-a4b-slice`: Gemma 4 E2B, and six of the 30 layers of 26B A4B, as Q4_K_M;
/// * `qwen3.5-0.8b`, and `qwen3.5-9b-slice`: Qwen 3.5 0.8B, and four of the 32 layers of 9B and of the 40 of 35B A3B, as
///   Q4_K_M; `mamba2-370m`: Mamba-2 370M, as Q4_K_M;
/// * `tiny-deepseek2` as DeepSeek V3, `-lite` as V2 Lite in a file of 2024;
/// * `tiny-mixtral`, `small-mixtral`: Llama with experts;
/// * `tiny-gemma4` as E2B, `-31b` without per-layer embeddings and shared keys and values, `-26b` with experts;
/// * `tiny-gemma-embedding`, `tiny-qwen3-embedding`, `tiny-qwen3-reranker`: for embeddings and scores of documents;
/// * `...-mtp`: with an MTP head, `qwen35` and `qwen35moe` only;
/// * `server-layer`: next to no arithmetic and a vocabulary of 4096, to measure all but the model.
pub fn preset_names() -> impl Iterator<Item = String> {
    let sized = |size| {
        FAMILIES
            .iter()
            .map(move |family| format!("{size}-{family}"))
    };
    let shapes = SHAPES.iter().map(|&name| name.to_owned());
    shapes.chain(sized("tiny")).chain(sized("small"))
}

#[cfg(test)]
mod tests {
    use super::super::SynthSpec;
    use super::preset_names;
    use weights::config::Architecture;

    #[test]
    fn presets_are_valid_shapes() {
        for name in preset_names() {
            let spec = SynthSpec::preset(&name).unwrap();
            assert!(spec.check().is_ok(), "{name}");
        }
        assert_eq!(SynthSpec::preset("huge-llama"), None);
    }

    #[test]
    fn every_architecture_has_a_valid_default_and_the_sizes_of_others() {
        for architecture in Architecture::all() {
            let tiny = SynthSpec::preset(&format!("tiny-{}", architecture.name()));
            assert!(
                tiny.is_some_and(|spec| spec.check().is_ok()),
                "{architecture}"
            );
            for other in ["tiny-llama", "llama-1b"] {
                let spec = SynthSpec::preset(other)
                    .unwrap()
                    .in_architecture(architecture);
                assert_eq!(
                    spec.check().map_err(|why| why.to_string()),
                    Ok(()),
                    "{architecture}"
                );
            }
        }
    }
}
