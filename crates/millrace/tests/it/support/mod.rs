//! The binary as a user runs it.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "some of this is for a feature's tests"
)]

pub mod folder;
pub mod hub;

pub use testing::folder::Folder;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use testing::wait::{PATIENCE, wait_until};

pub fn millrace(args: &[&str]) -> Output {
    millrace_with(args, &[])
}

/// The same with variables.
pub fn millrace_with(args: &[&str], vars: &[(&str, &str)]) -> Output {
    command(args).envs(vars.iter().copied()).output().unwrap()
}

/// It never sees the models of whoever runs the tests.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    let nobodys = std::env::temp_dir().join("millrace-tests-have-no-cache");
    command
        .args(args)
        .env("XDG_CACHE_HOME", &nobodys)
        .env("XDG_DATA_HOME", &nobodys);
    command
        .env("OLLAMA_MODELS", nobodys)
        .env_remove("HF_HUB_CACHE")
        .env_remove("HF_HOME");
    // Nor their journal: no directory can be created below a file.
    command.env("XDG_STATE_HOME", "/dev/null");
    // Nor their settings and keys, but for what computes models.
    let is_kept = |name: &str| ["MILLRACE_ISA", "MILLRACE_MODEL_DEVICE"].contains(&name);
    let is_theirs = |name: &str| name.starts_with("MILLRACE_") && !is_kept(name);
    for (name, _) in std::env::vars().filter(|(name, _)| is_theirs(name)) {
        command.env_remove(name);
    }
    // Nor is their hub asked, nor through their proxy.
    for name in [
        "HF_TOKEN",
        "HF_HUB_OFFLINE",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
    ] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command.env("HF_ENDPOINT", "http://127.0.0.1:9");
    command
}

/// The program with a file system of its own at `folder`, of so many KiB; `None` where that is not permitted.
pub fn on_small_disk(program: &Command, folder: &std::path::Path, kib: usize) -> Option<Command> {
    let wrap = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
        command.arg(folder);
        command
    };
    let mount = format!("mount -t tmpfs -o size={kib}k tmpfs \"$0\"");
    let tried = wrap(&mount).stderr(Stdio::null()).status();
    if !tried.is_ok_and(|status| status.success()) {
        return None;
    }
    let mut command = wrap(&format!("{mount} && exec \"$@\""));
    command.arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Some(command)
}

pub fn stdout(output: &Output) -> String {
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn synth(folder: &Folder) -> String {
    let path = folder.0.join("tiny.gguf").display().to_string();
    stdout(&millrace(&[
        "synth",
        &path,
        "--preset",
        "tiny-qwen3",
        "--quant",
        "Q4_0",
    ]));
    path
}

/// A server on a free port, ended by its own pid.
pub struct Serving {
    child: Child,
    address: String,
    /// In a lock, so that threads of a test can share the server.
    lines: Mutex<Receiver<String>>,
}

impl Serving {
    pub fn start(args: &[&str]) -> Self {
        Self::start_with(args, &[], Stdio::null())
    }

    /// The same with variables, and a place for what it logs.
    pub fn start_with(args: &[&str], vars: &[(&str, &str)], log: impl Into<Stdio>) -> Self {
        let mut serving = Self::early(args, vars, log);
        let ready = serving.line();
        assert!(ready.contains(" serves "), "it left instead: {ready:?}");
        serving
    }

    /// The same as soon as it listens, before its model is loaded.
    pub fn early(args: &[&str], vars: &[(&str, &str)], log: impl Into<Stdio>) -> Self {
        let mut command = command(args);
        command.envs(vars.iter().copied()).stderr(log);
        Self::spawn(command)
    }

    /// A server that was not started yet.
    pub fn spawn(mut command: Command) -> Self {
        let mut child = command
            // Answers are compared with one another: they must not depend on what shares a step.
            .env("MILLRACE_MODEL_DETERMINISTIC", "true")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut serving = Self {
            lines: Mutex::new(read_lines(child.stdout.take().unwrap())),
            child,
            address: String::new(),
        };
        let line = serving.line();
        serving.address = line.trim().rsplit("http://").next().unwrap().to_owned();
        serving
    }

    /// Its next line on standard output; empty at the end.
    pub fn line(&mut self) -> String {
        match self.lines.get_mut().unwrap().recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => String::new(),
            Err(RecvTimeoutError::Timeout) => {
                panic!("no line on standard output: is it not ready?")
            }
        }
    }

    /// Waits until it has left by itself.
    pub fn left(mut self) -> std::process::ExitStatus {
        let mut status = None;
        wait_until("the process has left", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// A connection on which no read waits for ever.
    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(&self.address).unwrap();
        socket.set_read_timeout(Some(2 * PATIENCE)).unwrap();
        socket
    }

    pub fn post(&self, path: &str, body: &str) -> String {
        self.post_with("", path, body)
    }

    /// The same with more header fields.
    pub fn post_with(&self, fields: &str, path: &str, body: &str) -> String {
        self.send("POST", path, fields, body)
    }

    /// Any request with a body.
    pub fn send(&self, method: &str, path: &str, fields: &str, body: &str) -> String {
        let mut socket = self.connect();
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{fields}");
        let length = body.len();
        write!(
            socket,
            "{head}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut reply = String::new();
        socket.read_to_string(&mut reply).unwrap();
        reply
    }

    /// The answer to a `GET`.
    pub fn get(&self, path: &str) -> String {
        let mut socket = self.connect();
        let head = "host: localhost\r\nconnection: close";
        write!(socket, "GET {path} HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
        let mut reply = String::new();
        socket.read_to_string(&mut reply).unwrap();
        reply
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sends it a signal by its own pid.
    pub fn signal(&self, name: &str) {
        let (signal, pid) = (format!("-{name}"), self.child.id().to_string());
        let sent = Command::new("kill").args([&signal, &pid]).status().unwrap();
        assert!(sent.success());
    }

    pub fn terminate(self) -> std::process::ExitStatus {
        self.signal("TERM");
        self.left()
    }
}

/// Lines of a server that no test has read: more than any test's server writes, which would wait for the reader.
const LINES_WAITING_MAX: usize = 1 << 16;

/// The lines of a pipe, read by a thread that ends with the pipe.
fn read_lines(pipe: ChildStdout) -> Receiver<String> {
    let (sender, lines) = sync_channel(LINES_WAITING_MAX);
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        loop {
            let mut line = String::new();
            let read = pipe.read_line(&mut line);
            if !read.is_ok_and(|read| read > 0) || sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

impl Drop for Serving {
    /// A test that failed leaves nobody behind.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
