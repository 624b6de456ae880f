//! What chat and completion chunks share: the rendered head, the `usage` tail, the closing frames.

use crate::wire::json;
use crate::wire::openai::{ending, refusal};
use bytes::BytesMut;
use generate::error::ApiError;
use generate::output::event::Usage;
use generate::request::Delivery;
use stream::End;

/// The constant part of an answer, and how usage is told on it.
pub(crate) struct Head {
    /// `{"id":..,"object":..,"created":..,"model":..,` of a chunk, after `data: `.
    chunk: Vec<u8>,
    /// The template of a non-streaming response, without `data: `.
    whole: Vec<u8>,
    include_usage: bool,
    continuous_usage: bool,
}

/// What names an answer.
pub(crate) struct Naming<'a> {
    pub(crate) id: &'a str,
    pub(crate) created_unix_s: i64,
    pub(crate) model: &'a str,
}

impl Head {
    /// Renders what every chunk of one answer begins with.
    pub(crate) fn new(naming: &Naming<'_>, chunk: &str, whole: &str, delivery: &Delivery) -> Self {
        let tier = if delivery.tier_named {
            "\"service_tier\":\"default\","
        } else {
            ""
        };
        let render = |prefix: &str, object: &str| {
            let mut out = BytesMut::new();
            json::raw(&mut out, prefix);
            json::raw(&mut out, "{\"id\":");
            json::string(&mut out, naming.id);
            json::raw(&mut out, ",\"object\":");
            json::string(&mut out, object);
            json::raw(
                &mut out,
                &format!(",\"created\":{},\"model\":", naming.created_unix_s),
            );
            json::string(&mut out, naming.model);
            json::raw(&mut out, ",");
            json::raw(&mut out, tier);
            out.to_vec()
        };
        Self {
            chunk: render("data: ", chunk),
            whole: render("", whole),
            include_usage: delivery.include_usage,
            continuous_usage: delivery.continuous_usage,
        }
    }

    /// Begins the chunk of one choice, up to and with its index.
    pub(crate) fn choice(&self, choice: usize, out: &mut BytesMut) {
        out.extend_from_slice(&self.chunk);
        json::raw(out, "\"choices\":[{\"index\":");
        json::integer(out, choice as u64);
    }

    /// Ends it, after `finish_reason`.
    pub(crate) fn end_choice(&self, usage: Usage, out: &mut BytesMut) {
        json::raw(out, "}]");
        if self.continuous_usage {
            json::raw(out, ",\"usage\":");
            write_usage(usage, out);
        } else if self.include_usage {
            json::raw(out, ",\"usage\":null");
        }
        json::raw(out, "}\n\n");
    }

    /// Begins a whole answer, up to its choices.
    pub(crate) fn open_whole(&self, out: &mut BytesMut) {
        out.extend_from_slice(&self.whole);
        json::raw(out, "\"choices\":[");
    }

    /// Ends it.
    #[expect(clippy::unused_self, reason = "the pair of open_whole")]
    pub(crate) fn close_whole(&self, usage: Usage, out: &mut BytesMut) {
        json::raw(out, "],\"usage\":");
        write_usage(usage, out);
        json::raw(out, "}");
    }

    /// The counts, where they were asked for. They come before an error too, because clients stop
    /// there.
    pub(crate) fn usage_chunk(&self, usage: Usage, out: &mut BytesMut) {
        if self.include_usage {
            out.extend_from_slice(&self.chunk);
            json::raw(out, "\"choices\":[],\"usage\":");
            write_usage(usage, out);
            json::raw(out, "}\n\n");
        }
    }
}

/// `,"finish_reason":` and the reason, or null.
pub(crate) fn finish_reason(end: Option<End>, out: &mut BytesMut) {
    json::raw(out, ",\"finish_reason\":");
    match end.map(ending::spell) {
        Some(Ok(reason)) => json::string(out, reason),
        Some(Err(_)) | None => json::raw(out, "null"),
    }
}

fn write_usage(usage: Usage, out: &mut BytesMut) {
    let total = usage.prompt_tokens + usage.completion_tokens;
    let counts = [
        ("{\"prompt_tokens\":", usage.prompt_tokens),
        (",\"completion_tokens\":", usage.completion_tokens),
        (",\"total_tokens\":", total),
        (
            ",\"prompt_tokens_details\":{\"cached_tokens\":",
            usage.cached_tokens,
        ),
        (
            "},\"completion_tokens_details\":{\"reasoning_tokens\":",
            usage.reasoning_tokens,
        ),
    ];
    for (name, count) in counts {
        json::raw(out, name);
        json::integer(out, count);
    }
    json::raw(out, "}}");
}

/// Begins a choice of a whole answer, up to its index.
pub(crate) fn open_choice(index: usize, out: &mut BytesMut) {
    if index > 0 {
        json::raw(out, ",");
    }
    json::raw(out, "{\"index\":");
    json::integer(out, index as u64);
}

/// Ends the stream well.
pub(crate) fn done(out: &mut BytesMut) {
    json::raw(out, "data: [DONE]\n\n");
}

/// Ends the stream badly: an error event, and no `[DONE]`.
pub(crate) fn fail(end: End, out: &mut BytesMut) {
    let error = ending::spell(end)
        .err()
        .unwrap_or_else(|| ApiError::ours("lost", "the stream ended twice"));
    refuse(&error, out);
}

/// An error event.
pub(crate) fn refuse(error: &ApiError, out: &mut BytesMut) {
    json::raw(out, "data: ");
    refusal::write(error, out);
    json::raw(out, "\n\n");
}

/// A comment that says how many are served before this one, itself included.
pub(crate) fn queued(position: usize, out: &mut BytesMut) {
    json::raw(out, ": queued, position ");
    json::integer(out, position as u64);
    json::raw(out, "\n\n");
}
