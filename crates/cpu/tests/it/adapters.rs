//! Adapters: beside merged weights, in mixed batches, and their bounds.
//!
//! Promise (Engine): adapters: a row's bits do not depend on its neighbors' adapters, and without adapters are those
//! of a server without any; cached prompts are shared with equal adapters and scales only; logits are llama.cpp's.
//! Also held by `cpu/tests/it/goldens.rs`, `engine/tests/it/generation/adapters.rs`, `engine/tests/it/simulation`,
//! `millrace/tests/it/adapters.rs`.

use crate::support::adapters::open;
use crate::support::case::Case;
use crate::support::{ROWS, adapted_logits, ids, options, pages, try_load};
use cpu::Model;
use kernels::{Isa, Pool, dequantize};
use model::adapters::ADAPTERS_MAX;
use model::{AdapterSet, Batch, Forward, ForwardError, Want};
use std::collections::HashMap;
use synth::AdapterSynth;
use weights::gguf::{Gguf, GgufWriter, TensorPlan};
use weights::{Adapter, ModelFiles};

/// Adapters of different ranks, two of one.
const ADAPTERS: [AdapterSynth; 3] = [
    AdapterSynth {
        seed: 11,
        rank: 4,
        alpha: 8.0,
    },
    AdapterSynth {
        seed: 12,
        rank: 3,
        alpha: 3.0,
    },
    AdapterSynth {
        seed: 13,
        rank: 4,
        alpha: 2.0,
    },
];

/// Separate and fused projections, windows, heads that differ by layer, layers without keys of their own, several states,
/// experts beside a dense part, a shared expert.
const CASES: [&str; 9] = [
    "llama preset=tiny-llama mix=F32",
    "llama preset=small-llama mix=Q4_K_M",
    "qwen2 preset=tiny-qwen2 mix=Q8_0",
    "phi3 preset=tiny-phi3 mix=F32",
    "phi2 preset=tiny-phi2 mix=F16",
    "gemma3n preset=tiny-gemma3n mix=F32 layers=4 shared_kv=2 period=2",
    "gemma4 preset=tiny-gemma4 mix=Q8_0",
    "gemma4 preset=tiny-gemma4-26b mix=F32",
    "granitemoe preset=tiny-granitemoe mix=F32",
];

fn set(given: &[(usize, f32)]) -> AdapterSet {
    AdapterSet::new(given.iter().copied()).unwrap()
}

fn files(case: &Case) -> ModelFiles {
    Gguf::from_bytes(case.spec.to_bytes().unwrap())
        .unwrap()
        .into()
}

fn load(line: &str, threads: usize) -> Model {
    let case = Case::parse(line).unwrap();
    let files = files(&case);
    let adapters: Vec<Adapter> = ADAPTERS
        .iter()
        .map(|adapter| open(&case.spec.adapter_bytes(adapter).unwrap(), &files).unwrap())
        .collect();
    let (isa, pool) = (Isa::detect(), Pool::new(threads));
    let mut model = Model::load(files, isa, pool, &options(None), &mut |_| {}).unwrap();
    model.adapt(&adapters).unwrap();
    model
}

fn bits(rows: &[Vec<f32>]) -> Vec<Vec<u32>> {
    let bits = |row: &Vec<f32>| row.iter().map(|x| x.to_bits()).collect();
    rows.iter().map(bits).collect()
}

