//! Law 7: neither other sequences in the batch nor the division of the prompt change a bit of a row.

use crate::support::case::Case;
use crate::support::{PAGE, ROWS, STATES, ids, load, logits, options, pages, try_load_with};
use cpu::{LoadOptions, Model};
use kernels::{Isa, Pool};
use model::{Batch, Forward, SpanStates, Want};
use proptest::prelude::*;
use weights::gguf::Gguf;

/// Windows, q/k norms, fused and biased projections, layer norms, blocks side by side, factors, with and without
/// quantization.
const CASES: [&str; 44] = [
    "llama preset=small-llama mix=Q4_K_M",
    "llama preset=tiny-llama mix=F32",
    "qwen2 preset=small-qwen2 mix=Q8_0",
    "qwen3 preset=tiny-qwen3 mix=BF16",
    "gemma2 preset=tiny-gemma2 mix=Q4_0",
    "gemma3 preset=small-gemma3 mix=Q6_K",
    "gemma3 preset=tiny-gemma3 mix=F16",
    "phi3 preset=tiny-phi3 mix=Q5_1",
    "llama preset=small-llama mix=IQ4_XS",
    "qwen3 preset=small-qwen3 mix=IQ3_S",
    "llama preset=small-llama mix=IQ2_XS",
    "granite preset=tiny-granite mix=Q8_0",
    "olmo2 preset=tiny-olmo2 mix=F32",
    "cohere2 preset=tiny-cohere2 mix=Q4_0",
    "phi2 preset=tiny-phi2 mix=F16",
    "mistral3 preset=tiny-mistral3 mix=Q8_0",
    "llama preset=small-llama mix=Q8_0 kv=q8_0",
    "gemma2 preset=tiny-gemma2 mix=F32 kv=q8_0",
    "llama preset=small-llama mix=Q4_K_M kv=q4_0",
    "gemma3 preset=tiny-gemma3 mix=F32 kv=q4_0",
    "qwen3 preset=tiny-qwen3 mix=Q4_K_M kv=q8_0",
    "qwen3moe preset=small-qwen3moe mix=Q4_K_M",
    "granitemoe preset=tiny-granitemoe mix=Q8_0",
    "olmoe preset=tiny-olmoe mix=F32 kv=q8_0",
    "deepseek2 preset=tiny-deepseek2 mix=F32",
    "deepseek2 preset=small-deepseek2 mix=Q4_K_M kv=q8_0",
    "deepseek2 preset=tiny-deepseek2-lite mix=Q8_0",
    "gpt-oss preset=tiny-gpt-oss mix=MXFP4_MOE",
    "gpt-oss preset=tiny-gpt-oss mix=BF16 kv=q8_0",
    "llama preset=tiny-llama mix=MXFP4",
    "gemma4 preset=tiny-gemma4 mix=Q8_0",
    "gemma4 preset=tiny-gemma4-31b mix=F32 kv=q8_0",
    "gemma4 preset=tiny-gemma4-26b mix=Q4_0",
    "gemma3n preset=tiny-gemma3n mix=Q8_0 layers=4 shared_kv=2 period=2",
    "qwen35 preset=tiny-qwen35 mix=F32",
    "lfm2 preset=tiny-lfm2 mix=Q8_0",
    "granitehybrid preset=tiny-granitehybrid mix=F32",
    "mamba2 preset=tiny-mamba2 mix=F32",
    "falcon-h1 preset=tiny-falcon-h1 mix=Q8_0 kv=q8_0",
    "nemotron_h preset=tiny-nemotron_h mix=F32",
    "nemotron_h preset=small-nemotron_h mix=Q4_K_M layers=4",
    "qwen35moe preset=tiny-qwen35moe mix=Q8_0",
    "qwen3next preset=tiny-qwen3next mix=BF16 kv=q8_0",
    "qwen35 preset=small-qwen35 mix=Q4_K_M layers=3 period_recurrent=2",
];

/// A sequence that is computed in pieces.
struct Sequence {
    ids: Vec<u32>,
    table: Vec<u32>,
    done: usize,
    /// Passes so far.
    passes: usize,
    logits: Vec<Vec<f32>>,
}

impl Sequence {
    fn new(seed: u64, len: usize, first_page: usize, vocab: usize) -> Self {
        let table = pages(first_page, len);
        Self {
            ids: ids(seed, len, vocab),
            table,
            done: 0,
            passes: 0,
            logits: Vec::new(),
        }
    }
}

fn bits(rows: &[Vec<f32>]) -> Vec<Vec<u32>> {
    rows.iter()
        .map(|row| row.iter().map(|x| x.to_bits()).collect())
        .collect()
}

