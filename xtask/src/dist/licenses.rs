//! The license texts of what is in the binary, each text once: crates, also the C code in their archives, the Rust standard
//! library, and the C library of static binaries.

use super::components::{Component, Components};
use crate::shell::{output, root};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

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

/// Folders below a crate's own in which texts are looked for: mimalloc's is in `c_src/mimalloc/v3`.
const DEPTH_MAX: usize = 4;

/// The listing of a binary for this target.
pub(super) fn complete(components: &Components, target: &str) -> Result<String, String> {
    let mut out = listing(components)?;
    append(&mut out, "the Rust standard library", &standard_library()?);
    if target.ends_with("-musl") {
        let path = root().join("deploy/licenses/musl.txt");
        let text =
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        append(&mut out, "musl, the C library of this static binary", &text);
    }
    Ok(out)
}

fn append(out: &mut String, name: &str, text: &str) {
    // Writing to a string cannot fail.
    let _ = write!(out, "\n{}\n{name}\n\n{}\n", "=".repeat(80), text.trim());
}

/// The notices that come with the compiler, as text.
fn standard_library() -> Result<String, String> {
    let sysroot = output(
        Command::new("rustc")
            .args(["--print", "sysroot"])
            .current_dir(root()),
    )?;
    let sysroot = String::from_utf8_lossy(&sysroot).trim().to_owned();
    let path = Path::new(&sysroot).join("share/doc/rust/COPYRIGHT-library.html");
    let html = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(text_of_html(&html))
}

/// The text of a page without its tags; lines without text are dropped but one.
pub(super) fn text_of_html(html: &str) -> String {
    let html = html.split_once("<body").map_or(html, |(_, body)| body);
    let mut parts = html.split('<');
    let mut text = String::new();
    if let Some((_, first)) = parts.next().and_then(|first| first.split_once('>')) {
        text.push_str(first);
    }
    for (_, after) in parts.filter_map(|part| part.split_once('>')) {
        text.push_str(after);
    }
    for (entity, character) in [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#x27;", "'"),
        ("&#39;", "'"),
        ("&amp;", "&"),
    ] {
        text = text.replace(entity, character);
    }
    let mut out = String::new();
    for line in text.lines().map(str::trim_end) {
        if !line.trim().is_empty() || !out.ends_with("\n\n") {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

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
    if is_absent {
        format!(
            " (no text in its archive: https://crates.io/crates/{})",
            component.name
        )
    } else {
        String::new()
    }
}

/// The license texts in a folder of sources.
fn texts_of(folder: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    gather(folder, DEPTH_MAX, &mut texts);
    texts
}

fn gather(folder: &Path, depth: usize, texts: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
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
    let mut entries: Vec<_> = entries.flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::path);
    for path in entries
        .iter()
        .map(std::fs::DirEntry::path)
        .filter(is_license)
    {
        if let Ok(text) = std::fs::read_to_string(&path) {
            let text = text.replace("\r\n", "\n");
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
    }
    let is_folder = |entry: &&std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    if depth > 0 {
        for entry in entries.iter().filter(is_folder) {
            gather(&entry.path(), depth - 1, texts);
        }
    }
}
