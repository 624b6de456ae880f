//! The MTP head: it changes no logits, and its guesses are a function of the tokens alone.
//!
//! Promise (Arithmetic): an MTP head changes no logits; its draft tokens have the same bits however the prompt was
//! divided; it reads the embedding and the final hidden state of the position before; missing tensors are named.

use crate::differing::{Tensors, rewritten};
use crate::support::{PAGE, bytes, ids, logits, options, pages};
use cpu::{LoadOptions, Model};
use kernels::{Isa, Pool};
use model::{Batch, Forward, ForwardError, KeptState, Predict, SpanStates, Want};
use weights::LoadError;
use weights::gguf::Gguf;

const DENSE: &str = "x preset=tiny-qwen35 mix=F32 mtp=true";
const QUANTIZED: &str = "x preset=small-qwen35 mix=Q4_K_M layers=3 period_recurrent=2 mtp=true";
const EXPERTS: &str = "x preset=tiny-qwen35moe mix=Q8_0 mtp=true";

fn try_load(bytes: Vec<u8>, mtp: bool) -> Result<Model, LoadError> {
    let gguf = Gguf::from_bytes(bytes).unwrap();
    let options = LoadOptions {
        mtp,
        ..options(None)
    };
    Model::load(gguf, Isa::detect(), Pool::new(2), &options, &mut |_| {})
}

fn load(bytes: Vec<u8>) -> Model {
    try_load(bytes, true).unwrap()
}

/// Computes ids from `position` on, without logits.
fn feed(model: &mut Model, ids: &[u32], position: usize, states: SpanStates) {
    let mut batch = Batch::default();
    let table = pages(0, position + ids.len());
    batch.push(ids, position, &table, Want::None);
    batch.set_states(Some(states));
    assert!(model.forward(&batch).unwrap().is_empty());
}

/// Guesses about what follows `id` at `position`, after the state `before`.
fn guess(model: &mut Model, id: u32, position: usize, before: Option<u32>) -> Vec<f32> {
    let mut batch = Batch::default();
    batch.push(&[id], position, &pages(0, position + 1), Want::Last);
    batch.set_states(Some(SpanStates::new(before, 15)));
    model.predict(&batch).unwrap().to_vec()
}

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn head_changes_no_logits() {
    for case in [DENSE, QUANTIZED, EXPERTS] {
        let mut plain = try_load(bytes(case), false).unwrap();
        let mut predicting = load(bytes(case));
        assert!(plain.mtp_head().is_none() && predicting.mtp_head().is_some());
        let ids = ids(5, 150, plain.dims().vocab);
        let found = logits(&mut predicting, &ids, 0);
        assert!(found == logits(&mut plain, &ids, 0), "{case}");
    }
}

#[test]
fn guesses_do_not_depend_on_the_division_of_the_prompt() {
    for case in [DENSE, QUANTIZED, EXPERTS] {
        let mut model = load(bytes(case));
        let ids = ids(9, 61, model.dims().vocab);
        feed(&mut model, &ids[..60], 0, SpanStates::new(None, 0));
        let whole = bits(&guess(&mut model, ids[60], 60, Some(0)));
        assert_eq!(bits(&guess(&mut model, ids[60], 60, Some(0))), whole);
        for cut in [1, PAGE, 17, 59] {
            let kept = Some(KeptState {
                tokens: cut,
                state: 3,
            });
            let states = SpanStates {
                kept: [kept, None, None],
                ..SpanStates::new(None, 4)
            };
            // From a state within a span, as from a checkpoint.
            feed(&mut model, &ids[..60], 0, states);
            feed(&mut model, &ids[cut..60], cut, SpanStates::new(Some(3), 5));
            let found = guess(&mut model, ids[60], 60, Some(5));
            assert!(bits(&found) == whole, "{case}, cut at {cut}");
        }
        // A guess leaves the model's own keys, values and states as they are.
        let mut again = load(bytes(case));
        let plain = logits(&mut again, &ids, 0);
        feed(&mut model, &ids[..60], 0, SpanStates::new(None, 0));
        guess(&mut model, ids[60] ^ 1, 60, Some(0));
        let mut batch = Batch::default();
        batch.push(&ids[60..], 60, &pages(0, 61), Want::Last);
        batch.set_states(Some(SpanStates::new(Some(0), 1)));
        assert!(
            bits(model.forward(&batch).unwrap()) == bits(&plain[60]),
            "{case}"
        );
        // Other tokens before give another guess: through the hidden state, and through attention alone.
        let mut other = ids.clone();
        other[7] ^= 1;
        feed(&mut model, &other[..60], 0, SpanStates::new(None, 2));
        let through_both = guess(&mut model, ids[60], 60, Some(2));
        let through_attention = guess(&mut model, ids[60], 60, Some(0));
        assert!(bits(&through_both) != whole && bits(&through_attention) != whole);
    }
}

/// A file whose head passes one half of its input on: the other half and all updates are zero.
fn passing_on(half: usize) -> Vec<u8> {
    rewritten(DENSE, |tensors: &mut Tensors| {
        for (name, dims, data) in tensors {
            if !name.starts_with("blk.4.") {
                continue;
            }
            let mut write = |of: &dyn Fn(usize) -> f32| {
                for (at, entry) in data.chunks_exact_mut(4).enumerate() {
                    entry.copy_from_slice(&of(at).to_le_bytes());
                }
            };
            let cols = dims[0] as usize;
            match name.trim_start_matches("blk.4.") {
                "attn_output.weight" | "ffn_down.weight" => write(&|_| 0.0),
                "nextn.eh_proj.weight" => write(&|at| {
                    let (row, col) = (at / cols, at % cols);
                    f32::from(col == half * cols / 2 + row)
                }),
                name if name.starts_with("nextn.") => write(&|_| 1.0),
                _ => {}
            }
        }
    })
}

