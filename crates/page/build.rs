//! Writes the table of the page's files, plain and compressed, with the digest of their bytes. Lines of comments,
//! comments of types and indentation are left out of scripts and styles; everything else is as in the source.
//!
//! The version is the digest of all files. It is a part of the address of each file but the document, so a browser may keep the
//! files for ever. The style and the first script are parts of the document: a browser paints it without another request. The
//! policy allows these two by their hashes, and no others.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The document; all other files are below the version.
const DOCUMENT: &str = "index.html";
/// Files that stand in the document, and the variable for the hash of each.
const INLINE: [(&str, &str); 2] = [
    ("style.css", "PAGE_STYLE_HASH"),
    ("start.js", "PAGE_START_HASH"),
];
/// Hexadecimal digits of a digest in addresses and entity tags.
const DIGEST_DIGITS: usize = 16;

fn main() -> io::Result<()> {
    let folder = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("files");
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut files = read_files(&folder)?;
    let version = version_of(&files);
    let inline = INLINE.map(|(name, variable)| (name, variable, take_file(&mut files, name)));
    let modules = files.iter().filter(|(name, _)| name.ends_with(".js"));
    let preloads: String = modules
        .map(|(name, _)| {
            format!("<link rel=\"modulepreload\" href=\"page/{{{{version}}}}/{name}\">\n")
        })
        .collect();
    let document = take_file(&mut files, DOCUMENT)?;
    let mut document = document.replace("{{preloads}}", &preloads);
    for (name, variable, text) in inline {
        let text = text?.replace("{{version}}", &version);
        let hash = STANDARD.encode(Sha256::digest(&text));
        println!("cargo:rustc-env={variable}={hash}");
        document = document.replace(&format!("{{{{{name}}}}}"), &text);
    }
    let document = document.replace("{{version}}", &version).into_bytes();
    files.push((DOCUMENT.to_owned(), document));
    write_table(&files, &version, Path::new(&variable("OUT_DIR")?))
}

/// Text of the file with this name, which is taken out of the list.
fn take_file(files: &mut Vec<(String, Vec<u8>)>, wanted: &str) -> io::Result<String> {
    let at = files.iter().position(|(name, _)| name == wanted);
    let at = at.ok_or_else(|| io::Error::other(format!("there is no {wanted}")))?;
    String::from_utf8(files.remove(at).1).map_err(io::Error::other)
}

fn variable(name: &str) -> io::Result<String> {
    env::var(name).map_err(io::Error::other)
}

/// Names and bytes, in the order of the names.
fn read_files(folder: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let bytes = if is_code(&name) {
            without_comments(&fs::read_to_string(&path)?).into_bytes()
        } else {
            fs::read(&path)?
        };
        files.push((name.into_owned(), bytes));
    }
    files.sort();
    Ok(files)
}

fn is_code(name: &str) -> bool {
    let end = Path::new(name).extension();
    end.is_some_and(|end| end == "js" || end == "css")
}

/// The lines that hold more than a comment, without their indentation and types. No file has a text of several lines.
fn without_comments(text: &str) -> String {
    let (mut short, mut in_comment) = (String::new(), false);
    for line in text.lines().map(str::trim) {
        let (begins, ends) = (line.starts_with("/**"), line.contains("*/"));
        let is_comment =
            in_comment || line.starts_with("//") || begins && (!ends || line.ends_with("*/"));
        in_comment = (in_comment || begins) && !ends;
        if !is_comment && !line.is_empty() {
            short.push_str(&without_types(line));
            short.push('\n');
        }
    }
    short
}

/// A line without its comments of types.
fn without_types(line: &str) -> String {
    let (mut short, mut rest) = (String::new(), line);
    while let Some((code, comment)) = rest.split_once("/** @") {
        let Some((_, after)) = comment.split_once("*/") else {
            break;
        };
        short.push_str(code);
        rest = after.trim_start();
    }
    short + rest
}

fn version_of(files: &[(String, Vec<u8>)]) -> String {
    let mut hasher = blake3::Hasher::new();
    for (name, bytes) in files {
        hasher.update(name.as_bytes()).update(&[0]);
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    }
    hasher.finalize().to_hex()[..DIGEST_DIGITS].to_owned()
}

fn write_table(files: &[(String, Vec<u8>)], version: &str, out: &Path) -> io::Result<()> {
    let mut table = format!(
        "/// Digest of all files: a part of the address of each file but the document.\n\
         pub const VERSION: &str = \"{version}\";\nstatic FILES: [PageFile; {}] = [\n",
        files.len()
    );
    for (name, bytes) in files {
        let (plain, gzip) = (out.join(name), out.join(format!("{name}.gz")));
        fs::write(&plain, bytes)?;
        let mut encoder = GzEncoder::new(fs::File::create(&gzip)?, Compression::best());
        encoder.write_all(bytes)?;
        encoder.finish()?;
        let digest = &blake3::hash(bytes).to_hex()[..DIGEST_DIGITS];
        let row = writeln!(
            table,
            "PageFile {{ name: {name:?}, content_type: {:?}, digest: {digest:?}, \
             plain: include_bytes!({plain:?}), gzip: include_bytes!({gzip:?}) }},",
            content_type(name),
        );
        row.map_err(io::Error::other)?;
    }
    table.push_str("];\n");
    fs::write(out.join("table.rs"), table)
}

fn content_type(name: &str) -> &'static str {
    match Path::new(name).extension().and_then(|end| end.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}
