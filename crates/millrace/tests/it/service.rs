//! A server under a service manager, which here is a socket of the test.
//!
//! Promise (Settings and operation): a service manager is notified when the server is ready, while engines end steps,
//! and when it stops; a failed load is never reported as ready.

use crate::support::{Folder, Serving};
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use testing::wait::PATIENCE;

struct FakeSystemd {
    socket: UnixDatagram,
    folder: Folder,
}

impl FakeSystemd {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let socket = UnixDatagram::bind(folder.0.join("notify")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket, folder }
    }

    fn start(&self, args: &[&str], watchdog_us: &str) -> Serving {
        let path = self.folder.0.join("notify").display().to_string();
        let vars = [
            ("NOTIFY_SOCKET", path.as_str()),
            ("WATCHDOG_USEC", watchdog_us),
        ];
        let args = [&["serve", "--port", "0"], args].concat();
        Serving::early(&args, &vars, Stdio::null())
    }

    fn told(&self) -> String {
        let mut bytes = [0; 512];
        let length = self.socket.recv(&mut bytes).expect("a message");
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    /// Discards the messages so far: a socket holds about ten, and what comes then is lost.
    fn discard(&self) {
        self.socket.set_nonblocking(true).unwrap();
        while self.socket.recv(&mut [0; 512]).is_ok() {}
        self.socket.set_nonblocking(false).unwrap();
    }
}

#[test]
fn service_manager_is_told_ready_alive_and_stopping() {
    let manager = FakeSystemd::new("service");
    let mut serving = manager.start(&[], "200000");
    let ready = manager.told();
    assert!(
        ready.starts_with("READY=1\nSTATUS=serves millrace-mini at http://"),
        "{ready}"
    );
    assert!(serving.line().contains(" serves "), "the line comes first");
    assert_eq!(manager.told(), "WATCHDOG=1");
    let body = r#"{"prompt":"Once","max_tokens":200,"ignore_eos":true}"#;
    assert!(
        serving
            .post("/v1/completions", body)
            .starts_with("HTTP/1.1 200")
    );
    manager.discard();
    assert_eq!(manager.told(), "WATCHDOG=1", "a busy engine makes steps");
    serving.signal("TERM");
    let stopping = loop {
        match manager.told() {
            told if told == "WATCHDOG=1" => {}
            told => break told,
        }
    };
    assert!(stopping.starts_with("STOPPING=1\n"), "{stopping}");
    assert!(serving.left().success());
}

#[test]
fn failed_load_is_never_ready() {
    let manager = FakeSystemd::new("service-fails");
    let path = manager.folder.0.join("broken.gguf");
    std::fs::write(&path, b"GGUF").unwrap();
    let serving = manager.start(&[&path.display().to_string()], "200000");
    assert!(!serving.left().success());
    manager.socket.set_nonblocking(true).unwrap();
    assert!(
        manager.socket.recv(&mut [0; 64]).is_err(),
        "nothing was said"
    );
}
