//! Options of answers, from flags and the files that they name: a JSON schema, and tool definitions in the shape of
//! OpenAI's API.

use crate::args::GenerateArgs;
use crate::failure::Failure;
use engine::SamplingParams;
use generate::error::ApiError;
use generate::generation_options::{GenerationOptions, Seed, TokenLimit};
use generate::request::{GenerationParams, Prompt, ResponseFormat, STOPS_MAX};
use generate::tools::Tools;
use serde_json::{Map, Value, json};
use server::VisionProxy;
use std::fmt::Display;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;
use text::{GrammarSource, Message};
use wire::tool_definitions;

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
    /// Time for an answer.
    pub(super) time_max: Option<Duration>,
}

/// Seed of descriptions: an image is described alike each time.
const DESCRIPTION_SEED: u64 = 0;

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
            time_max: None,
        })
    }

    /// The options of a description of an image.
    pub(super) fn of_description(proxy: &VisionProxy) -> Self {
        Self {
            params: GenerationParams {
                sampling: SamplingParams {
                    temperature: proxy.temperature,
                    ..SamplingParams::default()
                },
                max_tokens: Some(proxy.max_tokens),
                seed: Some(DESCRIPTION_SEED),
                ..GenerationParams::default()
            },
            given: GenerationOptions::default(),
            tools: Vec::new(),
            thinks: Some(false),
            time_max: Some(proxy.timeout),
        }
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

/// Bytes of a schema file or a tools file: bounds the memory for parsing.
const DOCUMENT_BYTES_MAX: u64 = 1 << 20;
/// The flag of the schema file; the field of the response format in error messages.
const SCHEMA: &str = "--schema";
/// The flag of the tools file.
const TOOLS: &str = "--tools";

/// The response format of a schema file.
///
/// # Errors
/// The file cannot be read, is too long, or is no JSON schema.
pub(super) fn read_schema(path: &Path) -> Result<ResponseFormat, Failure> {
    let schema = read_json(SCHEMA, path)?;
    if !schema.is_object() {
        return Err(file_failure(
            SCHEMA,
            path,
            &"must be a JSON Schema (an object)",
        ));
    }
    Ok(ResponseFormat {
        source: GrammarSource::JsonSchema(schema),
        field: SCHEMA.to_owned(),
    })
}

/// The tools of a tools file. `choice` is `none`, `auto`, `required` or a tool's name.
///
/// # Errors
/// The file cannot be read, is too long, or is no array of tools; the chosen tool is not in the file.
pub(super) fn read_tools(path: &Path, choice: &str) -> Result<Tools, Failure> {
    let tools = read_json(TOOLS, path)?;
    if tools.as_array().is_none_or(Vec::is_empty) {
        let why = r#"must be an array of tools: [{"type": "function", "function": {"name": ..}}]"#;
        return Err(file_failure(TOOLS, path, &why));
    }
    let choice = match choice {
        "none" | "auto" | "required" => json!(choice),
        name => json!({"type": "function", "function": {"name": name}}),
    };
    let body = json!({"tools": tools, "tool_choice": choice}).to_string();
    let parsed = tool_definitions::parse_object(body.as_bytes());
    parsed.map_err(|error| file_failure(TOOLS, path, &tool_problems(&error)))
}

/// One line per problem of a tools file.
fn tool_problems(error: &ApiError) -> String {
    if error.problems.is_empty() {
        return error.message.clone();
    }
    let line = |(field, constraint): (&str, &str)| match field {
        "tool_choice" => {
            "--tool-choice must be none, auto, required, or the name of a tool of this file"
                .to_owned()
        }
        field => format!("{field} {constraint}"),
    };
    let problems = error.problems.iter();
    let lines = problems.map(|problem| line((&problem.field, &problem.constraint)));
    lines.collect::<Vec<_>>().join("\n  ")
}

fn read_json(flag: &str, path: &Path) -> Result<Value, Failure> {
    let file = File::open(path).map_err(|why| file_failure(flag, path, &why))?;
    let mut bytes = Vec::new();
    let read = file.take(DOCUMENT_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|why| file_failure(flag, path, &why))?;
    if bytes.len() as u64 > DOCUMENT_BYTES_MAX {
        let why = format!("must have at most {DOCUMENT_BYTES_MAX} bytes");
        return Err(file_failure(flag, path, &why));
    }
    let parsed = serde_json::from_slice(&bytes);
    parsed.map_err(|why| file_failure(flag, path, &format!("is not JSON: {why}")))
}

fn file_failure(flag: &str, path: &Path, why: &dyn Display) -> Failure {
    Failure::user(format!("{flag} {}: {why}", path.display()))
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
