//! What a package has beside the binary, and what an operator runs first: completions, manual pages, `health`, `doctor`.
//!
//! Promise (Settings and operation): `health` finds this machine's server by its settings, with prefix and TLS;
//! certificates of other servers are verified.
//! Also held by `millrace/tests/it/listener.rs`.

use super::refusal;
use crate::support::{Folder, Serving, millrace, millrace_with, stdout, synth};
use std::net::TcpListener;
use std::process::Stdio;

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(&millrace(&["completions", shell]));
        for word in ["serve", "doctor", "max-tokens"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(millrace(&["completions", "sh"]).status.code(), Some(2));
}

#[test]
fn manual_has_a_page_for_each_command() {
    let page = stdout(&millrace(&["man"]));
    assert!(
        page.contains(".TH millrace 1") && page.contains("millrace\\-serve(1)"),
        "{page}"
    );
    let folder = Folder::new("man");
    let path = folder.0.display().to_string();
    stdout(&millrace(&["man", &path]));
    for name in ["millrace", "millrace-serve", "millrace-streams-follow"] {
        let page = std::fs::read_to_string(folder.0.join(format!("{name}.1"))).unwrap();
        assert!(page.contains(".SH NAME"), "{name}: {page}");
    }
    let said = refusal(&millrace(&["man", &format!("{path}/absent")]));
    assert!(said.contains("absent: "), "{said}");
}

#[test]
fn settings_of_the_service_are_valid() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/millrace.yaml");
    let settings = stdout(&millrace(&["config", "--config", file]));
    for line in [
        "bind: \"127.0.0.1:8420\"",
        "directories: [\"/var/lib/millrace/models\"]",
        "directory: \"/var/lib/millrace/journal\"",
    ] {
        assert!(settings.contains(line), "{line}: {settings}");
    }
}

#[test]
fn health_is_an_exit_status() {
    let serving = Serving::start(&["serve", "--port", "0", "--api-key", "secret-secret-secret"]);
    let url = serving.url();
    let healthy = stdout(&millrace(&["health", "--url", &url]));
    assert_eq!(healthy, format!("{url}: ready\n"), "without a key");
    assert_eq!(
        stdout(&millrace(&["health", "--live", "-q", "--url", &url])),
        ""
    );
    let bind = [("MILLRACE_SERVER_BIND", url.trim_start_matches("http://"))];
    assert_eq!(stdout(&millrace_with(&["health"], &bind)), healthy);
    assert!(serving.terminate().success());
    let said = refusal(&millrace(&["health", "--url", &url]));
    assert!(said.contains("no server answers at"), "{said}");
}

/// Variables of a container image, where only the server has keys.
const IMAGE: [(&str, &str); 2] = [
    ("MILLRACE_SERVER_BIND", "0.0.0.0:0"),
    ("MILLRACE_SERVER_HOSTS", "chat.example.com"),
];

#[test]
fn commands_in_an_image_need_no_key() {
    let folder = Folder::new("image");
    let model = synth(&folder);
    let commands: [&[&str]; 5] = [
        &["run", "Hello", "-n", "2"],
        &["run", &model, "Hello", "-n", "2"],
        &["show", &model],
        &["list"],
        &["rm", "absent"],
    ];
    for args in commands {
        let output = millrace_with(args, &IMAGE);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.contains("server.bind"), "{args:?}: {said}");
        assert_eq!(output.status.success(), args[0] != "rm", "{args:?}: {said}");
    }
    let said = refusal(&millrace_with(&["serve"], &IMAGE));
    assert!(said.contains("server.bind"), "the server needs one: {said}");
    let key = "0123456789abcdef";
    let keyed = [IMAGE[0], IMAGE[1], ("MILLRACE_API_KEY", key)];
    let serving = Serving::start_with(&["serve"], &keyed, Stdio::null());
    let port = serving.url().rsplit(':').next().unwrap().to_owned();
    let bind = format!("0.0.0.0:{port}");
    let there = [("MILLRACE_SERVER_BIND", bind.as_str())];
    let healthy = stdout(&millrace_with(&["health"], &there));
    assert_eq!(healthy, format!("http://127.0.0.1:{port}: ready\n"));
    let said = refusal(&millrace_with(&["ps"], &there));
    assert!(said.contains("requires an API key"), "{said}");
    let keys = format!("{key},fedcba9876543210");
    let there = [there[0], ("MILLRACE_API_KEY", &keys)];
    stdout(&millrace_with(&["ps"], &there));
    assert!(serving.terminate().success());
}

#[test]
fn health_finds_a_server_with_a_prefix() {
    let prefix = ("MILLRACE_SERVER_API_PREFIX", "/llm");
    let serving = Serving::start_with(&["serve", "--port", "0"], &[prefix], Stdio::null());
    let url = serving.url();
    let address = url.trim_start_matches("http://").trim_end_matches("/llm");
    let bind = ("MILLRACE_SERVER_BIND", address);
    let healthy = stdout(&millrace_with(&["health"], &[prefix, bind]));
    assert_eq!(healthy, format!("http://{address}/llm: ready\n"));
    refusal(&millrace_with(&["health"], &[bind]));
    assert!(serving.terminate().success());
}

#[test]
fn doctor_says_what_prevents_serving() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let examined = millrace(&["doctor", "--bind", &address]);
    let said = refusal(&examined);
    assert!(
        said.contains("1 of ") && said.contains("prevent serving"),
        "{said}"
    );
    let report = String::from_utf8_lossy(&examined.stdout).into_owned();
    let line = report
        .lines()
        .find(|line| line.starts_with("WRONG"))
        .unwrap();
    assert!(
        line.contains("address") && line.contains(&address),
        "{report}"
    );
    drop(listener);
    let examined = millrace(&["doctor", "no-such-model", "--port", "0"]);
    let report = String::from_utf8_lossy(&examined.stdout).into_owned();
    let wrong = report
        .lines()
        .position(|line| line.starts_with("WRONG   model "));
    let more = report.lines().skip(wrong.unwrap() + 1).take(3);
    assert!(
        more.into_iter()
            .all(|line| line.starts_with("            ")),
        "{report}"
    );
    let report = stdout(&millrace(&["doctor", "--port", "0"]));
    for subject in [
        "instruction set",
        "threads",
        "memory",
        "address",
        "open files",
        "models",
    ] {
        assert!(report.contains(subject), "{subject}: {report}");
    }
    let serving = Serving::start(&["serve", "--port", "0", "--api-key", "0123456789abcdef"]);
    let address = serving.url().trim_start_matches("http://").to_owned();
    let report = stdout(&millrace(&["doctor", "--bind", &address]));
    let line = report.lines().find(|line| line.contains("address"));
    let line = line.unwrap();
    assert!(
        line.starts_with("ok") && line.contains("a running Millrace serves at http://"),
        "{report}"
    );
    assert!(serving.terminate().success());
    let absent = millrace(&["doctor", "nobody.gguf", "--port", "0"]);
    let report = String::from_utf8_lossy(&absent.stdout).into_owned();
    assert!(report.contains("nobody.gguf: no such file"), "{report}");
}
