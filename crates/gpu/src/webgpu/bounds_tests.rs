//! Batches that are long, and kernels that are large, for a device.
//!
//! Promise (Arithmetic): a batch that a weak device computes for longer than a driver waits is cut into several submits, within
//! operations that are long alone, and no bit changes; a step of one row stays one submit. A kernel that the largest batch would start with more workgroups than the
//! device allows is named when the model is loaded.

use super::device::Device;
use super::work::Work;
use crate::test_device::device;
use crate::{LoadError, Model, Options};
use model::{Batch, Forward, Want};
use std::sync::Arc;
use synth::SynthSpec;
use weights::ModelFiles;
use weights::gguf::Gguf;

const OPTIONS: Options = Options {
    context_max: None,
    page_tokens: 16,
    pages: 8,
    rows_max: 64,
    logit_rows_max: 64,
    draws_max: 64,
    spans_max: 2,
    kv: kernels::KvKind::F16,
    states: 1,
    block_rows: 0,
    mtp: false,
    vectors: false,
    exact: false,
};

/// A small model on a device.
fn load(device: Device, preset: &str) -> Result<Model, LoadError> {
    let spec = SynthSpec::preset(preset).expect("a preset");
    let files = Gguf::from_bytes(spec.to_bytes().expect("a model")).expect("a file");
    let files = Arc::new(ModelFiles::from(files));
    Model::load(files, Arc::new(device), &OPTIONS, &mut |_| {})
}

/// The device of a model, with its compiled kernels.
fn unload(model: Model) -> Device {
    let device = model.device();
    drop(model);
    Arc::into_inner(device).expect("a device that nothing else has")
}

/// Logits of all rows of a prompt, and the submits that it took.
fn ask(model: &mut Model, rows: usize) -> (Vec<f32>, u64) {
    let mut batch = Batch::default();
    let pages: Vec<u32> = (0..rows.div_ceil(OPTIONS.page_tokens) as u32).collect();
    batch.push(&vec![5; rows], 0, &pages, Want::All);
    let before = model.device().counts().submits;
    let logits = model.forward(&batch).expect("a batch").to_vec();
    (logits, model.device().counts().submits - before)
}

#[test]
fn long_batch_is_several_submits_with_the_same_bits() {
    const ROWS: [usize; 3] = [1, 9, 64];
    for preset in ["tiny-llama", "tiny-qwen3moe"] {
        let Some(device) = device() else { return };
        let device = Arc::into_inner(device).expect("a device of its own");
        let mut whole = load(device, preset).expect("a model");
        let wanted = ROWS.map(|rows| ask(&mut whole, rows));
        assert!(wanted.iter().all(|(_, submits)| *submits == 1));
        let program = whole.program().clone();
        let works = |rows: u32| {
            let steps = program.steps.iter();
            let works = steps.map(|step| Work::of_operation(&program, &step.operation));
            let works = works.map(|work| work.of(rows, rows));
            works.filter(|work| *work > 0).collect::<Vec<u64>>()
        };
        let (of_row, operations) = (works(1).iter().sum(), works(1).len() as u64);
        let mut cut = load(unload(whole).with_submit_work_max(of_row), preset).expect("a model");
        for (rows, (wanted, _)) in ROWS.into_iter().zip(&wanted) {
            let (found, submits) = ask(&mut cut, rows);
            assert!(found == *wanted, "{rows} rows in {submits} submits");
            let parts = works(rows as u32)
                .into_iter()
                .map(|work| work.div_ceil(of_row) + 1);
            let least = works(rows as u32).iter().sum::<u64>() / of_row / 2;
            let most = if rows == 1 { 1 } else { 2 * parts.sum::<u64>() };
            assert!(
                (least.max(1)..=most).contains(&submits),
                "{rows} rows in {submits} submits"
            );
        }
        // A bound that each workgroup exceeds alone.
        let mut alone = load(unload(cut).with_submit_work_max(0), preset).expect("a model");
        let (found, submits) = ask(&mut alone, 9);
        assert!(found == wanted[1].0);
        assert!(submits > operations, "{submits}");
    }
}

#[test]
fn kernel_with_more_workgroups_than_a_device_starts_is_named() {
    let Some(device) = device() else { return };
    let device = Arc::into_inner(device).expect("a device of its own");
    // Kernels that take rows one by one have 64 workgroups in the largest batch, those of the self-test fewer.
    let error = load(device.with_workgroups_max(63), "tiny-llama").map(|_| ());
    let error = error.expect_err("too many rows");
    let said = error.to_string();
    assert!(matches!(error, LoadError::TooLarge(_)), "{said}");
    for part in ["kernel `", "64 workgroups", "at most 63"] {
        assert!(said.contains(part), "{said}");
    }
}
