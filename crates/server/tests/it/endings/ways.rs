//! The ways in which a client reads a response.

use super::socket::Socket;
use crate::support::Rig;
use crate::support::automaton::{Item, Rules, Story, accept};
use crate::support::client::{Client, Head, get};
use crate::support::dialects::{ALL_DIALECTS, Dialect, Fate, JOBS, Words};
use crate::support::framing::job_shown;
use crate::support::named::{call, send, set_fields, stream_id};
use crate::support::wait_until;
use serde_json::{Value, json};

/// How a request is sent and how its response is read.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    Streamed(&'static Dialect),
    Whole(&'static Dialect),
    /// A stream in the first protocol, which a second client reads in the second protocol.
    Resumed(&'static Dialect, &'static Dialect),
    /// Over a WebSocket, requested in this protocol.
    Socket(&'static Dialect),
    /// A resumable stream over a WebSocket, which a second WebSocket reads as well.
    Joined(&'static Dialect),
    /// A job that a second client watches.
    Watched,
    /// A job whose state is polled.
    Polled,
}

/// All ways.
pub(crate) fn ways() -> Vec<Way> {
    let mut ways = vec![Way::Watched, Way::Polled];
    for dialect in &ALL_DIALECTS {
        ways.extend([Way::Streamed(dialect), Way::Whole(dialect)]);
        ways.extend([Way::Socket(dialect), Way::Joined(dialect)]);
        ways.extend(
            ALL_DIALECTS
                .iter()
                .map(|other| Way::Resumed(dialect, other)),
        );
    }
    ways
}

impl Way {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Streamed(dialect) => format!("{}, streamed", dialect.name),
            Self::Whole(dialect) => format!("{}, whole", dialect.name),
            Self::Resumed(dialect, other) => format!("{}, read as {}", dialect.name, other.name),
            Self::Socket(dialect) => format!("{}, over a socket", dialect.name),
            Self::Joined(dialect) => format!("{}, over two sockets", dialect.name),
            Self::Watched => "job, watched".to_owned(),
            Self::Polled => "job, polled".to_owned(),
        }
    }

    /// Whether the stream continues without its client.
    pub(crate) fn is_resumable(self) -> bool {
        !matches!(self, Self::Streamed(_) | Self::Whole(_) | Self::Socket(_))
    }

    /// The protocol of the request.
    pub(crate) fn dialect(self) -> &'static Dialect {
        match self {
            Self::Streamed(dialect)
            | Self::Whole(dialect)
            | Self::Resumed(dialect, _)
            | Self::Socket(dialect)
            | Self::Joined(dialect) => dialect,
            Self::Watched | Self::Polled => JOBS,
        }
    }

    /// Whether the prompt is text around a gap, to which the model's answer is another one.
    pub(crate) fn has_gap(self) -> bool {
        self.dialect().name == "llama.infill"
    }

    /// Sends a request on a new connection. `fields` are header fields.
    pub(crate) fn ask(self, rig: &Rig, prompt: &str, over: &Value, fields: &str) -> Asked {
        let mut body = json!({"max_tokens": 24, "seed": 7, "ignore_eos": true});
        (self.dialect().prompt)(&mut body, prompt);
        body["stream"] = json!(!matches!(self, Self::Whole(_)));
        body["stream_options"] = json!({"include_usage": true});
        set_fields(&mut body, over);
        (self.dialect().shape)(&mut body);
        let resumable = self.is_resumable();
        if matches!(self, Self::Socket(_) | Self::Joined(_)) {
            let socket = Socket::open(rig, self.dialect(), resumable, body, fields);
            return Asked {
                socket: Some(socket),
                ..Asked::new(self)
            };
        }
        let path = match self {
            Self::Watched | Self::Polled => "/v1/jobs",
            _ => self.dialect().path,
        };
        let fields = format!("{fields}x-stream-resumable: {}\r\n", u8::from(resumable));
        Asked {
            client: Some(send(rig, "POST", path, &fields, &body)),
            ..Asked::new(self)
        }
    }
}

