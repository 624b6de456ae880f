//! The limit of a key, of which two gateways have a half each.
//!
//! Promise (Limits of keys over gateways): each gateway enforces its part of the limits with real processes, also
//! after a gateway was killed.

use super::conversation::SETTINGS;
use super::nats_server;
use super::processes::{Cluster, json};
use crate::support::{Folder, Serving, millrace, stdout};
use std::time::Instant;
use testing::wait::wait_until;

const REQUESTS_PER_MIN: u32 = 40;
const BODY: &str = r#"{"prompt": "A", "max_tokens": 1}"#;

/// The settings of a cluster with one key, for generation and for administration, and the key.
pub(super) fn key_of_alice(
    folder: &Folder,
    more: &[&str],
) -> (Vec<(&'static str, &'static str)>, String) {
    let file: &str = folder.0.join("keys.yaml").display().to_string().leak();
    let args = ["keys", "--file", file, "new", "alice"];
    let scopes = ["--scope", "inference", "--scope", "admin"];
    let made = millrace(&[&args[..], &scopes, more].concat());
    let settings = [&SETTINGS[..], &[("MILLRACE_KEYS_FILE", file)]].concat();
    (settings, stdout(&made).trim().to_owned())
}

/// Waits until the gateways know of each other.
fn wait_for_each_other(gateways: [&Serving; 2], key: &str) {
    wait_until("the gateways hear each other", || {
        let known = |gateway: &Serving| {
            let reply = gateway.send("GET", "/v1/cluster", key, "");
            json(&reply)["instances"].as_array().map(Vec::len)
        };
        gateways.map(known) == [Some(3); 2]
    });
}

/// Requests to both gateways in turn, until both reject.
#[test]
#[expect(clippy::disallowed_methods, reason = "the bound grows with time")]
fn limit_of_a_key_holds_over_two_gateways() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let folder = Folder::new("cluster-keys");
    let limit = REQUESTS_PER_MIN.to_string();
    let (settings, secret) = key_of_alice(&folder, &["--requests-per-min", &limit]);
    let field = format!("authorization: Bearer {secret}\r\n");
    let mut cluster = Cluster::new(program, "cluster-limits", "", &settings);
    cluster.start_engines(1);
    let gateways = [cluster.start_gateway(), cluster.start_gateway()];
    wait_for_each_other([&gateways[0], &gateways[1]], &field);
    let begin = Instant::now();
    let (mut served, mut rejected) = ([0, 0], [0, 0]);
    while rejected.contains(&0) {
        for (index, gateway) in gateways.iter().enumerate() {
            let reply = gateway.post_with(&field, "/v1/completions", BODY);
            let is_served = reply.starts_with("HTTP/1.1 200");
            assert!(is_served || reply.starts_with("HTTP/1.1 429"), "{reply}");
            served[index] += u32::from(is_served);
            rejected[index] += u32::from(!is_served);
        }
    }
    // The bucket, what the rate has added, and one request at each gateway for the rounding.
    let added = begin.elapsed().as_secs_f64() / 60.0 * f64::from(REQUESTS_PER_MIN);
    let most = f64::from(REQUESTS_PER_MIN) + added + 2.0;
    let all = f64::from(served[0] + served[1]);
    assert!(all <= most, "{served:?} of at most {most}");
    let half = REQUESTS_PER_MIN / 2;
    assert!(served.iter().all(|&served| served >= half), "{served:?}");
}

/// Each gateway has one of two streams, and both when the other gateway was killed.
#[test]
fn concurrent_streams_of_a_key_are_divided_by_the_gateways() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let folder = Folder::new("cluster-concurrent");
    let (settings, secret) = key_of_alice(&folder, &["--concurrent-streams", "2"]);
    let key = format!("authorization: Bearer {secret}\r\n");
    let mut cluster = Cluster::new(program, "cluster-concurrent-nats", "", &settings);
    cluster.start_engines(1);
    let [first, second] = [cluster.start_gateway(), cluster.start_gateway()];
    // A job is parked after a window of tokens, and stays open.
    let body = r#"{"prompt": "A", "max_tokens": 60, "ignore_eos": true}"#;
    let explicit = format!("{key}x-stream-acks: explicit\r\n");
    let open = |gateway: &Serving| {
        let reply = gateway.post_with(&explicit, "/v1/jobs", body);
        let is_rejected = reply.starts_with("HTTP/1.1 429");
        assert!(is_rejected || reply.starts_with("HTTP/1.1 202"), "{reply}");
        let id = (!is_rejected).then(|| json(&reply)["job_id"].clone());
        id.map(|id| id.as_str().expect("an id").to_owned())
    };
    wait_for_each_other([&first, &second], &key);
    let cancel = |gateway: &Serving, id: &str| {
        let reply = gateway.post_with(&key, &format!("/v1/jobs/{id}/cancel"), "");
        assert!(reply.starts_with("HTTP/1.1 2"), "{reply}");
    };
    for gateway in [&first, &second] {
        let one = open(gateway).expect("a stream");
        assert_eq!(open(gateway), None, "one of two");
        cancel(gateway, &one);
        wait_until("the place is free", || open(gateway).is_some());
        assert_eq!(open(gateway), None, "one of two");
    }
    drop(second); // killed
    wait_until("the whole limit", || open(&first).is_some());
    assert_eq!(open(&first), None, "two");
}
