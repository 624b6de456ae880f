//! Bad files of models that were made for embeddings or for scores are refused in one line, which names the cause.

use crate::architectures::with_u32;
use crate::embedding_models::{GEMMA, RERANKER, load_encoder};
use crate::support::case::encoder;
use crate::support::{bytes, try_load};
use weights::gguf::{Gguf, GgufWriter, TensorPlan};

/// The file without a key, or with another value of it.
fn with_strings(file: &[u8], key: &str, values: &[&str]) -> Vec<u8> {
    let gguf = Gguf::from_bytes(file.to_vec()).unwrap();
    let mut writer = GgufWriter::new();
    for (other, value) in gguf.metadata().filter(|(other, _)| *other != key) {
        writer.value(other, value);
    }
    if !values.is_empty() {
        writer.strings(key, values);
    }
    for tensor in gguf.tensors() {
        let (name, dims, kind) = (tensor.name.to_owned(), tensor.dims.to_vec(), tensor.kind);
        writer.tensor(TensorPlan { name, dims, kind });
    }
    let mut out = Vec::new();
    let fill = |plan: &TensorPlan, sink: &mut dyn std::io::Write| {
        sink.write_all(gguf.tensor(&plan.name).unwrap().bytes)
    };
    writer.write(&mut out, fill).unwrap();
    out
}

/// The file with another name of a tensor, of the same length.
fn renamed(file: &[u8], name: &str) -> Vec<u8> {
    let mut file = file.to_vec();
    let at = file
        .windows(name.len())
        .position(|part| part == name.as_bytes());
    file[at.unwrap() + name.len() - 1] = b'_';
    file
}

