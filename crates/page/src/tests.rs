//! Promise (The web page): the first screen is drawn from the document alone, without a script; the modules are
//! fetched after the first paint.
//! Also held by `tools/page/chat_checks.py :: first_screen`.

use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use sha2::{Digest as _, Sha256};
use std::io::Read;
use std::path::Path;
use std::process::Command;
use testing::program::find_program;

/// Bytes of all files, compressed.
const PAGE_BYTES_MAX: usize = 60 << 10;
/// Lines of a module.
const LINES_MAX: usize = 400;

fn text(file: &PageFile) -> &'static str {
    std::str::from_utf8(file.plain).unwrap()
}

#[test]
fn compressed_files_are_the_files_and_within_the_budget() {
    let mut sum = 0;
    for file in files() {
        let mut plain = Vec::new();
        GzDecoder::new(file.gzip).read_to_end(&mut plain).unwrap();
        assert_eq!(plain, file.plain, "{}", file.name);
        assert_eq!(file.digest.len(), 16);
        sum += file.gzip.len();
    }
    assert!(sum <= PAGE_BYTES_MAX, "{sum} of {PAGE_BYTES_MAX} bytes");
    assert!(files().len() > 20);
}

#[test]
fn document_names_files_of_this_version_only() {
    let document = text(document().unwrap());
    assert!(!document.contains("{{"), "a placeholder is left");
    let mut count = 0;
    for reference in document
        .split(['"', '\''])
        .map(|part| part.trim_start_matches("./"))
        .filter(|part| part.starts_with("page/"))
    {
        let name = reference.strip_prefix(&format!("page/{VERSION}/"));
        assert!(find_file(name.unwrap()).is_some(), "{reference}");
        count += 1;
    }
    assert_eq!(
        count,
        files().len(),
        "each file but the document once, and the module that the first script imports"
    );
}

/// The part of a text between two others.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("{begin}"));
    rest.split_once(end).unwrap_or_else(|| panic!("{end}")).0
}

/// The document has all that a browser needs for its first picture; the modules begin after it.
#[test]
fn document_is_painted_without_another_file() {
    let document = text(document().unwrap());
    let style = between(document, "<style>", "</style>");
    let script = between(document, "<script type=\"module\">", "</script>");
    for (inline, rule) in [
        (style, "style-src 'sha256-"),
        (script, "script-src 'self' 'sha256-"),
    ] {
        let hash = STANDARD.encode(Sha256::digest(inline));
        assert_eq!(between(POLICY, rule, "'"), hash, "{rule}");
        assert!(!inline.contains(['<', '\r']) && !inline.contains("url("));
    }
    assert!(!POLICY.contains("unsafe"), "{POLICY}");
    assert!(!document.contains("rel=\"stylesheet\"") && !document.contains("<img"));
    assert_eq!(
        document.matches("<script").count(),
        1,
        "the one that begins"
    );
    let modules = between(document, "<template id=\"modules\">", "</template>");
    let rest = document.replace(modules, "");
    assert!(modules.contains("main.js") && !rest.contains("modulepreload"));
    assert!(rest.contains("Write a message") && rest.contains("River"));
}

#[test]
fn files_hold_nothing_that_the_policy_forbids() {
    let forbidden = [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "http://",
        "style=",
        "onclick=",
        "javascript:",
        "import(",
    ];
    for file in files() {
        let lines = text(file).lines();
        // Types are imported in comments.
        let code: String = lines.filter(|line| !line.contains("www.w3.org")).collect();
        let code = code.replace("import('./", "");
        for word in forbidden {
            assert!(!code.contains(word), "{}: {word}", file.name);
        }
        assert!(
            !code.contains("https://") || file.name.ends_with("markdown_inline.js"),
            "{}",
            file.name
        );
        assert!(text(file).lines().count() <= LINES_MAX, "{}", file.name);
    }
}

/// A line without the comments within it, and without one that begins in it.
fn without_comments(line: &str) -> String {
    let mut parts = line.split("/** ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |code, part| {
        let after = part.split_once("*/").map_or("", |(_, after)| after);
        code + after.trim_start()
    })
}

/// What the build leaves out is comments: each other line of a source is in the file, in its order.
#[test]
fn files_are_the_sources_without_lines_of_comments() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("files");
    for file in files().iter().filter(|file| file.name != "index.html") {
        let source = std::fs::read_to_string(folder.join(file.name)).unwrap();
        let lines = source.lines().map(str::trim).map(without_comments);
        let code = lines.filter(|line| !line.starts_with(['/', '*']));
        let code: Vec<String> = code.collect();
        let mut lines = code.iter();
        for line in text(file).lines().map(str::trim) {
            assert!(
                lines.any(|of_source| of_source == line),
                "{}: {line}",
                file.name
            );
        }
        let marks = |text: &str| text.matches(['{', ';']).count();
        let wanted: usize = code.iter().map(|line| marks(line)).sum();
        assert!(marks(text(file)) >= wanted, "{}", file.name);
    }
}

#[test]
fn modules_import_modules_that_are_there() {
    for file in files().iter().filter(|file| file.name.ends_with(".js")) {
        for (at, _) in text(file).match_indices("from './") {
            let name = text(file)[at + "from './".len()..]
                .split('\'')
                .next()
                .unwrap();
            assert!(find_file(name).is_some(), "{}: {name}", file.name);
        }
    }
}

/// The tests of the modules run in node, which is not everywhere.
#[test]
fn modules_pass_their_own_tests() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node");
    let Some(node) = find_program("node", "TEST_NODE") else {
        return;
    };
    let output = Command::new(node).arg("--test").arg(&folder).output();
    let output = output.expect("node starts");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
    let passed = told.lines().find_map(|line| line.strip_prefix("# pass "));
    let passed = passed.and_then(|count| count.trim().parse::<u32>().ok());
    assert!(passed.is_some_and(|count| count >= 20), "{told}");
}
