//! Tensors and keys of gpt-oss, and its safetensors.

use crate::experts::{refused, rewritten};
use crate::safetensors::requantized;
use crate::support::case::Case;
use crate::support::saved::{Saved, Stored, config};
use crate::support::{bytes, ids, logits, options, saved_gpt_oss, try_load};
use cpu::Model;
use kernels::{Format, Isa, Pool};
use model::Forward;
use serde_json::{Value, json};
use weights::LoadError;
use weights::gguf::Gguf;
use weights::safetensors::Safetensors;

/// The file with the contents of one tensor changed.
fn changed(file: &[u8], tensor: &str, change: impl Fn(&mut Vec<u64>, &mut Vec<u8>)) -> Vec<u8> {
    rewritten(file, |name, dims, bytes| {
        let (mut dims, mut bytes) = (dims.to_vec(), bytes.to_vec());
        if name == tensor {
            change(&mut dims, &mut bytes);
        }
        vec![(name.to_owned(), dims, bytes)]
    })
}

#[test]
fn missing_sinks_and_biases_are_named() {
    let whole = bytes("x preset=tiny-gpt-oss mix=MXFP4_MOE");
    for name in [
        "attn_sinks.weight",
        "ffn_gate_inp.bias",
        "ffn_gate_exps.bias",
        "ffn_up_exps.bias",
        "ffn_down_exps.bias",
        "post_attention_norm.weight",
    ] {
        let tensor = format!("blk.2.{name}");
        let file = rewritten(&whole, |found, dims, bytes| {
            if found == tensor {
                Vec::new()
            } else {
                vec![(found.to_owned(), dims.to_vec(), bytes.to_vec())]
            }
        });
        assert_eq!(refused(file), LoadError::Missing { tensor });
    }
}

#[test]
fn sinks_and_biases_of_other_shapes_are_named() {
    let whole = bytes("x preset=tiny-gpt-oss mix=F32");
    for (name, wanted) in [
        ("blk.1.attn_sinks.weight", vec![4]),
        ("blk.1.ffn_gate_inp.bias", vec![8]),
        ("blk.1.ffn_down_exps.bias", vec![64, 8]),
    ] {
        let file = changed(&whole, name, |dims, bytes| {
            let last = dims.last_mut().unwrap();
            bytes.truncate(bytes.len() / *last as usize * (*last as usize - 1));
            *last -= 1;
        });
        match refused(file) {
            LoadError::Shape {
                tensor,
                wanted: found,
                ..
            } => assert_eq!((tensor.as_str(), found), (name, wanted)),
            other => panic!("{name}: {other}"),
        }
    }
}

#[test]
fn sink_that_is_not_a_number_is_named() {
    let name = "blk.3.attn_sinks.weight";
    let file = bytes("x preset=tiny-gpt-oss mix=F32");
    for bad in [f32::NAN, f32::INFINITY] {
        let file = changed(&file, name, |_, bytes| {
            bytes[8..12].copy_from_slice(&bad.to_le_bytes());
        });
        let tensor = name.to_owned();
        assert_eq!(refused(file), LoadError::Value { tensor, index: 2 });
    }
}

/// A sink far below all scores has no weight; one far above leaves a head nothing of its values.
#[test]
fn sinks_take_weight_from_the_values() {
    let file = bytes("x preset=tiny-gpt-oss mix=F32 layers=1");
    let said = |sink: f32| {
        let file = changed(&file, "blk.0.attn_sinks.weight", |_, bytes| {
            *bytes = sink.to_le_bytes().repeat(4);
        });
        let mut model = try_load(file, 1).unwrap();
        let prompt = ids(3, 20, model.dims().vocab);
        logits(&mut model, &prompt, 0)
    };
    // Without values, only the bias of the output is left, which is equal for all positions of a token.
    let silent = |file: &[u8]| {
        let file = changed(file, "blk.0.attn_v.weight", |_, bytes| bytes.fill(0));
        let file = changed(&file, "blk.0.attn_v.bias", |_, bytes| bytes.fill(0));
        let mut model = try_load(file, 1).unwrap();
        let prompt = ids(3, 20, model.dims().vocab);
        logits(&mut model, &prompt, 0)
    };
    assert!(said(1e30) == silent(&file));
    assert!(said(-1e30) == said(-1e20));
    assert!(said(-1e30) != said(2.0));
}

const SAVED: &str = "x preset=tiny-gpt-oss mix=F32";

/// A GGUF with matrices in BF16 and experts in MXFP4.
fn published() -> Vec<u8> {
    requantized(bytes(SAVED), |name, _| match name {
        _ if name.ends_with(".bias") => Format::F32,
        _ if name.ends_with("_exps.weight") => Format::MXFP4,
        _ => Format::BF16,
    })
}

