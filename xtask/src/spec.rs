//! The tables of SPECIFICATION.md, written from comments of the tests that hold the promises.
//!
//! A comment with the words `Promise (SECTION): TEXT` stands at the top of a test file, or above a test; the paragraph
//! ends at an empty line of the comment, and may end with `Also held by` and a list of further tests in backticks.
//! Each section of the page with the line [`MARK`] is replaced from this line to the next heading. The rest of the page
//! is written by hand.

use crate::shell::{Outcome, root};
use crate::tidy::{File, tracked_files};
use std::collections::BTreeMap;

const PAGE: &str = "SPECIFICATION.md";
/// Begins the written part of a section.
const MARK: &str = "<!-- written by `cargo xtask spec` -->";
/// What comes before the text of a comment, in Rust, JavaScript and Python.
const COMMENTS: [&str; 4] = ["//!", "///", "//", "#"];

/// Writes the page.
pub(crate) fn run() -> Outcome {
    let written = page(&tracked_files()?)?;
    std::fs::write(root().join(PAGE), written).map_err(|e| format!("{PAGE}: {e}"))
}

/// Whether the page is current, and tests that it names and that are not there.
pub(crate) fn breaches(files: &[File]) -> Vec<String> {
    let written = match page(files) {
        Ok(written) => written,
        Err(why) => return vec![why],
    };
    let mut found = missing_tests(&written, files);
    if files.iter().all(|f| f.path != PAGE || f.text != written) {
        found.push(format!("{PAGE} is not current: run `cargo xtask spec`"));
    }
    found
}

/// A promise and the test that says it.
struct Promise {
    section: String,
    text: String,
    held_by: String,
}

/// The page with its sections written anew.
fn page(files: &[File]) -> Result<String, String> {
    let old = files.iter().find(|file| file.path == PAGE);
    let old = old.ok_or_else(|| format!("{PAGE} is not there"))?;
    let mut sections: BTreeMap<String, Vec<Promise>> = BTreeMap::new();
    let mut tests: Vec<&File> = files.iter().filter(|f| may_promise(&f.path)).collect();
    tests.sort_by(|a, b| a.path.cmp(&b.path));
    for promise in tests.into_iter().flat_map(promises) {
        let of_section = sections.entry(promise.section.clone()).or_default();
        of_section.push(promise);
    }
    let mut parts = old.text.split("\n## ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("\n## ");
        let Some((by_hand, _)) = part.split_once(MARK) else {
            out.push_str(part);
            continue;
        };
        let heading = by_hand.lines().next().unwrap_or_default();
        let rows = sections.remove(heading).unwrap_or_default();
        out.push_str(by_hand);
        out.push_str(&table(&rows));
    }
    match sections.into_iter().next() {
        None => Ok(out),
        Some((name, promises)) => Err(format!(
            "{PAGE} has no section `{name}` with the line {MARK}, wanted by {}",
            promises[0].held_by
        )),
    }
}

fn table(rows: &[Promise]) -> String {
    let rows = rows
        .iter()
        .map(|row| format!("| {} | {} |\n", row.text, row.held_by));
    format!(
        "{MARK}\n\n| promise | held by |\n|---|---|\n{}",
        rows.collect::<String>()
    )
}

fn may_promise(path: &str) -> bool {
    let is_source = [".rs", ".mjs", ".py"].iter().any(|end| path.ends_with(end));
    is_source && (path.starts_with("crates/") || path.starts_with("tools/"))
}

/// The promises of a file, in order.
fn promises(file: &File) -> Vec<Promise> {
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let begins = |at: &usize| comment(lines[*at]).is_some_and(|text| text.starts_with("Promise ("));
    let starts = (0..lines.len()).filter(begins);
    starts
        .filter_map(|at| promise(file, &lines[at..]))
        .collect()
}

/// The promise in the comment that `lines` begins with.
fn promise(file: &File, lines: &[&str]) -> Option<Promise> {
    let paragraph = lines.iter().map_while(|line| comment(line));
    let paragraph: Vec<&str> = paragraph.take_while(|text| !text.is_empty()).collect();
    let words = paragraph.join(" ");
    let (section, text) = words.strip_prefix("Promise (")?.split_once("): ")?;
    let (text, also) = text.split_once(" Also held by ").unwrap_or((text, ""));
    let path = file.path.strip_prefix("crates/").unwrap_or(&file.path);
    let mut held_by = match named(lines) {
        Some(name) => format!("`{path} :: {name}`"),
        None => format!("`{path}`"),
    };
    if !also.is_empty() {
        held_by = format!("{held_by}, {}", also.trim_end_matches('.'));
    }
    Some(Promise {
        section: section.to_owned(),
        text: text.trim_end_matches('.').to_owned(),
        held_by,
    })
}