/// Computes all sequences in batches; `cut` returns the number of rows of each sequence in a batch.
fn run(model: &mut Model, sequences: &mut [Sequence], mut cut: impl FnMut(usize) -> usize) {
    let vocab = model.dims().vocab;
    let mut batch = Batch::default();
    while sequences.iter().any(|s| s.done < s.ids.len()) {
        batch.clear();
        let mut room = ROWS;
        let mut taken = vec![0; sequences.len()];
        for (i, s) in sequences.iter().enumerate() {
            taken[i] = cut(i).min(room).min(s.ids.len() - s.done);
            let piece = &s.ids[s.done..s.done + taken[i]];
            if !piece.is_empty() {
                batch.push(piece, s.done, &s.table, Want::All);
                batch.set_states(Some(SpanStates::alternating(i, s.passes, s.done)));
            }
            room -= taken[i];
        }
        let mut rows = match model.forward(&batch) {
            Ok(logits) => logits.chunks(vocab),
            Err(error) => panic!("{error}"),
        };
        for (s, taken) in sequences.iter_mut().zip(taken) {
            s.logits
                .extend(rows.by_ref().take(taken).map(<[f32]>::to_vec));
            s.done += taken;
            s.passes += usize::from(taken > 0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn results_are_batch_invariant(
        case in prop::sample::select(&CASES[..]),
        lens in prop::collection::vec(1..100_usize, 1..5),
        cuts in prop::collection::vec(1..40_usize, 1..32),
        threads in 1..4_usize,
        seed: u64,
    ) {
        let mut model = load(case, threads);
        let vocab = model.dims().vocab;
        let mut cuts = cuts.into_iter().cycle();
        let mut first_page = 0;
        let mut sequences: Vec<_> = lens
            .iter()
            .enumerate()
            .map(|(i, &len)| {
                let sequence = Sequence::new(seed ^ i as u64, len, first_page, vocab);
                first_page += sequence.table.len();
                sequence
            })
            .collect();
        run(&mut model, &mut sequences, |_| cuts.next().unwrap());
        let mut alone = load(case, 1);
        for s in &sequences {
            let whole = logits(&mut alone, &s.ids, 0);
            prop_assert!(bits(&whole) == bits(&s.logits), "{case}, length {}", s.ids.len());
        }
    }
}

/// Logits of the text after a block, which is computed with so many units at once, in turn. Also the number of calls.
fn logits_after_block(case: &str, rows_max: usize, units: &[usize]) -> (Vec<Vec<u32>>, usize) {
    let case = Case::parse(case).unwrap();
    let options = LoadOptions {
        kv: case.kv,
        rows_max,
        ..options(None)
    };
    let options = LoadOptions {
        logit_rows_max: options.logit_rows_max.min(rows_max),
        ..options
    };
    let mut model = try_load_with(case.spec.to_bytes().unwrap(), 2, &options).unwrap();
    let (dim, vocab) = (model.config().dim, model.dims().vocab);
    let (before, rows, after) = (20, 150, 9);
    let (prompt, table) = (
        ids(1, before + rows + after, vocab),
        pages(3, before + rows + after),
    );
    let mut batch = Batch::default();
    for position in 0..before {
        batch.clear();
        batch.push(&prompt[position..=position], position, &table, Want::None);
        model.forward(&batch).unwrap();
    }
    batch.clear();
    batch.push(&prompt[before..before + rows], before, &table, Want::None);
    let vectors = ids(2, rows * dim, 1000);
    let vectors: Vec<f32> = vectors.iter().map(|&x| x as f32 / 500.0 - 1.0).collect();
    batch.set_vectors(0..rows, &vectors);
    let blocks = model.blocks().unwrap();
    let mut left = blocks.begin_block(&batch).unwrap();
    let (mut units, mut calls) = (units.iter().cycle(), 0);
    while left > 0 {
        let units_max = *units.next().unwrap();
        let cost = blocks.next_cost(units_max);
        assert!(blocks.next_cost(1) <= cost, "more rows cost no less");
        let now = blocks.advance_block(units_max).unwrap();
        assert!((1..=units_max).contains(&(left - now)), "{left} to {now}");
        (left, calls) = (now, calls + 1);
    }
    let mut rows_after = Vec::new();
    for position in before + rows - 1..prompt.len() {
        batch.clear();
        batch.push(&prompt[position..=position], position, &table, Want::All);
        if position < before + rows {
            batch.set_vectors(0..1, &vectors[(rows - 1) * dim..]);
        }
        rows_after.push(model.forward(&batch).unwrap().to_vec());
    }
    (bits(&rows_after), calls)
}

#[test]
fn units_of_a_block_that_are_computed_together_have_equal_bits() {
    for case in [
        "gemma3 preset=tiny-gemma3 mix=F16",
        "gemma3 preset=small-gemma3 mix=Q6_K",
        "gemma3 preset=tiny-gemma3 mix=F32 kv=q4_0",
        "gemma4 preset=tiny-gemma4-26b mix=Q4_0",
        "gemma4 preset=tiny-gemma4-31b mix=F32 kv=q8_0",
    ] {
        let (wanted, calls) = logits_after_block(case, ROWS, &[1]);
        for (rows_max, units) in [
            (ROWS, &[2][..]),
            (256, &[8]),
            (256, &[1, 8, 2]),
            (48, &[8]),
            (7, &[3]),
        ] {
            let (found, calls_together) = logits_after_block(case, rows_max, units);
            assert!(found == wanted, "{case}, {rows_max} rows, {units:?}");
            let is_fewer = calls_together < calls;
            assert_eq!(
                is_fewer,
                rows_max >= ROWS,
                "{case}, {rows_max} rows, {units:?}"
            );
        }
    }
}

#[test]
fn decode_equals_prefill_for_every_family() {
    for case in CASES {
        let mut model = load(case, 2);
        let mut sequences = [Sequence::new(5, 60, 10, model.dims().vocab)];
        run(&mut model, &mut sequences, |_| 1);
        let whole = logits(&mut model, &sequences[0].ids, 0);
        assert!(bits(&whole) == bits(&sequences[0].logits), "{case}");
    }
}

#[test]
fn logits_are_independent_of_requested_rows() {
    for case in CASES {
        let mut model = load(case, 2);
        let vocab = model.dims().vocab;
        let prompts = [ids(1, 40, vocab), ids(2, 33, vocab), ids(3, 1, vocab)];
        let tables = [pages(0, 40), pages(3, 33), pages(6, 1)];
        let whole: Vec<_> = prompts
            .iter()
            .map(|ids| logits(&mut model, ids, 0))
            .collect();
        let mut batch = Batch::default();
        for (i, want) in [Want::Last, Want::None, Want::All].into_iter().enumerate() {
            batch.push(&prompts[i], 0, &tables[i], want);
            batch.set_states(Some(SpanStates::alternating(i, 0, 0)));
        }
        let found = model.forward(&batch).unwrap();
        let wanted = [whole[0].last().unwrap().clone(), whole[2][0].clone()].concat();
        assert!(found == wanted.as_slice(), "{case}");
        // A span without outputs still has its keys and values stored.
        let next = ids(9, 1, vocab);
        batch.clear();
        batch.push(&next, 33, &tables[1], Want::Last);
        batch.set_states(Some(SpanStates::alternating(1, 1, 33)));
        let found = model.forward(&batch).unwrap().to_vec();
        let longer = [prompts[1].as_slice(), &next].concat();
        assert!(found == logits(&mut model, &longer, 60)[33], "{case}");
    }
}

#[test]
fn shared_prefix_pages_give_equal_logits() {
    for case in CASES {
        let mut model = load(case, 2);
        let vocab = model.dims().vocab;
        let prefix = ids(1, 2 * PAGE, vocab);
        let [kept, other] = [STATES - 2, STATES - 1].map(|state| state as u32);
        let mut batch = Batch::default();
        batch.push(&prefix, 0, &[0, 1], Want::None);
        batch.set_states(Some(SpanStates::new(None, kept)));
        assert!(model.forward(&batch).unwrap().is_empty());
        for (i, page) in [(7, 20), (8, 30)] {
            let tail = ids(i, 20, vocab);
            let table = [&[0, 1], pages(page, tail.len()).as_slice()].concat();
            batch.clear();
            batch.push(&tail, prefix.len(), &table, Want::All);
            // The state after the prefix is read twice, and stays as it is.
            batch.set_states(Some(SpanStates::new(Some(kept), other)));
            let shared = model.forward(&batch).unwrap().to_vec();
            let own = logits(&mut model, &[prefix.as_slice(), &tail].concat(), 60);
            assert!(own[prefix.len()..].concat() == shared, "{case}");
        }
    }
}

#[test]
fn copied_page_equals_original() {
    for case in CASES {
        let mut model = load(case, 2);
        let vocab = model.dims().vocab;
        let prompt = ids(1, PAGE + 5, vocab);
        logits(&mut model, &prompt, 0); // pages 0 and 1
        model.copy_page(1, 40);
        let step = |model: &mut Model, id: u32, table: &[u32]| {
            let mut batch = Batch::default();
            batch.push(&[id], prompt.len(), table, Want::Last);
            batch.set_states(Some(SpanStates::new(Some(0), 1)));
            model.forward(&batch).unwrap().to_vec()
        };
        let first = step(&mut model, 3, &[0, 1]);
        step(&mut model, 200, &[0, 1]); // writes over page 1 only
        let copied = step(&mut model, 3, &[0, 40]);
        assert!(first == copied, "{case}");
    }
}

/// A stream that is continued on another machine has the tokens of the first one.
#[test]
fn vector_levels_give_equal_bits() {
    let is_vector = |isa: &Isa| isa.is_batch_invariant() && isa.name() != "scalar";
    for line in CASES {
        let case = Case::parse(line).unwrap();
        let bytes = case.spec.to_bytes().unwrap();
        let run = |isa| {
            let gguf = Gguf::from_bytes(bytes.clone()).unwrap();
            let options = LoadOptions {
                kv: case.kv,
                ..options(None)
            };
            let mut model = Model::load(gguf, isa, Pool::new(2), &options, &mut |_| {}).unwrap();
            let prompt = ids(4, 70, model.dims().vocab);
            bits(&logits(&mut model, &prompt, 0))
        };
        let mut all = Isa::available()
            .filter(is_vector)
            .map(|isa| (isa, run(isa)));
        let Some((first, wanted)) = all.next() else {
            return;
        };
        for (isa, found) in all {
            assert!(found == wanted, "{line}: {isa} and {first} differ");
        }
    }
}