/// A request whose response is being read.
pub(crate) struct Asked {
    pub(crate) way: Way,
    /// The connection of the request; `None` after the client has disconnected.
    client: Option<Client>,
    /// The response head, once read.
    head: Option<Head>,
    /// The connection of the second reader, with the response head; read at once, because the server may shut down.
    other: Option<(Client, Head)>,
    /// The WebSocket of the request, and that of the second reader.
    socket: Option<Socket>,
    joined: Option<Socket>,
    /// The stream id, where known.
    id: Option<String>,
}

impl Asked {
    fn new(way: Way) -> Self {
        Self {
            way,
            client: None,
            head: None,
            other: None,
            socket: None,
            joined: None,
            id: None,
        }
    }

    /// Waits for the stream id, where the response has one before the end, and connects the second reader.
    pub(crate) fn named(mut self, rig: &Rig) -> Self {
        if matches!(self.way, Way::Whole(_)) {
            return self;
        }
        if let Some(socket) = &mut self.socket {
            self.id = socket.id();
            self.joined = self.join(rig);
            return self;
        }
        let head = self.client.as_mut().expect("its own client").head();
        self.id = head.get("x-stream-id").map(str::to_owned);
        self.head = Some(head);
        self.other = self.come_back(rig);
        self
    }

    /// Disconnects the client, then reconnects to a resumable stream.
    pub(crate) fn left(mut self, rig: &Rig) -> Option<Self> {
        (self.client, self.other) = (None, None);
        (self.socket, self.joined) = (None, None);
        self.other = self.come_back(rig);
        self.joined = self.join(rig);
        self.way.is_resumable().then_some(self)
    }

    fn join(&self, rig: &Rig) -> Option<Socket> {
        let id = self.id.as_deref()?; // None for a rejected request.
        let mut socket = match self.way {
            Way::Joined(_) => Socket::attach(rig, id, None),
            _ => return None,
        };
        // The reply is read now, because the server may shut down.
        socket.id();
        Some(socket)
    }

    fn come_back(&self, rig: &Rig) -> Option<(Client, Head)> {
        let id = self.id.as_deref()?; // None for a rejected request.
        let path = match self.way {
            Way::Resumed(_, other) => format!("/v1/streams/{id}/events?dialect={}", other.name),
            Way::Watched => format!("/v1/jobs/{id}/stream"),
            _ => return None,
        };
        let mut client = send(rig, "GET", &path, "", &Value::Null);
        let head = client.head();
        Some((client, head))
    }

    /// Reads the response to the end, which must be `fate`, once, in each protocol in which it is read.
    pub(crate) fn ends(self, rig: &Rig, fate: Fate) -> Story {
        let name = self.way.name();
        self.told(rig, fate)
            .unwrap_or_else(|why| panic!("{name}, {fate:?}: {why}"))
    }

    /// The content that both WebSockets received.
    fn told_over_sockets(self, fate: Fate) -> Result<Story, String> {
        let told = |socket: Option<Socket>| socket.map(|socket| socket.told(fate)).transpose();
        match (told(self.socket)?, told(self.joined)?) {
            (Some(own), Some(again)) => agree(own, &again),
            (own, again) => own.or(again).ok_or("its client left".to_owned()),
        }
    }

    fn told(mut self, rig: &Rig, fate: Fate) -> Result<Story, String> {
        if matches!(self.way, Way::Socket(_) | Way::Joined(_)) {
            return self.told_over_sockets(fate);
        }
        let dialect = self.way.dialect();
        let own = match self.client.take() {
            None => None,
            Some(mut client) => {
                let head = self.head.take().unwrap_or_else(|| client.head());
                let body = client.rest(&head);
                if head.status >= 400 {
                    return refused(dialect, &head, &body, fate);
                }
                Some((head, body))
            }
        };
        match (self.way, own) {
            (Way::Whole(_), Some((head, body))) => {
                let items = (dialect.whole)(head.status, &parse(&body)?)?;
                checked(dialect.rules(1), &items, (dialect.answered)(fate).1)
            }
            (Way::Resumed(_, other), own) => {
                let again = read(other, self.other.ok_or("nobody came back")?, fate)?;
                let Some((_, body)) = own else {
                    return Ok(again);
                };
                agree(streamed(dialect, &body, fate)?, &again)
            }
            (Way::Watched, _) => read(dialect, self.other.ok_or("nobody watches")?, fate),
            (Way::Polled, _) => {
                let path = format!("/v1/jobs/{}", self.id.ok_or("no name")?);
                let shown = || get(rig.addr, &path).json();
                wait_until("the job ends", || shown()["state"] == "ended");
                let items = job_shown(&shown())?;
                checked(dialect.rules(1), &items, (dialect.streamed)(fate))
            }
            (_, Some((_, body))) => streamed(dialect, &body, fate),
            (_, None) => Err("its client left".to_owned()),
        }
    }
}

