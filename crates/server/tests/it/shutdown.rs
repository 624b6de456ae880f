//! Servers that stop, and the connections that are open then.

use crate::support::client::Client;
use crate::support::named::{CHAT, ask, fake};
use crate::support::{MODEL, Rig, config, wait_until};
use serde_json::json;
use server::{Server, ServerConfig, io_runtime};
use std::net::TcpStream;
use std::time::Duration;

/// Reads until there is some of the answer's text.
fn first_token(client: &mut Client) {
    assert_eq!(client.head().status, 200);
    while !client.chunk().expect("a token").contains("\"content\":\"") {}
    while !client.chunk().expect("a token").contains("\"content\":\"") {}
}

#[test]
fn shutdown_lets_streams_finish() {
    let mut rig = Rig::gated(fake(), config());
    let mut client = Client::connect(rig.addr);
    client.post(CHAT, &ask("hi", true, 5));
    rig.gate.allow(2);
    first_token(&mut client);
    rig.ask_to_stop();
    rig.wait_until_leaving();
    rig.gate.open();
    let text = client.body();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    assert_eq!(rig.stopped().cut, 0);
}

#[test]
fn shutdown_ends_streams_that_take_too_long() {
    let mut rig = Rig::gated(
        fake(),
        ServerConfig {
            drain: Duration::ZERO,
            drain_flush: Duration::from_secs(30),
            ..config()
        },
    );
    let mut client = Client::connect(rig.addr);
    client.post(CHAT, &ask("hi", true, 400));
    let mut whole = Client::connect(rig.addr);
    whole.post(CHAT, &ask("hi", false, 400));
    let segments = 2 * 400usize.div_ceil(stream::SEGMENT_ITEMS);
    wait_until("both are in", || rig.tokens.stats().reserved == segments);
    rig.gate.allow(2);
    first_token(&mut client);
    rig.ask_to_stop();
    rig.wait_until_leaving();
    rig.gate.open();
    let text = client.body();
    assert!(
        text.contains(r#""code":"shutting_down""#) && !text.contains("[DONE]"),
        "{text}"
    );
    assert_eq!(whole.reply().head.status, 503);
    assert_eq!(rig.stopped().cut, 0);
}

/// Promise (Streams): while a process that belongs to no cluster shuts down, new requests and `/health` are 503 with
/// `Retry-After` until its last stream has ended.
#[test]
fn new_requests_are_rejected_until_the_last_stream_has_ended() {
    let mut rig = Rig::gated(fake(), config());
    let mut client = Client::connect(rig.addr);
    client.post(CHAT, &ask("hi", true, 5));
    rig.gate.allow(2);
    first_token(&mut client);
    rig.ask_to_stop();
    rig.wait_until_leaving();
    for round in 0..3 {
        for path in ["/health", "/health/readiness", "/v1/ready"] {
            let mut probe = Client::connect(rig.addr);
            probe.send(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes());
            let reply = probe.reply();
            assert_eq!(reply.head.status, 503, "{path}, {round}");
            assert!(reply.head.get("retry-after").is_some(), "{path}");
            assert!(probe.is_closed());
        }
        let mut late = Client::connect(rig.addr);
        late.post(CHAT, &ask("hi", false, 1));
        let reply = late.reply();
        assert_eq!(reply.json()["error"]["code"], "shutting_down");
        assert!(reply.head.get("retry-after").is_some());
        for path in ["/v1/messages", "/v1/responses", "/api/chat"] {
            let mut late = Client::connect(rig.addr);
            let mut body = ask("hi", false, 1);
            body["input"] = json!("hi");
            late.post(path, &body);
            let reply = late.reply();
            assert_eq!(reply.head.status, 503, "{path}: {}", reply.body);
            assert!(reply.head.get("retry-after").is_some(), "{path}");
        }
    }
    rig.gate.open();
    assert!(client.body().ends_with("data: [DONE]\n\n"));
    assert_eq!(rig.stopped().cut, 0);
    assert!(TcpStream::connect(rig.addr).is_err(), "the port is closed");
}

#[test]
fn shutdown_closes_idle_connections() {
    let patient = ServerConfig {
        header_timeout: Duration::from_secs(3600),
        ..config()
    };
    let mut rig = Rig::with(fake(), patient);
    let mut idle = Client::connect(rig.addr);
    idle.post(CHAT, &ask("hi", false, 1));
    assert_eq!(idle.reply().head.status, 200);
    let mut silent = Client::connect(rig.addr);
    rig.ask_to_stop();
    assert!(idle.is_closed() && silent.is_closed());
    assert_eq!(rig.stopped().cut, 0);
}

#[test]
fn shutdown_answers_the_first_request_of_a_connection() {
    let mut rig = Rig::with(fake(), config());
    let mut idle = Client::connect(rig.addr);
    idle.post(CHAT, &ask("hi", false, 1));
    assert_eq!(idle.reply().head.status, 200);
    let mut first = Client::connect(rig.addr);
    let mut silent = Client::connect(rig.addr);
    rig.ask_to_stop();
    assert!(idle.is_closed(), "the shutdown has begun");
    first.post(CHAT, &ask("hi", true, 1));
    let reply = first.reply();
    assert_eq!(reply.head.status, 503, "{}", reply.body);
    assert_eq!(reply.json()["error"]["code"], "shutting_down");
    assert!(first.is_closed() && silent.is_closed());
    assert_eq!(rig.stopped().cut, 0);
}

#[test]
fn shutdown_answers_connections_that_were_not_accepted_yet() {
    let runtime = io_runtime(2).expect("io threads");
    let server = {
        let _inside = runtime.enter();
        Server::bind_early(config(), MODEL).expect("a free port").0
    };
    let mut clients: Vec<Client> = (0..8)
        .map(|_| Client::connect(server.local_addr()))
        .collect();
    for client in &mut clients {
        client.send(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n");
    }
    let serving = runtime.spawn(server.serve(async {}));
    for client in &mut clients {
        assert_eq!(client.reply().head.status, 200);
    }
    assert_eq!(runtime.block_on(serving).expect("no panic").cut, 0);
}
