//! Drivers that are missing, old or broken, and devices that fail, as the whole program meets them.
//!
//! Promise (Arithmetic): without a driver, with a library that is a stub, an old driver, one that lacks a feature, has small buffers,
//! refuses, loses the device or computes something else, a model on a named device is refused at start with the reason, and with
//! `auto` the processor computes it and a line of the log has the reason. No driver ends the process.
//! Also held by `gpu/tests/it/faults.rs`.

use super::faulty_driver::FaultyDriver;
use super::has_device;
use crate::support::{Folder, Serving, command, stdout, synth};
use serde_json::{Value as Json, json};
use std::process::Output;
use testing::wait::wait_until;

/// Tokens of an answer of the synthetic model.
const TOKENS: &str = "4";

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
    let mut rows = vec![
        (
            "no driver",
            no_driver,
            "no device vulkan: no driver reports one",
        ),
        (
            "stub",
            stub.variables().to_vec(),
            "no device vulkan: no driver reports one",
        ),
    ];
    let faults = [
        ("instance", "no device vulkan: no driver reports one"),
        ("old", "no device vulkan: no driver reports one"),
        ("few", "64 bytes of immediates, 128 are needed"),
        ("refuses", "the driver of"),
        ("small", "does not fit"),
        ("lost", "is lost"),
        ("wrong", "fails its check on this device"),
    ];
    let drivers = faults.map(|(fault, said)| {
        let driver = FaultyDriver::new(
            &format!("drivers-{fault}"),
            &format!("discrete fast {fault}"),
        );
        (fault, driver, said)
    });
    for (fault, driver, said) in &drivers {
        let mut variables = driver.variables().to_vec();
        // A cache of this size is not made smaller until it fits.
        variables.push(("MILLRACE_MODEL_KV_MIB", "64".to_owned()));
        rows.push((fault, variables, said));
    }
    for (name, variables, said) in rows {
        check_fault(&model, (name, &variables, said), &wanted);
    }
}

/// Runs the model on a device that is asked for by name, which is an error, and on one that is chosen.
fn check_fault(
    model: &str,
    (name, variables, said): (&str, &[(&str, String)], &str),
    wanted: &str,
) {
    let refused = run(model, "vulkan", variables);
    let log = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{name}: {log}");
    let error = log
        .lines()
        .find(|line| line.contains("model.device = vulkan: "));
    assert!(
        error.is_some_and(|line| line.contains(said)),
        "{name}: {log}"
    );
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

/// Tokens of an answer that is long enough to lose a device in it.
const LONG: u64 = 600;

/// Starts a server with the built-in model on a device that fails on request.
fn serve(driver: &FaultyDriver, device: &str, log: std::fs::File) -> Serving {
    let args = ["serve", "--bind", "127.0.0.1:0", "--device", device];
    let variables = driver.variables();
    let variables = variables
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    Serving::start_with(&args, &variables, log)
}

/// The value of a metric, with its labels.
fn metric(serving: &Serving, name: &str) -> f64 {
    let metrics = serving.get("/metrics");
    let mut values = metrics.lines().filter_map(|line| line.strip_prefix(name));
    let value = values.next().unwrap_or_else(|| panic!("no {name}"));
    value.trim().parse().unwrap()
}

/// The text of a long answer, or the error.
fn answer(serving: &Serving) -> Result<String, Json> {
    let body = json!({"messages": [{"role": "user", "content": "Tell me a long story."}], "max_tokens": LONG,
        "ignore_eos": true, "temperature": 0});
    let reply = serving.post("/v1/chat/completions", &body.to_string());
    let body = reply.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let value: Json = serde_json::from_str(body).unwrap_or_else(|why| panic!("{why}: {reply}"));
    match value["usage"]["completion_tokens"].as_u64() {
        Some(tokens) => assert_eq!(tokens, LONG, "{value}"),
        None => return Err(value),
    }
    let text = value["choices"][0]["message"].to_string();
    Ok(text)
}

/// An answer during which the device is lost.
fn answer_in_loss(serving: &Serving, driver: &FaultyDriver) -> Result<String, Json> {
    let before = metric(serving, "millrace_device_faults_total ");
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| answer(serving));
        wait_until("tokens are computed", || {
            metric(serving, "millrace_sequences{state=\"running\"} ") > 0.0
        });
        driver.lose();
        wait_until("the device is lost", || {
            metric(serving, "millrace_device_faults_total ") > before
        });
        answer.join().unwrap()
    })
}

/// Promise (Arithmetic): an answer during which the device is lost has the text of one that was not disturbed; the second loss
/// within ten minutes moves a model of `auto` to the processor, and the third ends the streams of a named device.
#[test]
fn streams_outlive_the_loss_of_their_device() {
    if !has_device() {
        return;
    }
    let folder = Folder::new("device-lost");
    for device in ["vulkan", "auto"] {
        let driver = FaultyDriver::new(&format!("device-lost-{device}"), "discrete fast");
        let path = folder.0.join(format!("{device}.log"));
        let serving = serve(&driver, device, std::fs::File::create(&path).unwrap());
        let log = || std::fs::read_to_string(&path).unwrap();
        assert!(log().contains("loaded to the GPU"), "{}", log());
        let wanted = answer(&serving).unwrap();
        assert_eq!(answer_in_loss(&serving, &driver).as_ref(), Ok(&wanted));
        let second = answer_in_loss(&serving, &driver).unwrap();
        if device == "vulkan" {
            assert_eq!(second, wanted);
            let third = answer_in_loss(&serving, &driver).unwrap_err();
            assert_eq!(third["error"]["code"], "device_failed", "{third}");
        } else {
            // The tokens after the loss are the processor's.
            assert!(
                log().contains("the processor computes the model from now on"),
                "{}",
                log()
            );
            assert!(answer(&serving).is_ok());
        }
        assert!(serving.terminate().success());
    }
}
