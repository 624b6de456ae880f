//! From `kill -9` to the next token at the client: `cargo bench -p millrace --bench restart -- --streams 32 --rounds 5`.
//!
//! Opens streams, kills the server when each client has `--tokens` events, starts the program again at once, and resumes
//! every stream with `Last-Event-ID`, with an attempt to connect each 20 ms. The model is the built-in one, or the file after
//! `--model`. The formula to compare with: load + (prompt + tokens) of all streams / prefill rate + 0.5 s.
#![expect(clippy::print_stdout, reason = "the figures")]

#[path = "../tests/it/kill/event_reader.rs"]
#[allow(dead_code, reason = "a part is used")]
mod event_reader;
#[path = "../../server/benches/load/mod.rs"]
mod load;

use event_reader::read_watched;
use load::figures::{ms, quantile};
use load::{argument, now};
use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::thread::{self, park_timeout};
use std::time::{Duration, Instant};

const SETTINGS: [(&str, &str); 6] = [
    ("MILLRACE_ADAPTIVE_LIMITS_ENABLED", "false"),
    ("MILLRACE_ADAPTIVE_LIMITS_MAX_STREAMS", "256"),
    ("MILLRACE_ENGINE_SEQUENCES_MAX", "256"),
    ("MILLRACE_SERVER_CONNECTIONS_PER_IP_MAX", "1024"),
    ("MILLRACE_BACKPRESSURE_MAX_UNACKED_TOKENS", "16"),
    ("MILLRACE_LOG_FILTER", "warn"),
];
/// Between two attempts of a client to connect.
const RECONNECT: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(600);

/// The program, on one address and one journal for all of its lives.
struct Program {
    addr: SocketAddr,
    folder: PathBuf,
    model: Option<String>,
}

impl Program {
    fn spawn(&self) -> io::Result<Child> {
        let built = env!("CARGO_BIN_EXE_millrace").to_owned();
        let binary = std::env::var("LOAD_BINARY").unwrap_or(built);
        Command::new(binary)
            .arg("serve")
            .args(&self.model)
            .args(["--bind", &self.addr.to_string()])
            .env("MILLRACE_JOURNAL_DIRECTORY", self.folder.join("journal"))
            .envs(SETTINGS)
            .stdout(Stdio::piped())
            .spawn()
    }
}

/// Waits until the program serves; the time since `from`.
fn wait_ready(child: &mut Child, from: Instant) -> io::Result<Duration> {
    let out = child.stdout.take();
    let mut lines = BufReader::new(out.ok_or_else(|| io::Error::other("no output"))?);
    let mut line = String::new();
    while !line.contains(" serves ") {
        line.clear();
        if lines.read_line(&mut line)? == 0 {
            return Err(io::Error::other("the program ended before it served"));
        }
    }
    Ok(from.elapsed())
}

/// The last event id of a response, as far as it arrived.
fn last_id(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let (before, _) = text.rsplit_once("\n\n")?;
    let (_, id) = before.rsplit_once("\nid: ")?;
    Some(id.lines().next()?.to_owned())
}

/// Opens a stream and reads `events` events; then waits for the kill. Returns stream and last event id.
fn open_stream(addr: &str, number: usize, events: usize, reached: &Barrier) -> (String, String) {
    let prompt = format!("Client {number} wants to hear a long story about a mill.");
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":"{prompt}"}}],"stream":true,"max_tokens":1500,"ignore_eos":true,"seed":{number}}}"#
    );
    let head = "POST /v1/chat/completions HTTP/1.1\r\nx-stream-resumable: 1";
    let (mut has_reached, mut last) = (false, None);
    let mut watch = |bytes: &[u8]| {
        let ids = bytes.windows(5).filter(|five| five == b"\nid: ").count();
        if ids >= events {
            last = last_id(bytes);
            if !has_reached {
                has_reached = true;
                reached.wait();
            }
        }
        true
    };
    let reading = read_watched(addr, head, &body, PATIENCE, &mut watch).expect("a response");
    assert!(has_reached, "{}: the stream ended early", reading.status);
    (
        reading.header("x-stream-id").expect("an id"),
        last.expect("an event id"),
    )
}

/// Time from the kill to the next event.
fn resume_stream(addr: &str, (stream, last): &(String, String), killed: Instant) -> Duration {
    let head = format!("GET /v1/streams/{stream}/events HTTP/1.1\r\nlast-event-id: {last}");
    let mut first = None;
    while first.is_none() {
        let mut watch = |bytes: &[u8]| {
            if bytes.windows(5).any(|five| five == b"\nid: ") {
                first = Some(killed.elapsed());
            }
            first.is_none()
        };
        if read_watched(addr, &head, "", PATIENCE, &mut watch).is_err() {
            park_timeout(RECONNECT);
        }
    }
    first.unwrap_or_default()
}

fn round(
    program: &Program,
    streams: usize,
    events: usize,
) -> io::Result<(Duration, Vec<Duration>)> {
    let addr = program.addr.to_string();
    let mut child = program.spawn()?;
    wait_ready(&mut child, now())?;
    let reached = Barrier::new(streams + 1);
    let known: Vec<_> = thread::scope(|scope| {
        let (addr, reached) = (&addr, &reached);
        let opened =
            (0..streams).map(|n| scope.spawn(move || open_stream(addr, n, events, reached)));
        let opened: Vec<_> = opened.collect();
        reached.wait();
        let killed = child.kill().and_then(|()| child.wait());
        killed.expect("a killed child");
        opened
            .into_iter()
            .map(|client| client.join().expect("a client"))
            .collect()
    });
    let killed = now();
    let mut child = program.spawn()?;
    let times = thread::scope(|scope| {
        let addr = &addr;
        let clients = known
            .iter()
            .map(|stream| scope.spawn(move || resume_stream(addr, stream, killed)));
        let clients: Vec<_> = clients.collect();
        let ready = wait_ready(&mut child, killed);
        let times = clients
            .into_iter()
            .map(|client| client.join().expect("a client"));
        let times = times.collect();
        child.kill()?;
        child.wait()?;
        ready.map(|ready| (ready, times))
    });
    std::fs::remove_dir_all(&program.folder)?;
    times
}

fn main() -> io::Result<()> {
    let streams = argument("--streams", 1.0) as usize;
    let events = argument("--tokens", 20.0) as usize;
    let mut arguments = std::env::args().skip_while(|argument| argument != "--model");
    let program = Program {
        addr: TcpListener::bind("127.0.0.1:0")?.local_addr()?,
        folder: std::env::temp_dir().join(format!("millrace-restart-{}", std::process::id())),
        model: arguments.nth(1),
    };
    let (mut all, mut loads) = (Vec::new(), Vec::new());
    for _ in 0..argument("--rounds", 5.0) as usize {
        let (ready, times) = round(&program, streams, events)?;
        loads.push(ready);
        all.extend(times);
    }
    println!("streams {streams}, events before the kill {events}, times since the kill in ms");
    println!("serving p50 {}", ms(quantile(&mut loads, 0.5)));
    let [p50, p95, max] = [0.5, 0.95, 1.0].map(|share| ms(quantile(&mut all, share)));
    println!("next token p50 {p50}, p95 {p95}, max {max}");
    Ok(())
}
