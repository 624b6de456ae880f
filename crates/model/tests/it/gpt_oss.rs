//! Tensors and keys of gpt-oss.

use crate::experts::{refused, rewritten};
use crate::support::{bytes, ids, logits, try_load};
use model::{Forward, LoadError};

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
        let file = rewritten(&whole, |found, dims, bytes| match found == tensor {
            true => Vec::new(),
            false => vec![(found.to_owned(), dims.to_vec(), bytes.to_vec())],
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
