//! A server whose model is computed on a device: the first of Vulkan, which may be a processor. Without a driver the tests say so and
//! pass, unless `MILLRACE_GPU_TESTS` is 1.

#[cfg(target_os = "linux")]
mod drivers;
#[cfg(target_os = "linux")]
mod failures;
#[cfg(target_os = "linux")]
pub(crate) mod faulty_driver;
#[cfg(target_os = "linux")]
mod memory;
mod restarts;
mod workflows;

use crate::images;
use crate::support::{Serving, millrace};
use std::io::Write as _;
use std::sync::OnceLock;

/// Whether there is a device. Where there is none, the first test says so.
pub(crate) fn has_device() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    let found = *FOUND.get_or_init(|| {
        let doctor = millrace(&["doctor"]);
        let found = String::from_utf8_lossy(&doctor.stdout).contains("vulkan:0 is ");
        if !found {
            // What is printed by a macro is shown of failed tests only.
            _ = writeln!(
                std::io::stderr(),
                "no Vulkan driver: tests of devices are skipped"
            );
        }
        found
    });
    let must = std::env::var("MILLRACE_GPU_TESTS").is_ok_and(|value| value == "1");
    assert!(found || !must, "no Vulkan driver");
    found
}

/// Promise (Images): a model on a device answers questions about pictures as one on the processor does.
#[test]
fn model_on_a_device_sees_pictures() {
    if !has_device() {
        return;
    }
    let model = images::model();
    let serving = Serving::start(&[
        "serve",
        &model,
        "--bind",
        "127.0.0.1:0",
        "--device",
        "vulkan",
    ]);
    images::check_answers(&serving, 3);
    assert!(serving.terminate().success());
}
