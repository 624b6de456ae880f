//! A synthetic encoder as sentence-transformers would save it: stored names, `config.json`, and the files of its pooling.

use super::saved::{Saved, Stored};
use serde_json::{Value, json};
use synth::{EncoderSpec, EncoderVocab, PoolingSynth};
use weights::encoder::EncoderKind;
use weights::gguf::{Gguf, TensorInfo};

/// Rows before the first position, as in XLM-R.
const PADDED: usize = 2;

fn class(spec: &EncoderSpec) -> &'static str {
    match (spec.kind, spec.vocabulary, spec.pooling) {
        (EncoderKind::NomicBert | EncoderKind::NomicBertMoe, ..) => "NomicBertModel",
        (_, EncoderVocab::WordPiece, PoolingSynth::Rank) => "BertForSequenceClassification",
        (_, EncoderVocab::WordPiece, _) => "BertModel",
        (_, EncoderVocab::Unigram, PoolingSynth::Rank) => "XLMRobertaForSequenceClassification",
        (_, EncoderVocab::Unigram, _) => "XLMRobertaModel",
    }
}

/// The name that transformers has for a tensor.
fn stored_name(spec: &EncoderSpec, name: &str) -> String {
    let (part, kind) = name.rsplit_once('.').unwrap();
    let is_nomic = spec.kind != EncoderKind::Bert;
    let has_experts = spec.kind == EncoderKind::NomicBertMoe;
    let is_xlm = spec.vocabulary == EncoderVocab::Unigram;
    let outer = match part {
        "token_embd" => Some("embeddings.word_embeddings"),
        "position_embd" => Some("embeddings.position_embeddings"),
        "token_types" => Some("embeddings.token_type_embeddings"),
        "token_embd_norm" if is_nomic => Some("emb_ln"),
        "token_embd_norm" => Some("embeddings.LayerNorm"),
        "cls" if is_xlm => Some("classifier.dense"),
        "cls" => Some("pooler.dense"),
        "cls.output" if is_xlm => Some("classifier.out_proj"),
        "cls.output" => Some("classifier"),
        _ => None,
    };
    let has_base = spec.pooling == PoolingSynth::Rank && !part.starts_with("cls");
    let has_base = has_base || (part == "cls" && !is_xlm);
    let base = if has_base && is_xlm {
        "roberta."
    } else if has_base && spec.pooling == PoolingSynth::Rank {
        "bert."
    } else {
        ""
    };
    if let Some(outer) = outer {
        return format!("{base}{outer}.{kind}");
    }
    let (layer, part) = part.strip_prefix("blk.").unwrap().split_once('.').unwrap();
    let matrices = match part {
        "ffn_up_exps" => Some("w1"),
        "ffn_down_exps" => Some("w2"),
        _ => None,
    };
    if let Some(matrices) = matrices {
        return format!("encoder.layers.{layer}.mlp.experts.mlp.{matrices}");
    }
    let part = match part {
        "ffn_gate_inp" => "mlp.router.layer",
        "ffn_up" if has_experts => "mlp.fc1",
        "attn_qkv" => "attn.Wqkv",
        "attn_output" if is_nomic => "attn.out_proj",
        "attn_output_norm" if is_nomic => "norm1",
        "ffn_up" if is_nomic => "mlp.fc11",
        "ffn_gate" => "mlp.fc12",
        "ffn_down" if is_nomic => "mlp.fc2",
        "layer_output_norm" if is_nomic => "norm2",
        "attn_q" => "attention.self.query",
        "attn_k" => "attention.self.key",
        "attn_v" => "attention.self.value",
        "attn_output" => "attention.output.dense",
        "attn_output_norm" => "attention.output.LayerNorm",
        "ffn_up" => "intermediate.dense",
        "ffn_down" => "output.dense",
        "layer_output_norm" => "output.LayerNorm",
        other => panic!("{other}"),
    };
    let layers = if is_nomic { "layers" } else { "layer" };
    format!("{base}encoder.{layers}.{layer}.{part}.{kind}")
}

pub(crate) fn store(spec: &EncoderSpec, tensor: &TensorInfo<'_>) -> Stored {
    let mut shape: Vec<u64> = tensor.dims.iter().rev().copied().collect();
    let mut bytes = tensor.bytes.to_vec();
    if tensor.name == "position_embd.weight" && spec.vocabulary == EncoderVocab::Unigram {
        let row = bytes.len() / shape[0] as usize;
        bytes.splice(0..0, vec![0x40; PADDED * row]);
        shape[0] += PADDED as u64;
    }
    // The matrices of all experts are one below the other, those back to the stream turned.
    if let &[cols, rows, experts] = tensor.dims {
        if tensor.name.contains("ffn_down_exps") {
            let width = bytes.len() / (cols * rows * experts) as usize;
            bytes = turned(&bytes, width, [cols as usize, rows as usize]);
            shape = vec![cols * experts, rows];
        } else {
            shape = vec![rows * experts, cols];
        }
    }
    Stored {
        name: stored_name(spec, tensor.name),
        dtype: tensor.kind.to_string(),
        shape,
        bytes,
    }
}

