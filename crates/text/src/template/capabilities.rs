//! Template capabilities, and conversations in the form that a template renders: detected by rendering tiny
//! conversations when the model is loaded.

use super::call_support::CallSupport;
use super::chat_template::{ChatTemplate, RenderInput};
use super::generic_tools::GenericTools;
use super::message::{Message, normalize_calls};
use super::turn_support::TurnSupport;
use crate::{AnswerFormat, ReasoningFamily, Tokenizer, ToolFamily};
use serde_json::{Map, Value, json};

/// How a model receives tool definitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolSupport {
    /// The template renders `tools`.
    #[default]
    Template,
    /// The template renders the field `tools` of the system message (Phi-4 mini).
    SystemMessage,
    /// The template ignores tools: the definitions are inserted into the conversation's text.
    Generic(GenericPlace),
    /// The model does not support tools.
    None,
}

/// Where the text about tools is inserted for a template that ignores tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenericPlace {
    /// In a system message.
    System,
    /// In the first user message: the template ignores system messages.
    User,
}

/// Features of a model that depend on the chat template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// How the model receives tool definitions.
    pub tools: ToolSupport,
    /// Whether reasoning can be switched on: the model delimits reasoning, or the template has a switch.
    pub thinking: bool,
}

/// The template handles all features.
impl Default for Capabilities {
    fn default() -> Self {
        Self {
            tools: ToolSupport::Template,
            thinking: true,
        }
    }
}

impl Capabilities {
    /// Of a model that generates no text.
    pub const NONE: Self = Self {
        tools: ToolSupport::None,
        thinking: false,
    };
}

impl ToolSupport {
    /// Short name for logs and model descriptions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Template | Self::SystemMessage => "template",
            Self::Generic(_) => "generic",
            Self::None => "none",
        }
    }
}

impl ChatTemplate {
    /// Capabilities of the template. `answers`: format of the model's answers; where calls are not parsed,
    /// only the template can pass tools.
    pub fn capabilities(&self, answers: AnswerFormat) -> Capabilities {
        // Called when a model is loaded: no request has to wait for this.
        self.conversation_support();
        let tools = if self.shows(&tools_in_system_message(Map::new()), &probe_tools()) {
            ToolSupport::Template
        } else if self.shows(&tools_in_system_message(probe_field()), &[]) {
            ToolSupport::SystemMessage
        } else {
            // Harmony templates declare tools in channels of their own.
            match answers.tools {
                ToolFamily::None | ToolFamily::Harmony => ToolSupport::None,
                _ if self.shows(&[message_with("system", PROBE, Map::new()), user()], &[]) => {
                    ToolSupport::Generic(GenericPlace::System)
                }
                _ => ToolSupport::Generic(GenericPlace::User),
            }
        };
        let marks =
            answers.reasoning != ReasoningFamily::None || answers.tools == ToolFamily::Harmony;
        Capabilities {
            tools,
            thinking: marks || self.switches_thinking(),
        }
    }

    /// Whether the probe occurs in the rendered conversation, or in the rendered last message alone.
    fn shows(&self, messages: &[Message], tools: &[Value]) -> bool {
        let last = messages.len() - 1;
        [messages, &messages[last..]].into_iter().any(|messages| {
            let rendered = self.probed(messages, tools, None);
            rendered.is_some_and(|text| text.contains(PROBE))
        })
    }

    /// Whether one of the usual reasoning switches changes the prompt.
    fn switches_thinking(&self) -> bool {
        let prompt = |thinks: bool| {
            let switches = json!({"enable_thinking": thinks, "thinking": thinks});
            let switches = switches.as_object().cloned();
            self.probed(&[user()], &[], switches.as_ref())
        };
        prompt(true) != prompt(false)
    }

