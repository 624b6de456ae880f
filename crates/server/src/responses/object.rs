//! A response as JSON.

use crate::dialect::Answer;
use crate::error::ApiError;
use crate::event::{Logprobs, Usage};
use crate::json;
use crate::openai::ending;
use crate::openai::logprobs;
use crate::refold;
use crate::streams::{Entry, State};
use bytes::{Bytes, BytesMut};
use std::fmt::Write;
use std::sync::Arc;
use stream::End;
use text::Tokenizer;

/// What a response that was opened in another format repeats of its request.
const REPEATS: &str = concat!(
    r#""instructions":null,"max_output_tokens":null,"metadata":{},"parallel_tool_calls":true,"#,
    r#""previous_response_id":null,"reasoning":{"effort":null,"summary":null},"service_tier":"default","#,
    r#""store":false,"temperature":1.0,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"#,
    r#""top_logprobs":0,"top_p":1.0,"truncation":"disabled","user":null"#
);

/// Where a response is.
#[derive(Clone, Copy)]
pub(super) enum Status<'a> {
    Queued,
    InProgress,
    Completed,
    /// Cut at the number of tokens that was asked for.
    Incomplete,
    Cancelled(&'a ApiError),
    Failed(&'a ApiError),
}

impl<'a> Status<'a> {
    /// Of what ended well.
    pub(super) fn of(end: Option<End>) -> Self {
        match end {
            Some(End::Length) => Self::Incomplete,
            _ => Self::Completed,
        }
    }

    /// Of what ended badly.
    pub(super) fn of_error(error: &'a ApiError) -> Self {
        match error.code {
            "cancelled" => Self::Cancelled(error),
            _ => Self::Failed(error),
        }
    }

    /// How it is spelled.
    fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
            Self::Cancelled(_) => "cancelled",
            Self::Failed(_) => "failed",
        }
    }

    /// The event that ends a stream so.
    pub(super) fn event(self) -> &'static str {
        match self {
            Self::Queued | Self::InProgress | Self::Completed => "response.completed",
            Self::Incomplete => "response.incomplete",
            Self::Cancelled(_) | Self::Failed(_) => "response.failed",
        }
    }
}

/// The object; `output` writes what stands in its list.
pub(super) fn write(
    entry: &Entry,
    status: Status<'_>,
    usage: Option<Usage>,
    out: &mut BytesMut,
    output: impl FnOnce(&mut BytesMut),
) {
    let opening = entry.opening();
    json::raw(out, "{\"id\":");
    json::string(out, &opening.response_id);
    json::raw(out, ",\"object\":\"response\",\"created_at\":");
    json::integer(out, u64::try_from(opening.created_unix_s).unwrap_or(0));
    json::raw(out, ",\"status\":");
    json::string(out, status.name());
    let background = match opening.delivery.background {
        true => ",\"background\":true,\"error\":",
        false => ",\"background\":false,\"error\":",
    };
    json::raw(out, background);
    match status {
        Status::Cancelled(error) | Status::Failed(error) => write_error(error, out),
        _ => json::raw(out, "null"),
    }
    json::raw(out, ",\"incomplete_details\":");
    match status {
        Status::Incomplete => json::raw(out, "{\"reason\":\"max_output_tokens\"}"),
        _ => json::raw(out, "null"),
    }
    json::raw(out, ",\"model\":");
    json::string(out, &opening.model);
    json::raw(out, ",");
    json::raw(out, opening.delivery.repeats.as_deref().unwrap_or(REPEATS));
    json::raw(out, ",\"output\":[");
    output(out);
    json::raw(out, "],\"usage\":");
    match usage {
        Some(usage) => write_usage(usage, out),
        None => json::raw(out, "null"),
    }
    json::raw(out, "}");
}

/// The whole of one that has ended so.
pub(super) fn ended(
    entry: &Entry,
    status: Status<'_>,
    (answers, usage): (&[Answer], Usage),
    tokenizer: &Tokenizer,
    out: &mut BytesMut,
) {
    write(entry, status, Some(usage), out, |out| {
        for (choice, answer) in answers.iter().enumerate() {
            json::raw(out, if choice == 0 { "" } else { "," });
            message(entry, choice, answer, tokenizer, out);
        }
    });
}

