//! Rows that are vectors in place of tokens, as those of images are.
//!
//! Promise (Arithmetic): on a device, a row that is a vector has the bits of the token with that embedding in batches of fewer
//! than 16 rows, whatever the cuts are. Logits after vectors with parts for the first layers, after positions on three axes, and
//! after rows that see each other have a cosine ≥ 0.9999 with those of the CPU in floats.

use crate::support::{
    OneDevice, cosine, device, gguf, ids, load, logits, on_cpu, on_device, options, pages, spec,
};
use gpu::Options;
use model::{Ahead, Batch, Draws, Forward, ForwardError, SpanStates, Want};
use std::ops::Range;
use synth::VisionSpec;

/// Rows of a prompt, and which of them are vectors.
const ROWS: usize = 60;
const RUNS: [Range<usize>; 2] = [20..41, 45..47];

/// Numbers between -1 and 1.
fn noise(seed: u64, count: usize) -> Vec<f32> {
    let ids = ids(seed, count, 2001).into_iter();
    ids.map(|id| id as f32 / 1000.0 - 1.0).collect()
}

/// Logits of all rows of a prompt with vectors, in spans that end before these rows.
fn seen(model: &mut dyn Forward, prompt: &[u32], width: usize, ends: &[usize]) -> Vec<Vec<f32>> {
    let (vocab, table) = (model.dims().vocab, pages(0, prompt.len()));
    let axes = model.capabilities().axes;
    let (mut batch, mut all, mut at) = (Batch::default(), Vec::new(), 0);
    for (turn, &end) in ends.iter().enumerate() {
        let rows = at..end;
        batch.clear();
        batch.push(&prompt[rows.clone()], at, &table, Want::All);
        // For texts with recurrent layers.
        batch.set_states(Some(SpanStates::alternating(0, turn, at)));
        for run in RUNS {
            let inside = run.start.max(at)..run.end.min(end);
            if inside.is_empty() {
                continue;
            }
            let vectors = noise(5, prompt.len() * width);
            let of_run = &vectors[inside.start * width..inside.end * width];
            let in_span = inside.start - at..inside.end - at;
            batch.set_vectors(in_span, of_run);
        }
        if axes {
            batch.set_axes_at(|row| {
                let at = row as u32;
                if RUNS[0].contains(&row) {
                    [20, 20 + (at - 20) / 7, 20 + (at - 20) % 7]
                } else if row < RUNS[0].start {
                    [at; 3]
                } else {
                    [at - 14; 3]
                }
            });
        }
        let rows = model.forward(&batch).expect("a batch").chunks(vocab);
        all.extend(rows.map(<[f32]>::to_vec));
        at = end;
    }
    all
}

#[test]
fn logits_after_vectors_equal_the_processors() {
    let Some(device) = device() else { return };
    let qwen35 = "tiny-qwen35";
    let presets = [
        ("tiny-idefics3", 64),
        ("tiny-qwen3vl_merger", 2 * 64),
        (qwen35, 64),
    ];
    for (preset, width) in presets {
        let text = match VisionSpec::preset(preset) {
            Some(tower) => tower.text().expect("a text model"),
            None => spec(preset, "F32"),
        };
        let (mut ours, mut theirs) = (on_device(&text, &device), on_cpu(&text));
        assert_eq!(ours.capabilities().axes, theirs.capabilities().axes);
        let prompt = ids(7, ROWS, ours.dims().vocab);
        let wanted = seen(&mut theirs, &prompt, width, &[ROWS]);
        // By tiles, and row by row.
        for ends in [&[12, 44, 60][..], &[20, 41, 42, 43, 44, 45, 47, 55, 60]] {
            let found = seen(&mut ours, &prompt, width, ends);
            for (row, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                let found = cosine(found, wanted);
                assert!(found >= 0.9999, "{preset} {row}: cosine {found}");
            }
        }
        if preset != qwen35 {
            check_calls(&mut ours, &device, &prompt, width);
        }
    }
}

/// Logits of the rows from the last of a block on, which is vectors that see each other.
fn after_block<M: Forward>(model: &mut M, prompt: &[u32], width: usize) -> Vec<Vec<f32>> {
    let block = RUNS[0].clone();
    let vectors = noise(5, block.len() * width);
    let (vocab, table) = (model.dims().vocab, pages(0, prompt.len()));
    let mut batch = Batch::default();
    batch.push(&prompt[..block.start], 0, &table, Want::None);
    model.forward(&batch).expect("a batch");
    batch.clear();
    batch.push(&prompt[block.clone()], block.start, &table, Want::None);
    batch.set_vectors(0..block.len(), &vectors);
    let blocks = model.blocks().expect("rows that see each other");
    blocks.begin_block(&batch).expect("a block");
    while blocks.advance_block(1).expect("a unit") > 0 {}
    assert!(blocks.advance_block(1).is_err(), "nothing is under way");
    let last = block.end - 1;
    batch.clear();
    batch.push(&prompt[last..], last, &table, Want::All);
    batch.set_vectors(0..1, &vectors[(block.len() - 1) * width..]);
    let rows = model.forward(&batch).expect("a batch").chunks(vocab);
    rows.map(<[f32]>::to_vec).collect()
}

