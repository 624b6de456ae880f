//! From events to a job's frames, and to its whole answer.

use super::ending::{self, Ending};
use super::{refusal, rfc3339};
use crate::wire::dialect::Dialect;
use crate::wire::native::code::{Code, is_retriable};
use crate::wire::{clock, json};
use bytes::BytesMut;
use generate::error::ApiError;
use generate::output::collected::Answer;
use generate::output::event::{At, Call, CallPart, Delta, Event, Kind, Usage};
use generate::output::position::Position;
use std::time::{Duration, Instant};
use stream::End;
use text::Tokenizer;

/// How often figures are told while tokens come: the first token after this long brings them.
const METRICS_EACH: Duration = Duration::from_millis(500);

/// The last frame of every job, whichever way it ended.
const DONE: &str = "data: [DONE]\n\n";

/// The writer of one job's frames.
///
/// A stream that was opened in another format may have several answers. Read as a job, each `token`
/// and each `end` then names its `choice`.
pub(crate) struct Job {
    /// `"job_id":..,"model":..`
    naming: Vec<u8>,
    stops: Vec<String>,
    choices: usize,
    started: bool,
    metrics_each: Duration,
    /// When figures were told last, or the first token.
    metrics_at: Option<Instant>,
}

impl Job {
    /// Renders what is constant.
    pub(crate) fn new(job_id: &str, model: &str, stops: &[String]) -> Self {
        let mut naming = BytesMut::new();
        json::raw(&mut naming, "\"job_id\":");
        json::string(&mut naming, job_id);
        json::raw(&mut naming, ",\"model\":");
        json::string(&mut naming, model);
        Self {
            naming: naming.to_vec(),
            stops: stops.to_vec(),
            choices: 1,
            started: false,
            metrics_each: METRICS_EACH,
            metrics_at: None,
        }
    }

    /// The same, with figures as often as a test wants them.
    #[cfg(test)]
    pub(crate) fn with_metrics_each(self, metrics_each: Duration) -> Self {
        Self {
            metrics_each,
            ..self
        }
    }

    fn named(&self, started: Option<Instant>, out: &mut BytesMut) {
        out.extend_from_slice(&self.naming);
        if let Some(at) = started {
            json::raw(out, ",\"started_at\":");
            json::string(out, &rfc3339::utc(clock::wall(at)));
        }
    }

    fn token(&self, delta: &Delta<'_>, out: &mut BytesMut) {
        json::raw(out, "data: {\"type\":\"token\",\"t\":");
        json::string(out, delta.text);
        if delta.kind == Kind::Reasoning {
            json::raw(out, ",\"kind\":\"reasoning\"");
        }
        self.at(&delta.at, out);
    }

    fn call(&self, call: &Call<'_>, out: &mut BytesMut) {
        json::raw(out, "data: {\"type\":");
        write_call(call, out);
        self.at(&call.at, out);
    }

    /// Which tokens it came from, and the frame's end.
    fn at(&self, at: &At<'_>, out: &mut BytesMut) {
        write_tokens(at, out);
        self.choice(Some(at.choice), out);
        json::raw(out, "}\n\n");
    }

    fn choice(&self, choice: Option<usize>, out: &mut BytesMut) {
        if let Some(choice) = choice.filter(|_| self.choices > 1) {
            json::raw(out, ",\"choice\":");
            json::integer(out, choice as u64);
        }
    }

    /// Of what goes on: who reads a job that has ended hears its figures with the ending.
    fn metrics(&mut self, usage: Usage, now: Instant, out: &mut BytesMut) {
        if usage.times.ended.is_some() {
            return;
        }
        let last = *self.metrics_at.get_or_insert(now);
        if now.saturating_duration_since(last) < self.metrics_each {
            return;
        }
        self.metrics_at = Some(now);
        let since = usage.times.first_token.unwrap_or(now);
        let decoding = now.saturating_duration_since(since);
        figures(usage, decoding, out);
    }

