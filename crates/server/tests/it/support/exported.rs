//! What `/metrics` tells, parsed; and a server that everything happened to.

use super::client::{Client, get, post};
use super::named::call;
use super::{Rig, config, fake};
use engine::fake::FakeConfig;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub const CHAT: &str = "/v1/chat/completions";
pub const COMPLETIONS: &str = "/v1/completions";

/// `GET /metrics`, parsed: families with their kinds, and each sample's value.
pub struct Exported {
    pub kinds: BTreeMap<String, String>,
    pub samples: BTreeMap<String, f64>,
}

impl Exported {
    pub fn from(rig: &Rig) -> Self {
        Self::told(rig, "")
    }

    /// The same, to who presents these header fields.
    pub fn told(rig: &Rig, fields: &str) -> Self {
        let reply = call(rig, "GET", "/metrics", fields, &Value::Null);
        assert_eq!(reply.head.status, 200);
        let kind = reply.head.get("content-type").unwrap();
        assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
        Self::parse(&reply.body)
    }

    /// The families of a text, each of them once.
    pub fn parse(text: &str) -> Self {
        let (mut kinds, mut samples) = (BTreeMap::new(), BTreeMap::new());
        for line in text.lines() {
            if let Some(line) = line.strip_prefix("# TYPE ") {
                let (name, kind) = line.split_once(' ').unwrap();
                let before = kinds.insert(name.to_owned(), kind.to_owned());
                assert_eq!(before, None, "{name} is one family");
            } else if !line.starts_with('#') {
                let (name, value) = line.rsplit_once(' ').unwrap();
                let before = samples.insert(name.to_owned(), value.parse().unwrap());
                assert_eq!(before, None, "{name} is one sample");
            }
        }
        Self { kinds, samples }
    }

    pub fn value(&self, sample: &str) -> f64 {
        self.samples.get(sample).copied().unwrap_or(0.0)
    }

    /// Every name a query may use.
    pub fn names(&self) -> BTreeSet<String> {
        let parts = |name: &str, kind: &str| match kind {
            "histogram" => ["_bucket", "_sum", "_count"]
                .iter()
                .map(|part| format!("{name}{part}"))
                .collect(),
            _ => vec![name.to_owned()],
        };
        self.kinds.iter().flat_map(|(n, k)| parts(n, k)).collect()
    }

    /// The label names of a family's samples, `le` aside.
    pub fn labels(&self, family: &str) -> BTreeSet<String> {
        let of = |sample: &String| {
            let labels = sample.strip_prefix(family)?.strip_prefix('{')?;
            Some(
                labels
                    .trim_end_matches('}')
                    .split("\",")
                    .filter_map(|pair| pair.split_once('=').map(|(name, _)| name.to_owned()))
                    .collect::<Vec<_>>(),
            )
        };
        self.samples.keys().filter_map(of).flatten().collect()
    }
}

/// A chat of 20 tokens.
pub fn ask(content: &str, stream: bool) -> Value {
    json!({
        "messages": [{"role": "user", "content": content}], "seed": 1, "ignore_eos": true,
        "stream": stream, "max_tokens": 20,
    })
}

/// A server whose model ends only at `max_tokens`.
pub fn rig() -> Rig {
    let fake = FakeConfig {
        eos_probability: 0.0,
        ..fake()
    };
    Rig::with(fake, config())
}

/// Every label is used: a stream, a whole answer, refusals, a path that is nowhere.
pub fn used(rig: &Rig) {
    assert_eq!(post(rig.addr, CHAT, &ask("hi", true)).head.status, 200);
    assert_eq!(post(rig.addr, CHAT, &ask("hi", false)).head.status, 200);
    let completion = json!({"prompt": "hi", "max_tokens": 3, "ignore_eos": true});
    assert_eq!(post(rig.addr, COMPLETIONS, &completion).head.status, 200);
    assert_eq!(post(rig.addr, CHAT, &json!({})).head.status, 400);
    assert_eq!(get(rig.addr, "/nowhere").head.status, 404);
    rig.wait_until_empty();
}

/// A stream that its client reads again from the beginning.
pub fn read_again(rig: &Rig) {
    let body = ask("hi", true).to_string();
    let head = "host: localhost\r\nx-stream-resumable: 1\r\ncontent-type: application/json";
    let mut client = Client::connect(rig.addr);
    client.send(
        format!(
            "POST {CHAT} HTTP/1.1\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .as_bytes(),
    );
    let first = client.reply();
    let id = first.head.get("x-stream-id").expect("its name");
    let again = get(rig.addr, &format!("/v1/streams/{id}/events"));
    assert_eq!(again.frames().last(), first.frames().last());
}
