//! The web page of the server: its files, compressed when the crate is built.
//!
//! The files are plain ES modules, CSS and HTML in `files/`; nothing is fetched, bundled or minified. How they are sent is
//! decided in `server`; what they do is described in `docs/page.md`.

// `VERSION` and `FILES`, written by the build script.
include!(concat!(env!("OUT_DIR"), "/table.rs"));

/// Rights of the page, as a content security policy: its own files, requests to its server, pictures that it made itself
/// (`blob:`), and by their hashes the one style and the one script that stand in the document. Text never becomes markup.
pub const POLICY: &str = concat!(
    "default-src 'self'; img-src 'self' blob:; style-src 'sha256-",
    env!("PAGE_STYLE_HASH"),
    "'; script-src 'self' 'sha256-",
    env!("PAGE_START_HASH"),
    "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'"
);

/// A file of the page.
#[derive(Debug)]
pub struct PageFile {
    /// Name, without a folder.
    pub name: &'static str,
    /// Value of the header field `Content-Type`.
    pub content_type: &'static str,
    /// Hexadecimal digest of the bytes.
    pub digest: &'static str,
    /// The bytes as they are.
    pub plain: &'static [u8],
    /// The bytes, compressed with gzip.
    pub gzip: &'static [u8],
}

/// All files.
pub fn files() -> &'static [PageFile] {
    &FILES
}

/// The document, whose links name the version.
pub fn document() -> Option<&'static PageFile> {
    find_file("index.html")
}

/// The file with this name.
pub fn find_file(name: &str) -> Option<&'static PageFile> {
    files().iter().find(|file| file.name == name)
}

#[cfg(test)]
mod tests;
