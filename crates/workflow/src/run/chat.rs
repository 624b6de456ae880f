//! Conversations to text.

use super::{Run, Trouble};
use crate::account::Charged;
use crate::document::{Fault, Faults};
use crate::model::Model;
use crate::program::{Instr, Op, Program};
use crate::value::{Value, json_bytes};
use generate::prompt::{PromptEncoder, TemplateArguments};
use serde_json::{Map, Value as Json};
use text::{Message, TemplateError};

/// Options of rendering a conversation.
struct Rendering<'a> {
    model: &'a Model,
    kwargs: &'a Map<String, Json>,
    now_unix_s: i64,
    /// Bytes that a text may have within the bound.
    bytes_max: usize,
}

impl Run {
    /// The result of `format_chat`. In the mode `delta` this is the part that the session has not seen: the end of the
    /// answer's turn, and the turns after it.
    pub(super) fn format_chat(&mut self, op: &Op) -> Result<String, Trouble> {
        let Op::FormatChat {
            model,
            input,
            opens_answer,
            system,
            delta,
            kwargs,
            ..
        } = op
        else {
            return Ok(String::new());
        };
        let opens = self.flag(opens_answer)?;
        let system = system.as_ref().map(|text| self.text(text)).transpose()?;
        let session = &self.state.sessions[*model];
        let rendering = Rendering {
            model: &self.models[*model],
            kwargs,
            now_unix_s: self.plan.now_unix_s,
            bytes_max: self.account.most(),
        };
        let said = session.said.clone().filter(|_| *delta);
        let answer = rendering
            .model
            .text(session.answer(), false, self.account.most());
        let answer = answer.ok_or_else(|| self.too_long())?;
        let messages = match (self.value(*input)?, &said) {
            (Value::Text(text), Some(said)) => {
                let turns = [
                    text_message("assistant", &answer),
                    text_message("user", text),
                ];
                said.iter().cloned().chain(turns).collect()
            }
            (Value::Text(text), None) => {
                with_system(system.as_deref(), vec![text_message("user", text)])
            }
            (Value::Array(items), _) => {
                let messages = parse_messages(&self.program.variables[*input].name, items);
                let messages = messages.map_err(|fault| Trouble::program(fault.to_string()))?;
                with_system(system.as_deref(), messages)
            }
            _ => return Err(Trouble::program("there is no conversation")),
        };
        let text = rendering.render(&messages, opens)?;
        let text = match &said {
            None => text,
            Some(said) => rendering.unseen_text(&text, &messages, said, &answer)?,
        };
        let bytes = messages.iter().map(message_bytes).sum();
        let said = Charged::new(messages, bytes, &self.account)?;
        self.state.sessions[*model].said = Some(said);
        Ok(text)
    }
}

impl Rendering<'_> {
    fn render(&self, messages: &[Message], opens: bool) -> Result<String, Trouble> {
        let encoder = PromptEncoder::new(&self.model.handle, self.now_unix_s);
        let typed = encoder.escape_messages(messages.iter().cloned());
        let typed = encoder
            .fit_messages(typed, &[], false)
            .map_err(|error| Trouble::program(error.message))?;
        let arguments = TemplateArguments {
            tools: &[],
            add_generation_prompt: opens,
            kwargs: self.kwargs,
        };
        let rendered = encoder.render_text(&typed, arguments, self.bytes_max);
        rendered.map_err(|why| match why {
            TemplateError::TooLong(most) => Trouble::program(format!(
                "gives a text of more than {most} bytes (value_bytes_max)"
            )),
            TemplateError::Refused(why)
            | TemplateError::Broken(why)
            | TemplateError::NoThread(why) => Trouble::program(why),
        })
    }

    /// The part of `whole` after the answer that ends the session's transcript.
    fn unseen_text(
        &self,
        whole: &str,
        messages: &[Message],
        said: &[Message],
        answer: &str,
    ) -> Result<String, Trouble> {
        let refuse = |what: &str| {
            let what = format!("{what}; `mode` `full` and prefill's mode `full` begin anew");
            Trouble::program(what)
        };
        if !messages.starts_with(said) || messages.len() <= said.len() {
            return Err(refuse("the conversation does not go on from what was said"));
        }
        let through = self.render(&messages[..=said.len()], false)?;
        let rest = whole
            .strip_prefix(through.as_str())
            .ok_or_else(|| refuse("the template renders earlier turns differently later"))?;
        let marked = self.model.handle.tokenizer.escape_control_text(answer);
        let lost = || refuse("the answer does not stand in its turn as the model gave it");
        let closing = match marked.trim() {
            // An empty answer cannot be searched for: the turn continues where the prompt opened the turn.
            "" => through.strip_prefix(self.render(said, true)?.as_str()),
            answer => through.rsplit_once(answer).map(|(_, closing)| closing),
        };
        let closing = closing.ok_or_else(lost)?;
        Ok(format!("{closing}{rest}"))
    }
}

