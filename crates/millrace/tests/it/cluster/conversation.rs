//! Streams of all kinds, each read over one connection from its first byte to its last, in rounds: each stream is parked after
//! a window of tokens until all tokens are acknowledged.

use super::processes::address;
use crate::kill::crashing::description;
use crate::kill::event_reader::{Reading, read_watched};
use crate::kill::requests::{Request, all_requests, in_every_protocol};
use crate::kill::transcript::Transcript;
use crate::support::Serving;
use serde_json::{Value, json};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use testing::wait::{PATIENCE, wait_until};

/// Settings with which a stream is parked each seven tokens.
pub(crate) const SETTINGS: [(&str, &str); 8] = [
    ("MILLRACE_BACKPRESSURE_MAX_UNACKED_TOKENS", "7"),
    ("MILLRACE_BACKPRESSURE_ACK_TIMEOUT_MS", "600000"),
    ("MILLRACE_STREAMS_DETACHED_TOKENS", "0"),
    ("MILLRACE_ADAPTIVE_LIMITS_ENABLED", "false"),
    ("MILLRACE_MODEL_THREADS", "1"),
    ("MILLRACE_CLUSTER_HEARTBEAT_MS", "100"),
    ("MILLRACE_JOURNAL_DIRECTORY", ""),
    ("MILLRACE_LOG_FILTER", "warn"),
];
/// The window of [`SETTINGS`].
const WINDOW: u64 = 7;
/// Rounds until every stream has ended: more than the tokens of the longest answer need.
const ROUNDS_MAX: usize = 24;

/// A stream, and the thread that reads its only connection.
struct OpenStream {
    request: Request,
    id: String,
    reader: JoinHandle<Reading>,
}

/// The streams of all requests.
pub(crate) struct Conversation {
    streams: Vec<OpenStream>,
}

impl Conversation {
    pub(crate) fn open(server: &Serving) -> Self {
        let requests = all_requests().into_iter().chain(in_every_protocol());
        Self::of(server, requests)
    }

    /// Streams of these requests.
    pub(crate) fn of(server: &Serving, requests: impl Iterator<Item = Request>) -> Self {
        let streams = requests.map(|request| OpenStream::open(server, request));
        Self {
            streams: streams.collect(),
        }
    }

    /// Brings all streams to their ends; `between` is called with the number of the round while all are parked. Returns what
    /// each client received.
    pub(crate) fn run(
        self,
        server: &Serving,
        mut between: impl FnMut(usize),
    ) -> Vec<(&'static str, Transcript)> {
        for round in 0..ROUNDS_MAX {
            self.wait_until_parked(server);
            if self.have_ended(server) {
                break;
            }
            between(round);
            for stream in &self.streams {
                stream.control(server, round);
                stream.acknowledge(server);
            }
        }
        assert!(self.have_ended(server), "after {ROUNDS_MAX} rounds");
        self.streams.into_iter().map(OpenStream::finish).collect()
    }

    fn have_ended(&self, server: &Serving) -> bool {
        let mut streams = self.streams.iter();
        streams.all(|stream| stream.describe(server)["state"] == "ended")
    }

    fn wait_until_parked(&self, server: &Serving) {
        wait_until("every stream is parked or has ended", || {
            let mut streams = self.streams.iter();
            streams.all(|stream| is_at_rest(&stream.describe(server)))
        });
    }
}

/// Whether a stream has ended, is paused, or has all tokens that its window permits.
fn is_at_rest(described: &Value) -> bool {
    let rests = |choice: &Value| {
        choice["end"].is_string() || choice["unaccepted"].as_u64().is_some_and(|n| n >= WINDOW)
    };
    let choices = described["choices"].as_array();
    described["state"] == "ended"
        || described["state"] == "paused"
        || choices.is_some_and(|choices| choices.iter().all(rests))
}

impl OpenStream {
    fn open(server: &Serving, request: Request) -> Self {
        let (address, body) = (address(server), request.body.to_string());
        let head = format!(
            "POST {} HTTP/1.1\r\nx-stream-resumable: 1\r\nx-stream-acks: explicit",
            request.path
        );
        // One id: later ones find no room.
        let (found, ids) = sync_channel(1);
        let reader = std::thread::spawn(move || {
            let mut watch = |bytes: &[u8]| {
                let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
                if let Some((_, rest)) = text.split_once("x-stream-id: ") {
                    let _ =
                        found.try_send(rest.chars().take_while(|c| !c.is_whitespace()).collect());
                }
                true
            };
            read_watched(&address, &head, &body, PATIENCE, &mut watch).expect("a response")
        });
        Self {
            id: ids.recv_timeout(PATIENCE).expect("a response with an id"),
            request,
            reader,
        }
    }

    fn describe(&self, server: &Serving) -> Value {
        description(server, &self.id)
    }

    /// Control updates and pauses of a round.
    fn control(&self, server: &Serving, round: usize) {
        let post = |what: &str, body: &str| {
            let reply = server.post(&format!("/v1/streams/{}/{what}", self.id), body);
            assert!(
                reply.starts_with("HTTP/1.1 2"),
                "{}: {reply}",
                self.request.case
            );
        };
        if let (1, Some(update)) = (round, &self.request.update) {
            post("control", &update.to_string());
        }
        if self.request.is_paused && round == 1 {
            post("pause", "{}");
        }
        if self.request.is_paused && round == 3 {
            assert_eq!(self.describe(server)["state"], "paused", "still");
            post("resume", "{}");
        }
    }

    fn acknowledge(&self, server: &Serving) {
        let described = self.describe(server);
        for choice in described["choices"].as_array().into_iter().flatten() {
            let body = json!({"index": choice["tokens"], "choice": choice["index"]});
            let path = format!("/v1/streams/{}/ack", self.id);
            let reply = server.post(&path, &body.to_string());
            assert!(reply.starts_with("HTTP/1.1 2"), "{reply}");
        }
    }

    /// What the client received, over one connection that ended as it should.
    fn finish(self) -> (&'static str, Transcript) {
        let case = self.request.case;
        let reading = self.reader.join().expect("a reader");
        assert_eq!((reading.status, reading.is_complete), (200, true), "{case}");
        let mut transcript = Transcript::default();
        for event in &reading.events {
            transcript.add_event(&without_cached(&event.data));
        }
        (case, transcript)
    }
}

/// An event without the number of cached tokens, which depends on the engine.
pub(crate) fn without_cached(data: &str) -> String {
    fn remove(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.remove("cached_tokens");
                fields.values_mut().for_each(remove);
            }
            Value::Array(values) => values.iter_mut().for_each(remove),
            _ => {}
        }
    }
    let Ok(mut event) = serde_json::from_str::<Value>(data) else {
        return data.to_owned();
    };
    remove(&mut event);
    event.to_string()
}
