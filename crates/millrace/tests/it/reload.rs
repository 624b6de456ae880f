//! SIGHUP, as an operator uses it: a file is changed, and a real server takes what it can.
//!
//! Promise (Settings and operation): SIGHUP changes live settings and names settings that need a restart; a broken
//! file changes nothing.
//! Also held by `millrace/src/config/changes.rs`.

use crate::support::{Folder, Serving};
use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use testing::wait::wait_until;

/// A server whose settings are a file of the test's own.
struct Rig {
    serving: Serving,
    folder: Folder,
}

impl Rig {
    fn start(name: &str, settings: &str) -> Self {
        let folder = Folder::new(name);
        let file = folder.0.join("settings.yaml");
        std::fs::write(&file, settings).unwrap();
        let args = ["serve", "--bind", "127.0.0.1:0", "--config"];
        let file = file.display().to_string();
        let log = File::create(folder.0.join("log")).unwrap();
        let serving = Serving::start_with(&[&args[..], &[&file]].concat(), &[], log);
        Self { serving, folder }
    }

    fn logged(&self) -> String {
        std::fs::read_to_string(self.folder.0.join("log")).unwrap()
    }

    /// Changes the file and tells the server; returns what it then logged, up to these words.
    fn change(&self, settings: &str, until: &str) -> String {
        let before = self.logged().len();
        let file: PathBuf = self.folder.0.join("settings.yaml");
        std::fs::write(file, settings).unwrap();
        self.serving.signal("HUP");
        wait_until(until, || self.logged()[before..].contains(until));
        self.logged()[before..].to_owned()
    }

    fn ask(&self, fields: &str, body: &str) -> String {
        self.serving.post_with(fields, "/v1/completions", body)
    }

    fn get(&self, path: &str) -> String {
        self.serving.get(path)
    }
}

fn status(reply: &str) -> &str {
    reply.split(' ').nth(1).unwrap()
}

/// The value of one line of `/metrics`.
fn metric(rig: &Rig, name: &str) -> String {
    let all = rig.get("/metrics");
    let line = all.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("{name}: {all}"))
        .trim()
        .to_owned()
}

const ASK: &str = r#"{"prompt":"A","max_tokens":2}"#;
const LONG: &str = r#"{"prompt":"A","max_tokens":400,"stream":true,"ignore_eos":true}"#;
/// A request of two thousand bytes.
fn big() -> String {
    format!("{ASK}{}", " ".repeat(2000))
}

const READ: &str = "settings were reloaded";

#[test]
fn live_settings_change_and_the_others_are_named() {
    let rig = Rig::start(
        "reload",
        "adaptive_limits: {max_streams: 40, enabled: false}\n",
    );
    assert_eq!(
        metric(&rig, "millrace_admission_streams{state=\"limit\"}"),
        "40"
    );
    let pages = metric(&rig, "millrace_admission_pages{state=\"limit\"}");
    let big = big();
    assert_eq!(status(&rig.ask("", &big)), "200");

    let said = rig.change(
        "adaptive_limits: {max_streams: 7, enabled: false}\n\
         reservation: {overcommit_percent: 400}\n\
         server: {body_bytes_max: 1024, hosts: [gpu.lan], origins: [https://a.example], io_threads: 3}\n\
         engine: {step_target_ms: 77, sequences_max: 9}\n\
         queue: {max_depth: 3}\n\
         streams: {keep_alive_ms: 77}\n\
         backpressure: {max_unacked_tokens: 5, policy: detach}\n\
         log: {filter: debug, json: true}\n",
        "needs a restart",
    );
    expect_named(&said);
    assert_eq!(
        metric(&rig, "millrace_admission_streams{state=\"limit\"}"),
        "7"
    );
    let more: usize = metric(&rig, "millrace_admission_pages{state=\"limit\"}")
        .parse()
        .unwrap();
    assert_eq!(
        more,
        2 * pages.parse::<usize>().unwrap(),
        "twice the 200 % there were"
    );
    assert_eq!(status(&rig.ask("", &big)), "413", "body_bytes_max");
    let page = rig.ask("origin: https://a.example\r\n", ASK);
    let allowed = "access-control-allow-origin: https://a.example";
    assert!(page.contains(allowed), "server.origins: {page}");
    let id = rig.ask("x-stream-resumable: 1\r\n", ASK);
    let id = id
        .lines()
        .find_map(|line| line.strip_prefix("x-stream-id: "));
    let told = rig.get(&format!("/v1/streams/{}", id.unwrap()));
    assert!(told.contains("\"credit_window\":5"), "{told}");
    assert!(
        rig.logged().contains("submitted"),
        "log.filter is debug now"
    );
    assert!(rig.serving.terminate().success());
}

