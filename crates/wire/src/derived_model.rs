//! Derived models: a base model under another name, with defaults for its requests.

use crate::fields::Fields;
use crate::shared::generation_fields::{check_options, ollama_options};
use crate::shared::messages::text_message;
use generate::error::Problem;
use generate::generation_options::GenerationOptions;
use generate::model_handle::ModelAdapters;
use generate::request::{GenerateRequest, GenerationParams, Prompt};
use generate::sampling::SamplingDefaults;
use serde_json::{Map, Value};
use text::{Capabilities, Message};

/// A derived model, as `/api/create` makes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DerivedModel {
    /// The base model.
    pub parent: String,
    /// Text of a system message.
    pub system: Option<String>,
    /// Ollama template of the prompt of `/api/generate`.
    pub template: Option<String>,
    /// Adapter of the base model that requests use.
    pub adapter: Option<String>,
    /// Ollama's options.
    pub options: Map<String, Value>,
}

/// Options of derived models that a wire protocol has.
#[derive(Clone, Copy)]
pub enum ModelOptions {
    /// All options, under Ollama's names.
    All,
    /// The named options: Ollama's name of the option, and the protocol's field.
    Named(&'static [(&'static str, &'static str)]),
}

impl ModelOptions {
    /// Options with a field in OpenAI's API or in this server's extensions of OpenAI's API.
    pub const SHARED: Self = Self::Named(&[
        ("temperature", "temperature"),
        ("top_p", "top_p"),
        ("top_k", "top_k"),
        ("min_p", "min_p"),
        ("seed", "seed"),
        ("stop", "stop"),
        ("repeat_penalty", "repetition_penalty"),
        ("presence_penalty", "presence_penalty"),
        ("frequency_penalty", "frequency_penalty"),
        ("num_predict", "max_tokens"),
        ("min_tokens", "min_tokens"),
    ]);

    fn has_option(self, option: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.iter().any(|(name, _)| *name == option),
        }
    }

    /// A problem of an option as a problem of the protocol's field.
    fn of_field(self, mut problem: Problem) -> Problem {
        if let Self::Named(names) = self {
            let end = problem.field.find(['[', '.']);
            let option = &problem.field[..end.unwrap_or(problem.field.len())];
            if let Some((option, field)) = names.iter().find(|(name, _)| *name == option) {
                problem.field.replace_range(..option.len(), field);
            }
        }
        problem
    }
}

impl DerivedModel {
    /// Defaults of a request in a protocol with these options.
    pub fn defaults(&self, options: ModelOptions, vocab_size: usize) -> ModelDefaults {
        let (options, problems) = self.generation_options(options, vocab_size);
        ModelDefaults {
            system: self.system.clone(),
            template: self.template.clone(),
            options,
            problems,
        }
    }

    /// Invalid options: values that a request could not have, and names that are no option.
    pub fn option_problems(&self) -> Vec<Problem> {
        let text = Value::Object(self.options.clone()).to_string();
        let mut fields = match Fields::parse(text.as_bytes()) {
            Ok(fields) => fields,
            Err(error) => return vec![Problem::new("options", error.message)],
        };
        check_options(&mut fields);
        let unknown: Vec<String> = fields.unread_fields().map(str::to_owned).collect();
        for name in unknown {
            fields.reject(name, "is no default of requests");
        }
        let problems = fields.finish().err().map(|error| error.problems);
        problems.unwrap_or_default()
    }

    /// Bytes of the texts that may become part of a prompt.
    pub fn text_bytes(&self) -> usize {
        let texts = [&self.system, &self.template];
        texts.into_iter().flatten().map(String::len).sum()
    }

    /// The valid options, and the problems of the others.
    fn generation_options(
        &self,
        names: ModelOptions,
        vocab_size: usize,
    ) -> (GenerationOptions, Vec<Problem>) {
        let options = self.options.iter();
        let options = options.filter(|(name, _)| names.has_option(name));
        let options: Map<String, Value> = options
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if options.is_empty() {
            return Default::default();
        }
        let text = Value::Object(options).to_string();
        let mut fields = match Fields::parse(text.as_bytes()) {
            Ok(fields) => fields,
            Err(error) => {
                let problem = Problem::new("options", error.message);
                return (GenerationOptions::default(), vec![problem]);
            }
        };
        let options = ollama_options(&mut fields, vocab_size);
        let problems = fields.finish().err().map(|error| error.problems);
        let problems = problems.into_iter().flatten();
        let problems = problems.map(|problem| names.of_field(problem)).collect();
        (options, problems)
    }
}

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
    /// Whether the model takes images. Of a model that reads text only, a request still names its images.
    pub takes_images: bool,
    /// Whether the server fetches images from other servers.
    pub fetches_images: bool,
    /// Adapters that a request may use.
    pub adapters: &'a ModelAdapters,
    /// Number of token ids.
    pub vocab_size: usize,
}

/// One model of a model list.
pub struct ModelCard {
    /// Name of the model.
    pub name: String,
    /// Time of creation.
    pub created_unix_s: i64,
    /// Context length in tokens, for prompt and answer together; only of a loaded model.
    pub context_max: Option<usize>,
    /// Template capabilities; only of a loaded model.
    pub capabilities: Option<Capabilities>,
    /// What the model is for: `text`, `embedding` or `rerank`; absent until the file was read.
    pub kind: Option<&'static str>,
    /// What the model can do, with the names of Ollama's API; absent of a model for text that is not loaded.
    pub abilities: Option<Vec<&'static str>>,
    /// Engines of other processes that compute for the model now; `None`: the engine is in this process.
    pub engines: Option<usize>,
    /// Base model and file of an adapter.
    pub adapter: Option<AdapterCard>,
    /// State of a model that is not loaded.
    pub state: Option<&'static str>,
}

/// Base of an adapter in a model list.
pub struct AdapterCard {
    /// Name of the base model.
    pub parent: String,
    /// Name of the file or folder; only of a loaded model.
    pub root: Option<String>,
}

#[cfg(test)]
mod tests;
