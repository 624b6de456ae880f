//! HTTP by hand, over a socket that does not block: little work per frame, so that the server is what is measured.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// A connection, and what was read ahead on it.
pub struct Client {
    stream: TcpStream,
    ahead: Vec<u8>,
    /// Bytes of `ahead` that were given out.
    at: usize,
}

/// An answer's head.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    pub status: u16,
    pub retry_after: Option<Duration>,
    /// `None`: in chunks.
    length: Option<usize>,
}

impl Client {
    pub async fn connect(addr: SocketAddr) -> io::Result<Self> {
        Ok(Self::over(TcpStream::connect(addr).await?))
    }

    /// Whose own receive buffer is small, so that the server's side fills soon.
    pub async fn narrow(addr: SocketAddr) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(4096)?;
        Ok(Self::over(socket.connect(addr).await?))
    }

    fn over(stream: TcpStream) -> Self {
        Self {
            stream,
            ahead: Vec::with_capacity(8 << 10),
            at: 0,
        }
    }

    /// Posts JSON and reads the answer's head.
    pub async fn post(&mut self, path: &str, body: &str) -> io::Result<Head> {
        self.post_with(path, "", body).await
    }

    /// The same, with these header fields, a line each.
    pub async fn post_with(&mut self, path: &str, fields: &str, body: &str) -> io::Result<Head> {
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\n{fields}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.stream.write_all(request.as_bytes()).await?;
        self.head().await
    }

    /// The body of what is at this path.
    pub async fn get(&mut self, path: &str) -> io::Result<String> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        self.stream.write_all(request.as_bytes()).await?;
        let head = self.head().await?;
        self.text(head).await
    }

    /// All of the body.
    pub async fn text(&mut self, head: Head) -> io::Result<String> {
        let mut text = Vec::new();
        match head.length {
            Some(length) => {
                while self.ahead.len() - self.at < length {
                    self.more().await?;
                }
                text.extend_from_slice(&self.ahead[self.at..self.at + length]);
                self.at += length;
            }
            None => while self.chunk(|bytes| text.extend_from_slice(bytes)).await? {},
        }
        String::from_utf8(text).map_err(io::Error::other)
    }

    /// The next chunk of the body; false at its end.
    pub async fn chunk(&mut self, mut take: impl FnMut(&[u8])) -> io::Result<bool> {
        let line = self.find(b"\r\n").await?;
        let digits = std::str::from_utf8(&self.ahead[self.at..line]).map_err(io::Error::other)?;
        let length = usize::from_str_radix(digits, 16).map_err(io::Error::other)?;
        let start = line + 2 - self.at;
        while self.ahead.len() - self.at < start + length + 2 {
            self.more().await?;
        }
        let from = self.at + start;
        take(&self.ahead[from..from + length]);
        self.at = from + length + 2;
        Ok(length > 0)
    }

    async fn head(&mut self) -> io::Result<Head> {
        let end = self.find(b"\r\n\r\n").await?;
        let head = String::from_utf8_lossy(&self.ahead[self.at..end]).to_ascii_lowercase();
        self.at = end + 4;
        let field = |name: &str| {
            let mut lines = head.lines();
            lines.find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
        };
        let status = head.get(9..12).and_then(|digits| digits.parse().ok());
        Ok(Head {
            status: status.ok_or_else(|| io::Error::other("no status"))?,
            retry_after: field("retry-after-ms:").map(Duration::from_millis),
            length: field("content-length:").and_then(|n| usize::try_from(n).ok()),
        })
    }

    /// Where this is, beyond what was given out.
    async fn find(&mut self, what: &[u8]) -> io::Result<usize> {
        loop {
            let ahead = &self.ahead[self.at..];
            if let Some(found) = ahead.windows(what.len()).position(|here| here == what) {
                return Ok(self.at + found);
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> io::Result<()> {
        self.ahead.drain(..self.at);
        self.at = 0;
        match self.stream.read_buf(&mut self.ahead).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}
