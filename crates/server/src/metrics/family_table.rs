//! The table of all metric families. The table in `docs/metrics.md` is this one, and so are the heads of the exported text.

/// Type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FamilyKind {
    Counter,
    Gauge,
    Histogram,
}

impl FamilyKind {
    /// Name in the text format, and in the documentation.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric family. Its unit is the end of the name.
#[derive(Debug)]
pub(super) struct MetricFamily {
    pub(super) name: &'static str,
    pub(super) kind: FamilyKind,
    pub(super) labels: &'static [&'static str],
    /// In Markdown, for a cell of a table.
    meaning: &'static str,
}

impl MetricFamily {
    /// The family of this name.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.name == name)
    }

    /// The meaning without Markdown, on one line.
    pub(super) fn help(&self) -> String {
        let mut help = String::with_capacity(self.meaning.len());
        let mut rest = self.meaning;
        while let Some(at) = rest.find(['`', '[', ']']) {
            let (text, link) = rest.split_at(at);
            help.push_str(text);
            let target = link
                .strip_prefix("](")
                .and_then(|link| link.split_once(')'));
            rest = target.map_or_else(|| &link[1..], |(_, after)| after);
        }
        help + rest
    }
}

/// One row for each family: name, type, labels and meaning.
macro_rules! families {
    ($($name:literal $kind:ident [$($label:literal),*] $meaning:literal;)*) => {
        &[$(MetricFamily {
            name: $name,
            kind: FamilyKind::$kind,
            labels: &[$($label),*],
            meaning: $meaning,
        }),*]
    };
}

