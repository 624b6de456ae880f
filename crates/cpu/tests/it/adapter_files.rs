//! Files of adapters: both kinds say the same, and files that are none are refused by name and bound.

use crate::support::adapters::{open, peft_config, peft_folder, peft_tensors};
use crate::support::case::Case;
use crate::support::saved::Stored;
use synth::AdapterSynth;
use weights::adapters::ADAPTER_RANK_MAX;
use weights::gguf::{Gguf, GgufWriter, TensorPlan};
use weights::{Adapter, ModelFiles};

const LLAMA: &str = "llama preset=tiny-llama mix=F32";

const ADAPTERS: [AdapterSynth; 2] = [
    AdapterSynth {
        seed: 11,
        rank: 4,
        alpha: 8.0,
    },
    AdapterSynth {
        seed: 12,
        rank: 3,
        alpha: 3.0,
    },
];

fn files(case: &Case) -> ModelFiles {
    Gguf::from_bytes(case.spec.to_bytes().unwrap())
        .unwrap()
        .into()
}

#[test]
fn adapters_of_peft_equal_those_of_gguf() {
    for line in [
        LLAMA,
        "qwen2 preset=tiny-qwen2 mix=Q8_0",
        "phi3 preset=tiny-phi3 mix=F32",
    ] {
        let case = Case::parse(line).unwrap();
        let files = files(&case);
        let config = files.config(None).unwrap();
        for adapter in &ADAPTERS {
            let gguf = open(&case.spec.adapter_bytes(adapter).unwrap(), &files).unwrap();
            let tensors = peft_tensors(&case.spec, adapter);
            let saved = peft_folder(&peft_config(adapter), &tensors);
            for end in ["", "adapter_model.safetensors", "adapter_config.json"] {
                let path = saved.folder.join(end);
                let peft = Adapter::open(&path, &files, &config).unwrap();
                assert!(gguf.content().eq(peft.content()), "{line}");
                assert_eq!((gguf.rank(), gguf.bytes()), (peft.rank(), peft.bytes()));
            }
        }
    }
}

#[test]
fn rank_stabilized_scale_is_by_the_root() {
    let case = Case::parse(LLAMA).unwrap();
    let files = files(&case);
    let mut config = peft_config(&ADAPTERS[0]);
    config["use_rslora"] = true.into();
    let saved = peft_folder(&config, &peft_tensors(&case.spec, &ADAPTERS[0]));
    let adapter = Adapter::open(&saved.folder, &files, &files.config(None).unwrap()).unwrap();
    assert!(adapter.content().all(|(_, scale, _)| scale == 8.0 / 2.0));
}

/// The error of a PEFT folder with a changed configuration or changed tensors.
fn peft_error(change: impl FnOnce(&mut serde_json::Value, &mut Vec<Stored>)) -> String {
    let case = Case::parse(LLAMA).unwrap();
    let files = files(&case);
    let (mut config, mut tensors) = (
        peft_config(&ADAPTERS[0]),
        peft_tensors(&case.spec, &ADAPTERS[0]),
    );
    change(&mut config, &mut tensors);
    let saved = peft_folder(&config, &tensors);
    let opened = Adapter::open(&saved.folder, &files, &files.config(None).unwrap());
    opened.unwrap_err().to_string()
}

#[test]
fn bad_folders_are_refused_by_name_and_bound() {
    const Q: &str = "base_model.model.model.layers.0.self_attn.q_proj";
    type Change = fn(&mut serde_json::Value, &mut Vec<Stored>);
    let rows: [(Change, &str); 10] = [
        (|c, _| c["peft_type"] = "IA3".into(), "`peft_type` must be"),
        (|c, _| c["use_dora"] = true.into(), "`use_dora` is true"),
        (|c, _| c["bias"] = "all".into(), "`bias` must be \"none\""),
        (
            |c, _| c["lora_alpha"] = 0.into(),
            "`lora_alpha` must be a number other than 0",
        ),
        (
            |c, _| c["alpha_pattern"] = serde_json::json!({"q_proj": 3}),
            "`alpha_pattern` must be empty",
        ),
        (
            |_, t| t[1].shape = vec![t[1].shape[0] / 2, 8],
            "lora_B.weight` has shape",
        ),
        (
            |_, t| t[0].name = "x.lora_A.weight".into(),
            "tensor `x.lora_A.weight` has no part in llama",
        ),
        (
            |_, t| t[0].name = format!("{Q}.lora_magnitude_vector"),
            "is no half of a low-rank pair",
        ),
        (
            |_, t| t[0].shape = vec![1, 2, t[0].shape[1] * 2],
            "must have two dimensions",
        ),
        (
            |_, t| t[0].bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes()),
            "has element 0, which is not a number",
        ),
    ];
    for (change, expected) in rows {
        let error = peft_error(change);
        assert!(error.contains(expected), "{expected}: {error}");
        assert!(
            error.starts_with("adapter /") && !error.contains('\n'),
            "{error}"
        );
    }
    let missing = peft_error(|_, tensors| {
        tensors.remove(1);
    });
    assert!(
        missing.contains("q_proj.lora_A.weight` has no matrix B beside it"),
        "{missing}"
    );
}

