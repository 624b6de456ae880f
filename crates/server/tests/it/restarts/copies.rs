//! A server whose journal is copied while the server runs.

use crate::support::Rig;
use crate::support::named::get;
use engine::fake::FakeConfig;
use serde_json::Value;
use server::ServerConfig;
use std::fs;
use std::path::{Path, PathBuf};
use testing::folder::Folder;

/// A running server with a journal in a folder.
pub(crate) struct Journaled {
    pub(crate) rig: Rig,
    folder: Folder,
}

/// A copy of a journal.
pub(crate) struct Copied(Folder);

impl Journaled {
    /// A gated server with an empty journal.
    pub(crate) fn gated(name: &str, fake: FakeConfig, config: ServerConfig) -> Self {
        Self::over(Folder::new(name), fake, config)
    }

    fn over(folder: Folder, fake: FakeConfig, config: ServerConfig) -> Self {
        Rig::set_next_directory(journal_path(&folder));
        let rig = Rig::gated(fake, config);
        Self { rig, folder }
    }

    /// The journal as a kill at this moment would leave it.
    pub(crate) fn copy(&self) -> Copied {
        let copy = Folder::new("copy");
        let (from, to) = (journal_path(&self.folder), journal_path(&copy));
        fs::create_dir_all(&to).unwrap();
        for file in fs::read_dir(&from).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
        Copied(copy)
    }

    /// The stream's description in the API.
    pub(crate) fn describe(&self, id: &str) -> Value {
        get(&self.rig, &format!("/v1/streams/{id}"), "").json()
    }

    /// Tokens that readers see.
    pub(crate) fn shown_tokens(&self, id: &str) -> u64 {
        self.describe(id)["completion_tokens"].as_u64().unwrap()
    }
}

impl Copied {
    /// A gated server on the copy.
    pub(crate) fn start(self, fake: FakeConfig, config: ServerConfig) -> Journaled {
        Journaled::over(self.0, fake, config)
    }
}

fn journal_path(folder: &Folder) -> PathBuf {
    Path::new(&folder.0).join("journal")
}
