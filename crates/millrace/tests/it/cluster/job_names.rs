//! Names of jobs at two gateways: one job of a name, also where both get it at one moment, NATS is away, or a gateway is killed.

use super::gateway_killed::{HEARTBEAT, jet_stream, wait_stored};
use super::processes::{Cluster, json, wait_for_engines};
use super::{SETTINGS, nats_server};
use crate::support::{Folder, Serving};
use serde_json::json;
use testing::wait::wait_until;

/// Submits a job; returns the status.
fn submit(gateway: &Serving, name: &str) -> String {
    let body = json!({"prompt": "A", "max_tokens": 4, "ignore_eos": true, "job_id": name});
    let reply = gateway.post("/v1/jobs", &body.to_string());
    let status = reply.split(' ').nth(1).unwrap_or_default();
    if status == "503" {
        assert!(reply.contains("it is not known whether"), "{reply}");
    }
    status.to_owned()
}

/// Ten names, each of which two gateways get at one moment.
fn one_of_two_gets_the_name(here: &Serving, there: &Serving) {
    for round in 0..10 {
        let name = format!("job-{round}");
        let statuses = std::thread::scope(|scope| {
            let submitted = [here, there].map(|gateway| scope.spawn(|| submit(gateway, &name)));
            submitted.map(|submitted| submitted.join().expect("a status"))
        });
        let accepted = statuses.iter().filter(|status| *status == "202").count();
        assert_eq!(accepted, 1, "{statuses:?}");
        assert!(statuses.contains(&"409".to_owned()), "{statuses:?}");
    }
}

#[test]
fn name_has_one_job_at_all_gateways() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let folder = Folder::new("gateways-names");
    let lines = jet_stream(&folder);
    let settings = [&SETTINGS[..], &[HEARTBEAT]].concat();
    let mut cluster = Cluster::new(program, "gateways-names-nats", &lines, &settings);
    cluster.start_engines(1);
    let [here, there] = ["a", "b"].map(|name| {
        let gateway = cluster.start_durable_gateway(&folder.0.join(name));
        wait_for_engines(&gateway, 1);
        wait_stored(&gateway, "");
        gateway
    });
    wait_until("the gateways hear each other", || {
        let known = |gateway: &Serving| json(&gateway.get("/v1/cluster"))["instances"].clone();
        [&here, &there].map(|gateway| known(gateway).as_array().map(Vec::len)) == [Some(3); 2]
    });
    one_of_two_gets_the_name(&here, &there);

    // The name of a job that was removed is free, at the other gateway too.
    assert_eq!(submit(&there, "again"), "202");
    wait_until("the job is removed", || {
        there.send("DELETE", "/v1/jobs/again", "", "");
        !there.get("/v1/jobs/again").starts_with("HTTP/1.1 200")
    });
    assert_eq!(submit(&here, "again"), "202");
    assert_eq!(submit(&there, "again"), "409");

    let body = r#"{"input": "A", "max_output_tokens": 3}"#;
    let answer = json(&here.post("/v1/responses", body));
    let answer_path = format!(
        "/v1/responses/{}",
        answer["id"].as_str().unwrap_or_default()
    );

    // Without NATS no gateway knows what the others have, but each has its own.
    cluster.nats.kill();
    let stored = here.get(&answer_path);
    assert!(stored.starts_with("HTTP/1.1 200"), "{stored}");
    assert_eq!(submit(&here, "away"), "503");
    cluster.nats.start();
    wait_until("the name is known to be free", || {
        match &submit(&here, "away")[..] {
            "202" => true,
            status => {
                assert_eq!(status, "503");
                false
            }
        }
    });

    // The job of a killed gateway keeps its name, before and after it is taken over.
    assert_eq!(submit(&there, "left"), "202");
    wait_stored(&there, "");
    drop(there); // killed
    wait_until(
        "the job is taken over",
        || match &submit(&here, "left")[..] {
            "409" => true,
            status => {
                assert_eq!(status, "503");
                false
            }
        },
    );
}
