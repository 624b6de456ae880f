//! Parsers of response bodies: one for each framing, as strict as clients.

use super::automaton::Item;
use serde_json::Value;
use std::collections::BTreeMap;

/// An SSE event, or a comment between events.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Comment,
    /// An event with data, and its id if there is one.
    Data {
        id: Option<String>,
        /// Value of the field `event`.
        name: Option<String>,
        data: String,
    },
}

/// Why a body is invalid.
pub type Why = String;

/// The events of a text that ends with a complete event. Comments are lines between events, with an empty line or not.
pub fn sse(text: &str) -> Result<Vec<Event>, Why> {
    let (mut events, mut is_first, mut rest) = (Vec::new(), true, text);
    while !rest.is_empty() {
        let is_comment = rest.starts_with(':');
        let end = if is_comment { "\n" } else { "\n\n" };
        let (text, after) = rest
            .split_once(end)
            .ok_or(format!("cut within an event: {rest:?}"))?;
        events.push(event(text, &mut is_first)?);
        rest = if is_comment {
            after.strip_prefix('\n').unwrap_or(after)
        } else {
            after
        };
    }
    Ok(events)
}

/// The complete events at the start of a truncated text.
pub fn sse_before_the_cut(text: &str) -> Result<Vec<Event>, Why> {
    sse(text.rfind("\n\n").map_or("", |end| &text[..end + 2]))
}

/// Complete lines of JSON; the cursor is a field of the line.
pub fn lines(text: &str) -> Result<Vec<Event>, Why> {
    let whole = text.is_empty() || text.ends_with('\n');
    if whole {
        text.split_terminator('\n').map(line).collect()
    } else {
        Err(format!("cut within a line: {text:?}"))
    }
}

fn line(text: &str) -> Result<Event, Why> {
    let id = json(text)?["cursor"].as_str().map(str::to_owned);
    Ok(Event::Data {
        id,
        name: None,
        data: text.to_owned(),
    })
}

/// One event. The reconnection time is in the first event with data, if at all.
fn event(text: &str, is_first: &mut bool) -> Result<Event, Why> {
    let (mut id, mut data, mut name, mut retry) = (None, None, None, None);
    for line in text.split('\n') {
        let (field, value) = line.split_once(':').ok_or(format!("no field: {line:?}"))?;
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        let before = match field {
            "" => None,
            "id" => id.replace(value),
            "data" => data.replace(value),
            "event" => name.replace(value),
            "retry" if *is_first && value == "250" => retry.replace(value),
            _ => return Err(format!("no such field: {line:?}")),
        };
        if before.is_some() {
            return Err(format!("twice in one event: {line:?}"));
        }
    }
    match (id, data, retry) {
        (id, Some(data), _) => {
            *is_first = false;
            Ok(Event::Data { id, name, data })
        }
        (None, None, None) => Ok(Event::Comment),
        (id, None, retry) => Err(format!("a place and nothing told: {id:?} {retry:?}")),
    }
}

fn json(text: &str) -> Result<Value, Why> {
    serde_json::from_str(text).map_err(|error| format!("{error}: {text}"))
}

/// Streaming responses of OpenAI's chat and completions.
pub fn openai(events: &[Event]) -> Result<Vec<Item>, Why> {
    let mut items = Vec::new();
    for event in events {
        match event {
            Event::Comment => items.push(Item::Sign),
            Event::Data { data, .. } if data == "[DONE]" => items.push(Item::Done),
            Event::Data { data, .. } => openai_frame(&json(data)?, &mut items)?,
        }
    }
    Ok(items)
}

fn openai_frame(frame: &Value, items: &mut Vec<Item>) -> Result<(), Why> {
    if !frame["error"].is_null() {
        items.push(error(&frame["error"]));
        return Ok(());
    }
    let choices = frame["choices"].as_array();
    let tokens = frame["usage"]["completion_tokens"].as_u64();
    let choice = match (choices.map(Vec::as_slice), tokens) {
        (Some([]), Some(tokens)) => {
            items.push(Item::Usage(tokens));
            return Ok(());
        }
        (Some([choice]), _) => choice,
        _ => return Err(format!("neither an error nor a chunk: {frame}")),
    };
    items.extend(tokens.map(Item::Figures));
    let index = choice["index"].as_u64().ok_or("a choice has an index")?;
    let text = choice["delta"]["content"].as_str();
    let text = text.or(choice["text"].as_str()).unwrap_or_default();
    if choice["delta"]["role"] == "assistant" {
        items.push(Item::Opening);
    }
    if !text.is_empty() {
        let text = text.to_owned();
        items.push(Item::Text {
            choice: index,
            text,
        });
    }
    if let Some(word) = choice["finish_reason"].as_str() {
        items.push(end(index, word, None));
    }
    Ok(())
}

/// Non-streaming responses of OpenAI's chat and completions.
pub fn openai_whole(status: u16, body: &Value) -> Result<Vec<Item>, Why> {
    if status != 200 {
        return Ok(vec![error(&body["error"])]);
    }
    let mut items = Vec::new();
    for choice in body["choices"].as_array().ok_or("no choices")? {
        let index = choice["index"].as_u64().ok_or("a choice has an index")?;
        let text = choice["message"]["content"].as_str();
        let text = text.or(choice["text"].as_str()).ok_or("no text")?;
        let text = text.to_owned();
        items.push(Item::Text {
            choice: index,
            text,
        });
        let word = choice["finish_reason"].as_str().ok_or("no finish_reason")?;
        items.push(end(index, word, None));
    }
    let tokens = body["usage"]["completion_tokens"].as_u64();
    items.push(Item::Usage(tokens.ok_or("no usage")?));
    items.push(Item::Done);
    Ok(items)
}

