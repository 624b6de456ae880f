//! Streams that are cut at every byte and resumed, in every wire protocol and for every end: the part before the cut and
//! the part after the cut together equal the uncut stream.
//!
//! Promise (Streams): a stream that is cut at every byte and resumed is the uncut one, in its own wire protocol and
//! in every other, for every end.
//! Also held by `server/tests/it/resume.rs`.
//!
//! Promise (Streams): readers in different wire protocols receive the same text, usage and end.
//! Also held by `server/tests/it/endings`.

use super::scene::{letters, until_ended, until_ended_by_steps};
use super::ways::delete;
use crate::support::automaton::{Story, accept};
use crate::support::dialects::{ALL_DIALECTS, Dialect};
use crate::support::framing::Event;
use crate::support::named::{get, kept, send, set_fields, stream_id};
use crate::support::{Rig, config, wait_until};
use engine::fake::{Fault, FaultAt, FaultKind};
use serde_json::{Value, json};
use server::{ServerConfig, StreamLimits};
use std::time::Duration;

/// A resumable stream.
struct Stream<'a> {
    rig: &'a Rig,
    id: String,
    choices: u64,
}

impl<'a> Stream<'a> {
    fn open(rig: &'a Rig, dialect: &Dialect, over: &Value) -> Self {
        let mut body = json!({"max_tokens": 24, "seed": 7, "ignore_eos": true, "stream": true});
        body["stream_options"] = json!({"include_usage": true});
        (dialect.prompt)(&mut body, "hi");
        set_fields(&mut body, over);
        let n = body["n"].as_u64().unwrap_or(1);
        (dialect.shape)(&mut body);
        let prompts = body["prompt"].as_array().map_or(1, Vec::len) as u64;
        let fields = "x-stream-resumable: 1\r\n";
        let head = send(rig, "POST", dialect.path, fields, &body).head();
        assert_eq!(head.status, 200);
        Self {
            rig,
            id: stream_id(&head),
            choices: n * prompts,
        }
    }

    fn ended(self) -> Self {
        until_ended(self.rig, &self.id);
        self
    }

    fn ended_by_steps(self) -> Self {
        until_ended_by_steps(self.rig, &self.id);
        self
    }

    /// The response after this event id; empty if the client has everything.
    fn after(&self, dialect: &Dialect, place: Option<&str>) -> String {
        let path = format!("/v1/streams/{}/events?dialect={}", self.id, dialect.name);
        let fields = place.map(|place| format!("last-event-id: {place}\r\n"));
        let reply = get(self.rig, &path, &fields.unwrap_or_default());
        match reply.head.status {
            204 => String::new(),
            200 => reply.body,
            status => panic!("{status} after {place:?}: {}", reply.body),
        }
    }

    fn story(&self, dialect: &Dialect, events: &[Event]) -> Story {
        let items = (dialect.frames)(events).unwrap_or_else(|why| panic!("{why}: {events:?}"));
        let story = accept(dialect.rules(self.choices), &items);
        story.unwrap_or_else(|why| panic!("{}: {why}: {events:?}", dialect.name))
    }

    /// Reads the stream in this protocol, with a cut at every byte.
    fn cut_everywhere(&self, dialect: &Dialect) -> Story {
        let body = self.after(dialect, None);
        let whole = (dialect.events)(&body).expect("whole events");
        let told = self.story(dialect, &whole);
        let (mut places, mut seen) = (0, None);
        for cut in 0..=body.len() {
            let got = dialect.events_before_the_cut(&body[..cut]);
            let got = got.expect("whole events");
            // A client uses complete events only.
            if seen.replace(got.len()) == Some(got.len()) {
                continue;
            }
            let rest = (dialect.events)(&self.after(dialect, last_place(&got)));
            let rest = rest.expect("whole events");
            let both: Vec<Event> = got.into_iter().chain(rest).collect();
            let again = self.story(dialect, &both);
            assert_eq!(again, told, "{}: cut at {cut} of {body}", dialect.name);
            places += 1;
        }
        assert_eq!(places, whole.len() + 1, "a cut after every event");
        told
    }

    /// Reads the stream in every protocol; the contents are equal.
    fn cut_in_every_dialect(&self, case: &str) -> Story {
        let mut told = ALL_DIALECTS
            .iter()
            .map(|dialect| self.cut_everywhere(dialect));
        let first = told.next().expect("a dialect");
        for other in told {
            assert_eq!(other.texts, first.texts, "{case}");
            assert!(
                other.has_tokens_of(&first),
                "{case}: {other:?} and {first:?}"
            );
        }
        first
    }
}

fn last_place(events: &[Event]) -> Option<&str> {
    events.iter().rev().find_map(|event| match event {
        Event::Data { id, .. } => id.as_deref(),
        Event::Comment => None,
    })
}

