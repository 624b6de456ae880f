//! Clients that leave, that do not read, that come all at once; models that fail; servers that stop.

use crate::support::client::{Client, get, post, request};
use crate::support::named::{CHAT, ask, fake};
use crate::support::{Rig, config, wait_until};
use engine::fake::{Fault, FaultAt, FaultKind};
use serde_json::{Value, json};
use server::ServerConfig;
use std::time::Duration;

fn text(rig: &Rig, ask: &Value) -> String {
    post(rig.addr, CHAT, ask).chat_text()
}

/// Promise (Admission and keys): a client that disconnects frees its pages within one step.
#[test]
fn disconnected_client_frees_its_work_within_one_step() {
    for stream in [true, false] {
        let rig = Rig::gated(
            fake(),
            ServerConfig {
                open_requests_max: 1,
                ..config()
            },
        );
        let mut client = Client::connect(rig.addr);
        client.post(CHAT, &ask("hi", stream, 400));
        rig.gate.allow(3);
        wait_until("it runs", || rig.engine.stats().tokens_generated() == 3);
        drop(client);
        wait_until("the server saw it leave", || {
            let metrics = get(rig.addr, "/metrics").body;
            metrics.contains("millrace_answers_total{dialect=\"openai.chat\",outcome=\"left\"} 1")
        });
        let steps = rig.engine.stats().steps();
        rig.gate.open();
        rig.wait_until_empty();
        assert!(
            rig.engine.stats().steps() <= steps + 1,
            "the step under way is the last"
        );
        assert_eq!(rig.engine.stats().endings().cancelled, 1);
    }
}

#[test]
fn clients_that_connect_and_vanish_leave_nothing() {
    // MILLRACE_VANISH=10000 is the long form of this test.
    let clients: usize = std::env::var("MILLRACE_VANISH")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(400);
    let rig = Rig::with(fake(), config());
    for i in 0..clients {
        let bytes = request(CHAT, &ask(&format!("hi {i}"), i % 3 != 0, 300));
        let mut client = Client::connect(rig.addr);
        match i % 4 {
            0 => client.send(&bytes[..i % bytes.len()]),
            1 => client.send(&bytes),
            2 => {
                client.send(&bytes);
                client.finish_sending();
            }
            _ => {
                client.send(&bytes);
                client.head();
            }
        }
    }
    rig.wait_until_empty();
    let told = post(rig.addr, CHAT, &ask("and now", false, 5)).json();
    assert_eq!(told["usage"]["completion_tokens"], 5);
}

#[test]
fn client_that_does_not_read_is_parked_and_others_are_not() {
    let mut long = fake();
    long.dims.context_max = 1 << 14;
    long.dims.pages = 2 << 10;
    let rig = Rig::with(
        long,
        ServerConfig {
            send_buffer_bytes: 4096,
            ..config()
        },
    );
    let generated = || rig.engine.stats().tokens_generated();
    let alone = text(&rig, &ask("other", true, 200));
    let mut deaf = Client::narrow(rig.addr, 4096);
    deaf.post(CHAT, &ask("deaf", true, 1 << 13));
    wait_until("its stream stands still while another's runs", || {
        let before = generated();
        assert_eq!(text(&rig, &ask("other", true, 200)), alone);
        rig.engine.stats().parked() == 1 && generated() == before + 200
    });
    assert_eq!(deaf.head().status, 200);
    let all = deaf.body();
    assert!(
        all.ends_with("data: [DONE]\n\n"),
        "when it reads, it gets everything"
    );
    let lengths = all
        .split("\"content\":\"")
        .skip(2)
        .map(|rest| rest.find('"').unwrap());
    assert_eq!(lengths.sum::<usize>(), 1 << 13);
}

#[test]
fn concurrent_streams_equal_solo_streams() {
    const CLIENTS: usize = 64;
    let rig = Rig::with(fake(), config());
    let asks: Vec<Value> = (0..CLIENTS)
        .map(|i| ask(&format!("client {i}"), true, 20 + i))
        .collect();
    let alone: Vec<String> = asks.iter().map(|ask| text(&rig, ask)).collect();
    let mut clients: Vec<Client> = asks.iter().map(|_| Client::connect(rig.addr)).collect();
    for (client, ask) in clients.iter_mut().zip(&asks) {
        client.post(CHAT, ask);
    }
    for (i, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.reply().chat_text(), alone[i], "client {i}");
    }
    assert!(
        alone.iter().collect::<std::collections::HashSet<_>>().len() > CLIENTS / 2,
        "texts differ"
    );
    rig.wait_until_empty();
}