    /// The rendered probe; `None` if the template fails.
    fn probed(
        &self,
        messages: &[Message],
        tools: &[Value],
        kwargs: Option<&Map<String, Value>>,
    ) -> Option<String> {
        let input = RenderInput {
            messages,
            tools,
            add_generation_prompt: true,
            kwargs,
            ..RenderInput::default()
        };
        self.render(&input).ok()
    }
}

fn message_with(role: &str, content: &str, rest: Map<String, Value>) -> Message {
    Message {
        role: role.to_owned(),
        content: content.into(),
        rest,
    }
}

fn user() -> Message {
    message_with("user", "hi", Map::new())
}

fn tools_in_system_message(rest: Map<String, Value>) -> [Message; 2] {
    [message_with("system", "be brief", rest), user()]
}

fn probe_field() -> Map<String, Value> {
    let tools = Value::Array(probe_tools().to_vec()).to_string();
    Map::from_iter([("tools".to_owned(), Value::String(tools))])
}

/// A text that occurs in no template.
pub(super) const PROBE: &str = "probe_7f3a";
// Further texts that occur in no template. None is a part of another.
pub(super) const FIRST: &str = "probe_1c9e";
pub(super) const SECOND: &str = "probe_2d8f";
pub(super) const THIRD: &str = "probe_3e7a";
pub(super) const FOURTH: &str = "probe_4f6b";

/// An id of a call that every template takes.
pub(super) const PROBE_ID: &str = "probe0001";

/// A message without further fields.
pub(super) fn message(role: &str, content: &str) -> Message {
    Message {
        role: role.to_owned(),
        content: content.into(),
        rest: Map::new(),
    }
}

/// The definition of one tool.
pub(super) fn probe_tools() -> [Value; 1] {
    let parameters = json!({
        "type": "object",
        "properties": {"city": {"type": "string", "description": "where"}},
        "required": ["city"],
    });
    let function = json!({"name": PROBE, "description": "what it does", "parameters": parameters});
    [json!({"type": "function", "function": function})]
}

/// A tool call with this argument, and its result.
pub(super) fn probe_call(argument: &str, result: &str) -> Vec<Message> {
    let function = json!({"name": PROBE, "arguments": {"city": argument}});
    let call = json!({"type": "function", "id": PROBE_ID, "function": function});
    let mut calling = message("assistant", "");
    calling.rest.insert("tool_calls".to_owned(), json!([call]));
    let mut answer = message("tool", result);
    answer
        .rest
        .insert("tool_call_id".to_owned(), json!(PROBE_ID));
    answer.rest.insert("name".to_owned(), json!(PROBE));
    vec![calling, answer]
}

impl ChatTemplate {
    /// The rendered probe with the beginning of an answer; `None` if the template fails.
    pub(super) fn rendered_probe(&self, messages: &[Message], tools: &[Value]) -> Option<String> {
        let input = RenderInput {
            messages,
            tools,
            add_generation_prompt: true,
            ..RenderInput::default()
        };
        self.render(&input).ok()
    }

    /// Whether the template renders the turns, given as roles and texts, with each text.
    pub(super) fn shows_turns(&self, turns: &[(&str, &str)]) -> bool {
        let messages: Vec<Message> = turns
            .iter()
            .map(|(role, text)| message(role, text))
            .collect();
        let rendered = self.rendered_probe(&messages, &[]);
        rendered.is_some_and(|shown| turns.iter().all(|(_, text)| shown.contains(text)))
    }
}

/// What a template can do with a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConversationSupport {
    turns: TurnSupport,
    /// `None`: the template does not render tool calls.
    calls: Option<CallSupport>,
}

impl ConversationSupport {
    /// Tries a template.
    pub(super) fn of(template: &ChatTemplate) -> Self {
        let turns = TurnSupport::of(template);
        // A template that fails on every probe would only cost time.
        let calls = if turns == TurnSupport::ALL && !template.shows_turns(&[("user", "hi")]) {
            Some(CallSupport::ALL)
        } else {
            CallSupport::of(template, &turns)
        };
        Self { turns, calls }
    }
}

