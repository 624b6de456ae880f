//! A synthetic model as Hugging Face's libraries would save the model: stored names, order and `config.json`.

use super::case::Case;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use synth::{RopeScaling, SynthSpec};
use weights::Architecture;
use weights::gguf::{Gguf, TensorInfo};

/// A folder, removed when dropped.
pub(crate) struct Saved {
    pub(crate) folder: PathBuf,
}

/// A stored tensor.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) name: String,
    pub(crate) dtype: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: Vec<u8>,
}

impl Saved {
    /// An empty folder.
    pub(crate) fn empty() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!(
            "millrace-saved-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self { folder }
    }

    /// A case's model in `files` files.
    pub(crate) fn of(line: &str, files: usize) -> Self {
        let spec = Case::parse(line).unwrap().spec;
        let saved = Self::empty();
        saved.put("config.json", config(&spec).to_string().as_bytes());
        saved.put_weights(&stored(&spec), files);
        saved
    }

    pub(crate) fn put(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.folder.join(name), bytes).unwrap();
    }

    /// Weights and, for several files, their index.
    pub(crate) fn put_weights(&self, tensors: &[Stored], files: usize) {
        if files == 1 {
            return self.put("model.safetensors", &file(tensors));
        }
        let mut map = Map::new();
        for (number, part) in tensors.chunks(tensors.len().div_ceil(files)).enumerate() {
            let name = format!("model-{:05}-of-{files:05}.safetensors", number + 1);
            self.put(&name, &file(part));
            map.extend(part.iter().map(|tensor| (tensor.name.clone(), json!(name))));
        }
        let index = json!({"metadata": {"total_size": 1}, "weight_map": map});
        self.put("model.safetensors.index.json", index.to_string().as_bytes());
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A file of these tensors.
pub(crate) fn file(tensors: &[Stored]) -> Vec<u8> {
    let mut header = Map::new();
    header.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    let mut at = 0;
    for tensor in tensors {
        let end = at + tensor.bytes.len();
        let told = json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [at, end]});
        header.insert(tensor.name.clone(), told);
        at = end;
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    tensors.iter().for_each(|tensor| file.extend(&tensor.bytes));
    file
}

/// The case's weights as stored.
pub(crate) fn stored(spec: &SynthSpec) -> Vec<Stored> {
    let gguf = Gguf::from_bytes(spec.to_bytes().unwrap()).unwrap();
    let tensors = gguf
        .tensors()
        .filter(|tensor| !tensor.name.starts_with("rope_"));
    let all = tensors.flat_map(|tensor| match tensor.dims {
        [.., count] if tensor.dims.len() == 3 => {
            let stored = store(spec, &tensor);
            experts(spec, tensor.name, stored, *count as usize)
        }
        _ => vec![store(spec, &tensor)],
    });
    let all: Vec<_> = all.collect();
    fuse_granite(all)
}

/// A tensor for each expert; Granite's in one.
fn experts(spec: &SynthSpec, name: &str, whole: Stored, count: usize) -> Vec<Stored> {
    if spec.architecture == Architecture::GraniteMoe {
        return vec![whole];
    }
    let part = name.rsplit('.').nth(1).unwrap();
    let (layer, each) = (name.split('.').nth(1).unwrap(), whole.bytes.len() / count);
    let expert = |(expert, bytes): (usize, &[u8])| {
        let named = match (spec.architecture, part) {
            (Architecture::Llama, "ffn_gate_exps") => {
                format!("block_sparse_moe.experts.{expert}.w1")
            }
            (Architecture::Llama, "ffn_up_exps") => format!("block_sparse_moe.experts.{expert}.w3"),
            (Architecture::Llama, _) => format!("block_sparse_moe.experts.{expert}.w2"),
            (_, "ffn_gate_exps") => format!("mlp.experts.{expert}.gate_proj"),
            (_, "ffn_up_exps") => format!("mlp.experts.{expert}.up_proj"),
            _ => format!("mlp.experts.{expert}.down_proj"),
        };
        Stored {
            name: format!("model.layers.{layer}.{named}.weight"),
            dtype: whole.dtype.clone(),
            shape: whole.shape[1..].to_vec(),
            bytes: bytes.to_vec(),
        }
    };
    whole.bytes.chunks(each).enumerate().map(expert).collect()
}

/// Granite stores the rows of gate and up projection of each expert together.
fn fuse_granite(all: Vec<Stored>) -> Vec<Stored> {
    let mut out: Vec<Stored> = Vec::new();
    for tensor in all {
        match tensor.name.strip_suffix(".up_half.weight") {
            Some(_) => {
                let gate = out.last_mut().unwrap();
                let each = gate.bytes.len() / gate.shape[0] as usize;
                let both = gate.bytes.chunks(each).zip(tensor.bytes.chunks(each));
                gate.bytes = both.flat_map(|(gate, up)| [gate, up].concat()).collect();
                gate.shape[1] *= 2;
            }
            None => out.push(tensor),
        }
    }
    out
}

