//! The messages of a conversation, with tool calls whose results the user types.

use generate::output::collected::{CollectedAnswer, CollectedCall};
use serde_json::{Map, Value, json};
use text::Message;

/// A conversation. Complete turns end with an answer; after them stands the input for the next answer.
pub(super) struct Conversation {
    system: Option<String>,
    messages: Vec<Message>,
    /// Messages of complete turns.
    complete: usize,
    /// Tool calls of the last answer: the next inputs are their results, in order.
    calls: Vec<CollectedCall>,
}

impl Conversation {
    pub(super) fn new(system: Option<String>) -> Self {
        Self {
            system,
            messages: Vec::new(),
            complete: 0,
            calls: Vec::new(),
        }
    }

    /// The system prompt.
    pub(super) fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// Replaces the system prompt; the conversation goes on.
    pub(super) fn set_system(&mut self, text: String) {
        self.system = Some(text);
    }

    /// Removes all messages but the system prompt.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.system.take());
    }

    /// All messages, with the system prompt.
    pub(super) fn messages(&self) -> Vec<Message> {
        let system = self.system.as_deref();
        let system = system.map(|text| text_message("system", text));
        system.into_iter().chain(self.messages.clone()).collect()
    }

    /// The prompt of the next input line.
    pub(super) fn input_prompt(&self) -> String {
        match self.next_call() {
            Some(call) => format!("result of {}> ", call.name),
            None => "> ".to_owned(),
        }
    }

    /// Adds the user's message, or the result of a tool call. Returns whether the model is to answer: after the result
    /// of the last call.
    pub(super) fn add_input(&mut self, text: &str) -> bool {
        let message = match self.next_call() {
            None => text_message("user", text),
            Some(call) => Message {
                rest: Map::from_iter([
                    ("name".to_owned(), Value::from(call.name.as_str())),
                    ("tool_call_id".to_owned(), Value::from(call.id.as_str())),
                ]),
                ..text_message("tool", text)
            },
        };
        self.messages.push(message);
        self.next_call().is_none()
    }

    /// Adds the answer, which completes the turn.
    pub(super) fn add_answer(&mut self, answer: &CollectedAnswer) {
        let mut message = text_message("assistant", &answer.text());
        let reasoning = answer.reasoning();
        if !reasoning.is_empty() {
            let reasoning = Value::from(reasoning.into_owned());
            message
                .rest
                .insert("reasoning_content".to_owned(), reasoning);
        }
        self.calls = answer.calls().cloned().collect();
        if !self.calls.is_empty() {
            let calls = self.calls.iter().map(call_json);
            message
                .rest
                .insert("tool_calls".to_owned(), calls.collect());
        }
        self.messages.push(message);
        self.complete = self.messages.len();
    }

    /// Removes the input after the last complete turn.
    pub(super) fn remove_input(&mut self) {
        self.messages.truncate(self.complete);
    }

    /// The first tool call without a result.
    fn next_call(&self) -> Option<&CollectedCall> {
        self.calls.get(self.messages.len() - self.complete)
    }
}

/// A message of plain text.
pub(crate) fn text_message(role: &str, text: &str) -> Message {
    Message {
        role: role.to_owned(),
        content: text.into(),
        rest: Map::new(),
    }
}

/// A tool call in the form of chat templates: with the arguments as a JSON value.
fn call_json(call: &CollectedCall) -> Value {
    let arguments: Value = serde_json::from_str(&call.arguments)
        .unwrap_or_else(|_| Value::from(call.arguments.as_str()));
    json!({
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use generate::output::collected::AnswerPart;

    fn answer(parts: Vec<AnswerPart>) -> CollectedAnswer {
        CollectedAnswer {
            parts,
            ..CollectedAnswer::default()
        }
    }

    fn call(name: &str) -> AnswerPart {
        AnswerPart::Call(CollectedCall {
            id: format!("call_{name}"),
            name: name.to_owned(),
            arguments: r#"{"x": 1}"#.to_owned(),
        })
    }

    fn roles(conversation: &Conversation) -> Vec<String> {
        let messages = conversation.messages().into_iter();
        messages.map(|message| message.role).collect()
    }

    #[test]
    fn inputs_after_tool_calls_are_their_results() {
        let mut chat = Conversation::new(Some("Be brief.".to_owned()));
        assert!(chat.add_input("What is the weather?"));
        chat.add_answer(&answer(vec![call("f"), call("g")]));
        assert_eq!(chat.input_prompt(), "result of f> ");
        assert!(!chat.add_input("sunny"));
        assert_eq!(chat.input_prompt(), "result of g> ");
        assert!(chat.add_input("17"));
        assert_eq!(
            roles(&chat),
            ["system", "user", "assistant", "tool", "tool"]
        );
        let messages = chat.messages();
        assert_eq!(
            messages[2].rest["tool_calls"][0]["function"]["arguments"]["x"],
            1
        );
        assert_eq!(messages[4].rest["tool_call_id"], "call_g");
        chat.remove_input();
        assert_eq!(
            chat.input_prompt(),
            "result of f> ",
            "after a failed answer"
        );
        assert!(!chat.add_input("rainy") && chat.add_input("9"));
        chat.add_answer(&answer(vec![AnswerPart::Text("Rain.".to_owned())]));
        assert_eq!(chat.input_prompt(), "> ");
        chat.clear();
        assert_eq!(roles(&chat), ["system"]);
    }

    #[test]
    fn reasoning_of_an_answer_is_kept_apart() {
        let mut chat = Conversation::new(None);
        chat.add_input("2 + 3?");
        let parts = vec![
            AnswerPart::Reasoning("2 + 3".to_owned()),
            AnswerPart::Text("5".to_owned()),
        ];
        chat.add_answer(&answer(parts));
        let messages = chat.messages();
        assert_eq!(messages[1].content, "5");
        assert_eq!(messages[1].rest["reasoning_content"], "2 + 3");
    }
}
