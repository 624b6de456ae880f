//! The same over a WebSocket.

use super::question::Question;
use super::{Actor, Outcome};
use crate::soak::scene::WINDOW;
use crate::support::Rig;
use crate::support::dialects::Dialect;
use crate::support::named::{self, set_fields, stream_id};
use crate::support::talk::{Talk, text};
use serde_json::{Value, json};
use std::time::Duration;

/// Streams that are followed at once, at most.
const STREAMS_MAX: usize = 3;

/// A connection, and what was asked on it.
struct Line {
    talk: Talk,
    requests: usize,
}

/// A stream that is followed, with what was said of it.
struct Stream {
    id: String,
    tokens: usize,
    said: Vec<Value>,
    acknowledged: usize,
}

impl Line {
    fn new(actor: &Actor, rig: &Rig) -> Self {
        let key = format!("Bearer {}", actor.keys[0]);
        let talk = Talk::try_with(rig.addr, &[("authorization", &key)]);
        let mut talk = talk.unwrap_or_else(|status| panic!("no WebSocket: {status}"));
        assert_eq!(talk.next()["type"], "welcome");
        Self { talk, requests: 0 }
    }

    /// Says something and hears the answer to it.
    ///
    /// # Errors
    /// It is refused.
    fn ask(&mut self, mut message: Value) -> Result<Value, Outcome> {
        self.requests += 1;
        let request = self.requests.to_string();
        message["request"] = json!(request);
        self.talk.say(&message);
        let told = self.talk.answer(&request);
        if told["type"] != "error" {
            return Ok(told);
        }
        Err(match told["code"].as_str().unwrap_or_default() {
            "rate_limit_exceeded" => Outcome::OverLimit,
            "overloaded" | "timeout" => Outcome::NoRoom,
            "stream_not_found" | "stream_gone" | "stream_not_running" | "not_attached"
            | "cancelled" => Outcome::Gone,
            _ => panic!("{told} to {message}"),
        })
    }

    /// Opens a stream. `over`: fields of the message.
    fn open(&mut self, question: &Question, over: &Value) -> Result<Stream, Outcome> {
        let mut message = json!({
            "type": "open", "dialect": question.dialect.name, "body": question.body,
        });
        set_fields(&mut message, over);
        let told = self.ask(message)?;
        Ok(Stream::new(&told, question.tokens))
    }

    /// Says what it has of each. One of them may be forgotten, whose end is on its way: then all are refused.
    fn acknowledge(&mut self, acks: Vec<Value>) {
        let told = match acks.as_slice() {
            [one] => {
                let mut message = one.clone();
                message["type"] = json!("ack");
                self.ask(message)
            }
            _ => self.ask(json!({"type": "ack", "acks": acks})),
        };
        match told {
            Ok(_) => {}
            Err(Outcome::Gone) if acks.len() > 1 => {
                acks.into_iter().for_each(|ack| self.acknowledge(vec![ack]));
            }
            told => assert_eq!(told, Err(Outcome::Gone)),
        }
    }

    /// The next message of one of these.
    fn hear<'a>(&mut self, streams: &'a mut [Stream]) -> &'a mut Stream {
        let ours = |message: &Value| streams.iter().any(|stream| message["stream"] == *stream.id);
        let message = self.talk.wait("a message", ours);
        let of = streams
            .iter_mut()
            .find(|stream| message["stream"] == *stream.id);
        let of = of.expect("it is one of these");
        of.said.push(message);
        of
    }

    /// The rest of it, and what came of it.
    fn whole(&mut self, mut stream: Stream, from: usize) -> Outcome {
        while !stream.is_over() {
            self.hear(std::slice::from_mut(&mut stream));
        }
        stream.outcome(from)
    }
}

impl Stream {
    fn new(told: &Value, tokens: usize) -> Self {
        Self {
            id: told["stream"].as_str().expect("an id").to_owned(),
            tokens,
            said: Vec::new(),
            acknowledged: 0,
        }
    }

    fn is_over(&self) -> bool {
        self.said.last().is_some_and(|last| last["type"] == "ended")
    }

    /// Tokens that were told.
    fn has(&self) -> usize {
        let tokens = self
            .said
            .iter()
            .filter(|message| message["type"] == "token");
        tokens
            .map(|m| m.get("n").map_or(1, |n| n.as_u64().unwrap_or(0) as usize))
            .sum()
    }

