//! Conversations in the form that a chat template renders, found by rendering tiny conversations when the model is loaded.

use super::call_arguments::normalize_calls;
use super::call_support::CallSupport;
use super::capabilities::ToolSupport;
use super::chat_template::ChatTemplate;
use super::generic_tools::GenericTools;
use super::message::Message;
use super::turn_support::TurnSupport;
use crate::{Tokenizer, ToolFamily};

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
