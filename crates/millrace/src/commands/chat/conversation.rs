//! The messages of a conversation, with tool calls whose results the user types, and its commands: lines that begin
//! with a slash.

use generate::images::ImagePart;
use generate::output::collected::{CollectedAnswer, CollectedCall};
use generate::request::GenerationParams;
use serde_json::{Map, Value, json};
use std::fmt::Display;
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;
use text::Message;

/// A conversation. Complete turns end with an answer; after them stands the input for the next answer.
pub(super) struct Conversation {
    system: Option<String>,
    messages: Vec<Message>,
    /// Messages of complete turns.
    complete: usize,
    /// Tool calls of the last answer: the next inputs are their results, in order.
    calls: Vec<CollectedCall>,
    /// Images of all messages, and those for the next one.
    images: Vec<ImagePart>,
    /// Images of messages, and of complete turns.
    shown: usize,
    complete_images: usize,
}

impl Conversation {
    pub(super) fn new(system: Option<String>) -> Self {
        Self {
            system,
            messages: Vec::new(),
            complete: 0,
            calls: Vec::new(),
            images: Vec::new(),
            shown: 0,
            complete_images: 0,
        }
    }

    /// Adds an image to the next message.
    pub(super) fn add_image(&mut self, image: ImagePart) {
        self.images.push(image);
    }

    /// Images of all messages.
    pub(super) fn images(&self) -> &[ImagePart] {
        &self.images[..self.shown]
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
            None => {
                let new = self.shown..self.images.len();
                self.shown = new.end;
                user_message(text, new)
            }
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
        self.complete_images = self.shown;
    }

    /// Removes the input after the last complete turn, with its images.
    pub(super) fn remove_input(&mut self) {
        self.messages.truncate(self.complete);
        self.images.truncate(self.complete_images);
        self.shown = self.complete_images;
    }

    /// The first tool call without a result.
    fn next_call(&self) -> Option<&CollectedCall> {
        self.calls.get(self.messages.len() - self.complete)
    }
}