    fn ending(&self, end: End, choice: Option<usize>, usage: Usage, out: &mut BytesMut) {
        match ending::spell(end) {
            Ending::End { reason, stop } => {
                json::raw(out, "data: {\"type\":\"end\",");
                counts(usage, usage.times.decoding(), out);
                self.reason(reason, stop, out);
                self.choice(choice, out);
                json::raw(out, "}\n\n");
            }
            Ending::Error {
                code,
                message,
                retriable,
            } => error(code, message, retriable, out),
        }
    }

    fn reason(&self, reason: &str, stop: Option<u16>, out: &mut BytesMut) {
        json::raw(out, ",\"stop_reason\":\"");
        json::raw(out, reason);
        json::raw(out, "\"");
        if let Some(stop) = stop.and_then(|index| self.stops.get(usize::from(index))) {
            json::raw(out, ",\"stop_sequence_matched\":");
            json::string(out, stop);
        }
    }
}

impl Dialect for Job {
    fn open(&mut self, choices: usize, _usage: Usage, _out: &mut BytesMut) {
        self.choices = choices;
    }

    fn resume(&mut self, reached: &[Position]) {
        (self.choices, self.started) = (reached.len(), true);
    }

    /// `started`, once, when it is known to be so.
    fn before(&mut self, usage: Usage, out: &mut BytesMut) {
        let Some(at) = usage.times.started.filter(|_| !self.started) else {
            return;
        };
        self.started = true;
        json::raw(out, "data: {\"type\":\"started\",");
        self.named(Some(at), out);
        json::raw(out, "}\n\n");
    }

    /// Up to its start.
    fn follows(&self) -> bool {
        !self.started
    }

    fn event(&mut self, event: &Event<'_>, out: &mut BytesMut) {
        match event {
            Event::Delta(delta) => {
                self.token(delta, out);
                self.metrics(delta.at.usage, clock::now(), out);
            }
            Event::Call(call) => {
                self.call(call, out);
                self.metrics(call.at.usage, clock::now(), out);
            }
            Event::End {
                choice,
                end,
                usage,
                tokens,
                ..
            } => {
                // Its own: what the others have by then depends on who reads.
                let usage = Usage {
                    completion_tokens: *tokens,
                    ..*usage
                };
                self.ending(*end, Some(*choice), usage, out);
            }
        }
    }

    /// `end` has the counts itself; `error` has none.
    fn usage_so_far(&mut self, end: End, usage: Usage, out: &mut BytesMut) {
        if matches!(ending::spell(end), Ending::Error { .. }) {
            figures(usage, usage.times.decoding(), out);
        }
    }

    fn close(&mut self, _usage: Usage, out: &mut BytesMut) {
        json::raw(out, DONE);
    }

    fn fail(&mut self, end: End, usage: Usage, out: &mut BytesMut) {
        self.ending(end, None, usage, out);
    }

    fn after_fail(&self) -> &'static str {
        DONE
    }

    fn refuse(&mut self, refused: &ApiError, out: &mut BytesMut) {
        match Code::of(refused) {
            Code::Cancelled => self.ending(End::Cancelled, None, Usage::default(), out),
            code => error(code, &refused.message, is_retriable(refused), out),
        }
    }

    fn queued(&self, position: usize, out: &mut BytesMut) {
        json::raw(out, "data: {\"type\":\"queued\",\"position\":");
        json::integer(out, position as u64);
        json::raw(out, "}\n\n");
    }

    fn ping(&self, out: &mut BytesMut) {
        json::raw(out, ": ping\n\n");
    }

    fn whole(&self, answers: &[Answer], _: &Tokenizer, usage: Usage, out: &mut BytesMut) {
        json::raw(out, "{");
        self.named(usage.times.started, out);
        for answer in answers.iter().take(1) {
            json::raw(out, ",\"text\":");
            json::string(out, &answer.text());
            whole_rest(answer, out);
            json::raw(out, ",");
            counts(usage, usage.times.decoding(), out);
            // A bad ending has no whole answer: it was refused before.
            if let Some(Ending::End { reason, stop }) = answer.end.map(ending::spell) {
                self.reason(reason, stop, out);
            }
        }
        json::raw(out, "}");
    }

    fn refusal(&self, end: End) -> ApiError {
        ending::refusal(end)
    }
}

