//! Law 3 on a device: wgpu allocates for each submit, this crate allocates nothing.
//!
//! Promise (Arithmetic): a warm step on a device allocates on the host as wgpu does for one submit: at most once for each dispatch and
//! 120 times besides, whatever the number of rows.

use crate::support::{ROWS, device, on_device, pages, spec};
use model::{Batch, Forward, Want};
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
