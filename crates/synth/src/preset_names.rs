//! Names of shapes.

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
pub const PRESETS: &[&str] = &[
    "llama-1b",
    "llama-8b",
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
    "tiny-llama",
    "tiny-qwen2",
    "tiny-qwen3",
    "tiny-qwen35",
    "tiny-qwen35-mtp",
    "tiny-gemma2",
    "tiny-gemma3",
    "tiny-phi3",
    "tiny-granite",
    "tiny-smollm3",
    "tiny-mistral3",
    "tiny-olmo2",
    "tiny-gemma",
    "tiny-command-r",
    "tiny-cohere2",
    "tiny-glm4",
    "tiny-exaone4",
    "tiny-hunyuan-dense",
    "tiny-ernie4_5",
    "tiny-phi2",
    "tiny-stablelm",
    "tiny-qwen2vl",
    "tiny-qwen3vl",
    "tiny-mixtral",
    "tiny-qwen3moe",
    "tiny-qwen35moe",
    "tiny-qwen3next",
    "tiny-granitemoe",
    "tiny-olmoe",
    "tiny-deepseek2",
    "tiny-deepseek2-lite",
    "tiny-lfm2",
    "tiny-granitehybrid",
    "tiny-granitehybrid-moe",
    "tiny-mamba2",
    "tiny-falcon-h1",
    "tiny-nemotron_h",
    "tiny-gpt-oss",
    "tiny-gemma3n",
    "tiny-gemma4",
    "tiny-gemma4-31b",
    "tiny-gemma4-26b",
    "tiny-gemma-embedding",
    "tiny-qwen3-embedding",
    "tiny-qwen3-reranker",
    "small-llama",
    "small-qwen2",
    "small-qwen3",
    "small-qwen35",
    "small-qwen35-mtp",
    "small-gemma2",
    "small-gemma3",
    "small-phi3",
    "small-granite",
    "small-smollm3",
    "small-mistral3",
    "small-olmo2",
    "small-gemma",
    "small-command-r",
    "small-cohere2",
    "small-glm4",
    "small-exaone4",
    "small-hunyuan-dense",
    "small-ernie4_5",
    "small-phi2",
    "small-stablelm",
    "small-qwen2vl",
    "small-qwen3vl",
    "small-mixtral",
    "small-qwen3moe",
    "small-qwen35moe",
    "small-qwen3next",
    "small-granitemoe",
    "small-olmoe",
    "small-deepseek2",
    "small-deepseek2-lite",
    "small-lfm2",
    "small-granitehybrid",
    "small-granitehybrid-moe",
    "small-mamba2",
    "small-falcon-h1",
    "small-nemotron_h",
    "small-gpt-oss",
    "small-gemma3n",
    "small-gemma4",
    "small-gemma4-31b",
    "small-gemma4-26b",
    "small-gemma-embedding",
    "small-qwen3-embedding",
    "small-qwen3-reranker",
];

#[cfg(test)]
mod tests {
    use super::super::SynthSpec;
    use super::PRESETS;
    use weights::config::Architecture;

    #[test]
    fn presets_are_valid_shapes() {
        for name in PRESETS {
            let spec = SynthSpec::preset(name).unwrap();
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
