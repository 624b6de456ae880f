//! Models whose layers differ: shared keys and values, embeddings of layers, keys as values.

use crate::support::{PAGE, PAGES, bytes, ids, load, logits, options, try_load};
use cpu::Model;
use kernels::{Isa, Pool};
use model::Forward;
use weights::LoadError;
use weights::gguf::{Gguf, GgufWriter, TensorKind, TensorPlan};

/// Names, shapes and bytes of a file's tensors.
pub(crate) type Tensors = Vec<(String, Vec<u64>, Vec<u8>)>;

const E2B: &str = "x preset=tiny-gemma4 mix=F32";

/// The file of a case, with `change` applied to its list of tensors: name, dims and data.
pub(crate) fn rewritten(case: &str, change: impl FnOnce(&mut Tensors)) -> Vec<u8> {
    let gguf = Gguf::from_bytes(bytes(case)).unwrap();
    let mut tensors: Vec<_> = gguf
        .tensors()
        .map(|tensor| {
            let dims = tensor.dims.to_vec();
            (tensor.name.to_owned(), dims, tensor.bytes.to_vec())
        })
        .collect();
    change(&mut tensors);
    let mut writer = GgufWriter::new();
    for (key, value) in gguf.metadata() {
        writer.value(key, value);
    }
    for (name, dims, _) in &tensors {
        writer.tensor(TensorPlan {
            name: name.clone(),
            dims: dims.clone(),
            kind: TensorKind::from(kernels::Format::F32),
        });
    }
    let (mut out, mut next) = (Vec::new(), tensors.iter());
    let written = writer.write(&mut out, |_, sink| sink.write_all(&next.next().unwrap().2));
    written.unwrap();
    out
}

pub(crate) fn of(bytes: Vec<u8>) -> Model {
    let gguf = Gguf::from_bytes(bytes).unwrap();
    Model::load(
        gguf,
        Isa::detect(),
        Pool::new(1),
        &options(None),
        &mut |_| {},
    )
    .unwrap()
}

/// The shape that is demanded of a tensor that is larger than it should be.
pub(crate) fn shape_refused(case: &str, name: &str) -> Vec<u64> {
    let file = rewritten(case, |tensors| {
        let (_, dims, data) = tensors.iter_mut().find(|(n, ..)| n == name).unwrap();
        *dims.last_mut().unwrap() += 2;
        data.resize(4 * dims.iter().product::<u64>() as usize, 0);
    });
    match try_load(file, 1).map(|_| ()).unwrap_err() {
        LoadError::Shape { tensor, wanted, .. } if tensor == name => wanted,
        other => panic!("{name}: {other}"),
    }
}

#[test]
fn layers_that_share_keys_and_values_store_none() {
    // Three of six layers store two KV heads of 16 or one of 32, keys and values, two bytes each.
    let model = load(E2B, 1);
    assert_eq!(model.bytes().kv, PAGES * PAGE * 3 * 32 * 2 * 2);
    let all = load("x preset=tiny-gemma4 mix=F32 shared_kv=0", 1);
    assert_eq!(all.bytes().kv, 2 * model.bytes().kv);
}

#[test]
fn projections_that_a_shared_layer_does_not_use_are_ignored() {
    let more = rewritten(E2B, |tensors| {
        for part in ["attn_k", "attn_v", "attn_k_norm"] {
            let name = |layer| format!("blk.{layer}.{part}.weight");
            let (_, dims, data) = tensors
                .iter()
                .find(|(n, ..)| *n == name(1))
                .unwrap()
                .clone();
            tensors.push((name(3), dims, data));
        }
    });
    let mut plain = load(E2B, 1);
    let ids = ids(3, 40, plain.dims().vocab);
    assert_eq!(logits(&mut of(more), &ids, 0), logits(&mut plain, &ids, 0));
}

#[test]
fn outputs_of_layers_are_scaled_by_one_where_there_is_no_factor() {
    let factors = |change: fn(&mut Tensors)| {
        let mut model = of(rewritten(E2B, change));
        let ids = ids(4, 20, model.dims().vocab);
        logits(&mut model, &ids, 0)
    };
    let is_factor = |name: &str| name.contains("layer_output_scale");
    let without = factors(|tensors| tensors.retain(|(n, ..)| !n.contains("layer_output_scale")));
    let ones = factors(|tensors| {
        let scales = tensors
            .iter_mut()
            .filter(|(n, ..)| n.contains("layer_output_scale"));
        scales.for_each(|(.., data)| data.copy_from_slice(&1.0f32.to_le_bytes()));
    });
    let as_written = factors(|_| {});
    let gguf = Gguf::from_bytes(bytes(E2B)).unwrap();
    assert!(gguf.tensors().any(|tensor| is_factor(tensor.name)));
    assert_eq!(without, ones);
    assert_ne!(without, as_written);
}

#[test]
fn tensors_of_wrong_shape_are_named_with_both_shapes() {
    for (name, wanted) in [
        ("per_layer_token_embd.weight", vec![6 * 32, 300]),
        ("per_layer_model_proj.weight", vec![64, 6 * 32]),
        ("per_layer_proj_norm.weight", vec![32]),
        ("blk.4.inp_gate.weight", vec![64, 32]),
        ("blk.4.proj.weight", vec![32, 64]),
        ("blk.4.post_norm.weight", vec![64]),
        ("blk.4.layer_output_scale.weight", vec![1]),
        ("blk.2.attn_k.weight", vec![64, 32]),
        ("blk.5.ffn_up.weight", vec![64, 256]),
        ("rope_freqs.weight", vec![16]),
    ] {
        assert_eq!(shape_refused(E2B, name), wanted, "{name}");
    }
}

#[test]
fn tensors_of_states_are_named_with_both_shapes() {
    const GEMMA3N: &str = "x preset=tiny-gemma3n mix=F32 layers=2 shared_kv=0";
    for (name, wanted) in [
        ("altup_proj.weight", vec![64, 64, 3]),
        ("altup_unembd_proj.weight", vec![64, 64, 3]),
        ("blk.1.altup_router.weight", vec![64, 4]),
        ("blk.1.altup_router_norm.weight", vec![64]),
        ("blk.1.altup_predict_coef.weight", vec![4, 16]),
        ("blk.1.altup_correct_coef.weight", vec![4, 4]),
        ("blk.1.altup_correct_scale.weight", vec![64]),
        ("blk.1.laurel_l.weight", vec![64, 64]),
        ("blk.1.laurel_post_norm.weight", vec![64]),
    ] {
        assert_eq!(shape_refused(GEMMA3N, name), wanted, "{name}");
    }
}

#[test]
fn experts_beside_a_feed_forward_part_need_their_norms() {
    const EXPERTS: &str = "x preset=tiny-gemma4-26b mix=F32";
    for name in [
        "blk.1.ffn_gate_inp.scale",
        "blk.1.pre_ffw_norm_2.weight",
        "blk.1.post_ffw_norm_1.weight",
        "blk.1.post_ffw_norm_2.weight",
        "blk.1.ffn_down_exps.weight",
    ] {
        let file = rewritten(EXPERTS, |tensors| tensors.retain(|(n, ..)| n != name));
        let error = try_load(file, 1).map(|_| ()).unwrap_err();
        let tensor = name.to_owned();
        assert_eq!(error, LoadError::Missing { tensor });
    }
    // Factors of experts may be absent.
    let file = rewritten(EXPERTS, |tensors| {
        tensors.retain(|(n, ..)| !n.contains("ffn_down_exps.scale"));
    });
    assert!(try_load(file, 1).is_ok());
}