fn store(spec: &SynthSpec, tensor: &TensorInfo<'_>) -> Stored {
    let mut bytes = tensor.bytes.to_vec();
    let gemma = matches!(
        spec.architecture,
        Architecture::Gemma
            | Architecture::Gemma2
            | Architecture::Gemma3
            | Architecture::GemmaEmbedding
    );
    if gemma && tensor.name.ends_with("norm.weight") {
        for number in bytes.chunks_exact_mut(4) {
            let whole = f32::from_le_bytes(number.try_into().unwrap());
            number.copy_from_slice(&(whole - 1.0).to_le_bytes());
        }
    }
    let turned = tensor.name.contains("attn_q.") || tensor.name.contains("attn_k.");
    let adjacent = matches!(
        spec.architecture,
        Architecture::Llama
            | Architecture::Granite
            | Architecture::GraniteMoe
            | Architecture::SmolLm3
    );
    if adjacent && turned {
        bytes = halves(&bytes, tensor.rows(), spec.head_dim as usize);
    }
    Stored {
        name: name(spec.architecture, tensor.name),
        dtype: tensor.kind.to_string(),
        shape: tensor.dims.iter().rev().copied().collect(),
        bytes,
    }
}

/// GGUF stores the two elements of a rotated pair together; here all first elements come first.
pub(crate) fn halves(bytes: &[u8], rows: usize, head_dim: usize) -> Vec<u8> {
    let row_bytes = bytes.len() / rows;
    let row = |at: usize| &bytes[at * row_bytes..(at + 1) * row_bytes];
    let mut out = Vec::new();
    for head in 0..rows / head_dim {
        for second in 0..2 {
            for pair in 0..head_dim / 2 {
                out.extend(row(head * head_dim + 2 * pair + second));
            }
        }
    }
    out
}

pub(crate) fn name(architecture: Architecture, name: &str) -> String {
    let around = matches!(
        architecture,
        Architecture::Gemma2 | Architecture::Gemma3 | Architecture::GemmaEmbedding
    );
    let fused = architecture == Architecture::Phi3;
    let Some(rest) = name.strip_prefix("blk.") else {
        return match name {
            "token_embd.weight" => "model.embed_tokens.weight",
            "output_norm.weight" => "model.norm.weight",
            "output.weight" => "lm_head.weight",
            // In folders of their own, or made from the projection.
            "dense_2.weight" => "2_Dense/linear.weight",
            "dense_3.weight" => "3_Dense/linear.weight",
            "cls.output.weight" => "cls.output.weight",
            other => panic!("{other}"),
        }
        .to_owned();
    };
    let (layer, rest) = rest.split_once('.').unwrap();
    let (part, kind) = rest.rsplit_once('.').unwrap();
    let part = match part {
        "attn_norm" => "input_layernorm",
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_qkv" => "self_attn.qkv_proj",
        "attn_output" => "self_attn.o_proj",
        "attn_q_norm" => "self_attn.q_norm",
        "attn_k_norm" => "self_attn.k_norm",
        "post_attention_norm" => "post_attention_layernorm",
        "ffn_norm" if around => "pre_feedforward_layernorm",
        "ffn_norm" => "post_attention_layernorm",
        "post_ffw_norm" => "post_feedforward_layernorm",
        "ffn_gate_inp" => match architecture {
            Architecture::Llama => "block_sparse_moe.gate",
            Architecture::GraniteMoe => "block_sparse_moe.router.layer",
            Architecture::GptOss => "mlp.router",
            _ => "mlp.gate",
        },
        "ffn_gate_exps" => "block_sparse_moe.input_linear",
        "ffn_up_exps" => "block_sparse_moe.up_half",
        "ffn_down_exps" => "block_sparse_moe.output_linear",
        "ffn_gate" => "mlp.gate_proj",
        "ffn_up" if fused => "mlp.gate_up_proj",
        "ffn_up" => "mlp.up_proj",
        "ffn_down" => "mlp.down_proj",
        other => panic!("{other}"),
    };
    format!("model.layers.{layer}.{part}.{kind}")
}

