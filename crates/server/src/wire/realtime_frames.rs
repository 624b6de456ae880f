//! From events to messages: one JSON object each, and a line each in the buffer.

use crate::wire::cursor::{Closing, Cursor, write_place};
use crate::wire::dialect::Dialect;
use crate::wire::native::code::{Code, is_retriable};
use crate::wire::native::ending::{self, Ending};
use crate::wire::native::frames::{write_call, write_tokens};
use crate::wire::native::{refusal, rfc3339};
use crate::wire::openai::logprobs;
use crate::wire::{clock, json};
use bytes::BytesMut;
use generate::error::ApiError;
use generate::output::collected::Answer;
use generate::output::event::{At, Call, Delta, Event, Kind, Usage};
use generate::output::position::Position;
use generate::stream_change::Change;
use generate::stream_source::StreamSource;
use std::sync::Arc;
use stream::End;
use text::Tokenizer;

/// The writer of one stream's messages.
pub(crate) struct Frames {
    source: Arc<StreamSource>,
    /// `","stream":"<id>"`
    named: String,
    /// What was told of each choice.
    reached: Vec<Position>,
    started: bool,
    /// Whether the client was told that it stands still.
    still: bool,
    /// How the choice that ended last did.
    last: Option<End>,
}

impl Frames {
    /// For a client that was told as much as `cursor` says.
    pub(crate) fn new(source: &Arc<StreamSource>, cursor: Option<&Cursor>) -> Self {
        let nothing = || vec![Position::default(); source.meta().choices];
        Self {
            named: format!("\",\"stream\":\"{}\"", source.meta().id),
            source: Arc::clone(source),
            reached: cursor.map_or_else(nothing, |cursor| cursor.reached.clone()),
            started: false,
            still: false,
            last: None,
        }
    }

    fn begin(&self, kind: &str, out: &mut BytesMut) {
        json::raw(out, "{\"type\":\"");
        json::raw(out, kind);
        json::raw(out, &self.named);
    }

    fn finish(out: &mut BytesMut) {
        json::raw(out, "}\n");
    }

    fn cursor(&self, closing: Closing, out: &mut BytesMut) {
        json::raw(out, ",\"cursor\":\"");
        write_place(&self.reached, closing, out);
        json::raw(out, "\"");
    }

    fn choice(&self, choice: usize, out: &mut BytesMut) {
        if self.reached.len() > 1 {
            json::raw(out, ",\"choice\":");
            json::integer(out, choice as u64);
        }
    }

    fn token(&mut self, delta: &Delta<'_>, out: &mut BytesMut) {
        self.goes_on(out);
        self.begin("token", out);
        if delta.kind == Kind::Reasoning {
            json::raw(out, ",\"kind\":\"reasoning\"");
        }
        write_tokens(&delta.at, out);
        json::raw(out, ",\"t\":");
        json::string(out, delta.text);
        self.at(&delta.at, out);
    }

    fn call(&mut self, call: &Call<'_>, out: &mut BytesMut) {
        self.goes_on(out);
        json::raw(out, "{\"type\":");
        write_call(call, out);
        json::raw(out, &self.named[1..]);
        write_tokens(&call.at, out);
        self.at(&call.at, out);
    }

    /// The rest of a message that is a part of a choice.
    fn at(&mut self, at: &At<'_>, out: &mut BytesMut) {
        self.reached[at.choice] = at.reached;
        self.choice(at.choice, out);
        if !at.logprobs.entries.is_empty() {
            json::raw(out, ",\"logprobs\":");
            logprobs::write_chat(at.logprobs, out);
        }
        self.cursor(Closing::Open, out);
        Self::finish(out);
    }

    /// A client that was told of a stop is told that it is over, before anything else comes.
    fn goes_on(&mut self, out: &mut BytesMut) {
        if std::mem::take(&mut self.still) {
            self.begin("resumed", out);
            Self::finish(out);
        }
    }

    fn choice_ended(&mut self, choice: usize, end: End, reached: Position, out: &mut BytesMut) {
        self.reached[choice] = reached;
        self.last = Some(end);
        // The only one's ending is the stream's.
        if self.reached.len() > 1 {
            self.begin("choice_ended", out);
            self.choice(choice, out);
            self.reason(end, out);
            self.cursor(Closing::Open, out);
            Self::finish(out);
        }
    }

    fn reason(&self, end: End, out: &mut BytesMut) {
        match ending::spell(end) {
            Ending::End { reason, stop } => {
                reason_word(reason, out);
                let stops = &self.source.meta().stops;
                if let Some(stop) = stop.and_then(|index| stops.get(usize::from(index))) {
                    json::raw(out, ",\"stop_sequence\":");
                    json::string(out, stop);
                }
            }
            Ending::Error {
                code,
                message,
                retriable,
            } => failed(code, message, retriable, out),
        }
    }

