//! Webhooks of a process that is killed with SIGKILL: no event is lost, and a repeated one has the same id.

use super::crashing::Crashing;
use crate::support::Folder;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use testing::wait::wait_until;

const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
pub(crate) const SETTINGS: [(&str, &str); 7] = [
    ("MILLRACE_WEBHOOKS_ALLOWED_HOSTS", "127.0.0.1:*"),
    ("MILLRACE_WEBHOOKS_ALLOW_HTTP", "true"),
    ("MILLRACE_WEBHOOKS_ALLOW_PRIVATE_ADDRESSES", "true"),
    ("MILLRACE_WEBHOOKS_RETRY_MS", "50"),
    ("MILLRACE_WEBHOOKS_ATTEMPTS_MAX", "1000"),
    ("MILLRACE_WEBHOOK_SECRET", SECRET),
    ("MILLRACE_LOG_FILTER", "warn"),
];

/// A receiver that rejects everything until it is opened.
pub(crate) struct Receiver {
    pub(crate) addr: SocketAddr,
    pub(crate) is_open: Arc<AtomicBool>,
    /// Id of each event that arrived, and whether the event was accepted.
    arrived: Arc<Mutex<Vec<(String, bool)>>>,
}

impl Receiver {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address");
        let (is_open, arrived) = (
            Arc::<AtomicBool>::default(),
            Arc::<Mutex<Vec<_>>>::default(),
        );
        let (open, all) = (Arc::clone(&is_open), Arc::clone(&arrived));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A killed server breaks its connections.
                let _ = receive(stream, &open, &all);
            }
        });
        Self {
            addr,
            is_open,
            arrived,
        }
    }

    /// Ids of events that arrived while the receiver was open, or closed.
    pub(crate) fn ids(&self, accepted: bool) -> HashSet<String> {
        let arrived = self.arrived.lock().expect("no panic");
        let of_kind = arrived.iter().filter(|(_, one)| *one == accepted);
        of_kind.map(|(id, _)| id.clone()).collect()
    }

    /// How often these events arrived.
    fn count_of(&self, events: &HashSet<String>) -> usize {
        let arrived = self.arrived.lock().expect("no panic");
        arrived.iter().filter(|(id, _)| events.contains(id)).count()
    }
}

fn receive(
    mut stream: TcpStream,
    is_open: &AtomicBool,
    all: &Mutex<Vec<(String, bool)>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let field = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        let mut found = lines.filter(|(found, _)| found.eq_ignore_ascii_case(name));
        found
            .next()
            .map(|(_, value)| value.to_owned())
            .expect("a field")
    };
    let mut body = vec![0; field("content-length").parse().expect("a length")];
    reader.read_exact(&mut body)?;
    let event: Value = serde_json::from_slice(&body).expect("JSON");
    let id = field("webhook-id");
    assert_eq!(event["id"], json!(id));
    let is_accepted = is_open.load(Ordering::SeqCst);
    all.lock().expect("no panic").push((id, is_accepted));
    let status = if is_accepted {
        "200 OK"
    } else {
        "503 Unavailable"
    };
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(answer.as_bytes())
}

fn submit(server: &Crashing, receiver: &Receiver, tokens: usize) -> String {
    let body = json!({
        "input": "Tell me a story.", "background": true, "max_output_tokens": tokens, "ignore_eos": true,
        "seed": 3, "webhook": format!("http://{}/", receiver.addr),
    });
    let reply = server.serving().post("/v1/responses", &body.to_string());
    let (head, body) = reply.split_once("\r\n\r\n").expect("a body");
    assert!(head.starts_with("HTTP/1.1 200"), "{reply}");
    let response: Value = serde_json::from_str(body).expect("JSON");
    let id = response["id"].as_str().expect("an id");
    id.replace("resp_", "evt_")
}

fn waiting(server: &Crashing) -> usize {
    let reply = server.serving().get("/v1/webhooks/deliveries");
    let body = reply.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let list: Value = serde_json::from_str(body).unwrap_or_else(|why| panic!("{why}: {reply}"));
    list["data"].as_array().expect("a list").len()
}

#[test]
fn events_survive_kills_before_and_after_the_end() {
    let mut server = Crashing::start("kill-webhooks", &SETTINGS);
    let receiver = Receiver::start();
    // The first has ended and was attempted; the second is killed in the middle.
    let ended = submit(&server, &receiver, 4);
    wait_until("an attempt", || receiver.ids(false).contains(&ended));
    let running = submit(&server, &receiver, 600);
    server.kill();
    server.restart();
    wait_until("both are attempted", || receiver.ids(false).len() == 2);
    server.kill();
    receiver.is_open.store(true, Ordering::SeqCst);
    server.restart();
    wait_until("both arrive", || receiver.ids(true).len() == 2);
    let all = HashSet::from([ended, running]);
    assert_eq!(
        (receiver.ids(true), receiver.ids(false)),
        (all.clone(), all.clone())
    );
    wait_until("nothing waits", || waiting(&server) == 0);
    // What was delivered is not delivered again. The deliveries are in the journal once a later stream is.
    let later = submit(&server, &receiver, 4);
    wait_until("the later arrives", || receiver.ids(true).contains(&later));
    let before = receiver.count_of(&all);
    server.kill();
    server.restart();
    let last = submit(&server, &receiver, 4);
    wait_until("the last arrives", || receiver.ids(true).contains(&last));
    assert_eq!(receiver.count_of(&all), before);
}

#[test]
fn secrets_of_a_key_are_created_and_rotated() {
    let folder = Folder::new("webhook-secrets");
    let file = folder.0.join("keys.yaml").display().to_string();
    let keys = |args: &[&str]| {
        let output = crate::support::millrace(&[&["keys", "--file", &file], args].concat());
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        (output.status.success(), text)
    };
    assert!(keys(&["new", "alice"]).0);
    assert!(!keys(&["webhook-secret", "bob"]).0);
    let secret = || {
        let (is_created, text) = keys(&["webhook-secret", "alice"]);
        assert!(
            is_created && text.starts_with("whsec_") && text.lines().count() == 1,
            "{text}"
        );
        text.trim().to_owned()
    };
    let [first, second, third] = [secret(), secret(), secret()];
    let text = std::fs::read_to_string(&file).expect("the file");
    assert!(!text.contains(&first), "at most two secrets");
    let places = [&third, &second].map(|secret| text.find(secret.as_str()).expect("signs"));
    assert!(places[0] < places[1], "the newest is the first");
    let (is_created, only) = keys(&["webhook-secret", "alice", "--replace"]);
    let text = std::fs::read_to_string(&file).expect("the file");
    assert!(is_created && text.contains(only.trim()) && !text.contains(&third));
    std::fs::write(&file, text.replace(only.trim(), "whsec_short")).expect("written");
    assert!(
        !keys(&["list"]).0 || !keys(&["new", "carol"]).0,
        "an invalid secret is an error"
    );
}