/// What there is of one that goes on.
pub(super) fn so_far(entry: &Arc<Entry>) -> Bytes {
    let mut out = BytesMut::new();
    let status = match (entry.started(), entry.state()) {
        (None, _) | (_, State::Queued) => Status::Queued,
        _ => Status::InProgress,
    };
    let answers = refold::answers(entry);
    write(entry, status, None, &mut out, |out| {
        let Some(started) = entry.started() else {
            return;
        };
        let begun = answers
            .iter()
            .enumerate()
            .filter(|(_, a)| !a.text.is_empty());
        for (at, (choice, answer)) in begun.enumerate() {
            json::raw(out, if at == 0 { "" } else { "," });
            let status = match answer.end {
                None => "in_progress",
                end => item_status(end),
            };
            item(entry, choice, status, out, |out| {
                part(&answer.text, Some(answer.logprobs(&started.tokenizer)), out);
            });
        }
    });
    out.freeze()
}

/// A choice's message, after its end.
pub(super) fn message(
    entry: &Entry,
    choice: usize,
    answer: &Answer,
    tokenizer: &Tokenizer,
    out: &mut BytesMut,
) {
    item(entry, choice, item_status(answer.end), out, |out| {
        part(&answer.text, Some(answer.logprobs(tokenizer)), out);
    });
}

/// How the status of a message that ended so is spelled.
fn item_status(end: Option<End>) -> &'static str {
    match end.map(ending::spell) {
        Some(Ok("length") | Err(_)) | None => "incomplete",
        Some(Ok(_)) => "completed",
    }
}

/// A choice's message; `content` writes what stands in its list.
pub(super) fn item(
    entry: &Entry,
    choice: usize,
    status: &str,
    out: &mut BytesMut,
    content: impl FnOnce(&mut BytesMut),
) {
    json::raw(out, "{\"id\":");
    item_id(entry, choice, out);
    json::raw(out, ",\"type\":\"message\",\"status\":\"");
    json::raw(out, status);
    json::raw(out, "\",\"role\":\"assistant\",\"content\":[");
    content(out);
    json::raw(out, "]}");
}

/// The text of a message.
pub(super) fn part(text: &str, logprobs: Option<Logprobs<'_>>, out: &mut BytesMut) {
    json::raw(
        out,
        "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":",
    );
    match logprobs {
        Some(list) => logprobs::write_tokens(list, out),
        None => json::raw(out, "[]"),
    }
    json::raw(out, ",\"text\":");
    json::string(out, text);
    json::raw(out, "}");
}

/// What a choice's message is called: by its stream, and by its number where there are several.
pub(super) fn item_id(entry: &Entry, choice: usize, out: &mut BytesMut) {
    json::raw(out, "\"msg_");
    // Writing into memory does not fail.
    let _ = write!(out, "{}", entry.id());
    if choice > 0 {
        json::raw(out, "_");
        json::integer(out, choice as u64);
    }
    json::raw(out, "\"");
}

/// `{"code","message"}`.
fn write_error(error: &ApiError, out: &mut BytesMut) {
    json::raw(out, "{\"code\":");
    json::string(out, error.code);
    json::raw(out, ",\"message\":");
    json::string(out, &error.message);
    json::raw(out, "}");
}

fn write_usage(usage: Usage, out: &mut BytesMut) {
    let total = usage.prompt_tokens + usage.completion_tokens;
    let counts = [
        ("{\"input_tokens\":", usage.prompt_tokens),
        (
            ",\"input_tokens_details\":{\"cached_tokens\":",
            usage.cached_tokens,
        ),
        ("},\"output_tokens\":", usage.completion_tokens),
        (",\"output_tokens_details\":{\"reasoning_tokens\":", 0),
        ("},\"total_tokens\":", total),
    ];
    for (name, count) in counts {
        json::raw(out, name);
        json::integer(out, count);
    }
    json::raw(out, "}");
}
