//! Models with recurrent layers: states within a span, batches with wrong states, files with wrong sizes.

use crate::differing::{Tensors, of, rewritten, shape_refused};
use crate::support::{PAGE, STATES, bytes, ids, load, logits, options, pages, try_load};
use cpu::{LoadOptions, Model};
use kernels::{Isa, Pool};
use model::{Batch, Forward, ForwardError, KeptState, SpanStates, Want};
use weights::LoadError;
use weights::gguf::Gguf;

const QWEN35: &str = "x preset=tiny-qwen35 mix=F32";

fn bits(rows: &[f32]) -> Vec<u32> {
    rows.iter().map(|x| x.to_bits()).collect()
}

/// Logits of the rows of one span.
fn span(model: &mut Model, ids: &[u32], position: usize, states: SpanStates) -> Vec<u32> {
    let mut batch = Batch::default();
    let table = pages(0, position + ids.len());
    batch.push(ids, position, &table, Want::All);
    batch.set_states(Some(states));
    bits(model.forward(&batch).unwrap())
}

#[test]
fn sequence_goes_on_from_each_state_that_a_span_kept() {
    for case in [
        QWEN35,
        "x preset=tiny-qwen35 mix=Q8_0 layers=5",
        "x preset=tiny-lfm2 mix=F16",
        "x preset=tiny-granitehybrid mix=F32 layers=5",
        "x preset=tiny-mamba2 mix=F32",
        "x preset=tiny-falcon-h1 mix=BF16",
        "x preset=tiny-nemotron_h mix=Q8_0",
    ] {
        let mut model = load(case, 2);
        let vocab = model.dims().vocab;
        let ids = ids(8, 60, vocab);
        let kept = |tokens, state| Some(KeptState { tokens, state });
        let states = SpanStates {
            kept: [kept(1, 3), kept(PAGE, 4), kept(50, 5)],
            ..SpanStates::new(None, 2)
        };
        let whole = span(&mut model, &ids, 0, states);
        for (from, state) in [(1, 3), (PAGE, 4), (50, 5)] {
            let rest = &ids[from..];
            let found = span(&mut model, rest, from, SpanStates::new(Some(state), 6));
            assert!(found == whole[from * vocab..], "{case}, from {from}");
            // The state is not changed: a second sequence goes on from the same one.
            let again = span(&mut model, rest, from, SpanStates::new(Some(state), 7));
            assert!(again == found, "{case}, again from {from}");
        }
    }
}

