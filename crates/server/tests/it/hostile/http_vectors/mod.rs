//! Hostile and unusual HTTP/1.1, byte for byte (RFC 9110, RFC 9112): what each is answered, whether the connection goes
//! on, how many requests are seen in it; and that a fresh connection is served after it and nothing stays held.
//!
//! Promise (Hostile input and memory): 300 vectors of hostile and unusual HTTP/1.1 (request lines, targets, fields,
//! lengths, chunks, double framing, pipelining, upgrades, sizes): each has its status, continues or is closed, hides
//! no second request, and leaves a working server that holds nothing.
//!
//! Promise (Hostile input and memory): a body with a content coding is rejected (415), one with a transfer coding
//! next to `chunked` too (501).
//! Also held by `server/src/request/request_body.rs`.

mod chunked;
mod connections;
mod fields;
mod lengths;
mod oversized;
mod request_lines;
mod targets;

use crate::support::client::post;
use crate::support::{PATIENCE, Rig, config, fake, wait_until};
use serde_json::json;
use server::{AdaptiveLimits, QueueLimits, ServerConfig};
use std::borrow::Cow;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

/// Rows there are at least.
const VECTORS_MIN: usize = 129;
/// Follows on the same connection: answered only where the connection goes on.
const NEXT: &[u8] = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
const NEXT_STATUS: u16 = 200;

/// What comes of a vector.
#[derive(Clone, Copy, Debug)]
enum Want {
    /// Answered so; the connection goes on.
    Kept(u16),
    /// Answered so, and closed: what follows is not read.
    Closed(u16),
    /// Closed without an answer.
    Cut,
    /// Several answers, that of the following request included, if there is one.
    All(&'static [u16]),
    /// Cut off by its client, who sends no more: these answers.
    Ended(&'static [u16]),
}

struct Vector {
    name: &'static str,
    bytes: Cow<'static, [u8]>,
    want: Want,
}

const fn row(name: &'static str, bytes: &'static [u8], want: Want) -> Vector {
    Vector {
        name,
        bytes: Cow::Borrowed(bytes),
        want,
    }
}

fn made(name: &'static str, bytes: Vec<u8>, want: Want) -> Vector {
    Vector {
        name,
        bytes: Cow::Owned(bytes),
        want,
    }
}

/// One stream may run and nobody waits: a permit that stayed held would refuse the next.
fn tight() -> ServerConfig {
    ServerConfig {
        adaptive_limits: AdaptiveLimits {
            enabled: false,
            max_streams: 1,
            ..AdaptiveLimits::default()
        },
        queue: QueueLimits {
            max_depth: 0,
            ..QueueLimits::default()
        },
        ..config()
    }
}

#[test]
fn each_vector_has_its_outcome_and_leaves_nothing_behind() {
    let rig = Rig::with(fake(), tight());
    let oversized = oversized::rows();
    let tables = [
        request_lines::ROWS,
        targets::ROWS,
        fields::ROWS,
        lengths::ROWS,
        chunked::ROWS,
        connections::ROWS,
        &oversized,
    ];
    let mut wrong = Vec::new();
    let mut names = std::collections::BTreeSet::new();
    for vector in tables.into_iter().flatten() {
        assert!(names.insert(vector.name), "{} is there twice", vector.name);
        let came = answers(rig.addr, vector);
        let want = wanted(vector.want);
        if came != want {
            wrong.push(format!("{}: {came:?}, not {want:?}", vector.name));
        }
        rig.wait_until_empty();
        wait_until(vector.name, || is_served(rig.addr));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(names.len() >= VECTORS_MIN, "{} vectors", names.len());
}

fn wanted(want: Want) -> Vec<u16> {
    match want {
        Want::Kept(status) => vec![status, NEXT_STATUS],
        Want::Closed(status) => vec![status],
        Want::Cut => Vec::new(),
        Want::All(statuses) | Want::Ended(statuses) => statuses.to_vec(),
    }
}

/// Whether a fresh connection is answered, and its stream gets the one permit.
fn is_served(addr: SocketAddr) -> bool {
    let ask = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1});
    post(addr, "/v1/chat/completions", &ask).head.status == 200
}

/// The statuses of all answers, up to the end of the connection.
fn answers(addr: SocketAddr, vector: &Vector) -> Vec<u16> {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The server may have answered and closed before all of it is sent.
    let _ = stream.write_all(&vector.bytes);
    let _ = match vector.want {
        Want::Ended(_) => stream.shutdown(Shutdown::Write),
        _ => stream.write_all(NEXT),
    };
    let mut came = Vec::new();
    if let Err(error) = stream.read_to_end(&mut came) {
        let kind = error.kind();
        assert!(
            kind == std::io::ErrorKind::ConnectionReset,
            "{}: {error}",
            vector.name
        );
    }
    statuses(&came).unwrap_or_else(|| {
        let text = String::from_utf8_lossy(&came);
        panic!("{}: no answers of HTTP: {text:?}", vector.name)
    })
}

/// The statuses of the answers that stand one after the other; `None` of anything else. The last may have a head only.
fn statuses(mut bytes: &[u8]) -> Option<Vec<u16>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..end]).ok()?;
        bytes = &bytes[end + 4..];
        let mut lines = head.split("\r\n");
        let status: u16 = lines
            .next()?
            .strip_prefix("HTTP/1.")?
            .get(2..5)?
            .parse()
            .ok()?;
        all.push(status);
        let value = |name: &str| {
            let mut fields = lines.clone().filter_map(|line| line.split_once(':'));
            fields.find_map(|(n, v)| n.eq_ignore_ascii_case(name).then(|| v.trim()))
        };
        if value("transfer-encoding").is_some() {
            bytes = after_chunks(bytes)?;
        } else if let Some(length) = value("content-length") {
            let length = length.parse::<usize>().ok()?;
            bytes = bytes.get(length..).unwrap_or_default();
        } else if head.starts_with("HTTP/1.0") {
            // Up to the end of the connection.
            bytes = &[];
        }
    }
    Some(all)
}

fn after_chunks(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        let end = bytes.windows(2).position(|w| w == b"\r\n")?;
        let length = std::str::from_utf8(&bytes[..end]).ok()?;
        let length = usize::from_str_radix(length, 16).ok()?;
        bytes = bytes.get(end + 2 + length + 2..)?;
        if length == 0 {
            return Some(bytes);
        }
    }
}
