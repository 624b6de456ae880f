//! Drivers that are missing, old or broken, and devices that fail, as the whole program meets them.
//!
//! Promise (Arithmetic): without a driver, with a library that is a stub, an old driver, one that lacks a feature, has small buffers,
//! refuses, loses the device or computes something else, a model on a named device is refused at start with the reason, and with
//! `auto` the processor computes it and a line of the log has the reason. No driver ends the process. A model that the driver has no
//! memory for is refused with the name of the device, the bytes that were asked for and those that it has. A model that devices do
//! not compute is named as well, and only `vulkan` means a driver that computes on the processor. A line of the log says why `auto`
//! chose a device, with the bandwidths.
//! Also held by `gpu/tests/it/faults.rs`.

use super::faulty_driver::FaultyDriver;
use super::has_device;
use crate::support::{Folder, command, millrace, stdout};
use std::process::Output;

/// Tokens of an answer.
const TOKENS: &str = "4";

/// A model whose KV cache may be large.
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/mini/millrace-mini.gguf");

/// The KV cache of a model that is refused.
const KV_MIB: u64 = 512;

/// Runs the model on a device with these variables.
fn run(model: &str, device: &str, variables: &[(&str, String)]) -> Output {
    run_prompt((model, "Hello"), device, variables)
}

fn run_prompt((model, prompt): (&str, &str), device: &str, variables: &[(&str, String)]) -> Output {
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
        prompt,
    ];
    let mut command = command(&args);
    command.env("MILLRACE_LOG_FILTER", "info");
    let variables = variables.iter().map(|(name, value)| (name, value));
    command.envs(variables).output().unwrap()
}

/// A model of this preset.
fn synth(folder: &Folder, preset: &str) -> String {
    let path = folder.0.join(preset).with_extension("gguf");
    let path = path.display().to_string();
    stdout(&millrace(&[
        "synth", &path, "--preset", preset, "--quant", "Q4_0",
    ]));
    path
}

