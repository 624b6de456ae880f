//! A response as JSON.

use super::place::Item;
use crate::wire::json;
use crate::wire::openai::{ending, logprobs};
use bytes::{Bytes, BytesMut};
use generate::error::ApiError;
use generate::output::collected::{Answer, AnswerPart};
use generate::output::event::{CallPart, Event, Logprobs, Usage};
use generate::output::generation_reader::is_good;
use generate::output::replay;
use generate::stream_source::StreamSource;
use serde::de::IgnoredAny;
use std::fmt::Write;
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
pub(crate) enum Status<'a> {
    Queued,
    InProgress,
    Completed,
    /// Cut at the number of tokens that was asked for.
    Incomplete,
    Cancelled,
    Failed(&'a ApiError),
}

impl<'a> Status<'a> {
    /// Of what ended well.
    pub(crate) fn of(end: Option<End>) -> Self {
        match end {
            Some(End::Length) => Self::Incomplete,
            _ => Self::Completed,
        }
    }

    /// Of what ended badly.
    pub(crate) fn of_error(error: &'a ApiError) -> Self {
        match error.code {
            "cancelled" => Self::Cancelled,
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
            Self::Cancelled => "cancelled",
            Self::Failed(_) => "failed",
        }
    }

    /// The event that ends a stream so.
    pub(crate) fn event(self) -> &'static str {
        match self {
            Self::Queued | Self::InProgress | Self::Completed => "response.completed",
            Self::Incomplete => "response.incomplete",
            Self::Cancelled | Self::Failed(_) => "response.failed",
        }
    }
}

/// The object; `output` writes what stands in its list.
pub(crate) fn write(
    source: &StreamSource,
    status: Status<'_>,
    usage: Option<Usage>,
    out: &mut BytesMut,
    output: impl FnOnce(&mut BytesMut),
) {
    let meta = source.meta();
    json::raw(out, "{\"id\":");
    json::string(out, &meta.response_id);
    json::raw(out, ",\"object\":\"response\",\"created_at\":");
    json::integer(out, u64::try_from(meta.created_unix_s).unwrap_or(0));
    json::raw(out, ",\"status\":");
    json::string(out, status.name());
    let background = match meta.delivery.background {
        true => ",\"background\":true,\"error\":",
        false => ",\"background\":false,\"error\":",
    };
    json::raw(out, background);
    match status {
        Status::Failed(error) => write_error(error, out),
        _ => json::raw(out, "null"),
    }
    json::raw(out, ",\"incomplete_details\":");
    match status {
        Status::Incomplete => json::raw(out, "{\"reason\":\"max_output_tokens\"}"),
        _ => json::raw(out, "null"),
    }
    json::raw(out, ",\"model\":");
    json::string(out, &meta.model);
    json::raw(out, ",");
    json::raw(out, meta.delivery.repeats.as_deref().unwrap_or(REPEATS));
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
pub(crate) fn ended(
    source: &StreamSource,
    status: Status<'_>,
    (answers, usage): (&[Answer], Usage),
    out: &mut BytesMut,
) {
    let items = items(source, answers);
    write(source, status, Some(usage), out, |out| {
        json::raw(out, &items.join(","));
    });
}

/// A response that has not ended: its output so far.
pub(crate) fn so_far(source: &StreamSource, is_queued: bool) -> Bytes {
    let mut out = BytesMut::new();
    let status = match is_queued {
        true => Status::Queued,
        false => Status::InProgress,
    };
    let items = items(source, &replay::answers(source));
    write(source, status, None, &mut out, |out| {
        json::raw(out, &items.join(","));
    });
    out.freeze()
}

/// The items of answers, each as JSON, in the order of their places.
pub(crate) fn items(source: &StreamSource, answers: &[Answer]) -> Vec<String> {
    let Some(started) = source.started() else {
        return Vec::new();
    };
    let rows = answers.iter().map(said).max().unwrap_or(0);
    let places = (0..rows).flat_map(|at| (0..answers.len()).map(move |choice| (choice, at)));
    let there = places.filter(|&(choice, at)| at < said(&answers[choice]));
    there
        .map(|(choice, at)| {
            let answer = &answers[choice];
            let piece = answer.pieces.get(at);
            let mut out = BytesMut::new();
            let index = choice + answers.len() * at;
            let list = logprobs(answer, &started.tokenizer);
            let status = item_status(answer, at);
            item(
                source,
                (kind(piece), index),
                (piece, status),
                list,
                &mut out,
            );
            String::from_utf8_lossy(&out).into_owned()
        })
        .collect()
}

/// How many items an answer has: who said nothing said it in a message.
fn said(answer: &Answer) -> usize {
    let silent = answer.end.is_some_and(is_good);
    answer.pieces.len().max(usize::from(silent))
}

fn kind(piece: Option<&AnswerPart>) -> Item {
    match piece {
        Some(AnswerPart::Text(_)) | None => Item::Message,
        Some(AnswerPart::Reasoning(_)) => Item::Reasoning,
        Some(AnswerPart::Call(_)) => Item::Call,
    }
}

/// What an item says.
pub(crate) fn text(piece: Option<&AnswerPart>) -> &str {
    match piece {
        Some(AnswerPart::Text(text) | AnswerPart::Reasoning(text)) => text,
        Some(AnswerPart::Call(call)) => &call.arguments,
        None => "",
    }
}

/// How the status of an answer's item is spelled.
pub(crate) fn item_status(answer: &Answer, at: usize) -> &'static str {
    // A call is whole or not, whatever follows it.
    let is_whole = match answer.pieces.get(at) {
        Some(AnswerPart::Call(call)) => serde_json::from_str::<IgnoredAny>(&call.arguments).is_ok(),
        _ => at + 1 < answer.pieces.len(),
    };
    let is_call = matches!(answer.pieces.get(at), Some(AnswerPart::Call(_)));
    match answer.end.map(ending::spell) {
        _ if is_whole => "completed",
        None => "in_progress",
        Some(_) if is_call => "incomplete",
        Some(Ok("length") | Err(_)) => "incomplete",
        Some(Ok(_)) => "completed",
    }
}

