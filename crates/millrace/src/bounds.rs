//! From settings to the bounds and clocks of the engine and the server.

use crate::config::{self, Settings, SlowReader};
use engine::{EngineConfig, Policy, Speculation, Tuning};
use server::{
    AdaptiveLimits, Origins, QueueLimits, RealtimeLimits, Reservation, ResponseLimits,
    ServerConfig, StreamClocks, StreamLimits,
};
use std::time::Duration;

/// Requests in the engine's inbox for each request that may be open: one may have several choices.
const INBOX_SHARE: usize = 2;

/// The server's limits and timeouts.
pub(crate) fn server_config(settings: &Settings) -> ServerConfig {
    let server = &settings.server;
    ServerConfig {
        bind: server.bind,
        hosts: server.hosts.clone(),
        // Invalid origins were rejected when the settings were read.
        origins: Origins::parse(&server.origins).unwrap_or_default(),
        page: server.page,
        api_prefix: server.api_prefix.clone(),
        connections_max: server.connections_max,
        connections_per_ip_max: server.connections_per_ip_max,
        open_requests_max: server.open_requests_max,
        body_timeout: Duration::from_millis(server.body_timeout_ms),
        body_bytes_max: server.body_bytes_max,
        media_body_bytes_max: server.media_body_bytes_max,
        pixels_bytes_max: settings.vision.pixels_bytes(),
        decode_bytes_max: settings.vision.decode_bytes(),
        keep_alive: Duration::from_millis(settings.streams.keep_alive_ms),
        credit_window: settings.backpressure.max_unacked_tokens,
        adaptive_limits: adaptive_limits(settings),
        queue: queue_limits(settings),
        reservation: Reservation {
            overcommit_percent: settings.reservation.overcommit_percent,
            assumed_answer_tokens: settings.reservation.assumed_answer_tokens,
        },
        clocks: stream_clocks(settings),
        streams: stream_limits(settings),
        responses: ResponseLimits {
            stored_bytes: settings.responses.stored_bytes,
            ..ResponseLimits::default()
        },
        models: settings.models.limits(),
        webhooks: settings.webhooks.settings(),
        workflows: settings.workflows.folder.clone(),
        scale: settings.scale.target(),
        reasoning_field: settings.answers.field(),
        closed_objects: settings.answers.disable_additional_properties,
        sampling: settings.sampling.defaults(),
        prefix_sharing: settings.keys.prefix_cache.sharing(),
        realtime: realtime_limits(settings),
        drain: Duration::from_millis(server.drain_timeout_ms),
        ..ServerConfig::default()
    }
}

/// The engine's limits.
pub(crate) fn engine_config(settings: &Settings) -> EngineConfig {
    let engine = &settings.engine;
    EngineConfig {
        // The engine never rejects an admitted request.
        inbox_max: settings
            .server
            .open_requests_max
            .saturating_mul(INBOX_SHARE),
        sequences_max: engine.sequences_max,
        step_tokens: engine.step_tokens,
        step_target: limit_of(engine.step_target_ms).map(Duration::from_millis),
        speculation: match engine.speculation {
            config::Speculation::Off => Speculation::Off,
            config::Speculation::PromptLookup => Speculation::PromptLookup,
            config::Speculation::Draft => Speculation::Draft,
            config::Speculation::Mtp => Speculation::Mtp,
        },
        draft_tokens: engine.draft_tokens,
        ..EngineConfig::default()
    }
}

/// The part of the engine's limits that can change while the engine runs.
pub(crate) fn tuning(settings: &Settings) -> Tuning {
    Tuning::from(&engine_config(settings))
}

/// 0 means no limit.
fn limit_of(value: u64) -> Option<u64> {
    (value > 0).then_some(value)
}

fn stream_clocks(settings: &Settings) -> StreamClocks {
    let (clocks, backpressure) = (&settings.clocks, &settings.backpressure);
    let after = |ms| limit_of(ms).map(Duration::from_millis);
    StreamClocks {
        first_token: after(clocks.first_token_ms),
        idle: after(clocks.idle_ms),
        total: after(clocks.total_ms),
        reader: after(backpressure.ack_timeout_ms),
        policy: match backpressure.policy {
            SlowReader::Cancel => Policy::Cancel,
            SlowReader::Detach => Policy::Detach,
            SlowReader::Keep => Policy::Keep,
        },
    }
}

fn stream_limits(settings: &Settings) -> StreamLimits {
    let streams = &settings.streams;
    let retention = Duration::from_secs(streams.retention_s);
    StreamLimits {
        open_max: streams.open_max,
        retention,
        retained_max: streams.retained_max,
        retention_bytes: streams.retention_bytes,
        detached_tokens: streams.detached_tokens,
        detached_wait: retention,
        ..StreamLimits::default()
    }
}

fn realtime_limits(settings: &Settings) -> RealtimeLimits {
    RealtimeLimits {
        message_bytes_max: settings.realtime.message_bytes_max,
        ..RealtimeLimits::default()
    }
}

fn adaptive_limits(settings: &Settings) -> AdaptiveLimits {
    let limits = &settings.adaptive_limits;
    AdaptiveLimits {
        enabled: limits.enabled,
        min_streams: limits.min_streams,
        max_streams: limits.max_streams,
        target_ttft: Duration::from_millis(limits.target_ttft_ms),
        target_itl: Duration::from_millis(limits.target_itl_ms),
        ..AdaptiveLimits::default()
    }
}

fn queue_limits(settings: &Settings) -> QueueLimits {
    QueueLimits {
        max_depth: settings.queue.max_depth,
        timeout: Duration::from_millis(settings.queue.timeout_ms),
        ..QueueLimits::default()
    }
}
