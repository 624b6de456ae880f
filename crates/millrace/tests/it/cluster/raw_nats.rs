//! A NATS client that publishes what nobody of ours would.

use super::nats_server::NatsServer;
use std::io::{BufRead, BufReader, Read, Write};
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

    /// The next message of a subject for which `is_wanted` holds.
    pub(crate) fn hear(&mut self, subject: &str, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        write!(self.socket, "SUB {subject} 1\r\n").unwrap();
        loop {
            let mut line = String::new();
            assert!(self.reader.read_line(&mut line).unwrap() > 0, "closed");
            if line.trim() == "PING" {
                self.socket.write_all(b"PONG\r\n").unwrap();
            }
            let Some(head) = line.strip_prefix("MSG ") else {
                continue;
            };
            let length = head.trim().rsplit(' ').next().unwrap();
            let mut payload = vec![0; length.parse::<usize>().unwrap() + 2];
            self.reader.read_exact(&mut payload).unwrap();
            payload.truncate(payload.len() - 2);
            if is_wanted(&payload) {
                self.socket.write_all(b"UNSUB 1\r\n").unwrap();
                return payload;
            }
        }
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
                // Also messages of an earlier subscription.
                other => assert!(!other.starts_with("-ERR"), "{other}"),
            }
        }
    }
}
