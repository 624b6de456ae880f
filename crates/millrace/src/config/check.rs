//! Bounds of the settings.

use super::Settings;

/// A key and what is wrong with its value.
type Problem = (&'static str, String);

/// Every value that is out of bounds.
pub(super) fn problems(settings: &Settings) -> Vec<Problem> {
    let Settings {
        model,
        engine,
        server,
        streams,
        ..
    } = settings;
    let mut found = Vec::new();
    let mut within = |key, value: u64, min: u64, max: u64| {
        if !(min..=max).contains(&value) {
            found.push((key, format!("{value} is not in {min}..={max}")));
        }
    };
    within("model.kv_mib", model.kv_mib as u64, 1, 1 << 24);
    within(
        "model.context",
        model.context.unwrap_or(1) as u64,
        1,
        1 << 24,
    );
    within("model.threads", model.threads.unwrap_or(1) as u64, 1, 1024);
    within(
        "engine.sequences_max",
        engine.sequences_max as u64,
        1,
        65_536,
    );
    within("engine.step_tokens", engine.step_tokens as u64, 1, 65_536);
    within("engine.inbox_max", engine.inbox_max as u64, 1, 1 << 20);
    within("server.io_threads", server.io_threads as u64, 1, 256);
    within(
        "server.open_requests_max",
        server.open_requests_max as u64,
        1,
        1 << 20,
    );
    within(
        "server.connections_max",
        server.connections_max as u64,
        1,
        1 << 20,
    );
    within(
        "server.connections_per_ip_max",
        server.connections_per_ip_max as u64,
        1,
        1 << 20,
    );
    within(
        "server.body_bytes_max",
        server.body_bytes_max as u64,
        1024,
        1 << 30,
    );
    within(
        "server.header_timeout_ms",
        server.header_timeout_ms,
        10,
        3_600_000,
    );
    within(
        "server.body_timeout_ms",
        server.body_timeout_ms,
        10,
        3_600_000,
    );
    within(
        "server.drain_timeout_ms",
        server.drain_timeout_ms,
        0,
        3_600_000,
    );
    within(
        "streams.keep_alive_ms",
        streams.keep_alive_ms,
        10,
        3_600_000,
    );
    if engine.step_tokens < engine.sequences_max {
        let why = format!(
            "{} is fewer than engine.sequences_max ({}): running sequences would wait for each other",
            engine.step_tokens, engine.sequences_max
        );
        found.push(("engine.step_tokens", why));
    }
    if !server.bind.ip().is_loopback() && !server.no_auth {
        let why = format!(
            "{} can be reached by other hosts; say --no-auth if that is meant",
            server.bind
        );
        found.push(("server.bind", why));
    }
    found
}
