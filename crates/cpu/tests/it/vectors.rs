//! Rows that are vectors in place of tokens.
//!
//! Promise (Engine): a row that is a vector has the bits of the token with that embedding, whatever the cuts and the batch are.

use crate::support::{PAGE, ROWS, bytes, ids, load, logits, pages};
use cpu::Model;
use model::{Batch, Forward, SpanStates, Want};
use proptest::prelude::*;
use weights::gguf::Gguf;

/// Models with the embeddings of tokens as `f32`: unscaled, scaled, with inputs of single layers, with recurrent layers.
const CASES: [&str; 6] = [
    "llama preset=tiny-llama mix=F32",
    "qwen3 preset=tiny-qwen3 mix=F32",
    "gemma3 preset=tiny-gemma3 mix=F32",
    "granite preset=tiny-granite mix=F32",
    "gemma4 preset=tiny-gemma4 mix=F32",
    "qwen35 preset=tiny-qwen35 mix=F32",
];

/// The factor of embeddings, if the model does not multiply vectors, too.
fn scale_of(model: &Model) -> f32 {
    let scales = &model.config().scales;
    if scales.vectors == 1.0 {
        scales.embedding
    } else {
        assert_eq!(scales.vectors, scales.embedding);
        1.0
    }
}

/// Embeddings of these tokens, at the scale of the stream.
fn vectors_of(case: &str, ids: &[u32], scale: f32) -> Vec<f32> {
    let gguf = Gguf::from_bytes(bytes(case)).unwrap();
    let table = gguf.need_tensor("token_embd.weight").unwrap();
    let entries: Vec<f32> = table
        .bytes
        .chunks_exact(4)
        .map(|entry| f32::from_le_bytes(entry.try_into().unwrap()))
        .collect();
    let rows = ids
        .iter()
        .flat_map(|&id| &entries[id as usize * table.cols()..][..table.cols()]);
    rows.map(|entry| entry * scale).collect()
}

/// Bits of the logits of all rows, of which those from `first` on are vectors; in spans of these lengths, next to another
/// sequence.
fn computed(
    model: &mut Model,
    ids: &[u32],
    (first, vectors): (usize, &[f32]),
    mut cut: impl FnMut() -> usize,
) -> Vec<Vec<u32>> {
    let (vocab, dim) = (model.dims().vocab, model.config().dim);
    let run = first..first + vectors.len() / dim;
    let (table, other) = (pages(0, ids.len()), pages(64, PAGE));
    let (mut done, mut passes, mut all) = (0, 0, Vec::new());
    let mut batch = Batch::default();
    while done < ids.len() {
        let rows = done..ids.len().min(done + cut().min(ROWS - PAGE));
        batch.clear();
        batch.push(&[7; PAGE], 0, &other, Want::None);
        batch.set_states(Some(SpanStates::alternating(1, passes, 0)));
        batch.push(&ids[rows.clone()], rows.start, &table, Want::All);
        batch.set_states(Some(SpanStates::alternating(0, passes, rows.start)));
        let inside = rows.start.max(run.start)..rows.end.min(run.end);
        if !inside.is_empty() {
            let of_run = (inside.start - run.start) * dim..(inside.end - run.start) * dim;
            let in_span = inside.start - rows.start..inside.end - rows.start;
            batch.set_vectors(in_span, &vectors[of_run]);
        }
        let found = model.forward(&batch).unwrap().chunks(vocab);
        all.extend(found.map(|row| row.iter().map(|x| x.to_bits()).collect::<Vec<_>>()));
        (done, passes) = (rows.end, passes + 1);
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn vectors_have_the_bits_of_tokens_with_these_embeddings(
        case in prop::sample::select(&CASES[..]),
        (before, run, after) in (0..40_usize, 1..50_usize, 0..20_usize),
        cuts in prop::collection::vec(1..60_usize, 1..16),
        seed: u64,
    ) {
        let mut model = load(case, 2);
        let mut ids = ids(seed, before + run + after, model.dims().vocab);
        // A vector has the inputs of single layers of token 0.
        if case.starts_with("gemma4") {
            ids[before..before + run].fill(0);
        }
        let vectors = vectors_of(case, &ids[before..before + run], scale_of(&model));
        let mut cuts = cuts.into_iter().cycle();
        let found = computed(&mut model, &ids, (before, &vectors), || cuts.next().unwrap());
        let wanted = logits(&mut load(case, 1), &ids, 0);
        let wanted: Vec<Vec<u32>> = wanted
            .iter()
            .map(|row| row.iter().map(|x| x.to_bits()).collect())
            .collect();
        prop_assert!(found == wanted, "{case}");
    }
}

#[test]
fn other_vectors_give_other_logits() {
    for case in CASES {
        let mut model = load(case, 1);
        let ids = ids(3, 24, model.dims().vocab);
        let mut vectors = vectors_of(case, &ids[8..20], scale_of(&model));
        let before = computed(&mut model, &ids, (8, &vectors), || 24);
        vectors[5] += 0.5;
        let after = computed(&mut model, &ids, (8, &vectors), || 24);
        assert!(
            before[..8] == after[..8] && before[23] != after[23],
            "{case}"
        );
    }
}
