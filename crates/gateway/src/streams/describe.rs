//! Descriptions of streams in the streams API.

use super::control::RecordedUpdate;
use super::stream_metrics::StreamMetrics;
use super::stream_record::{StreamRecord, StreamState};
use super::{ChoiceLog, StartedGeneration};
use crate::owners_slot::{OwnersSlot, StreamReplica};
use crate::records::end_name;
use admission::QueuePosition;
use generate::stream_source::Change;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use stream::{EntryState, ListCursor};

/// The state of a stream.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Stream")]
pub struct Description<'a> {
    object: &'static str,
    id: String,
    /// Position in lists: `after` for the streams that were opened later, or in the list of unread streams ended later.
    cursor: u64,
    /// Id of the response in the wire protocol of the request.
    response_id: &'a str,
    model: &'a str,
    /// Wire protocol of the request.
    dialect: &'static str,
    state: &'static str,
    priority: &'static str,
    /// Name of the API key that opened the stream, for callers with the scope `admin`; absent for others, without keys, and for
    /// a key that was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// Position in the admission queue, from 1; absent while the stream is not queued.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<usize>,
    /// Predicted time to the stream's slot in milliseconds, from the rate at which slots become free; absent while the stream is
    /// not queued or nothing was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_wait_ms: Option<u64>,
    /// Error code of a stream that was rejected before its start; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'static str>,
    /// Whether the stream can be read again after its end.
    resumable: bool,
    /// Whether the stream continues after a restart of the server.
    durable: bool,
    /// Whether the records are in JetStream, so that another gateway of the cluster can continue the stream; absent without
    /// a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    replicated: Option<bool>,
    /// Gateways that have owned the stream, one after another; absent without a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u64>,
    /// Id of the gateway that owns the stream; absent without a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    /// Whether the stream has ended, its readers have left, and none of them has the end, nor was it acknowledged; absent if
    /// not.
    #[serde(skip_serializing_if = "Option::is_none")]
    unread: Option<bool>,
    /// Whether the client sends acknowledgements.
    explicit_acks: bool,
    /// Whether a client is attached whose reading returns credit.
    attached: bool,
    /// How often a restarted server took the stream over; absent for a stream of this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    recovered: Option<u64>,
    /// Whether tokens since the last restart are computed with another arithmetic than the tokens before; absent if not.
    #[serde(skip_serializing_if = "Option::is_none")]
    recomputed: Option<bool>,
    /// Time at which the stream was opened, in seconds since the Unix epoch.
    created: i64,
    prompt_tokens: u64,
    /// Prompt tokens taken from the prefix cache.
    cached_tokens: u64,
    /// Prompt tokens that are computed or taken from the prefix cache.
    prompt_done: u64,
    /// Generated tokens of all choices.
    completion_tokens: u64,
    speculation: Speculation,
    /// Tokens that a choice may be ahead of its reader; 0 if unlimited.
    credit_window: u64,
    choices: Vec<Choice>,
    /// Control updates of the stream; absent without updates.
    #[serde(skip_serializing_if = "Option::is_none")]
    control: Option<Control>,
    timings_ms: Timings,
    measures: StreamMetrics,
    /// Park reason: `credit`, `detached`, `pages`, `paused` or `place`; absent while the stream is not parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    parked: Option<&'static str>,
}

/// Control updates of a stream.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "StreamControl")]
struct Control {
    /// Number of control updates.
    told: u64,
    /// The most recent updates, oldest first.
    last: Vec<RecordedUpdate>,
}

/// Speculative decoding statistics over all choices of a stream.
#[derive(JsonSchema, Serialize)]
struct Speculation {
    /// Number of draft tokens that were verified.
    drafted: u64,
    /// Number of draft tokens that were accepted.
    accepted: u64,
    /// Accepted draft tokens divided by verified draft tokens; `null` without draft tokens.
    acceptance_rate: Option<f64>,
}

impl Speculation {
    fn new(drafted: u64, accepted: u64) -> Self {
        Self {
            drafted,
            accepted,
            acceptance_rate: (drafted > 0).then(|| accepted as f64 / drafted as f64),
        }
    }
}

/// One choice of a stream.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "StreamChoice")]
struct Choice {
    index: usize,
    /// Generated tokens.
    tokens: u64,
    /// Tokens that the reader has read or acknowledged.
    accepted: u64,
    /// Tokens that count against the credit window.
    unaccepted: u64,
    /// Reason for the end of the choice; `null` while the choice is generated.
    end: Option<&'static str>,
    /// The timeout that fired, or the error code of the failure; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'static str>,
}

/// Times in milliseconds since the opening of the stream; `null` for events that have not happened.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "StreamTimings")]
struct Timings {
    /// Time of this description.
    age: u64,
    /// Start of prefill.
    started: Option<u64>,
    /// First generated token.
    first_token: Option<u64>,
    /// End of the stream.
    ended: Option<u64>,
}

impl Description<'_> {
    /// The description with the instance that owns the stream.
    #[must_use]
    pub fn at_instance(self, instance: Option<String>) -> Self {
        Self {
            instance: instance.or(self.instance),
            ..self
        }
    }

    /// The description with the position in another list than that of all streams.
    #[must_use]
    pub fn at_cursor(self, cursor: ListCursor) -> Self {
        Self {
            cursor: cursor.0,
            ..self
        }
    }

    /// The description with the name of the key that opened the stream.
    #[must_use]
    pub fn of_key(self, key: Option<String>) -> Self {
        Self { key, ..self }
    }
}

