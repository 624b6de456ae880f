//! What Anthropic's format says, as strictly as its clients read it: each event by its name, blocks that
//! begin before they go on, and one `message_stop`.

use super::automaton::Item;
use super::framing::{Event, Why};
use serde_json::Value;

/// Streamed.
pub fn frames(events: &[Event]) -> Result<Vec<Item>, Why> {
    let mut items = Vec::new();
    // Blocks that began, by index. Who comes back to a place has seen the block it stands in begin.
    let mut open = Vec::new();
    for event in events {
        let Event::Data { name, data, .. } = event else {
            items.push(Item::Sign);
            continue;
        };
        let frame: Value = serde_json::from_str(data).map_err(|e| format!("{e}: {data}"))?;
        let kind = frame["type"].as_str().ok_or("no type")?;
        if name.as_deref() != Some(kind) {
            return Err(format!("{name:?} is not {kind}"));
        }
        frame_items(kind, &frame, &mut open, &mut items)?;
    }
    Ok(items)
}

fn frame_items(
    kind: &str,
    frame: &Value,
    open: &mut Vec<u64>,
    items: &mut Vec<Item>,
) -> Result<(), Why> {
    let index = frame["index"].as_u64();
    match kind {
        "ping" => items.push(Item::Sign),
        "message_start" => {
            let message = &frame["message"];
            if message["role"] != "assistant" || message["content"] != serde_json::json!([]) {
                return Err(format!("no empty message: {frame}"));
            }
            message["usage"]["input_tokens"]
                .as_u64()
                .ok_or("no usage")?;
            items.push(Item::Opening);
        }
        "content_block_start" => {
            open.push(index.ok_or("no index")?);
            items.push(Item::Sign);
        }
        "content_block_delta" => {
            let choice = index.filter(|index| open.contains(index));
            let choice = choice.ok_or(format!("no such block: {frame}"))?;
            let text = frame["delta"]["text"].as_str().ok_or("no text")?.to_owned();
            items.push(Item::Text { choice, text });
        }
        "content_block_stop" => {
            let choice = index.filter(|index| open.contains(index));
            let choice = choice.ok_or(format!("no such block: {frame}"))?;
            open.retain(|&block| block != choice);
            items.extend(frame["stop_reason"].as_str().map(|word| end(choice, word)));
        }
        "message_delta" => {
            let several = items.iter().any(|item| matches!(item, Item::End { .. }));
            let word = frame["delta"]["stop_reason"].as_str();
            items.extend(word.filter(|_| !several).map(|word| end(0, word)));
            let tokens = frame["usage"]["output_tokens"].as_u64();
            items.push(Item::Usage(tokens.ok_or("no counts")?));
        }
        "message_stop" => items.push(Item::Done),
        "error" => items.push(error(frame)),
        _ => return Err(format!("no such event: {frame}")),
    }
    Ok(())
}

/// Whole.
pub fn whole(status: u16, body: &Value) -> Result<Vec<Item>, Why> {
    if status != 200 {
        return Ok(vec![error(body)]);
    }
    let mut items = Vec::new();
    for block in body["content"].as_array().ok_or("no content")? {
        let text = block["text"].as_str().ok_or("no text")?.to_owned();
        items.push(Item::Text { choice: 0, text });
    }
    items.push(end(0, body["stop_reason"].as_str().ok_or("no reason")?));
    let tokens = body["usage"]["output_tokens"].as_u64();
    items.push(Item::Usage(tokens.ok_or("no counts")?));
    items.push(Item::Done);
    Ok(items)
}

fn end(choice: u64, word: &str) -> Item {
    let word = word.to_owned();
    Item::End {
        choice,
        word,
        tokens: None,
    }
}

/// One that is not of this shape is refused by the state machine: it has no words.
fn error(told: &Value) -> Item {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let error = &told["error"];
    let shaped = told["type"] == "error" && error["type"].is_string();
    Item::Error {
        code: text(&error["details"]["error_code"]),
        message: text(if shaped {
            &error["message"]
        } else {
            &Value::Null
        }),
    }
}