fn made(story: &Story) -> u64 {
    story.tokens.unwrap_or(0)
}

#[test]
fn completed_streams_resume_after_any_cut() {
    let rig = Rig::with(letters(), kept());
    for dialect in &ALL_DIALECTS {
        let plain = Stream::open(&rig, dialect, &json!({})).ended();
        let text = plain.cut_in_every_dialect("length").text().to_owned();
        assert_eq!(text.len(), 24);
        // A stop string that matches, and one that is withheld until the end.
        for stops in [json!([text[7..10]]), json!([format!("{}!", &text[18..])])] {
            let over = json!({"stop": stops});
            let stream = Stream::open(&rig, dialect, &over).ended();
            stream.cut_in_every_dialect("stop");
        }
    }
    for dialect in &ALL_DIALECTS[..2] {
        let stream = Stream::open(&rig, dialect, &json!({"n": 3, "max_tokens": 6})).ended();
        let story = stream.cut_in_every_dialect("n = 3");
        assert_eq!((story.ends.len(), story.tokens), (3, Some(18)));
    }
}

#[test]
fn failed_streams_resume_after_any_cut() {
    for kind in [FaultKind::Panic, FaultKind::NotANumber] {
        let mut faulty = letters();
        let at = FaultAt::Token(u32::from(b'~'));
        faulty.faults = vec![Fault { at, kind }];
        let rig = Rig::with(faulty, kept());
        let says_it = json!({"logit_bias": {"126": 36}, "max_tokens": 200});
        for dialect in &ALL_DIALECTS {
            let stream = Stream::open(&rig, dialect, &says_it).ended();
            let story = stream.cut_in_every_dialect("fails");
            assert!(story.error.is_some() && made(&story) > 1, "{story:?}");
        }
        let mut two = says_it.clone();
        two["n"] = json!(2);
        for dialect in &ALL_DIALECTS[..2] {
            let stream = Stream::open(&rig, dialect, &two).ended();
            assert!(stream.cut_in_every_dialect("n = 2").error.is_some());
        }
        // Each prompt is a request of the engine: the second may have tokens when the first fails.
        let mut prompts = says_it.clone();
        prompts["prompt"] = json!(["one", "two", "three"]);
        let several = (0..100).any(|seed| {
            prompts["seed"] = json!(seed);
            let stream = Stream::open(&rig, &ALL_DIALECTS[1], &prompts).ended();
            let story = stream.cut_in_every_dialect("three prompts");
            assert!(story.error.is_some(), "{story:?}");
            story.texts.len() > 1
        });
        assert!(several, "the second never had tokens");
    }
}

#[test]
fn cancelled_and_timed_out_streams_resume_after_any_cut() {
    const TOTAL: Duration = Duration::from_millis(200);
    for total in [None, Some(TOTAL)] {
        let mut config = ServerConfig {
            streams: StreamLimits {
                retention: Duration::from_secs(3600),
                ..StreamLimits::default()
            },
            ..config()
        };
        config.clocks.total = total;
        let rig = Rig::gated(letters(), config);
        let open = |dialect| Stream::open(&rig, dialect, &json!({}));
        if total.is_some() {
            let streams: Vec<_> = ALL_DIALECTS.iter().map(open).collect();
            rig.gate.allow(6);
            super::clocks::pass(TOTAL);
            for stream in streams {
                stream.ended_by_steps().cut_in_every_dialect("total");
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
            stream.ended_by_steps().cut_in_every_dialect("cancelled");
        }
    }
}

#[test]
fn running_streams_resume_after_any_cut() {
    for dialect in &ALL_DIALECTS {
        let rig = Rig::gated(letters(), kept());
        let stream = Stream::open(&rig, dialect, &json!({}));
        let path = format!("/v1/streams/{}/events?dialect={}", stream.id, dialect.name);
        let mut got = Vec::new();
        // The client reconnects four times, each time after one chunk with an event id.
        for _ in 0..4 {
            let place = last_place(&got).map(|place| format!("last-event-id: {place}\r\n"));
            let mut client = send(&rig, "GET", &path, &place.unwrap_or_default(), &Value::Null);
            assert_eq!(client.head().status, 200);
            rig.gate.allow(2);
            loop {
                let more = (dialect.events)(&client.chunk().expect("it goes on"));
                let more = more.expect("whole events");
                let named = last_place(&more).is_some();
                got.extend(more);
                if named {
                    break;
                }
            }
        }
        rig.gate.open();
        let rest = stream.after(dialect, last_place(&got));
        got.extend((dialect.events)(&rest).expect("whole events"));
        let uncut = (dialect.events)(&stream.after(dialect, None)).expect("whole events");
        assert_eq!(stream.story(dialect, &got), stream.story(dialect, &uncut));
    }
}
