//! How a chat template takes the tool calls of earlier turns, with ids or without, and conversations with calls in that
//! form.

use super::capabilities::{
    FIRST, FOURTH, PROBE, PROBE_ID as PLAIN_ID, SECOND, THIRD, message, probe_tools,
};
use super::chat_template::ChatTemplate;
use super::generic_tools;
use super::message::Message;
use super::turn_support::TurnSupport;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

/// An id as most servers make them.
const LONG_ID: &str = "call_probe_0123456789";

/// The form of tool calls that a template renders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallSupport {
    /// Whether arguments are a text of JSON rather than an object.
    argument_text: bool,
    /// Whether each call and each result must have an id.
    needs_ids: bool,
    /// Whether ids must be of nine letters and digits.
    nine_characters: bool,
    /// Whether a message may have several calls.
    several: bool,
    /// Whether text next to a call becomes a message of its own: otherwise the template drops that text.
    separates_text: bool,
}

impl CallSupport {
    /// A template that takes calls in every form.
    pub(super) const ALL: Self = Self {
        argument_text: false,
        needs_ids: false,
        nine_characters: false,
        several: true,
        separates_text: false,
    };

    /// Tries a template that renders these turns. `None`: it does not render calls and results.
    pub(super) fn of(template: &ChatTemplate, turns: &TurnSupport) -> Option<Self> {
        let plain = Probe {
            template,
            turns,
            argument_text: false,
            id: Some(PLAIN_ID),
        };
        let text = Probe {
            argument_text: true,
            ..plain
        };
        let probe = [plain, text].into_iter().find(Probe::shows_call)?;
        let with_id = |id| Probe { id, ..probe };
        let nine_characters = !with_id(Some(LONG_ID)).shows_call();
        Some(Self {
            argument_text: probe.argument_text,
            needs_ids: nine_characters || !with_id(None).shows_call(),
            nine_characters,
            several: probe.shows_two_calls(),
            separates_text: !probe.shows_text_beside() && probe.shows_text_before(),
        })
    }

    /// The conversation with tool calls in the form that the template renders. All arguments are objects.
    pub(super) fn fit(&self, mut messages: Vec<Message>) -> Vec<Message> {
        if self.needs_ids || !self.several {
            CallIds::new(self.nine_characters).complete(&mut messages);
        }
        if self.separates_text {
            messages = messages.into_iter().flat_map(with_text_apart).collect();
        }
        if !self.several {
            messages = one_call_each(messages);
        }
        if self.argument_text {
            messages.iter_mut().for_each(write_arguments);
        }
        messages
    }
}

/// Conversations with calls, for one template.
#[derive(Clone, Copy)]
struct Probe<'a> {
    template: &'a ChatTemplate,
    turns: &'a TurnSupport,
    argument_text: bool,
    id: Option<&'a str>,
}

impl Probe<'_> {
    fn shows(&self, messages: &[Message], texts: &[&str]) -> bool {
        let rendered = self.template.rendered_probe(messages, &probe_tools());
        rendered.is_some_and(|shown| texts.iter().all(|text| shown.contains(text)))
    }

    fn shows_call(&self) -> bool {
        let turns = [
            message("user", "hi"),
            self.calls("", &[FIRST]),
            self.result(SECOND),
        ];
        self.shows(&turns, &[FIRST, SECOND])
    }

    fn shows_two_calls(&self) -> bool {
        let calls = self.calls("", &[FIRST, THIRD]);
        let turns = [
            message("user", "hi"),
            calls,
            self.result(SECOND),
            self.result(FOURTH),
        ];
        self.shows(&turns, &[FIRST, SECOND, THIRD, FOURTH])
    }

    /// Whether text next to a call is rendered, also where an answer follows.
    fn shows_text_beside(&self) -> bool {
        let turns = [
            message("user", "hi"),
            self.calls(THIRD, &[FIRST]),
            self.result(SECOND),
            message("assistant", FOURTH),
            message("user", "hi"),
        ];
        self.shows(&turns[..3], &[FIRST, SECOND, THIRD])
            && self.shows(&turns, &[FIRST, SECOND, THIRD, FOURTH])
    }

    /// Whether the text may be a message before the call, in turns that the template renders.
    fn shows_text_before(&self) -> bool {
        let turns = vec![
            message("user", "hi"),
            message("assistant", THIRD),
            self.calls("", &[FIRST]),
            self.result(SECOND),
            message("assistant", FOURTH),
            message("user", "hi"),
        ];
        self.shows(&self.turns.fit(turns), &[FIRST, SECOND, THIRD, FOURTH])
    }

    /// A message with one call for each argument.
    fn calls(&self, content: &str, arguments: &[&str]) -> Message {
        let calls = arguments.iter().map(|city| {
            let arguments = if self.argument_text {
                json!(json!({ "city": city }).to_string())
            } else {
                json!({ "city": city })
            };
            let mut call =
                json!({"type": "function", "function": {"name": PROBE, "arguments": arguments}});
            if let Some(id) = self.id {
                call["id"] = json!(id);
            }
            call
        });
        let mut message = message("assistant", content);
        message
            .rest
            .insert("tool_calls".to_owned(), calls.collect());
        message
    }

    fn result(&self, content: &str) -> Message {
        let mut message = message("tool", content);
        message.rest.insert("name".to_owned(), json!(PROBE));
        if let Some(id) = self.id {
            message.rest.insert("tool_call_id".to_owned(), json!(id));
        }
        message
    }
}

