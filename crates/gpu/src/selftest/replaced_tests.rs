//! Kernels for few rows in place of tiles that failed their check.

use super::cases::{attend_tiles, exact, matmul};
use super::*;
use crate::test_device::device;
use kernels::{Format, KvKind};

/// Bits of the buffers that a case leaves behind.
fn bits(device: &Arc<Device>, case: &Case) -> Vec<u32> {
    let found = on_device(device, case).expect("a device that works");
    let values = found.buffers.into_iter().flatten();
    values.map(f32::to_bits).collect()
}

#[test]
fn kernels_for_few_rows_compute_all_batches_where_tiles_are_wrong() {
    let Some(device) = device() else { return };
    let without = Arc::new(device.reopen().expect("the device of before"));
    without.distrust_tiles();
    let mut cases = Check::ExpertTiles(Format::Q8_0).cases();
    cases.push(matmul(Format::Q8_0, 70));
    cases.push(attend_tiles((64, 2, 4, 32, KvKind::F16)));
    for case in cases {
        assert_eq!(compare(&without, &case), Ok(()), "{}", case.name);
        let found = bits(&without, &case);
        assert!(found != bits(&device, &case), "{}: by tiles", case.name);
        assert!(
            found == bits(&device, &exact(case.clone())),
            "{}",
            case.name
        );
    }
}

#[test]
fn tiles_that_are_wrong_are_not_checked_again() {
    let Some(device) = device() else { return };
    let without = Arc::new(device.reopen().expect("the device of before"));
    without.distrust_tiles();
    let program = matmul(Format::Q8_0, 1).program;
    assert_eq!(check_program(&without, &program), Ok(()));
    assert!(!without.has_passed(Check::MatmulTiles(Format::Q8_0)));
    assert!(without.has_passed(Check::Matmul(Format::Q8_0)));
}
