//! From settings to the bounds and clocks of the engine and the server.

use crate::config::{self, Settings, SlowReader};
use engine::{EngineConfig, Policy, Speculation, Tuning};
use server::{
    AdaptiveLimits, Origins, QueueLimits, RealtimeLimits, Reservation, ResponseLimits,
    ServerConfig, StreamClocks, StreamLimits,
};
use std::time::Duration;

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
        header_timeout: Duration::from_millis(server.header_timeout_ms),
        body_timeout: Duration::from_millis(server.body_timeout_ms),
        body_bytes_max: server.body_bytes_max,
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
            stored_max: settings.responses.stored_max,
            stored_bytes: settings.responses.stored_bytes,
        },
        models: settings.models.limits(),
        webhooks: settings.webhooks.settings(),
        workflows: settings.workflows.folder.clone(),
        metrics_export_interval: Duration::from_millis(settings.metrics.export_interval_ms),
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
        inbox_max: engine.inbox_max,
        sequences_max: engine.sequences_max,
        step_tokens: engine.step_tokens,
        step_target: limit_of(engine.step_target_ms).map(Duration::from_millis),
        ageing: Duration::from_millis(engine.ageing_ms),
        slow_consumer: Duration::from_millis(settings.backpressure.slow_consumer_threshold_ms),
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
    StreamLimits {
        open_max: streams.open_max,
        retention: Duration::from_secs(streams.retention_s),
        retained_max: streams.retained_max,
        retention_bytes: streams.retention_bytes,
        detached_tokens: streams.detached_tokens,
        detached_wait: Duration::from_secs(streams.detached_wait_s),
        ..StreamLimits::default()
    }
}

fn realtime_limits(settings: &Settings) -> RealtimeLimits {
    let realtime = &settings.realtime;
    RealtimeLimits {
        connections_max: realtime.connections_max,
        streams_max: realtime.streams_max,
        message_bytes_max: realtime.message_bytes_max,
        idle: Duration::from_millis(realtime.idle_ms),
    }
}

fn adaptive_limits(settings: &Settings) -> AdaptiveLimits {
    let limits = &settings.adaptive_limits;
    AdaptiveLimits {
        enabled: limits.enabled,
        min_streams: limits.min_streams,
        max_streams: limits.max_streams,
        adjustment_interval: Duration::from_millis(limits.adjustment_interval_ms),
        target_ttft: Duration::from_millis(limits.target_ttft_ms),
        target_itl: Duration::from_millis(limits.target_itl_ms),
    }
}

fn queue_limits(settings: &Settings) -> QueueLimits {
    QueueLimits {
        max_depth: settings.queue.max_depth,
        timeout: Duration::from_millis(settings.queue.timeout_ms),
        ageing: Duration::from_millis(settings.queue.ageing_ms),
    }
}
