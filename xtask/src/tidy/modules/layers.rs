//! Layers inside a crate: a module may name items of its own layer, unless that is one of siblings, and of those below.

use super::Arrows;
use super::layer_tables::{LAYERS, Layer, SIBLINGS};
use super::tree::ModuleTree;

/// Arrows that run up today, one `from -> to` a line; the list may only shrink.
const EXCEPTIONS: &str = include_str!("exceptions.txt");

/// Arrows that run up and are not listed, and listed arrows and modules that are gone.
pub(super) fn breaches(name: &str, tree: &ModuleTree, arrows: &Arrows) -> Vec<String> {
    let Some((_, layers)) = LAYERS.iter().find(|row| row.0 == name) else {
        return Vec::new();
    };
    let folder = format!("crates/{name}/");
    let listed: Vec<&str> = EXCEPTIONS
        .lines()
        .filter(|line| line.starts_with(&folder))
        .collect();
    let mut found = arrow_breaches(&upward(layers, tree, arrows), &listed);
    found.extend(gone_modules(name, layers, tree));
    for (_, siblings) in SIBLINGS.iter().filter(|row| row.0 == name) {
        found.extend(sideways(siblings, tree, arrows));
    }
    found
}

/// Arrows between siblings.
fn sideways(siblings: &[&str], tree: &ModuleTree, arrows: &Arrows) -> Vec<String> {
    let sibling = |module: usize| {
        let top = tree.modules[module].name.first();
        siblings
            .iter()
            .position(|name| top.is_some_and(|top| top == name))
    };
    let all = arrows.iter().enumerate();
    let all = all.flat_map(|(from, targets)| targets.iter().map(move |&to| (from, to)));
    all.filter(|&(from, to)| matches!((sibling(from), sibling(to)), (Some(a), Some(b)) if a != b))
        .map(|(from, to)| {
            let (from, to) = (tree.path(from), tree.path(to));
            format!("names a sibling (xtask/src/tidy/modules/layer_tables.rs): {from} -> {to}")
        })
        .collect()
}

fn arrow_breaches(up: &[String], listed: &[&str]) -> Vec<String> {
    let unlisted = up
        .iter()
        .filter(|arrow| !listed.contains(&arrow.as_str()))
        .map(|arrow| format!("runs up a layer of xtask/src/tidy/modules/layer_tables.rs: {arrow}"));
    let gone = listed
        .iter()
        .filter(|listed| !up.iter().any(|arrow| arrow == *listed))
        .map(|arrow| format!("is gone, take it from exceptions.txt: {arrow}"));
    unlisted.chain(gone).collect()
}

/// Modules that have a layer and no longer a file.
fn gone_modules(name: &str, layers: &[Layer], tree: &ModuleTree) -> Vec<String> {
    let listed = layers.iter().copied().flatten();
    let exists = |module: &str| tree.modules.iter().any(|m| m.name == [module]);
    listed
        .filter(|module| !exists(module))
        .map(|module| {
            format!("crate `{name}` has no module `{module}`, take it from layer_tables.rs")
        })
        .collect()
}

fn upward(layers: &[Layer], tree: &ModuleTree, arrows: &Arrows) -> Vec<String> {
    let layer = |module: usize| layer_of(layers, &tree.modules[module].name);
    let mut up = Vec::new();
    for (from, targets) in arrows.iter().enumerate() {
        for &to in targets {
            if let (Some(low), Some(high)) = (layer(from), layer(to))
                && low < high
            {
                up.push(format!("{} -> {}", tree.path(from), tree.path(to)));
            }
        }
    }
    up
}

/// `None` for the crate's root file.
fn layer_of(layers: &[Layer], name: &[String]) -> Option<usize> {
    let top = name.first()?;
    let listed = layers
        .iter()
        .position(|layer| layer.contains(&top.as_str()));
    Some(listed.unwrap_or(layers.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::File;
    use crate::tidy::modules::imports;

    const TABLE: [Layer; 2] = [&["low"], &["middle", "gone"]];

    fn tree() -> ModuleTree {
        let files = [
            ("src/lib.rs", "mod low;\nmod middle;\nmod top;\n"),
            ("src/low.rs", "use crate::middle::A;\n"),
            ("src/middle.rs", "use crate::low::B;\nstruct A;\n"),
            ("src/top.rs", "use crate::low::B;\nuse crate::middle::A;\n"),
        ];
        let files = files.map(|(path, text)| File {
            path: path.to_owned(),
            text: text.to_owned(),
        });
        ModuleTree::of_crate("src/lib.rs", &files)
    }

    #[test]
    fn arrow_that_runs_up_is_a_breach_unless_listed() {
        let tree = tree();
        let up = upward(&TABLE, &tree, &imports::arrows(&tree));
        assert_eq!(up, ["src/low.rs -> src/middle.rs"]);
        assert_eq!(arrow_breaches(&up, &[&up[0]]), [""; 0]);
        assert_eq!(arrow_breaches(&up, &[]).len(), 1);
        assert_eq!(
            arrow_breaches(&[], &[&up[0]]).len(),
            1,
            "a listed arrow is gone"
        );
    }

    #[test]
    fn arrow_between_siblings_is_a_breach() {
        let tree = tree();
        let arrows = imports::arrows(&tree);
        let found = sideways(&["middle", "top"], &tree, &arrows);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].ends_with("src/top.rs -> src/middle.rs"),
            "{found:?}"
        );
        assert_eq!(sideways(&["low", "top"], &tree, &arrows).len(), 1);
        assert_eq!(sideways(&["top"], &tree, &arrows), [""; 0]);
    }

    #[test]
    fn module_without_a_file_is_a_breach() {
        let found = gone_modules("a", &TABLE, &tree());
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("`gone`"), "{}", found[0]);
    }
}
