//! Short names of Ollama's clients, and repositories with these models as GGUF files.

/// A short name.
pub(super) struct Known {
    /// Name with tag.
    name: &'static str,
    pub(super) repository: &'static str,
    pub(super) quant: &'static str,
}

/// Short names; the first of a family is the default of the name without a tag.
const KNOWN: &[Known] = &[
    known_repository("qwen3.5:9b", "unsloth/Qwen3.5-9B-GGUF", "Q4_K_M"),
    known_repository("qwen3.5:0.8b", "unsloth/Qwen3.5-0.8B-GGUF", "Q8_0"),
    known_repository("qwen3.5:2b", "unsloth/Qwen3.5-2B-GGUF", "Q8_0"),
    known_repository("qwen3.5:4b", "unsloth/Qwen3.5-4B-GGUF", "Q4_K_M"),
    known_repository("qwen3.5:27b", "unsloth/Qwen3.5-27B-GGUF", "Q4_K_M"),
    known_repository("qwen3.5:35b", "unsloth/Qwen3.5-35B-A3B-GGUF", "Q4_K_M"),
    known_repository("qwen3.6:35b", "unsloth/Qwen3.6-35B-A3B-GGUF", "Q4_K_M"),
    known_repository(
        "qwen3-next:80b",
        "unsloth/Qwen3-Next-80B-A3B-Instruct-GGUF",
        "Q4_K_M",
    ),
    known_repository("qwen3.6:27b", "unsloth/Qwen3.6-27B-GGUF", "Q4_K_M"),
    known_repository(
        "lfm2.5:1.2b",
        "LiquidAI/LFM2.5-1.2B-Instruct-GGUF",
        "Q4_K_M",
    ),
    known_repository(
        "granite4:micro-h",
        "ibm-granite/granite-4.0-h-micro-GGUF",
        "Q4_K_M",
    ),
    known_repository(
        "granite4:tiny-h",
        "ibm-granite/granite-4.0-h-tiny-GGUF",
        "Q4_K_M",
    ),
    known_repository(
        "falcon-h1:1.5b",
        "tiiuae/Falcon-H1-1.5B-Deep-Instruct-GGUF",
        "Q4_K_M",
    ),
    known_repository(
        "falcon-h1:7b",
        "tiiuae/Falcon-H1-7B-Instruct-GGUF",
        "Q4_K_M",
    ),
    known_repository(
        "nemotron-nano:9b-v2",
        "bartowski/nvidia_NVIDIA-Nemotron-Nano-9B-v2-GGUF",
        "Q4_K_M",
    ),
    known_repository("glm-4.7-flash", "unsloth/GLM-4.7-Flash-GGUF", "Q4_K_M"),
    known_repository(
        "deepseek-v2:16b",
        "second-state/DeepSeek-V2-Lite-Chat-GGUF",
        "Q4_K_M",
    ),
    known_repository(
        "deepseek-coder-v2:16b",
        "bartowski/DeepSeek-Coder-V2-Lite-Instruct-GGUF",
        "Q4_K_M",
    ),
    known_repository("qwen3:4b", "Qwen/Qwen3-4B-GGUF", "Q4_K_M"),
    known_repository("qwen3:0.6b", "Qwen/Qwen3-0.6B-GGUF", "Q8_0"),
    known_repository("qwen3:1.7b", "Qwen/Qwen3-1.7B-GGUF", "Q8_0"),
    known_repository("qwen3:8b", "Qwen/Qwen3-8B-GGUF", "Q4_K_M"),
    known_repository("qwen3:14b", "Qwen/Qwen3-14B-GGUF", "Q4_K_M"),
    known_repository("qwen3:32b", "Qwen/Qwen3-32B-GGUF", "Q4_K_M"),
    known_repository("qwen2.5:3b", "Qwen/Qwen2.5-3B-Instruct-GGUF", "Q4_K_M"),
    known_repository("qwen2.5:0.5b", "Qwen/Qwen2.5-0.5B-Instruct-GGUF", "Q4_K_M"),
    known_repository("qwen2.5:1.5b", "Qwen/Qwen2.5-1.5B-Instruct-GGUF", "Q4_K_M"),
    known_repository("qwen2.5:7b", "Qwen/Qwen2.5-7B-Instruct-GGUF", "Q4_K_M"),
    known_repository(
        "llama3.2:3b",
        "bartowski/Llama-3.2-3B-Instruct-GGUF",
        "Q4_K_M",
    ),
    known_repository(
        "llama3.2:1b",
        "bartowski/Llama-3.2-1B-Instruct-GGUF",
        "Q4_K_M",
    ),
    known_repository(
        "llama3.1:8b",
        "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF",
        "Q4_K_M",
    ),
    known_repository(
        "gemma4:e4b",
        "bartowski/google_gemma-4-E4B-it-GGUF",
        "Q4_K_M",
    ),
    known_repository(
        "gemma4:e2b",
        "bartowski/google_gemma-4-E2B-it-GGUF",
        "Q4_K_M",
    ),
    known_repository("gemma4:12b", "bartowski/gemma-4-12B-it-GGUF", "Q4_K_M"),
    known_repository(
        "gemma4:26b",
        "bartowski/google_gemma-4-26B-A4B-it-GGUF",
        "Q4_K_M",
    ),
    known_repository(
        "gemma4:31b",
        "bartowski/google_gemma-4-31B-it-GGUF",
        "Q4_K_M",
    ),
    known_repository(
        "gemma3n:e4b",
        "bartowski/google_gemma-3n-E4B-it-GGUF",
        "Q4_K_M",
    ),
    known_repository(
        "gemma3n:e2b",
        "bartowski/google_gemma-3n-E2B-it-GGUF",
        "Q4_K_M",
    ),
    known_repository("gemma3:4b", "bartowski/google_gemma-3-4b-it-GGUF", "Q4_K_M"),
    known_repository("gemma3:1b", "bartowski/google_gemma-3-1b-it-GGUF", "Q4_K_M"),
    known_repository("gemma2:2b", "bartowski/gemma-2-2b-it-GGUF", "Q4_K_M"),
    known_repository("gemma2:9b", "bartowski/gemma-2-9b-it-GGUF", "Q4_K_M"),
    known_repository(
        "phi3:mini",
        "bartowski/Phi-3.5-mini-instruct-GGUF",
        "Q4_K_M",
    ),
    known_repository("gpt-oss:20b", "ggml-org/gpt-oss-20b-GGUF", "MXFP4"),
    known_repository("gpt-oss:120b", "ggml-org/gpt-oss-120b-GGUF", "MXFP4"),
    known_repository(
        "smollm2:1.7b",
        "bartowski/SmolLM2-1.7B-Instruct-GGUF",
        "Q4_K_M",
    ),
    known_repository(
        "smollm2:360m",
        "bartowski/SmolLM2-360M-Instruct-GGUF",
        "Q8_0",
    ),
    known_repository(
        "smollm2:135m",
        "bartowski/SmolLM2-135M-Instruct-GGUF",
        "Q8_0",
    ),
    known_repository(
        "nomic-embed-text:v1.5",
        "nomic-ai/nomic-embed-text-v1.5-GGUF",
        "F16",
    ),
    known_repository(
        "nomic-embed-text-v2-moe:475m",
        "nomic-ai/nomic-embed-text-v2-moe-GGUF",
        "Q8_0",
    ),
    known_repository(
        "qwen3-embedding:0.6b",
        "Qwen/Qwen3-Embedding-0.6B-GGUF",
        "Q8_0",
    ),
    known_repository(
        "qwen3-embedding:4b",
        "Qwen/Qwen3-Embedding-4B-GGUF",
        "Q4_K_M",
    ),
    known_repository(
        "qwen3-embedding:8b",
        "Qwen/Qwen3-Embedding-8B-GGUF",
        "Q4_K_M",
    ),
    known_repository(
        "embeddinggemma:300m",
        "ggml-org/embeddinggemma-300M-GGUF",
        "Q8_0",
    ),
    known_repository(
        "qwen3-reranker:0.6b",
        "ggml-org/Qwen3-Reranker-0.6B-Q8_0-GGUF",
        "Q8_0",
    ),
    known_repository(
        "qwen3-reranker:4b",
        "giladgd/Qwen3-Reranker-4B-GGUF",
        "Q4_K_M",
    ),
    known_repository(
        "qwen3-reranker:8b",
        "giladgd/Qwen3-Reranker-8B-GGUF",
        "Q4_K_M",
    ),
    known_repository(
        "mxbai-embed-large:335m",
        "ChristianAzinn/mxbai-embed-large-v1-gguf",
        "Q8_0",
    ),
    known_repository("bge-m3:567m", "gpustack/bge-m3-GGUF", "Q8_0"),
    known_repository(
        "bge-reranker-v2-m3:568m",
        "gpustack/bge-reranker-v2-m3-GGUF",
        "Q8_0",
    ),
    known_repository(
        "all-minilm:22m",
        "second-state/All-MiniLM-L6-v2-Embedding-GGUF",
        "Q8_0",
    ),
    known_repository(
        "tinyllama:1.1b",
        "TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF",
        "Q4_K_M",
    ),
];

const fn known_repository(
    name: &'static str,
    repository: &'static str,
    quant: &'static str,
) -> Known {
    Known {
        name,
        repository,
        quant,
    }
}

/// The model of this short name; no tag, or `latest`, means the first.
pub(super) fn find(name: &str) -> Option<&'static Known> {
    let bare = name.strip_suffix(":latest").unwrap_or(name);
    let named = |known: &&Known| {
        let family = known.name.split(':').next();
        known.name == bare || family == Some(bare)
    };
    KNOWN.iter().find(named)
}

/// All short names, for error messages.
pub(super) fn list_names() -> String {
    let names: Vec<_> = KNOWN.iter().map(|known| known.name).collect();
    names.join(", ")
}
