//! Atomic changes of a key file, one at a time.

use super::KeyFile;
use crate::file_owner;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// A change in progress. The new file is beside the old one under a name that only one process can create, which makes
/// the new file the lock, too; dropping the edit without [`Edit::commit`] leaves the old file unchanged.
#[derive(Debug)]
pub(crate) struct Edit {
    path: PathBuf,
    /// Path of the new file; `None` after the rename.
    beside: Option<PathBuf>,
    new: File,
    pub(crate) file: KeyFile,
}

impl Edit {
    /// Begins to change the file at `path`, which may not exist yet.
    pub(crate) fn begin(path: &Path) -> Result<Self, String> {
        // Links are followed: the rename shall replace the file, not the link.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut beside = path.clone().into_os_string();
        beside.push(".new");
        let beside = PathBuf::from(beside);
        let new = private_files::create_new(&beside).map_err(|why| match why.kind() {
            ErrorKind::AlreadyExists => format!(
                "{}: another process is changing the keys (if it was interrupted, remove this file)",
                beside.display()
            ),
            ErrorKind::NotFound => format!("{}: its folder does not exist", path.display()),
            _ => format!("{}: {why}", beside.display()),
        })?;
        // From here on the drop removes the new file.
        let mut edit = Self {
            path,
            beside: Some(beside),
            new,
            file: KeyFile::default(),
        };
        if edit.path.exists() {
            edit.file = KeyFile::read(&edit.path)?;
        }
        Ok(edit)
    }

    /// Puts the changed file in the old one's place.
    pub(crate) fn commit(mut self) -> Result<(), String> {
        self.file.check()?;
        let yaml = self.file.to_yaml()?;
        self.replace_file(&yaml)
            .map_err(|why| format!("{}: {why}", self.path.display()))
    }

    fn replace_file(&mut self, yaml: &str) -> std::io::Result<()> {
        let folder = self.path.parent().filter(|f| !f.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).to_owned();
        match std::fs::metadata(&self.path) {
            Ok(old) => file_owner::keep_owner(&old, &self.new)?,
            Err(_) => file_owner::give_to_folder(&folder, &self.new)?,
        }
        self.new.write_all(yaml.as_bytes())?;
        self.new.sync_all()?;
        if let Some(beside) = &self.beside {
            std::fs::rename(beside, &self.path)?;
        }
        // The name is free for the next edit, whose file this drop must not remove.
        self.beside = None;
        private_files::sync_directory(&folder)
    }
}

impl Drop for Edit {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            let _ = std::fs::remove_file(beside);
        }
    }
}
