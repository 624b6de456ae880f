//! Settings of the model and of the engine's steps, and the names of what they choose.

use super::ranges::{HOUR_MS, TOKENS_MAX};
use super::{DeviceChoice, MmprojChoice};
use engine::{DRAFT_TOKENS_MAX, EngineConfig};
use kernels::KvKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use weights::packed_file::PackedReading;

/// The model, and the resources that it may use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Model {
    /// A GGUF file, the first part of a split one, a directory that holds exactly one model (a GGUF, or safetensors with their `config.json`), or a local model's name. Without it, `serve` takes the only local model, or else the built-in one; other commands take the built-in one.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "the built-in model answers without a download"))]
    pub(crate) path: Option<PathBuf>,
    /// Model id for clients; default: the file name without its extension.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "the file name identifies the model"))]
    pub(crate) name: Option<String>,
    /// Maximum context of a sequence in tokens; default: the model's training context, as far as the KV cache allows.
    #[schemars(
        range(min = 1, max = TOKENS_MAX),
        extend("x-reload" = "restart", "x-reason" = "clients expect the model's own context")
    )]
    pub(crate) context: Option<usize>,
    /// Adapters (LoRA): each `[NAME=]PATH[:SCALE]`, a GGUF or a folder of PEFT. Requests that say nothing about adapters use those with a scale other than 0 (default: 1).
    #[schemars(extend("x-reload" = "restart", "x-reason" = "a model is served as it is"))]
    pub(crate) adapters: Vec<String>,
    /// File with the tower of a model that sees images (`mmproj`): `auto`, the one next to the model that fits it, or `off`, text only.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "a model that was downloaded with its tower should see"))]
    pub(crate) mmproj: MmprojChoice,
    /// Jinja file with a chat template, in place of the model's own.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "a model's own template is the one of its training"))]
    pub(crate) chat_template: Option<PathBuf>,
    /// Quantization of safetensors weights at load; default: as stored. GGUF files are loaded as they are.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "the file's precision is what its authors tested"))]
    pub(crate) quantize: Option<Quantize>,
    /// Where the model is computed: `cpu`; a GPU as `gpu`, `vulkan`, `metal` or `dx12`, with `:N` for one of several; or `auto`, a GPU that computes the model and reads memory clearly faster than the processor, else the processor.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "a GPU that is there should be used, and a slow one should not"))]
    pub(crate) device: DeviceChoice,
    /// Compute threads, including the engine thread; default: the number of processors, at most one for each MiB of the model's files.
    #[schemars(
        range(min = 1, max = 1024),
        extend("x-reload" = "restart", "x-reason" = "more would share processors, fewer would leave one idle; in a model of a few MiB, threads wait for each other longer than they compute")
    )]
    pub(crate) threads: Option<usize>,
    /// Size of the KV cache; memory is touched only as it is used. With recurrent layers, half of it at most is for states. Default: 65,536 tokens, within a quarter of the machine's memory, and at least 1024.
    #[schemars(
        range(min = 1, max = 1_u64 << 24),
        extend("x-reload" = "restart", "x-reason" = "a prompt of 30,000 tokens, an answer of 10,000 and others next to them fit; three quarters of the memory remain for weights and the rest of the machine")
    )]
    pub(crate) kv_mib: Option<usize>,
    /// Data type of the KV cache, also of the draft model's: `q8_0` needs 53 % of the memory of `f16`, `q4_0` 28 %.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "`q8_0` changes results slightly, `q4_0` visibly, so both are opt-in"))]
    pub(crate) kv_type: KvType,
    /// Batch-invariant results: tokens do not depend on other requests in the batch. Turns AMX off; costs nothing on processors without AMX.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "results depend on the batch only with AMX, where this would cost speed"))]
    pub(crate) deterministic: bool,
}

