//! How long a file may be. (How long a function may be is clippy's `too_many_lines`.)

use super::File;

/// Lines of a Rust file, its tests included.
const FILE_LINES_MAX: usize = 600;

/// Files that may be longer, how long, and why.
const ALLOWED: [(&str, usize, &str); 0] = [];

/// Files over their budget.
pub(crate) fn breaches(files: &[File]) -> Vec<String> {
    files
        .iter()
        .filter(|file| file.path.ends_with(".rs"))
        .filter_map(breach)
        .collect()
}

fn breach(file: &File) -> Option<String> {
    let allowed = ALLOWED.iter().find(|row| row.0 == file.path);
    let budget = allowed.map_or(FILE_LINES_MAX, |row| row.1);
    let lines = file.text.lines().count();
    (lines > budget).then(|| {
        format!(
            "{}: {lines} lines, budget {budget}: is it one noun?",
            file.path
        )
    })
}