/// Describes a stream at `now`.
pub fn describe_stream<'a>(
    stream: &'a stream::Entry<StreamRecord>,
    owners: &OwnersSlot,
    now: Instant,
) -> Description<'a> {
    let record = &stream.payload;
    let owners = owners.get().filter(|_| record.terms().resumable);
    let replica = owners.map(|owners| owners.replica_of(record.id()));
    let is_followed = |replica: Option<StreamReplica>| replica.is_some_and(|r| r.is_followed);
    let (terms, meta) = (record.terms(), record.meta());
    let started = record.started();
    let sum = |of: fn(&engine::Progress) -> u64| {
        let requests = started.iter().flat_map(|started| &started.requests);
        requests.map(|request| of(&request.progress)).sum()
    };
    let choices: Vec<_> = started
        .iter()
        .flat_map(|started| &started.choices)
        .enumerate()
        .map(|(index, log)| describe_choice(index, log))
        .collect();
    Description {
        object: "stream",
        id: record.id().to_string(),
        cursor: stream.cursor.0,
        response_id: &meta.response_id,
        model: &meta.model,
        dialect: terms.protocol.name(),
        state: record.state().name(),
        priority: meta.stream_options.priority.name(),
        key: None,
        position: record.queue_position().and_then(QueuePosition::position),
        predicted_wait_ms: record
            .queue_position()
            .and_then(QueuePosition::predicted_wait)
            .map(as_milliseconds),
        refused: record.rejection().map(|error| error.code),
        resumable: record.is_kept(),
        durable: record.is_durable(),
        replicated: replica.map(is_followed),
        generation: replica.flatten().map(|replica| replica.generation),
        instance: replica.flatten().map(|r| r.instance.to_string()),
        unread: record.is_unread().then_some(true),
        explicit_acks: terms.explicit_acks,
        attached: record.credit_owner.is_taken(),
        recovered: record.is_recovered().then_some(record.recoveries),
        recomputed: record.is_recomputed.load(Ordering::Relaxed).then_some(true),
        created: meta.created_unix_s,
        prompt_tokens: started.map_or(0, |started| started.prompt_tokens),
        cached_tokens: started.map_or(0, StartedGeneration::cached_tokens),
        prompt_done: started.map_or(0, StartedGeneration::prompt_done),
        completion_tokens: choices.iter().map(|choice| choice.tokens).sum(),
        speculation: Speculation::new(
            sum(engine::Progress::drafted),
            sum(engine::Progress::accepted),
        ),
        credit_window: terms.credit_window,
        choices,
        control: describe_control(stream),
        timings_ms: describe_timings(stream, started, now),
        measures: StreamMetrics::of_stream(stream, now),
        parked: park_reason(record),
    }
}

fn park_reason(record: &StreamRecord) -> Option<&'static str> {
    match (record.state(), record.transitions.last_change()) {
        (StreamState::Paused, _) => Some("paused"),
        (StreamState::Parked, Change::Parked { reason }) => Some(reason),
        (StreamState::Parked, _) if record.is_out_of_credit() => Some("credit"),
        (StreamState::Parked, Change::Backpressure | Change::SlowConsumer) => Some("credit"),
        (StreamState::Parked, _) => Some("pages"),
        _ => None,
    }
}

fn describe_control(stream: &stream::Entry<StreamRecord>) -> Option<Control> {
    let (told, last) = stream
        .payload
        .control_history
        .recorded_updates(stream.opened_at);
    (told > 0).then_some(Control { told, last })
}

fn describe_choice(index: usize, log: &ChoiceLog) -> Choice {
    let (end, detail) = log.tokens.end().map(end_name).unzip();
    Choice {
        index,
        tokens: log.answered(),
        accepted: log.tokens.accepted(),
        unaccepted: log.tokens.unaccepted(),
        end,
        detail: detail.flatten(),
    }
}

fn describe_timings(
    stream: &stream::Entry<StreamRecord>,
    started: Option<&StartedGeneration>,
    now: Instant,
) -> Timings {
    let since = |at: Instant| as_milliseconds(at.saturating_duration_since(stream.opened_at));
    let stamps = |of: fn(&engine::Progress) -> u64| {
        let started = started?;
        let stamps = started.requests.iter().map(|r| of(&r.progress));
        Some((started.engine.epoch(), stamps.collect::<Vec<_>>()))
    };
    let at = |(epoch, ns): (Instant, u64)| since(epoch + Duration::from_nanos(ns));
    let first = |of| {
        let (epoch, stamps) = stamps(of)?;
        let first = stamps.into_iter().filter(|&ns| ns > 0).min()?;
        Some(at((epoch, first)))
    };
    let ended = || {
        let (epoch, stamps) = stamps(engine::Progress::ended_ns)?;
        let all = stamps.iter().all(|&ns| ns > 0);
        Some(at((epoch, stamps.into_iter().max().filter(|_| all)?)))
    };
    Timings {
        age: since(now),
        started: first(engine::Progress::started_ns),
        first_token: first(engine::Progress::first_token_ns),
        ended: match stream.state {
            EntryState::Ended { at } => Some(since(at)),
            EntryState::Open => ended(),
        },
    }
}

fn as_milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
