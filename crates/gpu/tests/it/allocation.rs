//! Law 3 on a device: wgpu allocates for each submit, this crate allocates nothing.
//!
//! Promise (Arithmetic): a warm step on a device allocates on the host as wgpu does for one submit: at most once for each dispatch and
//! 120 times besides, whatever the number of rows.

use crate::support::{ROWS, device, on_device, pages, spec};
use model::{Ahead, Batch, DRAWN, DrawRule, Draws, Forward, Want};
use testing::heap::thread_allocations;

/// Allocations of a step for each dispatch, at most, and besides.
const PER_DISPATCH: u64 = 1;
const PER_STEP: u64 = 120;

#[test]
fn step_allocates_as_often_as_a_submit_of_wgpu() {
    let Some(device) = device() else { return };
    let mut model = on_device(&spec("tiny-llama", "Q8_0"), &device);
    let mut batch = Batch::default();
    let mut step = |rows: usize| {
        let (mut least, mut dispatches) = (u64::MAX, 0);
        for _ in 0..6 {
            batch.clear();
            batch.push(&[5; ROWS][..rows], 0, &pages(0, rows), Want::Last);
            let (before, counts) = (thread_allocations(), device.counts());
            model.forward(&batch).expect("a batch");
            least = least.min(thread_allocations() - before);
            dispatches = device.counts().dispatches - counts.dispatches;
        }
        (least, dispatches)
    };
    let (of_one, dispatches) = step(1);
    assert!(
        of_one <= PER_DISPATCH * dispatches + PER_STEP,
        "{of_one} allocations for {dispatches} dispatches"
    );
    let (of_many, _) = step(15);
    assert_eq!(of_many, of_one, "15 rows, then one");
}

/// Allocations of the two submits of a token that is drawn on the device, besides those for each dispatch.
const PER_TOKEN: u64 = 240;

#[test]
fn token_of_a_batch_that_was_started_ahead_allocates_as_often_as_two_submits() {
    let Some(device) = device() else { return };
    let mut model = on_device(&spec("tiny-llama", "Q8_0"), &device);
    let (mut batch, mut draws) = (Batch::default(), Draws::default());
    let rule = DrawRule {
        temperature: 0.8,
        top_k: 20,
        top_p: 0.9,
        min_p: 0.01,
        repetition_penalty: 1.1,
        frequency_penalty: 0.1,
        presence_penalty: 0.1,
        quantile: 0.4,
        logprob: true,
        alternatives: 3,
    };
    let (mut least, mut dispatches) = (u64::MAX, 0);
    for position in 0..12 {
        let (before, counts) = (thread_allocations(), device.counts());
        batch.clear();
        let token = if position == 0 { 5 } else { DRAWN };
        batch.push(&[token], position, &[0], Want::Last);
        model.start(&batch).expect("a batch");
        if position > 0 {
            model.drawn().expect("a token");
        }
        draws.clear();
        draws.push(0, Some(rule));
        draws.add_count(7, 1);
        draws.set_bias(&[(9, 1.0)]);
        draws.set_forbidden(&[3]);
        model.draw(&draws).expect("draws");
        least = least.min(thread_allocations() - before);
        dispatches = device.counts().dispatches - counts.dispatches;
    }
    assert!(
        least <= PER_DISPATCH * dispatches + PER_TOKEN,
        "{least} allocations for {dispatches} dispatches"
    );
}
