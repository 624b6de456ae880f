//! Derived models: a base model under another name, with defaults for its requests.

use crate::fields::Fields;
use crate::model_defaults::ModelDefaults;
use crate::shared::llama_options::{check_options, ollama_options};
use generate::error::Problem;
use generate::generation_options::GenerationOptions;
use serde_json::{Map, Value};

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

#[cfg(test)]
mod tests;
