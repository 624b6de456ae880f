//! Options of answers, from flags.

use super::documents::{read_schema, read_tools};
use crate::args::GenerateArgs;
use crate::failure::Failure;
use generate::generation_options::{GenerationOptions, Seed, TokenLimit};
use generate::request::{GenerationParams, Prompt, STOPS_MAX};
use serde_json::{Map, Value};
use std::io::Write;
use text::Message;

/// Variables of chat templates that switch reasoning on or off; a template knows one of the two.
const REASONING_SWITCHES: [&str; 2] = ["enable_thinking", "thinking"];

/// Temperature above which an answer is mostly chance; the APIs take none above.
const TEMPERATURE_USUAL_MAX: f32 = 2.0;

/// Temperature above which there is an error instead.
const TEMPERATURE_MAX: f32 = 100.0;

/// Options of all answers of one command.
pub(crate) struct AnswerOptions {
    /// How answers are generated.
    pub(crate) params: GenerationParams,
    /// Parameters that flags set.
    given: GenerationOptions,
    /// Tool definitions in the shape of OpenAI's API.
    tools: Vec<Value>,
    /// Whether the model shall reason; `None`: the default of the chat template.
    pub(crate) thinks: Option<bool>,
}

impl AnswerOptions {
    /// The options of these flags. Reads the files that the flags name.
    ///
    /// # Errors
    /// A file cannot be used, or a flag is out of bounds; the message names the flag and the bound.
    pub(crate) fn read(args: &GenerateArgs) -> Result<Self, Failure> {
        if args.stop.len() > STOPS_MAX {
            let given = args.stop.len();
            let why = format!("--stop: given {given} times; at most {STOPS_MAX} stop strings");
            return Err(Failure::user(why));
        }
        let response_format = args.schema.as_deref().map(read_schema).transpose()?;
        let given = GenerationOptions {
            max_tokens: args.max_tokens.map(TokenLimit::Tokens),
            stops: (!args.stop.is_empty()).then(|| args.stop.clone()),
            seed: args.seed.map(Seed::Fixed),
            response_format,
            ..args.sampling.options()
        };
        let mut params = given.clone().resolve();
        let tools = match &args.tools {
            None => Vec::new(),
            Some(path) => params.take_tools(read_tools(path, &args.tool_choice)?),
        };
        Ok(Self {
            params,
            given,
            tools,
            thinks: args.think,
        })
    }

    /// These options, with a model's defaults for what no flag sets.
    pub(crate) fn with_defaults(self, defaults: &GenerationOptions) -> Self {
        let resolved = self.given.clone().or_of_model(defaults).resolve();
        let params = GenerationParams {
            response_format: self.params.response_format,
            tool_calling: self.params.tool_calling,
            constrained_tools: self.params.constrained_tools,
            ..resolved
        };
        Self { params, ..self }
    }

    /// Prints what to know of an unusual option, on standard error.
    pub(crate) fn warn(&self) {
        if let Some(warning) = temperature_warning(self.params.sampling.temperature) {
            // A closed standard error is no failure.
            let _ = writeln!(std::io::stderr(), "warning: {warning}");
        }
    }

    /// The prompt of a conversation, which the answer follows.
    pub(crate) fn conversation(&self, messages: Vec<Message>) -> Prompt {
        let switches = self.thinks.into_iter().flat_map(|thinks| {
            REASONING_SWITCHES.map(|name| (name.to_owned(), Value::Bool(thinks)))
        });
        Prompt::Conversation {
            field: "prompt",
            messages,
            tools: self.tools.clone(),
            continues: false,
            kwargs: switches.collect::<Map<_, _>>(),
        }
    }
}

fn temperature_warning(temperature: f32) -> Option<String> {
    let is_possible = temperature <= TEMPERATURE_MAX;
    (temperature > TEMPERATURE_USUAL_MAX && is_possible).then(|| {
        format!(
            "temperature {temperature}: above {TEMPERATURE_USUAL_MAX} almost all tokens are equally likely, and answers \
             make no sense; usual are 0 to 1"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::temperature_warning;

    #[test]
    fn unusual_temperature_has_a_warning() {
        for usual in [0.0, 0.8, 2.0, 101.0] {
            assert_eq!(temperature_warning(usual), None, "{usual}");
        }
        let why = temperature_warning(9.0).expect("a warning");
        assert!(why.starts_with("temperature 9: above 2"), "{why}");
    }
}