/// A message of the user: images with these numbers, then a text.
pub(crate) fn user_message(text: &str, images: Range<usize>) -> Message {
    let message = text_message("user", text);
    if images.is_empty() {
        return message;
    }
    let parts = images.map(text::image_part).chain([text::text_part(text)]);
    Message {
        content: parts.collect(),
        ..message
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

/// The answer to `/help`.
pub(super) const HELP: &str = "\
/help               show these lines
/clear              start a new conversation
/system [TEXT]      show or replace the system prompt
/set [NAME VALUE]   show or change temperature, top-k, top-p, min-p, seed, max-tokens, think;
                    the value `default` unsets seed, max-tokens and think
/image PATH         add an image to the next message
/bye                leave, as Ctrl-D does
Ctrl-C              stop the answer
A line that ends with a backslash continues on the next line; so does text between lines with \"\"\".
After a tool call the next line is the result of the tool.";

/// The value that unsets an option.
const UNSET: &str = "default";

/// A command.
#[derive(Debug, PartialEq)]
pub(super) enum ChatCommand {
    Help,
    Leave,
    Clear,
    ShowSystem,
    System(String),
    ShowSettings,
    Image(PathBuf),
    Set { name: String, value: String },
}

impl ChatCommand {
    /// The command of an input; `None` for a message: an input without a slash, or with more than a word after the
    /// slash, such as a path.
    pub(super) fn parse(input: &str) -> Option<Result<Self, String>> {
        let rest = input.trim().strip_prefix('/')?;
        let (word, argument) = match rest.split_once(char::is_whitespace) {
            Some((word, argument)) => (word, argument.trim()),
            None => (rest, ""),
        };
        let is_word = |byte: u8| byte.is_ascii_alphabetic() || byte == b'?';
        if word.is_empty() || !word.bytes().all(is_word) {
            return None;
        }
        let command = match (word, argument) {
            ("help" | "?", _) => Self::Help,
            ("bye" | "exit" | "quit", _) => Self::Leave,
            ("clear", _) => Self::Clear,
            ("system", "") => Self::ShowSystem,
            ("system", text) => Self::System(text.to_owned()),
            ("image", "") => return Some(Err("/image: needs the path of a file".to_owned())),
            ("image", path) => Self::Image(without_quotes(path).into()),
            ("set", "") => Self::ShowSettings,
            ("set", setting) => match setting.split_once(char::is_whitespace) {
                Some((name, value)) => Self::Set {
                    name: name.to_owned(),
                    value: value.trim().to_owned(),
                },
                None => return Some(Err(format!("/set {setting}: needs a value"))),
            },
            _ => return Some(Err(format!("/{word}: no such command; /help lists them"))),
        };
        Some(Ok(command))
    }
}

/// A path as a terminal writes it that a file was dropped on: in quotes where it has spaces.
fn without_quotes(path: &str) -> &str {
    let inner = |quote: char| path.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(path)
}

/// The options that `/set` changes, a line each.
pub(super) fn setting_lines(params: &GenerationParams, thinks: Option<bool>) -> Vec<String> {
    let shown = |value: Option<String>| value.unwrap_or_else(|| UNSET.to_owned());
    let sampling = &params.sampling;
    vec![
        format!("temperature {}", sampling.temperature),
        format!("top-k {}", sampling.top_k),
        format!("top-p {}", sampling.top_p),
        format!("min-p {}", sampling.min_p),
        format!("seed {}", shown(params.seed.map(|seed| seed.to_string()))),
        format!(
            "max-tokens {}",
            shown(params.max_tokens.map(|max| max.to_string()))
        ),
        format!("think {}", shown(thinks.map(|thinks| thinks.to_string()))),
    ]
}

/// Changes an option of the next answers.
///
/// # Errors
/// There is no such option, or the value is out of bounds; nothing is changed.
pub(super) fn set(
    params: &mut GenerationParams,
    thinks: &mut Option<bool>,
    name: &str,
    value: &str,
) -> Result<(), String> {
    let sampling = &mut params.sampling;
    let named = |why: String| format!("/set {name} {value}: {why}");
    match name {
        "temperature" => sampling.temperature = parse_number(value, 0.0, 100.0).map_err(named)?,
        "top-p" => sampling.top_p = parse_number(value, 0.0, 1.0).map_err(named)?,
        "min-p" => sampling.min_p = parse_number(value, 0.0, 1.0).map_err(named)?,
        "top-k" => sampling.top_k = parse_value(value, "an integer from 0 on").map_err(named)?,
        "seed" => params.seed = parse_optional(value, "an integer from 0 on").map_err(named)?,
        "max-tokens" => {
            let max: Option<std::num::NonZeroUsize> =
                parse_optional(value, "an integer from 1 on").map_err(named)?;
            params.max_tokens = max.map(std::num::NonZeroUsize::get);
        }
        "think" => *thinks = parse_optional(value, "true or false").map_err(named)?,
        _ => {
            return Err(format!(
                "/set {name}: no such option; /set shows the options"
            ));
        }
    }
    Ok(())
}

fn parse_number(value: &str, min: f32, max: f32) -> Result<f32, String> {
    let number = value.parse().ok();
    let number = number.filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| format!("must be a number from {min} to {max}"))
}

fn parse_value<T: FromStr>(value: &str, bound: impl Display) -> Result<T, String> {
    value.parse().map_err(|_| format!("must be {bound}"))
}

fn parse_optional<T: FromStr>(value: &str, bound: &str) -> Result<Option<T>, String> {
    match value {
        UNSET => Ok(None),
        value => parse_value(value, format!("{bound}, or {UNSET}")).map(Some),
    }
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
    fn images_belong_to_the_next_message_and_go_with_it() {
        let image = |path: &str| ImagePart {
            bytes: Vec::new().into(),
            detail: media::Detail::Auto,
            path: path.to_owned(),
            url: None,
        };
        let mut chat = Conversation::new(None);
        chat.add_image(image("a"));
        assert!(chat.images().is_empty(), "there is no message yet");
        chat.add_input("What is it?");
        assert_eq!(chat.messages()[0].content[0], text::image_part(0));
        chat.add_answer(&answer(vec![AnswerPart::Text("A cat.".to_owned())]));
        chat.add_image(image("b"));
        chat.add_input("And this?");
        assert_eq!(chat.messages()[2].content[0], text::image_part(1));
        assert_eq!(chat.images().len(), 2);
        chat.remove_input();
        assert_eq!(chat.images().len(), 1, "after a failed answer");
        chat.add_input("Sure?");
        assert_eq!(chat.messages()[2].content, "Sure?");
        chat.clear();
        assert!(chat.images().is_empty());
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

    #[test]
    fn only_words_after_a_slash_are_commands() {
        let command = |input: &str| ChatCommand::parse(input).and_then(Result::ok);
        let rows = [
            (" /help ", Some(ChatCommand::Help)),
            ("/?", Some(ChatCommand::Help)),
            ("/bye", Some(ChatCommand::Leave)),
            ("/clear", Some(ChatCommand::Clear)),
            ("/image a b.png", Some(ChatCommand::Image("a b.png".into()))),
            (
                r#"/image "a b.png""#,
                Some(ChatCommand::Image("a b.png".into())),
            ),
            ("/image 'a.png'", Some(ChatCommand::Image("a.png".into()))),
            ("/system", Some(ChatCommand::ShowSystem)),
            (
                "/system Be  brief.",
                Some(ChatCommand::System("Be  brief.".to_owned())),
            ),
            (
                "/set top-k 4",
                Some(ChatCommand::Set {
                    name: "top-k".to_owned(),
                    value: "4".to_owned(),
                }),
            ),
            ("Hello", None),
            ("/etc/passwd is a file", None),
            ("/ is the root", None),
        ];
        for (input, want) in rows {
            assert_eq!(command(input), want, "{input}");
        }
        for wrong in ["/dance", "/set top-k", "/image"] {
            let parsed = ChatCommand::parse(wrong);
            assert!(matches!(parsed, Some(Err(_))), "{wrong}: {parsed:?}");
        }
    }

    #[test]
    fn settings_are_changed_within_their_bounds() {
        let (mut params, mut thinks) = (GenerationParams::default(), None);
        let mut change = |name, value| set(&mut params, &mut thinks, name, value);
        for (name, value) in [
            ("temperature", "0.5"),
            ("top-k", "40"),
            ("top-p", "0.9"),
            ("min-p", "0.25"),
            ("seed", "7"),
            ("max-tokens", "12"),
            ("think", "true"),
        ] {
            assert_eq!(change(name, value), Ok(()), "{name}");
        }
        for (name, value) in [
            ("temperature", "-1"),
            ("temperature", "NaN"),
            ("top-p", "2"),
            ("top-k", "-1"),
            ("seed", "x"),
            ("max-tokens", "0"),
            ("think", "1"),
            ("color", "red"),
        ] {
            let why = change(name, value).expect_err(name);
            assert!(why.starts_with(&format!("/set {name}")), "{why}");
        }
        assert_eq!(change("seed", "default"), Ok(()));
        assert_eq!(
            setting_lines(&params, thinks),
            [
                "temperature 0.5",
                "top-k 40",
                "top-p 0.9",
                "min-p 0.25",
                "seed default",
                "max-tokens 12",
                "think true"
            ]
        );
    }
}