/// Matrices of elements of `width` bytes, whose rows and columns changed places.
fn turned(bytes: &[u8], width: usize, [cols, rows]: [usize; 2]) -> Vec<u8> {
    let matrices = bytes.chunks_exact(cols * rows * width);
    let turned = matrices.flat_map(|matrix| {
        let places = (0..cols).flat_map(|col| (0..rows).map(move |row| row * cols + col));
        places.flat_map(|at| matrix[at * width..][..width].to_vec())
    });
    turned.collect()
}

fn config(spec: &EncoderSpec, vocab: usize) -> Value {
    if spec.kind != EncoderKind::Bert {
        let mut config = json!({
            "architectures": [class(spec)], "model_type": "nomic_bert",
            "n_embd": spec.dim, "n_layer": spec.layers, "n_head": spec.heads, "n_inner": spec.ffn,
            "n_positions": spec.context, "max_trained_positions": 2048, "vocab_size": vocab, "type_vocab_size": 2,
            "layer_norm_epsilon": 1e-12, "activation_function": "swiglu", "rotary_emb_base": 1000,
            "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": false, "prenorm": false, "causal": false,
            "rotary_emb_scale_base": null, "use_rms_norm": null,
        });
        if spec.kind == EncoderKind::NomicBertMoe {
            config["activation_function"] = json!("gelu");
            config["num_experts"] = json!(6);
            config["moe_top_k"] = json!(2);
            config["moe_every_n_layers"] = json!(2);
            config["moe_normalize_expert_weights"] = json!(false);
            config["num_shared_experts"] = json!(0);
            config["type_vocab_size"] = json!(1);
        }
        return config;
    }
    let (padded, types) = match spec.vocabulary {
        EncoderVocab::WordPiece => (0, 2),
        EncoderVocab::Unigram => (PADDED, 1),
    };
    json!({
        "architectures": [class(spec)], "hidden_act": "gelu", "position_embedding_type": "absolute",
        "hidden_size": spec.dim, "num_hidden_layers": spec.layers, "num_attention_heads": spec.heads,
        "intermediate_size": spec.ffn, "max_position_embeddings": spec.context as usize + padded,
        "layer_norm_eps": 1e-12, "vocab_size": vocab, "type_vocab_size": types, "pad_token_id": padded.saturating_sub(1),
    })
}

/// The model as sentence-transformers would save it.
pub(crate) fn save(spec: &EncoderSpec) -> Saved {
    let gguf = Gguf::from_bytes(spec.to_bytes().unwrap()).unwrap();
    let saved = Saved::empty();
    let tensors = gguf.tensors().map(|tensor| store(spec, &tensor));
    let mut tensors: Vec<_> = tensors.collect();
    if class(spec) == "BertModel" {
        let pooler = |name: &str, shape: &[u64]| Stored {
            name: format!("pooler.dense.{name}"),
            dtype: "F32".to_owned(),
            shape: shape.to_vec(),
            bytes: vec![0; shape.iter().product::<u64>() as usize * 4],
        };
        let dim = u64::from(spec.dim);
        tensors.extend([pooler("weight", &[dim, dim]), pooler("bias", &[dim])]);
    }
    saved.put_weights(&tensors, 1);
    let vocab = gguf.tensor("token_embd.weight").unwrap().rows();
    saved.put("config.json", config(spec, vocab).to_string().as_bytes());
    let tokenizer = json!({"added_tokens": [{"id": 0, "content": "[PAD]"}, {"id": 3, "content": "[SEP]"}], "model": {}});
    saved.put("tokenizer.json", tokenizer.to_string().as_bytes());
    let modules = json!([
        {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ]);
    saved.put("modules.json", modules.to_string().as_bytes());
    let is_mean = spec.pooling == PoolingSynth::Mean;
    put_pooling(
        &saved,
        &json!({"pooling_mode_mean_tokens": is_mean, "pooling_mode_cls_token": !is_mean}),
    );
    saved
}

pub(crate) fn put_pooling(saved: &Saved, config: &Value) {
    std::fs::create_dir_all(saved.folder.join("1_Pooling")).unwrap();
    saved.put("1_Pooling/config.json", config.to_string().as_bytes());
}