/// The content for two readers, which must be equal.
fn agree(story: Story, again: &Story) -> Result<Story, String> {
    if again.texts == story.texts && again.has_tokens_of(&story) {
        Ok(story)
    } else {
        Err(format!("two readers: {story:?} and {again:?}"))
    }
}

/// Cancels a stream.
pub(crate) fn delete(rig: &Rig, id: &str) {
    let path = format!("/v1/streams/{id}");
    assert_eq!(
        call(rig, "DELETE", &path, "", &Value::Null).head.status,
        202
    );
}

/// The description of each open stream.
pub(crate) fn listed(rig: &Rig) -> Vec<Value> {
    let (mut streams, mut path) = (Vec::new(), "/v1/streams?limit=100".to_owned());
    loop {
        let page = get(rig.addr, &path).json();
        streams.extend_from_slice(page["data"].as_array().expect("a page"));
        match page["next"].as_u64() {
            Some(next) => path = format!("/v1/streams?limit=100&after={next}"),
            None => return streams,
        }
    }
}

fn read(dialect: &Dialect, other: (Client, Head), fate: Fate) -> Result<Story, String> {
    let (mut client, head) = other;
    match head.status {
        200 => {
            assert_eq!(stream_id(&head).len(), 32);
            streamed(dialect, &client.body(), fate)
        }
        // Rejected before the start: the error has the protocol of the path.
        _ if head.status >= 400 => {
            let said = client.rest(&head);
            let known = ALL_DIALECTS.iter().any(|dialect| {
                let (status, told) = (dialect.answered)(fate);
                // Invalid fields have no error code of their own.
                matches!(told, Words::Error(_, says) if said.contains(says))
                    && status == head.status
            });
            if known {
                Ok(Story::default())
            } else {
                Err(format!("{}: {said}", head.status))
            }
        }
        status => Err(format!("status {status}")),
    }
}

fn streamed(dialect: &Dialect, body: &str, fate: Fate) -> Result<Story, String> {
    let items = (dialect.frames)(&(dialect.events)(body)?)?;
    let told = checked(dialect.rules(1), &items, (dialect.streamed)(fate));
    told.map_err(|why| format!("{why}\n{body}"))
}

fn refused(dialect: &Dialect, head: &Head, body: &str, fate: Fate) -> Result<Story, String> {
    let (status, words) = (dialect.answered)(fate);
    if head.status != status {
        return Err(format!("status {}, not {status}: {body}", head.status));
    }
    let retry = head.get("retry-after-ms").is_some();
    if retry != matches!(status, 503 | 529) {
        return Err(format!("when to come back: {head:?}"));
    }
    let items = (dialect.whole)(status, &parse(body)?)?;
    checked(dialect.rules(1), &items, words)
}

/// The content of a transcript, whose end must be `words`.
pub(crate) fn checked(rules: Rules, items: &[Item], words: Words) -> Result<Story, String> {
    let story = accept(rules, items)?;
    let is = match (words, &story.error) {
        (Words::End(word), None) => story.ends.get(&0).is_some_and(|told| told == word),
        (Words::Error(code, says), Some((told, message))) => told == code && message.contains(says),
        _ => false,
    };
    if is {
        Ok(story)
    } else {
        Err(format!("not {words:?}: {story:?}"))
    }
}

fn parse(body: &str) -> Result<Value, String> {
    serde_json::from_str(body).map_err(|error| format!("{error}: {body}"))
}
