//! A hub on a port of its own, that cuts, spoils and forgets as it is told to.

use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use testing::wait::PATIENCE;

/// What one request for content did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Where it asked to begin.
    pub(crate) offset: u64,
    pub(crate) token: Option<String>,
}

/// A branch and a tag of the repository, with the same files.
const REVISIONS: [&str; 2] = ["main", "v1.0"];

/// How the hub behaves.
#[derive(Default)]
pub(crate) struct Manners {
    /// Bytes after which the next answers are cut; all is sent when there are none.
    pub(crate) cuts: VecDeque<usize>,
    /// After a cut the connection stays open until this is false.
    pub(crate) holds: bool,
    /// A byte that is sent as another.
    pub(crate) spoils: Option<usize>,
    pub(crate) ignores_ranges: bool,
    /// Content is somewhere else: under another host's name.
    pub(crate) redirects: bool,
    /// What everything is answered with.
    pub(crate) status: Option<&'static str>,
    /// What the next requests are answered with, and their `Retry-After`.
    pub(crate) busy: VecDeque<(&'static str, Option<u32>)>,
    pub(crate) asked: Vec<Asked>,
    /// Bytes of content that were sent.
    pub(crate) sent: usize,
}

pub(crate) struct Hub {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    port: u16,
    files: Vec<(String, Vec<u8>)>,
    manners: Mutex<Manners>,
    changed: Condvar,
}

impl Hub {
    /// The repository `org/repo` with these files.
    pub(crate) fn start(files: Vec<(&str, Vec<u8>)>, manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            port: addr.port(),
            files: files
                .into_iter()
                .map(|(name, bytes)| (name.to_owned(), bytes))
                .collect(),
            manners: Mutex::new(manners),
            changed: Condvar::new(),
        });
        let hub = Arc::clone(&shared);
        // They end with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let hub = Arc::clone(&hub);
                std::thread::spawn(move || hub.answer(&stream));
            }
        });
        Self { addr, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Manners) -> T) -> T {
        let done = act(&mut self.shared.manners.lock().unwrap());
        self.shared.changed.notify_all();
        done
    }

    /// Waits until so much content was sent.
    pub(crate) fn wait_sent(&self, bytes: usize) {
        let manners = self.shared.manners.lock().unwrap();
        let sent = |manners: &mut Manners| manners.sent < bytes;
        let waited = self
            .shared
            .changed
            .wait_timeout_while(manners, PATIENCE, sent);
        assert!(!waited.unwrap().1.timed_out(), "nothing was asked for");
    }
}

impl Shared {
    fn answer(&self, stream: &TcpStream) {
        let mut lines = BufReader::new(stream).lines();
        let Some(Ok(first)) = lines.next() else {
            return;
        };
        let target = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let fields: Vec<String> = lines
            .map_while(Result::ok)
            .take_while(|line| !line.is_empty())
            .map(|line| line.to_lowercase())
            .collect();
        let field = |name: &str| {
            let found = fields.iter().find_map(|line| line.strip_prefix(name));
            found.map(|value| value.trim().to_owned())
        };
        if let Some((status, pause)) = self.manners.lock().unwrap().busy.pop_front() {
            let pause = pause.map(|seconds| format!("retry-after: {seconds}"));
            let fields = ["content-length: 0"].into_iter().chain(pause.as_deref());
            return head(stream, status, &fields.collect::<Vec<_>>());
        }
        if let Some(status) = self.manners.lock().unwrap().status {
            return head(stream, status, &["content-length: 0"]);
        }
        let tree = target.strip_prefix("/api/models/org/repo/tree/");
        if tree.is_some_and(|tree| {
            REVISIONS
                .iter()
                .any(|known| tree == format!("{known}?recursive=true"))
        }) {
            return self.list(stream);
        }
        let range = field("range:").and_then(|range| {
            range
                .strip_prefix("bytes=")?
                .trim_end_matches('-')
                .parse()
                .ok()
        });
        let asked = Asked {
            offset: range.unwrap_or(0),
            token: field("authorization:"),
        };
        let resolved = target.strip_prefix("/org/repo/resolve/");
        let resolved = resolved.and_then(|rest| rest.split_once('/'));
        let resolved = resolved.filter(|(revision, _)| REVISIONS.contains(revision));
        let (moved, name) = match resolved.map(|(_, name)| name) {
            Some(name) => (false, name),
            None => (true, target.trim_start_matches("/moved/")),
        };
        if self.manners.lock().unwrap().redirects && !moved {
            let to = format!("location: http://localhost:{}/moved/{name}", self.port);
            return head(stream, "302 Found", &[&to, "content-length: 0"]);
        }
        match self.files.iter().find(|(known, _)| known == name) {
            Some((_, bytes)) => self.content(stream, bytes, asked),
            None => head(stream, "404 Not Found", &["content-length: 0"]),
        }
    }

    fn list(&self, stream: &TcpStream) {
        let mut list: Vec<_> = self
            .files
            .iter()
            .map(|(path, bytes)| {
                if !is_large(path) {
                    return serde_json::json!({
                        "type": "file", "path": path, "size": bytes.len(), "oid": git_sum(bytes),
                    });
                }
                let sum: String = Sha256::digest(bytes)
                    .iter()
                    .map(|b| format!("{b:02x}"))
                    .collect();
                serde_json::json!({
                    "type": "file", "path": path, "size": bytes.len(), "oid": "0",
                    "lfs": {"oid": sum, "size": bytes.len(), "pointerSize": 130},
                })
            })
            .collect();
        list.push(serde_json::json!({"type": "file", "path": "README.md", "size": 3, "oid": "0"}));
        let body = serde_json::Value::from(list).to_string();
        head(
            stream,
            "200 OK",
            &[&format!("content-length: {}", body.len())],
        );
        let _ = (&mut &*stream).write_all(body.as_bytes());
    }

    fn content(&self, stream: &TcpStream, bytes: &[u8], asked: Asked) {
        let mut manners = self.manners.lock().unwrap();
        let offset = if manners.ignores_ranges {
            0
        } else {
            asked.offset as usize
        };
        manners.asked.push(asked);
        let mut bytes = bytes.to_vec();
        if let Some(spoiled) = manners.spoils {
            bytes[spoiled] ^= 1;
        }
        let whole = bytes.len();
        let rest = &bytes[offset.min(whole)..];
        let length = format!("content-length: {}", rest.len());
        match offset {
            0 => head(stream, "200 OK", &[&length]),
            _ => {
                let range = format!("content-range: bytes {offset}-{}/{whole}", whole - 1);
                head(stream, "206 Partial Content", &[&length, &range]);
            }
        }
        let cut = manners.cuts.pop_front();
        let part = &rest[..cut.unwrap_or(rest.len()).min(rest.len())];
        let _ = (&mut &*stream).write_all(part);
        manners.sent += part.len();
        self.changed.notify_all();
        if cut.is_some() {
            drop(
                self.changed
                    .wait_while(manners, |manners| manners.holds)
                    .unwrap(),
            );
        }
    }
}

/// Whether the hub keeps a file apart from git.
fn is_large(path: &str) -> bool {
    !path.ends_with(".json") && !path.ends_with(".jinja")
}

/// What git names a file's content by.
fn git_sum(bytes: &[u8]) -> String {
    let mut sum = Sha1::new();
    sum.update(format!("blob {}\0", bytes.len()));
    sum.update(bytes);
    sum.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

fn head(mut stream: &TcpStream, status: &str, fields: &[&str]) {
    let fields = fields.join("\r\n");
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\nconnection: close\r\n{fields}\r\n\r\n"
    );
}
