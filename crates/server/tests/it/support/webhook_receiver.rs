//! A receiver of events on a port of its own, and what a server needs to send to it.

use super::Rig;
use server::{HostPattern, KeyHash, ServerConfig, WebhookSecret, WebhookSecrets, WebhookSettings};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testing::wait::wait_until;

/// Bytes of the tests' secret.
pub const SECRET: [u8; 32] = *b"0123456789abcdef0123456789abcdef";

/// How one request is answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// With this status line and header fields.
    Head(String),
    /// The connection is closed.
    Close,
    /// With nothing, ever.
    Silence,
    /// With this status, and a body without an end.
    EndlessBody(u16),
    /// With header fields without an end.
    EndlessHead,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Received {
    pub head: String,
    pub body: String,
}

impl Received {
    /// The value of a header field.
    pub fn field(&self, name: &str) -> String {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut found = fields.filter(|(found, _)| found.eq_ignore_ascii_case(name));
        let value = found
            .next()
            .unwrap_or_else(|| panic!("no {name}: {}", self.head));
        value.1.to_owned()
    }
}

/// A running receiver. Requests beyond the scripted answers are accepted.
pub struct Receiver {
    pub addr: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    pub fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address");
        let received = Arc::<Mutex<Vec<Received>>>::default();
        let all = Arc::clone(&received);
        let answers: Arc<Mutex<VecDeque<_>>> = Arc::new(Mutex::new(answers.into_iter().collect()));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (all, answers) = (Arc::clone(&all), Arc::clone(&answers));
                std::thread::spawn(move || serve(stream, &all, &answers));
            }
        });
        Self { addr, received }
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    pub fn received(&self) -> Vec<Received> {
        self.received.lock().expect("no panic").clone()
    }

    /// Waits for so many requests.
    pub fn wait_for(&self, count: usize) -> Vec<Received> {
        wait_until("the events arrive", || self.received().len() >= count);
        self.received()
    }
}

fn serve(
    stream: TcpStream,
    all: &Mutex<Vec<Received>>,
    answers: &Mutex<VecDeque<Answer>>,
) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let mut request = Received {
        head,
        body: String::new(),
    };
    let length = request.field("content-length").parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    request.body = String::from_utf8(body).ok()?;
    let answer = {
        let mut all = all.lock().ok()?;
        all.push(request);
        answers.lock().ok()?.pop_front()
    };
    let accepted = Answer::Head("204 No Content\r\n".to_owned());
    answer_with(stream, answer.unwrap_or(accepted))
}

fn answer_with(mut stream: TcpStream, answer: Answer) -> Option<()> {
    match answer {
        Answer::Head(head) => {
            let text = format!("HTTP/1.1 {head}content-length: 0\r\n\r\n");
            stream.write_all(text.as_bytes()).ok()
        }
        Answer::Close => None,
        Answer::Silence => {
            // Until the client gives up.
            stream.read(&mut [0]).ok().map(drop)
        }
        Answer::EndlessBody(status) => {
            let head = format!("HTTP/1.1 {status} Some\r\ncontent-type: text/plain\r\n\r\n");
            stream.write_all(head.as_bytes()).ok()?;
            loop {
                stream.write_all(&[b'x'; 4096]).ok()?;
            }
        }
        Answer::EndlessHead => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n").ok()?;
            loop {
                stream.write_all(b"x-more: and more of it\r\n").ok()?;
            }
        }
    }
}

/// Settings that allow the receivers of tests, with retries at once.
pub fn webhook_settings() -> WebhookSettings {
    WebhookSettings {
        allowed_hosts: vec![HostPattern::parse("127.0.0.1:*").expect("a host")],
        allow_http: true,
        allow_private: true,
        retry: Duration::from_millis(10),
        ..WebhookSettings::default()
    }
}

/// A server's configuration with webhooks.
pub fn config_with(webhooks: WebhookSettings) -> ServerConfig {
    ServerConfig {
        webhooks,
        ..super::config()
    }
}

impl Rig {
    /// The next server that this thread starts signs the events of these keys; `None` without keys.
    pub fn set_next_secrets(keys: Vec<Option<KeyHash>>) {
        let secrets = Arc::new(WebhookSecrets::default());
        let text = WebhookSecret::to_text(&SECRET);
        let secret = || vec![WebhookSecret::parse(&text).expect("a secret")];
        secrets.replace(keys.into_iter().map(|key| (key, secret())));
        Self::set_next_server(|server| server.with_webhook_secrets(secrets));
    }
}