impl ChatTemplate {
    /// The conversation in the form that this template renders, with the tools where the template has no place for those.
    /// No text is dropped. Message content must already be [escaped](Message::with_escaped_text).
    #[must_use]
    pub fn fit_messages(
        &self,
        mut messages: Vec<Message>,
        tools: &GenericTools<'_>,
        tokenizer: &Tokenizer,
    ) -> Vec<Message> {
        let support = self.conversation_support();
        normalize_calls(&mut messages);
        let messages = match (&support.calls, tools.support) {
            // The tools are in the text, and so are calls.
            (_, ToolSupport::Generic(_)) => messages,
            (Some(calls), _) => calls.fit(messages),
            (None, _) => tools.calls_in_text(messages),
        };
        support.turns.fit(tools.add_tools(messages, tokenizer))
    }

    /// A fitted conversation as turns of user and assistant alone, with tool calls in the text: for a template that refuses the
    /// conversation all the same.
    #[must_use]
    pub fn plain_turns(mut messages: Vec<Message>, family: ToolFamily) -> Vec<Message> {
        // A template may have got arguments as text.
        normalize_calls(&mut messages);
        let tools = GenericTools {
            support: ToolSupport::None,
            family,
            tools: &[],
            once: false,
        };
        TurnSupport::LEAST.fit(tools.calls_in_text(messages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: AnswerFormat = AnswerFormat {
        tools: ToolFamily::Json,
        reasoning: ReasoningFamily::None,
    };

    fn of(source: &str, answers: AnswerFormat) -> Capabilities {
        let template = ChatTemplate::new(source, "", "").expect("a template");
        template.capabilities(answers)
    }

    #[test]
    fn tool_support_is_detected_from_template() {
        use ToolSupport::{Generic, SystemMessage, Template};
        let generic = |place| Generic(place);
        for (label, source, want) in [
            (
                "a list",
                "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}",
                Template,
            ),
            (
                "names",
                "{% for t in tools %}{{ t.function.name }}{% endfor %}{{ messages[0].content }}",
                Template,
            ),
            (
                "only without a system message",
                "{% if messages[0].role != 'system' and tools %}{{ tools }}{% endif %}",
                Template,
            ),
            (
                "of the system message",
                "{% for m in messages %}{{ m.content }}{% if 'tools' in m %}<|tool|>{{ m['tools'] }}{% endif %}{% endfor %}",
                SystemMessage,
            ),
            (
                "only named",
                "{# tools #}{% for m in messages %}{{ m.content }}{% endfor %}",
                generic(GenericPlace::System),
            ),
            (
                "no system message",
                "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}",
                generic(GenericPlace::User),
            ),
            (
                "system is refused",
                "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ messages[0].content }}",
                generic(GenericPlace::User),
            ),
        ] {
            assert_eq!(of(source, JSON).tools, want, "{label}");
        }
        let fallback = ChatTemplate::fallback("", "");
        assert_eq!(
            fallback.capabilities(JSON).tools,
            generic(GenericPlace::System)
        );
        let unread = fallback.capabilities(AnswerFormat::default());
        assert_eq!(
            unread.tools,
            ToolSupport::None,
            "nobody reads what it would call"
        );
    }

    #[test]
    fn reasoning_support_is_detected_from_family_or_switch() {
        let plain = "{% for m in messages %}{{ m.content }}{% endfor %}";
        let switch = "{{ messages[0].content }}{% if enable_thinking %}<reason>{% endif %}";
        let think = AnswerFormat {
            tools: ToolFamily::None,
            reasoning: ReasoningFamily::Think,
        };
        for (label, source, answers, want) in [
            ("neither", plain, JSON, false),
            ("a switch", switch, JSON, true),
            ("a family", plain, think, true),
        ] {
            assert_eq!(of(source, answers).thinking, want, "{label}");
        }
    }
}