    /// It has ended; `from`: tokens that were told elsewhere.
    fn outcome(&self, from: usize) -> Outcome {
        let text = text(&self.said, from as u64);
        let last = self.said.last().expect("it ended");
        match last["reason"].as_str().unwrap_or_default() {
            "MAX_TOKENS" => {
                assert_eq!(
                    from + text.len(),
                    self.tokens,
                    "each token is a letter: {last}"
                );
                assert_eq!(last["usage"]["completion_tokens"], self.tokens, "{last}");
                Outcome::Done
            }
            _ => Outcome::of_words(&last.to_string())
                .unwrap_or_else(|| panic!("it had no reason to end so: {last}")),
        }
    }
}

/// What came of several: the worst.
fn both(first: Outcome, second: Outcome) -> Outcome {
    match first {
        Outcome::Done => second,
        first => first,
    }
}

/// Several streams in any dialects, as fast as they come.
pub(super) fn read(actor: &mut Actor, rig: &Rig) -> Outcome {
    let mut line = Line::new(actor, rig);
    let (mut streams, mut outcome) = (Vec::new(), Outcome::Done);
    for _ in 0..1 + actor.below(STREAMS_MAX) {
        let question = actor.question(&json!({}));
        match line.open(&question, &json!({"resumable": false})) {
            Ok(stream) => streams.push(stream),
            Err(refused) => outcome = refused,
        }
    }
    for stream in streams {
        let of_one = line.whole(stream, 0);
        assert_ne!(of_one, Outcome::Gone, "its client is there");
        outcome = both(outcome, of_one);
    }
    outcome
}

/// Each token by itself.
pub(super) fn acknowledge(actor: &mut Actor, rig: &Rig) -> Outcome {
    acknowledging(actor, rig, 1, 1)
}

/// Many tokens of several streams in one message.
pub(super) fn in_batches(actor: &mut Actor, rig: &Rig) -> Outcome {
    let step = 2 + actor.below(WINDOW - 1);
    acknowledging(actor, rig, STREAMS_MAX, step)
}

fn acknowledging(actor: &mut Actor, rig: &Rig, count: usize, step: usize) -> Outcome {
    let mut line = Line::new(actor, rig);
    let (mut streams, mut outcome) = (Vec::new(), Outcome::Done);
    for _ in 0..count {
        let question = actor.question(&json!({}));
        match line.open(&question, &json!({"acks": "explicit", "resumable": false})) {
            Ok(stream) => streams.push(stream),
            Err(refused) => outcome = refused,
        }
    }
    while streams.iter().any(|stream| !stream.is_over()) {
        let heard = line.hear(&mut streams);
        let owed = heard.has() - heard.acknowledged;
        assert!(owed <= WINDOW, "no more than its credit: {:?}", heard.said);
        if owed < step || heard.is_over() {
            continue;
        }
        if actor.below(8) == 0 {
            actor.rest(Duration::from_millis(4));
        }
        // Those that are over may be forgotten.
        let going = streams.iter_mut().filter(|stream| !stream.is_over());
        line.acknowledge(going.map(Stream::acknowledges).collect());
    }
    let ends = streams.iter().map(|stream| stream.outcome(0));
    let outcome = ends.fold(outcome, both);
    assert_ne!(outcome, Outcome::Gone, "its client is there");
    outcome
}

impl Stream {
    fn acknowledges(&mut self) -> Value {
        self.acknowledged = self.has();
        json!({"stream": self.id, "index": self.acknowledged})
    }
}

/// Opens one stream, and hears some messages of it.
fn begun(
    actor: &mut Actor,
    line: &mut Line,
    dialect: Option<&'static Dialect>,
    over: &Value,
) -> Result<Stream, Outcome> {
    let dialect = dialect.unwrap_or_else(|| actor.dialect());
    let question = actor.question_in(dialect, &json!({}));
    let mut stream = line.open(&question, over)?;
    for _ in 0..actor.below(12) {
        if !stream.is_over() {
            line.hear(std::slice::from_mut(&mut stream));
        }
    }
    Ok(stream)
}

