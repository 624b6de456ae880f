//! `millrace config`: every value, and where it came from.

use crate::support::{Folder, Serving, millrace_with, stdout};
use std::collections::BTreeMap;
use std::process::Output;

/// What is printed: by dotted key, the value and its origin.
fn printed(args: &[&str], vars: &[(&str, &str)]) -> BTreeMap<String, (String, String)> {
    let mut section = String::new();
    let mut all = BTreeMap::new();
    for line in stdout(&millrace_with(args, vars)).lines() {
        let Some((setting, origin)) = line.rsplit_once(" # ") else {
            section = line.trim_end_matches(':').to_owned();
            continue;
        };
        let (name, value) = setting.trim().split_once(": ").expect("a value");
        let key = if setting.starts_with(' ') {
            format!("{section}.{name}")
        } else {
            name.to_owned()
        };
        let told = (value.trim().to_owned(), origin.to_owned());
        assert_eq!(all.insert(key, told), None, "once: {line}");
    }
    all
}

/// A setting, its value, and its origin.
type Row<'a> = (&'a str, &'a str, &'a str);

#[test]
fn values_are_printed_with_origins() {
    let folder = Folder::new("origins");
    let path = folder.0.join("millrace.yaml").display().to_string();
    let file = "preset: chat\nqueue: {max_depth: 7, timeout_ms: 700}\n\
        backpressure: {max_unacked_tokens: 7}\nserver: {bind: '127.0.0.1:7'}\n";
    std::fs::write(&path, file).unwrap();
    let vars = [
        ("MILLRACE_QUEUE_TIMEOUT_MS", "800"),
        ("MILLRACE_SERVER_BIND", "127.0.0.1:8"),
        ("MILLRACE_SERVER_BODY_TIMEOUT_MS", "800"),
    ];
    let args = ["config", "--config", &path, "--bind", "127.0.0.1:9"];
    let told = printed(&args, &vars);
    let from_file = format!("file {path}");
    // Each layer hides those below it.
    let rows: [Row<'_>; 8] = [
        ("preset", "\"chat\"", &from_file),
        ("engine.step_tokens", "512", "default"),
        ("engine.step_target_ms", "50", "preset chat"),
        ("queue.max_depth", "7", &from_file),
        ("backpressure.max_unacked_tokens", "7", &from_file),
        (
            "queue.timeout_ms",
            "800",
            "environment MILLRACE_QUEUE_TIMEOUT_MS",
        ),
        (
            "server.body_timeout_ms",
            "800",
            "environment MILLRACE_SERVER_BODY_TIMEOUT_MS",
        ),
        ("server.bind", "\"127.0.0.1:9\"", "flag"),
    ];
    for (key, value, origin) in rows {
        let want = (value.to_owned(), origin.to_owned());
        assert_eq!(told.get(key), Some(&want), "{key}");
    }
    let plain = printed(&["config"], &[]);
    assert!(
        plain.values().all(|(_, origin)| origin == "default"),
        "{plain:?}"
    );
    assert!(plain.keys().eq(told.keys()), "always all of them");
    assert!(plain.len() > 50, "{}", plain.len());
}

#[test]
fn printed_settings_are_a_file_with_the_same_values() {
    let folder = Folder::new("printed");
    let path = folder.0.join("printed.yaml").display().to_string();
    let args = ["config", "--preset", "api", "--bind", "127.0.0.1:9"];
    std::fs::write(&path, stdout(&millrace_with(&args, &[]))).unwrap();
    let (told, again) = (
        printed(&args, &[]),
        printed(&["config", "--config", &path], &[]),
    );
    for (key, (value, origin)) in &again {
        assert_eq!(
            (value, origin),
            (&told[key].0, &format!("file {path}")),
            "{key}"
        );
    }
    assert_eq!(told.len(), again.len());
}

/// What Kubernetes puts into a pod next to a service `millrace`.
const SERVICE_LINKS: [(&str, &str); 4] = [
    ("MILLRACE_SERVICE_HOST", "10.96.7.1"),
    ("MILLRACE_SERVICE_PORT", "8420"),
    ("MILLRACE_PORT", "tcp://10.96.7.1:8420"),
    ("MILLRACE_PORT_8420_TCP_ADDR", "10.96.7.1"),
];

#[test]
fn variables_of_kubernetes_services_are_ignored_with_one_line() {
    let line = "4 MILLRACE_* variables are ignored";
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let folder = Folder::new("service-links");
    let log = folder.0.join("log");
    let serving = Serving::start_with(
        &["serve", "--port", "0"],
        &SERVICE_LINKS,
        std::fs::File::create(&log).unwrap(),
    );
    let health = millrace_with(&["health", "--url", &serving.url()], &SERVICE_LINKS);
    assert!(stdout(&health).contains("ready") && said(&health).contains(line));
    let quiet = millrace_with(
        &["health", "--quiet", "--url", &serving.url()],
        &SERVICE_LINKS,
    );
    assert_eq!(
        (stdout(&quiet), said(&quiet)),
        (String::new(), String::new())
    );
    assert!(serving.terminate().success());
    let log = std::fs::read_to_string(&log).unwrap();
    assert_eq!(log.matches(line).count(), 1, "{log}");
    // A pull gets as far as without them.
    let offline = [&SERVICE_LINKS[..], &[("HF_HUB_OFFLINE", "1")]].concat();
    let pull = millrace_with(&["pull", "hf.co/org/repo"], &offline);
    assert!(said(&pull).contains(line) && said(&pull).contains("HF_HUB_OFFLINE"));
    // Each is ignored also without the others, as `docker --link` makes them; a number is a mistake.
    assert!(
        millrace_with(&["config"], &SERVICE_LINKS[2..])
            .status
            .success()
    );
    let mistake = millrace_with(&["config"], &[("MILLRACE_PORT", "8420")]);
    assert!(
        !mistake.status.success()
            && said(&mistake).contains("MILLRACE_PORT: there is no such setting")
    );
}