#[test]
fn drivers_that_do_not_work_are_named_and_the_processor_computes() {
    if !has_device() {
        return;
    }
    let folder = Folder::new("drivers");
    let model = synth(&folder, "tiny-qwen3");
    let wanted = stdout(&run(&model, "cpu", &[]));
    let no_driver = vec![("VK_DRIVER_FILES", "/nonexistent.json".to_owned())];
    let stub = FaultyDriver::stub("drivers-stub");
    const NONE: [&str; 1] = ["no device vulkan: no driver reports one"];
    for (name, variables) in [
        ("no driver", no_driver),
        ("stub", stub.variables().to_vec()),
    ] {
        check_fault((&model, "vulkan"), (name, &variables, &NONE), &wanted);
    }
    for (fault, said) in [
        ("instance", NONE),
        ("unlisted", ["failed in a way that it should not"]),
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
    // More than the checks of kernels need, however many run at once.
    for fault in ["memory=128", "memory=256"] {
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
    check_fault((model, "vulkan"), (fault, &variables, said), wanted);
}

/// Runs the model on a device that is asked for by name, which is an error, and on one that is chosen.
fn check_fault(
    (model, device): (&str, &str),
    (name, variables, said): (&str, &[(&str, String)], &[&str]),
    wanted: &str,
) {
    let refused = run(model, device, variables);
    let log = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{name}: {log}");
    let named = format!("model.device = {device}: ");
    let error = log.lines().find(|line| line.contains(&named));
    let says = |line: &str| said.iter().all(|part| line.contains(part));
    assert!(error.is_some_and(says), "{name}: {log}");
    let computed = run(model, "auto", variables);
    assert_eq!(stdout(&computed), wanted, "{name}");
    let line = choice(&computed);
    let has_reason = line.contains("the processor computes the model: ");
    assert!(has_reason, "{name}: {line}");
}

/// The line of the log that says what `auto` chose, with these words: a busy machine may measure the device as slow, and then the model
/// is loaded once more.
fn choice_of(model: &str, driver: &FaultyDriver, words: &[&str]) -> String {
    let mut line = String::new();
    for _ in 0..3 {
        let ran = run(model, "auto", &driver.variables());
        stdout(&ran);
        line = choice(&ran);
        if words.iter().all(|part| line.contains(part)) {
            return line;
        }
    }
    panic!("{words:?}: {line}");
}

/// The line of the log that says what `auto` chose.
fn choice(ran: &Output) -> String {
    let log = String::from_utf8_lossy(&ran.stderr).into_owned();
    let lines = log.lines();
    let lines: Vec<_> = lines
        .filter(|line| line.contains("model.device = auto: "))
        .collect();
    match lines[..] {
        [line] => line.to_owned(),
        _ => panic!("{} lines: {log}", lines.len()),
    }
}

#[test]
fn choice_of_auto_is_a_line_with_the_bandwidths() {
    if !has_device() {
        return;
    }
    let folder = Folder::new("drivers-auto");
    let model = synth(&folder, "tiny-qwen3");
    let name = device_name();
    for (faults, chosen) in [
        (
            "discrete fast",
            format!("the model is computed on {name}, which reads "),
        ),
        (
            "discrete slow",
            format!("the processor computes the model: {name} reads "),
        ),
    ] {
        let driver = FaultyDriver::new("drivers-auto-driver", faults);
        let line = choice_of(&model, &driver, &[&chosen]);
        for speed in [" reads ", " GB/s, the processor "] {
            number(&line, speed);
        }
    }
}

#[test]
fn device_that_is_a_processor_is_used_by_name_only() {
    if !has_device() {
        return;
    }
    let folder = Folder::new("drivers-processor");
    let model = synth(&folder, "tiny-qwen3");
    let wanted = stdout(&run(&model, "cpu", &[]));
    let driver = FaultyDriver::new("drivers-processor-driver", "processor fast");
    let variables = driver.variables();
    let name = device_name();
    let (name, _) = name.split_once(" (").unwrap();
    let said = ["no device gpu: there are ", name];
    check_fault((&model, "gpu"), ("a processor", &variables, &said), &wanted);
    let line = choice(&run(&model, "auto", &variables));
    assert!(said.iter().all(|part| line.contains(part)), "{line}");
    stdout(&run(&model, "vulkan", &variables));
}

#[test]
fn model_that_devices_do_not_compute_is_named() {
    if !has_device() {
        return;
    }
    let folder = Folder::new("drivers-unsupported");
    let model = synth(&folder, "tiny-gemma3n");
    let wanted = stdout(&run(&model, "cpu", &[]));
    let name = device_name();
    let said = [
        &*name,
        "several states of the stream are computed on the CPU only",
    ];
    let driver = FaultyDriver::new("drivers-unsupported-driver", "discrete fast");
    check_fault(
        (&model, "vulkan"),
        ("unsupported", &driver.variables(), &said),
        &wanted,
    );
    choice_of(&model, &driver, &said);
}

/// Promise (Arithmetic): where a kernel for batches of many rows fails its check when a model is loaded, a line of the log names it,
/// and the kernels for few rows compute all batches, with the bits of `model.deterministic`.
#[test]
fn tiles_that_are_wrong_are_replaced() {
    if !has_device() {
        return;
    }
    let long = "Long prompts are computed by tiles. ".repeat(8);
    let ask = |variables: &[(&str, String)]| {
        let ran = run_prompt((MODEL, &long), "vulkan", variables);
        (
            stdout(&ran),
            String::from_utf8_lossy(&ran.stderr).into_owned(),
        )
    };
    let exact = ("MILLRACE_MODEL_DETERMINISTIC", "true".to_owned());
    let (wanted, log) = ask(&[exact]);
    assert!(!log.contains("a simpler kernel replaces"), "{log}");
    let driver = FaultyDriver::new("drivers-tiles", "tiles");
    let (found, log) = ask(&driver.variables());
    assert_eq!(found, wanted);
    let warnings = log
        .lines()
        .filter(|line| line.contains("a simpler kernel replaces"));
    let is_tile = |line: &str| line.contains("`matmul ") && line.contains(" 20 rows`: ");
    let warnings: Vec<_> = warnings.collect();
    assert!(
        !warnings.is_empty() && warnings.into_iter().all(is_tile),
        "{log}"
    );
}

#[test]
fn driver_that_panics_is_a_finding_of_doctor() {
    if !has_device() {
        return;
    }
    let driver = FaultyDriver::new("drivers-doctor", "unlisted");
    for (device, verdict) in [("auto", "better"), ("vulkan", "WRONG")] {
        let mut doctor = command(&["doctor", "--device", device]);
        let examined = doctor.envs(driver.variables()).output().unwrap();
        let findings = String::from_utf8_lossy(&examined.stdout);
        let mut lines = findings.lines();
        let line = lines.find(|line| line.contains("no GPU was found"));
        assert!(
            line.is_some_and(|line| line.starts_with(verdict)),
            "{findings}"
        );
        let advice = lines.next().unwrap_or_default();
        assert!(
            advice.contains("failed in a way that it should not"),
            "{findings}"
        );
    }
}

/// Promise (Arithmetic): `millrace doctor --report` names each kernel that computes something else than it should, and fails then.
#[test]
fn report_names_kernels_that_are_wrong() {
    if !has_device() {
        return;
    }
    let driver = FaultyDriver::new("drivers-report", "wrong");
    let mut doctor = command(&["doctor", "--device", "vulkan", "--report"]);
    let reported = doctor.envs(driver.variables()).output().unwrap();
    let [report, error] =
        [&reported.stdout, &reported.stderr].map(|out| String::from_utf8_lossy(out));
    assert_eq!(reported.status.code(), Some(1), "{error}");
    assert!(report.contains(&device_name()), "{report}");
    for kernel in ["embed Q8_0", "matmul Q4_K, 1 rows", "attend"] {
        let line = report.lines().find(|line| line.starts_with(kernel));
        assert!(
            line.is_some_and(|line| line.contains(": buffer ")),
            "{kernel}: {report}"
        );
    }
    assert!(error.contains(" checks of kernels failed"), "{error}");
    let counted = report.lines().last().unwrap_or_default();
    assert!(
        counted.contains(" checks of kernels in ") && !counted.contains(" 0 failed"),
        "{report}"
    );
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
