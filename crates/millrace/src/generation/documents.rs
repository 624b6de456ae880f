//! Files that flags name: a JSON schema, and tool definitions in the shape of OpenAI's API.

use crate::failure::Failure;
use generate::error::ApiError;
use generate::request::ResponseFormat;
use generate::tools::Tools;
use serde_json::{Value, json};
use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use text::GrammarSource;
use wire::tool_definitions;

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
