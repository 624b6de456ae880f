//! Start of a server: a journal that cannot be used is one line before the socket answers.
//!
//! Promise (Journal): a journal that cannot be used is one line before the socket answers, for each reason; with the
//! default directory, or `journal.required: false`, the server starts and the log has an error.
//!
//! Promise (Journal): the default directory is private and belongs to the port; without a journal nothing is created.
//!
//! Promise (Settings and operation): a journal that could not be opened is in the log, in `/health` and in the
//! metrics.

use crate::support::{Folder, Serving, command, millrace_with, stdout};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const DIRECTORY: &str = "MILLRACE_JOURNAL_DIRECTORY";
const SERVE: [&str; 3] = ["serve", "--bind", "127.0.0.1:0"];

/// The header of a segment with version 77, and its checksum.
const NEWER_SEGMENT: [u8; 24] = [
    255, 77, 82, 74, 83, 69, 71, 254, 77, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 11, 118, 77, 237,
];

fn path_text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The last line on standard error of a server that did not start.
fn refusal(output: &Output) -> String {
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{log}");
    assert!(output.stdout.is_empty(), "the socket was bound: {log}");
    log.lines().last().unwrap_or_default().to_owned()
}

fn refused_start(directory: &Path, expected: &[&str]) {
    let line = refusal(&millrace_with(&SERVE, &[(DIRECTORY, path_text(directory))]));
    for part in expected {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(line.contains(path_text(directory)), "{line}");
    assert!(line.contains("journal.required: false"), "{line}");
}

#[test]
fn unusable_journal_is_one_line_before_the_socket_answers() {
    let folder = Folder::new("journal-errors");
    let file = folder.0.join("file");
    fs::write(&file, "").unwrap();
    refused_start(
        &file,
        &[
            "a file is there that is no directory",
            "set another journal.directory",
        ],
    );

    let newer = folder.0.join("newer");
    fs::create_dir(&newer).unwrap();
    let segment = newer.join("0000000000000001-00000001.log");
    fs::write(&segment, NEWER_SEGMENT).unwrap();
    refused_start(&newer, &["has version 77", "use the newer program"]);
    assert_eq!(fs::read(segment).unwrap(), NEWER_SEGMENT);

    let held = folder.0.join("held");
    let serving = Serving::start_with(&SERVE, &[(DIRECTORY, path_text(&held))], Stdio::null());
    refused_start(
        &held,
        &["another process uses the directory", "stop that process"],
    );
    assert!(serving.terminate().success());
}

#[test]
fn full_disk_is_one_line_before_the_socket_answers() {
    let folder = Folder::new("journal-full");
    let directory = folder.0.join("journal");
    let binary = command(&[]);
    // Files of more than 512 bytes cannot be written.
    let script = "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\"";
    let mut limited = Command::new("sh");
    limited
        .args(["-c", script])
        .arg(binary.get_program())
        .args(SERVE);
    for (name, value) in binary.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let output = limited.env(DIRECTORY, &directory).output().unwrap();
    let line = refusal(&output);
    assert!(
        line.contains("the disk is full; free at least 1048600 bytes"),
        "{line}"
    );
}

#[test]
fn server_that_does_not_require_the_journal_starts_loudly_without_one() {
    let folder = Folder::new("journal-not-required");
    let file = folder.0.join("file");
    fs::write(&file, "").unwrap();
    let log = folder.0.join("log");
    let vars = [
        (DIRECTORY, path_text(&file)),
        ("MILLRACE_JOURNAL_REQUIRED", "false"),
    ];
    let serving = Serving::start_with(&SERVE, &vars, fs::File::create(&log).unwrap());
    let health = serving.get("/health");
    assert!(
        health.contains(r#""journal":{"durable":false,"reason":"#)
            && health.contains("no directory"),
        "{health}"
    );
    let metrics = serving.get("/metrics");
    assert!(
        metrics.contains("\nmillrace_journal_durable 0\n"),
        "{metrics}"
    );
    assert!(serving.terminate().success());
    let log = fs::read_to_string(log).unwrap();
    let line = log
        .lines()
        .find(|line| line.contains("no stream of this process is durable"));
    let line = line.unwrap_or_else(|| panic!("{log}"));
    assert!(
        line.contains("ERROR") && line.contains("no directory"),
        "{line}"
    );
}

/// A server that opens its journal and then finds the port in use, so that no test needs a fixed port.
fn start_on_a_used_port(vars: &[(&str, &str)]) -> (String, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let output = millrace_with(&["serve", "--bind", &address.to_string()], vars);
    assert!(refusal(&output).contains("server.bind"));
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    (address.port().to_string(), log)
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn entries(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn default_directory_is_private_and_of_the_port() {
    let folder = Folder::new("journal-default");
    let state = path_text(&folder.0);
    let (port, _) = start_on_a_used_port(&[("XDG_STATE_HOME", state)]);
    let directory = folder.0.join("millrace/journal").join(port);
    assert_eq!(mode_of(&directory), 0o700);
    let files = entries(&directory);
    assert!(!files.is_empty());
    assert!(files.iter().all(|file| mode_of(file) == 0o600), "{files:?}");
}

#[test]
fn unusable_default_directory_is_only_reported() {
    // Nothing can be created below a device.
    let (_, log) = start_on_a_used_port(&[("XDG_STATE_HOME", "/dev/null")]);
    assert!(
        log.contains("no stream of this process is durable"),
        "{log}"
    );
}

#[test]
fn journal_that_is_off_creates_nothing() {
    let folder = Folder::new("journal-off");
    let state = path_text(&folder.0);
    let (_, log) = start_on_a_used_port(&[("XDG_STATE_HOME", state), (DIRECTORY, "")]);
    assert!(log.contains("durable streams are off"), "{log}");
    let args = ["config", "--journal", ""];
    let shown = stdout(&millrace_with(&args, &[(DIRECTORY, "/somewhere")]));
    assert!(shown.contains("  directory: \"\" "), "{shown}");
    // Port 0 has no default directory: the next server would not find the streams.
    let serving = Serving::start_with(&SERVE, &[("XDG_STATE_HOME", state)], Stdio::null());
    assert!(serving.terminate().success());
    assert!(entries(&folder.0).is_empty());
}
