//! A request whose computation ends the process.
//!
//! The server runs in a child process on one journal, and is started again each time it ends, as a service manager does.
//!
//! Promise (Journal): a request whose computation ends the process fails after the second death, and the neighbors
//! have their whole answers.
//! Also held by `server/tests/it/restarts/poisoned_grammar.rs`.

use super::copies::Journaled;
use crate::support::named::{CHAT, RESUMABLE, call, chat, fake, get, kept, send, stream_id};
use crate::support::sse::{Heard, frames};
use crate::support::wait_until;
use engine::fake::{FakeConfig, Fault, FaultAt, FaultKind};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use testing::folder::Folder;

/// Names the folder of the journal in the environment of a child.
const FOLDER: &str = "MILLRACE_TEST_POISON";
const TEST: &str = "restarts::poison::request_that_ends_the_process_twice_fails";
/// A pass of the model that reads this token ends the process. No answer contains the token.
const POISON: u32 = b'!' as u32;
const STREAMS: usize = 4;
const POISONED: usize = 1;
/// Starts of the process, for a guard against a loop.
const STARTS_MAX: usize = 6;

fn poisoned() -> FakeConfig {
    FakeConfig {
        faults: vec![Fault {
            at: FaultAt::Token(POISON),
            kind: FaultKind::Abort,
        }],
        ..fake()
    }
}

/// The requests of the first process; the second one has the poison in the prompt.
fn requests() -> Vec<Value> {
    let body = |seed| chat(&json!({"seed": seed, "max_tokens": 40}));
    let mut bodies: Vec<_> = (0..STREAMS).map(body).collect();
    bodies[POISONED]["messages"][0]["content"] = json!("hi!");
    bodies
}

/// One life of the server.
fn serve_once(folder: &OsStr) {
    let folder = std::path::Path::new(folder);
    let names = folder.join("streams");
    let journaled = Journaled::in_folder(folder, poisoned(), kept());
    let rig = &journaled.rig;
    if !names.exists() {
        // No pass of the model runs before each request was submitted. The response to the last request comes after the
        // records of those before.
        let open = |body: &Value| {
            let stream = stream_id(&send(rig, "POST", CHAT, RESUMABLE, body).head());
            wait_until("the request was submitted", || {
                journaled.describe(&stream)["prompt_tokens"] != 0
            });
            stream
        };
        let streams: Vec<_> = requests().iter().map(open).collect();
        std::fs::write(&names, streams.join(" ")).expect("a file of names");
    }
    rig.gate.open();
    let names = std::fs::read_to_string(&names).expect("the names of the streams");
    let streams: Vec<_> = names.split(' ').collect();
    wait_until("every stream has ended", || {
        let is_over = |stream: &&str| journaled.describe(stream)["state"] == "ended";
        streams.iter().all(is_over)
    });
    check_ends(&journaled, &streams);
}

/// The neighbors have their whole answers, the poisoned request has its error.
fn check_ends(journaled: &Journaled, streams: &[&str]) {
    let healthy = Journaled::gated("poison-healthy", fake(), kept());
    healthy.rig.gate.open();
    let text = |reply: &str| Heard::of(&frames(reply));
    let events =
        |stream: &str| get(&journaled.rig, &format!("/v1/streams/{stream}/events"), "").body;
    for (number, (body, stream)) in requests().iter().zip(streams).enumerate() {
        if number == POISONED {
            continue;
        }
        let uninterrupted = call(&healthy.rig, "POST", CHAT, "", body);
        assert_eq!(text(&events(stream)), text(&uninterrupted.body), "{body}");
    }
    let poisoned = streams[POISONED];
    let heard = text(&events(poisoned));
    assert_eq!(heard.endings, [json!("crashed_engines")], "{heard:?}");
    let described = journaled.describe(poisoned);
    assert_eq!(
        described["choices"][0]["detail"], "crashed_engines",
        "{described}"
    );
}

fn run_server(folder: &Folder) -> ExitStatus {
    let program = std::env::current_exe().expect("a path of this binary");
    let mut child = Command::new(program);
    child.args([TEST, "--exact", "--nocapture"]);
    child.env(FOLDER, &folder.0).stdout(Stdio::null());
    child.status().expect("a child process")
}

#[test]
fn request_that_ends_the_process_twice_fails() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return serve_once(&folder);
    }
    let folder = Folder::new("poison");
    std::fs::create_dir_all(&folder.0).expect("a folder");
    for crashes in 0..STARTS_MAX {
        let status = run_server(&folder);
        if status.success() {
            assert_eq!(crashes, 2, "deaths of the process");
            return;
        }
        assert_eq!(
            status.signal(),
            Some(6),
            "an abort, not a failed assertion: {status}"
        );
    }
    panic!("the process never stays alive");
}
