//! Logits and greedy ids of every supported architecture and format, compared with the CPU's.
//!
//! Promise (Arithmetic): a model on a device (Vulkan, Metal, DirectX 12): logits of 43 architectures in F32, Q8_0 and one of F16,
//! BF16, Q4_0, Q4_K and Q6_K, of gpt-oss in MXFP4, and of a llama in all 21 formats, have a cosine ≥ 0.9999 with those of the CPU
//! in floats, and the same best tokens, ties aside. Below 16 rows, and in models that are exact in batches of all sizes, cuts of
//! a prompt and batch-mates change no bit. Pages copied and exported, and states, have the bits of the first. A layer of llama has
//! 14 dispatches, one of gpt-oss 17.
//! Also held by `gpu/tests/it/pages.rs`, `gpu/tests/it/states.rs`.

use crate::support::{
    ROWS, best, cosine, device, gguf, ids, load, logits, on_cpu, on_device, options, pages, spec,
};
use gpu::Options;
use kernels::{Format, KvKind};
use model::{Batch, Forward, SpanStates, Want};
use synth::SynthSpec;

/// Least cosine of a row of logits.
const COSINE: f64 = 0.9999;
/// Logits closer than this, in standard deviations, may swap.
pub(crate) const TIE: f32 = 0.02;

/// Formats of which each family has one, in turn.
const OTHERS: [&str; 5] = ["F16", "BF16", "Q4_0", "Q4_K_M", "Q6_K"];

/// Architectures with experts.
const EXPERTS: [&str; 7] = [
    "mixtral",
    "qwen3moe",
    "qwen3vlmoe",
    "granitemoe",
    "olmoe",
    "gpt-oss",
    "gemma4-26b",
];

/// Architectures with recurrent layers.
const RECURRENT: [&str; 9] = [
    "qwen35",
    "qwen35moe",
    "qwen3next",
    "lfm2",
    "mamba2",
    "falcon-h1",
    "granitehybrid",
    "granitehybrid-moe",
    "nemotron_h",
];

/// Architectures with attention to latents.
const LATENT: [&str; 2] = ["deepseek2", "deepseek2-lite"];

const DENSE: [&str; 25] = [
    "llama",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3",
    "phi3",
    "granite",
    "smollm3",
    "mistral3",
    "olmo2",
    "gemma",
    "command-r",
    "cohere2",
    "glm4",
    "exaone4",
    "hunyuan-dense",
    "ernie4_5",
    "phi2",
    "stablelm",
    "qwen2vl",
    "qwen3vl",
    "gemma4-31b",
    "qwen3-embedding",
    "qwen3-reranker",
    "gemma4",
];

/// Compares logits of a prompt and of greedy tokens after it.
fn check(spec: &SynthSpec, options: &Options, label: &str) {
    let Some(device) = device() else { return };
    let ours = load(gguf(spec), &device, options);
    let mut ours = ours.unwrap_or_else(|why| panic!("{label}: {why}"));
    let mut theirs = on_cpu(spec);
    let vocab = ours.dims().vocab;
    let prompt = ids(7, 70, vocab);
    let ours_all = logits(&mut ours, &prompt, 0, &[40, 1, 29]);
    let theirs_all = logits(&mut theirs, &prompt, 0, &[70]);
    for (position, (ours, theirs)) in ours_all.iter().zip(&theirs_all).enumerate() {
        let found = cosine(ours, theirs);
        assert!(found >= COSINE, "{label} {position}: cosine {found}");
        let (a, b) = (best(ours), best(theirs));
        let gap = theirs[b] - theirs[a];
        assert!(
            gap <= TIE * spread(theirs),
            "{label} {position}: {a}, not {b}"
        );
    }
}

/// Standard deviation.
pub(crate) fn spread(row: &[f32]) -> f32 {
    let mean = row.iter().sum::<f32>() / row.len() as f32;
    let squares = row.iter().map(|x| (x - mean).powi(2)).sum::<f32>();
    (squares / row.len() as f32).sqrt()
}

