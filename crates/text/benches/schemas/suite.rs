//! Files of the suite: `maskbench/data` of a checkout of guidance-ai/jsonschemabench.

use serde::Deserialize;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A schema with instances.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) schema: Value,
    pub(crate) tests: Vec<Instance>,
}

/// An instance, and whether the instance is valid under the schema.
#[derive(Deserialize)]
pub(crate) struct Instance {
    pub(crate) valid: bool,
    pub(crate) data: Value,
}

#[derive(Deserialize)]
struct CaseFile {
    schema: Value,
    tests: Vec<Instance>,
}

/// The files of the suite in order of name.
pub(crate) fn files(checkout: &Path) -> Result<Vec<PathBuf>, String> {
    let folder = checkout.join("maskbench/data");
    let entries =
        std::fs::read_dir(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|kind| kind == "json"))
        .collect();
    paths.sort_unstable();
    match paths.as_slice() {
        [] => Err(format!("{}: has no .json files", folder.display())),
        _ => Ok(paths),
    }
}

pub(crate) fn read(path: &Path) -> Result<Case, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let bytes = std::fs::read(path).map_err(|why| wrong(&why))?;
    let file: CaseFile = serde_json::from_slice(&bytes).map_err(|why| wrong(&why))?;
    let stem = path.file_stem().unwrap_or_default();
    Ok(Case {
        name: stem.to_string_lossy().into_owned(),
        schema: file.schema,
        tests: file.tests,
    })
}
