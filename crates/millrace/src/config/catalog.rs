//! All settings: the bounds of each value, and whether a running server can change the value.
//!
//! The loader checks against this table and the JSON Schema is generated from this table, so that the two cannot disagree.
//! A test fails for a setting that is not in the table.

/// One setting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// Section and name, such as `server.bind`.
    pub(crate) key: &'static str,
    /// Bounds of a number, both inclusive; `None` of other types.
    pub(crate) range: Option<(u64, u64)>,
    /// When a changed value applies.
    pub(crate) takes: Takes,
}

/// When a changed value applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// At the next SIGHUP, for later requests.
    Live,
    /// At the next start of the server: the value sizes threads or memory.
    Restart,
}

use Takes::{Live, Restart};
use engine::DRAFT_TOKENS_MAX;

/// A count of items that each take memory.
const COUNT: (u64, u64) = (1, 1 << 20);
/// A count that can be 0.
const NONE_OR_MORE: (u64, u64) = (0, 1 << 20);
/// A pause or a time-out: up to an hour.
const MS: (u64, u64) = (10, HOUR_MS);
/// A target.
const TARGET: (u64, u64) = (1, HOUR_MS);
/// A time that can be 0.
const MS_OR_NONE: (u64, u64) = (0, HOUR_MS);
/// A clock: up to a week; 0 = never.
const CLOCK: (u64, u64) = (0, 604_800_000);
/// Up to a day.
const SECONDS: (u64, u64) = (0, 86_400);
/// Bytes of a journal. The lower bound holds the longest description of a stream (8 MiB) among the live streams.
const JOURNAL_BYTES: (u64, u64) = (32 << 20, 1 << 40);
/// Tokens of one sequence.
const TOKENS: (u64, u64) = (1, 1 << 24);

const HOUR_MS: u64 = 3_600_000;

