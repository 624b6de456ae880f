//! The license texts of the crates in the binary, each text once.

use super::components::{Component, Components};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Beginnings of the names of files that have license texts.
const NAMES: [&str; 6] = [
    "license",
    "licence",
    "copying",
    "notice",
    "unlicense",
    "copyright",
];
/// Bytes of a license text; longer files are something else.
const TEXT_BYTES_MAX: u64 = 256 << 10;

/// A list of the crates with their licenses, and the texts below.
///
/// # Errors
/// A crate names no license and has no text.
pub(super) fn listing(components: &Components) -> Result<String, String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut out = String::from(
        "Millrace is licensed under MIT or Apache 2.0, at your option. The binary also has code of these crates:\n\n",
    );
    for component in &components.0 {
        let found = texts_of(&component.folder);
        let name = format!("{} {}", component.name, component.version);
        let license = match (&component.license, found.is_empty()) {
            (Some(license), _) => license.clone(),
            (None, false) => "see its text".to_owned(),
            (None, true) => return Err(format!("{name} names no license and has no license text")),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{name}: {license}{}",
            no_text(component, found.is_empty())
        );
        for text in found {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    for (text, names) in texts {
        let _ = write!(
            out,
            "\n{}\n{}\n\n{}\n",
            "=".repeat(80),
            names.join(", "),
            text.trim_end()
        );
    }
    Ok(out)
}

/// A remark on a crate whose archive has no license text.
fn no_text(component: &Component, is_absent: bool) -> String {
    match is_absent {
        false => String::new(),
        true => format!(
            " (no text in its archive: https://crates.io/crates/{})",
            component.name
        ),
    }
}

/// The license texts in a folder of sources.
fn texts_of(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let is_license = |path: &std::path::PathBuf| {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        let is_short = path
            .metadata()
            .is_ok_and(|file| file.is_file() && file.len() <= TEXT_BYTES_MAX);
        is_short && !name.ends_with(".rs") && NAMES.iter().any(|start| name.starts_with(start))
    };
    let mut paths: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(is_license)
        .collect();
    paths.sort();
    let read = paths
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok());
    read.map(|text| text.replace("\r\n", "\n")).collect()
}
