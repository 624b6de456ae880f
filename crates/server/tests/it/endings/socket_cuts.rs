//! Streams over a WebSocket whose connection is lost after any message: the messages before and those after the cursor of
//! the last message together equal the uncut stream.
//!
//! Promise (Streams): a WebSocket lost after any message, and continued from the last cursor, has delivered what an
//! uncut one delivers, for every end.

use super::scene::{letters, until_ended, until_ended_by_steps};
use super::socket::{Socket, items, rules};
use super::ways::delete;
use crate::support::automaton::{Story, accept};
use crate::support::dialects::{ALL_DIALECTS, Dialect};
use crate::support::named::{kept, set_fields};
use crate::support::{Rig, wait_until};
use engine::fake::{Fault, FaultAt, FaultKind};
use serde_json::{Value, json};
use std::time::Duration;

/// A stream that was opened over a WebSocket.
struct Stream<'a> {
    rig: &'a Rig,
    id: String,
    choices: u64,
}

impl<'a> Stream<'a> {
    /// Opens a stream and disconnects.
    fn open(rig: &'a Rig, dialect: &Dialect, over: &Value) -> Self {
        let mut body = json!({"max_tokens": 24, "seed": 7, "ignore_eos": true});
        (dialect.prompt)(&mut body, "hi");
        set_fields(&mut body, over);
        let choices = body["n"].as_u64().unwrap_or(1);
        (dialect.shape)(&mut body);
        let id = Socket::open(rig, dialect, true, body, "").id();
        let id = id.expect("it is opened");
        Self { rig, id, choices }
    }

    fn ended(self) -> Self {
        until_ended(self.rig, &self.id);
        self
    }

    fn ended_by_steps(self) -> Self {
        until_ended_by_steps(self.rig, &self.id);
        self
    }

    fn after(&self, place: Option<&str>) -> Vec<Value> {
        let messages = Socket::attach(self.rig, &self.id, place).messages();
        messages.unwrap_or_else(|why| panic!("after {place:?}: {why}"))
    }

    fn story(&self, messages: &[Value]) -> Story {
        let items = items(messages).unwrap_or_else(|why| panic!("{why}: {messages:?}"));
        let story = accept(rules(self.choices), &items);
        story.unwrap_or_else(|why| panic!("{why}: {messages:?}"))
    }

    /// Reads the stream with a cut after each message, also after the last.
    fn cut_everywhere(&self, case: &str) -> Story {
        let whole = self.after(None);
        let told = self.story(&whole);
        for cut in 0..=whole.len() {
            let got = &whole[..cut];
            let both = joined(got, self.after(last_place(got)));
            assert_eq!(self.story(&both), told, "{case}: cut after {got:?}");
        }
        told
    }
}

/// The messages before and after a cut. Each connection has one `started` and one `ended`; repeated ones must be equal.
fn joined(got: &[Value], rest: Vec<Value>) -> Vec<Value> {
    let mut both = got.to_vec();
    let has = |kind: &str| got.iter().any(|message| message["type"] == kind);
    let (started, over) = (has("started"), has("ended"));
    for message in rest {
        match message["type"].as_str() {
            Some("started") if started => {}
            Some("ended") if over => assert_eq!(untimed(&message), untimed(&both[got.len() - 1])),
            _ => both.push(message),
        }
    }
    both
}

/// The message without measured times.
fn untimed(message: &Value) -> Value {
    let mut message = message.clone();
    message["decode_time_ms"] = Value::Null;
    message
}

fn last_place(messages: &[Value]) -> Option<&str> {
    let mut places = messages.iter().rev();
    places.find_map(|message| message["cursor"].as_str())
}

#[test]
fn sockets_of_completed_streams_resume_after_any_cut() {
    let rig = Rig::with(letters(), kept());
    for dialect in &ALL_DIALECTS {
        let plain = Stream::open(&rig, dialect, &json!({})).ended();
        let text = plain.cut_everywhere(dialect.name).text().to_owned();
        assert_eq!(text.len(), 24);
        let over = json!({"stop": [text[7..10]]});
        let stopped = Stream::open(&rig, dialect, &over).ended();
        let stopped = stopped.cut_everywhere(dialect.name);
        assert!(stopped.text().len() < 10, "{stopped:?}");
    }
    for dialect in &ALL_DIALECTS[..2] {
        let three = Stream::open(&rig, dialect, &json!({"n": 3, "max_tokens": 6})).ended();
        let story = three.cut_everywhere("n = 3");
        assert_eq!((story.ends.len(), story.tokens), (3, Some(18)));
    }
}

#[test]
fn sockets_of_failed_streams_resume_after_any_cut() {
    for kind in [FaultKind::Panic, FaultKind::NotANumber] {
        let mut faulty = letters();
        let at = FaultAt::Token(u32::from(b'~'));
        faulty.faults = vec![Fault { at, kind }];
        let rig = Rig::with(faulty, kept());
        let says_it = json!({"logit_bias": {"126": 36}, "max_tokens": 200});
        for dialect in &ALL_DIALECTS {
            let stream = Stream::open(&rig, dialect, &says_it).ended();
            let story = stream.cut_everywhere(dialect.name);
            assert!(story.error.is_some() && story.tokens > Some(1), "{story:?}");
        }
    }
}

#[test]
fn sockets_of_cancelled_and_timed_out_streams_resume_after_any_cut() {
    for total in [None, Some(Duration::from_millis(200))] {
        let mut config = kept();
        config.clocks.total = total;
        let rig = Rig::gated(letters(), config);
        let open = |dialect| Stream::open(&rig, dialect, &json!({}));
        if let Some(total) = total {
            let streams: Vec<_> = ALL_DIALECTS.iter().map(open).collect();
            rig.gate.allow(6);
            super::clocks::pass(total);
            for (stream, dialect) in streams.into_iter().zip(&ALL_DIALECTS) {
                stream.ended_by_steps().cut_everywhere(dialect.name);
            }
            continue;
        }
        for dialect in &ALL_DIALECTS {
            let stream = open(dialect);
            let before = rig.engine.stats().tokens_generated();
            rig.gate.allow(6);
            wait_until("it has some text", || {
                rig.engine.stats().tokens_generated() == before + 6
            });
            delete(&rig, &stream.id);
            stream.ended_by_steps().cut_everywhere(dialect.name);
        }
    }
}

#[test]
fn sockets_of_running_streams_resume_after_any_cut() {
    for dialect in &ALL_DIALECTS {
        let rig = Rig::gated(letters(), kept());
        let stream = Stream::open(&rig, dialect, &json!({}));
        let mut got: Vec<Value> = Vec::new();
        // The client reconnects four times, each time after one message with a cursor.
        for _ in 0..4 {
            let mut socket = Socket::attach(&rig, &stream.id, last_place(&got));
            rig.gate.allow(2);
            let mut rest = Vec::new();
            while last_place(&rest).is_none() {
                rest.push(socket.next());
            }
            got = joined(&got, rest);
        }
        rig.gate.open();
        let got = joined(&got, stream.after(last_place(&got)));
        assert_eq!(stream.story(&got), stream.story(&stream.after(None)));
    }
}