/// All settings, in the order of the file's sections.
pub(crate) const SETTINGS: &[Setting] = &[
    other_setting("preset", Live),
    other_setting("model.path", Restart),
    other_setting("model.name", Restart),
    number_setting("model.context", TOKENS, Restart),
    other_setting("model.adapters", Restart),
    other_setting("model.chat_template", Restart),
    other_setting("model.quantize", Restart),
    number_setting("model.threads", (1, 1024), Restart),
    number_setting("model.kv_mib", (1, 1 << 24), Restart),
    other_setting("model.kv_type", Restart),
    other_setting("model.deterministic", Restart),
    other_setting("models.directories", Restart),
    other_setting("models.caches", Restart),
    other_setting("models.packed_cache", Restart),
    number_setting("models.packed_cache_gib", (1, 1 << 20), Restart),
    other_setting("models.packed_cache_directory", Restart),
    number_setting("models.memory_budget_mib", (1, 1 << 24), Live),
    number_setting("models.idle_unload_s", (0, 31_536_000), Live),
    number_setting("models.waiting_max", COUNT, Live),
    number_setting("models.load_timeout_s", (1, 86_400), Live),
    other_setting("models.named", Restart),
    other_setting("answers.tool_parser", Restart),
    other_setting("answers.reasoning_parser", Restart),
    other_setting("answers.reasoning_field", Live),
    other_setting("answers.disable_additional_properties", Live),
    other_setting("sampling.temperature", Live),
    number_setting("sampling.top_k", (0, u32::MAX as u64), Live),
    other_setting("sampling.top_p", Live),
    other_setting("sampling.min_p", Live),
    other_setting("sampling.repetition_penalty", Live),
    other_setting("sampling.presence_penalty", Live),
    other_setting("sampling.frequency_penalty", Live),
    number_setting("engine.sequences_max", (1, 65_536), Restart),
    number_setting("engine.step_tokens", (2, 65_536), Restart),
    number_setting("engine.inbox_max", COUNT, Restart),
    number_setting("engine.step_target_ms", MS_OR_NONE, Live),
    number_setting("engine.ageing_ms", MS, Live),
    other_setting("engine.speculation", Restart),
    number_setting("engine.draft_tokens", (1, DRAFT_TOKENS_MAX as u64), Restart),
    other_setting("engine.draft_model", Restart),
    number_setting("engine.draft_kv_mib", (1, 1 << 24), Restart),
    other_setting("server.bind", Restart),
    other_setting("server.no_auth", Restart),
    other_setting("server.hosts", Live),
    other_setting("server.origins", Live),
    other_setting("server.page", Live),
    other_setting("server.api_prefix", Live),
    number_setting("server.io_threads", (1, 256), Restart),
    number_setting("server.open_requests_max", COUNT, Restart),
    number_setting("server.connections_max", COUNT, Live),
    number_setting("server.connections_per_ip_max", COUNT, Live),
    number_setting("server.body_bytes_max", (1024, 1 << 30), Live),
    number_setting("server.header_timeout_ms", MS, Live),
    number_setting("server.body_timeout_ms", MS, Live),
    number_setting("server.drain_timeout_ms", MS_OR_NONE, Live),
    number_setting("server.engine_stall_s", SECONDS, Restart),
    other_setting("listener.unix_socket", Restart),
    other_setting("listener.unix_socket_mode", Restart),
    other_setting("listener.tls_cert", Restart),
    other_setting("listener.tls_key", Restart),
    other_setting("keys.file", Live),
    other_setting("keys.prefix_cache", Live),
    other_setting("adaptive_limits.enabled", Live),
    number_setting("adaptive_limits.min_streams", COUNT, Live),
    number_setting("adaptive_limits.max_streams", COUNT, Live),
    number_setting("adaptive_limits.adjustment_interval_ms", MS, Live),
    number_setting("adaptive_limits.target_ttft_ms", TARGET, Live),
    number_setting("adaptive_limits.target_itl_ms", TARGET, Live),
    number_setting("queue.max_depth", NONE_OR_MORE, Live),
    number_setting("queue.timeout_ms", MS, Live),
    number_setting("queue.ageing_ms", MS, Live),
    number_setting("reservation.overcommit_percent", (10, 10_000), Live),
    number_setting("reservation.assumed_answer_tokens", TOKENS, Live),
    number_setting("streams.keep_alive_ms", MS, Live),
    number_setting("streams.open_max", COUNT, Live),
    number_setting("streams.retention_s", SECONDS, Live),
    number_setting("streams.retained_max", NONE_OR_MORE, Live),
    number_setting("streams.retention_bytes", (0, 1 << 40), Live),
    number_setting("streams.detached_tokens", (0, 1 << 24), Live),
    number_setting("streams.detached_wait_s", SECONDS, Live),
    number_setting("responses.stored_max", NONE_OR_MORE, Live),
    number_setting("responses.stored_bytes", (0, 1 << 40), Live),
    other_setting("journal.directory", Restart),
    number_setting("journal.sync_ms", MS_OR_NONE, Restart),
    number_setting("journal.bytes_max", JOURNAL_BYTES, Restart),
    other_setting("journal.required", Restart),
    number_setting("cache.disk_gib", (0, 1 << 20), Restart),
    other_setting("cache.disk_directory", Restart),
    other_setting("cluster.role", Restart),
    other_setting("cluster.name", Restart),
    other_setting("cluster.servers", Restart),
    other_setting("cluster.nkey_file", Restart),
    other_setting("cluster.user", Restart),
    other_setting("cluster.password_file", Restart),
    other_setting("cluster.token_file", Restart),
    other_setting("cluster.tls_ca", Restart),
    other_setting("cluster.tls_cert", Restart),
    other_setting("cluster.tls_key", Restart),
    other_setting("cluster.secret_file", Restart),
    other_setting("cluster.instance_id", Restart),
    other_setting("cluster.address", Restart),
    number_setting("cluster.heartbeat_ms", (50, 10_000), Restart),
    other_setting("cluster.placement", Restart),
    number_setting("cluster.replicas", (1, 5), Restart),
    number_setting("cluster.behind_bytes", (1 << 20, 1 << 36), Restart),
    number_setting("cluster.store_bytes", (16 << 20, 1 << 50), Restart),
    number_setting("cluster.records_age_max_s", (60, 31_536_000), Restart),
    number_setting("cluster.engine_wait_ms", (1000, 600_000), Restart),
    number_setting("backpressure.max_unacked_tokens", (0, 1 << 40), Live),
    number_setting("backpressure.slow_consumer_threshold_ms", MS, Live),
    number_setting("backpressure.ack_timeout_ms", CLOCK, Live),
    other_setting("backpressure.policy", Live),
    number_setting("clocks.first_token_ms", CLOCK, Live),
    number_setting("clocks.idle_ms", CLOCK, Live),
    number_setting("clocks.total_ms", CLOCK, Live),
    number_setting("realtime.connections_max", NONE_OR_MORE, Live),
    number_setting("realtime.streams_max", (1, 1024), Live),
    number_setting("realtime.message_bytes_max", (1024, 1 << 26), Live),
    number_setting("realtime.idle_ms", (1000, 3_600_000), Live),
    other_setting("webhooks.allowed_hosts", Live),
    other_setting("webhooks.allow_http", Live),
    other_setting("webhooks.allow_private_addresses", Live),
    number_setting("webhooks.timeout_ms", (100, 600_000), Live),
    number_setting("webhooks.in_flight_max", (1, 256), Live),
    number_setting("webhooks.waiting_max", COUNT, Live),
    number_setting("webhooks.attempts_max", (1, 1000), Live),
    number_setting("webhooks.age_max_s", (1, 604_800), Live),
    number_setting("webhooks.retry_ms", MS, Live),
    number_setting("webhooks.dead_letters_max", NONE_OR_MORE, Live),
    other_setting("workflows.folder", Live),
    number_setting("metrics.export_interval_ms", (100, 3_600_000), Live),
    number_setting("scale.horizon_s", (10, 3600), Live),
    number_setting("scale.utilization_percent", (5, 100), Live),
    other_setting("log.filter", Live),
    other_setting("log.json", Restart),
    other_setting("upstream.addresses", Restart),
    other_setting("upstream.api", Restart),
    other_setting("upstream.model", Restart),
    other_setting("upstream.api_key_file", Restart),
    number_setting("upstream.connect_timeout_ms", MS, Restart),
    number_setting("upstream.response_timeout_ms", MS, Restart),
    number_setting("upstream.silence_timeout_ms", MS, Restart),
    number_setting("upstream.wait_ms", MS, Restart),
    number_setting("upstream.probe_ms", MS, Restart),
];

/// The setting of this name.
pub(crate) fn of(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

const fn number_setting(key: &'static str, range: (u64, u64), takes: Takes) -> Setting {
    Setting {
        key,
        range: Some(range),
        takes,
    }
}

const fn other_setting(key: &'static str, takes: Takes) -> Setting {
    Setting {
        key,
        range: None,
        takes,
    }
}
