//! Reasons for the defaults, for `docs/settings.md`.
//!
//! The yardsticks: an answer of 10,000 tokens (a model that reasons), a prompt of 30,000, and 32 clients, all on two
//! processors. An official client waits 600 seconds for a byte and then tries again.

mod operation;

use operation::OPERATION;

/// The reason for a setting's default.
pub(super) fn of(key: &str) -> Option<&'static str> {
    all().find(|(known, _)| *known == key).map(|found| found.1)
}

/// The reasons, in the catalog's order.
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    REQUESTS.iter().chain(OPERATION).copied()
}

/// Of settings about the model and its requests.
const REQUESTS: &[(&str, &str)] = &[
    (
        "preset",
        "the defaults suit one machine and a few dozen clients",
    ),
    (
        "model.path",
        "the built-in model answers without a download",
    ),
    ("model.name", "the file name identifies the model"),
    ("model.context", "clients expect the model's own context"),
    ("model.adapters", "a model is served as it is"),
    (
        "model.chat_template",
        "a model's own template is the one of its training",
    ),
    (
        "model.quantize",
        "the file's precision is what its authors tested",
    ),
    (
        "model.threads",
        "more would share processors, fewer would leave one idle; in a model of a few MiB, threads wait for each other longer than they compute",
    ),
    (
        "model.kv_mib",
        "a prompt of 30,000 tokens, an answer of 10,000 and others beside them fit; three quarters of the memory remain for weights and the rest of the machine",
    ),
    (
        "model.kv_type",
        "`q8_0` changes results slightly, `q4_0` visibly, so both are opt-in",
    ),
    (
        "model.deterministic",
        "results depend on the batch only with AMX, where this would cost speed",
    ),
    ("models.directories", "`pull` works without configuration"),
    (
        "models.caches",
        "a model that is on the machine already needs no second download",
    ),
    (
        "models.packed_cache",
        "a second start takes a third of a second instead of seconds; a copy decodes as fast as packed weights do",
    ),
    (
        "models.packed_cache_gib",
        "a dozen models of a gigabyte, or three of 8B in Q4_K_M",
    ),
    (
        "models.packed_cache_directory",
        "files that can be made again belong into the user's cache",
    ),
    (
        "models.memory_budget_mib",
        "an eighth remains for the system, buffers and clients on the same machine",
    ),
    (
        "models.idle_unload_s",
        "as Ollama: a pause in a conversation does not cost a second load",
    ),
    (
        "models.load_timeout_s",
        "the time that official clients wait for a byte",
    ),
    ("models.named", "models are served as their files are"),
    (
        "answers.tool_parser",
        "the template and the vocabulary identify all common models",
    ),
    ("answers.reasoning_parser", "the same"),
    (
        "answers.reasoning_field",
        "the field that most clients read (used by DeepSeek, vLLM and llama.cpp)",
    ),
    (
        "answers.disable_additional_properties",
        "small models otherwise invent members until `max_tokens`; llama.cpp closes such objects too",
    ),
    (
        "sampling.temperature",
        "as the model's files recommend; without a recommendation 0.8, as in llama.cpp",
    ),
    ("sampling.top_k", "likewise; 40"),
    ("sampling.top_p", "likewise; 0.95"),
    ("sampling.min_p", "likewise; 0.05"),
    ("sampling.repetition_penalty", "likewise; 1"),
    ("sampling.presence_penalty", "likewise; 0"),
    ("sampling.frequency_penalty", "likewise; 0"),
    (
        "engine.sequences_max",
        "five times what is admitted at one time: one request may have several choices",
    ),
    (
        "engine.step_tokens",
        "weights are read once for that many tokens, and a step still ends soon",
    ),
    (
        "engine.inbox_max",
        "twice the requests that may be open: the engine never rejects an admitted request",
    ),
    (
        "engine.step_target_ms",
        "ten tokens a second for other streams while a prompt of 30,000 tokens is computed",
    ),
    (
        "engine.ageing_ms",
        "work of the lowest class continues within a minute, however busy the others are",
    ),
    (
        "engine.speculation",
        "useful for repetitive texts or with a draft model, so it is opt-in",
    ),
    (
        "engine.draft_tokens",
        "longer proposals are rarely accepted to their end",
    ),
    ("engine.draft_model", "there is no draft model by default"),
    (
        "engine.draft_kv_mib",
        "the draft model's context is as long as the model's",
    ),
    (
        "server.bind",
        "only this machine can reach the server unless configured otherwise",
    ),
    (
        "server.no_auth",
        "serving without authentication is an explicit decision",
    ),
    (
        "server.hosts",
        "protects a local server from web pages (DNS rebinding)",
    ),
    (
        "server.origins",
        "pages and applications of this machine belong to its user, as in Ollama; others must be listed",
    ),
    (
        "server.page",
        "its files need no key and do nothing; its requests need the key of whoever types one",
    ),
    (
        "server.api_prefix",
        "most servers have an address of their own, or a proxy that takes the prefix off",
    ),
    (
        "server.io_threads",
        "sockets cost little compared with the model; the second reads while the first writes",
    ),
    (
        "server.open_requests_max",
        "running and waiting requests, and half as many again whose bodies are being read",
    ),
    (
        "server.connections_max",
        "each needs a few KiB; most are idle",
    ),
    (
        "server.connections_per_ip_max",
        "an office behind one address, and a load generator",
    ),
    (
        "server.body_bytes_max",
        "a prompt of 30,000 tokens has 120 KB; one of a million tokens 4 MB",
    ),
    (
        "server.header_timeout_ms",
        "headers are one packet; slower is an attack or a dead connection",
    ),
    (
        "server.body_timeout_ms",
        "a prompt of 30,000 tokens within it needs 4 KB/s",
    ),
    (
        "server.drain_timeout_ms",
        "within the 30 s after which Kubernetes kills; `docker stop` waits 10 s by default",
    ),
    (
        "server.engine_stall_s",
        "longer than the longest step, a prompt's on few cores; WatchdogSec of the systemd unit is the same",
    ),
    (
        "listener.unix_socket",
        "programs of the same machine reach the address, too",
    ),
    (
        "listener.unix_socket_mode",
        "the umask is the administrator's word on who may reach what a process makes",
    ),
    (
        "listener.tls_cert",
        "there is no certificate by default; on loopback nobody listens in",
    ),
    ("listener.tls_key", "the same"),
    (
        "keys.file",
        "without keys only this machine can reach the server",
    ),
    (
        "keys.prefix_cache",
        "a key must not learn what another key sends",
    ),
    (
        "adaptive_limits.enabled",
        "a machine's capacity is better measured than guessed",
    ),
    (
        "adaptive_limits.min_streams",
        "eight clients are served at once from the first second; the limit grows from there as latency allows",
    ),
    (
        "adaptive_limits.max_streams",
        "32 clients and some more; beyond that the KV cache is the bottleneck",
    ),
    (
        "adaptive_limits.target_ttft_ms",
        "fewer answers would shorten that wait; the time of prompts is as long at any limit",
    ),
    (
        "adaptive_limits.target_itl_ms",
        "two tokens a second: slower looks like a fault",
    ),
    (
        "queue.max_depth",
        "eight times 32 clients; an entry costs 256 bytes and the body",
    ),
    (
        "queue.timeout_ms",
        "half of the 600 s that official clients wait; the other half is for the answer. 32 clients on two processors are never rejected",
    ),
    (
        "queue.ageing_ms",
        "urgent classes wait less, low ones are not starved: half a minute outweighs all five classes",
    ),
    (
        "reservation.overcommit_percent",
        "most answers end long before `max_tokens`; a preempted answer is later, never wrong",
    ),
    (
        "reservation.assumed_answer_tokens",
        "a long chat answer; ten times that would reject streams that fit",
    ),
    (
        "streams.keep_alive_ms",
        "below the 15 to 60 s of silence after which proxies close a connection",
    ),
    (
        "streams.open_max",
        "all running and waiting requests, and thousands of detached streams",
    ),
    ("streams.retention_s", "clients reconnect within a minute"),
    ("streams.retained_max", "a minute of short answers"),
    ("streams.retention_bytes", "four million tokens"),
    (
        "streams.detached_tokens",
        "an answer of 10,000 tokens is complete when its client returns",
    ),
    (
        "streams.detached_wait_s",
        "a waiting stream holds memory that others need",
    ),
    (
        "responses.stored_max",
        "a day's conversations of a small team",
    ),
    ("responses.stored_bytes", "16 KiB for each"),
    (
        "journal.directory",
        "resumable streams outlive the process without configuration; a restart on the same port finds the streams",
    ),
    (
        "journal.sync_ms",
        "ten syncs a second do not slow a disk, and a power loss is rarer than a crash",
    ),
    (
        "journal.bytes_max",
        "thirty million tokens of live streams, and as many again while these are rewritten",
    ),
    (
        "journal.required",
        "a directory that was chosen must work; without a choice a read-only home must not prevent the start",
    ),
    (
        "cache.disk_gib",
        "prompts of users are not written to a disk unless the operator wants it",
    ),
    (
        "cache.disk_directory",
        "a cache may be lost, so it is beside the downloaded models",
    ),
    ("cluster.role", "one process needs no NATS"),
    ("cluster.name", "one cluster per NATS account is usual"),
    ("cluster.servers", "a single process opens no connection"),
    (
        "cluster.nkey_file",
        "a NATS server on the same machine often has no login",
    ),
    ("cluster.user", "the same"),
    ("cluster.password_file", "the same"),
    ("cluster.token_file", "the same"),
    (
        "cluster.tls_ca",
        "certificates of public authorities need no configuration",
    ),
    (
        "cluster.tls_cert",
        "NATS servers ask for one only if configured",
    ),
    ("cluster.tls_key", "the same"),
    (
        "cluster.secret_file",
        "one gateway asks no other; several do not trust each other's addresses without it",
    ),
    (
        "cluster.instance_id",
        "two processes never have the same random id",
    ),
    (
        "cluster.address",
        "on one machine the listening address is the right one",
    ),
    (
        "cluster.heartbeat_ms",
        "an engine that died is noticed within a second, at the cost of four small messages a second",
    ),
    ("cluster.placement", "finds the most cached prefixes"),
    ("cluster.replicas", "three survive the loss of one"),
    (
        "cluster.behind_bytes",
        "15 s at 300,000 tokens a second: longer than JetStream needs to elect a leader",
    ),
    (
        "cluster.store_bytes",
        "the records of some ten thousand streams with long prompts",
    ),
    (
        "cluster.records_age_max_s",
        "longer than any retention; only records of gateways that never came back are left to it",
    ),
    ("cluster.engine_wait_ms", "an engine can be restarted"),
    (
        "backpressure.max_unacked_tokens",
        "some seconds of reading; more would be computed for clients that have disconnected",
    ),
    (
        "backpressure.ack_timeout_ms",
        "a client that reads nothing for that long, with full buffers, has stopped",
    ),
    (
        "backpressure.policy",
        "a stream that cannot be resumed is of no use without its client",
    ),
    (
        "clocks.first_token_ms",
        "a prompt of 30,000 tokens at 17 a second, an 8B model on two processors; a client that disconnects earlier frees its slot",
    ),
    (
        "clocks.idle_ms",
        "as above: a preempted sequence computes its tokens again",
    ),
    (
        "clocks.total_ms",
        "10,000 tokens at one in two seconds; meant for streams that were paused and forgotten",
    ),
    (
        "realtime.connections_max",
        "each has its own buffers, 64 streams and a message of up to 1 MiB",
    ),
    (
        "realtime.message_bytes_max",
        "a prompt of 30,000 tokens eight times over",
    ),
];