/// The correlation of two rows.
fn likeness(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[test]
fn head_reads_the_embedding_first_and_the_normalized_hidden_state_before_it() {
    let mut plain = try_load(passing_on(0), false).unwrap();
    let ids = ids(4, 21, plain.dims().vocab);
    let own = logits(&mut plain, &ids, 0);
    // The hidden state before the token is what the model's own logits of the token before come from.
    let mut model = load(passing_on(1));
    feed(&mut model, &ids[..20], 0, SpanStates::new(None, 0));
    let found = guess(&mut model, ids[20], 20, Some(0));
    assert!(likeness(&found, &own[19]) > 0.999_9);
    assert!(likeness(&found, &own[20]) < 0.9);
    // At position 0 nothing precedes.
    assert!(
        guess(&mut model, ids[0], 0, None)
            .iter()
            .all(|logit| *logit == 0.0)
    );
    // The embedding is that of the token, wherever it is.
    let mut model = load(passing_on(0));
    let first = guess(&mut model, ids[20], 0, None);
    feed(&mut model, &ids[..20], 0, SpanStates::new(None, 0));
    assert!(likeness(&first, &guess(&mut model, ids[20], 20, Some(0))) > 0.999_9);
    assert!(likeness(&first, &guess(&mut model, ids[20] ^ 1, 20, Some(0))) < 0.9);
}

#[test]
fn head_counts_as_a_layer_and_a_hidden_state_for_each_sequence() {
    let [plain, with] = [false, true].map(|mtp| try_load(bytes(DENSE), mtp).unwrap().bytes());
    // One of four layers has keys and values in the model itself.
    assert_eq!(with.kv, 2 * plain.kv);
    assert_eq!(with.states, plain.states + 16 * 64 * 4);
    assert!(with.weights > plain.weights && with.scratch > plain.scratch);
}

#[test]
fn tables_of_the_head_are_used_if_there_are_any() {
    for name in ["embed_tokens", "shared_head_head"] {
        let file = rewritten(DENSE, |tensors: &mut Tensors| {
            let table = tensors.iter().find(|(n, ..)| n == "token_embd.weight");
            let (_, dims, data) = table.unwrap().clone();
            let zeros = vec![0; data.len()];
            tensors.push((format!("blk.4.nextn.{name}.weight"), dims, zeros));
        });
        let mut model = load(file);
        let usual = guess(&mut load(bytes(DENSE)), 7, 0, None);
        let found = guess(&mut model, 7, 0, None);
        // Without embedding and hidden state, or without a projection, all logits are zero.
        assert!(
            found.iter().all(|logit| *logit == 0.0) && usual != found,
            "{name}"
        );
    }
}

#[test]
fn missing_parts_of_a_head_are_named() {
    for (part, needed) in [
        ("nextn.eh_proj", true),
        ("nextn.enorm", true),
        ("nextn.hnorm", true),
        ("nextn.shared_head_norm", false),
        ("attn_q", true),
        ("attn_k_norm", true),
        ("post_attention_norm", true),
        ("ffn_down", true),
    ] {
        let name = format!("blk.4.{part}.weight");
        let file = rewritten(DENSE, |tensors: &mut Tensors| {
            tensors.retain(|(n, ..)| *n != name);
        });
        let wanted = needed.then(|| LoadError::Missing {
            tensor: name.clone(),
        });
        assert_eq!(try_load(file.clone(), true).err(), wanted);
        assert!(
            try_load(file, false).is_ok(),
            "{name} is not needed otherwise"
        );
    }
    let none = |case: &str| try_load(bytes(case), true).err().unwrap().to_string();
    assert_eq!(
        none("x preset=tiny-qwen35 mix=F32"),
        "metadata key `qwen35.nextn_predict_layers` is 0, must be 1 for speculation by an MTP head"
    );
    assert!(none("x preset=tiny-llama mix=F32").contains("other than qwen35 and qwen35moe"));
}

#[test]
fn batches_without_a_guess_are_rejected() {
    let mut model = load(bytes(DENSE));
    let new = SpanStates::new;
    type Row<'a> = (&'a [u32], usize, Option<SpanStates>, Want, &'a str);
    let rows: [Row<'_>; 7] = [
        (&[1, 2], 0, Some(new(None, 1)), Want::Last, "one token"),
        (&[1], 0, Some(new(None, 1)), Want::None, "one token"),
        (&[1], 0, None, Want::Last, "no states"),
        (
            &[1],
            0,
            Some(new(Some(0), 1)),
            Want::Last,
            "a state precedes",
        ),
        (&[1], 4, Some(new(None, 1)), Want::Last, "a state precedes"),
        (
            &[1],
            4,
            Some(new(Some(16), 1)),
            Want::Last,
            "does not exist",
        ),
        (&[1 << 20], 0, Some(new(None, 1)), Want::Last, "vocabulary"),
    ];
    for (ids, position, states, want, wanted) in rows {
        let mut batch = Batch::default();
        batch.push(ids, position, &pages(0, position + ids.len()), want);
        batch.set_states(states);
        match model.predict(&batch) {
            Err(ForwardError::BadBatch(why)) => assert!(why.contains(wanted), "{why}"),
            other => panic!("{wanted}: {other:?}"),
        }
    }
}
