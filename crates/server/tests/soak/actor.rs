//! A client that does everything a client may do, one thing after the other, from a seed.

use crate::support::Rig;
use crate::support::client::{Client, Head};
use crate::support::named::{self, stream_id};
use crate::support::sse::{Heard, frames};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};
use std::net::TcpStream;
use std::time::Duration;

/// Things an actor does, by name.
/// What it is called, and how it is done.
type Deed = (&'static str, fn(&mut Actor, &Rig) -> Outcome);

pub(crate) const DEEDS: [Deed; 11] = [
    ("read", Actor::read),
    ("whole", Actor::whole),
    ("leave", Actor::leave),
    ("vanish", Actor::vanish),
    ("stall", Actor::stall),
    ("cut and resume", Actor::resume),
    ("pause", Actor::pause),
    ("watch a job", Actor::watch),
    ("cancel a job", Actor::cancel),
    ("hurry", Actor::hurry),
    ("err", Actor::err),
];

/// What came of it. What must not be panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// No room: told so.
    Refused,
}

/// Where the dialects are, and whether they take messages.
const DIALECTS: [(&str, bool); 3] = [
    ("/v1/chat/completions", true),
    ("/v1/completions", false),
    ("/v1/inference", false),
];
const CLASSES: [&str; 5] = ["critical", "high", "normal", "low", "background"];
const TOKENS_MAX: usize = 120;

/// One client.
pub(crate) struct Actor {
    state: u64,
}

/// A question and where it goes.
struct Question {
    path: &'static str,
    fields: String,
    body: Value,
    tokens: usize,
}

impl Actor {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Does something; says which of [`DEEDS`].
    pub(crate) fn act(&mut self, rig: &Rig) -> (usize, Outcome) {
        let which = self.below(DEEDS.len());
        (which, DEEDS[which].1(self, rig))
    }

