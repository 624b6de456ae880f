//! Files with the towers of models that see images (`mmproj`), and where they are looked for: next to the model's file.

use super::source::model_stem;
use std::path::{Path, PathBuf};

/// Part of the name of such a file.
const MARK: &str = "mmproj";
/// Ending of a tower that `pull` stored next to its model.
const PULLED_ENDING: &str = ".mmproj.gguf";
/// Directory entries examined.
const ENTRIES_MAX: usize = 10_000;
/// Files that are opened to find one that fits.
const TOWERS_MAX: usize = 32;

/// Whether a file's name says that it is a tower.
pub(crate) fn is_tower_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with(".gguf") && name.contains(MARK)
}

/// Whether a path is that of a tower, by its name.
pub(crate) fn is_tower(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(is_tower_name)
}

/// Where `pull` stores the tower of the model with this first file.
pub(crate) fn pulled_tower(model: &Path) -> PathBuf {
    model.with_file_name(model_stem(model) + PULLED_ENDING)
}

/// Towers in the model's folder: the one that `pull` stored with it alone, or else all, by name.
pub(crate) fn towers_beside(model: &Path) -> Vec<PathBuf> {
    let pulled = pulled_tower(model);
    if pulled.is_file() {
        return vec![pulled];
    }
    let folder = match model.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = entries
        .take(ENTRIES_MAX)
        .flatten()
        .map(|entry| entry.path());
    let is_other = |path: &PathBuf| !path.to_string_lossy().ends_with(PULLED_ENDING);
    let mut found: Vec<_> = paths
        .filter(|path| is_tower(path) && is_other(path) && path.is_file())
        .collect();
    found.sort();
    found.truncate(TOWERS_MAX);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::folder::Folder;

    fn names(found: Vec<PathBuf>) -> Vec<String> {
        let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        found.into_iter().map(name).collect()
    }

    #[test]
    fn towers_are_known_by_their_names() {
        for (name, is) in [
            ("mmproj-F16.gguf", true),
            ("SmolVLM.mmproj-Q8_0.GGUF", true),
            ("a.mmproj.gguf", true),
            ("mmproj.bin", false),
            ("SmolVLM-Q8_0.gguf", false),
        ] {
            assert_eq!(is_tower(Path::new(name)), is, "{name}");
        }
    }

    #[test]
    fn pulled_tower_comes_alone_and_belongs_to_its_model() {
        let folder = Folder::new("towers-beside");
        let at = |name: &str| folder.0.join(name);
        for name in ["m-Q8_0.gguf", "n.gguf", "mmproj-F16.gguf", "b-mmproj.gguf"] {
            std::fs::write(at(name), "").unwrap();
        }
        std::fs::write(at("m-Q8_0.mmproj.gguf"), "").unwrap();
        let beside = |name: &str| names(towers_beside(&at(name)));
        assert_eq!(beside("m-Q8_0.gguf"), ["m-Q8_0.mmproj.gguf"]);
        assert_eq!(beside("n.gguf"), ["b-mmproj.gguf", "mmproj-F16.gguf"]);
        let part = at("big-00001-of-00002.gguf");
        assert_eq!(pulled_tower(&part), at("big.mmproj.gguf"));
        assert!(towers_beside(Path::new("/no/such/m.gguf")).is_empty());
    }
}
