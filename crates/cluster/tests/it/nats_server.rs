//! A NATS server as a child process.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use testing::folder::Folder;
use testing::program::find_program;
use testing::wait::wait_until;

/// The program; `None`: the test is skipped.
pub(crate) fn program() -> Option<PathBuf> {
    find_program("nats-server", "TEST_NATS_SERVER")
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// A server that is killed when dropped.
pub(crate) struct NatsServer {
    program: PathBuf,
    config: PathBuf,
    folder: Folder,
    child: Option<Child>,
    pub(crate) port: u16,
}

impl NatsServer {
    /// A server with these lines of configuration beside its address; not started.
    pub(crate) fn new(program: PathBuf, name: &str, lines: &str) -> Self {
        let (folder, port) = (Folder::new(name), free_port());
        let config = folder.0.join("nats.conf");
        let text = format!("listen: \"127.0.0.1:{port}\"\nserver_name: \"{name}\"\n{lines}\n");
        std::fs::write(&config, text).unwrap();
        Self {
            program,
            config,
            folder,
            child: None,
            port,
        }
    }

    /// Starts the process, and waits until it accepts connections.
    pub(crate) fn start(&mut self) {
        let log = File::create(self.folder.0.join("log")).unwrap();
        let child = Command::new(&self.program)
            .arg("-c")
            .arg(&self.config)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
        let port = self.port;
        wait_until("nats-server listens", || {
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
        });
    }

    /// Kills the process.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The address.
    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}
