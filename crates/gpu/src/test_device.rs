//! The device of tests.

use crate::{Absent, Device, Selection};
use std::io::Write as _;
use std::sync::{Arc, Once};

/// Says that a missing driver fails the tests.
const REQUIRED: &str = "MILLRACE_GPU_TESTS";

/// The first Vulkan device, perhaps a processor; `None` where there is no driver and the environment does not ask for one.
///
/// # Panics
/// If there is none and [`REQUIRED`] is set.
pub(crate) fn device() -> Option<Arc<Device>> {
    static SAID: Once = Once::new();
    let selection: Selection = "vulkan".parse().expect("a kind of device");
    match Device::open(&selection) {
        Ok(device) => Some(Arc::new(device)),
        Err(absent @ Absent::None { .. }) if std::env::var_os(REQUIRED).is_none() => {
            SAID.call_once(|| {
                _ = writeln!(std::io::stderr(), "{absent}: skipped");
            });
            None
        }
        Err(absent) => panic!("{absent}"),
    }
}
