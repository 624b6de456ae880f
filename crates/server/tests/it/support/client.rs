//! An HTTP client that exposes every byte of a response.

use super::described::RequestLine;
use serde_json::Value;
use socket2::{Domain, Socket, Type};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A connection, with bytes that were read ahead.
pub struct Client {
    stream: BufReader<TcpStream>,
    /// Deadline for the response to the last request.
    until: Instant,
    /// Requests without a response so far, in their order.
    requests: VecDeque<Option<RequestLine>>,
    /// The request whose response is being read.
    answered: Option<RequestLine>,
}

/// Deadline of one response. The timeout of a read alone would never pass while keep-alives arrive.
#[expect(clippy::disallowed_methods, reason = "a guard against hanging")]
fn patience() -> Instant {
    Instant::now() + Duration::from_secs(300)
}

/// Status and header fields of a response.
#[derive(Debug)]
pub struct Head {
    pub status: u16,
    pub fields: Vec<(String, String)>,
}

impl Head {
    /// The value of a header field.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.as_str())
    }
}

/// A complete response.
#[derive(Debug)]
pub struct Reply {
    pub head: Head,
    pub body: String,
}

impl Reply {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    /// The data of the SSE events of the body.
    pub fn frames(&self) -> Vec<String> {
        assert!(
            self.body.ends_with("\n\n"),
            "cut within a frame: {:?}",
            self.body
        );
        self.body
            .split_terminator("\n\n")
            .map(|f| f.strip_prefix("data: ").unwrap_or(f).to_owned())
            .collect()
    }

    /// The JSON objects of the SSE events, without `[DONE]` and comments.
    pub fn chunks(&self) -> Vec<Value> {
        let frames = self.frames();
        frames
            .iter()
            .filter(|f| f.starts_with('{'))
            .map(|f| serde_json::from_str(f).unwrap())
            .collect()
    }

    /// The text of a streamed chat, which has come to its end.
    pub fn chat_text(&self) -> String {
        assert_eq!(self.head.status, 200, "{}", self.body);
        assert!(self.body.ends_with("data: [DONE]\n\n"), "{}", self.body);
        let chunks = self.chunks();
        let pieces = chunks
            .iter()
            .filter_map(|c| c["choices"][0]["delta"]["content"].as_str());
        pieces.collect()
    }
}

impl Client {
    /// A new connection.
    pub fn connect(addr: SocketAddr) -> Self {
        Self::over(TcpStream::connect(addr).expect("the server listens"))
    }

    /// A new connection whose own receive buffer is so small: the server's side fills soon.
    pub fn narrow(addr: SocketAddr, receive_buffer: usize) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket
            .set_recv_buffer_size(receive_buffer)
            .expect("a small buffer");
        socket.connect(&addr.into()).expect("the server listens");
        Self::over(TcpStream::from(socket))
    }

    /// A client over an open connection.
    pub fn over(stream: TcpStream) -> Self {
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        Self {
            stream: BufReader::new(stream),
            until: patience(),
            requests: VecDeque::new(),
            answered: None,
        }
    }

    /// Sends bytes unchanged.
    pub fn send(&mut self, bytes: &[u8]) {
        self.until = patience();
        self.requests.extend(RequestLine::parse_all(bytes));
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// Closes the sending direction.
    pub fn finish_sending(&self) {
        self.stream.get_ref().shutdown(Shutdown::Write).unwrap();
    }

    /// Sends a request with a JSON body.
    pub fn post(&mut self, path: &str, body: &Value) {
        self.send(&request(path, body));
    }

    /// Reads the response head; `None` if the server closed the connection.
    pub fn try_head(&mut self) -> Option<Head> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line).ok()? == 0 {
                return None;
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let status = lines[0].split(' ').nth(1)?.parse().ok()?;
        let field = |line: &String| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        self.answered = self.requests.pop_front().flatten();
        Some(Head {
            status,
            fields: lines[1..].iter().filter_map(field).collect(),
        })
    }

    /// Reads the response head, which must arrive.
    pub fn head(&mut self) -> Head {
        self.try_head().expect("an answer")
    }

    #[expect(clippy::disallowed_methods, reason = "a guard against hanging")]
    fn is_in_time(&self) -> bool {
        Instant::now() < self.until
    }

    /// Reads one chunk of a chunked body; `None` at the end of the body.
    pub fn chunk(&mut self) -> Option<String> {
        assert!(self.is_in_time(), "it goes on and on, with pings perhaps");
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let length = usize::from_str_radix(line.trim_end(), 16)
            .unwrap_or_else(|_| panic!("no chunk: {line:?}"));
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes[length..], b"\r\n");
        bytes.truncate(length);
        (length > 0).then(|| String::from_utf8(bytes).expect("UTF-8 is never split over frames"))
    }

    /// Reads the rest of a chunked body.
    pub fn body(&mut self) -> String {
        std::iter::from_fn(|| self.chunk()).collect()
    }

    /// Reads a complete response.
    pub fn reply(&mut self) -> Reply {
        let head = self.head();
        let body = self.rest(&head);
        Reply { head, body }
    }

    /// Reads the body after a response head.
    pub fn rest(&mut self, head: &Head) -> String {
        let body = self.unchecked_rest(head);
        if let Some(request) = self.answered.take() {
            request.check(head, &body);
        }
        body
    }

    fn unchecked_rest(&mut self, head: &Head) -> String {
        if head.get("transfer-encoding") == Some("chunked") {
            return self.body();
        }
        let length: usize = head
            .get("content-length")
            .and_then(|n| n.parse().ok())
            .unwrap_or(0);
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// Whether the server closed the connection without another byte.
    pub fn is_closed(&mut self) -> bool {
        match self.stream.fill_buf() {
            Ok(more) => more.is_empty(),
            // The read timed out, or the server reset the connection.
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }
}

/// The bytes of a POST request with a JSON body.
pub fn request(path: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Sends a POST request on a new connection, and reads the response.
pub fn post(addr: SocketAddr, path: &str, body: &Value) -> Reply {
    let mut client = Client::connect(addr);
    client.post(path, body);
    client.reply()
}

/// Sends a GET request on a new connection, and reads the response.
pub fn get(addr: SocketAddr, path: &str) -> Reply {
    let mut client = Client::connect(addr);
    client.send(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes());
    client.reply()
}