/// The engine's steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Engine {
    /// Maximum number of sequences in the engine, including parked and paused ones.
    #[schemars(
        range(min = 1, max = 65_536),
        extend("x-reload" = "restart", "x-reason" = "five times what is admitted at one time: one request may have several choices")
    )]
    pub(crate) sequences_max: usize,
    /// Maximum number of tokens computed in one step: decode first, the rest for prefill. At least `sequences_max`.
    #[schemars(
        range(min = 2, max = 65_536),
        extend("x-reload" = "restart", "x-reason" = "weights are read once for that many tokens, and a step still ends soon")
    )]
    pub(crate) step_tokens: usize,
    /// Target duration of a step while sequences are decoding: prefill is chunked to fit, but for one token in 150; 0 = no limit.
    #[schemars(
        range(min = 0, max = HOUR_MS),
        extend("x-reload" = "live", "x-reason" = "ten tokens a second for other streams while a prompt of 30,000 tokens is computed")
    )]
    pub(crate) step_target_ms: u64,
    /// Speculative decoding: source of draft tokens. Changes the speed, never the tokens; with recurrent layers no draft model,
    /// and 3 tokens at most.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "useful for repetitive texts or with a draft model, so it is opt-in"))]
    pub(crate) speculation: Speculation,
    /// Maximum number of draft tokens per sequence and step.
    #[schemars(
        range(min = 1, max = DRAFT_TOKENS_MAX as u64),
        extend("x-reload" = "restart", "x-reason" = "longer proposals are rarely accepted to their end")
    )]
    pub(crate) draft_tokens: usize,
    /// Draft model for `speculation: draft`, with the same vocabulary: a GGUF file or a directory with one.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "there is no draft model by default"))]
    pub(crate) draft_model: Option<PathBuf>,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            path: None,
            name: None,
            context: None,
            adapters: Vec::new(),
            mmproj: MmprojChoice::Auto,
            chat_template: None,
            quantize: None,
            threads: None,
            kv_mib: None,
            kv_type: KvType::F16,
            device: DeviceChoice::Auto,
            deterministic: false,
        }
    }
}

impl Default for Engine {
    fn default() -> Self {
        let engine = EngineConfig::default();
        Self {
            sequences_max: 256,
            step_tokens: engine.step_tokens,
            step_target_ms: engine
                .step_target
                .map_or(0, |target| target.as_millis() as u64),
            speculation: Speculation::Off,
            draft_tokens: engine.draft_tokens,
            draft_model: None,
        }
    }
}

/// Data type of the KV cache.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
pub(crate) enum KvType {
    /// 2 bytes per element.
    #[default]
    #[serde(rename = "f16")]
    #[value(name = "f16")]
    F16,
    /// 8 bits per element and an f16 scale for each 32: 1.06 bytes.
    #[serde(rename = "q8_0")]
    #[value(name = "q8_0")]
    Q8,
    /// 4 bits per element and an f16 scale for each 32: 0.56 bytes.
    #[serde(rename = "q4_0")]
    #[value(name = "q4_0")]
    Q4,
}

impl From<KvType> for KvKind {
    fn from(kind: KvType) -> Self {
        match kind {
            KvType::F16 => Self::F16,
            KvType::Q8 => Self::Q8_0,
            KvType::Q4 => Self::Q4_0,
        }
    }
}

/// Quantization of safetensors weights at load.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
pub(crate) enum Quantize {
    /// 8 bits per weight and a scale for each 32: 8.5 bits.
    #[serde(rename = "q8_0")]
    #[value(name = "q8_0")]
    Q8,
    /// 4 bits per weight, and scales: 4.5 bits; the vocabulary projection has 6.6.
    #[serde(rename = "q4_k")]
    #[value(name = "q4_k")]
    Q4K,
}

impl From<Quantize> for weights::safetensors::Quantize {
    fn from(quantize: Quantize) -> Self {
        match quantize {
            Quantize::Q8 => Self::Q8_0,
            Quantize::Q4K => Self::Q4_K,
        }
    }
}

/// Where guesses come from.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Speculation {
    /// No speculation.
    Off,
    /// Prompt lookup: n-grams of the same conversation.
    PromptLookup,
    /// The model of `draft_model`.
    Draft,
    /// The MTP head in the model's file (Qwen 3.5).
    Mtp,
}

/// Use of the cache of packed weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PackedCacheUse {
    /// Copied from the cache into memory with huge pages.
    #[default]
    Copy,
    /// Used in the mapped file: several processes share one copy, in small pages.
    Map,
    /// Nothing is cached.
    Off,
}

impl PackedCacheUse {
    /// How a cached file is read; `None`: not at all.
    pub(crate) fn reading(self) -> Option<PackedReading> {
        match self {
            Self::Copy => Some(PackedReading::Copy),
            Self::Map => Some(PackedReading::Map),
            Self::Off => None,
        }
    }
}