/// The file with another shape of a tensor of two dimensions.
fn reshaped(file: &[u8], name: &str, dims: [u64; 2]) -> Vec<u8> {
    let mut file = file.to_vec();
    let at = file
        .windows(name.len())
        .position(|part| part == name.as_bytes());
    let at = at.unwrap() + name.len() + 4;
    file[at..at + 16].copy_from_slice(&dims.map(u64::to_le_bytes).concat());
    file
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of files")]
fn bad_files_are_refused_in_one_line() {
    let experts = encoder("x preset=tiny-nomic-bert-moe mix=F32").unwrap();
    let experts = experts.to_bytes().unwrap();
    let of_experts = |key: &str, value| with_u32(&experts, &format!("nomic-bert-moe.{key}"), value);
    let gemma = bytes(GEMMA);
    let of_gemma = |key: &str, value| with_u32(&gemma, &format!("gemma-embedding.{key}"), value);
    let reranker = bytes(RERANKER);
    const LABELS: &str = "qwen3.classifier.output_labels";
    const PERIOD: &str = "nomic-bert-moe.moe_every_n_layers";
    let encoders = [
        (
            of_experts("expert_count", 5000),
            "`nomic-bert-moe.expert_count` is 5000",
        ),
        (
            of_experts("expert_used_count", 7),
            "`nomic-bert-moe.expert_used_count` is 7",
        ),
        (
            of_experts("moe_every_n_layers", 1),
            "`nomic-bert-moe.moe_every_n_layers` is 1",
        ),
        (
            of_experts("expert_gating_func", 2),
            "a router without softmax",
        ),
        (
            with_strings(&experts, PERIOD, &[]),
            "`nomic-bert-moe.moe_every_n_layers` is missing",
        ),
        (
            of_experts("pooling_type", 999),
            "`nomic-bert-moe.pooling_type` is 999",
        ),
        (
            renamed(&experts, "blk.1.ffn_gate_inp.weight"),
            "`blk.1.ffn_gate_inp.weight` is missing",
        ),
        (
            renamed(&experts, "blk.1.ffn_up_exps.weight"),
            "`blk.1.ffn_up_exps.weight` is missing",
        ),
        (
            reshaped(&experts, "blk.1.ffn_gate_inp.weight", [32, 12]),
            "`blk.1.ffn_gate_inp.weight` has",
        ),
    ];
    let decoders = [
        (
            of_gemma("dense_2_feat_in", 96),
            "`gemma-embedding.dense_2_feat_in` is 96",
        ),
        (
            of_gemma("dense_2_feat_out", 1 << 30),
            "`gemma-embedding.dense_2_feat_out` is 1073741824",
        ),
        (
            of_gemma("dense_3_feat_in", 128),
            "`gemma-embedding.dense_3_feat_in` is 128",
        ),
        (
            of_gemma("dense_3_feat_out", 33),
            "`gemma-embedding.dense_3_feat_out` is 33",
        ),
        (
            with_strings(&gemma, "gemma-embedding.dense_3_feat_out", &[]),
            "`gemma-embedding.dense_3_feat_out` is missing",
        ),
        (
            renamed(&gemma, "dense_2.weight"),
            "`dense_2.weight` is missing",
        ),
        (
            reshaped(&gemma, "dense_3.weight", [128, 128]),
            "`dense_3.weight` has",
        ),
        (
            with_strings(&reranker, LABELS, &["no", "yes"]),
            "the answers yes, no",
        ),
        (
            with_strings(&reranker, LABELS, &["yes"]),
            "`qwen3.classifier.output_labels` is 1 labels",
        ),
        (with_u32(&reranker, LABELS, 2), "a list of texts"),
        (
            with_u32(&reranker, "qwen3.pooling_type", 256),
            "`qwen3.pooling_type` is 256",
        ),
        (
            renamed(&reranker, "cls.output.weight"),
            "`cls.output.weight` is missing",
        ),
        (
            reshaped(&reranker, "cls.output.weight", [32, 4]),
            "`cls.output.weight` has",
        ),
    ];
    let encoders = encoders.map(|(file, expected)| (load_encoder(file).err(), expected));
    let decoders = decoders.map(|(file, expected)| (try_load(file, 1).err(), expected));
    for (error, expected) in encoders.into_iter().chain(decoders) {
        let error = error
            .unwrap_or_else(|| panic!("loaded: {expected}"))
            .to_string();
        assert!(error.contains(expected), "{error}, not {expected}");
        assert!(!error.contains('\n'), "{error}");
    }
}

/// A file without a tensor, or with one too many, is refused by name.
#[test]
fn bad_encoder_files_are_refused_in_one_line() {
    let good = encoder("x preset=tiny-bert mix=F32").unwrap();
    let replaced = |from: &str, to: &str| {
        let mut bytes = good.to_bytes().unwrap();
        assert_eq!(from.len(), to.len());
        let at = bytes
            .windows(from.len())
            .position(|part| part == from.as_bytes());
        bytes[at.unwrap()..][..to.len()].copy_from_slice(to.as_bytes());
        load_encoder(bytes).err().unwrap().to_string()
    };
    for (from, to, expected) in [
        (
            "position_embd.weight",
            "position_embd.wrongt",
            "tensor `position_embd.weight` is missing",
        ),
        (
            "blk.1.attn_q.bias",
            "blk.1.attn_x.bias",
            "tensor `blk.1.attn_x.bias` has no part",
        ),
        (
            "token_embd_norm.bias",
            "token_embd_norm.bixs",
            "tensor `token_embd_norm.bias` is missing",
        ),
        (
            "bert.block_count",
            "bert.block_xount",
            "`bert.block_count` is missing",
        ),
        (
            "bert.attention.layer_norm_epsilon",
            "bert.attention.layer_norm_epsilox",
            "epsilon` is missing",
        ),
    ] {
        let error = replaced(from, to);
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn reranker_without_scores_is_refused() {
    let spec = encoder("x preset=tiny-bert-rank mix=F32").unwrap();
    let file = renamed(&spec.to_bytes().unwrap(), "cls.output.weight");
    let error = load_encoder(file).err().unwrap().to_string();
    assert!(error.contains("`cls.output.weight` is missing"), "{error}");
}
