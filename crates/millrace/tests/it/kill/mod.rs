//! Streams that outlive the process: the real program, killed with SIGKILL, in the middle of answers.
//!
//! A credit window of seven tokens without acknowledgements parks every stream each seven tokens, in every process. So one
//! kill cuts all streams at known places, and the next process brings each of them seven tokens further.

pub(crate) mod crashing;
mod descriptions;
pub(crate) mod event_reader;
mod full_disk;
pub(crate) mod images;
pub(crate) mod mortal;
pub(crate) mod requests;
mod stored_answers;
mod stored_images;
pub(crate) mod transcript;
mod unread;
pub(crate) mod webhooks;

use crashing::{Client, Crashing, description};
use event_reader::read_events;
use mortal::Mortal;
use requests::{Request, all_requests, in_every_protocol};
use serde_json::{Value, json};
use std::time::Duration;

const DIALECTS: [&str; 8] = [
    "openai.chat",
    "openai.completions",
    "native.job",
    "anthropic.messages",
    "openai.responses",
    "ollama.chat",
    "ollama.generate",
    "ai-sdk.ui",
];
/// Tokens that a choice may be ahead of the acknowledged ones.
const WINDOW: u64 = 7;
pub(crate) const SETTINGS: [(&str, &str); 6] = [
    ("MILLRACE_BACKPRESSURE_MAX_UNACKED_TOKENS", "7"),
    ("MILLRACE_BACKPRESSURE_ACK_TIMEOUT_MS", "600000"),
    ("MILLRACE_STREAMS_DETACHED_TOKENS", "0"),
    ("MILLRACE_STREAMS_RETENTION_S", "600"),
    ("MILLRACE_ADAPTIVE_LIMITS_ENABLED", "false"),
    ("MILLRACE_LOG_FILTER", "warn"),
];
/// Rounds until every stream has ended: more than the tokens of the longest answer need.
const ROUNDS_MAX: usize = 24;

/// What brings a parked stream on.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Onward {
    /// The client acknowledges all tokens.
    Acknowledged,
    /// The process is killed and started again: recovered tokens count as accepted.
    Killed,
    /// The same, and the next process computes with another instruction set.
    Moved,
}

/// One stream with the request that opened it.
struct Opened {
    request: Request,
    stream: String,
}

/// Streams of all requests, and their clients.
pub(crate) struct Scene<S> {
    pub(crate) server: S,
    opened: Vec<Opened>,
    pub(crate) clients: Vec<Client>,
    /// Those of this machine that give equal bits, for the processes after the first one in turn.
    instruction_sets: Vec<&'static str>,
}

impl<S: Mortal + Sync> Scene<S> {
    pub(crate) fn open(server: S, requests: Vec<Request>) -> Self {
        let address = server.address();
        let mut scene = Self {
            server,
            opened: Vec::new(),
            clients: Vec::new(),
            instruction_sets: kernels::Isa::available()
                .map(kernels::Isa::name)
                .filter(|name| !["scalar", "amx"].contains(name))
                .collect(),
        };
        for request in requests {
            let head = format!(
                "POST {} HTTP/1.1\r\nx-stream-resumable: 1\r\nx-stream-acks: explicit",
                request.path
            );
            let body = request.body.to_string();
            let silence = Duration::from_millis(30);
            let reading = read_events(&address, &head, &body, silence).expect("a response");
            assert_eq!(reading.status, 200, "{}: {}", request.case, reading.head);
            let durable = reading.header("x-stream-durable");
            assert_eq!(durable.as_deref(), Some("1"), "{}", request.case);
            let stream = reading.header("x-stream-id").expect("an id");
            // The events of `ai-sdk.ui` do not name their choice.
            let has_choices = !request.body["n"].is_null();
            let dialects = DIALECTS.iter();
            let dialects = dialects.filter(|dialect| !has_choices || **dialect != "ai-sdk.ui");
            let clients = dialects.map(|dialect| Client::new(request.case, &stream, dialect));
            scene.clients.extend(clients);
            scene.opened.push(Opened { request, stream });
        }
        scene
    }

    /// Brings all streams to their ends; returns the rounds.
    pub(crate) fn run(&mut self, onward: Onward) -> usize {
        for round in 0..ROUNDS_MAX {
            self.wait_until_parked();
            self.control(round);
            self.read_on();
            if self.clients.iter().all(|client| client.is_over) {
                return round;
            }
            match onward {
                Onward::Acknowledged => self.acknowledge(),
                Onward::Killed => self.server.replace(None),
                Onward::Moved => {
                    let sets = &self.instruction_sets;
                    self.server.replace(Some(sets[round % sets.len()]));
                }
            }
        }
        let open = self.clients.iter().filter(|client| !client.is_over);
        let open: Vec<_> = open.map(|client| &client.case).collect();
        panic!("not ended after {ROUNDS_MAX} rounds: {open:?}");
    }

    fn describe(&self, opened: &Opened) -> Value {
        description(self.server.serving(), &opened.stream)
    }

    fn wait_until_parked(&self) {
        testing::wait::wait_until("every stream is parked or has ended", || {
            self.opened.iter().all(|opened| {
                let state = self.describe(opened)["state"].clone();
                ["parked", "paused", "ended"]
                    .iter()
                    .any(|rest| state == *rest)
            })
        });
    }

