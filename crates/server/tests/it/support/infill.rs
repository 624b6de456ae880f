//! Requests and responses of llama.cpp's `/infill`.

use super::automaton::Item;
use super::framing::{Event, Why, error};
use serde_json::{Value, json};

/// Adds the prompt as the text before a gap.
pub fn prompt(body: &mut Value, text: &str) {
    body["input_prefix"] = json!(text);
    body["input_suffix"] = json!("");
}

/// A streaming response.
pub fn frames(events: &[Event]) -> Result<Vec<Item>, Why> {
    let mut items = Vec::new();
    for event in events {
        let data = match event {
            Event::Comment => {
                items.push(Item::Sign);
                continue;
            }
            Event::Data { data, .. } => data,
        };
        let object = serde_json::from_str(data).map_err(|why| format!("{why}: {data}"))?;
        add_object(&object, &mut items)?;
    }
    Ok(items)
}

/// A non-streaming response.
pub fn whole(_: u16, body: &Value) -> Result<Vec<Item>, Why> {
    let mut items = Vec::new();
    add_object(body, &mut items)?;
    Ok(items)
}

fn add_object(object: &Value, items: &mut Vec<Item>) -> Result<(), Why> {
    if !object["error"].is_null() {
        items.push(error(&object["error"]));
        return Ok(());
    }
    let choice = object["index"].as_u64().ok_or("an object has an index")?;
    let text = object["content"].as_str().ok_or("no text")?.to_owned();
    if !text.is_empty() {
        items.push(Item::Text { choice, text });
    }
    if object["stop"].as_bool().ok_or("the last or not?")? {
        let word = object["stop_type"].as_str().ok_or("no reason")?.to_owned();
        let tokens = object["tokens_predicted"].as_u64();
        items.push(Item::End {
            choice,
            word,
            tokens,
        });
    }
    Ok(())
}
