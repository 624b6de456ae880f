//! UI message streams of the Vercel AI SDK, read as strictly as the SDK reads them: each text belongs to a part that
//! has begun and has not ended, and `finish`, `error` and `abort` are the ends of a message.
//!
//! A stream has one `finish` for all choices, and a complete message has no reason at all: `message` stands for one
//! here.

use super::automaton::Item;
use super::framing::{self, Event, Why};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The end of a message that was not streamed.
pub const COMPLETE: &str = "message";
/// The code of an error: the protocol has the message only.
pub const ERROR: &str = "error";
/// The code of a cancellation.
pub const ABORT: &str = "abort";

/// Whether a part is open, by its id.
type Parts = BTreeMap<String, bool>;

/// A request's messages with this prompt.
pub fn prompt(body: &mut Value, text: &str) {
    let parts = json!([{"type": "text", "text": text}]);
    body["messages"] = json!([{"id": "1", "role": "user", "parts": parts}]);
}

/// A streaming response.
pub fn frames(events: &[Event]) -> Result<Vec<Item>, Why> {
    let (mut items, mut parts) = (Vec::new(), Parts::new());
    for event in events {
        match event {
            Event::Comment => items.push(Item::Sign),
            Event::Data { name: Some(_), .. } => return Err("chunks have no names".to_owned()),
            Event::Data { data, .. } if data == "[DONE]" => items.push(Item::Done),
            Event::Data { data, .. } => {
                let chunk = serde_json::from_str(data).map_err(|e| format!("{e}: {data}"))?;
                chunk_items(&chunk, &mut parts, &mut items)?;
            }
        }
    }
    Ok(items)
}

fn chunk_items(chunk: &Value, parts: &mut Parts, items: &mut Vec<Item>) -> Result<(), Why> {
    let text = |name: &str| chunk[name].as_str().ok_or(format!("no {name}: {chunk}"));
    match text("type")? {
        "start" => {
            text("messageId")?;
            items.push(Item::Opening);
        }
        "start-step" => items.push(Item::Opening),
        // A client that comes back may see a part begin again before its first text.
        "text-start" => {
            parts.insert(text("id")?.to_owned(), true);
        }
        "text-delta" => {
            let id = text("id")?;
            if parts.get(id) != Some(&true) {
                return Err(format!("no open part: {chunk}"));
            }
            items.push(Item::Text {
                choice: choice_of(id)?,
                text: text("delta")?.to_owned(),
            });
        }
        "text-end" => {
            let id = text("id")?;
            if parts.insert(id.to_owned(), false) != Some(true) {
                return Err(format!("no open part: {chunk}"));
            }
        }
        "finish-step" if parts.values().all(|is_open| !is_open) => {}
        "finish" => {
            let choices = parts.keys().map(|id| choice_of(id));
            let choices = choices.collect::<Result<Vec<u64>, Why>>()?;
            let last = choices.into_iter().max().unwrap_or(0);
            items.extend((0..=last).map(|choice| end(choice, chunk["finishReason"].as_str())));
            items.push(usage(&chunk["messageMetadata"])?);
        }
        "error" => items.push(error(ERROR, &chunk["errorText"])),
        "abort" => items.push(error(ABORT, &chunk["reason"])),
        _ => return Err(format!("not there: {chunk} beside {parts:?}")),
    }
    Ok(())
}

/// The choice of a part: `0` is the first part of choice 0, `choice1-0` that of choice 1.
fn choice_of(id: &str) -> Result<u64, Why> {
    let choice = match id.strip_prefix("choice").and_then(|id| id.split_once('-')) {
        Some((choice, _)) => choice.parse(),
        None => id.parse::<u64>().map(|_| 0),
    };
    choice.map_err(|_| format!("no id of a part: {id}"))
}

/// A complete message, or an error in OpenAI's shape.
pub fn whole(status: u16, body: &Value) -> Result<Vec<Item>, Why> {
    if status != 200 {
        return Ok(vec![framing::error(&body["error"]), Item::Done]);
    }
    let mut items = Vec::new();
    for part in body["parts"].as_array().ok_or("no parts")? {
        if part["type"] != "text" || part["state"] != "done" {
            return Err(format!("no complete text: {part}"));
        }
        let text = part["text"].as_str().ok_or("no text")?.to_owned();
        items.push(Item::Text { choice: 0, text });
    }
    items.push(end(0, Some(COMPLETE)));
    items.push(usage(&body["metadata"])?);
    items.push(Item::Done);
    Ok(items)
}

fn usage(metadata: &Value) -> Result<Item, Why> {
    let tokens = metadata["usage"]["outputTokens"].as_u64();
    Ok(Item::Usage(tokens.ok_or(format!("no usage: {metadata}"))?))
}

fn end(choice: u64, word: Option<&str>) -> Item {
    Item::End {
        choice,
        word: word.unwrap_or_default().to_owned(),
        tokens: None,
    }
}

fn error(code: &str, message: &Value) -> Item {
    Item::Error {
        code: code.to_owned(),
        message: message.as_str().unwrap_or_default().to_owned(),
    }
}
