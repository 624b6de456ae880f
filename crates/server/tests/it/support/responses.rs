//! What the Responses format says, as strictly as its clients read it: each event by its name, messages and
//! parts that begin before they go on and are told whole at their end, and one last event with everything.

use super::automaton::Item;
use super::framing::{Event, Why};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What is known of the messages.
#[derive(Default)]
struct Output {
    /// Text so far of each that began. Who comes back to a place has seen the message it stands in begin,
    /// and has the text up to there.
    open: BTreeMap<u64, String>,
    /// Those that were told whole.
    done: BTreeMap<u64, Value>,
}

/// Streamed.
pub fn frames(events: &[Event]) -> Result<Vec<Item>, Why> {
    let (mut items, mut output) = (Vec::new(), Output::default());
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
        frame["sequence_number"].as_u64().ok_or("no number")?;
        frame_items(kind, &frame, &mut output, &mut items)?;
    }
    Ok(items)
}

fn frame_items(
    kind: &str,
    frame: &Value,
    output: &mut Output,
    items: &mut Vec<Item>,
) -> Result<(), Why> {
    let index = || frame["output_index"].as_u64().ok_or("no output_index");
    match kind {
        "response.created" | "response.in_progress" => {
            let response = &frame["response"];
            if response["status"] != "in_progress" || response["output"] != json!([]) {
                return Err(format!("no empty response: {frame}"));
            }
            items.push(Item::Opening);
        }
        "response.output_item.added" => {
            output.open.insert(index()?, String::new());
            items.push(Item::Sign);
        }
        "response.content_part.added" | "response.content_part.done" => {
            let text = output.text(index()?, frame)?;
            if frame["part"]["text"] != *text.as_str() {
                return Err(format!("not {text:?}: {frame}"));
            }
            items.push(Item::Sign);
        }
        "response.output_text.delta" => {
            let (choice, text) = (index()?, frame["delta"].as_str().ok_or("no delta")?);
            output.text(choice, frame)?.push_str(text);
            let text = text.to_owned();
            items.push(Item::Text { choice, text });
        }
        "response.output_text.done" => {
            let text = output.text(index()?, frame)?;
            if frame["text"] != *text.as_str() {
                return Err(format!("not {text:?}: {frame}"));
            }
            items.push(Item::Sign);
        }
        "response.output_item.done" => {
            let (choice, item) = (index()?, &frame["item"]);
            output.text(choice, &json!({"item_id": item["id"]}))?;
            let word = item["status"].as_str().ok_or("no status")?;
            items.push(end(choice, word));
            output.done.insert(choice, item.clone());
        }
        "response.completed" | "response.incomplete" | "response.failed" => {
            last(kind, &frame["response"], output, items)?;
        }
        "error" => items.push(error(frame)),
        _ => return Err(format!("no such event: {frame}")),
    }
    Ok(())
}

impl Output {
    /// The text so far of a message that began, which the frame must name.
    fn text(&mut self, choice: u64, frame: &Value) -> Result<&mut String, Why> {
        let named = frame["item_id"].as_str().unwrap_or_default();
        let suffix = match choice {
            0 => String::new(),
            n => format!("_{n}"),
        };
        if !named.starts_with("msg_") || !named.ends_with(&suffix) {
            return Err(format!("whose is it? {frame}"));
        }
        let text = self.open.get_mut(&choice);
        text.ok_or(format!("no such message: {frame}"))
    }
}

fn last(kind: &str, response: &Value, output: &Output, items: &mut Vec<Item>) -> Result<(), Why> {
    let tokens = response["usage"]["output_tokens"]
        .as_u64()
        .ok_or("no usage")?;
    let told = response["output"].as_array().ok_or("no output")?;
    let same = |(choice, item): (&u64, &Value)| told.get(*choice as usize) == Some(item);
    if !output.done.iter().all(same) {
        return Err(format!("told otherwise before: {response}"));
    }
    if kind == "response.failed" {
        items.extend((tokens > 0).then_some(Item::Usage(tokens)));
        let status = response["status"].as_str().unwrap_or_default();
        // A cancelled one is no error to who reads the object; the status says it.
        let cancelled = json!({"code": "cancelled", "message": "the request was cancelled"});
        let failed = match (status, response["error"].is_null()) {
            ("cancelled", true) => error(&cancelled),
            ("failed", false) => error(&response["error"]),
            _ => return Err(format!("not {status}: {response}")),
        };
        items.push(failed);
        return Ok(());
    }
    items.push(Item::Usage(tokens));
    items.push(Item::Done);
    ended(kind, response)
}

/// Whether the status, its reason and the event's name go together.
fn ended(kind: &str, response: &Value) -> Result<(), Why> {
    let status = response["status"].as_str().unwrap_or_default();
    let reason = &response["incomplete_details"]["reason"];
    let first = &response["output"][0]["status"];
    let right = kind == format!("response.{status}")
        && first == status
        && (status == "incomplete") == (*reason == "max_output_tokens");
    if right && response["error"].is_null() {
        Ok(())
    } else {
        Err(format!("neither one nor the other: {response}"))
    }
}

/// Whole.
pub fn whole(status: u16, body: &Value) -> Result<Vec<Item>, Why> {
    if status != 200 {
        return Ok(vec![error(&body["error"])]);
    }
    ended(
        &format!("response.{}", body["status"].as_str().unwrap_or_default()),
        body,
    )?;
    let item = &body["output"][0];
    let text = item["content"][0]["text"]
        .as_str()
        .ok_or("no text")?
        .to_owned();
    let word = item["status"].as_str().ok_or("no status")?;
    let tokens = body["usage"]["output_tokens"].as_u64().ok_or("no usage")?;
    Ok(vec![
        Item::Text { choice: 0, text },
        end(0, word),
        Item::Usage(tokens),
        Item::Done,
    ])
}

fn end(choice: u64, word: &str) -> Item {
    let word = word.to_owned();
    Item::End {
        choice,
        word,
        tokens: None,
    }
}

fn error(told: &Value) -> Item {
    let word = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
    Item::Error {
        code: word("code"),
        message: word("message"),
    }
}
