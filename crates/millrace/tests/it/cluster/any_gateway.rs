//! Two gateways with two engines: what one gateway has is listed, found and seen at the other.

use super::conversation::SETTINGS;
use super::nats_server;
use super::processes::{Cluster, address, json, wait_for_engines};
use crate::support::Serving;
use cluster::names::InstanceId;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use testing::wait::{PATIENCE, wait_until};

/// Events of the feed that are read at most.
const EVENTS_MAX: usize = 500;

#[test]
fn streams_of_one_gateway_are_seen_at_the_other() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let mut cluster = Cluster::new(program, "cluster-any-gateway", "", &SETTINGS);
    cluster.start_engines(2);
    let (first, second) = (cluster.start_gateway(), cluster.start_gateway());
    for gateway in [&first, &second] {
        wait_for_engines(gateway, 2);
        wait_until("the gateways hear each other", || {
            let report = json(&gateway.get("/v1/cluster"));
            report["instances"].as_array().map(Vec::len) == Some(4)
        });
    }
    let mut feed = open_feed(&first);
    let id = |gateway: &Serving| json(&gateway.get("/v1/cluster"))["instance"].clone();
    let (first_id, second_id) = (id(&first), id(&second));
    wait_for_event(&mut feed, |event| {
        event["type"] == "metrics" && event["instance"] == second_id
    });

    // A job that is parked after a window of tokens, on an engine that is killed then.
    let field = "x-stream-acks: explicit\r\n";
    let body = r#"{"prompt": "A", "max_tokens": 20, "ignore_eos": true, "job_id": "mine"}"#;
    let reply = second.post_with(field, "/v1/jobs", body);
    assert!(reply.starts_with("HTTP/1.1 202"), "{reply}");
    let job = |gateway: &Serving| json(&gateway.get("/v1/jobs/mine"));
    wait_until("the job is parked", || job(&first)["state"] == "parked");
    let stream = job(&first)["stream_id"].as_str().unwrap().to_owned();
    let listed = json(&first.get("/v1/streams"));
    assert_eq!(listed["data"][0]["id"], stream.as_str(), "{listed}");
    assert_eq!(listed["data"][0]["instance"], second_id);
    assert!(listed["unanswered"].is_null(), "{listed}");
    let again = first.post("/v1/jobs", body);
    assert!(again.starts_with("HTTP/1.1 409"), "{again}");

    let busy = (0..2).find(|&number| {
        let metrics = cluster.engine(number).get("/metrics");
        metrics.contains("millrace_sequences{state=\"parked\"} 1\n")
    });
    cluster.kill_engine(busy.expect("an engine has the request"));
    // The gateway that does not have the stream passes everything on to the one that does.
    let acknowledge = || {
        let tokens = json(&first.get(&format!("/v1/streams/{stream}")));
        let tokens = &tokens["choices"][0]["tokens"];
        let ack = format!("{{\"index\": {tokens}}}");
        let reply = first.post(&format!("/v1/streams/{stream}/ack"), &ack);
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    };
    // Until the reader comes back there is nothing to compute, and nothing to move.
    acknowledge();
    let moved = wait_for_event(&mut feed, |event| event["type"] == "moved");
    assert_eq!(
        (&moved["stream"], &moved["instance"]),
        (&stream.as_str().into(), &second_id)
    );

    let done = || {
        acknowledge();
        job(&first)["state"] == "ended"
    };
    wait_until("the job has ended", done);
    expect_metrics_of_all(&first, [&first_id, &second_id]);
    assert!(first.terminate().success() && second.terminate().success());
}

#[test]
fn gateway_in_the_id_of_an_answer_is_asked_first() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let mut cluster = Cluster::new(program, "cluster-first-asked", "", &SETTINGS);
    cluster.start_engines(1);
    let gateways: Vec<_> = (0..3).map(|_| cluster.start_gateway()).collect();
    for gateway in &gateways {
        wait_for_engines(gateway, 1);
        wait_until("the gateways hear each other", || {
            let report = json(&gateway.get("/v1/cluster"));
            report["instances"].as_array().map(Vec::len) == Some(4)
        });
    }
    let [owner, other, reader] = &gateways[..] else {
        panic!("three gateways");
    };
    let body = r#"{"input": "A", "max_output_tokens": 3}"#;
    let answer = json(&owner.post("/v1/responses", body));
    let id = answer["id"].as_str().unwrap_or_default().to_owned();
    let number = |gateway: &Serving| {
        let instance = json(&gateway.get("/v1/cluster"))["instance"].clone();
        let instance: InstanceId = instance.as_str().unwrap_or_default().parse().unwrap();
        format!("{:04x}", instance.number())
    };
    assert_eq!(id.get(5..9), Some(&*number(owner)), "{answer}");
    let answered = |gateway: &Serving| {
        let metrics = gateway.get("/metrics");
        let line = "millrace_peer_requests_total{outcome=\"answered\"} ";
        let count = metrics.lines().find_map(|found| found.strip_prefix(line));
        count.and_then(|count| count.parse::<u64>().ok())
    };
    // An answer that no gateway has is asked for everywhere: it could have been taken over.
    let unknown = format!("/v1/responses/resp_{}{:0>28}", number(other), 1);
    let is_missing = || reader.get(&unknown).starts_with("HTTP/1.1 404");
    wait_until("the store of records is ready", is_missing);
    let before = answered(reader).expect("the calls are counted");
    assert!(is_missing());
    assert_eq!(answered(reader), Some(before + 2), "both gateways");
    let found = json(&reader.get(&format!("/v1/responses/{id}")));
    assert_eq!(found["id"], answer["id"], "{found}");
    assert_eq!(answered(reader), Some(before + 3), "only the owner");
    for gateway in gateways {
        assert!(gateway.terminate().success());
    }
}

/// The metrics of two gateways and one engine, at one of the gateways.
fn expect_metrics_of_all(gateway: &Serving, ids: [&serde_json::Value; 2]) {
    let metrics = gateway.get("/metrics?scope=cluster");
    for id in ids {
        let id = id.as_str().unwrap();
        let line = format!("millrace_instance_up{{instance=\"{id}\",role=\"gateway\"}} 1");
        assert!(metrics.contains(&line), "{line}");
    }
    let engines = metrics.matches("role=\"engine\"} 1\n");
    assert!(engines.count() > 0, "the engine that is left");
    assert_eq!(metrics.matches("# TYPE millrace_instance_up").count(), 1);
}

fn open_feed(gateway: &Serving) -> BufReader<TcpStream> {
    let mut client = TcpStream::connect(address(gateway)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = "GET /v1/streams/feed HTTP/1.1\r\nhost: localhost\r\n\r\n";
    client.write_all(request.as_bytes()).unwrap();
    BufReader::new(client)
}

/// The first event of this kind. Lines that are no events are skipped: the head, and lengths of chunks.
fn wait_for_event(
    feed: &mut BufReader<TcpStream>,
    is_it: impl Fn(&serde_json::Value) -> bool,
) -> serde_json::Value {
    let mut seen = 0;
    while seen < EVENTS_MAX {
        let mut line = String::new();
        assert!(feed.read_line(&mut line).unwrap() > 0, "the feed goes on");
        let Some(event) = line.strip_prefix("data: ") else {
            continue;
        };
        seen += 1;
        let event = serde_json::from_str(event).unwrap_or_default();
        if is_it(&event) {
            return event;
        }
    }
    panic!("not among {EVENTS_MAX} events");
}