#[test]
fn batches_with_wrong_states_are_rejected_without_effect() {
    let mut model = load(QWEN35, 1);
    let ids = ids(3, 20, model.dims().vocab);
    let before = logits(&mut model, &ids, 0);
    let new = SpanStates::new;
    let last = STATES as u32 - 1;
    type Spans<'a> = &'a [(usize, Option<SpanStates>)];
    let rows: [(Spans<'_>, &str); 7] = [
        (&[(0, None)], "a span has no states"),
        (&[(4, Some(new(None, 1)))], "a state precedes"),
        (&[(0, Some(new(Some(2), 1)))], "a state precedes"),
        (&[(0, Some(new(None, last + 1)))], "does not exist"),
        (&[(4, Some(new(Some(last + 1), 1)))], "does not exist"),
        (
            &[(0, Some(new(None, 3))), (0, Some(new(None, 3)))],
            "written twice",
        ),
        (
            &[(0, Some(new(None, 3))), (4, Some(new(Some(3), 2)))],
            "read and written",
        ),
    ];
    for (spans, why) in rows {
        let mut batch = Batch::default();
        for (at, (position, states)) in spans.iter().enumerate() {
            let table = pages(4 * at, 32);
            batch.push(&ids[..4], *position, &table, Want::Last);
            batch.set_states(*states);
        }
        match model.forward(&batch).unwrap_err() {
            ForwardError::BadBatch(found) => assert!(found.contains(why), "{found}, not {why}"),
            other => panic!("{why}: {other}"),
        }
    }
    // Model without recurrent layers: states are not looked at.
    let mut plain = load("x preset=tiny-qwen3 mix=F32", 1);
    assert_eq!(plain.capabilities().states, 0);
    let ids = &ids[..4];
    assert_eq!(
        span(&mut plain, ids, 0, new(Some(99), 99)),
        bits(&logits(&mut plain, ids, 0).concat())
    );
    assert_eq!(
        (model.capabilities().states, logits(&mut model, ids, 0)),
        (STATES, before[..4].to_vec())
    );
}

#[test]
fn memory_of_states_is_counted() {
    let model = load(QWEN35, 1);
    // Three layers: three inputs of 128 columns, and four heads of 16 times 16.
    let state = 3 * 4 * (3 * 128 + 4 * 16 * 16);
    assert_eq!(model.bytes().states, STATES * state);
    assert_eq!(model.config().state_bytes(), Some(state));
    let one_layer = load("x preset=tiny-qwen3 mix=F32 layers=1", 1);
    assert_eq!(
        model.bytes().kv,
        one_layer.bytes().kv,
        "of one layer of four"
    );
    for states in [0, usize::MAX] {
        let gguf = Gguf::from_bytes(bytes(QWEN35)).unwrap();
        let options = LoadOptions {
            states,
            ..options(None)
        };
        let loaded = Model::load(gguf, Isa::detect(), Pool::new(1), &options, &mut |_| {});
        match loaded.err() {
            Some(LoadError::Option {
                name: "states",
                given,
                ..
            }) => assert_eq!(given, states),
            other => panic!("{states}: {other:?}"),
        }
    }
}

#[test]
fn tensors_of_recurrent_layers_are_named_with_both_shapes() {
    for (name, wanted) in [
        ("blk.0.attn_qkv.weight", vec![64, 128]),
        ("blk.0.attn_gate.weight", vec![64, 64]),
        ("blk.1.ssm_alpha.weight", vec![64, 4]),
        ("blk.1.ssm_beta.weight", vec![64, 4]),
        ("blk.1.ssm_conv1d.weight", vec![4, 128]),
        ("blk.2.ssm_dt.bias", vec![4]),
        ("blk.2.ssm_a", vec![4]),
        ("blk.2.ssm_norm.weight", vec![16]),
        ("blk.2.ssm_out.weight", vec![64, 64]),
        ("blk.3.attn_q.weight", vec![64, 256]),
    ] {
        assert_eq!(shape_refused(QWEN35, name), wanted, "{name}");
    }
}

#[test]
fn tensors_of_mamba_and_of_convolutions_are_named_with_both_shapes() {
    for (name, wanted) in [
        ("blk.0.ssm_in.weight", vec![64, 128 + 192 + 4]),
        ("blk.0.ssm_conv1d.weight", vec![4, 192]),
        ("blk.0.ssm_conv1d.bias", vec![192]),
        ("blk.1.ssm_a", vec![1, 4]),
        ("blk.1.ssm_d", vec![1, 4]),
        ("blk.2.ssm_norm.weight", vec![64, 2]),
        ("blk.2.ssm_out.weight", vec![128, 64]),
    ] {
        let case = "x preset=tiny-granitehybrid mix=F32";
        assert_eq!(shape_refused(case, name), wanted, "{name}");
    }
    for (case, name, wanted) in [
        (
            "tiny-mamba2",
            "blk.1.ssm_in.weight",
            vec![64, 128 + 192 + 4],
        ),
        ("tiny-mamba2", "blk.1.ssm_norm.weight", vec![64, 2]),
        ("tiny-falcon-h1", "blk.0.ssm_out.weight", vec![128, 64]),
        ("tiny-falcon-h1", "blk.0.ssm_norm.weight", vec![64, 2]),
        ("tiny-falcon-h1", "blk.0.attn_q.weight", vec![64, 128]),
        ("tiny-falcon-h1", "blk.1.ffn_up.weight", vec![64, 128]),
        ("tiny-nemotron_h", "blk.0.ssm_conv1d.weight", vec![4, 192]),
        ("tiny-nemotron_h", "blk.1.ffn_up.weight", vec![64, 128]),
        ("tiny-nemotron_h", "blk.3.attn_output.weight", vec![128, 64]),
    ] {
        let case = format!("x preset={case} mix=F32");
        assert_eq!(shape_refused(&case, name), wanted, "{name}");
    }
    for (name, wanted) in [
        ("blk.0.shortconv.in_proj.weight", vec![64, 192]),
        ("blk.1.shortconv.conv.weight", vec![3, 64]),
        ("blk.2.shortconv.out_proj.weight", vec![64, 64]),
    ] {
        let case = "x preset=tiny-lfm2 mix=F32";
        assert_eq!(shape_refused(case, name), wanted, "{name}");
    }
}

#[test]
fn factor_that_lets_a_state_grow_is_named() {
    for (value, refused) in [(-0.0f32, false), (1e-3, true), (f32::NAN, true)] {
        let file = rewritten(QWEN35, |tensors: &mut Tensors| {
            let (.., data) = tensors
                .iter_mut()
                .find(|(n, ..)| n == "blk.1.ssm_a")
                .unwrap();
            data[8..12].copy_from_slice(&value.to_le_bytes());
        });
        let tensor = "blk.1.ssm_a".to_owned();
        let wanted = refused.then_some(LoadError::Value { tensor, index: 2 });
        assert_eq!(try_load(file, 1).err(), wanted, "{value}");
    }
}

#[test]
fn layers_that_predict_further_tokens_are_left_out() {
    let predicting = rewritten(QWEN35, |tensors: &mut Tensors| {
        let layer = tensors.iter().filter(|(n, ..)| n.starts_with("blk.3."));
        let layer: Vec<_> = layer.cloned().collect();
        for (name, dims, data) in layer {
            tensors.push((name.replace("blk.3.", "blk.4."), dims, data));
        }
        tensors.push((
            "blk.4.nextn.eh_proj.weight".to_owned(),
            vec![128, 64],
            vec![0; 4 * 128 * 64],
        ));
    });
    let predicting = crate::architectures::with_u32(&predicting, "qwen35.nextn_predict_layers", 1);
    let predicting = crate::architectures::with_u32(&predicting, "qwen35.block_count", 5);
    let mut plain = load(QWEN35, 1);
    let ids = ids(5, 30, plain.dims().vocab);
    assert_eq!(
        logits(&mut of(predicting), &ids, 0),
        logits(&mut plain, &ids, 0)
    );
}

/// Files of 2025 have the rows of each key head of queries, keys, values and gates together.
#[test]
fn joined_projections_give_the_bits_of_separate_ones() {
    const NEXT: &str = "x preset=tiny-qwen3next mix=F32";
    const ROW: usize = 4 * 64;
    let joined = rewritten(NEXT, |tensors: &mut Tensors| {
        for layer in 0..3 {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            let mut take = |part: &str| {
                let at = tensors.iter().position(|(n, ..)| *n == name(part));
                tensors.remove(at.unwrap()).2
            };
            let (input, gate) = (take("attn_qkv"), take("attn_gate"));
            let rows = |data: &[u8], first: usize, count: usize| {
                data[first * ROW..(first + count) * ROW].to_vec()
            };
            // Two key heads of 16, and four heads of values.
            let groups = (0..2).flat_map(|head| {
                [
                    rows(&input, 16 * head, 16),
                    rows(&input, 32 + 16 * head, 16),
                    rows(&input, 64 + 32 * head, 32),
                    rows(&gate, 32 * head, 32),
                ]
            });
            let data = groups.collect::<Vec<_>>().concat();
            tensors.push((name("ssm_in"), vec![64, 192], data));
        }
    });
    let mut plain = load(NEXT, 1);
    let ids = ids(5, 30, plain.dims().vocab);
    assert_eq!(
        logits(&mut of(joined), &ids, 0),
        logits(&mut plain, &ids, 0)
    );
}

#[test]
fn factor_of_the_shared_expert_is_needed() {
    let name = "blk.1.ffn_gate_inp_shexp.weight";
    let file = rewritten(
        "x preset=tiny-qwen35moe mix=F32",
        |tensors: &mut Tensors| {
            tensors.retain(|(n, ..)| n != name);
        },
    );
    let tensor = name.to_owned();
    assert_eq!(try_load(file, 1).err(), Some(LoadError::Missing { tensor }));
}

#[test]
fn tensors_that_a_family_needs_are_named() {
    for (case, name, needed) in [
        ("tiny-mamba2", "blk.1.ssm_in.weight", true),
        ("tiny-mamba2", "blk.1.ssm_norm.weight", true),
        ("tiny-mamba2", "blk.0.ssm_dt.bias", true),
        ("tiny-falcon-h1", "blk.1.ssm_d", true),
        ("tiny-falcon-h1", "blk.0.attn_k.weight", true),
        ("tiny-falcon-h1", "blk.0.ffn_gate.weight", true),
        ("tiny-falcon-h1", "blk.0.ssm_norm.weight", false),
        ("tiny-falcon-h1", "blk.0.ssm_conv1d.bias", false),
        ("tiny-nemotron_h", "blk.2.ssm_norm.weight", true),
        ("tiny-nemotron_h", "blk.1.ffn_down.weight", true),
        ("tiny-nemotron_h", "blk.1.attn_norm.weight", true),
    ] {
        let line = format!("x preset={case} mix=F32");
        let file = rewritten(&line, |tensors: &mut Tensors| {
            tensors.retain(|(n, ..)| n != name);
        });
        let tensor = name.to_owned();
        let wanted = needed.then_some(LoadError::Missing { tensor });
        assert_eq!(try_load(file, 1).err(), wanted, "{case}");
    }
}

#[test]
fn model_without_attention_has_no_keys_and_values() {
    let model = load("x preset=tiny-mamba2 mix=F32", 1);
    // Two layers: three inputs of 192 columns, and four heads of 16 times 32.
    let state = 2 * 4 * (3 * 192 + 4 * 16 * 32);
    assert_eq!(
        (model.bytes().kv, model.bytes().states),
        (0, STATES * state)
    );
}
