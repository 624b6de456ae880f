//! Links of Markdown pages lead to files and headings that exist, and docs/SUMMARY.md has each page of the documentation.

use super::File;
use crate::links::{destination, links};
use crate::shell::root;
use std::collections::{BTreeMap, BTreeSet};

/// The table of contents of the site.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Every dead link, and every page that the site would not have.
pub(crate) fn breaches(files: &[File]) -> Vec<String> {
    let pages = || files.iter().filter(|file| file.path.ends_with(".md"));
    let anchors: BTreeMap<&str, BTreeSet<String>> = pages()
        .map(|page| (page.path.as_str(), anchors(&page.text)))
        .collect();
    let mut found = Vec::new();
    let mut listed = BTreeSet::from([SUMMARY.to_owned()]);
    for page in pages() {
        for (line, link) in links(&page.text) {
            let Some((path, anchor)) = destination(&page.path, &link) else {
                continue;
            };
            let has_anchor = || {
                anchors
                    .get(path.as_str())
                    .is_none_or(|all| all.contains(&anchor))
            };
            if !root().join(&path).is_file() {
                found.push(format!("{}:{line}: {link} is not a file", page.path));
            } else if !anchor.is_empty() && !has_anchor() {
                found.push(format!("{}:{line}: {path} has no #{anchor}", page.path));
            }
            if page.path == SUMMARY && !listed.insert(path) {
                found.push(format!("{SUMMARY}:{line}: {link} is listed twice"));
            }
        }
    }
    let unlisted =
        pages().filter(|page| page.path.starts_with("docs/") && !listed.contains(&page.path));
    found.extend(unlisted.map(|page| format!("{}: {SUMMARY} does not list this page", page.path)));
    found
}

/// Names of places in a page: headings as GitHub and mdBook name them, and ids of elements.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        if is_code {
            continue;
        }
        if line.starts_with('#') {
            found.insert(slug(line.trim_start_matches('#')));
        }
        let ids = line.split("id=\"").skip(1);
        found.extend(ids.filter_map(|rest| rest.split_once('"').map(|(id, _)| id.to_owned())));
    }
    found
}

fn slug(heading: &str) -> String {
    let lower = heading.trim().to_lowercase().replace(' ', "-");
    let is_kept = |c: &char| c.is_alphanumeric() || "-_".contains(*c);
    lower.chars().filter(is_kept).collect()
}

#[cfg(test)]
mod tests {
    use super::{SUMMARY, breaches};
    use crate::tidy::File;

    /// A page that exists in the tree; the text is the test's.
    fn page(path: &str, text: &str) -> File {
        let (path, text) = (path.to_owned(), text.to_owned());
        File { path, text }
    }

    #[test]
    fn dead_links_and_unlisted_pages_are_breaches() {
        let summary = page(SUMMARY, "[a](streams.md)\n[b](keys.md)\n[a](streams.md)");
        let streams = page(
            "docs/streams.md",
            "# Streams & more\n[x](gone.md) [y](keys.md#none) [z](#streams--more)",
        );
        let keys = page(
            "docs/keys.md",
            "<a id=\"here\"></a> [x](keys.md#here) [y](https://example.com)",
        );
        let tools = page("docs/tools.md", "# Tools");
        let found = breaches(&[summary, streams, keys, tools]);
        let expected = [
            "docs/SUMMARY.md:3: streams.md is listed twice",
            "docs/streams.md:2: gone.md is not a file",
            "docs/streams.md:2: docs/keys.md has no #none",
            "docs/tools.md: docs/SUMMARY.md does not list this page",
        ];
        assert_eq!(found, expected);
    }
}