/// All families, in the order of the documentation.
pub(super) const FAMILIES: &[MetricFamily] = families! {
    "millrace_build_info" Gauge ["version", "model"] "always 1; to join on";
    "millrace_device_info" Gauge ["model", "device"] "always 1: the device that computes each loaded model, `cpu` or the name of a GPU with its driver; absent for engines of other processes";
    "millrace_model_ready" Gauge [] "whether the model that the server was started with is ready: 1 or 0; while 0, families of admission, engine, steps, pages and logs are absent";
    "millrace_model_load_ratio" Gauge [] "loaded fraction of that model's bytes";
    "millrace_models_loaded" Gauge [] "loaded models, including the first";
    "millrace_models_bytes" Gauge [] "memory of models that can be evicted or are being unloaded, including KV caches";
    "millrace_models_waiting" Gauge [] "requests waiting for their model to be loaded";
    "millrace_model_loads_total" Counter [] "model loads";
    "millrace_model_unloads_total" Counter [] "model unloads: idle, requested, or evicted";
    "millrace_admission_wait_seconds" Histogram [] "from receiving a request's body to its admission";
    "millrace_admission_streams" Gauge ["state"] "`running`: slots in use, one for each running answer (or embedded text), none for parked and paused ones; `limit`: the adaptive concurrency limit";
    "millrace_admission_waiting" Gauge [] "requests waiting for admission";
    "millrace_admission_pages" Gauge ["state"] "`reserved`: KV cache pages reserved with the slots in use; `limit`: how many may be reserved";
    "millrace_admission_prefill_pending_tokens" Gauge [] "prompt tokens of admitted requests that have no first token yet";
    "millrace_engine_queue_wait_seconds" Histogram [] "time in the engine's queue";
    "millrace_engine_time_to_first_token_seconds" Histogram [] "from submission to the engine to the first token";
    "millrace_engine_inter_token_seconds" Histogram [] "time between two tokens of a choice; without time parked or paused, with time preempted";
    "millrace_socket_time_to_first_token_seconds" Histogram [] "from receiving a request to writing the frame with its first token to the socket; streamed responses only";
    "millrace_socket_inter_token_seconds" Histogram [] "time between two frames with tokens, as written to the socket; a slow reader's frame may contain several tokens";
    "millrace_reader_stall_seconds" Histogram [] "time that a frame waited for its reader, if more than a millisecond";
    "millrace_answer_seconds" Histogram [] "from receiving a request to the last frame of its response, completed responses only";
    "millrace_answers_open" Gauge [] "responses being generated or sent";
    "millrace_answers_total" Counter ["dialect", "outcome"] "ended responses: `complete`, `failed` (ended with an error), `left` (the client disconnected before the end)";
    "millrace_attached_open" Gauge [] "subscribers that attached to an existing stream or resumed it";
    "millrace_attached_total" Counter ["dialect", "outcome"] "ended subscriptions of that kind; outcomes as of `millrace_answers_total`";
    "millrace_streams" Gauge ["state"] "streams in the registry: `open`, `retained` (ended, and kept for replay)";
    "millrace_streams_retained_bytes" Gauge [] "bytes of retained streams";
    "millrace_streams_registered_total" Counter [] "registered streams";
    "millrace_streams_evicted_total" Counter ["cause"] "evicted streams: `expired`, `count` and `bytes` (over a limit), `forgotten` (deleted by request), `dropped` (open ones that were abandoned)";
    "millrace_recovery_seconds" Gauge [] "time from reading the journal at the start to the submission of the last recovered stream; 0 before";
    "millrace_recovery_streams" Gauge ["outcome"] "streams found at the start: `continued`, `ended` (readable), `rejected` (an error, or lost), `expired`, `unreadable` (of another version)";
    "millrace_recovery_tokens" Gauge [] "tokens of streams found in the journal at the start";
    "millrace_journal_durable" Gauge [] "whether records of streams reach the disk: 1 or 0; 0 without a journal. `journal` in `/health` has the reason";
    "millrace_journal_streams" Gauge [] "streams and stored responses in the journal";
    "millrace_journal_behind_tokens" Gauge [] "generated tokens of durable streams that are not written yet, so that readers do not see them";
    "millrace_journal_segments" Gauge [] "files of the journal";
    "millrace_journal_live_bytes" Gauge [] "bytes of the records of streams in the journal";
    "millrace_journal_written_bytes_total" Counter [] "bytes written to the journal";
    "millrace_journal_syncs_total" Counter [] "group commits: syncs that succeeded";
    "millrace_journal_rewritten_streams_total" Counter [] "streams that were written once more, so that old files could be deleted";
    "millrace_journal_errors_total" Counter [] "writes, syncs and removals of files that failed";
    "millrace_nats_connected" Gauge [] "whether there is a usable connection to NATS: 1 or 0";
    "millrace_nats_connects_total" Counter [] "connections to NATS that were made";
    "millrace_nats_messages_total" Counter ["direction"] "messages on the connection to NATS: `received`, `sent`";
    "millrace_nats_errors_total" Counter ["kind"] "errors that NATS servers sent, such as denied subjects (`server`); times that messages were dropped, not taken in time (`slow_consumer`)";
    "millrace_cluster_instances" Gauge ["state"] "other instances of the cluster: `alive`, `suspected`, `leaving`, `gone`";
    "millrace_cluster_heartbeats_total" Counter ["outcome"] "heartbeats: `received`, `sent`, `skipped` (no connection), `dropped` (malformed, newer, of another cluster, too many instances)";
    "millrace_cluster_differences" Gauge ["kind"] "other instances with another `cluster` under the same name, other `keys`, another `record_version`, another `model` of the same name";
    "millrace_cluster_unreadable_total" Counter ["subject"] "messages of other instances that cannot be read, dropped, by [kind of subject](#unreadable)";
    "millrace_cluster_instances_lost_total" Counter [] "instances that were gone without having left";
    "millrace_relay_attempts_total" Counter [] "requests sent to engines of other processes, repeated ones included";
    "millrace_relay_resubmitted_total" Counter [] "requests taken back from an engine that died, left or lost them";
    "millrace_relay_gap_reads_total" Counter [] "reads of tokens whose messages did not arrive";
    "millrace_relay_stale_total" Counter [] "messages of earlier attempts, which were ignored";
    "millrace_relay_diverged_total" Counter [] "requests that ended because an engine sent other tokens than the engine before";
    "millrace_relay_wrong_vectors_total" Counter [] "vectors of embeddings that cannot be right, dropped";
    "millrace_records_store_ready" Gauge [] "1 if records of streams can be stored in JetStream";
    "millrace_records_store_bytes" Gauge [] "bytes of all gateways' records in JetStream";
    "millrace_records_behind_bytes" Gauge [] "bytes of records that are not stored yet";
    "millrace_records_lag_seconds" Gauge [] "age of the oldest record that is not stored yet";
    "millrace_records_streams" Gauge ["state"] "streams of this gateway: `followed` by their records, or with records `missing`";
    "millrace_records_messages_total" Counter [] "messages with records that JetStream has stored";
    "millrace_records_bytes_total" Counter [] "bytes of messages with records that JetStream has stored";
    "millrace_records_copies_total" Counter [] "streams that were written to JetStream once more from memory";
    "millrace_records_errors_total" Counter ["kind"] "answers that were not clear (`unclear`), full buffers (`overflow`), streams of which JetStream has lost messages (`regression`)";
    "millrace_streams_claimed_total" Counter [] "streams of other gateways that this one has taken over";
    "millrace_streams_fenced_total" Counter [] "streams of this gateway that others have taken over";
    "millrace_peer_requests_total" Counter ["outcome"] "requests to other instances over HTTP, for lists, look-ups and metrics of the whole [cluster](cluster.md#any-gateway): `answered`, `failed`";
    "millrace_upstreams" Gauge ["state"] "third-party servers that compute the tokens ([upstreams.md](upstreams.md)): `usable` (answer and serve the model), `unusable`";
    "millrace_upstream_calls_in_flight" Gauge [] "calls of upstreams that run";
    "millrace_upstream_calls_total" Counter [] "calls of upstreams: one for each choice of a request, and one for each repetition";
    "millrace_upstream_continuations_total" Counter [] "calls that continued an answer which another call had begun";
    "millrace_upstream_tokens_total" Counter [] "tokens that upstreams returned";
    "millrace_upstream_failures_total" Counter ["reason"] "calls that failed: `unavailable` (no response), `cut` (ended before the answer), `refused` (rejected, or not understood)";
    "millrace_images_prepared_total" Counter ["result"] "images that media threads worked on: `ok` (decoded and resized), `failed` (broken, or their request ended before)";
    "millrace_images_known_total" Counter [] "images among those that were decoded for an earlier request";
    "millrace_image_prepare_seconds_total" Counter [] "time of media threads in that work";
    "millrace_image_bytes" Gauge [] "bytes of files and pixels of images of all requests, at most `vision.pixels_mib`";
    "millrace_image_descriptions_total" Counter ["result"] "images that another model was to describe (`vision.proxy`): described, cached or failed";
    "millrace_rejections_total" Counter ["reason"] "requests and connections rejected, by error code";
    "millrace_prompt_tokens_total" Counter [] "prompt tokens of admitted requests, including cached ones";
    "millrace_generated_tokens_total" Counter [] "generated tokens; the rate is tokens per second";
    "millrace_requests_total" Counter [] "requests that asked for admission, including rejected ones";
    "millrace_demand_requests_per_second" Gauge ["at"] "requests per second: `now`, and as predicted for the `horizon` (`scale.horizon_s`); [scale advice](#scale-advice)";
    "millrace_demand_tokens_per_second" Gauge ["at"] "tokens per second that must be computed for these requests: prompt tokens that are not cached, and generated ones";
    "millrace_demand_error_ratio" Gauge ["of"] "mean absolute error of earlier predictions of `requests` and `tokens` by the mean of prediction and truth (sMAPE), over six hours: 0 to 2";
    "millrace_demand_bias_ratio" Gauge ["of"] "mean error of earlier predictions of `requests` and `tokens`: -2 (too low) to 2 (too high)";
    "millrace_engine_capacity_tokens_per_second" Gauge [] "measured tokens per second of one engine with all slots in use, for the present mix of prompts and answers; 0 before 100 steps";
    "millrace_engines_wanted" Gauge [] "engines that the demand until the horizon needs, not rounded; absent while the capacity of an engine is unknown";
    "millrace_http_requests_total" Counter ["route", "status"] "requests; route `none` = unknown path or rejected before routing; [499](#status-499) = client disconnected before the headers";
    "millrace_http_bytes_total" Counter ["direction"] "bytes on connections, including headers and framing: `received`, `sent`";
    "millrace_connections_open" Gauge [] "open connections";
    "millrace_connections_accepted_total" Counter [] "accepted connections";
    "millrace_requests_queued" Gauge [] "requests in the engine's queue";
    "millrace_sequences" Gauge ["state"] "sequences in the engine: `running`, `parked` (backpressure), `paused` (by request), `waiting` (for pages, or for a slot)";
    "millrace_endings_total" Counter ["kind"] "ended choices, by reason";
    "millrace_clocks_fired_total" Counter ["clock"] "choices ended by a timeout: `queue`, `first_token`, `idle`, `total`, `reader`";
    "millrace_parks_total" Counter [] "times a sequence was parked because its client had not read";
    "millrace_pauses_total" Counter [] "times a sequence was paused by request";
    "millrace_resumes_total" Counter [] "times a sequence resumed after being parked or paused";
    "millrace_slow_consumers_total" Counter [] "times a request was parked for its client longer than the slow-consumer threshold";
    "millrace_engine_reader_stall_seconds_total" Counter [] "total time that sequences were parked for their clients";
    "millrace_preemptions_total" Counter [] "preemptions: sequences whose pages were taken to be recomputed later";
    "millrace_forward_retries_total" Counter [] "forward passes that failed and were retried on parts of the batch";
    "millrace_device_faults_total" Counter [] "times that the model's device failed: it is opened again, and the sequences compute their tokens again";
    "millrace_device_lost" Gauge [] "1 while the model's device is lost: it could not be opened again, or failed too often; streams end with `device_failed`";
    "millrace_steps_total" Counter [] "steps with a forward pass";
    "millrace_step_rows_total" Counter [] "query tokens computed in all steps, including draft and forced tokens";
    "millrace_rows_void_total" Counter [] "rows of a model that runs ahead that were for nothing: their sequence had ended, or had lost its pages, when the results came";
    "millrace_draft_tokens_total" Counter [] "draft tokens verified (speculative decoding)";
    "millrace_draft_tokens_accepted_total" Counter [] "draft tokens accepted; divided by `millrace_draft_tokens_total`: the acceptance rate";
    "millrace_forced_tokens_total" Counter [] "tokens forced by [structured output](forms.md#forced-tokens) that took no step of their own";
    "millrace_draft_faults_total" Counter [] "failed forward passes of the draft model or the MTP head; after 8 it is not used any more";
    "millrace_draft_pages_used" Gauge [] "KV cache pages of the draft model in use";
    "millrace_encodings_total" Counter [] "images that were encoded";
    "millrace_encodings_failed_total" Counter [] "encodings that failed, each with its request";
    "millrace_encode_seconds_total" Counter [] "total time of encodings";
    "millrace_encoding_hits_total" Counter [] "images whose rows were in the cache of encodings";
    "millrace_encodings_dropped_total" Counter [] "encodings that the cache dropped for others (`vision.cache_mib`)";
    "millrace_encoding_bytes" Gauge [] "bytes of the cache of encodings";
    "millrace_step_seconds" Histogram [] "duration of a step with a forward pass";
    "millrace_step_batch_sequences" Histogram [] "sequences in the batch of a step";
    "millrace_step_prefill_rows" Histogram [] "prefill tokens in the batch of a step that had any";
    "millrace_observer_panics_total" Counter [] "engine observers that panicked and were removed; other than 0 is a bug, and step times are missing since";
    "millrace_prefill_rows_total" Counter [] "prefill tokens computed, including recomputation after preemption";
    "millrace_prefix_hit_tokens_total" Counter [] "prompt tokens taken from the prefix cache";
    "millrace_prompt_disk_hit_tokens_total" Counter [] "prompt tokens read from the [prompt cache on disk](scheduling.md#the-prompt-cache-on-disk) instead of being computed";
    "millrace_prompt_disk_read_bytes_total" Counter [] "bytes of keys and values read from the prompt cache on disk";
    "millrace_prompt_disk_read_seconds_total" Counter [] "total time that requests waited for the prompt cache on disk; bytes divided by this: the rate that decides between reading and computing";
    "millrace_prompt_disk_written_bytes_total" Counter [] "bytes written to the prompt cache on disk";
    "millrace_prompt_disk_bytes" Gauge [] "bytes of the files of the prompt cache on disk";
    "millrace_prompt_disk_damaged_total" Counter [] "files of the prompt cache on disk that were removed because head or checksum were not theirs; their tokens were computed";
    "millrace_prompt_disk_failures_total" Counter [] "reads and writes of the prompt cache on disk that failed or had no reply within 2 s";
    "millrace_pages" Gauge ["state"] "KV cache pages: `free`, `used`, `cached` (used by no sequence, kept for their content)";
    "millrace_log_bytes" Gauge ["pool"] "bytes of token log segments in use: `tokens`, `alternatives` (log-probabilities)";
    "millrace_log_segments_reserved" Gauge ["pool"] "token log segments reserved for open logs";
    "millrace_log_segments_allocated_total" Counter ["pool"] "token log segments allocated from the system";
    "millrace_log_segments_reused_total" Counter ["pool"] "token log segments reused from the free list";
    "millrace_webhook_attempts_total" Counter ["outcome"] "attempts to deliver an event to a [webhook](webhooks.md): `delivered`, `failed`";
    "millrace_webhook_dead_total" Counter [] "events whose attempts ended without success";
    "millrace_webhook_waiting" Gauge [] "running streams with a webhook, and events that are not delivered yet";
    "millrace_webhook_dead_letters" Gauge [] "events whose attempts ended without success and that are kept";
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_of_the_documentation_is_this_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let document = std::fs::read_to_string(path).unwrap();
        let rows = document
            .lines()
            .filter(|line| line.starts_with("| `millrace_"));
        let rows: Vec<_> = rows.collect();
        for (index, family) in FAMILIES.iter().enumerate() {
            let labels = family.labels.iter().map(|label| format!("`{label}`"));
            let labels = labels.collect::<Vec<_>>().join(", ");
            let labels = if labels.is_empty() { "–" } else { &labels };
            let MetricFamily { name, meaning, .. } = family;
            let want = format!(
                "| `{name}` | {} | {labels} | {meaning} |",
                family.kind.name()
            );
            assert_eq!(rows.get(index), Some(&want.as_str()), "docs/metrics.md");
        }
        assert_eq!(rows.len(), FAMILIES.len());
    }

    #[test]
    fn names_have_the_forms_of_their_types() {
        for (index, family) in FAMILIES.iter().enumerate() {
            let is_counter = family.kind == FamilyKind::Counter;
            assert_eq!(
                family.name.ends_with("_total"),
                is_counter,
                "{}",
                family.name
            );
            assert!(family.name.starts_with("millrace_"), "{}", family.name);
            let first = FAMILIES.iter().position(|other| other.name == family.name);
            assert_eq!(first, Some(index), "{}", family.name);
            let help = family.help();
            let is_plain = !help.contains(['`', '[', ']', '\\', '\n']);
            assert!(
                is_plain && !help.contains("](") && !help.is_empty(),
                "{help}"
            );
        }
        let help = |name| MetricFamily::named(name).unwrap().help();
        assert_eq!(
            help("millrace_webhook_attempts_total"),
            "attempts to deliver an event to a webhook: delivered, failed"
        );
    }
}