/// An answer's log-probabilities, where all of it is one message. (They are told with each delta; which of
/// several items they are of is not known afterwards.)
pub(crate) fn logprobs<'a>(answer: &'a Answer, tokenizer: &'a Tokenizer) -> Option<Logprobs<'a>> {
    matches!(answer.pieces[..], [AnswerPart::Text(_)]).then(|| answer.logprobs(tokenizer))
}

/// An item that begins with this event.
pub(crate) fn begun(
    source: &StreamSource,
    item: Item,
    index: usize,
    event: &Event<'_>,
    out: &mut BytesMut,
) {
    open(source, (item, index), "in_progress", out);
    match (item, event) {
        (Item::Call, Event::Call(call)) => {
            if let CallPart::Start { id, name } = call.said {
                write_call((id, name, ""), out);
            }
        }
        (Item::Reasoning, _) => json::raw(out, ",\"summary\":[],\"content\":[]"),
        _ => json::raw(out, ",\"role\":\"assistant\",\"content\":[]"),
    }
    json::raw(out, "}");
}

/// An item at this place of the output; without a piece it says nothing.
pub(crate) fn item(
    source: &StreamSource,
    (item, index): (Item, usize),
    (piece, status): (Option<&AnswerPart>, &str),
    list: Option<Logprobs<'_>>,
    out: &mut BytesMut,
) {
    open(source, (item, index), status, out);
    match (item, piece) {
        (Item::Call, Some(AnswerPart::Call(call))) => {
            write_call((&call.id, &call.name, &call.arguments), out);
        }
        _ => {
            json::raw(
                out,
                match item {
                    Item::Reasoning => ",\"summary\":[],\"content\":[",
                    _ => ",\"role\":\"assistant\",\"content\":[",
                },
            );
            part(item, text(piece), list, out);
            json::raw(out, "]");
        }
    }
    json::raw(out, "}");
}

/// An item's object, left open.
fn open(source: &StreamSource, (item, index): (Item, usize), status: &str, out: &mut BytesMut) {
    json::raw(out, "{\"id\":");
    item_id(source, item, index, out);
    json::raw(
        out,
        match item {
            Item::Message => ",\"type\":\"message\",\"status\":\"",
            Item::Reasoning => ",\"type\":\"reasoning\",\"status\":\"",
            Item::Call => ",\"type\":\"function_call\",\"status\":\"",
        },
    );
    json::raw(out, status);
    json::raw(out, "\"");
}

fn write_call((id, name, arguments): (&str, &str, &str), out: &mut BytesMut) {
    for (field, value) in [
        (",\"call_id\":", id),
        (",\"name\":", name),
        (",\"arguments\":", arguments),
    ] {
        json::raw(out, field);
        json::string(out, value);
    }
}

/// The one part of a message, or of what was thought.
pub(crate) fn part(item: Item, text: &str, list: Option<Logprobs<'_>>, out: &mut BytesMut) {
    if item == Item::Message {
        json::raw(
            out,
            "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":",
        );
        write_logprobs(list, out);
        json::raw(out, ",\"text\":");
    } else {
        json::raw(out, "{\"type\":\"reasoning_text\",\"text\":");
    }
    json::string(out, text);
    json::raw(out, "}");
}

/// What an item said, at its end.
pub(crate) fn contents(
    piece: Option<&AnswerPart>,
    item: Item,
    list: Option<Logprobs<'_>>,
    out: &mut BytesMut,
) {
    if let Some(AnswerPart::Call(call)) = piece {
        json::raw(out, ",\"name\":");
        json::string(out, &call.name);
        json::raw(out, ",\"arguments\":");
    } else {
        json::raw(out, ",\"text\":");
    }
    json::string(out, text(piece));
    if item == Item::Message {
        json::raw(out, ",\"logprobs\":");
        write_logprobs(list, out);
    }
}

fn write_logprobs(list: Option<Logprobs<'_>>, out: &mut BytesMut) {
    match list {
        Some(list) => logprobs::write_tokens(list, out),
        None => json::raw(out, "[]"),
    }
}

/// What an item is called: by its stream, and by its place where it is not the first.
pub(crate) fn item_id(source: &StreamSource, item: Item, index: usize, out: &mut BytesMut) {
    json::raw(
        out,
        match item {
            Item::Message => "\"msg_",
            Item::Reasoning => "\"rs_",
            Item::Call => "\"fc_",
        },
    );
    // Writing into memory does not fail.
    let _ = write!(out, "{}", source.meta().id);
    if index > 0 {
        json::raw(out, "_");
        json::integer(out, index as u64);
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
        // Nobody pays for what is kept here; the client's own type has the field all the same.
        (",\"cache_write_tokens\":", 0),
        ("},\"output_tokens\":", usage.completion_tokens),
        (
            ",\"output_tokens_details\":{\"reasoning_tokens\":",
            usage.reasoning_tokens,
        ),
        ("},\"total_tokens\":", total),
    ];
    for (name, count) in counts {
        json::raw(out, name);
        json::integer(out, count);
    }
    json::raw(out, "}");
}
