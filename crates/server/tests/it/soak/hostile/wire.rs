//! A connection that does not mind how the other side ends it.

use crate::support::{PATIENCE, Rig};
use socket2::{Domain, SockRef, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// How an answer ended, and its bytes.
pub(super) struct Received {
    pub(super) bytes: Vec<u8>,
}

impl Received {
    /// The status of the first answer; `None`: the server closed without one.
    pub(super) fn status(&self) -> Option<u16> {
        let text = String::from_utf8_lossy(&self.bytes);
        text.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()
    }

    /// No answer, or one that is not a failure of the server.
    pub(super) fn expect_no_failure(&self, what: &str) {
        let status = self.status().unwrap_or(400);
        assert!(
            status != 500 && status != 501 && status != 502,
            "{what}: {}",
            String::from_utf8_lossy(&self.bytes)
        );
    }
}

/// A TCP connection to the server.
pub(super) struct Wire {
    socket: TcpStream,
}

impl Wire {
    pub(super) fn connect(rig: &Rig) -> Self {
        Self::over(TcpStream::connect(rig.addr).expect("the server listens"))
    }

    /// With a receive buffer as small as the kernel allows.
    pub(super) fn connect_narrow(rig: &Rig) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_recv_buffer_size(2048).expect("a small buffer");
        socket
            .connect(&rig.addr.into())
            .expect("the server listens");
        Self::over(TcpStream::from(socket))
    }

    fn over(socket: TcpStream) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        socket.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        Self { socket }
    }

    /// Whether the server still took these bytes.
    pub(super) fn send(&mut self, bytes: &[u8]) -> bool {
        self.socket.write_all(bytes).is_ok()
    }

    /// One byte at a time until the server has had enough. True: it took them all.
    pub(super) fn drip(&mut self, bytes: &[u8], pause: Duration) -> bool {
        bytes.iter().all(|byte| {
            std::thread::park_timeout(pause);
            self.send(&[*byte])
        })
    }

    /// Sends no more.
    pub(super) fn half_close(&self) {
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Ends the connection by RST.
    pub(super) fn reset(self) {
        let _ = SockRef::from(&self.socket).set_linger(Some(Duration::ZERO));
    }

    /// Up to this many bytes.
    pub(super) fn receive(&mut self, most: usize) -> Received {
        let mut bytes = vec![0; most];
        let mut length = 0;
        while length < most {
            match self.socket.read(&mut bytes[length..]) {
                Ok(0) | Err(_) => break,
                Ok(more) => length += more,
            }
        }
        bytes.truncate(length);
        Received { bytes }
    }

    /// Everything until the server closes, which it must.
    pub(super) fn receive_all(&mut self) -> Received {
        let mut bytes = Vec::new();
        if let Err(error) = self.socket.read_to_end(&mut bytes) {
            assert!(
                !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
                "the server neither answers nor closes after {:?}",
                String::from_utf8_lossy(&bytes)
            );
        }
        Received { bytes }
    }
}