#[test]
fn logits_of_every_architecture_equal_the_processors() {
    let families = DENSE.into_iter().chain(EXPERTS).chain(RECURRENT);
    for (family, other) in families.chain(LATENT).zip(OTHERS.into_iter().cycle()) {
        for mix in ["F32", "Q8_0", other] {
            // Rows of 64 are no whole blocks of 256; nor are those of 384 in some families, which have Q4_0 instead.
            let small = spec(&format!("small-{family}"), mix);
            let (mix, model) = if !mix.contains('K') {
                (mix, spec(&format!("tiny-{family}"), mix))
            } else if small.to_bytes().is_ok() {
                (mix, small)
            } else {
                ("Q4_0", spec(&format!("tiny-{family}"), "Q4_0"))
            };
            let options = Options {
                exact: ["BF16", "Q4_0"].contains(&mix),
                ..options()
            };
            check(&model, &options, &format!("{family} {mix}"));
        }
    }
    check(
        &spec("tiny-gpt-oss", "MXFP4_MOE"),
        &options(),
        "gpt-oss MXFP4",
    );
}

#[test]
fn logits_of_every_format_equal_the_processors() {
    for format in Format::ALL {
        let mix = format!("{format:?}");
        // Tiles of the other formats, which a processor compiles for seconds, are compared with their twins alone.
        let options = Options {
            exact: ![Format::F16, Format::Q8_0, Format::Q4_K].contains(&format),
            ..options()
        };
        check(&spec("small-llama", &mix), &options, &mix);
    }
    check(&spec("small-gemma3", "Q4_K_M"), &options(), "gemma3 Q4_K_M");
}

#[test]
fn cuts_and_neighbors_change_no_bit_below_sixteen_rows() {
    let Some(device) = device() else { return };
    for (preset, mix) in [
        ("tiny-llama", "Q8_0"),
        ("small-gemma2", "Q4_K"),
        ("tiny-gpt-oss", "MXFP4_MOE"),
        ("tiny-qwen35moe", "Q8_0"),
    ] {
        let mut model = on_device(&spec(preset, mix), &device);
        let vocab = model.dims().vocab;
        let prompt = ids(3, 44, vocab);
        let whole = logits(&mut model, &prompt, 0, &[15, 15, 14]);
        let singles = logits(&mut model, &prompt, 4, &[1; 44]);
        assert!(whole == singles, "{preset}: a cut changes bits");
        check_neighbors(&mut model, (&prompt, &whole), [1, 3], preset);
    }
}

/// Compares so many rows of a prompt at a time, next to so many rows of another sequence and two of a third, with those of before.
fn check_neighbors(
    model: &mut gpu::Model,
    (prompt, whole): (&[u32], &[Vec<f32>]),
    [rows, others]: [usize; 2],
    label: &str,
) {
    let others = ids(4, others, model.dims().vocab);
    let (table, mut batch) = (pages(8, prompt.len()), Batch::default());
    let parts = prompt.chunks(rows).zip(whole.chunks(rows));
    for (turn, (part, wanted)) in parts.enumerate() {
        batch.clear();
        batch.push(&others, 0, &pages(20, others.len()), Want::None);
        batch.set_states(Some(SpanStates::new(None, 2)));
        batch.push(part, turn * rows, &table, Want::All);
        batch.set_states(Some(SpanStates::alternating(0, turn, turn * rows)));
        batch.push(&others[..2], 0, &pages(24, 2), Want::All);
        batch.set_states(Some(SpanStates::new(None, 3)));
        let found = model.forward(&batch).expect("a batch");
        let wanted = wanted.concat();
        assert!(found[..wanted.len()] == wanted, "{label}, part {turn}");
    }
}

#[test]
fn exact_models_have_the_same_bits_in_batches_of_all_sizes() {
    let Some(device) = device() else { return };
    for (preset, mix, kv) in [
        ("tiny-llama", "Q8_0", KvKind::F16),
        ("tiny-gpt-oss", "MXFP4_MOE", KvKind::F16),
        ("tiny-qwen35moe", "Q8_0", KvKind::F16),
        ("tiny-deepseek2", "F32", KvKind::F16),
        ("tiny-gemma3", "F32", KvKind::Q8_0),
    ] {
        let options = Options {
            exact: true,
            kv,
            ..options()
        };
        let model = load(gguf(&spec(preset, mix)), &device, &options);
        let mut model = model.unwrap_or_else(|why| panic!("{preset}: {why}"));
        let prompt = ids(3, 44, model.dims().vocab);
        let whole = logits(&mut model, &prompt, 0, &[44]);
        let singles = logits(&mut model, &prompt, 4, &[1; 44]);
        assert!(whole == singles, "{preset}: 44 rows differ from one");
        check_neighbors(&mut model, (&prompt, &whole), [11, 24], preset);
    }
}

