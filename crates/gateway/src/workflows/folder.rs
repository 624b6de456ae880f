//! Documents by name: files of the operator's folder, read for each request.

use generate::error::{ApiError, ErrorKind};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use workflow::{DOCUMENT_BYTES_MAX, Input, Ops, Program, Value};

/// Documents that are listed.
const LISTED_MAX: usize = 256;
/// Characters of a document's name.
const NAME_CHARS_MAX: usize = 64;
const ENDING: &str = "json";

/// The list of workflows.
#[derive(JsonSchema, Serialize)]
pub struct WorkflowList {
    object: &'static str,
    data: Vec<ListedWorkflow>,
}

/// A workflow, or the error of an invalid workflow document.
#[derive(JsonSchema, Serialize)]
#[serde(untagged)]
enum ListedWorkflow {
    Valid(Workflow),
    Broken {
        object: &'static str,
        name: String,
        error: String,
    },
}

/// A workflow and its inputs.
#[derive(JsonSchema, Serialize)]
pub struct Workflow {
    object: &'static str,
    name: String,
    title: String,
    description: String,
    inputs: Vec<WorkflowInput>,
}

/// An input of a workflow.
#[derive(JsonSchema, Serialize)]
struct WorkflowInput {
    name: String,
    r#type: &'static str,
    hidden: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    options: Vec<Json>,
}

/// The program of this name. Reads a file: not for an io thread.
///
/// # Errors
/// The name is unknown; the document is invalid.
pub fn load_program(folder: Option<&Path>, name: &str) -> Result<Arc<Program>, ApiError> {
    let path = folder
        .filter(|_| is_name(name))
        .ok_or_else(unknown_document)?;
    let path = path.join(name).with_extension(ENDING);
    let document = read_document(&path).map_err(|why| match why {
        ReadError::Missing => unknown_document(),
        ReadError::Broken(why) => broken_document(name, &why),
    })?;
    let program = Program::compile(&document, &Ops::default());
    program
        .map(Arc::new)
        .map_err(|faults| broken_document(name, &faults.to_string()))
}

/// All documents, with what a form for them shows. Reads files: not for an io thread.
pub fn list_documents(folder: Option<&Path>) -> WorkflowList {
    let files = folder.and_then(|folder| std::fs::read_dir(folder).ok());
    let paths = files
        .into_iter()
        .flatten()
        .flatten()
        .map(|file| file.path());
    let documents = paths.filter(|path| path.extension().is_some_and(|end| end == ENDING));
    let mut names: Vec<String> = documents
        .filter_map(|path: PathBuf| Some(path.file_stem()?.to_str()?.to_owned()))
        .filter(|name| is_name(name))
        .collect();
    names.sort();
    names.truncate(LISTED_MAX);
    let data = names
        .into_iter()
        .map(|name| match load_program(folder, &name) {
            Ok(program) => ListedWorkflow::Valid(describe_document(&name, &program)),
            Err(error) => ListedWorkflow::Broken {
                object: "workflow",
                name,
                error: error.message.to_string(),
            },
        })
        .collect();
    WorkflowList {
        object: "list",
        data,
    }
}

/// The description of a workflow document, as in the workflow list.
pub fn describe_document(name: &str, program: &Program) -> Workflow {
    Workflow {
        object: "workflow",
        name: name.to_owned(),
        title: program.name().to_owned(),
        description: program.description().to_owned(),
        inputs: program.inputs().iter().map(describe_input).collect(),
    }
}

fn describe_input(input: &Input) -> WorkflowInput {
    WorkflowInput {
        name: input.name.clone(),
        r#type: input.ty.name(),
        hidden: input.hidden,
        label: input.label.clone(),
        description: input.description.clone(),
        default: input.default.as_ref().map(Value::to_json),
        min: input.min,
        max: input.max,
        step: input.step,
        options: input.options.iter().map(Value::to_json).collect(),
    }
}

enum ReadError {
    Missing,
    Broken(String),
}

fn read_document(path: &Path) -> Result<Vec<u8>, ReadError> {
    let file = std::fs::metadata(path).map_err(|_| ReadError::Missing)?;
    if file.len() > DOCUMENT_BYTES_MAX as u64 {
        let why = format!("has {} bytes; at most {DOCUMENT_BYTES_MAX}", file.len());
        return Err(ReadError::Broken(why));
    }
    std::fs::read(path).map_err(|why| ReadError::Broken(why.to_string()))
}

/// No dot, no slash: a name leads nowhere else.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=NAME_CHARS_MAX).contains(&name.len()) && name.chars().all(plain)
}

fn unknown_document() -> ApiError {
    let words = "there is no workflow of this name";
    ApiError::caller(ErrorKind::NotFound, "workflow_not_found", words)
}

fn broken_document(name: &str, why: &str) -> ApiError {
    let words = format!("{name}: {why}");
    ApiError::caller(ErrorKind::Unprocessable, "workflow_broken", words)
}
