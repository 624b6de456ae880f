//! The modules of a crate: which file declares which, what each re-exports, and where a path leads.

use crate::tidy::File;
use std::collections::BTreeMap;
use syn::{Item, UseTree, Visibility};

/// One source file, and the module that is its content.
pub(super) struct Module {
    pub(super) file: String,
    /// Names from the crate's root down; empty for the root.
    pub(super) name: Vec<String>,
    pub(super) items: Vec<Item>,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// Name -> path of a `pub use`, as written.
    reexports: BTreeMap<String, Vec<String>>,
    /// Paths of `pub use path::*`.
    globs: Vec<Vec<String>>,
}

/// All modules of a crate that have a file of their own; tests are left out.
pub(super) struct ModuleTree {
    pub(super) modules: Vec<Module>,
}

/// Re-exports that are followed before a path counts as leading nowhere.
const REEXPORTS_MAX: usize = 8;

impl ModuleTree {
    /// Reads the crate from its root file on.
    pub(super) fn of_crate(root: &str, files: &[File]) -> Self {
        let texts: BTreeMap<&str, &str> = files
            .iter()
            .map(|file| (file.path.as_str(), file.text.as_str()))
            .collect();
        let mut tree = Self {
            modules: Vec::new(),
        };
        tree.add(root.to_owned(), &[], None, &texts);
        tree
    }

    pub(super) fn path(&self, module: usize) -> &str {
        &self.modules[module].file
    }

    fn add(
        &mut self,
        file: String,
        name: &[String],
        parent: Option<usize>,
        texts: &BTreeMap<&str, &str>,
    ) -> Option<usize> {
        let parsed = syn::parse_file(texts.get(file.as_str())?).ok()?;
        let number = self.modules.len();
        let folder = child_folder(&file);
        let items: Vec<Item> = parsed.items.into_iter().filter(|i| !is_test(i)).collect();
        let declared: Vec<String> = items.iter().filter_map(declared_file).collect();
        let (reexports, globs) = reexported(&items);
        self.modules.push(Module {
            file,
            name: name.to_vec(),
            items,
            parent,
            children: BTreeMap::new(),
            reexports,
            globs,
        });
        for child in declared {
            let path = [
                format!("{folder}/{child}.rs"),
                format!("{folder}/{child}/mod.rs"),
            ]
            .into_iter()
            .find(|path| texts.contains_key(path.as_str()));
            let mut child_name = name.to_vec();
            child_name.push(child.clone());
            let added = path.and_then(|path| self.add(path, &child_name, Some(number), texts));
            if let Some(added) = added {
                self.modules[number].children.insert(child, added);
            }
        }
        Some(number)
    }

    /// The file whose item a path names, seen from the module `from`; `None` for paths out of the crate.
    pub(super) fn target(&self, from: usize, path: &[String]) -> Option<usize> {
        self.follow(from, path, REEXPORTS_MAX)
    }

    fn follow(&self, from: usize, path: &[String], left: usize) -> Option<usize> {
        let (first, rest) = path.split_first()?;
        let start = match first.as_str() {
            "crate" => 0,
            "self" => from,
            "super" => self.modules[from].parent?,
            name => *self.modules[from].children.get(name)?,
        };
        self.descend(start, rest, left.checked_sub(1)?)
    }

    fn descend(&self, module: usize, path: &[String], left: usize) -> Option<usize> {
        let Some((first, rest)) = path.split_first() else {
            return Some(module);
        };
        let here = &self.modules[module];
        if first == "super" {
            return self.descend(here.parent?, rest, left);
        }
        if let Some(&child) = here.children.get(first) {
            return self.descend(child, rest, left);
        }
        if let Some(path) = here.reexports.get(first) {
            let mut full = path.clone();
            full.extend_from_slice(rest);
            return self.follow(module, &full, left);
        }
        let through_glob = here.globs.iter().find_map(|glob| {
            let mut full = glob.clone();
            full.extend_from_slice(path);
            let to = self.follow(module, &full, left.checked_sub(1)?)?;
            self.defines(to, first).then_some(to)
        });
        Some(through_glob.unwrap_or(module))
    }

    fn defines(&self, module: usize, name: &str) -> bool {
        let here = &self.modules[module];
        here.items
            .iter()
            .filter_map(item_name)
            .any(|item| item == name)
    }
}

/// The folder in which a file's child modules lie.
fn child_folder(file: &str) -> String {
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    match name {
        "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
        _ => file.trim_end_matches(".rs").to_owned(),
    }
}

/// The name of a module that an item declares to be in a file of its own.
fn declared_file(item: &Item) -> Option<String> {
    match item {
        Item::Mod(module) if module.content.is_none() => Some(module.ident.to_string()),
        _ => None,
    }
}

pub(super) fn is_test(item: &Item) -> bool {
    let attributes = match item {
        Item::Mod(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => return false,
    };
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|path| path.is_ident("test"))
    })
}

pub(super) fn item_name(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Fn(item) => item.sig.ident.to_string(),
        Item::Static(item) => item.ident.to_string(),
        Item::Struct(item) => item.ident.to_string(),
        Item::Trait(item) => item.ident.to_string(),
        Item::Type(item) => item.ident.to_string(),
        Item::Union(item) => item.ident.to_string(),
        Item::Macro(item) => item.ident.as_ref()?.to_string(),
        _ => return None,
    })
}

type Reexports = (BTreeMap<String, Vec<String>>, Vec<Vec<String>>);

/// Items that a module's `pub use` and `pub(...) use` give under names of the module.
fn reexported(items: &[Item]) -> Reexports {
    let mut found = Reexports::default();
    for item in items {
        if let Item::Use(item) = item
            && !matches!(item.vis, Visibility::Inherited)
        {
            collect_reexports(&item.tree, &mut Vec::new(), &mut found);
        }
    }
    found
}

fn collect_reexports(tree: &UseTree, prefix: &mut Vec<String>, found: &mut Reexports) {
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            collect_reexports(&path.tree, prefix, found);
            prefix.pop();
        }
        UseTree::Name(name) => {
            let mut full = prefix.clone();
            let mut ident = name.ident.to_string();
            if ident == "self" {
                ident = prefix.last().cloned().unwrap_or_default();
            } else {
                full.push(ident.clone());
            }
            found.0.insert(ident, full);
        }
        UseTree::Rename(rename) => {
            let mut full = prefix.clone();
            full.push(rename.ident.to_string());
            found.0.insert(rename.rename.to_string(), full);
        }
        UseTree::Glob(_) => found.1.push(prefix.clone()),
        UseTree::Group(group) => {
            for tree in &group.items {
                collect_reexports(tree, prefix, found);
            }
        }
    }
}
