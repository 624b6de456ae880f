//! Reasons for the defaults of settings that are not about requests: events, metrics, logs, and where tokens are computed.

/// In the catalog's order.
pub(super) const OPERATION: &[(&str, &str)] = &[
    (
        "webhooks.allowed_hosts",
        "requests must not make the server send to hosts that the operator does not know",
    ),
    (
        "webhooks.allow_http",
        "events and signatures are not readable on the way",
    ),
    (
        "webhooks.allow_private_addresses",
        "requests must not reach services inside of the operator's network",
    ),
    (
        "webhooks.timeout_ms",
        "the specification of Standard Webhooks recommends 15 to 30 s",
    ),
    (
        "webhooks.in_flight_max",
        "an attempt is a thread that mostly waits",
    ),
    (
        "webhooks.waiting_max",
        "a few minutes of ended responses; each takes some KiB",
    ),
    (
        "webhooks.attempts_max",
        "half a minute, minutes, then hourly: about seven hours",
    ),
    (
        "webhooks.age_max_s",
        "an event that is a day old is fetched, not waited for",
    ),
    (
        "webhooks.retry_ms",
        "a receiver that restarts is back within seconds",
    ),
    ("webhooks.dead_letters_max", "as many as may wait"),
    (
        "workflows.folder",
        "the operator chooses what clients may run",
    ),
    (
        "metrics.export_interval_ms",
        "several points for each minute of a dashboard",
    ),
    (
        "scale.horizon_s",
        "three minutes until a new engine has loaded its model, and two to order it",
    ),
    (
        "scale.utilization_percent",
        "fewer late first tokens and fewer engine-hours than with 75 % of the present utilization (docs/performance.md)",
    ),
    ("log.filter", "what an operator can act on"),
    ("log.json", "logs are read by people first"),
    ("upstream.addresses", "the model computes here"),
    ("upstream.api", "servers say what they are"),
    ("upstream.model", "most servers have one model"),
    ("upstream.api_key_file", "a secret is no setting"),
    ("upstream.connect_timeout_ms", "servers are near"),
    ("upstream.response_timeout_ms", "long prompts, and queues"),
    (
        "upstream.silence_timeout_ms",
        "long prompts between tokens of others",
    ),
    ("upstream.wait_ms", "a server restarts in a minute"),
    ("upstream.probe_ms", "a small request for each server"),
];