/// Streaming responses of the jobs API.
pub fn job(events: &[Event]) -> Result<Vec<Item>, Why> {
    let mut items = Vec::new();
    // Index of the next token of each choice, also after a truncation.
    let mut next = BTreeMap::new();
    for event in events {
        let data = match event {
            Event::Comment => {
                items.push(Item::Sign);
                continue;
            }
            Event::Data { data, .. } => data,
        };
        if data == "[DONE]" {
            items.push(Item::Done);
            continue;
        }
        let frame = json(data)?;
        let choice = frame["choice"].as_u64().unwrap_or(0);
        items.push(match frame["type"].as_str() {
            Some("queued") => Item::Sign,
            Some("started") => Item::Opening,
            Some("token") => {
                let next = next.entry(choice).or_insert(0);
                if frame["i"] != *next {
                    return Err(format!("not token {next}: {frame}"));
                }
                *next += frame["n"].as_u64().unwrap_or(1);
                let text = frame["t"].as_str().ok_or("no text")?.to_owned();
                Item::Text { choice, text }
            }
            Some("metrics") => Item::Figures(frame["tokens_out"].as_u64().ok_or("no figure")?),
            Some("end") => {
                let word = frame["stop_reason"].as_str().ok_or("no reason")?;
                end(choice, word, frame["tokens_out"].as_u64())
            }
            Some("error") => error(&frame),
            _ => return Err(format!("no such frame: {frame}")),
        });
    }
    Ok(items)
}

/// Non-streaming responses of the jobs API.
pub fn job_whole(status: u16, body: &Value) -> Result<Vec<Item>, Why> {
    if let Some(problem) = body["errors"].get(0) {
        let message = problem["message"].clone();
        let fields = serde_json::json!({"code": "INVALID_REQUEST", "message": message});
        return Ok(vec![error(&fields), Item::Done]);
    }
    if status != 200 {
        return Ok(vec![error(&body["error"]), Item::Done]);
    }
    let text = body["text"].as_str().ok_or("no text")?.to_owned();
    let word = body["stop_reason"].as_str().ok_or("no reason")?;
    let text = Item::Text { choice: 0, text };
    Ok(vec![
        text,
        end(0, word, body["tokens_out"].as_u64()),
        Item::Done,
    ])
}

/// The state of a job that has ended (`GET /v1/jobs/{id}`).
pub fn job_shown(shown: &Value) -> Result<Vec<Item>, Why> {
    let ending = &shown["ending"];
    let tokens = shown["tokens_out"].as_u64().ok_or("no count")?;
    let told = match ending["stop_reason"].as_str() {
        Some(word) => end(0, word, Some(tokens)),
        None => error(ending),
    };
    Ok(vec![Item::Figures(tokens), told, Item::Done])
}

/// Streaming responses of Ollama's chat and generate.
pub fn ollama(events: &[Event]) -> Result<Vec<Item>, Why> {
    let mut items = Vec::new();
    for event in events {
        match event {
            Event::Comment => items.push(Item::Sign),
            Event::Data { data, .. } => ollama_object(&json(data)?, &mut items)?,
        }
    }
    Ok(items)
}

/// Non-streaming responses of Ollama's chat and generate.
pub fn ollama_whole(_: u16, body: &Value) -> Result<Vec<Item>, Why> {
    let mut items = Vec::new();
    ollama_object(body, &mut items)?;
    Ok(items)
}

fn ollama_object(object: &Value, items: &mut Vec<Item>) -> Result<(), Why> {
    if let Some(message) = object["error"].as_str() {
        items.extend(object["eval_count"].as_u64().map(Item::Figures));
        let code = object["code"].as_str().unwrap_or_default().to_owned();
        let message = message.to_owned();
        items.push(Item::Error { code, message });
        return Ok(());
    }
    let choice = object["choice"].as_u64().unwrap_or(0);
    let text = object["message"]["content"].as_str();
    let text = text.or(object["response"].as_str()).ok_or("no text")?;
    let done = object["done"].as_bool().ok_or("done or not?")?;
    match (text, done) {
        ("", false) => items.push(Item::Sign),
        ("", true) => {}
        (text, _) => items.push(Item::Text {
            choice,
            text: text.to_owned(),
        }),
    }
    if done {
        let word = object["done_reason"].as_str().ok_or("no reason")?;
        let tokens = object["eval_count"].as_u64().ok_or("no count")?;
        items.push(end(choice, word, Some(tokens)));
    }
    Ok(())
}

fn end(choice: u64, word: &str, tokens: Option<u64>) -> Item {
    let word = word.to_owned();
    Item::End {
        choice,
        word,
        tokens,
    }
}

/// The code and message of an error; the state machine rejects an error without these.
pub fn error(told: &Value) -> Item {
    let word = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
    Item::Error {
        code: word("code"),
        message: word("message"),
    }
}
