//! The error for a model that is not on this machine: which models are, and how to fetch it.

use super::place::{by_name, only_model};
use crate::config::Settings;
use crate::failure::Failure;
use crate::library::Library;
use crate::pull;
use std::io::ErrorKind;
use std::path::Path;

/// Names of models that the error lists.
const LISTED_MAX: usize = 20;

/// Whether this is a model's file, a directory with one, or the name of a model of this machine.
pub(crate) fn is_model(settings: &Settings, typed: &Path) -> bool {
    let ends = |ending: &str| {
        let extension = typed.extension();
        extension.is_some_and(|extension| extension.eq_ignore_ascii_case(ending))
    };
    match std::fs::metadata(typed) {
        Ok(found) if found.is_dir() => only_model(typed).is_ok(),
        Ok(_) => ends("gguf") || ends("safetensors"),
        Err(_) => by_name(settings, typed).is_some(),
    }
}

/// Whether this is surely the name of a model that `millrace pull` knows: a short one, or one with a hub's address.
pub(crate) fn can_be_pulled(typed: &Path) -> bool {
    typed.to_str().is_some_and(pull::is_known)
}

/// The error, if this is neither a path that is there nor the name of a model of this machine.
pub(crate) fn absent(settings: &Settings, typed: &Path) -> Option<Failure> {
    let why = std::fs::metadata(typed).err()?;
    (why.kind() == ErrorKind::NotFound && by_name(settings, typed).is_none())
        .then(|| failure(settings, typed))
}

/// The message for a caller that has listed the models already.
pub(super) fn failure(settings: &Settings, typed: &Path) -> Failure {
    let mut names = Library::names(settings);
    let more = match names.len().saturating_sub(LISTED_MAX) {
        0 => String::new(),
        more => format!(", and {more} more (`millrace list`)"),
    };
    names.truncate(LISTED_MAX);
    let (typed, names) = (typed.display(), names.join(", "));
    let fetch = match can_be_pulled(Path::new(&typed.to_string())) {
        true => format!("`millrace pull {typed}` fetches it"),
        false => "`millrace pull NAME` fetches one: a short name such as qwen3:0.6b, or hf.co/OWNER/REPOSITORY"
            .to_owned(),
    };
    Failure::user(format!(
        "{typed}: no such file, and no model of this machine has that name\n  \
         models of this machine: {names}{more}\n  {fetch}"
    ))
}