fn with_system(system: Option<&str>, messages: Vec<Message>) -> Vec<Message> {
    let system = system.map(|text| text_message("system", text));
    system.into_iter().chain(messages).collect()
}

/// Checks the inputs that are conversations, before a run begins.
///
/// # Errors
/// A message that cannot be read.
pub(super) fn expect_conversations(program: &Program, inputs: &[Value]) -> Result<(), Faults> {
    for step in &program.code {
        if let Instr::Op(Op::FormatChat { input, .. }) = &step.instr
            && let Some(Value::Array(items)) = inputs.get(*input)
        {
            let name = &program.variables[*input].name;
            parse_messages(name, items).map_err(|fault| Faults(vec![fault]))?;
        }
    }
    Ok(())
}

/// The messages of the list with this name.
fn parse_messages(name: &str, items: &[Json]) -> Result<Vec<Message>, Fault> {
    let items = items.iter().enumerate();
    let messages = items.map(|(i, item)| parse_message(&format!("{name}[{i}]"), item));
    messages.collect()
}

/// A message of text. A chat template would leave an image out, or write the tokens that stand for its rows without any rows.
fn parse_message(path: &str, item: &Json) -> Result<Message, Fault> {
    expect_no_media(path, item)?;
    let message = serde_json::from_value(item.clone());
    let mut message: Message = message.map_err(|why| Fault {
        path: path.to_owned(),
        what: format!("a message is {{role, content}}: {why}"),
    })?;
    match &message.content {
        Json::Null | Json::String(_) => {}
        Json::Array(parts) => {
            let parts = parts.iter().enumerate();
            let texts = parts.map(|(i, part)| part_text(&format!("{path}.content[{i}]"), part));
            let texts: Vec<&str> = texts.collect::<Result<_, _>>()?;
            message.content = texts.join("\n").into();
        }
        _ => {
            return Err(Fault {
                path: format!("{path}.content"),
                what: "must be a text, or a list of parts that are texts".to_owned(),
            });
        }
    }
    Ok(message)
}

/// The text of a part of a message.
fn part_text<'j>(path: &str, part: &'j Json) -> Result<&'j str, Fault> {
    let text = match part["type"].as_str() {
        Some("text" | "input_text" | "output_text") => &part["text"],
        Some(_) => &Json::Null,
        None => part,
    };
    let text = text.as_str().ok_or_else(|| Fault {
        path: path.to_owned(),
        what: format!("must be a part of type text: {TEXT_ONLY}"),
    })?;
    expect_no_media(path, part)?;
    Ok(text)
}

/// Reason of errors about what is no text.
const TEXT_ONLY: &str = "images, files and sound are not read in workflows";

/// Words with which names of members with images, files and sound begin: `images`, `input_audio`, `experimental_attachments`.
const MEDIA: [&str; 5] = ["image", "audio", "video", "file", "attachment"];

/// Checks that a message or a part has no member with an image, a file or sound.
fn expect_no_media(path: &str, object: &Json) -> Result<(), Fault> {
    let is_media = |word: &str| MEDIA.iter().any(|media| word.starts_with(media));
    let is_empty = |value: &Json| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    let members = object.as_object().into_iter().flatten();
    for (name, _) in members.filter(|(_, value)| !is_empty(value)) {
        if name.split('_').any(is_media) {
            return Err(Fault {
                path: format!("{path}.{name}"),
                what: TEXT_ONLY.to_owned(),
            });
        }
    }
    Ok(())
}

/// Estimated bytes of a message in memory.
fn message_bytes(message: &Message) -> usize {
    let rest = message.rest.values().map(json_bytes).sum::<usize>();
    size_of::<Message>() + message.role.len() + json_bytes(&message.content) + rest
}

fn text_message(role: &str, text: &str) -> Message {
    Message {
        role: role.to_owned(),
        content: text.into(),
        rest: Map::new(),
    }
}
