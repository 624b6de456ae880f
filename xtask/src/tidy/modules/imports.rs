//! Paths that a file names: its `use` items, and paths written out in its code.

use super::Arrows;
use super::tree::{ModuleTree, is_test};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;
use syn::{Item, UseTree, Visibility};

/// For each file the files whose items it names, in rising order.
pub(super) fn arrows(tree: &ModuleTree) -> Arrows {
    (0..tree.modules.len())
        .map(|module| {
            let mut named = Named::default();
            for item in &tree.modules[module].items {
                named.visit_item(item);
            }
            let mut to: Vec<usize> = named
                .paths
                .iter()
                .filter_map(|path| tree.target(module, path))
                .filter(|&to| to != module)
                .collect();
            to.sort_unstable();
            to.dedup();
            to
        })
        .collect()
}

#[derive(Default)]
struct Named {
    paths: Vec<Vec<String>>,
}

impl<'ast> Visit<'ast> for Named {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(item) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // A re-export gives a name to others; it is not a use by this file.
        if matches!(item.vis, Visibility::Inherited) {
            self.add_use(&item.tree, &mut Vec::new());
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter().map(|s| s.ident.to_string());
        let segments: Vec<String> = segments.collect();
        if segments.len() > 1 {
            self.paths.push(segments);
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.add_tokens(&call.tokens);
    }

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

impl Named {
    fn add_use(&mut self, tree: &UseTree, prefix: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.add_use(&path.tree, prefix);
                prefix.pop();
            }
            UseTree::Name(name) => {
                let mut full = prefix.clone();
                if name.ident != "self" {
                    full.push(name.ident.to_string());
                }
                self.paths.push(full);
            }
            UseTree::Rename(rename) => {
                let mut full = prefix.clone();
                full.push(rename.ident.to_string());
                self.paths.push(full);
            }
            UseTree::Glob(_) => self.paths.push(prefix.clone()),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_use(tree, prefix);
                }
            }
        }
    }

    /// Paths among the tokens of a macro's call.
    fn add_tokens(&mut self, tokens: &TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens.clone() {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.end_path(&mut path);
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.end_path(&mut path);
                    colons = 0;
                    self.add_tokens(&group.stream());
                }
                _ => {
                    self.end_path(&mut path);
                    colons = 0;
                }
            }
        }
        self.end_path(&mut path);
    }

    fn end_path(&mut self, path: &mut Vec<String>) {
        if path.len() > 1 {
            self.paths.push(std::mem::take(path));
        }
        path.clear();
    }
}
