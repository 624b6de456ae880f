//! The documentation as a site: mdBook over the pages of docs/ and of the root, whose links to each other stay as they are.

use crate::links::{destination, links};
use crate::shell::{self, Outcome, root, target_dir};
use crate::tidy::{File, tracked_files};
use std::path::Path;
use std::process::Command;

/// Builds the site in `target/book/html`, and looks for dead links in it.
pub(crate) fn run() -> Outcome {
    let version = Command::new("mdbook").arg("--version").output();
    if !version.is_ok_and(|told| told.status.success()) {
        return Err(
            "mdbook is not installed: `cargo install mdbook --locked` (minutes)".to_owned(),
        );
    }
    let folder = target_dir()?.join("book");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let pages = stage(&folder)?;
    shell::run(Command::new("mdbook").arg("build").arg(&folder))?;
    let html = folder.join("html");
    let dead: Vec<_> = pages
        .iter()
        .flat_map(|page| dead_links(&html, page))
        .collect();
    if !dead.is_empty() {
        return Err(format!("dead links in the site:\n{}", dead.join("\n")));
    }
    println!(
        "\n== book: {} pages, {}",
        pages.len(),
        html.join("index.html").display()
    );
    Ok(())
}

/// Puts all pages, and the files that they link to, into the folder's `src`, in the tree's own order; returns the pages.
fn stage(folder: &Path) -> Result<Vec<String>, String> {
    let source = folder.join("src");
    let mut pages = Vec::new();
    for File { path, text } in tracked_files()? {
        let is_page = path.ends_with(".md") && (path.starts_with("docs/") || !path.contains('/'));
        if !is_page {
            continue;
        }
        if path == "docs/SUMMARY.md" {
            place(&source.join("SUMMARY.md"), from_the_root(&text).as_bytes())?;
            continue;
        }
        place(&source.join(&path), text.as_bytes())?;
        for (_, link) in links(&text) {
            let other = destination(&path, &link).filter(|(to, _)| !to.ends_with(".md"));
            if let Some((to, _)) = other {
                let bytes =
                    std::fs::read(root().join(&to)).map_err(|e| format!("{path}: {to}: {e}"))?;
                place(&source.join(&to), &bytes)?;
            }
        }
        pages.push(path);
    }
    let config =
        std::fs::read(root().join("docs/book.toml")).map_err(|e| format!("docs/book.toml: {e}"))?;
    place(&folder.join("book.toml"), &config)?;
    Ok(pages)
}

/// The table of contents with links from the root in place of links from docs/.
fn from_the_root(summary: &str) -> String {
    summary.replace("](", "](docs/").replace("](docs/../", "](")
}

fn place(path: &Path, bytes: &[u8]) -> Outcome {
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    std::fs::create_dir_all(path.parent().unwrap_or(path)).map_err(failed)?;
    std::fs::write(path, bytes).map_err(failed)
}

/// Links of a page of the site that lead to no file.
fn dead_links(html: &Path, page: &str) -> Vec<String> {
    let page = page.replace(".md", ".html");
    let Ok(text) = std::fs::read_to_string(html.join(&page)) else {
        return vec![format!("{page} was not written")];
    };
    let targets = ["href=\"", "src=\""]
        .into_iter()
        .flat_map(|name| text.split(name).skip(1));
    let targets = targets.filter_map(|rest| rest.split_once('"').map(|(to, _)| to));
    let found = targets
        .filter(|to| !to.contains(':'))
        .filter_map(|to| destination(&page, to));
    let dead = found.filter(|(path, _)| !html.join(path).exists());
    dead.map(|(path, _)| format!("{page}: {path}")).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn links_of_the_summary_begin_at_the_root() {
        let summary = "[a](../README.md)\n- [b](keys.md)\n  - [c](how-to/README.md)";
        let expected = "[a](README.md)\n- [b](docs/keys.md)\n  - [c](docs/how-to/README.md)";
        assert_eq!(super::from_the_root(summary), expected);
    }
}
