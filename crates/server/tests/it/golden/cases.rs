//! The cases: how each is brought about, and what a client is told then.

use super::dialects::Dialect;
use crate::support::client::{Client, Head};
use crate::support::named::call;
use crate::support::{Rig, config, fake, vocab, wait_until};
use engine::fake::{FakeConfig, Fault, FaultAt, FaultKind};
use serde_json::{Value, json};
use server::{ServerConfig, StreamClocks};
use std::time::Duration;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// The model ends by itself.
    Text,
    StopString,
    Length,
    TwoAnswers,
    Logprobs,
    Usage,
    /// A wrong field.
    Refused,
    /// The model fails after a token.
    Fails,
    Cancelled,
    /// A clock runs out.
    TimedOut,
}

/// What a client is told.
pub(crate) struct Told {
    /// Status, and what its body is.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Case {
    /// In the order of their transcripts.
    pub(crate) const ALL: [Self; 10] = [
        Self::Text,
        Self::StopString,
        Self::Length,
        Self::TwoAnswers,
        Self::Logprobs,
        Self::Usage,
        Self::Refused,
        Self::Fails,
        Self::Cancelled,
        Self::TimedOut,
    ];

    /// What is told; `None`: this dialect has no such thing.
    pub(crate) fn told(self, dialect: &Dialect, streamed: bool) -> Option<Told> {
        let rig = Rig::gated(self.model(), self.config());
        let mut body = self.body(dialect)?;
        body["stream"] = json!(streamed);
        let mut client = Client::connect(rig.addr);
        client.post(dialect.path, &body);
        match (self, streamed) {
            // Nobody could name what is told to nobody yet.
            (Self::Cancelled, false) => None,
            (Self::Usage, false) => None,
            (_, false) | (Self::Refused, true) => {
                rig.gate.open();
                let reply = client.reply();
                Some(told(&reply.head, reply.body))
            }
            (Self::TwoAnswers, true) => {
                rig.gate.open();
                let reply = client.reply();
                Some(told(&reply.head, by_choice(&reply.body)))
            }
            _ => Some(self.stepwise(&rig, client, dialect)),
        }
    }

    /// One piece at a time: the model does a pass, the client reads what it gave.
    fn stepwise(self, rig: &Rig, mut client: Client, dialect: &Dialect) -> Told {
        rig.gate.allow(1);
        let head = client.head();
        if head.get("transfer-encoding").is_none() {
            let body = client.rest(&head);
            return told(&head, body);
        }
        let (mut text, mut passes) = (String::new(), 1);
        while let Some(chunk) = client.chunk() {
            text.push_str(&chunk);
            if text.matches(dialect.piece).count() < passes {
                continue;
            }
            passes += 1;
            match self {
                // A pass that fails is tried again.
                Self::Fails => rig.gate.open(),
                Self::Cancelled => {
                    if passes == 2 {
                        // What the pass gives that is under way then is told.
                        wait_until("the next pass is under way", || rig.gate.is_waited_at());
                        cancel(rig, &head);
                    }
                    rig.gate.open();
                }
                _ => rig.gate.allow(1),
            }
        }
        told(&head, text)
    }

    fn model(self) -> FakeConfig {
        match self {
            Self::Text => FakeConfig {
                eos_probability: 0.3,
                ..fake()
            },
            Self::Fails => FakeConfig {
                faults: vec![Fault {
                    at: FaultAt::Token(vocab::WORD),
                    kind: FaultKind::Error,
                }],
                ..fake()
            },
            _ => fake(),
        }
    }

    fn config(self) -> ServerConfig {
        let total = (self == Self::TimedOut).then_some(Duration::from_nanos(1));
        ServerConfig {
            clocks: StreamClocks {
                total,
                ..StreamClocks::default()
            },
            ..config()
        }
    }

    /// A request whose answer is "hello", again and again.
    fn body(self, dialect: &Dialect) -> Option<Value> {
        let mut body = json!({
            "model": "fake", "messages": [{"role": "user", "content": "hi"}], "temperature": 0,
            "logit_bias": {vocab::WORD.to_string(): 70}, "max_tokens": 3,
        });
        match self {
            Self::Text => body["max_tokens"] = json!(9),
            Self::StopString => body["stop"] = json!(["lohe"]),
            Self::TwoAnswers if dialect.several => {
                (body["n"], body["max_tokens"]) = (json!(2), json!(1));
            }
            Self::TwoAnswers => return None,
            Self::Logprobs => (dialect.logprobs?)(&mut body),
            Self::Usage if dialect.counts => {
                body["stream_options"] =
                    json!({"include_usage": true, "continuous_usage_stats": true});
            }
            Self::Usage => return None,
            Self::Refused => body["temperature"] = json!("hot"),
            Self::Length | Self::Fails | Self::Cancelled | Self::TimedOut => {}
        }
        (dialect.shape)(&mut body);
        Some(body)
    }
}

fn cancel(rig: &Rig, head: &Head) {
    let path = format!("/v1/streams/{}", head.get("x-stream-id").expect("a name"));
    let reply = call(rig, "DELETE", &path, "", &Value::Null);
    assert_eq!(reply.head.status, 202);
}

fn told(head: &Head, body: String) -> Told {
    let kind = head.get("content-type").unwrap_or("nothing");
    Told {
        head: format!("{} {kind}", head.status),
        body,
    }
}

/// Frames of the first answer first: which of two is told first is nobody's business.
fn by_choice(body: &str) -> String {
    let mut frames: Vec<&str> = body.split_inclusive("\n\n").collect();
    frames.sort_by_key(|frame| match frame {
        frame if frame.contains("\"index\":0") => 0,
        frame if frame.contains("\"index\":1") => 1,
        _ => 2,
    });
    frames.concat()
}