/// The class in transformers, the gate's non-linearity, and the epsilon of norms.
fn class_of(spec: &SynthSpec) -> (&'static str, &'static str, f64) {
    use Architecture::*;
    match spec.architecture {
        Llama if spec.experts.is_some() => ("MixtralForCausalLM", "silu", 1e-5),
        Llama => ("LlamaForCausalLM", "silu", 1e-5),
        Qwen3Moe => ("Qwen3MoeForCausalLM", "silu", 1e-6),
        GraniteMoe => ("GraniteMoeForCausalLM", "silu", 1e-6),
        Olmoe => ("OlmoeForCausalLM", "silu", 1e-5),
        GptOss => ("GptOssForCausalLM", "silu", 1e-5),
        Qwen2 => ("Qwen2ForCausalLM", "silu", 1e-6),
        Qwen3 => ("Qwen3ForCausalLM", "silu", 1e-6),
        Gemma2 => ("Gemma2ForCausalLM", "gelu_pytorch_tanh", 1e-6),
        Gemma3 => ("Gemma3ForCausalLM", "gelu_pytorch_tanh", 1e-6),
        GemmaEmbedding => ("Gemma3TextModel", "gelu_pytorch_tanh", 1e-6),
        Phi3 => ("Phi3ForCausalLM", "silu", 1e-5),
        Gemma => ("GemmaForCausalLM", "gelu_pytorch_tanh", 1e-6),
        Granite => ("GraniteForCausalLM", "silu", 1e-6),
        SmolLm3 => ("SmolLM3ForCausalLM", "silu", 1e-6),
        Olmo2 => ("Olmo2ForCausalLM", "silu", 1e-6),
        Ernie45 => ("Ernie4_5ForCausalLM", "silu", 1e-6),
        other => panic!("{other} is not saved here"),
    }
}

/// The case's `config.json`, with the field names of files before 2026.
pub(crate) fn config(spec: &SynthSpec) -> Value {
    let (class, gate, eps) = class_of(spec);
    let mut config = json!({
        "architectures": [class],
        "hidden_act": gate,
        "rms_norm_eps": eps,
        "num_hidden_layers": spec.layers,
        "hidden_size": spec.dim,
        "intermediate_size": spec.ffn,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "vocab_size": spec.vocab,
        "max_position_embeddings": spec.context,
        "tie_word_embeddings": spec.tied,
        "rope_theta": spec.rope.base,
        "rope_scaling": null,
        "sliding_window": spec.window,
        "torch_dtype": "float32",
    });
    if let Some(period) = spec.window_period {
        config["sliding_window_pattern"] = json!(period);
    }
    if matches!(
        spec.architecture,
        Architecture::Granite | Architecture::GraniteMoe
    ) {
        config["embedding_multiplier"] = json!(12.0);
        config["residual_multiplier"] = json!(0.25);
        config["attention_multiplier"] = json!(3.0 / f64::from(spec.head_dim));
        config["logits_scaling"] = json!(8.0);
    }
    if spec.architecture == Architecture::SmolLm3 {
        let flags: Vec<u32> = (1..=spec.layers)
            .map(|layer| u32::from(layer % 4 != 0))
            .collect();
        config["no_rope_layers"] = json!(flags);
    }
    if matches!(
        spec.architecture,
        Architecture::Gemma3 | Architecture::GemmaEmbedding
    ) {
        config["rope_local_base_freq"] = json!(10_000.0);
    }
    if spec.architecture == Architecture::Gemma2 {
        config["attn_logit_softcapping"] = json!(50.0);
        config["final_logit_softcapping"] = json!(30.0);
    }
    if let RopeScaling::Longrope {
        original_context, ..
    } = spec.rope.scaling
    {
        config["original_max_position_embeddings"] = json!(original_context);
    }
    config["rope_scaling"] = scaling(spec);
    put_experts(spec, &mut config);
    config
}

/// The fields of experts, if the case has experts.
fn put_experts(spec: &SynthSpec, config: &mut Value) {
    use Architecture::{GptOss, GraniteMoe, Llama, Olmoe, Qwen3Moe};
    let Some(experts) = spec.experts else { return };
    config["num_experts_per_tok"] = json!(experts.used);
    match spec.architecture {
        Qwen3Moe => config["moe_intermediate_size"] = json!(experts.ffn),
        _ => config["intermediate_size"] = json!(experts.ffn),
    }
    match spec.architecture {
        Llama | GraniteMoe | GptOss => config["num_local_experts"] = json!(experts.count),
        _ => config["num_experts"] = json!(experts.count),
    }
    config["norm_topk_prob"] = json!(spec.architecture != Olmoe);
}

/// The rope's scaling.
fn scaling(spec: &SynthSpec) -> Value {
    let gguf = Gguf::from_bytes(spec.to_bytes().unwrap()).unwrap();
    let list = |name: &str| {
        let bytes = gguf.tensor(name).unwrap().bytes;
        let numbers = bytes
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes(b.try_into().unwrap()));
        json!(numbers.collect::<Vec<f32>>())
    };
    match spec.rope.scaling {
        RopeScaling::None => Value::Null,
        RopeScaling::Linear { factor } => json!({"type": "linear", "factor": factor}),
        RopeScaling::Llama3 {
            factor,
            original_context,
        } => {
            json!({"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": original_context})
        }
        RopeScaling::Yarn {
            factor,
            original_context,
        } => {
            json!({"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original_context})
        }
        RopeScaling::Longrope {
            attention_factor, ..
        } => {
            json!({"type": "longrope", "attention_factor": attention_factor,
                "long_factor": list("rope_factors_long.weight"), "short_factor": list("rope_factors_short.weight")})
        }
    }
}
