//! Why each default is what it is, for `docs/settings.md`.
//!
//! The yardsticks: an answer of 10,000 tokens (a model that reasons), a prompt of 30,000, and 32 clients, all on two
//! processors. An official client waits 600 seconds for a byte and then tries again.

/// The reason for a setting's default.
pub(super) fn of(key: &str) -> Option<&'static str> {
    let found = REASONS.iter().find(|(known, _)| *known == key)?;
    Some(found.1)
}

/// All of them, in the catalog's order.
pub(super) const REASONS: &[(&str, &str)] = &[
    (
        "preset",
        "the defaults themselves suit one machine and a few dozen clients",
    ),
    (
        "model.path",
        "the built-in model answers without a download",
    ),
    ("model.name", "a file is known by its name"),
    (
        "model.context",
        "what was trained for is what a client expects",
    ),
    (
        "model.quantize",
        "what the file holds is what was tested by its makers",
    ),
    (
        "model.threads",
        "more would share processors, fewer would leave one idle",
    ),
    (
        "model.kv_mib",
        "a prompt of 30,000 tokens, an answer of 10,000 and others beside them fit; three quarters of the memory are left for weights and the rest of the machine",
    ),
    (
        "model.kv_type",
        "`q8_0` changes tokens a little; whoever needs its room says so",
    ),
    (
        "model.deterministic",
        "only with AMX do tokens depend on the batch, and there it would cost speed",
    ),
    (
        "models.directories",
        "`pull` works for a user who has set nothing",
    ),
    (
        "models.memory_budget_mib",
        "an eighth is left for the system, buffers and clients on the same machine",
    ),
    (
        "models.idle_unload_s",
        "as Ollama: the pause in a conversation costs no second load",
    ),
    ("models.waiting_max", "as many as may wait for a place"),
    (
        "models.load_timeout_s",
        "as long as official clients wait for a byte",
    ),
    (
        "answers.tool_parser",
        "the template and the vocabulary say it of all models that are common",
    ),
    ("answers.reasoning_parser", "the same"),
    (
        "answers.reasoning_field",
        "what most clients read (DeepSeek's, vLLM's and llama.cpp's name)",
    ),
    (
        "answers.disable_additional_properties",
        "small models invent members until `max_tokens` where they may; llama.cpp closes such objects too",
    ),
    (
        "engine.sequences_max",
        "five times what is let in at one time: one request may have several answers",
    ),
    (
        "engine.step_tokens",
        "weights are read once for so many rows, and a step still ends soon",
    ),
    (
        "engine.inbox_max",
        "twice the requests that may be open: the engine never refuses what admission took",
    ),
    (
        "engine.step_target_ms",
        "ten tokens a second for those who stream while a prompt of 30,000 is computed beside them",
    ),
    (
        "engine.ageing_ms",
        "work of the lowest class goes on within a minute however busy the others are",
    ),
    (
        "engine.speculation",
        "it pays for texts that repeat themselves or with a second model: who runs such says so",
    ),
    (
        "engine.draft_tokens",
        "longer guesses are rarely right to their end",
    ),
    ("engine.draft_model", "there is none to guess with"),
    (
        "engine.draft_kv_mib",
        "guesses go on as far as the model itself does",
    ),
    (
        "server.bind",
        "only this machine can reach it until somebody says otherwise",
    ),
    ("server.no_auth", "an open door is somebody's decision"),
    (
        "server.hosts",
        "web pages cannot call a local server by a name of their own",
    ),
    (
        "server.origins",
        "pages and applications of this machine are its user's own, as Ollama takes them; any other needs a name",
    ),
    (
        "server.io_threads",
        "sockets cost little beside the model; the second takes what arrives while the first writes",
    ),
    (
        "server.open_requests_max",
        "those who run and those who wait, with half as many again for bodies that are being read",
    ),
    (
        "server.connections_max",
        "each has a few KiB; idle ones are most",
    ),
    (
        "server.connections_per_ip_max",
        "an office behind one address, and a load generator",
    ),
    (
        "server.body_bytes_max",
        "a prompt of 30,000 tokens has 120 KB; a context of a million 4 MB",
    ),
    (
        "server.header_timeout_ms",
        "a head is one packet; slower is an attack or a dead line",
    ),
    (
        "server.body_timeout_ms",
        "a prompt of 30,000 tokens within it needs 4 KB/s",
    ),
    (
        "server.drain_timeout_ms",
        "within the 30 s after which Kubernetes kills; `docker stop` waits 10 s unless it is told more",
    ),
    (
        "keys.file",
        "without keys only this machine can reach the server",
    ),
    (
        "keys.prefix_cache",
        "what one key sends is no other key's business",
    ),
    (
        "adaptive_limits.enabled",
        "how many streams a machine carries is measured, not guessed",
    ),
    (
        "adaptive_limits.min_streams",
        "a few streams run at once in any case; it grows from there as latency allows",
    ),
    (
        "adaptive_limits.max_streams",
        "32 clients and some; beyond it memory for keys and values is what is short",
    ),
    (
        "adaptive_limits.adjustment_interval_ms",
        "long enough for several prompts to show what a change did",
    ),
    (
        "adaptive_limits.target_ttft_ms",
        "what is let in begins at once; who must wait, waits in the queue, where it is told its place",
    ),
    (
        "adaptive_limits.target_itl_ms",
        "two tokens a second: slower is read as a fault",
    ),
    (
        "queue.max_depth",
        "eight times 32 clients; a place costs 256 bytes and the body",
    ),
    (
        "queue.timeout_ms",
        "half of the 600 s that official clients wait, the other half is for the answer; whose wait is predicted to be longer is refused as it arrives, and 32 clients on two processors never are",
    ),
    (
        "queue.ageing_ms",
        "an urgent class waits less, a low one is not starved: half a minute makes up for all five",
    ),
    (
        "reservation.overcommit_percent",
        "most answers end long before `max_tokens`; who is preempted is later, never wrong",
    ),
    (
        "reservation.assumed_answer_tokens",
        "a long chat answer; ten times that would keep out streams which fit",
    ),
    (
        "streams.keep_alive_ms",
        "below the 15 to 60 s of silence after which proxies close",
    ),
    (
        "streams.open_max",
        "all who run and wait, and thousands whose clients may come back",
    ),
    (
        "streams.retention_s",
        "a connection that broke is made again within it",
    ),
    ("streams.retained_max", "a minute of short answers"),
    ("streams.retention_bytes", "four million tokens"),
    (
        "streams.detached_tokens",
        "an answer of 10,000 tokens is whole when its client comes back, or a job's is asked for",
    ),
    (
        "streams.detached_wait_s",
        "what waits holds memory that others need",
    ),
    (
        "responses.stored_max",
        "a day's conversations of a small team",
    ),
    ("responses.stored_bytes", "16 KiB for each"),
    (
        "backpressure.max_unacked_tokens",
        "seconds of reading ahead; more would be computed for clients that left",
    ),
    (
        "backpressure.slow_consumer_threshold_ms",
        "longer than a lost packet takes to be sent again",
    ),
    (
        "backpressure.ack_timeout_ms",
        "a client that reads nothing for so long, its buffers full, has stopped",
    ),
    (
        "backpressure.policy",
        "nobody comes back for a stream that cannot be resumed",
    ),
    (
        "clocks.first_token_ms",
        "a prompt of 30,000 tokens at 17 a second, an 8B model on two processors; who does not want to wait so long leaves, and frees its place",
    ),
    (
        "clocks.idle_ms",
        "the same: a sequence that gave its memory away computes its tokens again",
    ),
    (
        "clocks.total_ms",
        "10,000 tokens at one in two seconds; answers end with their context in any case, so it is for what was paused and forgotten",
    ),
    (
        "realtime.connections_max",
        "each has its own buffers, 64 streams and a mebibyte of message",
    ),
    (
        "realtime.streams_max",
        "a page with as many conversations side by side",
    ),
    (
        "realtime.message_bytes_max",
        "a prompt of 30,000 tokens eight times over",
    ),
    ("realtime.idle_ms", "two pings"),
    (
        "workflows.folder",
        "what clients may run is the operator's to choose",
    ),
    (
        "metrics.export_interval_ms",
        "several points in each minute that a dashboard shows",
    ),
    (
        "metrics.otlp_endpoint",
        "figures leave the machine when somebody says where to",
    ),
    ("log.filter", "what an operator does something about"),
    ("log.json", "people read it first"),
];
