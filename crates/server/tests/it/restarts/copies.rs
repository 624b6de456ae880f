//! A server whose journal is copied while the server runs.

use crate::support::named::get;
use crate::support::{Rig, wait_until};
use engine::EngineConfig;
use engine::fake::FakeConfig;
use journal::{
    JournalConfig, JournalDirectory, Record, Recovered, RecoveredStream, open_journal, read_journal,
};
use serde_json::Value;
use server::{Keys, ServerConfig};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
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

    /// A gated server on the journal in a folder, which stays.
    pub(crate) fn in_folder(folder: &Path, fake: FakeConfig, config: ServerConfig) -> Self {
        Rig::set_next_directory(folder.join("journal"));
        Self {
            rig: Rig::gated(fake, config),
            folder: Folder::new("none"),
        }
    }

    fn over(folder: Folder, fake: FakeConfig, config: ServerConfig) -> Self {
        let mut loading = Self::loading(folder, fake, config);
        loading.rig.ready();
        loading
    }

    fn loading(folder: Folder, fake: FakeConfig, config: ServerConfig) -> Self {
        Rig::set_next_directory(journal_path(&folder));
        let keys = Arc::new(Keys::anonymous());
        let rig = Rig::early(fake, EngineConfig::default(), config, keys);
        Self { rig, folder }
    }

    /// The streams that a process would find that started now. The one that runs may remove a segment between the list of files and
    /// their contents; then they are read again.
    pub(crate) fn read(&self) -> Recovered {
        let directory = JournalDirectory::new(journal_path(&self.folder));
        let read = || read_journal(&directory, 1 << 30);
        let soon = (0..100).find_map(|_| read().ok());
        soon.unwrap_or_else(|| read().expect("a journal"))
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

    /// All frames of the stream, read after the end, so that their number does not depend on the reader's speed.
    pub(crate) fn whole(&self, id: &str) -> String {
        self.rig.gate.open();
        wait_until("the end", || self.describe(id)["state"] == "ended");
        get(&self.rig, &format!("/v1/streams/{id}/events"), "").body
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

    /// The same, whose model is being loaded.
    pub(crate) fn start_loading(self, fake: FakeConfig, config: ServerConfig) -> Journaled {
        Journaled::loading(self.0, fake, config)
    }

    /// A further process opens an object and dies.
    pub(crate) fn open_stream(self, id: u128, description: &[u8]) -> Self {
        let directory = JournalDirectory::new(journal_path(&self.0));
        let opened = open_journal(directory, JournalConfig::default());
        let (mut writer, _) = opened.expect("no other process has the copy");
        writer.open_stream(id, description).unwrap();
        writer.commit(Duration::ZERO);
        self
    }

    /// A further process appends records and dies.
    pub(crate) fn append(self, record: impl Fn(&RecoveredStream) -> Record<'static>) -> Self {
        let directory = JournalDirectory::new(journal_path(&self.0));
        let opened = open_journal(directory, JournalConfig::default());
        let (mut writer, recovered) = opened.expect("no other process has the copy");
        for stream in &recovered.streams {
            writer.append(stream.key, &record(stream)).unwrap();
        }
        writer.commit(Duration::ZERO);
        self
    }
}

fn journal_path(folder: &Folder) -> PathBuf {
    Path::new(&folder.0).join("journal")
}
