//! `POST /v1/messages`: from events to bytes.

use super::{ending, refusal};
use crate::dialect::{Answer, Dialect};
use crate::error::ApiError;
use crate::event::{Event, Usage};
use crate::json;
use crate::openai::chunk::{self, Naming};
use bytes::BytesMut;
use stream::End;
use text::Tokenizer;

/// The writer of one message.
pub(crate) struct Messages {
    /// `"id":..,"type":"message","role":"assistant","model":..`
    naming: Vec<u8>,
    stops: Vec<String>,
    /// Of each choice, whether its block is open. A choice's block has its index.
    blocks: Vec<bool>,
    /// How the first choice ended: that is how the message did.
    ended: Option<End>,
}

impl Messages {
    /// Renders what is constant.
    pub(crate) fn new(naming: &Naming<'_>, stops: &[String]) -> Self {
        let mut out = BytesMut::new();
        json::raw(&mut out, "\"id\":");
        json::string(&mut out, naming.id);
        json::raw(
            &mut out,
            ",\"type\":\"message\",\"role\":\"assistant\",\"model\":",
        );
        json::string(&mut out, naming.model);
        Self {
            naming: out.to_vec(),
            stops: stops.to_vec(),
            blocks: vec![false],
            ended: None,
        }
    }

    fn has_several(&self) -> bool {
        self.blocks.len() > 1
    }

    /// `"stop_reason":..`, of what ended well.
    fn reason(end: Option<End>, out: &mut BytesMut) {
        json::raw(out, "\"stop_reason\":");
        match end.map(ending::spell) {
            Some(Ok(ending)) => json::string(out, ending.reason),
            Some(Err(_)) | None => json::raw(out, "null"),
        }
    }

    /// `"stop_reason":..,"stop_sequence":..`
    fn stop(&self, end: Option<End>, out: &mut BytesMut) {
        Self::reason(end, out);
        json::raw(out, ",\"stop_sequence\":");
        let index = end
            .and_then(|end| ending::spell(end).ok())
            .and_then(|it| it.stop);
        match index.and_then(|index| self.stops.get(usize::from(index))) {
            Some(stop) => json::string(out, stop),
            None => json::raw(out, "null"),
        }
    }

    /// The end so far, and all counts.
    fn message_delta(&self, end: Option<End>, usage: Usage, out: &mut BytesMut) {
        begin("message_delta", out);
        json::raw(out, ",\"delta\":{");
        self.stop(end, out);
        json::raw(out, "},\"usage\":");
        write_usage(usage, out);
        finish(out);
    }
}

impl Dialect for Messages {
    fn open(&mut self, choices: usize, usage: Usage, out: &mut BytesMut) {
        self.blocks = vec![false; choices];
        begin("message_start", out);
        json::raw(out, ",\"message\":{");
        out.extend_from_slice(&self.naming);
        json::raw(out, ",\"content\":[],");
        self.stop(None, out);
        json::raw(out, ",\"usage\":");
        write_usage(usage, out);
        json::raw(out, "}");
        finish(out);
    }

    /// Who was told some of a choice has seen its block begin.
    fn resume(&mut self, steps: &[u64]) {
        self.blocks = steps.iter().map(|&step| step > 0).collect();
    }

    fn opening(&mut self, event: &Event<'_>, out: &mut BytesMut) {
        let (Event::Delta(crate::event::Delta { choice, .. }) | Event::End { choice, .. }) = event;
        let needs_block = match event {
            Event::Delta(delta) => !delta.text.is_empty(),
            Event::End { .. } => self.has_several(),
        };
        if needs_block && !self.blocks[*choice] {
            self.blocks[*choice] = true;
            begin_block("content_block_start", *choice, out);
            json::raw(out, ",\"content_block\":{\"type\":\"text\",\"text\":\"\"}");
            finish(out);
        }
    }

