//! A temporary folder of one test.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A new folder with its path, removed with its contents when dropped.
#[derive(Debug)]
pub struct Folder(pub PathBuf);

impl Folder {
    /// Creates a folder that no other test has; `name` is a part of its name.
    ///
    /// # Panics
    /// When the folder cannot be created.
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("millrace-{process}-{number}-{name}"));
        std::fs::create_dir_all(&path).expect("a folder for temporary files");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