    /// Below `n` (splitmix64).
    fn below(&mut self, n: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn question(&mut self, stream: bool) -> Question {
        let (path, messages) = DIALECTS[self.below(DIALECTS.len())];
        let tokens = 1 + self.below(TOKENS_MAX);
        let words = "a word ".repeat(1 + self.below(20)) + &self.below(1 << 20).to_string();
        let mut body = json!({
            "seed": self.below(1000), "stream": stream, "max_tokens": tokens, "ignore_eos": true,
        });
        match messages {
            true => body["messages"] = json!([{"role": "user", "content": words}]),
            false => body["prompt"] = json!(words),
        }
        let class = CLASSES[self.below(CLASSES.len())];
        Question {
            path,
            fields: format!("x-priority: {class}\r\n"),
            body,
            tokens,
        }
    }

    fn ask(&mut self, rig: &Rig, question: &Question) -> (Client, Head) {
        let Question {
            path, fields, body, ..
        } = question;
        let mut client = named::send(rig, "POST", path, fields, body);
        let head = client.head();
        (client, head)
    }

    fn read(&mut self, rig: &Rig) -> Outcome {
        let question = self.question(true);
        let (mut client, head) = self.ask(rig, &question);
        told(&head, || client.body(), question.tokens)
    }

    fn whole(&mut self, rig: &Rig) -> Outcome {
        let question = self.question(false);
        let reply = named::call(rig, "POST", question.path, &question.fields, &question.body);
        if is_refused(&reply.head) {
            return Outcome::Refused;
        }
        assert_eq!(reply.head.status, 200, "{}", reply.body);
        let json = reply.json();
        let counted = json["usage"]["completion_tokens"]
            .as_u64()
            .or(json["tokens_out"].as_u64());
        assert_eq!(counted, Some(question.tokens as u64), "{json}");
        Outcome::Done
    }

    /// Goes away in the middle.
    fn leave(&mut self, rig: &Rig) -> Outcome {
        let question = self.question(true);
        let (mut client, head) = self.ask(rig, &question);
        if is_refused(&head) {
            return Outcome::Refused;
        }
        let chunks = self.below(6);
        let _ = (0..chunks).map_while(|_| client.chunk()).count();
        Outcome::Done
    }

    /// Goes away before it was told anything, or before it said all.
    fn vanish(&mut self, rig: &Rig) -> Outcome {
        let stream = self.below(2) == 0;
        let question = self.question(stream);
        let bytes = crate::support::client::request(question.path, &question.body);
        let part = match self.below(2) {
            0 => bytes.len(),
            _ => self.below(bytes.len()),
        };
        Client::connect(rig.addr).send(&bytes[..part]);
        Outcome::Done
    }

    /// Does not read for a while, again and again.
    fn stall(&mut self, rig: &Rig) -> Outcome {
        let question = self.question(true);
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(2048).unwrap();
        socket.connect(&rig.addr.into()).unwrap();
        let mut client = Client::over(TcpStream::from(socket));
        client.send(&crate::support::client::request(
            question.path,
            &question.body,
        ));
        let head = client.head();
        let mut body = String::new();
        if head.status == 200 {
            while let Some(chunk) = client.chunk() {
                body += &chunk;
                if self.below(8) == 0 {
                    std::thread::park_timeout(Duration::from_millis(self.below(20) as u64));
                }
            }
        }
        told(&head, || body, question.tokens)
    }

    /// Loses its connection and goes on where it was; then forgets the stream.
    fn resume(&mut self, rig: &Rig) -> Outcome {
        let mut question = self.question(true);
        question.fields += named::RESUMABLE;
        let (mut client, head) = self.ask(rig, &question);
        if is_refused(&head) {
            return Outcome::Refused;
        }
        let chunks = self.below(8);
        let first: String = (0..chunks).map_while(|_| client.chunk()).collect();
        drop(client);
        let path = format!("/v1/streams/{}", stream_id(&head));
        let got = frames(&first);
        let last = got.iter().rev().find_map(|frame| frame.id.clone());
        let field = last
            .map(|id| format!("last-event-id: {id}\r\n"))
            .unwrap_or_default();
        let reply = named::get(rig, &format!("{path}/events"), &field);
        match reply.head.status {
            // It had everything; or nobody came back for too long (the bounds are short here).
            204 | 404 | 410 => {}
            // It waited in the queue in vain.
            503 | 504 => return Outcome::Refused,
            _ => assert_eq!(endings(&reply.body), 1, "{}", reply.body),
        }
        let deleted = named::call(rig, "DELETE", &path, "", &Value::Null);
        assert!(matches!(deleted.head.status, 202 | 404 | 410));
        Outcome::Done
    }

    /// Holds its stream up for a while.
    fn pause(&mut self, rig: &Rig) -> Outcome {
        let question = self.question(true);
        let (mut client, head) = self.ask(rig, &question);
        if is_refused(&head) {
            return Outcome::Refused;
        }
        let path = format!("/v1/streams/{}", stream_id(&head));
        for verb in ["pause", "resume"] {
            let reply = named::call(rig, "POST", &format!("{path}/{verb}"), "", &Value::Null);
            assert!(
                matches!(reply.head.status, 200 | 404 | 409 | 410),
                "{}",
                reply.body
            );
        }
        told(&head, || client.body(), question.tokens)
    }

    fn watch(&mut self, rig: &Rig) -> Outcome {
        self.job(rig, |_, _| {})
    }

    fn cancel(&mut self, rig: &Rig) -> Outcome {
        self.job(rig, |rig, id| {
            let path = format!("/v1/jobs/{id}/cancel");
            let reply = named::call(rig, "POST", &path, "", &Value::Null);
            assert!(
                matches!(reply.head.status, 202 | 404 | 410),
                "{}",
                reply.body
            );
        })
    }

    /// A job that runs alone, and is looked at later.
    fn job(&mut self, rig: &Rig, then: impl FnOnce(&Rig, &str)) -> Outcome {
        let Question { fields, body, .. } = self.question(true);
        let mut body = body;
        if !body["messages"].is_null() {
            body["prompt"] = json!("a job");
            body.as_object_mut().unwrap().remove("messages");
        }
        let reply = named::call(rig, "POST", "/v1/jobs", &fields, &body);
        if is_refused(&reply.head) {
            return Outcome::Refused;
        }
        assert_eq!(reply.head.status, 202, "{}", reply.body);
        let told = reply.json();
        then(rig, told["job_id"].as_str().unwrap());
        let watched = named::get(rig, told["sse_url"].as_str().unwrap(), "");
        match watched.head.status {
            200 => assert_eq!(endings(&watched.body), 1, "{}", watched.body),
            status => assert!(matches!(status, 404 | 410 | 499..=504), "{}", watched.body),
        }
        Outcome::Done
    }

    /// Has little time.
    fn hurry(&mut self, rig: &Rig) -> Outcome {
        let mut question = self.question(true);
        question.fields += &format!("request-timeout-ms: {}\r\n", 1 + self.below(30));
        let (mut client, head) = self.ask(rig, &question);
        match head.status {
            200 => assert_eq!(endings(&client.body()), 1),
            status => assert!(matches!(status, 503 | 504), "{head:?}"),
        }
        Outcome::Done
    }

    fn err(&mut self, rig: &Rig) -> Outcome {
        let mut question = self.question(true);
        question.body["temperature"] = json!("warm");
        let (_, head) = self.ask(rig, &question);
        assert_eq!(head.status, 400);
        Outcome::Done
    }
}

/// Of an answer that is read to its end: exactly one ending, and all of the tokens unless it waited in vain.
fn told(head: &Head, body: impl FnOnce() -> String, tokens: usize) -> Outcome {
    if is_refused(head) {
        return Outcome::Refused;
    }
    assert_eq!(head.status, 200);
    let body = body();
    assert_eq!(endings(&body), 1, "{body}");
    if body.contains("\"error\"") {
        // It waited in vain.
        return Outcome::Refused;
    }
    let frames = frames(&body);
    let counted: usize = match body.contains("\"choices\"") {
        true => Heard::of(&frames).texts.values().map(String::len).sum(),
        false => tokens_of_job(&body),
    };
    assert_eq!(counted, tokens, "each token is a letter: {body}");
    Outcome::Done
}

fn tokens_of_job(body: &str) -> usize {
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let mut json = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    let end = json.rfind(|json| json["type"] == "end");
    end.and_then(|end| end["tokens_out"].as_u64()).unwrap_or(0) as usize
}

/// How often a stream says that it is over. (A job's ending is followed by a `[DONE]`, an OpenAI stream's is one.)
fn endings(body: &str) -> usize {
    let data: Vec<_> = body
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .collect();
    let json = data
        .iter()
        .filter_map(|data| serde_json::from_str::<Value>(data).ok());
    let (mut of_job, mut errors) = (0, 0);
    for json in json {
        of_job += usize::from(json["type"] == "end" || json["type"] == "error");
        errors += usize::from(!json["error"].is_null());
    }
    match of_job {
        0 => errors + data.iter().filter(|data| **data == "[DONE]").count(),
        of_job => of_job,
    }
}

fn is_refused(head: &Head) -> bool {
    matches!(head.status, 503 | 504)
}
