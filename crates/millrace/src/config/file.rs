//! The configuration file.

use crate::operator_file;
use serde_json::{Map, Value};
use std::path::Path;

/// Bytes a configuration file may have; a real one has a few hundred.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The file as a tree of sections. An empty file sets nothing.
pub(super) fn read(path: &Path) -> Result<Map<String, Value>, String> {
    let shown = path.display();
    let (text, _) = operator_file::read(path, FILE_BYTES_MAX)?;
    parse(&text).map_err(|why| format!("{shown}: {why}"))
}

/// The text of a file as a tree of sections.
pub(super) fn parse(text: &str) -> Result<Map<String, Value>, String> {
    if text
        .lines()
        .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
    {
        return Ok(Map::new());
    }
    match operator_file::parse_yaml::<Value>(text) {
        Ok(Value::Object(tree)) => Ok(tree),
        Ok(_) => Err("must be a map of sections".to_owned()),
        Err(why) => Err(why),
    }
}