    fn ended(&self, reason: impl FnOnce(&mut BytesMut), usage: Usage, out: &mut BytesMut) {
        self.begin("ended", out);
        reason(out);
        for (name, count) in [
            (",\"usage\":{\"prompt_tokens\":", usage.prompt_tokens),
            (",\"cached_tokens\":", usage.cached_tokens),
            (",\"completion_tokens\":", usage.completion_tokens),
        ] {
            json::raw(out, name);
            json::integer(out, count);
        }
        json::raw(out, "},\"decode_time_ms\":");
        let ms = usage.times.decoding().as_millis();
        json::integer(out, u64::try_from(ms).unwrap_or(u64::MAX));
        self.cursor(Closing::Done, out);
        Self::finish(out);
    }

    /// For a client that was told of the choices' endings before, and not of the stream's.
    fn end_in_log(&self) -> End {
        let mut choices = self.source.started().into_iter().flat_map(|s| &s.choices);
        choices
            .find_map(|choice| choice.tokens.end())
            .unwrap_or(End::Lost)
    }
}

impl Dialect for Frames {
    /// The session said so.
    fn open(&mut self, _choices: usize, _usage: Usage, _out: &mut BytesMut) {}

    fn before(&mut self, usage: Usage, out: &mut BytesMut) {
        let Some(at) = usage.times.started.filter(|_| !self.started) else {
            return;
        };
        self.started = true;
        self.begin("started", out);
        json::raw(out, ",\"started_at\":");
        json::string(out, &rfc3339::utc(clock::wall(at)));
        Self::finish(out);
    }

    fn follows(&self) -> bool {
        true
    }

    fn change(&mut self, change: Change, out: &mut BytesMut) {
        let kind = match change {
            Change::Backpressure => "backpressure",
            Change::SlowConsumer => "slow_consumer",
            Change::Parked { .. } => "parked",
            Change::Resumed => return self.goes_on(out),
            // These are told by the stream's own events.
            Change::Opened | Change::Started | Change::Ended { .. } => return,
        };
        self.still = true;
        self.begin(kind, out);
        if let Change::Parked { reason } = change {
            json::raw(out, ",\"reason\":");
            json::string(out, reason);
        }
        Self::finish(out);
    }

    fn event(&mut self, event: &Event<'_>, out: &mut BytesMut) {
        match event {
            Event::Delta(delta) => self.token(delta, out),
            Event::Call(call) => self.call(call, out),
            Event::End {
                choice,
                end,
                reached,
                ..
            } => self.choice_ended(*choice, *end, *reached, out),
        }
    }

    fn close(&mut self, usage: Usage, out: &mut BytesMut) {
        let end = self.last.unwrap_or_else(|| self.end_in_log());
        self.ended(|out| self.reason(end, out), usage, out);
    }

    fn fail(&mut self, end: End, usage: Usage, out: &mut BytesMut) {
        self.ended(|out| self.reason(end, out), usage, out);
    }

    fn refuse(&mut self, error: &ApiError, out: &mut BytesMut) {
        let reason = |out: &mut BytesMut| match Code::of(error) {
            Code::Cancelled => reason_word("CANCELLED", out),
            code => failed(code, &error.message, is_retriable(error), out),
        };
        self.ended(reason, Usage::default(), out);
    }

    fn queued(&self, position: usize, out: &mut BytesMut) {
        self.begin("queued", out);
        json::raw(out, ",\"position\":");
        json::integer(out, position as u64);
        Self::finish(out);
    }

    /// The connection has pings of its own.
    fn ping(&self, _out: &mut BytesMut) {}

    /// Each choice's text at once, and the ending.
    fn whole(&self, answers: &[Answer], _: &Tokenizer, usage: Usage, out: &mut BytesMut) {
        for (i, answer) in answers.iter().enumerate() {
            self.begin("token", out);
            json::raw(out, ",\"i\":0,\"t\":");
            json::string(out, &answer.text());
            self.choice(i, out);
            Self::finish(out);
        }
        let end = answers.iter().find_map(|answer| answer.end);
        self.ended(|out| self.reason(end.unwrap_or(End::Lost), out), usage, out);
    }

    fn refusal(&self, end: End) -> ApiError {
        ending::refusal(end)
    }
}

fn reason_word(reason: &str, out: &mut BytesMut) {
    json::raw(out, ",\"reason\":\"");
    json::raw(out, reason);
    json::raw(out, "\"");
}

fn failed(code: Code, message: &str, retriable: bool, out: &mut BytesMut) {
    reason_word("ERROR", out);
    json::raw(out, ",\"error\":{");
    refusal::write_error(code, message, retriable, out);
    json::raw(out, "}");
}
