//! Drivers that are missing, old or broken, and devices that fail, as the whole program meets them.
//!
//! Promise (Arithmetic): without a driver, with a library that is a stub, an old driver, one that lacks a feature, has small buffers,
//! refuses, loses the device or computes something else, a model on a named device is refused at start with the reason, and with
//! `auto` the processor computes it and a line of the log has the reason. No driver ends the process. A model that the driver has no
//! memory for is refused with the name of the device, the bytes that were asked for and those that it has.
//! Also held by `gpu/tests/it/faults.rs`.

use super::faulty_driver::FaultyDriver;
use super::has_device;
use crate::support::{Folder, command, millrace, stdout, synth};
use std::process::Output;

/// Tokens of an answer.
const TOKENS: &str = "4";

/// A model whose KV cache may be large.
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/mini/millrace-mini.gguf");

/// The KV cache of a model that is refused.
const KV_MIB: u64 = 512;

/// Runs the model on a device with these variables.
fn run(model: &str, device: &str, variables: &[(&str, String)]) -> Output {
    let args = [
        "run",
        "-m",
        model,
        "--device",
        device,
        "--temperature",
        "0",
        "-n",
        TOKENS,
        "Hello",
    ];
    let mut command = command(&args);
    command.env("MILLRACE_LOG_FILTER", "info");
    let variables = variables.iter().map(|(name, value)| (name, value));
    command.envs(variables).output().unwrap()
}

#[test]
fn drivers_that_do_not_work_are_named_and_the_processor_computes() {
    if !has_device() {
        return;
    }
    let folder = Folder::new("drivers");
    let model = synth(&folder);
    let wanted = stdout(&run(&model, "cpu", &[]));
    let no_driver = vec![("VK_DRIVER_FILES", "/nonexistent.json".to_owned())];
    let stub = FaultyDriver::stub("drivers-stub");
    const NONE: [&str; 1] = ["no device vulkan: no driver reports one"];
    for (name, variables) in [
        ("no driver", no_driver),
        ("stub", stub.variables().to_vec()),
    ] {
        check_fault(&model, (name, &variables, &NONE), &wanted);
    }
    for (fault, said) in [
        ("instance", NONE),
        ("old", NONE),
        ("few", ["64 bytes of immediates, 128 are needed"]),
        ("refuses", ["the driver of"]),
        ("small", ["does not fit"]),
        ("lost", ["is lost"]),
        ("wrong", ["fails its check on this device"]),
    ] {
        check_driver(&model, (fault, &said), &wanted);
    }
}

#[test]
fn models_that_the_driver_has_no_memory_for_are_refused_with_the_numbers() {
    if !has_device() {
        return;
    }
    let wanted = stdout(&run(MODEL, "cpu", &[]));
    let name = device_name();
    let refused = [
        "the driver has no memory for ",
        " bytes of ",
        " are allocated here",
        " MiB of weights",
    ];
    check_driver(
        MODEL,
        ("memory=1", &["the driver of", "refuses", "memory"]),
        &wanted,
    );
    for fault in ["memory=64", "memory=128"] {
        check_driver(MODEL, (fault, &[&[&*name], &refused[..]].concat()), &wanted);
    }
    let uploads = [&*name, "the device is out of memory", " MiB of weights"];
    check_driver(MODEL, ("uploads", &uploads), &wanted);
}

/// As [`check_fault`], with a driver that has this fault.
fn check_driver(model: &str, (fault, said): (&str, &[&str]), wanted: &str) {
    let faults = format!("discrete fast {fault}");
    let driver = FaultyDriver::new(&format!("drivers-{fault}"), &faults);
    let mut variables = driver.variables().to_vec();
    // A cache of this size is not made smaller until it fits.
    variables.push(("MILLRACE_MODEL_KV_MIB", KV_MIB.to_string()));
    check_fault(model, (fault, &variables, said), wanted);
}

/// Runs the model on a device that is asked for by name, which is an error, and on one that is chosen.
fn check_fault(
    model: &str,
    (name, variables, said): (&str, &[(&str, String)], &[&str]),
    wanted: &str,
) {
    let refused = run(model, "vulkan", variables);
    let log = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{name}: {log}");
    let error = log
        .lines()
        .find(|line| line.contains("model.device = vulkan: "));
    let says = |line: &str| said.iter().all(|part| line.contains(part));
    assert!(error.is_some_and(says), "{name}: {log}");
    let computed = run(model, "auto", variables);
    let log = String::from_utf8_lossy(&computed.stderr).into_owned();
    assert_eq!(stdout(&computed), wanted, "{name}");
    let mut lines = log
        .lines()
        .filter(|line| line.contains("model.device = auto: "));
    let line = lines.next();
    let has_reason = line.is_some_and(|line| line.contains("the processor computes the model"));
    assert!(has_reason && lines.next().is_none(), "{name}: {log}");
}

/// The name and the driver of the first device of Vulkan.
fn device_name() -> String {
    let doctor = stdout(&millrace(&["doctor"]));
    let (_, name) = doctor.split_once("vulkan:0 is ").unwrap();
    let (name, _) = name.split_once("), ").unwrap();
    format!("{name})")
}

/// The log's number behind these words.
fn number(log: &str, words: &str) -> u64 {
    let (_, rest) = log
        .split_once(words)
        .unwrap_or_else(|| panic!("no {words}: {log}"));
    let end = rest.find(|c: char| !c.is_ascii_digit());
    rest[..end.unwrap_or(rest.len())].parse().unwrap()
}

#[test]
fn cache_is_halved_until_the_driver_has_memory_for_it() {
    if !has_device() {
        return;
    }
    let mut sizes = Vec::new();
    for memory_mib in [1 << 20, 400, 300] {
        let driver = FaultyDriver::new("drivers-halved", &format!("memory={memory_mib}"));
        let ran = run(MODEL, "vulkan", &driver.variables());
        let log = String::from_utf8_lossy(&ran.stderr).into_owned();
        let kv_mib = number(&log, " kv_mib=");
        assert!(ran.status.success() && kv_mib < memory_mib, "{log}");
        sizes.push((stdout(&ran), kv_mib));
    }
    let [(all, large), (most, less), (few, least)] = &sizes[..] else {
        panic!("{sizes:?}")
    };
    assert!(large > less && less > least, "{sizes:?}");
    assert!(all == most && most == few, "{sizes:?}");
}
