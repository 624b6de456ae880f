//! A client that reads server-sent events until the connection ends, breaks, or is silent for a while.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long a response's head is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// One event.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) data: String,
}

/// A response, as far as it arrived.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) status: u16,
    pub(crate) head: String,
    /// Whole events; a cut one is dropped, as a client would.
    pub(crate) events: Vec<Event>,
    /// Whether the body was complete, with its last chunk.
    pub(crate) is_complete: bool,
}

/// Sends a request and reads the response until its end, an error, or, after the head, `silence` without a byte.
pub(crate) fn read_events(
    address: &str,
    head: &str,
    body: &str,
    silence: Duration,
) -> std::io::Result<Reading> {
    read_watched(address, head, body, silence, &mut |_| true)
}

/// As [`read_events`], until `watch`, which sees everything that has arrived after each read, returns false.
pub(crate) fn read_watched(
    address: &str,
    head: &str,
    body: &str,
    silence: Duration,
    watch: &mut dyn FnMut(&[u8]) -> bool,
) -> std::io::Result<Reading> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    write!(
        socket,
        "{head}\r\nhost: localhost\r\nconnection: close\r\naccept: text/event-stream\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )?;
    let (mut bytes, mut has_head) = (Vec::new(), false);
    let mut buffer = [0; 16 << 10];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                bytes.extend_from_slice(&buffer[..count]);
                if !has_head && bytes.windows(4).any(|four| four == b"\r\n\r\n") {
                    has_head = true;
                    socket.set_read_timeout(Some(silence))?;
                }
                if !watch(&bytes) {
                    break;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    Ok(Reading::parse(&bytes))
}

impl Reading {
    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let Some((head, rest)) = text.split_once("\r\n\r\n") else {
            return Self::default();
        };
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        let (body, is_complete) = unchunked(rest);
        Self {
            status: status.unwrap_or(0),
            head: head.to_ascii_lowercase(),
            events: whole_events(&body),
            is_complete,
        }
    }

    /// The value of a header field.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let line = self.head.lines().find_map(|line| line.strip_prefix(name));
        Some(line?.trim_start_matches(':').trim().to_owned())
    }
}

/// The body without chunk sizes, up to where it was cut.
fn unchunked(mut rest: &str) -> (String, bool) {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size, 16) else {
            break;
        };
        if size == 0 {
            return (body, true);
        }
        let Some(chunk) = after.get(..size) else {
            body += after;
            break;
        };
        body += chunk;
        rest = after[size..].strip_prefix("\r\n").unwrap_or_default();
    }
    (body, false)
}

fn whole_events(body: &str) -> Vec<Event> {
    let mut events = Vec::new();
    let mut rest = body;
    while let Some((event, after)) = rest.split_once("\n\n") {
        rest = after;
        let field = |name: &str| {
            let value = event.lines().find_map(|line| line.strip_prefix(name));
            value.map(str::to_owned)
        };
        if let Some(data) = field("data: ") {
            events.push(Event {
                id: field("id: "),
                data,
            });
        }
    }
    events
}
