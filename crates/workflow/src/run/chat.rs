//! Conversations to text.

use super::{Run, Trouble};
use crate::account::Charged;
use crate::model::Model;
use crate::program::Op;
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
            (Value::Array(items), _) => with_system(system.as_deref(), parse_messages(items)?),
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

fn parse_messages(items: &[Json]) -> Result<Vec<Message>, Trouble> {
    let read = items
        .iter()
        .map(|item| serde_json::from_value(item.clone()));
    read.collect::<Result<Vec<Message>, _>>()
        .map_err(|why| Trouble::program(format!("a message is {{role, content}}: {why}")))
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
