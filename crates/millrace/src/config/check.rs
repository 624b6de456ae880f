//! Bounds of the settings.

use super::Settings;
use std::ops::RangeInclusive;

/// A key and what is wrong with its value.
type Problem = (&'static str, String);

/// A key, its value, and where the value must lie.
type Row = (&'static str, u64, RangeInclusive<u64>);

/// Any count of things that cost memory each.
const COUNT: RangeInclusive<u64> = 1..=1 << 20;
/// A pause or a time-out: up to an hour.
const MS: RangeInclusive<u64> = 10..=3_600_000;
/// A clock: up to a week; 0 = never.
const LONG: RangeInclusive<u64> = 0..=604_800_000;

/// Every value that is out of bounds, for a server that asks for keys or does not.
pub(super) fn problems(settings: &Settings, keyed: bool) -> Vec<Problem> {
    let rows = model(settings)
        .into_iter()
        .chain(server(settings))
        .chain(admission(settings))
        .chain(streams(settings));
    let mut found: Vec<_> = rows
        .filter(|(_, value, range)| !range.contains(value))
        .map(|(key, value, range)| {
            let (min, max) = range.into_inner();
            (key, format!("{value} is not in {min}..={max}"))
        })
        .collect();
    found.extend(step_tokens(settings));
    found.extend(bind(settings).filter(|_| !keyed));
    found
}

fn model(settings: &Settings) -> Vec<Row> {
    let (model, engine) = (&settings.model, &settings.engine);
    let threads = model.threads.unwrap_or(1) as u64;
    let context = model.context.unwrap_or(1) as u64;
    vec![
        ("model.kv_mib", model.kv_mib as u64, 1..=1 << 24),
        ("model.context", context, 1..=1 << 24),
        ("model.threads", threads, 1..=1024),
        (
            "engine.sequences_max",
            engine.sequences_max as u64,
            1..=65_536,
        ),
        ("engine.step_tokens", engine.step_tokens as u64, 2..=65_536),
        ("engine.inbox_max", engine.inbox_max as u64, COUNT),
    ]
}

fn server(settings: &Settings) -> Vec<Row> {
    let server = &settings.server;
    let per_ip = server.connections_per_ip_max as u64;
    vec![
        ("server.io_threads", server.io_threads as u64, 1..=256),
        (
            "server.open_requests_max",
            server.open_requests_max as u64,
            COUNT,
        ),
        (
            "server.connections_max",
            server.connections_max as u64,
            COUNT,
        ),
        ("server.connections_per_ip_max", per_ip, COUNT),
        (
            "server.body_bytes_max",
            server.body_bytes_max as u64,
            1024..=1 << 30,
        ),
        ("server.header_timeout_ms", server.header_timeout_ms, MS),
        ("server.body_timeout_ms", server.body_timeout_ms, MS),
        (
            "server.drain_timeout_ms",
            server.drain_timeout_ms,
            0..=3_600_000,
        ),
    ]
}

fn admission(settings: &Settings) -> Vec<Row> {
    let (adaptive, queue) = (&settings.adaptive_limits, &settings.queue);
    let (min, max) = (adaptive.min_streams as u64, adaptive.max_streams as u64);
    let reservation = &settings.reservation;
    let interval = adaptive.adjustment_interval_ms;
    let overcommit = reservation.overcommit_percent as u64;
    let assumed = reservation.assumed_answer_tokens as u64;
    vec![
        ("adaptive_limits.min_streams", min, 1..=max.max(1)),
        ("adaptive_limits.max_streams", max, COUNT),
        ("adaptive_limits.adjustment_interval_ms", interval, MS),
        (
            "adaptive_limits.target_ttft_ms",
            adaptive.target_ttft_ms,
            1..=3_600_000,
        ),
        (
            "adaptive_limits.target_itl_ms",
            adaptive.target_itl_ms,
            1..=3_600_000,
        ),
        ("queue.max_depth", queue.max_depth as u64, 0..=1 << 20),
        ("queue.timeout_ms", queue.timeout_ms, MS),
        ("queue.ageing_ms", queue.ageing_ms, MS),
        ("reservation.overcommit_percent", overcommit, 10..=10_000),
        ("reservation.assumed_answer_tokens", assumed, 1..=1 << 24),
    ]
}

fn streams(settings: &Settings) -> Vec<Row> {
    let (streams, engine) = (&settings.streams, &settings.engine);
    let slow = settings.backpressure.slow_consumer_threshold_ms;
    let bytes = streams.retention_bytes as u64;
    vec![
        ("streams.keep_alive_ms", streams.keep_alive_ms, MS),
        ("streams.open_max", streams.open_max as u64, COUNT),
        ("streams.retention_s", streams.retention_s, 0..=86_400),
        (
            "streams.retained_max",
            streams.retained_max as u64,
            0..=1 << 20,
        ),
        ("streams.retention_bytes", bytes, 0..=1 << 40),
        (
            "streams.detached_tokens",
            streams.detached_tokens,
            0..=1 << 24,
        ),
        (
            "streams.detached_wait_s",
            streams.detached_wait_s,
            0..=86_400,
        ),
        ("backpressure.slow_consumer_threshold_ms", slow, MS),
        (
            "backpressure.ack_timeout_ms",
            settings.backpressure.ack_timeout_ms,
            LONG,
        ),
        (
            "clocks.first_token_ms",
            settings.clocks.first_token_ms,
            LONG,
        ),
        ("clocks.idle_ms", settings.clocks.idle_ms, LONG),
        ("clocks.total_ms", settings.clocks.total_ms, LONG),
        (
            "engine.step_target_ms",
            engine.step_target_ms,
            0..=3_600_000,
        ),
        ("engine.ageing_ms", engine.ageing_ms, MS),
    ]
}

fn step_tokens(settings: &Settings) -> Option<Problem> {
    let engine = &settings.engine;
    (engine.step_tokens < engine.sequences_max).then(|| {
        let why = format!(
            "{} is fewer than engine.sequences_max ({}): running sequences would wait for each other",
            engine.step_tokens, engine.sequences_max
        );
        ("engine.step_tokens", why)
    })
}

fn bind(settings: &Settings) -> Option<Problem> {
    let server = &settings.server;
    (!server.bind.ip().is_loopback() && !server.no_auth).then(|| {
        let why = format!(
            "{} can be reached by other hosts; give it keys (keys.file), or say --no-auth if that is meant",
            server.bind
        );
        ("server.bind", why)
    })
}
