//! Markdown files: lengths of lines, paths that exist.

use super::File;
use crate::shell::root;

/// Characters of a line. Sentences that are longer are split.
const LINE_CHARS_MAX: usize = 200;

/// Files whose table rows may be longer, with the reason. A row cannot be broken in Markdown.
const LONG_ROWS: [(&str, &str); 8] = [
    ("ARCHITECTURE.md", "a row is everything about a crate"),
    (
        "SPECIFICATION.md",
        "a row is a promise and all of its tests",
    ),
    (
        "docs/conformance.md",
        "written by `cargo xtask conformance`",
    ),
    ("docs/memory.md", "a row is a limit with its formula"),
    (
        "measurements/parser-cases.md",
        "written by a test of `text`",
    ),
    (
        "measurements/parser-differences.md",
        "the results of a comparison that was made once",
    ),
    (
        "docs/settings.md",
        "its tables are printed by `millrace config table`",
    ),
    ("docs/workflows.md", "a row is an op with all of its fields"),
];

/// Folders that a path in backticks begins with.
const FOLDERS: [&str; 7] = [
    "crates/",
    "deploy/",
    "docs/",
    "fuzz/",
    "measurements/",
    "tools/",
    "xtask/",
];

/// Every breach in a Markdown file.
pub(crate) fn breaches(files: &[File]) -> Vec<String> {
    let pages = files.iter().filter(|file| file.path.ends_with(".md"));
    pages
        .flat_map(|file| long_lines(file).chain(missing_paths(file)))
        .collect()
}

fn long_lines(file: &File) -> impl Iterator<Item = String> {
    let rows_may_be_long = LONG_ROWS.iter().any(|(path, _)| *path == file.path);
    let numbered = file.text.lines().zip(1..);
    numbered.filter_map(move |(line, number)| {
        let chars = line.chars().count();
        let is_long = chars > LINE_CHARS_MAX && !(rows_may_be_long && line.starts_with('|'));
        is_long.then(|| {
            format!(
                "{}:{number}: {chars} characters, at most {LINE_CHARS_MAX}: one sentence a line",
                file.path
            )
        })
    })
}

/// Paths in backticks that name no file.
fn missing_paths(file: &File) -> impl Iterator<Item = String> {
    let numbered = file.text.lines().zip(1..);
    numbered.flat_map(move |(line, number)| {
        let quoted = line.split('`').skip(1).step_by(2);
        let paths = quoted.filter(|text| is_path(text) && !root().join(text).exists());
        paths.map(move |path| format!("{}:{number}: `{path}` is not there", file.path))
    })
}

/// A path, and not a pattern or a command.
fn is_path(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    FOLDERS.iter().any(|folder| text.starts_with(folder)) && text.chars().all(plain)
}