/// The tool calls of a message.
fn calls_of(message: &Message) -> &[Value] {
    let calls = message.rest.get("tool_calls").and_then(Value::as_array);
    calls.map_or(&[][..], Vec::as_slice)
}

/// A message with text and calls as two messages.
fn with_text_apart(mut calling: Message) -> Vec<Message> {
    let has_text = calling
        .content
        .as_str()
        .is_some_and(|text| !text.is_empty());
    if !has_text || calls_of(&calling).is_empty() {
        return vec![calling];
    }
    let text = std::mem::replace(&mut calling.content, Value::String(String::new()));
    let mut before = message("assistant", "");
    before.content = text;
    vec![before, calling]
}

/// Splits messages with several calls into messages of one call, each before its results.
fn one_call_each(messages: Vec<Message>) -> Vec<Message> {
    let mut split: Vec<Message> = Vec::with_capacity(messages.len());
    let mut messages = messages.into_iter().peekable();
    while let Some(mut calling) = messages.next() {
        let calls = calls_of(&calling).to_vec();
        if calls.len() < 2 {
            split.push(calling);
            continue;
        }
        let mut results: Vec<Message> = Vec::new();
        while let Some(result) = messages.next_if(|next| next.role == "tool") {
            results.push(result);
        }
        for call in calls {
            let id = call.get("id").cloned();
            calling.rest.insert("tool_calls".to_owned(), json!([call]));
            split.push(calling.clone());
            let is_of_call = |result: &mut Message| result.rest.get("tool_call_id") == id.as_ref();
            split.extend(results.extract_if(.., is_of_call));
            // The text of the message is rendered once, with the first call.
            calling = message("assistant", "");
        }
        split.append(&mut results);
    }
    split
}

/// Writes the arguments of each call as a text.
fn write_arguments(message: &mut Message) {
    let calls = message.rest.get_mut("tool_calls");
    for call in calls.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(arguments) = call.pointer_mut("/function/arguments")
            && !arguments.is_string()
        {
            *arguments = Value::String(generic_tools::json(arguments));
        }
    }
}

/// Characters of an id where a template demands a certain number.
const ID_CHARACTERS: usize = 9;
const TOOL_CALL_ID: &str = "tool_call_id";

/// Completes the ids of a conversation. Ids depend on nothing but the conversation so far: a longer prompt begins with the
/// same tokens.
#[derive(Debug, Default)]
struct CallIds {
    nine_characters: bool,
    /// New ids by the client's.
    renamed: HashMap<String, String>,
    used: HashSet<String>,
    /// The last number that became an id.
    numbered: usize,
    /// Calls of the last message with calls that have no result yet: name and id.
    open: Vec<(Value, String)>,
    /// Number of ids that were made for calls and results without one.
    made: usize,
}

impl CallIds {
    /// For one conversation. `nine_characters`: ids become nine letters and digits.
    pub(super) fn new(nine_characters: bool) -> Self {
        Self {
            nine_characters,
            ..Self::default()
        }
    }

    /// Gives each call and each result an id: a result has that of its call.
    pub(super) fn complete(mut self, messages: &mut [Message]) {
        for message in messages {
            if message.role == "tool" {
                self.complete_result(message);
            } else if let Some(Value::Array(calls)) = message.rest.get_mut("tool_calls") {
                self.open.clear();
                calls.iter_mut().for_each(|call| self.complete_call(call));
            }
        }
    }

    fn complete_call(&mut self, call: &mut Value) {
        let id = match text_of(call.get("id")) {
            Some(id) => self.renamed(&id),
            None => self.new_id(),
        };
        self.open
            .push((call["function"]["name"].clone(), id.clone()));
        if let Value::Object(call) = call {
            call.insert("id".to_owned(), Value::String(id));
        }
    }

    fn complete_result(&mut self, result: &mut Message) {
        let id = match text_of(result.rest.get(TOOL_CALL_ID)) {
            Some(id) => self.renamed(&id),
            None => {
                let named = |name: &Value| self.open.iter().position(|(open, _)| open == name);
                let at = result.rest.get("name").and_then(named).unwrap_or(0);
                match self.open.get(at) {
                    Some((_, id)) => id.clone(),
                    None => self.new_id(),
                }
            }
        };
        if let Some(at) = self.open.iter().position(|(_, open)| *open == id) {
            self.open.remove(at);
        }
        let id = Value::String(id);
        result.rest.insert(TOOL_CALL_ID.to_owned(), id);
    }