#[test]
fn hidden_states_equal_the_processors() {
    let Some(device) = device() else { return };
    for preset in ["tiny-qwen3-embedding", "tiny-qwen3-reranker", "tiny-olmo2"] {
        let spec = spec(preset, "F32");
        let (mut ours, mut theirs) = (on_device(&spec, &device), on_cpu(&spec));
        let vocab = ours.dims().vocab;
        let mut batch = Batch::default();
        let prompt = ids(9, 20, vocab);
        batch.push(&prompt, 0, &pages(0, 20), Want::AllHidden);
        batch.push(&prompt[..5], 0, &pages(4, 5), Want::Last);
        batch.push(&prompt[..7], 0, &pages(6, 7), Want::LastHidden);
        batch.push(&prompt[..7], 0, &pages(8, 7), Want::FirstHidden);
        let ours_logits = ours.forward(&batch).expect("a batch").to_vec();
        let theirs_logits = theirs.forward(&batch).expect("a batch").to_vec();
        assert!(cosine(&ours_logits, &theirs_logits) > COSINE, "{preset}");
        assert_eq!(ours.hidden().len(), theirs.hidden().len(), "{preset}");
        assert_eq!(
            ours.capabilities().hidden_dim,
            theirs.capabilities().hidden_dim
        );
        for (ours, theirs) in ours.hidden().iter().zip(theirs.hidden()) {
            assert!(
                (ours - theirs).abs() < 2e-3 * theirs.abs().max(1.0),
                "{preset}"
            );
        }
    }
}

#[test]
fn a_step_is_one_submit_one_wait_and_one_map() {
    let Some(device) = device() else { return };
    let spec = spec("tiny-llama", "Q8_0");
    let mut model = on_device(&spec, &device);
    let mut step = |rows: usize, want| {
        let mut batch = Batch::default();
        batch.push(&vec![5; rows], 0, &pages(0, rows), want);
        let before = device.counts();
        model.forward(&batch).expect("a batch");
        let after = device.counts();
        let calls = [
            after.submits - before.submits,
            after.waits - before.waits,
            after.maps - before.maps,
            after.buffers - before.buffers,
        ];
        (calls, after.dispatches - before.dispatches)
    };
    for (rows, want) in [
        (1, Want::Last),
        (1, Want::Last),
        (ROWS, Want::Last),
        (3, Want::All),
    ] {
        assert_eq!(step(rows, want).0, [1, 1, 1, 0], "{rows} rows");
    }
    let (calls, without_outputs) = step(20, Want::None);
    assert_eq!(calls, [1, 1, 0, 0], "nothing is read");
    let (_, one) = step(1, Want::Last);
    assert!(without_outputs < one, "rows without outputs end early");
}

#[test]
fn layers_have_so_many_dispatches() {
    let Some(device) = device() else { return };
    // Of a layer of attention, or of three with a recurrent part and one of attention; and of what is before and after them.
    for (preset, period, of_period, of_rest) in [
        ("tiny-llama", 1, 14, 7),
        ("tiny-gpt-oss", 1, 17, 7),
        ("tiny-qwen35", 4, 3 * 19 + 16, 7),
    ] {
        for periods in [1, 2] {
            let mut spec = spec(preset, "Q8_0");
            spec.layers = period * periods;
            let mut model = on_device(&spec, &device);
            let mut batch = Batch::default();
            batch.push(&[5], 0, &pages(0, 1), Want::Last);
            batch.set_states(Some(SpanStates::new(None, 0)));
            let before = device.counts().dispatches;
            model.forward(&batch).expect("a batch");
            let found = device.counts().dispatches - before;
            let wanted = u64::from(periods) * of_period + of_rest;
            assert_eq!(found, wanted, "{preset}, {} layers", spec.layers);
        }
    }
}
