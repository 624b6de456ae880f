//! The kernels on the driver of the machine.

use super::*;
use crate::test_device::device;

#[test]
fn kernels_equal_their_twins() {
    let Some(device) = device() else { return };
    let failed: Vec<_> = self_test(&device)
        .into_iter()
        .filter(|result| result.error.is_some())
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
}