#[test]
fn failure_is_reported_to_its_client_only() {
    for (kind, code) in [
        (FaultKind::Panic, "internal_error"),
        (FaultKind::NotANumber, "inference_failed"),
    ] {
        let mut faulty = fake();
        faulty.faults = vec![Fault {
            at: FaultAt::Token(u32::from(b'~')),
            kind,
        }];
        let rig = Rig::gated(faulty, config());
        let mut good = Client::connect(rig.addr);
        good.post(CHAT, &ask("good", true, 30));
        let mut bad = Client::connect(rig.addr);
        bad.post(CHAT, &ask("bad ~", true, 30));
        let mut whole = Client::connect(rig.addr);
        whole.post(CHAT, &ask("bad ~", false, 30));
        assert_eq!((good.head().status, bad.head().status), (200, 200));
        rig.gate.open();
        let (good_text, bad_text) = (good.body(), bad.body());
        assert!(good_text.ends_with("data: [DONE]\n\n"), "{good_text}");
        assert!(
            bad_text.contains(&format!("\"code\":\"{code}\"")) && !bad_text.contains("[DONE]"),
            "{bad_text}"
        );
        let reply = whole.reply();
        assert_eq!(
            (reply.head.status, &reply.json()["error"]["code"]),
            (500, &json!(code))
        );
        rig.wait_until_empty();
    }
}

#[test]
fn timeout_ends_the_stream_and_is_named() {
    let mut impatient = config();
    impatient.clocks.total = Some(Duration::from_nanos(1));
    let rig = Rig::gated(fake(), impatient);
    rig.gate.open();
    let mut client = Client::connect(rig.addr);
    client.post(CHAT, &ask("too long", true, 30));
    assert_eq!(client.head().status, 200);
    let body = client.body();
    assert!(
        body.contains("\"code\":\"timeout\"") && body.contains("total"),
        "{body}"
    );
    assert!(!body.contains("[DONE]"), "{body}");
    let mut whole = Client::connect(rig.addr);
    whole.post(CHAT, &ask("too long", false, 30));
    let reply = whole.reply();
    assert_eq!(
        (reply.head.status, &reply.json()["error"]["code"]),
        (504, &json!("timeout"))
    );
    rig.wait_until_empty();
}

#[test]
fn shutdown_cuts_clients_that_do_not_read() {
    let mut long = fake();
    long.dims.context_max = 1 << 14;
    let brief = ServerConfig {
        send_buffer_bytes: 4096,
        drain: Duration::ZERO,
        drain_flush: Duration::from_millis(20),
        ..config()
    };
    let mut rig = Rig::with(long, brief);
    let mut deaf = Client::narrow(rig.addr, 4096);
    let mut wide = ask("deaf", true, 1 << 13);
    // So much to a token that what is left to tell at the end never fits into what the kernel may find room for.
    wide["logprobs"] = json!(true);
    wide["top_logprobs"] = json!(20);
    deaf.post(CHAT, &wide);
    wait_until("its buffers are full", || {
        let before = rig.engine.stats().tokens_generated();
        text(&rig, &ask("other", true, 200));
        rig.engine.stats().parked() == 1 && rig.engine.stats().tokens_generated() == before + 200
    });
    rig.ask_to_stop();
    assert_eq!(rig.stopped().cut, 1);
    rig.wait_until_empty();
}

#[test]
fn client_that_does_not_read_and_disconnects_is_released() {
    let mut long = fake();
    long.dims.context_max = 1 << 14;
    let rig = Rig::with(
        long,
        ServerConfig {
            send_buffer_bytes: 4096,
            ..config()
        },
    );
    let mut deaf = Client::narrow(rig.addr, 4096);
    deaf.post(CHAT, &ask("deaf", true, 1 << 13));
    wait_until("it is parked", || rig.engine.stats().parked() == 1);
    drop(deaf);
    rig.wait_until_empty();
    assert!(rig.engine.stats().tokens_generated() < 1 << 13);
}

#[test]
fn keep_alive_comments_precede_the_first_token() {
    let rig = Rig::gated(
        fake(),
        ServerConfig {
            keep_alive: Duration::from_millis(5),
            ..config()
        },
    );
    let mut client = Client::connect(rig.addr);
    client.post(CHAT, &ask("hi", true, 1));
    assert_eq!(client.head().status, 200);
    assert!(client.chunk().unwrap().contains("\"role\":\"assistant\""));
    assert_eq!(client.chunk().unwrap(), ": ping\n\n");
    assert_eq!(client.chunk().unwrap(), ": ping\n\n");
    rig.gate.open();
    let text = client.body();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
}
