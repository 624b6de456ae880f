//! A NATS server of a test.

use crate::support::wait_until;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use testing::folder::Folder;

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

/// `None`, with a line on stderr: there is no `nats-server`.
#[expect(clippy::print_stderr, reason = "a skipped test must be seen")]
pub(crate) fn start_nats() -> Option<Nats> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).collect::<Vec<_>>();
    places.extend(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let programs = places.iter().map(|place| place.join("nats-server"));
    let chosen = std::env::var_os("MILLRACE_TEST_NATS_SERVER").map(PathBuf::from);
    let found = chosen.or_else(|| programs.into_iter().find(|program| program.is_file()));
    let Some(program) = found else {
        eprintln!("SKIPPED: no nats-server in PATH, and MILLRACE_TEST_NATS_SERVER is not set");
        return None;
    };
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