/// Every key that was changed is told as what it is.
fn expect_named(said: &str) {
    let changed = said.lines().find(|line| line.contains(READ)).unwrap();
    for key in [
        "adaptive_limits.max_streams",
        "reservation.overcommit_percent",
        "server.body_bytes_max",
        "server.hosts",
        "server.origins",
        "engine.step_target_ms",
        "queue.max_depth",
        "streams.keep_alive_ms",
        "backpressure.max_unacked_tokens",
        "backpressure.policy",
        "log.filter",
    ] {
        assert!(changed.contains(key), "{key}: {changed}");
    }
    let restart = said.lines().find(|line| line.contains("restart")).unwrap();
    for key in ["server.io_threads", "engine.sequences_max", "log.json"] {
        assert!(
            restart.contains(key) && !changed.contains(key),
            "{key}: {said}"
        );
    }
}

#[test]
fn timeouts_and_retention_apply_to_new_streams() {
    let rig = Rig::start("reload-clocks", "");
    let whole = rig.ask("x-stream-resumable: 1\r\n", LONG);
    assert!(whole.contains("[DONE]"), "{whole}");
    let id = whole
        .lines()
        .find_map(|line| line.strip_prefix("x-stream-id: "));
    let path = format!("/v1/streams/{}/events", id.unwrap());
    assert_eq!(status(&rig.get(&path)), "200", "it is kept");
    rig.change("streams: {retained_max: 0}\nclocks: {total_ms: 1}\n", READ);
    assert_eq!(
        status(&rig.get(&path)),
        "410",
        "ended streams leave at once"
    );
    // A millisecond may be enough for all of it, now and then.
    wait_until("an answer is cut", || {
        let cut = rig.ask("", LONG);
        cut.contains("total") && !cut.contains("[DONE]")
    });
    rig.change("clocks: {total_ms: 0}\n", READ);
    assert!(rig.ask("", LONG).contains("[DONE]"));
}

#[test]
fn invalid_file_changes_nothing_and_is_reported() {
    let rig = Rig::start("reload-broken", "server: {body_bytes_max: 1024}\n");
    let big = big();
    let rows = [
        ("no YAML", "server: {body", "settings.yaml"),
        (
            "no such key",
            "server: {bodybytes: 9000}",
            "server.bodybytes",
        ),
        (
            "a bound",
            "server: {body_bytes_max: 1}",
            "must be 1024 to 1073741824, not 1",
        ),
        ("a filter", "log: {filter: 'a=b=c'}", "log.filter"),
        (
            "values together",
            "engine: {sequences_max: 4, step_tokens: 4}\nadaptive_limits: {min_streams: 60}",
            "adaptive_limits.max_streams",
        ),
    ];
    for (label, file, named) in rows {
        let said = rig.change(file, "not reloaded");
        wait_until(named, || rig.logged().contains(named));
        assert!(!said.contains(READ), "{label}: {said}");
        assert_eq!(status(&rig.ask("", &big)), "413", "{label}");
    }
    rig.change("server: {body_bytes_max: 9000}\n", READ);
    assert_eq!(status(&rig.ask("", &big)), "200");
}

#[test]
fn preset_changes_many_settings() {
    let rig = Rig::start("reload-preset", "preset: api\n");
    let said = rig.change(
        "preset: chat\nclocks: {total_ms: 7200000}\n",
        "needs a restart",
    );
    for key in ["preset", "queue.max_depth", "backpressure.policy"] {
        assert!(said.contains(key), "{key}: {said}");
    }
    assert!(
        !said.contains("clocks.total_ms"),
        "it is what it was: {said}"
    );
    assert!(said.contains("needs a restart: log.json"), "{said}");
}

#[test]
fn pipe_as_settings_file_blocks_nothing() {
    let rig = Rig::start("reload-pipe", "server: {body_bytes_max: 1024}\n");
    let file = rig.folder.0.join("settings.yaml");
    std::fs::remove_file(&file).unwrap();
    let made = Command::new("mkfifo").arg(&file).status().unwrap();
    assert!(made.success());
    let before = rig.logged().len();
    rig.serving.signal("HUP");
    wait_until("it is told", || {
        rig.logged()[before..].contains("must be a regular file")
    });
    assert_eq!(status(&rig.ask("", &big())), "413", "as before");
    std::fs::remove_file(&file).unwrap();
    rig.change("server: {body_bytes_max: 9000}\n", READ);
    assert_eq!(status(&rig.ask("", &big())), "200");
    assert!(rig.serving.terminate().success());
}