/// The model with `W + scale * alpha / rank * B A` as weights.
fn merged(case: &Case, given: &[(usize, f32)]) -> Vec<u8> {
    let base = Gguf::from_bytes(case.spec.to_bytes().unwrap()).unwrap();
    let mut changed: HashMap<String, Vec<f32>> = HashMap::new();
    let numbers = |tensor: &weights::gguf::TensorInfo<'_>| {
        let mut numbers = vec![0.0; tensor.elements()];
        dequantize(tensor.format().unwrap(), tensor.bytes, &mut numbers);
        numbers
    };
    for &(adapter, scale) in given {
        let synth = &ADAPTERS[adapter];
        let gguf = Gguf::from_bytes(case.spec.adapter_bytes(synth).unwrap()).unwrap();
        let (rank, scale) = (synth.rank as usize, scale * synth.alpha / synth.rank as f32);
        for a in gguf.tensors() {
            let Some(target) = a.name.strip_suffix(".lora_a") else {
                continue;
            };
            let b = gguf.tensor(&format!("{target}.lora_b")).unwrap();
            let (down, up, cols) = (numbers(&a), numbers(&b), a.cols());
            let whole = base.tensor(target).unwrap();
            let weights = changed
                .entry(target.to_owned())
                .or_insert_with(|| numbers(&whole));
            for (row, weights) in weights.chunks_mut(cols).enumerate() {
                for (col, weight) in weights.iter_mut().enumerate() {
                    let products = (0..rank).map(|i| up[row * rank + i] * down[i * cols + col]);
                    *weight += scale * products.sum::<f32>();
                }
            }
        }
    }
    let mut writer = GgufWriter::new();
    for (key, value) in base.metadata() {
        writer.value(key, value);
    }
    for tensor in base.tensors() {
        writer.tensor(TensorPlan {
            name: tensor.name.to_owned(),
            dims: tensor.dims.to_vec(),
            kind: tensor.kind,
        });
    }
    let mut bytes = Vec::new();
    let fill = |plan: &TensorPlan, out: &mut dyn std::io::Write| match changed.get(&plan.name) {
        None => out.write_all(base.tensor(&plan.name).unwrap().bytes),
        Some(numbers) => {
            let numbers = numbers.iter().copied().flat_map(f32::to_le_bytes);
            out.write_all(&numbers.collect::<Vec<u8>>())
        }
    };
    writer.write(&mut bytes, fill).unwrap();
    bytes
}

/// Greatest difference, in standard deviations of the expected row.
fn distance(found: &[Vec<f32>], expected: &[Vec<f32>]) -> f32 {
    let of_row = |(found, expected): (&Vec<f32>, &Vec<f32>)| {
        let mean = expected.iter().sum::<f32>() / expected.len() as f32;
        let squares: f32 = expected.iter().map(|x| (x - mean).powi(2)).sum();
        let spread = (squares / expected.len() as f32).sqrt();
        let differences = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
        differences.fold(0.0, f32::max) / spread
    };
    found.iter().zip(expected).map(of_row).fold(0.0, f32::max)
}

#[test]
fn adapters_equal_merged_weights() {
    for line in CASES.iter().filter(|line| line.contains("mix=F32")) {
        let case = Case::parse(line).unwrap();
        let mut model = load(line, 2);
        let prompt = ids(3, 50, model.dims().vocab);
        let plain = adapted_logits(&mut model, &prompt, 0, AdapterSet::NONE);
        for given in [
            &[(0, 1.0)][..],
            &[(1, -0.5)],
            &[(2, 0.75), (0, 0.5), (1, 1.0)],
        ] {
            let mut whole = try_load(merged(&case, given), 2).unwrap();
            let expected = adapted_logits(&mut whole, &prompt, 0, AdapterSet::NONE);
            let found = adapted_logits(&mut model, &prompt, 10, set(given));
            let off = distance(&found, &expected);
            assert!(off < 0.02, "{line}, {given:?}: {off}");
            assert!(distance(&plain, &expected) > 0.2, "{line}: no change");
        }
    }
}

