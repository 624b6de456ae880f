//! Template capabilities, detected by rendering probe conversations.

use super::chat_template::{ChatTemplate, RenderInput};
use super::message::Message;
use super::probe::{PROBE, probe_tools};
use crate::{AnswerFormat, ReasoningFamily, ToolFamily};
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
                _ if self.shows(&[message("system", PROBE, Map::new()), user()], &[]) => {
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

fn message(role: &str, content: &str, rest: Map<String, Value>) -> Message {
    Message {
        role: role.to_owned(),
        content: content.into(),
        rest,
    }
}

fn user() -> Message {
    message("user", "hi", Map::new())
}

fn tools_in_system_message(rest: Map<String, Value>) -> [Message; 2] {
    [message("system", "be brief", rest), user()]
}

fn probe_field() -> Map<String, Value> {
    let tools = Value::Array(probe_tools().to_vec()).to_string();
    Map::from_iter([("tools".to_owned(), Value::String(tools))])
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
