//! A NATS server of a test.

use crate::support::wait_until;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use testing::folder::Folder;
use testing::program::find_program;

/// A NATS server with JetStream, killed when dropped.
pub(crate) struct Nats {
    child: Child,
    pub(crate) port: u16,
    _store: Folder,
}

impl Drop for Nats {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `None`: there is no `nats-server`, and the test is skipped.
pub(crate) fn start_nats() -> Option<Nats> {
    let program = find_program("nats-server", "TEST_NATS_SERVER")?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let store = Folder::new("nats");
    let child = Command::new(program)
        .args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"])
        .arg(&store.0)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("nats-server listens", || {
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
    });
    Some(Nats {
        child,
        port,
        _store: store,
    })
}
