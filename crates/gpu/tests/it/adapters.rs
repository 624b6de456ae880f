//! Adapters (LoRA) on a device.
//!
//! Promise (Arithmetic): on a device, logits of rows with adapters, several of one row and of different ranks included, have a
//! cosine ≥ 0.9999 with those of the CPU in floats; below 16 rows their bits do not depend on the rows next to them, and rows
//! without adapters have the bits of a model without any.

use crate::support::{cosine, device, gguf, ids, load, on_cpu, options, pages, spec};
use model::{AdapterSet, Batch, Forward, ForwardError, SpanStates, Want};
use std::sync::Arc;
use synth::{AdapterSynth, SynthSpec};
use testing::folder::Folder;
use weights::{Adapter, ModelFiles};

/// Adapters of different ranks, two of one.
const ADAPTERS: [(u64, u32, f32); 3] = [(11, 4, 8.0), (12, 19, 3.0), (13, 4, 2.0)];

fn adapters(spec: &SynthSpec) -> Vec<Adapter> {
    let (folder, base) = (Folder::new("adapter"), ModelFiles::from(gguf(spec)));
    let config = base.config(None).expect("a configuration");
    let open = |(seed, rank, alpha)| {
        let synth = AdapterSynth { seed, rank, alpha };
        let path = folder.0.join(format!("{seed}.gguf"));
        let bytes = spec.adapter_bytes(&synth).expect("an adapter");
        std::fs::write(&path, bytes).expect("a file");
        Adapter::open(&path, &base, &config).expect("an adapter of the model")
    };
    ADAPTERS.map(open).into()
}

fn set(given: &[(usize, f32)]) -> AdapterSet {
    AdapterSet::new(given.iter().copied()).expect("a set")
}

/// Logits of the last rows of prompts of `rows` tokens with these adapters, in one batch.
fn logits(model: &mut dyn Forward, rows: usize, sets: &[AdapterSet]) -> Vec<Vec<f32>> {
    let vocab = model.dims().vocab;
    let mut batch = Batch::default();
    for (number, set) in sets.iter().enumerate() {
        let (prompt, table) = (ids(5, rows, vocab), pages(3 * number, rows));
        batch.push_adapted(&prompt, 0, &table, Want::Last, *set);
        batch.set_states(Some(SpanStates::new(None, number as u32)));
    }
    let rows = model.forward(&batch).expect("a batch");
    rows.chunks(vocab).map(<[f32]>::to_vec).collect()
}

#[test]
fn rows_with_adapters_equal_the_processors() {
    let Some(device) = device() else { return };
    for preset in ["tiny-llama", "tiny-phi3", "tiny-gemma4-26b"] {
        let spec = spec(preset, "F32");
        let given = adapters(&spec);
        let files = || Arc::new(ModelFiles::from(gguf(&spec)));
        let ours = gpu::Model::load_adapted(
            (files(), &given),
            Arc::clone(&device),
            &options(),
            &mut |_| {},
        );
        let mut ours = ours.unwrap_or_else(|why| panic!("{preset}: {why}"));
        let mut theirs = on_cpu(&spec);
        theirs.adapt(&given).expect("adapters");
        assert_eq!(ours.capabilities().adapters, 3);
        let sets = [
            set(&[(0, 1.0)]),
            AdapterSet::NONE,
            set(&[(0, 0.5), (1, -1.0), (2, 2.0)]),
            set(&[(1, 1.5)]),
        ];
        let plain = load(gguf(&spec), &device, &options());
        let mut plain = plain.unwrap_or_else(|why| panic!("{preset}: {why}"));
        for rows in [3, 20] {
            let wanted = logits(&mut theirs, rows, &sets);
            let found = logits(&mut ours, rows, &sets);
            for (number, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                let found = cosine(found, wanted);
                assert!(found >= 0.9999, "{preset} {rows} {number}: cosine {found}");
            }
            assert!(cosine(&found[0], &found[1]) < 0.9999, "{preset}: no effect");
            if rows == 3 {
                let alone = sets.map(|set| logits(&mut ours, rows, &[set]).remove(0));
                assert!(alone[..] == found[..], "{preset}: neighbors change bits");
                let without = |model: &mut gpu::Model| {
                    let before = device.counts().dispatches;
                    let found = logits(model, rows, &[AdapterSet::NONE]).remove(0);
                    (found, device.counts().dispatches - before)
                };
                let of_plain = without(&mut plain);
                assert!(of_plain.0 == found[1], "{preset}: without adapters");
                assert!(without(&mut ours) == of_plain, "{preset}: without adapters");
            }
        }
        check_refusal(&mut ours, &mut plain);
    }
}

/// Adapters that are not loaded are refused.
fn check_refusal(adapted: &mut gpu::Model, plain: &mut gpu::Model) {
    for (model, number) in [(adapted, 3), (plain, 0)] {
        let mut batch = Batch::default();
        batch.push_adapted(&[1], 0, &[0], Want::Last, set(&[(number, 1.0)]));
        let error = model.forward(&batch).expect_err("no such adapter");
        assert_eq!(error, ForwardError::BadBatch("an adapter is not loaded"));
    }
}
