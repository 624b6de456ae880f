//! The model of a request as far as parsers depend on it: properties, and defaults for what requests leave open.

use crate::derived_model::DerivedModel;
use crate::fields::Fields;
use crate::shared::messages::text_message;
use generate::error::Problem;
use generate::generation_options::GenerationOptions;
use generate::model_handle::ModelAdapters;
use generate::request::{GenerateRequest, GenerationParams, Prompt};
use generate::sampling::SamplingDefaults;
use text::{Capabilities, Message};

/// Defaults of a model, derived or not, as far as a wire protocol has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelDefaults {
    /// Text of a system message.
    pub system: Option<String>,
    /// Ollama template of the prompt of `/api/generate`.
    pub template: Option<String>,
    /// Generation parameters.
    pub options: GenerationOptions,
    /// Invalid options, under the protocol's names. They concern requests that do not set the field themselves.
    pub problems: Vec<Problem>,
}

impl ModelDefaults {
    /// Records the invalid options in `fields`, except for fields that the request sets.
    pub fn note_problems(&self, fields: &mut Fields<'_>) {
        for problem in &self.problems {
            let name = problem.field.split(['[', '.']).next().unwrap_or_default();
            if fields.raw(name).is_none() {
                fields.add_problem(problem.clone());
            }
        }
    }

    /// The parameters of a request with these options.
    pub fn resolve(&self, given: GenerationOptions) -> GenerationParams {
        given.or_of_model(&self.options).resolve()
    }

    /// The system message for a conversation, unless the conversation has one.
    pub fn system_message(&self, messages: &[Message]) -> Option<Message> {
        let is_system = |message: &Message| matches!(&*message.role, "system" | "developer");
        let system = self.system.as_ref()?;
        (!messages.iter().any(is_system)).then(|| text_message("system", system.clone()))
    }

    /// Puts the system message before each conversation that has none.
    pub fn apply(&self, request: &mut GenerateRequest) {
        for prompt in &mut request.prompts {
            if let Prompt::Conversation { messages, .. } = prompt
                && !messages.is_empty()
                && let Some(system) = self.system_message(messages)
            {
                messages.insert(0, system);
            }
        }
    }
}

/// Properties of a model that the parsing of a request depends on.
#[derive(Clone, Copy)]
pub struct RequestedModel<'a> {
    /// Name for error messages.
    pub id: &'a str,
    /// Defaults, if the request names a derived model.
    pub derived: Option<&'a DerivedModel>,
    /// Sampling parameters of requests that set none.
    pub sampling: SamplingDefaults,
    /// Stop strings of answers in a conversation.
    pub stops: &'static [&'static str],
    /// Capabilities of the model.
    pub capabilities: Capabilities,
    /// Adapters that a request may use.
    pub adapters: &'a ModelAdapters,
    /// Number of token ids.
    pub vocab_size: usize,
}
