//! A NATS client that publishes what nobody of ours would.

use super::nats_server::NatsServer;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use testing::wait::PATIENCE;

/// A connection without login.
pub(crate) struct RawNats {
    reader: BufReader<TcpStream>,
    socket: TcpStream,
}

impl RawNats {
    pub(crate) fn connect(server: &NatsServer) -> Self {
        let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut reader = BufReader::new(socket.try_clone().unwrap());
        let mut info = String::new();
        reader.read_line(&mut info).unwrap();
        assert!(info.starts_with("INFO "), "{info}");
        socket
            .write_all(b"CONNECT {\"verbose\":false}\r\n")
            .unwrap();
        Self { reader, socket }
    }

    /// Publishes a message; `reply` is the subject of an answer, or empty.
    pub(crate) fn publish(&mut self, subject: &str, reply: &str, payload: &[u8]) {
        let mut command = format!("PUB {subject} {reply} {}\r\n", payload.len()).into_bytes();
        command.extend_from_slice(payload);
        command.extend_from_slice(b"\r\n");
        self.socket.write_all(&command).unwrap();
    }

    /// Returns when the server has taken everything so far.
    pub(crate) fn flush(&mut self) {
        self.socket.write_all(b"PING\r\n").unwrap();
        loop {
            let mut line = String::new();
            assert!(self.reader.read_line(&mut line).unwrap() > 0, "closed");
            match line.trim() {
                "PONG" => return,
                "PING" => self.socket.write_all(b"PONG\r\n").unwrap(),
                other => assert!(!other.starts_with("-ERR"), "{other}"),
            }
        }
    }
}