/// The text of a line that is a comment. An attribute of Rust is none.
fn comment(line: &str) -> Option<&str> {
    let text = COMMENTS.iter().find_map(|mark| line.strip_prefix(mark))?;
    (text.is_empty() || text.starts_with(' ')).then(|| text.trim())
}

/// The test or module below a comment, unless the comment is about the file.
fn named<'a>(lines: &[&'a str]) -> Option<&'a str> {
    let is_about_file = lines[0].starts_with("//!");
    let is_skipped = |line: &&str| comment(line).is_some() || line.starts_with(['#', '@']);
    let item = lines.iter().find(|line| !is_skipped(line))?;
    let words = item.split([' ', '(', '{', ':']);
    let mut from_keyword = words.skip_while(|word| !["fn", "mod", "def"].contains(word));
    from_keyword.nth(1).filter(|_| !is_about_file)
}

/// Tests in backticks, below the root or `crates/`, that are not there.
fn missing_tests(page: &str, files: &[File]) -> Vec<String> {
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let quoted = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    quoted
        .filter(|text| is_test(text, files) == Some(false))
        .map(|text| format!("{PAGE}: `{text}` is not there"))
        .collect()
}

/// Whether a test is there; `None` where the text is no test.
fn is_test(text: &str, files: &[File]) -> Option<bool> {
    let (path, name) = match text.split_once(" :: ") {
        Some((path, name)) => (path, Some(name)),
        None => (text, None),
    };
    let is_path = path.contains('/') && !path.starts_with('/') && !path.contains([' ', '*']);
    if !is_path || (name.is_none() && !path.contains("src/") && !path.contains("tests/")) {
        return None;
    }
    let below = [path.to_owned(), format!("crates/{path}")];
    let is_below = |file: &&File| {
        below
            .iter()
            .any(|path| file.path.starts_with(path.as_str()))
    };
    let defines = |file: &File| {
        name.is_none_or(|name| {
            let items = ["fn", "mod", "def"].map(|word| format!("{word} {name}"));
            items.iter().any(|item| file.text.contains(item))
        })
    };
    Some(files.iter().filter(is_below).any(defines))
}

#[cfg(test)]
mod tests {
    use super::{MARK, PAGE, breaches, page};
    use crate::tidy::File;

    fn file(path: &str, text: &str) -> File {
        let (path, text) = (path.to_owned(), text.to_owned());
        File { path, text }
    }

    fn files(tests: &str) -> Vec<File> {
        let specification = format!("# Head\n\n## A\n\n{MARK}\nold\n\n## By hand\n\nkept\n");
        let tests = file("crates/x/tests/it/a.rs", tests);
        vec![file(PAGE, &specification), tests]
    }

    #[test]
    fn promises_of_files_and_tests_become_rows() {
        let files = files(
            "//! Tests.\n//!\n//! Promise (A): one\n//! thing.\n\n/// Promise (A): two. Also held by `x/tests/it/a.rs`.\n#[test]\nfn two() {}",
        );
        let rows = "| one thing | `x/tests/it/a.rs` |\n| two | `x/tests/it/a.rs :: two`, `x/tests/it/a.rs` |\n";
        let expected = format!(
            "# Head\n\n## A\n\n{MARK}\n\n| promise | held by |\n|---|---|\n{rows}\n## By hand\n\nkept\n"
        );
        assert_eq!(page(&files), Ok(expected));
        let found = breaches(&files);
        assert_eq!(
            found,
            ["SPECIFICATION.md is not current: run `cargo xtask spec`"]
        );
    }

    #[test]
    fn unknown_sections_and_missing_tests_are_breaches() {
        let unknown = files("//! Promise (B): one.");
        assert!(breaches(&unknown)[0].contains("no section `B`"));
        let missing = files("//! Promise (A): one. Also held by `x/tests/it/a.rs :: gone`.");
        assert!(breaches(&missing)[0].contains("gone"));
    }
}