/// `"tool_call"`, with its id and name, `"tool_args"` or `"tool_end"`, and what that says.
pub(crate) fn write_call(call: &Call<'_>, out: &mut BytesMut) {
    let kind = match call.said {
        CallPart::Start { .. } => "\"tool_call\",\"call\":",
        CallPart::Args(_) => "\"tool_args\",\"call\":",
        CallPart::End => "\"tool_end\",\"call\":",
    };
    json::raw(out, kind);
    json::integer(out, u64::from(call.index));
    match call.said {
        CallPart::Start { id, name } => {
            json::raw(out, ",\"id\":");
            json::string(out, id);
            json::raw(out, ",\"name\":");
            json::string(out, name);
        }
        CallPart::Args(fragment) => {
            json::raw(out, ",\"t\":");
            json::string(out, fragment);
        }
        CallPart::End => {}
    }
}

/// Which tokens a part came from.
pub(crate) fn write_tokens(at: &At<'_>, out: &mut BytesMut) {
    json::raw(out, ",\"i\":");
    json::integer(out, at.first);
    if at.tokens != 1 {
        json::raw(out, ",\"n\":");
        json::integer(out, at.tokens);
    }
}

/// What there is beside the text.
fn whole_rest(answer: &Answer, out: &mut BytesMut) {
    let reasoning = answer.reasoning();
    if !reasoning.is_empty() {
        json::raw(out, ",\"reasoning\":");
        json::string(out, &reasoning);
    }
    let mut before = ",\"tool_calls\":[";
    for call in answer.calls() {
        json::raw(out, before);
        before = ",";
        for (name, value) in [
            ("{\"id\":", &call.id),
            (",\"name\":", &call.name),
            (",\"arguments\":", &call.arguments),
        ] {
            json::raw(out, name);
            json::string(out, value);
        }
        json::raw(out, "}");
    }
    if before == "," {
        json::raw(out, "]");
    }
}

fn figures(usage: Usage, decoding: Duration, out: &mut BytesMut) {
    json::raw(out, "data: {\"type\":\"metrics\",");
    counts(usage, decoding, out);
    json::raw(out, ",\"tokens_per_sec\":");
    tenths(tokens_per_sec(usage.completion_tokens, decoding), out);
    json::raw(out, "}\n\n");
}

fn counts(usage: Usage, decoding: Duration, out: &mut BytesMut) {
    json::raw(out, "\"tokens_out\":");
    json::integer(out, usage.completion_tokens);
    json::raw(out, ",\"decode_time_ms\":");
    json::integer(out, u64::try_from(decoding.as_millis()).unwrap_or(u64::MAX));
}

/// Of the tokens after the first; 0 as long as no time went by.
fn tokens_per_sec(tokens: u64, decoding: Duration) -> f64 {
    if decoding.is_zero() {
        return 0.0;
    }
    tokens.saturating_sub(1) as f64 / decoding.as_secs_f64()
}

/// With one digit after the point.
fn tenths(value: f64, out: &mut BytesMut) {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and rounded for people"
    )]
    let tenths = (value * 10.0).round() as u64;
    json::integer(out, tenths / 10);
    json::raw(out, ".");
    json::integer(out, tenths % 10);
}

fn error(code: Code, message: &str, retriable: bool, out: &mut BytesMut) {
    json::raw(out, "data: {\"type\":\"error\",");
    refusal::write_error(code, message, retriable, out);
    json::raw(out, "}\n\n");
}