/// The case [`SAVED`] as safetensors, with changes.
fn saved(files: usize, field: (&str, Value), change: impl Fn(&mut Vec<Stored>)) -> Saved {
    let saved = Saved::empty();
    let mut fields = config(&Case::parse(SAVED).unwrap().spec);
    fields["quantization_config"] = json!({"quant_method": "mxfp4"});
    fields["swiglu_limit"] = json!(7.0);
    fields[field.0] = field.1;
    saved.put("config.json", fields.to_string().as_bytes());
    let mut tensors = saved_gpt_oss::stored(&Gguf::from_bytes(published()).unwrap());
    change(&mut tensors);
    saved.put_weights(&tensors, files);
    saved
}

fn load(saved: &Saved) -> Model {
    let files = Safetensors::open(&saved.folder, None).unwrap_or_else(|why| panic!("{why}"));
    let (isa, pool) = (Isa::detect(), Pool::new(2));
    Model::load(files, isa, pool, &options(None), &mut |_| {}).unwrap_or_else(|why| panic!("{why}"))
}

const NO_CHANGE: (&str, Value) = ("unused", Value::Null);

#[test]
fn safetensors_with_experts_in_blocks_equal_gguf() {
    let mut gguf = try_load(published(), 2).unwrap();
    let prompt = ids(3, 80, gguf.dims().vocab);
    let wanted = logits(&mut gguf, &prompt, 0);
    for files in [1, 3] {
        let mut found = load(&saved(files, NO_CHANGE, |_| {}));
        assert_eq!(gguf.config(), found.config());
        assert!(
            logits(&mut found, &prompt, 0) == wanted,
            "{files} files: other logits"
        );
    }
}

#[test]
fn windows_and_bounds_of_yarn_are_read_from_the_config() {
    let types = json!([
        "full_attention",
        "sliding_attention",
        "sliding_attention",
        "full_attention"
    ]);
    let found = load(&saved(1, ("layer_types", types), |_| {}));
    let windows = [None, Some(16), Some(16), None];
    assert_eq!(found.config().windows, windows);
    assert!(found.config().rope.yarn_truncated);
    let scaling = json!({"rope_type": "yarn", "factor": 4.0, "truncate": false,
        "original_max_position_embeddings": 64});
    let found = load(&saved(1, ("rope_scaling", scaling), |_| {}));
    assert!(!found.config().rope.yarn_truncated);
}

#[test]
fn bad_blocks_are_refused_in_one_line() {
    let blocks = "model.layers.1.mlp.experts.gate_up_proj_blocks";
    let scales = "model.layers.1.mlp.experts.gate_up_proj_scales";
    let bias = "model.layers.1.mlp.experts.gate_up_proj_bias";
    let changed = |name: &str, change: &dyn Fn(&mut Stored)| {
        let saved = saved(1, NO_CHANGE, |tensors| {
            change(tensors.iter_mut().find(|t| t.name == name).unwrap());
        });
        Safetensors::open(&saved.folder, None)
            .unwrap_err()
            .to_string()
    };
    let renamed = |tensor: &mut Stored| tensor.name.push('x');
    for (error, name, part) in [
        (changed(bias, &renamed), bias, "has no part in gpt-oss"),
        (
            changed(scales, &|t| t.name = "model.norm.bias".to_owned()),
            "model.norm.bias",
            "has no part",
        ),
        (
            changed(blocks, &|t| t.dtype = "I8".to_owned()),
            blocks,
            "must be U8",
        ),
        (
            changed(blocks, &|t| t.shape = vec![8, 128, 4, 8]),
            blocks,
            "blocks of 16 bytes",
        ),
        (
            changed(scales, &|t| t.shape = vec![8, 64, 4]),
            blocks,
            "does not fit scales",
        ),
        (
            changed(bias, &|t| t.shape = vec![1024]),
            bias,
            "two dimensions",
        ),
    ] {
        assert!(error.contains(name) && error.contains(part), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let without = |name: &str| {
        let saved = saved(1, NO_CHANGE, |tensors| tensors.retain(|t| t.name != name));
        Safetensors::open(&saved.folder, None)
            .unwrap_err()
            .to_string()
    };
    for (gone, other) in [(blocks, scales), (scales, blocks)] {
        let error = without(gone);
        assert!(error.contains(gone) && error.contains(other), "{error}");
    }
}

#[test]
fn fields_that_ask_for_something_else_are_named() {
    for (field, value) in [
        ("swiglu_limit", json!(5.0)),
        ("quantization_config", json!({"quant_method": "gptq"})),
        ("num_local_experts", Value::Null),
        ("head_dim", Value::Null),
    ] {
        let saved = saved(1, (field, value), |_| {});
        let error = Safetensors::open(&saved.folder, None).unwrap_err();
        assert!(error.to_string().contains(field), "{error}");
    }
}