    /// Control updates and pauses of this round.
    fn control(&self, round: usize) {
        for opened in &self.opened {
            let (stream, request) = (&opened.stream, &opened.request);
            let post = |what: &str, body: &str| {
                let reply = self
                    .server
                    .serving()
                    .post(&format!("/v1/streams/{stream}/{what}"), body);
                assert!(reply.starts_with("HTTP/1.1 2"), "{}: {reply}", request.case);
            };
            if let (1, Some(update)) = (round, &request.update) {
                post("control", &update.to_string());
            }
            if request.is_paused && round == 1 {
                post("pause", "{}");
            }
            if request.is_paused && round == 3 {
                assert_eq!(
                    self.describe(opened)["state"],
                    "paused",
                    "after a restart, too"
                );
                post("resume", "{}");
            }
        }
    }

    fn read_on(&mut self) {
        let address = self.server.address();
        let threads = 8;
        let share = self.clients.len().div_ceil(threads);
        std::thread::scope(|scope| {
            for clients in self.clients.chunks_mut(share) {
                let address = &address;
                scope.spawn(move || {
                    for client in clients {
                        let status = client.read_on(address);
                        let is_fine = matches!(status, None | Some(200 | 204));
                        assert!(is_fine, "{}: {status:?}", client.case);
                    }
                });
            }
        });
    }

    fn acknowledge(&self) {
        for opened in &self.opened {
            let told = self.describe(opened);
            for choice in told["choices"].as_array().into_iter().flatten() {
                let body = json!({"index": choice["tokens"], "choice": choice["index"]});
                let path = format!("/v1/streams/{}/ack", opened.stream);
                let reply = self.server.serving().post(&path, &body.to_string());
                assert!(reply.starts_with("HTTP/1.1 2"), "{reply}");
            }
        }
    }
}

/// Kills the server each seven tokens, and compares what every client received with an uninterrupted run, and with one read
/// of the whole stream.
fn check(name: &str, requests: fn() -> Vec<Request>, onward: Onward) {
    let start = |part: &str| Crashing::start(&format!("{name}-{part}"), &SETTINGS);
    let mut whole = Scene::open(start("whole"), requests());
    whole.run(Onward::Acknowledged);
    let mut killed = Scene::open(start("killed"), requests());
    let rounds = killed.run(onward);
    assert!(rounds as u64 >= 28 / WINDOW, "{rounds} kills");
    let address = killed.server.address();
    for (client, uninterrupted) in killed.clients.iter().zip(&whole.clients) {
        let case = &client.case;
        assert_eq!(client.transcript, uninterrupted.transcript, "{case}");
        let mut again = Client::new(case, &client.stream, client.dialect);
        again.read_on(&address);
        assert_eq!(client.transcript, again.transcript, "{case}: read again");
        // Tool calls have no place in a text completion.
        let has_text = !client.transcript.is_empty();
        assert!(
            has_text || case.starts_with("tool call"),
            "{case}: nothing was read"
        );
        assert!(
            client.visits >= 2 || !has_text,
            "{case}: {} visits",
            client.visits
        );
    }
}

/// Promise (Journal): `kill -9` of the program each seven tokens: clients of every wire protocol get the texts,
/// log-probabilities, finish reasons and counts of an uninterrupted run, for n = 2, penalties, schema, tool call,
/// log-probabilities, stop strings half held back, reasoning budget, steered, paused and scored streams, also where
/// each process computes with another vector instruction set.
/// Also held by `millrace/tests/it/kill/mod.rs :: every_protocol_survives_a_kill_each_seven_tokens`,
/// `millrace/tests/it/kill/mod.rs :: stream_continues_on_another_instruction_set`.
#[test]
fn every_kind_of_state_survives_a_kill_each_seven_tokens() {
    check("kill-state", all_requests, Onward::Killed);
}

#[test]
fn every_protocol_survives_a_kill_each_seven_tokens() {
    check("kill-protocols", in_every_protocol, Onward::Killed);
}

#[test]
fn stream_continues_on_another_instruction_set() {
    check("kill-moved", all_requests, Onward::Moved);
}

/// A running stream, killed after a random number of its events.
///
/// Promise (Journal): twenty kills of a running stream at random places change nothing.
#[test]
fn twenty_kills_of_a_running_stream() {
    let settings = SETTINGS.map(|(name, value)| match name {
        "MILLRACE_BACKPRESSURE_MAX_UNACKED_TOKENS" => (name, "16"),
        _ => (name, value),
    });
    let body = json!({
        "messages": [{"role": "user", "content": "Tell me a long story."}], "stream": true, "seed": 11,
        "max_tokens": 1500, "ignore_eos": true, "temperature": 1.0, "frequency_penalty": 0.3, "n": 2,
    });
    let open = |server: &Crashing| {
        let head = "POST /v1/chat/completions HTTP/1.1\r\nx-stream-resumable: 1";
        let silence = Duration::from_millis(1);
        let reading = read_events(&server.address(), head, &body.to_string(), silence);
        reading
            .expect("a response")
            .header("x-stream-id")
            .expect("an id")
    };
    let mut killed = Crashing::start("kill-random", &settings);
    let mut client = Client::new("random", &open(&killed), "openai.chat");
    let mut random = testing::random::Random(18);
    for _ in 0..20 {
        let events = 1 + random.below(24) as usize;
        client.read_until_killed(&mut killed, events);
        killed.restart();
    }
    assert!(!client.is_over, "the stream outlives twenty kills");
    client.read_to_end(&killed.address());
    let whole = Crashing::start("kill-random-whole", &settings);
    let mut uninterrupted = Client::new("random, whole", &open(&whole), "openai.chat");
    uninterrupted.read_to_end(&whole.address());
    assert_eq!(client.transcript, uninterrupted.transcript);
    let description = description(killed.serving(), &client.stream);
    assert_eq!(description["state"], "ended", "{description}");
}
