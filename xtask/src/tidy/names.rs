//! Names that say nothing, and words that do not belong in the tree.

use super::File;

/// File and folder names that name no noun.
const VAGUE: [&str; 8] = [
    "utils", "util", "common", "helpers", "helper", "misc", "manager", "types",
];

/// Rust identifiers' endings and words that are banned, with what to do instead.
const WORDS: [(&str, &str); 3] = [
    ("Manager", "name what it holds or does"),
    ("#[ignore]", "write the reason: #[ignore = \"...\"]"),
    (
        "tokio::sync::mpsc::unbounded",
        "use a bounded channel with a named bound",
    ),
];

/// Paths of some machine: nothing in the tree may know where it was written.
const MACHINE: [&str; 3] = ["/home/", "/root/", "/Users/"];

/// Every breach of the three lists.
pub(crate) fn breaches(files: &[File]) -> Vec<String> {
    files
        .iter()
        .filter(|file| file.path != "xtask/src/tidy/names.rs")
        .flat_map(of_file)
        .collect()
}

fn of_file(file: &File) -> Vec<String> {
    let mut found = Vec::new();
    let stems = file
        .path
        .split('/')
        .map(|part| part.split('.').next().unwrap_or(part));
    if let Some(stem) = stems.clone().find(|stem| VAGUE.contains(stem)) {
        found.push(format!("{}: `{stem}` names no noun", file.path));
    }
    for (number, line) in file.text.lines().enumerate() {
        let rust = file.path.ends_with(".rs");
        let word = WORDS.iter().find(|(word, _)| rust && line.contains(word));
        if let Some((word, instead)) = word {
            found.push(format!("{}:{}: `{word}`: {instead}", file.path, number + 1));
        }
        if let Some(path) = MACHINE.iter().find(|path| names_path(line, path)) {
            found.push(format!(
                "{}:{}: a path of some machine ({path})",
                file.path,
                number + 1
            ));
        }
    }
    found
}

/// Whether `path` stands in the line as the beginning of an absolute path.
fn names_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_-./<>{}*".contains(c))
    })
}