/// An adapter of one pair.
fn pair(target: &str, a: [u64; 2], b: [u64; 2], keys: &[(&str, &str)]) -> Vec<u8> {
    let mut writer = GgufWriter::new();
    let standard = [
        ("general.type", "adapter"),
        ("general.architecture", "llama"),
        ("adapter.type", "lora"),
    ];
    for (key, value) in standard {
        let given = keys.iter().find(|(name, _)| *name == key);
        writer.str(key, given.map_or(value, |(_, value)| value));
    }
    writer.f32("adapter.lora.alpha", 1.0);
    for (end, dims) in [("a", a), ("b", b)] {
        writer.tensor(TensorPlan {
            name: format!("{target}.lora_{end}"),
            dims: dims.to_vec(),
            kind: kernels::Format::F32.into(),
        });
    }
    let mut bytes = Vec::new();
    let fill = |plan: &TensorPlan, out: &mut dyn std::io::Write| {
        out.write_all(&vec![0; plan.bytes().unwrap() as usize])
    };
    writer.write(&mut bytes, fill).unwrap();
    bytes
}

#[test]
fn bad_ggufs_are_refused_by_name_and_bound() {
    let case = Case::parse(LLAMA).unwrap();
    let files = files(&case);
    let (dim, q) = (u64::from(case.spec.dim), "blk.0.attn_q.weight");
    let rows = u64::from(case.spec.heads * case.spec.head_dim);
    let most = ADAPTER_RANK_MAX as u64;
    let cases = [
        (
            pair(q, [dim, 4], [4, rows], &[("general.architecture", "qwen2")]),
            "is \"qwen2\", must be \"llama\"",
        ),
        (
            pair(q, [dim, 4], [4, rows], &[("general.type", "model")]),
            "`general.type` is \"model\"",
        ),
        (
            pair(q, [dim, 4], [4, rows], &[("adapter.type", "x")]),
            "`adapter.type` is \"x\"",
        ),
        (
            pair(q, [dim + 1, 4], [4, rows], &[]),
            "attn_q.weight.lora_a` has shape",
        ),
        (
            pair(q, [dim, 4], [4, rows - 1], &[]),
            "attn_q.weight.lora_b` has shape",
        ),
        (
            pair(q, [dim, 4], [3, rows], &[]),
            "attn_q.weight.lora_b` has shape",
        ),
        (
            pair(q, [dim, most + 1], [most + 1, rows], &[]),
            "has rank 513, must have 1 to 512",
        ),
        (
            pair("blk.99.attn_q.weight", [dim, 4], [4, rows], &[]),
            "which the model does not have",
        ),
        (
            pair("token_embd.weight", [dim, 4], [4, 300], &[]),
            "adapters of this tensor are not supported",
        ),
    ];
    for (bytes, expected) in cases {
        let error = open(&bytes, &files).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    assert!(open(&pair(q, [dim, 4], [4, rows], &[]), &files).is_ok());
}

#[test]
fn adapters_of_experts_are_refused_by_name() {
    let case = Case::parse("olmoe preset=tiny-olmoe mix=F32").unwrap();
    let (files, config) = (files(&case), peft_config(&ADAPTERS[0]));
    let name = "base_model.model.model.layers.0.mlp.experts.1.up_proj";
    let half = |end: &str, shape: Vec<u64>| Stored {
        name: format!("{name}.lora_{end}.weight"),
        dtype: "F32".into(),
        bytes: vec![0; 4 * shape.iter().product::<u64>() as usize],
        shape,
    };
    let saved = peft_folder(&config, &[half("A", vec![4, 64]), half("B", vec![64, 4])]);
    let error = Adapter::open(&saved.folder, &files, &files.config(None).unwrap());
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("experts.1.up_proj.lora_A.weight` changes `blk.0.ffn_up.1.weight`"),
        "{error}"
    );
}

#[test]
fn adapters_of_recurrent_parts_and_gated_queries_are_refused_by_name() {
    let case = Case::parse("qwen35 preset=tiny-qwen35 mix=F32").unwrap();
    let (spec, files) = (&case.spec, files(&case));
    let layers = files.config(None).unwrap().recurrent.unwrap().layers;
    let layer_where = |wanted| layers.iter().position(|recurs| *recurs == wanted).unwrap();
    let (recurs, attends) = (layer_where(true), layer_where(false));
    let (dim, keys) = (
        u64::from(spec.dim),
        u64::from(spec.kv_heads * spec.head_dim),
    );
    let adapter = |layer: usize, part: &str, rows: u64| {
        let (name, a, b) = (format!("blk.{layer}.{part}.weight"), [dim, 4], [4, rows]);
        let bytes = pair(&name, a, b, &[("general.architecture", "qwen35")]);
        open(&bytes, &files).map_err(|error| error.to_string())
    };
    for (layer, part) in [(recurs, "attn_qkv"), (attends, "attn_q")] {
        let error = adapter(layer, part, 4).unwrap_err();
        let wanted =
            format!("changes `blk.{layer}.{part}.weight`; adapters of this tensor are not");
        assert!(error.contains(&wanted), "{error}");
    }
    adapter(recurs, "ffn_up", spec.ffn.into()).unwrap();
    adapter(attends, "attn_k", keys).unwrap();
}
