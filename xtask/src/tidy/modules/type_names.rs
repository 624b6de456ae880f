//! Type names that a crate defines more than once: a reader who searches for one finds both.

use super::tree::ModuleTree;
use std::collections::BTreeMap;
use syn::Item;

/// Names that may be defined more than once, one `crate name reason` a line; the list may only shrink.
const REPEATED: &str = include_str!("repeated_types.txt");

/// Names defined more than once and not listed, and listed ones that are unique by now.
pub(super) fn breaches(name: &str, tree: &ModuleTree) -> Vec<String> {
    let repeated = repeated(tree);
    let listed: Vec<&str> = REPEATED
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .filter_map(|rest| rest.split_once(' ').map(|(ident, _reason)| ident))
        .collect();
    let unlisted = repeated
        .iter()
        .filter(|(ident, _)| !listed.contains(&ident.as_str()))
        .map(|(ident, files)| {
            format!(
                "crate `{name}` defines the type name `{ident}` more than once: {}",
                files.join(", ")
            )
        });
    let gone = listed
        .iter()
        .filter(|ident| !repeated.contains_key(**ident))
        .map(|ident| {
            format!("`{name} {ident}` is defined once by now, take it from repeated_types.txt")
        });
    unlisted.chain(gone).collect()
}

/// Names defined more than once, with the files that define them.
fn repeated(tree: &ModuleTree) -> BTreeMap<String, Vec<&str>> {
    let mut found: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for module in &tree.modules {
        for ident in module.items.iter().filter_map(type_name) {
            found.entry(ident).or_default().push(&module.file);
        }
    }
    found.retain(|_, files| files.len() > 1);
    found
}

fn type_name(item: &Item) -> Option<String> {
    match item {
        Item::Struct(item) => Some(item.ident.to_string()),
        Item::Enum(item) => Some(item.ident.to_string()),
        Item::Trait(item) => Some(item.ident.to_string()),
        Item::Type(item) => Some(item.ident.to_string()),
        Item::Union(item) => Some(item.ident.to_string()),
        _ => None,
    }
}
