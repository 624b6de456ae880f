//! A stream as the streams API describes it.

use super::control_history::RecordedUpdate;
use super::end_name::end_name;
use super::stream_metrics::StreamMetrics;
use super::stream_record::StreamRecord;
use super::stream_state::StreamState;
use super::{ChoiceLog, StartedGeneration};
use crate::admission::QueuePosition;
use generate::stream_change::Change;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::{Duration, Instant};
use stream::EntryState;

/// A stream as the streams API describes it.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Stream")]
pub struct Description<'a> {
    object: &'static str,
    id: String,
    /// Id of the response in the wire protocol of the request.
    response_id: &'a str,
    model: &'a str,
    dialect: &'static str,
    state: &'static str,
    priority: &'static str,
    /// Queue position from 1; absent outside the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<usize>,
    /// Error code of a stream that never started.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'static str>,
    resumable: bool,
    explicit_acks: bool,
    /// Whether a credit owner is attached.
    attached: bool,
    created: i64,
    prompt_tokens: u64,
    cached_tokens: u64,
    prompt_done: u64,
    completion_tokens: u64,
    speculation: Speculation,
    credit_window: u64,
    choices: Vec<Choice>,
    /// Control updates: their number, and the last of them; absent without updates.
    #[serde(skip_serializing_if = "Option::is_none")]
    control: Option<Control>,
    timings_ms: Timings,
    measures: StreamMetrics,
    /// Park reason: `credit`, `detached`, `pages`, `paused`, `place`; absent while the stream is not parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    parked: Option<&'static str>,
}

/// Control updates of the stream.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "StreamControl")]
struct Control {
    /// How many times.
    told: u64,
    /// The last updates, oldest first.
    last: Vec<RecordedUpdate>,
}

/// Draft tokens of all choices together.
#[derive(JsonSchema, Serialize)]
struct Speculation {
    drafted: u64,
    accepted: u64,
    /// `null` where nothing was guessed.
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

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "StreamChoice")]
struct Choice {
    index: usize,
    tokens: u64,
    accepted: u64,
    /// Tokens that count against the credit window.
    unaccepted: u64,
    /// `null` while the choice is generated.
    end: Option<&'static str>,
    /// The timeout that fired, or the code of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'static str>,
}

/// From the stream's opening; `null` = has not happened.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "StreamTimings")]
struct Timings {
    age: u64,
    started: Option<u64>,
    first_token: Option<u64>,
    ended: Option<u64>,
}

/// Describes a stream at `now`.
pub fn describe_stream(stream: &stream::Entry<StreamRecord>, now: Instant) -> Description<'_> {
    let record = &stream.payload;
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
        response_id: &meta.response_id,
        model: &meta.model,
        dialect: terms.protocol.name(),
        state: record.state().name(),
        priority: meta.stream_options.priority.name(),
        position: record.queue_position().and_then(QueuePosition::position),
        refused: record.rejection().map(|error| error.code),
        resumable: record.is_kept(),
        explicit_acks: terms.explicit_acks,
        attached: record.credit_owner().is_taken(),
        created: meta.created_unix_s,
        prompt_tokens: started.map_or(0, |started| started.prompt_tokens),
        cached_tokens: sum(engine::Progress::cached_tokens),
        prompt_done: sum(engine::Progress::prompt_done),
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
    match (record.state(), record.transitions().last_change()) {
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
        .control_history()
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
