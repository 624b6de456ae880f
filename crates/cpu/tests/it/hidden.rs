//! Hidden states: consistent with logits, and independent of the batch.
//!
//! Promise (Arithmetic): embeddings are the hidden states, to the bit (with AMX: with `model.deterministic: true`),
//! for every chunking and batch; logits are computed from the same states, and llama.cpp has the same for six
//! families.
//! Also held by `tools/oracle/embeddings.py`, `engine/tests/it/embedding.rs`, `server/tests/it/embeddings.rs`.

use crate::support::{bytes, ids, load, logits, pages, try_load};
use cpu::Model;
use model::{Batch, Forward, Want};
use weights::gguf::Gguf;

const CASES: [&str; 3] = [
    "llama preset=tiny-llama mix=F32",
    "qwen3 preset=tiny-qwen3 mix=F32",
    "gemma3 preset=tiny-gemma3 mix=Q8_0",
];

/// Hidden states of every position, in chunks of `chunk`, on pages from `first_page`.
fn hidden(model: &mut Model, ids: &[u32], first_page: usize, chunk: usize) -> Vec<Vec<f32>> {
    let (dim, table) = (
        model.capabilities().hidden_dim,
        pages(first_page, ids.len()),
    );
    let mut all = Vec::new();
    let mut batch = Batch::default();
    for (i, ids) in ids.chunks(chunk).enumerate() {
        batch.clear();
        batch.push(ids, i * chunk, &table, Want::AllHidden);
        assert_eq!(model.forward(&batch).map(|logits| logits.len()), Ok(0));
        all.extend(model.hidden().chunks(dim).map(<[f32]>::to_vec));
    }
    all
}

#[test]
fn hidden_states_give_the_logits() {
    for case in &CASES[..2] {
        let file = bytes(case);
        let gguf = Gguf::from_bytes(file.clone()).expect("a file");
        let head = gguf.tensor("output.weight");
        let head = head
            .or_else(|| gguf.tensor("token_embd.weight"))
            .expect("a head");
        let weights: Vec<f32> = head
            .bytes
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect();
        let mut model = try_load(file, 1).expect("a model");
        let (dim, vocab) = (model.capabilities().hidden_dim, model.dims().vocab);
        assert_eq!(weights.len(), dim * vocab, "{case}: not packed");
        let ids = ids(7, 20, vocab);
        let hidden = hidden(&mut model, &ids, 0, 64);
        let logits = logits(&mut model, &ids, 8);
        assert_eq!(hidden.len(), ids.len());
        for (hidden, logits) in hidden.iter().zip(&logits) {
            for (row, &logit) in weights.chunks_exact(dim).zip(logits) {
                let products = row.iter().zip(hidden).map(|(w, h)| f64::from(w * h));
                let (sum, size) = products.fold((0.0, 0.0), |(sum, size): (f64, f64), p| {
                    (sum + p, size + p.abs())
                });
                let off = (sum - f64::from(logit)).abs();
                assert!(off <= 1e-4 * size.max(1.0), "{case}: {sum}, not {logit}");
            }
        }
    }
}

#[test]
fn results_are_batch_invariant() {
    for case in CASES {
        let mut model = load(case, 2);
        let (dim, vocab) = (model.capabilities().hidden_dim, model.dims().vocab);
        let prompt = ids(3, 40, vocab);
        let whole = hidden(&mut model, &prompt, 0, 64);
        assert_eq!(hidden(&mut model, &prompt, 8, 7), whole, "{case}: cut");
        let plain = logits(&mut model, &prompt, 16);
        let mut batch = Batch::default();
        let (a, b, c) = (pages(24, 40), pages(32, 40), pages(40, 40));
        batch.push(&prompt, 0, &a, Want::LastHidden);
        batch.push(&prompt, 0, &b, Want::Last);
        batch.push(&prompt[..9], 0, &c, Want::AllHidden);
        assert_eq!((batch.logit_rows(), batch.hidden_rows()), (1, 10));
        let logits = model.forward(&batch).expect("a batch").to_vec();
        assert_eq!(logits.len(), vocab);
        assert_eq!(logits, plain[39], "{case}: logits beside hidden states");
        let rows: Vec<_> = model.hidden().chunks(dim).map(<[f32]>::to_vec).collect();
        assert_eq!(rows[0], whole[39], "{case}: the last");
        assert_eq!(rows[1..], whole[..9], "{case}: all");
    }
}

/// The numbers after a line's first word.
fn numbers<T: std::str::FromStr>(line: &str) -> Vec<T> {
    let words = line.split(' ').skip(1);
    words.filter_map(|word| word.parse().ok()).collect()
}

/// Hidden states against `tools/oracle/embeddings.py`. The difference is the order of sums, and f16 keys and
/// values.
#[test]
fn hidden_states_equal_llama_cpp() {
    const OFF: f32 = 5e-3;
    let goldens = include_str!("../goldens/embeddings.txt");
    let cases: Vec<&str> = goldens.split("case ").skip(1).collect();
    assert_eq!(cases.len(), 6);
    for golden in cases {
        let lines: Vec<&str> = golden.lines().collect();
        let case = lines[0];
        let mut model = load(case, 2);
        let hidden = hidden(&mut model, &numbers(lines[1]), 0, 64);
        assert_eq!(hidden.len(), 40, "{case}");
        let mean = |at: usize| hidden.iter().map(|row| row[at]).sum::<f32>() / hidden.len() as f32;
        let mean: Vec<f32> = (0..model.capabilities().hidden_dim).map(mean).collect();
        for (line, ours) in [(lines[2], &hidden[39]), (lines[3], &mean)] {
            let theirs: Vec<f32> = numbers(line);
            assert_eq!(theirs.len(), ours.len(), "{case}");
            let largest = theirs.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
            for (ours, theirs) in ours.iter().zip(&theirs) {
                let off = (ours - theirs).abs();
                assert!(off <= OFF * largest, "{case}: {ours}, not {theirs}");
            }
        }
    }
}
