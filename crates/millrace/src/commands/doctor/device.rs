//! Findings about GPUs, and the report on one.

use super::Finding;
use crate::config::{DeviceChoice, Settings};
use crate::failure::Failure;

const SUBJECT: &str = "device";

/// The devices that a model could be computed on.
#[cfg(feature = "gpu")]
pub(super) fn findings(settings: &Settings) -> Vec<Finding> {
    use crate::loading::with_drivers;
    use std::collections::BTreeMap;

    let devices = match with_drivers(gpu::devices) {
        Ok(devices) => devices,
        Err(why) => {
            let finding = Finding::good(SUBJECT, "no GPU was found");
            return vec![match settings.model.device {
                DeviceChoice::Gpu { .. } => finding.wrong(why),
                DeviceChoice::Auto | DeviceChoice::Cpu => finding.better(why),
            }];
        }
    };
    let mut counts = BTreeMap::new();
    let mut found = Vec::new();
    for facts in devices {
        let number: &mut usize = counts.entry(facts.interface).or_default();
        let shown = format!(
            "{}:{number} is {} ({}), {}",
            facts.interface, facts.name, facts.driver, facts.class
        );
        *number += 1;
        let finding = Finding::good(SUBJECT, shown);
        found.push(match facts.missing {
            None => finding,
            Some(what) => finding.better(format!("cannot compute models: {what}")),
        });
    }
    if let choice @ DeviceChoice::Gpu { .. } = settings.model.device
        && let Err(why) = gpu::Device::open(&crate::loading::device_selection(choice))
    {
        found.push(Finding::good(SUBJECT, format!("model.device is {choice}")).wrong(why));
    }
    if found.is_empty() {
        found.push(Finding::good(
            SUBJECT,
            "no GPU was found: the processor computes models",
        ));
    }
    found
}

/// A program without support of GPUs examines none.
#[cfg(not(feature = "gpu"))]
pub(super) fn findings(settings: &Settings) -> Vec<Finding> {
    match settings.model.device {
        DeviceChoice::Auto | DeviceChoice::Cpu => Vec::new(),
        choice @ DeviceChoice::Gpu { .. } => vec![
            Finding::good(SUBJECT, format!("model.device is {choice}"))
                .wrong("this program was built without support of GPUs (docs/devices.md)"),
        ],
    }
}

/// Prints what is known of the device of the settings, and how its kernels compare with their definitions.
///
/// # Errors
/// There is no such device, or a kernel computes something else.
#[cfg(feature = "gpu")]
pub(super) fn report(settings: &Settings) -> Result<(), Failure> {
    let written = crate::loading::with_drivers(|| write_report(settings));
    written.map_err(Failure::user)?
}

#[cfg(feature = "gpu")]
fn write_report(settings: &Settings) -> Result<(), Failure> {
    use crate::clock::now;
    use std::io::Write;
    use std::sync::Arc;

    let selection = match settings.model.device {
        DeviceChoice::Auto | DeviceChoice::Cpu => DeviceChoice::Gpu {
            interface: crate::config::Interface::Any,
            index: None,
        },
        named @ DeviceChoice::Gpu { .. } => named,
    };
    let device = gpu::Device::open(&crate::loading::device_selection(selection));
    let device = Arc::new(device.map_err(Failure::user)?);
    let facts = device.facts();
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "millrace {}, kernels {}",
        env!("CARGO_PKG_VERSION"),
        gpu::ARITHMETIC
    )?;
    writeln!(
        out,
        "{} ({}), {}, {}",
        facts.name, facts.driver, facts.class, facts.interface
    )?;
    writeln!(
        out,
        "subgroups of {} to {} threads, f16 {}, {} KiB of workgroup memory, bindings of {} MiB, buffers of {} MiB",
        facts.subgroup[0],
        facts.subgroup[1],
        if facts.has_f16 { "yes" } else { "no" },
        facts.workgroup_bytes_max >> 10,
        facts.binding_bytes_max >> 20,
        facts.buffer_bytes_max >> 20
    )?;
    write_speeds(&device, &mut out)?;
    let begun = now();
    let results = gpu::selftest::self_test(&device);
    let seconds = (now() - begun).as_secs_f64();
    let failed = results.iter().filter(|result| result.error.is_some());
    let failed = failed.count();
    for result in &results {
        let outcome = result.error.as_deref().unwrap_or("ok");
        writeln!(out, "{}: {outcome}", result.name)?;
    }
    writeln!(
        out,
        "{} checks of kernels in {seconds:.1} s, {failed} failed",
        results.len()
    )?;
    match failed {
        0 => Ok(()),
        _ => Err(Failure::user(format!(
            "{failed} of {} checks of kernels failed",
            results.len()
        ))),
    }
}

/// Writes how fast a device reads its memory, and times of kernels.
#[cfg(feature = "gpu")]
fn write_speeds(
    device: &std::sync::Arc<gpu::Device>,
    out: &mut impl std::io::Write,
) -> Result<(), Failure> {
    use crate::clock::now;

    let begun = now();
    let read = device.read_bandwidth(|| now() - begun);
    writeln!(out, "reads {:.1} GB/s", read.map_err(Failure::user)? / 1e9)?;
    let clock = if device.facts().has_timestamps {
        "the device's"
    } else {
        "the host's, around submits: the device has none for kernels"
    };
    writeln!(out, "times of kernels; the clock is {clock}")?;
    let times = gpu::kernel_times(device, || now() - begun);
    for time in times.map_err(Failure::user)? {
        let seconds = time.seconds.max(1e-9);
        writeln!(
            out,
            "{}: {:.1} us, {:.1} GB/s, {:.2} TFLOP/s",
            time.name,
            seconds * 1e6,
            time.bytes as f64 / seconds / 1e9,
            2.0 * time.products as f64 / seconds / 1e12
        )?;
    }
    Ok(())
}

/// A program without support of GPUs reports on none.
#[cfg(not(feature = "gpu"))]
pub(super) fn report(_: &Settings) -> Result<(), Failure> {
    Err(Failure::user(
        "--report: this program was built without support of GPUs; docs/devices.md says which package has it",
    ))
}
