//! Batches that are long, and kernels that are large, for a device.
//!
//! Promise (Arithmetic): a batch that a weak device computes for longer than a driver waits is cut into several submits, and no
//! bit changes; a step of one row stays one submit. A kernel that the largest batch would start with more workgroups than the
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
    states: 1,
    vectors: false,
    exact: false,
};

/// A small model on a device.
fn load(device: Device) -> Result<Model, LoadError> {
    let spec = SynthSpec::preset("tiny-llama").expect("a preset");
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
    let Some(device) = device() else { return };
    let device = Arc::into_inner(device).expect("a device of its own");
    let mut whole = load(device).expect("a model");
    let wanted = ROWS.map(|rows| ask(&mut whole, rows));
    assert!(wanted.iter().all(|(_, submits)| *submits == 1));
    let program = whole.program().clone();
    let works = program
        .steps
        .iter()
        .map(|step| Work::of_operation(&program, &step.operation));
    let of_row: u64 = works.clone().map(|work| work.of(1, 1)).sum();
    let operations = works.filter(|work| work.of(1, 1) > 0).count() as u64;
    let mut cut = load(unload(whole).with_submit_work_max(of_row)).expect("a model");
    for (rows, (wanted, _)) in ROWS.into_iter().zip(&wanted) {
        let (found, submits) = ask(&mut cut, rows);
        assert!(found == *wanted, "{rows} rows in {submits} submits");
        let expected = match rows {
            1 => 1..=1,
            // All operations of a row are one submit, so those of nine are at least five.
            9 => 5..=operations,
            _ => operations / 2..=2 * operations + 1,
        };
        assert!(
            expected.contains(&submits),
            "{rows} rows in {submits} submits"
        );
    }
    // A bound that each operation exceeds alone.
    let mut alone = load(unload(cut).with_submit_work_max(0)).expect("a model");
    let (found, submits) = ask(&mut alone, 9);
    assert!(found == wanted[1].0);
    assert!(
        (operations..=2 * operations + 1).contains(&submits),
        "{submits}"
    );
}

#[test]
fn kernel_with_more_workgroups_than_a_device_starts_is_named() {
    let Some(device) = device() else { return };
    let device = Arc::into_inner(device).expect("a device of its own");
    // Kernels that take rows one by one have 64 workgroups in the largest batch, those of the self-test fewer.
    let error = load(device.with_workgroups_max(63)).map(|_| ());
    let error = error.expect_err("too many rows");
    let said = error.to_string();
    assert!(matches!(error, LoadError::TooLarge(_)), "{said}");
    for part in ["kernel `", "64 workgroups", "at most 63"] {
        assert!(said.contains(part), "{said}");
    }
}