pub(super) fn pause(actor: &mut Actor, rig: &Rig) -> Outcome {
    let mut line = Line::new(actor, rig);
    let stream = match begun(actor, &mut line, None, &json!({})) {
        Ok(stream) => stream,
        Err(refused) => return refused,
    };
    for verb in ["pause", "resume"] {
        let told = line.ask(json!({"type": verb, "stream": stream.id}));
        assert!(matches!(told, Ok(_) | Err(Outcome::Gone)), "{told:?}");
        actor.rest(Duration::from_millis(2));
    }
    let outcome = line.whole(stream, 0);
    assert_ne!(outcome, Outcome::Gone, "its client is there");
    outcome
}

pub(super) fn cancel(actor: &mut Actor, rig: &Rig) -> Outcome {
    let mut line = Line::new(actor, rig);
    let stream = match begun(actor, &mut line, None, &json!({})) {
        Ok(stream) => stream,
        Err(refused) => return refused,
    };
    let told = line.ask(json!({"type": "cancel", "stream": stream.id}));
    assert!(matches!(told, Ok(_) | Err(Outcome::Gone)), "{told:?}");
    match line.whole(stream, 0) {
        // That is what was asked for.
        Outcome::Gone => Outcome::Done,
        outcome => outcome,
    }
}

/// Attaches where the client is, on any connection; and reads the rest.
fn rest_of(line: &mut Line, mut stream: Stream, message: Value, from: usize) -> Outcome {
    match line.ask(message) {
        Ok(told) => {
            assert_eq!(told["stream"], *stream.id);
            stream.said.clear();
            line.whole(stream, from)
        }
        Err(refused) => refused,
    }
}

/// Lets go of a stream, and takes it up again.
pub(super) fn detach(actor: &mut Actor, rig: &Rig) -> Outcome {
    let mut line = Line::new(actor, rig);
    let stream = match begun(actor, &mut line, None, &json!({"resumable": true})) {
        Ok(stream) => stream,
        Err(refused) => return refused,
    };
    if stream.is_over() {
        return stream.outcome(0);
    }
    match line.ask(json!({"type": "detach", "stream": stream.id})) {
        Ok(_) => {}
        // It has ended meanwhile.
        Err(Outcome::Gone) => return line.whole(stream, 0),
        Err(refused) => return refused,
    }
    // Messages that were on their way are of the first time.
    let mut line = Line::new(actor, rig);
    let from = actor.below(stream.has() + 1);
    let message = json!({"type": "attach", "stream": stream.id, "from": from});
    rest_of(&mut line, stream, message, from)
}

/// Follows what was opened over HTTP, whose client reads it too.
pub(super) fn attach(actor: &mut Actor, rig: &Rig) -> Outcome {
    let mut question = actor.question(&json!({}));
    question.fields += named::RESUMABLE;
    let (mut client, head) = match question.ask(rig) {
        Ok(open) => open,
        Err(refused) => return refused,
    };
    let mut line = Line::new(actor, rig);
    let id = stream_id(&head);
    let stream = Stream::new(&json!({"stream": id}), question.tokens);
    let attached = line.ask(json!({"type": "attach", "stream": id}));
    // What it is told there waits in its socket; the credit is that of the first.
    let body = client.body();
    let own = super::answer::read(question.dialect, &body, question.tokens);
    let told = attached.map_or_else(|late| late, |_| line.whole(stream, 0));
    both(told, own)
}

/// Loses its connection, and goes on where it was on another.
pub(super) fn cut(actor: &mut Actor, rig: &Rig) -> Outcome {
    let mut line = Line::new(actor, rig);
    let stream = match begun(actor, &mut line, None, &json!({"resumable": true})) {
        Ok(stream) => stream,
        Err(refused) => return refused,
    };
    drop(line);
    let mut line = Line::new(actor, rig);
    let mut message = json!({"type": "attach", "stream": stream.id});
    let cursor = stream.said.iter().rev().find(|m| m["cursor"].is_string());
    if let Some(cursor) = cursor {
        message["after"] = cursor["cursor"].clone();
    }
    let from = stream.has();
    rest_of(&mut line, stream, message, from)
}

/// Loses its connection, and what ran for it alone.
pub(super) fn leave(actor: &mut Actor, rig: &Rig) -> Outcome {
    let mut line = Line::new(actor, rig);
    let begun = begun(actor, &mut line, None, &json!({"resumable": false}));
    begun.map_or_else(|refused| refused, |_| Outcome::Done)
}