#[test]
fn rows_that_see_each_other_equal_the_processors() {
    let Some(device) = device() else { return };
    // In all layers, and in those with a window.
    for preset in ["tiny-gemma3", "tiny-gemma4-31b"] {
        let spec = spec(preset, "F32");
        let (mut ours, mut theirs) = (on_device(&spec, &device), on_cpu(&spec));
        let width = ours.config().dim;
        let prompt = ids(7, ROWS, ours.dims().vocab);
        let wanted = after_block(&mut theirs, &prompt, width);
        let found = after_block(&mut ours, &prompt, width);
        for (row, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            let found = cosine(found, wanted);
            assert!(found >= 0.9999, "{preset} {row}: cosine {found}");
        }
        // Rows that see nothing later give something else.
        let apart = seen(&mut ours, &prompt, width, &[RUNS[0].end - 1, ROWS]);
        assert!(cosine(&apart[ROWS - 1], &wanted[wanted.len() - 1]) < 0.9999);
        let mut many = Batch::default();
        many.push(&[0; 97], 0, &pages(0, 97), Want::None);
        many.set_vectors(0..97, &vec![0.5; 97 * width]);
        let blocks = ours.blocks().expect("rows that see each other");
        let error = blocks.begin_block(&many).expect_err("too many rows");
        assert!(error.to_string().contains("more rows than"), "{error}");
    }
}

/// A batch with vectors is one submit, one wait and one mapping, as any other, and may be started ahead.
fn check_calls(model: &mut gpu::Model, device: &OneDevice, prompt: &[u32], width: usize) {
    let counts = || {
        let counts = device.counts();
        [counts.submits, counts.waits, counts.maps, counts.buffers]
    };
    let mut batch = Batch::default();
    batch.push(&prompt[..8], 0, &pages(0, 8), Want::Last);
    batch.set_vectors(2..7, &noise(6, 5 * width));
    let before = counts();
    let wanted = model.forward(&batch).expect("a batch").to_vec();
    let calls: Vec<u64> = counts().iter().zip(before).map(|(a, b)| a - b).collect();
    assert_eq!(calls, [1, 1, 1, 0]);
    model.start(&batch).expect("a batch");
    let mut draws = Draws::default();
    draws.push(0, None);
    model.draw(&draws).expect("draws");
    assert!(model.drawn().expect("a row").logits == wanted);
}

#[test]
fn vectors_have_the_bits_of_tokens_with_these_embeddings() {
    let Some(device) = device() else { return };
    for preset in [
        "tiny-llama",
        "tiny-gemma3",
        "tiny-granite",
        "tiny-gemma4",
        "tiny-qwen35",
    ] {
        let spec = spec(preset, "F32");
        let mut model = on_device(&spec, &device);
        let (dim, scales) = (model.config().dim, model.config().scales.clone());
        // A model with multipliers multiplies vectors, too.
        let scale = scales.embedding / scales.vectors;
        assert_eq!(preset == "tiny-granite", scales.vectors != 1.0);
        let mut prompt = ids(3, 20, model.dims().vocab);
        // A vector has the inputs of single layers of token 0.
        if preset == "tiny-gemma4" {
            prompt[4..13].fill(0);
        }
        let gguf = gguf(&spec);
        let table = gguf.tensor("token_embd.weight").expect("a table");
        let floats = table.bytes.as_chunks::<4>().0;
        let embedding = |id: &u32| {
            let row = &floats[*id as usize * dim..][..dim];
            row.iter().map(|bytes| f32::from_le_bytes(*bytes) * scale)
        };
        let wanted = logits(&mut model, &prompt, 0, &[1; 20]);
        for ends in [&[6, 20][..], &[14, 20], &[4, 12, 13, 20]] {
            let (mut batch, mut found, mut at) = (Batch::default(), Vec::new(), 0);
            for (turn, &end) in ends.iter().enumerate() {
                batch.clear();
                batch.push(&prompt[at..end], at, &pages(8, 20), Want::All);
                batch.set_states(Some(SpanStates::alternating(1, turn, at)));
                let inside = at.max(4)..end.min(13);
                if !inside.is_empty() {
                    let vectors: Vec<f32> =
                        prompt[inside.clone()].iter().flat_map(embedding).collect();
                    batch.set_vectors(inside.start - at..inside.end - at, &vectors);
                }
                found.extend_from_slice(model.forward(&batch).expect("a batch"));
                at = end;
            }
            assert!(found == wanted.concat(), "{preset} {ends:?}");
        }
    }
}

#[test]
fn rows_that_a_model_does_not_take_are_named() {
    let Some(device) = device() else { return };
    let blind = Options {
        vectors: false,
        ..options()
    };
    let model = load(gguf(&spec("tiny-llama", "F32")), &device, &blind);
    let mut model = model.expect("a model");
    assert!(model.blocks().is_none());
    type Add = fn(&mut Batch);
    let rows: [(&str, Add); 3] = [
        ("no vectors", |batch| batch.set_vectors(0..1, &[0.0; 64])),
        ("three axes", |batch| batch.set_axes(&[[0; 3]; 2])),
        ("as wide", |batch| batch.set_vectors(0..1, &[0.0; 63])),
    ];
    for (part, add) in rows {
        let mut batch = Batch::default();
        batch.push(&[1, 2], 0, &pages(0, 2), Want::Last);
        add(&mut batch);
        let error = model.forward(&batch).expect_err(part);
        let named = matches!(error, ForwardError::BadBatch(why) if why.contains(part));
        assert!(named, "{part}: {error}");
    }
}
