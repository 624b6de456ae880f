//! A stream is sent by its connection, not by the HTTP library: nobody can tell, whatever is asked before,
//! after and meanwhile.
//!
//! Promise (APIs): a stream that its connection writes itself behaves as any response: chunks, the next request on
//! the same connection, old clients, `close`, unread bodies.

use crate::support::Rig;
use crate::support::client::{Client, Reply, request};
use crate::support::named::{CHAT, call, chat, fake, kept, resumable_chat, stream_id};
use crate::support::sse::{Heard, frames};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

fn heard(reply: &Reply) -> Heard {
    assert_eq!(reply.head.status, 200, "{}", reply.body);
    Heard::of(&frames(&reply.body))
}

/// All that comes, up to the end of the connection, for this.
fn everything(addr: SocketAddr, asked: &[u8]) -> (String, String) {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream
        .set_read_timeout(Some(crate::support::PATIENCE))
        .unwrap();
    stream.write_all(asked).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("the server closes");
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    (head.to_ascii_lowercase(), body.to_owned())
}

fn health(padding: usize) -> Vec<u8> {
    let padding = "x".repeat(padding);
    format!("GET /health HTTP/1.1\r\nhost: localhost\r\nx-padding: {padding}\r\n\r\n").into_bytes()
}

#[test]
fn keep_alive_connection_serves_several_requests() {
    let rig = Rig::with(fake(), kept());
    let body = chat(&json!({"max_tokens": 20}));
    let alone = heard(&call(&rig, "POST", CHAT, "", &body));
    let mut client = Client::connect(rig.addr);
    for _ in 0..3 {
        client.post(CHAT, &body);
        assert_eq!(heard(&client.reply()), alone);
        client.send(&health(0));
        assert_eq!(client.reply().head.status, 200);
    }
}

#[test]
fn pipelined_request_is_answered_after_the_stream() {
    // Longer and shorter than what is taken from the socket meanwhile.
    for padding in [0, 200, 3000] {
        let rig = Rig::gated(fake(), kept());
        let body = chat(&json!({"max_tokens": 20}));
        let mut both = request(CHAT, &body);
        both.extend(health(padding));
        let mut client = Client::connect(rig.addr);
        client.send(&both);
        let head = client.head();
        rig.gate.allow(5);
        let mut text = client.chunk().expect("it goes on");
        client.send(&request(CHAT, &body));
        rig.gate.open();
        text += &client.body();
        let first = Heard::of(&frames(&text));
        assert_eq!((head.status, first.is_over()), (200, true));
        assert_eq!(client.reply().json()["status"], "ok", "{padding}");
        assert_eq!(heard(&client.reply()), first, "{padding}");
    }
}

#[test]
fn http_1_0_and_connection_close_are_honored() {
    let rig = Rig::with(fake(), kept());
    let body = chat(&json!({"max_tokens": 20}));
    let alone = call(&rig, "POST", CHAT, "", &body);
    let asked = String::from_utf8(request(CHAT, &body)).unwrap();
    let old = asked.replace("HTTP/1.1", "HTTP/1.0");
    let (head, plain) = everything(rig.addr, old.as_bytes());
    assert!(!head.contains("transfer-encoding"), "{head}");
    assert_eq!(Heard::of(&frames(&plain)), heard(&alone));
    let last = asked.replacen("host:", "connection: Close, x\r\nhost:", 1);
    let (head, chunked) = everything(rig.addr, last.as_bytes());
    assert!(head.contains("transfer-encoding: chunked"), "{head}");
    assert!(head.contains("connection: close"), "{head}");
    assert!(chunked.ends_with("\r\n0\r\n\r\n"), "{chunked}");
}

#[test]
fn unread_body_is_not_parsed_as_a_request() {
    let rig = Rig::with(fake(), kept());
    let opened = resumable_chat(&rig, &json!({"max_tokens": 9}));
    let path = format!("/v1/streams/{}/events", stream_id(&opened.head));
    let smuggled = String::from_utf8(health(0)).unwrap();
    let length = smuggled.len();
    let asked = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{smuggled}"
    );
    let mut client = Client::connect(rig.addr);
    client.send(asked.as_bytes());
    assert_eq!(heard(&client.reply()), heard(&opened));
    // Whether the library goes on or closes is its own affair; the body was not asked.
    client.send(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes());
    if let Some(head) = client.try_head() {
        let body = client.rest(&head);
        assert_eq!(heard(&Reply { head, body }), heard(&opened));
    }
}

#[test]
fn head_request_leaves_the_connection_usable() {
    let rig = Rig::with(fake(), kept());
    let opened = resumable_chat(&rig, &json!({"max_tokens": 9}));
    let path = format!("/v1/streams/{}/events", stream_id(&opened.head));
    let mut client = Client::connect(rig.addr);
    client.send(format!("HEAD {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes());
    assert_eq!(client.head().status, 200);
    client.send(&health(0));
    assert_eq!(client.reply().json()["status"], "ok");
    let reply = crate::support::named::get(&rig, &path, "");
    assert_eq!(heard(&reply), heard(&opened));
}
