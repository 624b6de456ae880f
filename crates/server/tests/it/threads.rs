//! The number of threads does not depend on the number of streams.

use crate::support::client::Client;
use crate::support::{Rig, config, fake, wait_until};
use serde_json::json;
use testing::child::run_in_child;

/// Two that serve and two for long prompts, all from the beginning on.
#[cfg(target_os = "linux")]
const IO_THREADS: usize = 4;

#[cfg(target_os = "linux")]
#[test]
fn thread_count_is_independent_of_streams() {
    if run_in_child(thread_count_is_independent_of_streams) {
        return;
    }
    let rig = Rig::gated(fake(), config());
    let named = |prefix: &str| {
        threads()
            .iter()
            .filter(|name| name.starts_with(prefix))
            .count()
    };
    wait_until("threads have their names", || {
        (named("io-"), named("engine")) == (IO_THREADS, 1)
    });
    let mut clients = Vec::new();
    let mut counts = Vec::new();
    for _ in 0..100 {
        let mut client = Client::connect(rig.addr);
        let ask = json!({"messages": [{"role": "user", "content": "hi"}], "stream": true, "max_tokens": 3});
        client.post("/v1/chat/completions", &ask);
        assert_eq!(client.head().status, 200);
        clients.push(client);
        counts.push(threads());
    }
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    assert_eq!((named("io-"), named("engine")), (IO_THREADS, 1));
}

/// Names of this process's threads, sorted.
#[cfg(target_os = "linux")]
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    let mut names: Vec<String> = tasks
        .filter_map(name)
        .map(|name| name.trim().to_owned())
        .collect();
    names.sort();
    names
}