    fn new_id(&mut self) -> String {
        self.made += 1;
        self.renamed(&format!("call_{}", self.made))
    }

    /// The id of a call and its result in place of the client's.
    fn renamed(&mut self, id: &str) -> String {
        if !self.nine_characters {
            return id.to_owned();
        }
        if let Some(known) = self.renamed.get(id) {
            return known.clone();
        }
        let is_plain = id.len() == ID_CHARACTERS && id.bytes().all(|b| b.is_ascii_alphanumeric());
        let mut new = if is_plain {
            id.to_owned()
        } else {
            self.next_number()
        };
        // No number comes twice, so all ids together are tried at most twice as often as there are ids.
        while !self.used.insert(new.clone()) {
            new = self.next_number();
        }
        self.renamed.insert(id.to_owned(), new.clone());
        new
    }

    fn next_number(&mut self) -> String {
        self.numbered += 1;
        numbered_id(self.numbered)
    }
}

/// An id of nine letters and digits.
fn numbered_id(number: usize) -> String {
    match number {
        ..=99_999 => format!("call{number:05}"),
        _ => format!("{number:09}"),
    }
}

fn text_of(value: Option<&Value>) -> Option<String> {
    let text = value
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty());
    text.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Ids of calls and results, in order.
    fn ids(nine: bool, messages: Value) -> Vec<String> {
        let mut messages: Vec<Message> = serde_json::from_value(messages).expect("messages");
        CallIds::new(nine).complete(&mut messages);
        let of = |message: &Message| match message.rest.get("tool_calls") {
            Some(calls) => calls.as_array().expect("calls").clone(),
            None => vec![json!({"id": message.rest[TOOL_CALL_ID]})],
        };
        let ids = messages.iter().flat_map(of);
        ids.map(|call| call["id"].as_str().expect("an id").to_owned())
            .collect()
    }

    fn calls(ids: &[Option<&str>]) -> Value {
        let call = |id: &Option<&str>| match id {
            Some(id) => json!({"id": id, "function": {"name": id}}),
            None => json!({"function": {"name": "f"}}),
        };
        json!({"role": "assistant", "tool_calls": ids.iter().map(call).collect::<Vec<_>>()})
    }

    #[test]
    fn results_have_the_ids_of_their_calls() {
        let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": ""});
        let long = ids(
            true,
            json!([
                calls(&[Some("call_a"), Some("call_b")]),
                result("call_b"),
                result("call_a")
            ]),
        );
        assert_eq!((&long[0], &long[1]), (&long[3], &long[2]));
        assert_ne!(long[0], long[1]);
        let is_plain = |id: &String| id.len() == 9 && id.chars().all(char::is_alphanumeric);
        assert!(long.iter().all(is_plain), "{long:?}");
        let same = ids(
            true,
            json!([calls(&[Some("abcdefgh1")]), result("abcdefgh1")]),
        );
        assert_eq!(same, ["abcdefgh1", "abcdefgh1"]);
        let same = ids(false, json!([calls(&[Some("call_a")]), result("call_a")]));
        assert_eq!(same, ["call_a", "call_a"]);
    }

    #[test]
    fn ids_are_numbered_in_the_order_of_the_calls() {
        let taken = [
            "call00002",
            "x",
            "call00002",
            "y",
            "call00001",
            "abcdefgh1",
            "z",
        ];
        let made = ids(true, json!([calls(&taken.map(Some))]));
        let want = [
            "call00002",
            "call00001",
            "call00002",
            "call00003",
            "call00004",
            "abcdefgh1",
            "call00005",
        ];
        assert_eq!(made, want);
        assert_eq!(numbered_id(99_999), "call99999");
        assert_eq!(numbered_id(100_000), "000100000");
    }

    /// The client's ids are the numbers that would come next.
    #[test]
    fn ids_stay_different_where_the_client_took_the_numbers() {
        const COUNT: usize = 50_000;
        let plain = (1..=COUNT).map(|number| Some(numbered_id(number)));
        let long = (1..=COUNT).map(|number| Some(format!("call_{number}")));
        let texts: Vec<Option<String>> = plain.chain(long).collect();
        let texts: Vec<Option<&str>> = texts.iter().map(Option::as_deref).collect();
        let made = ids(true, json!([calls(&texts)]));
        assert!(made.iter().all(|id| id.len() == ID_CHARACTERS));
        let different: HashSet<&String> = made.iter().collect();
        assert_eq!(different.len(), 2 * COUNT);
    }

    #[test]
    fn missing_ids_pair_by_name_then_by_order() {
        let two = json!({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}, {"function": {"name": "g"}}]});
        let of_g = json!({"role": "tool", "name": "g", "content": ""});
        let of_any = json!({"role": "tool", "content": ""});
        let made = ids(false, json!([two, of_g, of_any, calls(&[None]), of_any]));
        assert_eq!(
            made,
            ["call_1", "call_2", "call_2", "call_1", "call_3", "call_3"]
        );
        assert_eq!(ids(false, json!([of_any])), ["call_1"]);
    }
}
