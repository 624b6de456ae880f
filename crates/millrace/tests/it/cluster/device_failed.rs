//! An engine whose model is on a device that is lost twice: it is opened again, then the processor computes.

use super::conversation::{Conversation, SETTINGS};
use super::metric;
use super::nats_server;
use super::processes::{Cluster, json, wait_for_engines};
use crate::device::faulty_driver::FaultyDriver;
use crate::device::has_device;
use crate::kill::requests::{Request, all_requests};
use crate::support::Serving;
use std::process::Stdio;
use testing::wait::wait_until;

/// Settings of a process with its model on the device.
fn on_device<'a>(driver: &'a [(&'static str, String); 3]) -> Vec<(&'static str, &'a str)> {
    let own = [("MILLRACE_MODEL_DEVICE", "auto")];
    let driver = driver.iter().map(|(name, value)| (*name, value.as_str()));
    own.into_iter().chain(driver).collect()
}

/// Requests of all kinds but those for log-probabilities: a draw by the processor and one by the device differ in their last bits, and
/// which of both draws a token depends on the time.
fn requests() -> impl Iterator<Item = Request> {
    let requests = all_requests().into_iter();
    requests.filter(|request| !request.case.contains("log-probabilities"))
}

/// Streams of all kinds over one engine.
///
/// Promise (Cluster): streams of an engine whose device is lost have the text of one process that was not disturbed; a second
/// loss moves the engine's model to the processor, and it computes on.
#[test]
fn streams_outlive_the_device_of_their_engine() {
    let Some(program) = nats_server::program().filter(|_| has_device()) else {
        return;
    };
    let driver = FaultyDriver::new("cluster-device", "discrete fast");
    let variables = driver.variables();
    let mut cluster = Cluster::new(program, "cluster-device", "", &SETTINGS);
    let mut engine = cluster.launch_with("engine", &on_device(&variables));
    assert!(engine.line().contains(" serves "));
    cluster.engines.push(Some(engine));
    let gateway = cluster.start_gateway();
    wait_for_engines(&gateway, 1);
    let faults = || metric(cluster.engine(0), "millrace_device_faults_total");
    let conversation = Conversation::of(&gateway, requests());
    let received = conversation.run(&gateway, |round| {
        if round == 1 {
            driver.lose();
        }
    });
    assert_eq!(faults(), 1.0);
    let args = ["serve", "--bind", "127.0.0.1:0"];
    let settings = [&SETTINGS[..], &on_device(&variables)].concat();
    let single = Serving::start_with(&args, &settings, Stdio::inherit());
    let undisturbed = Conversation::of(&single, requests()).run(&single, |_| {});
    assert!(single.terminate().success());
    for (received, undisturbed) in received.iter().zip(&undisturbed) {
        assert_eq!(received, undisturbed);
    }
    driver.lose();
    let body = r#"{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 30, "ignore_eos": true}"#;
    let reply = gateway.post("/v1/chat/completions", body);
    assert_eq!(json(&reply)["usage"]["completion_tokens"], 30, "{reply}");
    wait_until("the device is given up", || faults() == 2.0);
    assert_eq!(metric(&gateway, "millrace_relay_diverged_total"), 0.0);
    assert!(gateway.terminate().success());
}