#[test]
fn rows_do_not_depend_on_adapters_of_their_neighbors() {
    let sets = [
        AdapterSet::NONE,
        set(&[(0, 1.0)]),
        set(&[(1, 0.5)]),
        set(&[(2, -1.0)]),
        set(&[(0, 0.25), (1, 1.0), (2, 2.0)]),
        set(&[(0, 1.0)]),
    ];
    for line in CASES {
        let mut model = load(line, 3);
        let vocab = model.dims().vocab;
        let lens = [37, 1, 20, 9, 33, 2];
        let prompts: Vec<_> = (0..6).map(|i| ids(i, lens[i as usize], vocab)).collect();
        let mut mixed = vec![Vec::new(); 6];
        let mut batch = Batch::default();
        // In two parts, so that the second computes on keys of the first.
        for part in 0..2 {
            batch.clear();
            let mut counts = [0; 6];
            for (i, prompt) in prompts.iter().enumerate() {
                let cut = prompt.len() / 2;
                let (first, piece) = match part {
                    0 => (0, &prompt[..cut]),
                    _ => (cut, &prompt[cut..]),
                };
                counts[i] = piece.len();
                let table = pages(10 * i, prompt.len());
                batch.push_adapted(piece, first, &table, Want::All, sets[i]);
            }
            let mut rows = model.forward(&batch).unwrap().chunks(vocab);
            for (rows_of, count) in mixed.iter_mut().zip(counts) {
                rows_of.extend(rows.by_ref().take(count).map(<[f32]>::to_vec));
            }
        }
        let mut plain = try_load(Case::parse(line).unwrap().spec.to_bytes().unwrap(), 1).unwrap();
        let mut alone = load(line, 1);
        for (i, prompt) in prompts.iter().enumerate() {
            let model = if sets[i].is_empty() {
                &mut plain
            } else {
                &mut alone
            };
            let expected = adapted_logits(model, prompt, 0, sets[i]);
            assert!(bits(&mixed[i]) == bits(&expected), "{line}, sequence {i}");
        }
    }
}

/// More rows than are multiplied at a time, and only some with outputs.
#[test]
fn long_batch_equals_short_ones() {
    let mut model = load(CASES[0], 2);
    let (vocab, one) = (model.dims().vocab, set(&[(0, 1.0), (2, 0.5)]));
    let prompt = ids(5, ROWS, vocab);
    let table = pages(0, ROWS);
    let mut batch = Batch::default();
    batch.push_adapted(&prompt, 0, &table, Want::Last, one);
    let whole = model.forward(&batch).unwrap().to_vec();
    let mut last = Vec::new();
    for (i, id) in prompt.iter().enumerate() {
        batch.clear();
        batch.push_adapted(&[*id], i, &table, Want::Last, one);
        last = model.forward(&batch).unwrap().to_vec();
    }
    assert!(whole == last);
}

#[test]
fn batch_with_an_unknown_adapter_is_rejected() {
    let mut model = load(CASES[0], 1);
    assert_eq!(model.capabilities().adapters, ADAPTERS.len());
    let mut batch = Batch::default();
    batch.push_adapted(&[1], 0, &[0], Want::Last, set(&[(3, 1.0)]));
    let error = Err(ForwardError::BadBatch("an adapter is not loaded"));
    assert_eq!(model.forward(&batch).map(|_| ()), error);
}

#[test]
fn more_adapters_than_the_bound_are_refused() {
    let case = Case::parse(CASES[0]).unwrap();
    let bytes = case.spec.adapter_bytes(&ADAPTERS[1]).unwrap();
    let files = files(&case);
    let open = || open(&bytes, &files).unwrap();
    let many: Vec<_> = std::iter::repeat_with(open)
        .take(ADAPTERS_MAX + 1)
        .collect();
    let error = load(CASES[0], 1).adapt(&many).unwrap_err().to_string();
    assert_eq!(error, "the number of adapters is 65, must be 0 to 64");
}

#[test]
fn adapters_are_counted_in_the_models_bytes() {
    let plain = try_load(Case::parse(CASES[0]).unwrap().spec.to_bytes().unwrap(), 1).unwrap();
    let (plain, adapted) = (plain.bytes(), load(CASES[0], 1).bytes());
    let case = Case::parse(CASES[0]).unwrap();
    let files = files(&case);
    let sizes = ADAPTERS.map(|adapter| {
        open(&case.spec.adapter_bytes(&adapter).unwrap(), &files)
            .unwrap()
            .bytes()
    });
    let (more, least) = (adapted.weights - plain.weights, sizes.iter().sum::<usize>());
    // `A` of a small rank is padded to a panel of 16 rows.
    assert!((least..8 * least).contains(&more), "{more} for {least}");
    assert!(adapted.scratch > plain.scratch);
    assert_eq!(adapted.kv, plain.kv);
}
