//! Latent attention: the forms of a file's key and value projections, and bad files.

use crate::support::{bytes, ids, logits, try_load};
use model::Forward;
use weights::LoadError;
use weights::gguf::{Gguf, GgufWriter, TensorPlan};

const SPLIT: &str = "x preset=tiny-deepseek2 mix=F32";
/// Sizes of that preset.
const HEADS: usize = 4;
const PLAIN: usize = 32;
const RANK: usize = 64;
const VALUE: usize = 32;

/// A tensor and its content.
type Tensor = (TensorPlan, Vec<u8>);

/// The file with other tensors: `change` gives those that take a tensor's place.
fn with_tensors(file: &[u8], change: impl Fn(Tensor) -> Vec<Tensor>) -> Vec<u8> {
    let gguf = Gguf::from_bytes(file.to_vec()).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in gguf.metadata() {
        writer.value(key, value);
    }
    let tensors: Vec<Tensor> = gguf
        .tensors()
        .flat_map(|tensor| {
            let (name, dims) = (tensor.name.to_owned(), tensor.dims.to_vec());
            let kind = tensor.kind;
            change((TensorPlan { name, dims, kind }, tensor.bytes.to_vec()))
        })
        .collect();
    for (plan, _) in &tensors {
        writer.tensor(plan.clone());
    }
    let mut out = Vec::new();
    let fill = |plan: &TensorPlan, sink: &mut dyn std::io::Write| {
        let content = tensors.iter().find(|(other, _)| other.name == plan.name);
        sink.write_all(&content.unwrap().1)
    };
    writer.write(&mut out, fill).unwrap();
    out
}

/// Rows of keys and values by head, `(heads, plain + value, rank)`, from the two tensors of a layer.
fn join(keys: &[u8], values: &[u8]) -> Vec<u8> {
    let (keys, values) = (keys.as_chunks::<4>().0, values.as_chunks::<4>().0);
    let mut rows = Vec::new();
    for head in 0..HEADS {
        for plain in 0..PLAIN {
            let entry = |rank| keys[(head * RANK + rank) * PLAIN + plain];
            rows.extend((0..RANK).flat_map(entry));
        }
        rows.extend(values[head * VALUE * RANK..][..VALUE * RANK].as_flattened());
    }
    rows
}

/// Adds the tensor of both projections to each layer; `keeps` names the tensors that stay.
fn with_joined(file: &[u8], keeps: impl Fn(&str) -> bool) -> Vec<u8> {
    let gguf = Gguf::from_bytes(file.to_vec()).unwrap();
    with_tensors(file, |(plan, content)| {
        let mut all = Vec::new();
        if let Some(layer) = plan.name.strip_suffix("attn_v_b.weight") {
            let keys = gguf.tensor(&format!("{layer}attn_k_b.weight")).unwrap();
            let rows = (HEADS * (PLAIN + VALUE)) as u64;
            let joined = TensorPlan {
                name: format!("{layer}attn_kv_b.weight"),
                dims: vec![RANK as u64, rows],
                kind: plan.kind,
            };
            all.push((joined, join(keys.bytes, &content)));
        }
        if keeps(&plan.name) {
            all.push((plan, content));
        }
        all
    })
}

fn said(file: Vec<u8>) -> Vec<Vec<f32>> {
    let mut model = try_load(file, 2).unwrap();
    let prompt = ids(3, 40, model.dims().vocab);
    logits(&mut model, &prompt, 0)
}

fn is_split(name: &str) -> bool {
    name.contains("attn_k_b") || name.contains("attn_v_b")
}

#[test]
fn projections_in_one_tensor_equal_those_in_two() {
    let split = bytes(SPLIT);
    let wanted = said(split.clone());
    assert!(
        said(with_joined(&split, |name| !is_split(name))) == wanted,
        "one"
    );
    assert!(said(with_joined(&split, |_| true)) == wanted, "both");
}

#[test]
fn one_projection_without_the_other_is_an_error() {
    let split = bytes(SPLIT);
    for (left_out, missing) in [
        (&["attn_v_b"][..], "attn_v_b"),
        (&["attn_k_b"], "attn_k_b"),
        (&["attn_k_b", "attn_v_b"], "attn_k_b"),
    ] {
        let file = with_tensors(&split, |tensor| {
            let name = &tensor.0.name;
            let is_out = left_out.iter().any(|part| name.contains(part));
            (!is_out).then_some(tensor).into_iter().collect()
        });
        let tensor = format!("blk.0.{missing}.weight");
        assert_eq!(try_load(file, 1).err(), Some(LoadError::Missing { tensor }));
    }
}

#[test]
fn projections_of_other_shapes_are_named() {
    let split = bytes(SPLIT);
    for (part, dims) in [
        ("attn_k_b", [RANK, PLAIN, HEADS]),
        ("attn_v_b", [VALUE, RANK, HEADS]),
        ("attn_k_b", [PLAIN, RANK * HEADS, 1]),
    ] {
        let file = with_tensors(&split, |(mut plan, content)| {
            if plan.name.contains(part) {
                plan.dims = dims.map(|dim| dim as u64).to_vec();
            }
            vec![(plan, content)]
        });
        match try_load(file, 1).err() {
            Some(LoadError::Shape { tensor, .. }) => {
                assert_eq!(tensor, format!("blk.0.{part}.weight"));
            }
            other => panic!("{part}: {other:?}"),
        }
    }
}