    fn event(&mut self, event: &Event<'_>, out: &mut BytesMut) {
        match event {
            Event::Delta(delta) if delta.text.is_empty() => {}
            Event::Delta(delta) => {
                begin_block("content_block_delta", delta.choice, out);
                json::raw(out, ",\"delta\":{\"type\":\"text_delta\",\"text\":");
                json::string(out, delta.text);
                json::raw(out, "}");
                finish(out);
            }
            Event::End { choice, end, .. } => {
                if !std::mem::take(&mut self.blocks[*choice]) {
                    return;
                }
                begin_block("content_block_stop", *choice, out);
                if self.has_several() {
                    json::raw(out, ",");
                    Self::reason(Some(*end), out);
                }
                finish(out);
            }
        }
    }

    fn ended_well(&mut self, first: End) {
        self.ended = Some(first);
    }

    fn usage(&mut self, usage: Usage, out: &mut BytesMut) {
        self.message_delta(self.ended, usage, out);
    }

    fn usage_so_far(&mut self, _end: End, usage: Usage, out: &mut BytesMut) {
        self.message_delta(None, usage, out);
    }

    fn close(&mut self, _usage: Usage, out: &mut BytesMut) {
        begin("message_stop", out);
        finish(out);
    }

    fn fail(&mut self, end: End, _usage: Usage, out: &mut BytesMut) {
        self.refuse(&ending::refusal(end), out);
    }

    fn refuse(&mut self, error: &ApiError, out: &mut BytesMut) {
        json::raw(out, "event: error\ndata: ");
        refusal::write(error, out);
        json::raw(out, "\n\n");
    }

    fn queued(&self, position: usize, out: &mut BytesMut) {
        chunk::queued(position, out);
    }

    fn ping(&self, out: &mut BytesMut) {
        begin("ping", out);
        finish(out);
    }

    fn whole(&self, answers: &[Answer], _: &Tokenizer, usage: Usage, out: &mut BytesMut) {
        json::raw(out, "{");
        out.extend_from_slice(&self.naming);
        json::raw(out, ",\"content\":[");
        let texts = answers.iter().map(|answer| &answer.text);
        for (i, text) in texts.filter(|text| !text.is_empty()).enumerate() {
            json::raw(out, if i == 0 { "" } else { "," });
            json::raw(out, "{\"type\":\"text\",\"text\":");
            json::string(out, text);
            json::raw(out, "}");
        }
        json::raw(out, "],");
        self.stop(answers.first().and_then(|answer| answer.end), out);
        json::raw(out, ",\"usage\":");
        write_usage(usage, out);
        json::raw(out, "}");
    }

    fn refusal(&self, end: End) -> ApiError {
        ending::refusal(end)
    }
}

/// Begins an event: its name, twice, as clients want it.
fn begin(kind: &str, out: &mut BytesMut) {
    json::raw(out, "event: ");
    json::raw(out, kind);
    json::raw(out, "\ndata: {\"type\":\"");
    json::raw(out, kind);
    json::raw(out, "\"");
}

fn begin_block(kind: &str, index: usize, out: &mut BytesMut) {
    begin(kind, out);
    json::raw(out, ",\"index\":");
    json::integer(out, index as u64);
}

fn finish(out: &mut BytesMut) {
    json::raw(out, "}\n\n");
}

/// `input_tokens` are those that were computed: what was found in the cache is counted by itself.
fn write_usage(usage: Usage, out: &mut BytesMut) {
    let counts = [
        (
            "{\"input_tokens\":",
            usage.prompt_tokens.saturating_sub(usage.cached_tokens),
        ),
        (",\"cache_creation_input_tokens\":", 0),
        (",\"cache_read_input_tokens\":", usage.cached_tokens),
        (",\"output_tokens\":", usage.completion_tokens),
    ];
    for (name, count) in counts {
        json::raw(out, name);
        json::integer(out, count);
    }
    json::raw(out, ",\"service_tier\":\"standard\"}");
}
