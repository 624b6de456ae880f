//! Links of Markdown pages.

use std::path::{Component, Path, PathBuf};

/// Targets of the links of a page, with the numbers of their lines; code is left out.
pub(crate) fn links(text: &str) -> Vec<(usize, String)> {
    let mut is_code = false;
    let mut found = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
            continue;
        }
        if is_code {
            continue;
        }
        let outside_code: String = line.split('`').step_by(2).collect();
        let targets = outside_code.split("](").skip(1);
        let targets = targets.filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
        found.extend(targets.map(|target| (number, target.to_owned())));
    }
    found
}

/// The file, by its path from the root, and the anchor that a link of a page leads to; `None` for other sites.
pub(crate) fn destination(page: &str, link: &str) -> Option<(String, String)> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    if path.is_empty() {
        return Some((page.to_owned(), anchor.to_owned()));
    }
    let joined = Path::new(page).parent().unwrap_or(Path::new("")).join(path);
    let mut plain = PathBuf::new();
    for part in joined.components() {
        match part {
            Component::ParentDir if plain.pop() => {}
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    Some((plain.to_string_lossy().into_owned(), anchor.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{destination, links};

    #[test]
    fn links_of_a_page_are_found_outside_code() {
        let page = "[a](b.md) and [`c`](../d.md#e)\n```\n[no](no.md)\n```\n`[no](no.md)` [f](#g)";
        let found: Vec<_> = links(page);
        let targets: Vec<_> = found
            .iter()
            .map(|(line, to)| (*line, to.as_str()))
            .collect();
        assert_eq!(targets, [(1, "b.md"), (1, "../d.md#e"), (5, "#g")]);
    }

    #[test]
    fn destination_of_a_link_is_a_path_from_the_root() {
        for (link, expected) in [
            ("b.md", Some(("docs/b.md", ""))),
            ("../d.md#e", Some(("d.md", "e"))),
            ("#g", Some(("docs/page.md", "g"))),
            ("how-to/x.md", Some(("docs/how-to/x.md", ""))),
            ("https://example.com/a.md", None),
        ] {
            let found = destination("docs/page.md", link);
            let found = found
                .as_ref()
                .map(|(path, anchor)| (path.as_str(), anchor.as_str()));
            assert_eq!(found, expected, "{link}");
        }
    }
}
