//! A request whose grammar ends the process while it is compiled.
//!
//! The server runs in a child process on one journal, and is started again each time it ends. A watcher in the child ends the
//! process as soon as the thread exists that compiles grammars, as an overflow of that thread's stack would.

use super::copies::Journaled;
use crate::support::named::{CHAT, RESUMABLE, chat, fake, get, kept, send};
use crate::support::wait_until;
use journal::{JournalDirectory, read_journal};
use serde_json::{Map, Value, json};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use stream::StreamId;
use testing::folder::Folder;

/// Names the folder of the journal in the environment of a child.
const FOLDER: &str = "MILLRACE_TEST_POISONED_GRAMMAR";
const TEST: &str =
    "restarts::poisoned_grammar::request_whose_grammar_ends_the_process_does_not_prevent_a_start";
/// The process that takes the request ends, and two processes that recover it.
const DEATHS: usize = 3;

/// A schema that takes longer to compile than the watcher's pauses of a millisecond.
fn schema() -> Value {
    let names = (0..1000).map(|n| (format!("p{n}"), json!({"type": "integer"})));
    json!({"type": "object", "properties": names.collect::<Map<_, _>>()})
}

/// The stream in the journal, once there.
fn recorded(folder: &Path) -> Option<StreamId> {
    let directory = JournalDirectory::new(folder.join("journal"));
    let journal = read_journal(&directory, 1 << 30).ok()?;
    Some(StreamId::from_bits(journal.streams.first()?.id))
}

fn compiles_a_grammar() -> bool {
    let threads = std::fs::read_dir("/proc/self/task").expect("threads of this process");
    let mut names = threads.filter_map(|thread| {
        let name = thread.ok()?.path().join("comm");
        std::fs::read_to_string(name).ok()
    });
    names.any(|name| name.trim_end() == "grammar")
}

fn watch(folder: &Path) {
    // In the last life no grammar is compiled, and the process ends before the watcher.
    wait_until("a grammar is compiled", compiles_a_grammar);
    wait_until("the stream is in the journal", || {
        recorded(folder).is_some()
    });
    std::process::abort();
}

/// One life of the server.
fn serve_once(folder: &Path) {
    let journaled = Journaled::in_folder(folder, fake(), kept());
    let rig = &journaled.rig;
    rig.gate.open();
    let watched = folder.to_owned();
    std::thread::spawn(move || watch(&watched));
    let Some(stream) = recorded(folder) else {
        let format =
            json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema()}});
        let body = chat(&json!({"response_format": format}));
        send(rig, "POST", CHAT, RESUMABLE, &body).head();
        unreachable!("the process ends before the response");
    };
    let path = format!("/v1/streams/{stream}/events");
    let mut body = String::new();
    wait_until("the stream has its error", || {
        body = get(rig, &path, "").body;
        body.contains("crashed_engines")
    });
    // The server serves others.
    let answer = send(rig, "POST", CHAT, "", &chat(&json!({"max_tokens": 2}))).reply();
    assert_eq!(answer.head.status, 200, "{}", answer.body);
}

fn run_server(folder: &Folder) -> ExitStatus {
    let program = std::env::current_exe().expect("a path of this binary");
    let mut child = Command::new(program);
    child.args([TEST, "--exact", "--nocapture"]);
    child.env(FOLDER, &folder.0).stdout(Stdio::null());
    child.status().expect("a child process")
}

#[test]
fn request_whose_grammar_ends_the_process_does_not_prevent_a_start() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return serve_once(Path::new(&folder));
    }
    let folder = Folder::new("poisoned-grammar");
    std::fs::create_dir_all(&folder.0).expect("a folder");
    for death in 0..DEATHS {
        let status = run_server(&folder);
        assert_eq!(
            status.signal(),
            Some(6),
            "process {death} ended otherwise: {status}"
        );
    }
    let status = run_server(&folder);
    assert!(
        status.success(),
        "the process does not stay alive: {status}"
    );
}
