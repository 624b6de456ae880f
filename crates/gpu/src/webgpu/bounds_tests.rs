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
    exact: false,
};

/// A small model on the device of the tests, after a change of its bounds; `None` where there is no driver.
fn loaded(change: impl Fn(Device) -> Device) -> Option<Result<Model, LoadError>> {
    let device = Arc::into_inner(device()?).expect("a device of its own");
    let spec = SynthSpec::preset("tiny-llama").expect("a preset");
    let files = Gguf::from_bytes(spec.to_bytes().expect("a model")).expect("a file");
    let (files, device) = (Arc::new(ModelFiles::from(files)), Arc::new(change(device)));
    Some(Model::load(files, device, &OPTIONS, &mut |_| {}))
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
    let Some(whole) = loaded(|device| device) else {
        return;
    };
    let mut whole = whole.expect("a model");
    let work = |model: &Model, rows: u32| -> u64 {
        let steps = model.program().steps.iter();
        steps
            .map(|step| Work::of_operation(model.program(), &step.operation).of(rows, rows))
            .sum()
    };
    let of_row = work(&whole, 1);
    let cut = loaded(|device| device.with_submit_work_max(of_row));
    let mut cut = cut.expect("a driver").expect("a model");
    for rows in [1, 9, 64] {
        let (wanted, submits) = ask(&mut whole, rows);
        assert_eq!(submits, 1, "{rows} rows");
        let (found, submits) = ask(&mut cut, rows);
        assert!(found == wanted, "{rows} rows in {submits} submits");
        let operations = cut.program().steps.len() as u64;
        let least = match rows {
            1 => 1,
            // An operation that alone exceeds the bound is not cut.
            _ => 2,
        };
        assert!((least..=operations).contains(&submits), "{submits}");
        assert!(rows > 1 || submits == 1);
    }
    let (_, most) = ask(&mut cut, 64);
    let products = 7 * 2;
    assert!(most >= products, "{most} submits");
}

#[test]
fn kernel_with_more_workgroups_than_a_device_starts_is_named() {
    // 64 rows of every kernel that takes rows one by one.
    let Some(refused) = loaded(|device| device.with_workgroups_max(63)) else {
        return;
    };
    let error = refused.map(|_| ()).expect_err("too many rows");
    let said = error.to_string();
    assert!(matches!(error, LoadError::TooLarge(_)), "{said}");
    for part in ["kernel `", "64 workgroups", "at most 63"] {
        assert!(said.contains(part), "{said}");
    }
    let fits = loaded(|device| device.with_workgroups_max(64));
    assert!(fits.expect("a driver").is_ok());
}
