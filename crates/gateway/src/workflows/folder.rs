//! Documents by name: files of the operator's folder, read for each request.

use generate::error::{ApiError, ErrorKind};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use workflow::{DOCUMENT_BYTES_MAX, Input, Ops, Program, Value};

/// Documents that are listed.
const LISTED_MAX: usize = 256;
/// Characters of a document's name.
const NAME_CHARS_MAX: usize = 64;
const ENDING: &str = "json";

/// The program of this name. Reads a file: not for an I/O thread.
///
/// # Errors
/// The name is unknown; the document is invalid.
pub fn program(folder: Option<&Path>, name: &str) -> Result<Arc<Program>, ApiError> {
    let path = folder.filter(|_| is_name(name)).ok_or_else(unknown)?;
    let path = path.join(name).with_extension(ENDING);
    let document = read(&path).map_err(|why| match why {
        ReadError::Missing => unknown(),
        ReadError::Broken(why) => broken(name, &why),
    })?;
    let program = Program::compile(&document, &Ops::default());
    program
        .map(Arc::new)
        .map_err(|faults| broken(name, &faults.to_string()))
}

/// All documents, with what a form for them shows. Reads files: not for an io thread.
pub fn list(folder: Option<&Path>) -> Json {
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
    let data: Vec<Json> = names
        .iter()
        .map(|name| match program(folder, name) {
            Ok(program) => describe(name, &program),
            Err(error) => json!({"object": "workflow", "name": name, "error": error.message}),
        })
        .collect();
    json!({"object": "list", "data": data})
}

/// A document, with the fields that a form needs.
pub fn describe(name: &str, program: &Program) -> Json {
    let inputs: Vec<Json> = program.inputs().iter().map(input).collect();
    json!({
        "object": "workflow",
        "name": name,
        "title": program.name(),
        "description": program.description(),
        "inputs": inputs,
    })
}

fn input(input: &Input) -> Json {
    let mut told = json!({"name": input.name, "type": input.ty.name(), "hidden": input.hidden});
    let options = input.options.iter().map(Value::to_json).collect::<Vec<_>>();
    let hints = [
        ("label", input.label.clone().map(Json::from)),
        ("description", input.description.clone().map(Json::from)),
        ("default", input.default.as_ref().map(Value::to_json)),
        ("min", input.min.map(Json::from)),
        ("max", input.max.map(Json::from)),
        ("step", input.step.map(Json::from)),
        ("options", (!options.is_empty()).then(|| options.into())),
    ];
    for (hint, value) in hints {
        if let Some(value) = value {
            told[hint] = value;
        }
    }
    told
}

enum ReadError {
    Missing,
    Broken(String),
}

fn read(path: &Path) -> Result<Vec<u8>, ReadError> {
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

fn unknown() -> ApiError {
    let words = "there is no workflow of this name";
    ApiError::caller(ErrorKind::NotFound, "workflow_not_found", words)
}

fn broken(name: &str, why: &str) -> ApiError {
    let words = format!("{name}: {why}");
    ApiError::caller(ErrorKind::Unprocessable, "workflow_broken", words)
}
