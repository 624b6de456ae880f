//! The modules of a crate: circles among its files, imports that run up its layers, and type names defined twice.

mod circles;
mod imports;
mod layer_tables;
mod layers;
mod tree;
mod type_names;

use super::File;
use std::collections::BTreeMap;
use tree::ModuleTree;

/// Most files that may import each other in a circle.
const CIRCLE_FILES_MAX: usize = 8;

/// Arrows between the files of one crate: from a file's number to those whose items it names.
type Arrows = Vec<Vec<usize>>;

/// Circles that are too large and arrows that run up. Prints each crate's circles.
pub(crate) fn breaches(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for root in crate_roots(files) {
        let tree = ModuleTree::of_crate(&root, files);
        let arrows = imports::arrows(&tree);
        let name = crate_name(&root);
        let circles = circles::circles(&arrows);
        print_circles(name, &arrows, &circles);
        for circle in circles.iter().filter(|c| c.len() > CIRCLE_FILES_MAX) {
            found.push(circle_breach(name, &tree, circle));
        }
        found.extend(layers::breaches(name, &tree, &arrows));
        found.extend(type_names::breaches(name, &tree));
    }
    found
}

/// Prints every import between the files of one crate as `from -> to`.
pub(crate) fn print_imports(name: &str, files: &[File]) {
    let roots = crate_roots(files);
    for root in roots.iter().filter(|root| crate_name(root) == name) {
        let tree = ModuleTree::of_crate(root, files);
        for (from, targets) in imports::arrows(&tree).iter().enumerate() {
            for &to in targets {
                println!("{} -> {}", tree.path(from), tree.path(to));
            }
        }
    }
}

/// `lib.rs` of each crate, or its `main.rs` where there is no library.
fn crate_roots(files: &[File]) -> Vec<String> {
    let mut roots: BTreeMap<&str, &str> = BTreeMap::new();
    for file in files {
        let Some(rest) = file.path.strip_prefix("crates/") else {
            continue;
        };
        let Some((name, within)) = rest.split_once('/') else {
            continue;
        };
        if within == "src/lib.rs" || (within == "src/main.rs" && !roots.contains_key(name)) {
            roots.insert(name, &file.path);
        }
    }
    roots.values().map(|&path| path.to_owned()).collect()
}

fn crate_name(root: &str) -> &str {
    root.split('/').nth(1).unwrap_or(root)
}

fn print_circles(name: &str, arrows: &Arrows, circles: &[Vec<usize>]) {
    let count: usize = arrows.iter().map(Vec::len).sum();
    let sizes: Vec<String> = circles.iter().map(|c| c.len().to_string()).collect();
    let sizes = if sizes.is_empty() {
        "none".to_owned()
    } else {
        sizes.join(", ")
    };
    println!(
        "   {name}: {} files, {count} imports between them, circles of files: {sizes}",
        arrows.len()
    );
}

fn circle_breach(name: &str, tree: &ModuleTree, circle: &[usize]) -> String {
    let paths: Vec<&str> = circle.iter().map(|&file| tree.path(file)).collect();
    format!(
        "crate `{name}`: {} files import each other in a circle (at most {CIRCLE_FILES_MAX}): {}",
        circle.len(),
        paths.join(", ")
    )
}
