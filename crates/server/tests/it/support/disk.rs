//! A disk for journals: a folder whose writes can be held up, and can fail.

use ::gateway::streams::{StreamFeed, StreamJournal};
use ::journal::{
    FileSystem, JournalConfig, JournalDirectory, JournalFile, Recovered, RecoveredStream,
    open_journal, read_journal,
};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use testing::folder::Folder;

/// What happens to writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// They are done.
    #[default]
    Done,
    /// They wait.
    Held,
    /// They fail: the device is full.
    Full,
}

/// A folder as a disk.
#[derive(Clone, Debug)]
pub struct Disk {
    folder: Arc<Folder>,
    writes: Arc<(Mutex<Writes>, Condvar)>,
    is_waiting: Arc<AtomicBool>,
}

impl Disk {
    /// An empty disk; `name` is a part of the folder's name.
    pub fn new(name: &str) -> Self {
        Self {
            folder: Arc::new(Folder::new(name)),
            writes: Arc::default(),
            is_waiting: Arc::default(),
        }
    }

    /// What happens to writes from now on; held ones go on.
    pub fn set_writes(&self, writes: Writes) {
        *self.writes.0.lock().unwrap() = writes;
        self.writes.1.notify_all();
    }

    /// Whether a write waits.
    pub fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::SeqCst)
    }

    fn directory(&self) -> JournalDirectory {
        JournalDirectory::new(self.path())
    }

    fn path(&self) -> PathBuf {
        self.folder.0.join("journal")
    }

    /// What a process that started now would find.
    pub fn read(&self) -> Recovered {
        read_journal(&self.directory(), 1 << 30).expect("a journal")
    }

    /// The stream of this id, if it is recorded.
    pub fn stream(&self, id: &str) -> Option<RecoveredStream> {
        let id = u128::from_str_radix(id, 16).expect("a stream id");
        self.read()
            .streams
            .into_iter()
            .find(|stream| stream.id == id)
    }

    fn permit_write(&self) -> io::Result<()> {
        let held = |writes: &mut Writes| *writes == Writes::Held;
        let writes = self.writes.0.lock().unwrap();
        self.is_waiting
            .store(*writes == Writes::Held, Ordering::SeqCst);
        let writes = self.writes.1.wait_while(writes, held).unwrap();
        self.is_waiting.store(false, Ordering::SeqCst);
        match *writes {
            Writes::Full => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }
}

/// Opens a journal on this disk and starts its thread; what was there before is forgotten.
pub fn start_journal(disk: impl FileSystem, feed: StreamFeed) -> Arc<StreamJournal> {
    start_journal_with(disk, JournalConfig::default(), feed)
}

/// The same, with these sizes and times.
pub fn start_journal_with(
    disk: impl FileSystem,
    config: JournalConfig,
    feed: StreamFeed,
) -> Arc<StreamJournal> {
    let (writer, recovered) = open_journal(disk, config).expect("a journal");
    let (journal, _adopted) =
        StreamJournal::start(writer, recovered, (feed, None)).expect("a thread");
    journal
}

/// An open file of a [`Disk`].
#[derive(Debug)]
pub struct DiskFile(<JournalDirectory as FileSystem>::File, Disk);

impl FileSystem for Disk {
    type File = DiskFile;
    type Lock = <JournalDirectory as FileSystem>::Lock;

    fn lock_journal(&self) -> io::Result<Self::Lock> {
        self.directory().lock_journal()
    }
    fn list_files(&self) -> io::Result<Vec<String>> {
        self.directory().list_files()
    }
    fn create_file(&self, name: &str) -> io::Result<DiskFile> {
        Ok(DiskFile(self.directory().create_file(name)?, self.clone()))
    }
    fn open_file(&self, name: &str) -> io::Result<DiskFile> {
        Ok(DiskFile(self.directory().open_file(name)?, self.clone()))
    }
    fn rename_file(&self, from: &str, to: &str) -> io::Result<()> {
        self.directory().rename_file(from, to)
    }
    fn remove_file(&self, name: &str) -> io::Result<()> {
        self.directory().remove_file(name)
    }
    fn sync_directory(&self) -> io::Result<()> {
        self.directory().sync_directory()
    }
    fn location(&self) -> String {
        self.directory().location()
    }
}

impl JournalFile for DiskFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.1.permit_write()?;
        self.0.write_at(bytes, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_length(length)
    }
    fn byte_length(&self) -> io::Result<u64> {
        self.0.byte_length()
    }
}
