//! A disk in memory: written bytes are cached until a sync, a power loss keeps any part of the others, and calls fail
//! as the test wants.

use journal::{FileSystem, JournalFile};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use testing::random::Random;

/// Bytes that are kept or lost together.
const PAGE_BYTES: usize = 64;

/// What a call does instead of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Full,
    Broken,
    /// Everything is written, and the call fails nevertheless.
    Late,
    Interrupted,
    /// One byte is written.
    Short,
}

/// Which calls fail, by their number.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultPlan {
    /// First failing write, the last one, and how it fails.
    pub(crate) writes: Option<(u64, u64, Fault)>,
    /// First failing sync and the last one.
    pub(crate) syncs: Option<(u64, u64)>,
    /// Bytes that the disk can hold.
    pub(crate) capacity: Option<u64>,
    /// Whether a failed write cannot be cut off.
    pub(crate) cuts_fail: bool,
}

#[derive(Clone, Debug, Default)]
struct Inode {
    cached: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
    has_failed_sync: bool,
    /// Whether the writer knows of a failed sync: then the file must not be used again.
    is_broken: bool,
}

#[derive(Clone, Debug, Default)]
struct Disk {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    is_locked: bool,
    faults: FaultPlan,
    writes: u64,
    syncs: u64,
}

/// The directory of one journal.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelDisk(Arc<Mutex<Disk>>);

#[derive(Debug)]
pub(crate) struct ModelFile {
    disk: ModelDisk,
    inode: usize,
}

#[derive(Debug)]
pub(crate) struct ModelLock(ModelDisk);

impl Drop for ModelLock {
    fn drop(&mut self) {
        self.0.lock().is_locked = false;
    }
}

impl ModelDisk {
    fn lock(&self) -> MutexGuard<'_, Disk> {
        // A test that fails drops its writer, which unlocks the journal.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_faults(&self, faults: FaultPlan) {
        self.lock().faults = faults;
    }

    /// The writer knows the results of all syncs: from now on files whose sync failed must not be used.
    pub(crate) fn note_failed_syncs(&self) {
        for inode in &mut self.lock().inodes {
            inode.is_broken = inode.has_failed_sync;
        }
    }

    /// Calls of write and sync so far.
    pub(crate) fn calls(&self) -> (u64, u64) {
        let disk = self.lock();
        (disk.writes, disk.syncs)
    }

    /// The files after the process died: everything that was written.
    pub(crate) fn after_kill(&self) -> Self {
        let mut disk = self.lock().clone();
        disk.is_locked = false;
        disk.faults = FaultPlan::default();
        for inode in &mut disk.inodes {
            inode.has_failed_sync = false;
            inode.is_broken = false;
        }
        Self(Arc::new(Mutex::new(disk)))
    }

    /// The files after a power loss: what was synced, and of the rest any pages.
    pub(crate) fn after_power_loss(&self, random: &mut Random) -> Self {
        let survivor = self.after_kill();
        let mut disk = survivor.lock();
        let disk = &mut *disk;
        for inode in &mut disk.inodes {
            inode.lose_pages(random);
        }
        // Changes of the directory reach the disk in order, so a prefix of them survives: here all or none.
        if random.chance(50) {
            disk.names.clone_from(&disk.durable_names);
        }
        drop(std::mem::take(&mut disk.durable_names));
        disk.durable_names.clone_from(&disk.names);
        survivor.clone()
    }

    /// Names of the segments in order.
    pub(crate) fn segments(&self) -> Vec<String> {
        let disk = self.lock();
        let mut names: Vec<String> = disk.names.keys().cloned().collect();
        names.retain(|name| name.ends_with(".log"));
        names.sort_by_key(|name| name[17..].to_owned());
        names
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        let disk = self.lock();
        disk.inodes[disk.names[name]].cached.clone()
    }

    /// Replaces a file's bytes, also on the disk.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) {
        let mut disk = self.lock();
        let inode = disk.inodes.len();
        let bytes = bytes.to_vec();
        disk.inodes.push(Inode {
            cached: bytes.clone(),
            durable: bytes,
            dirty: BTreeSet::new(),
            has_failed_sync: false,
            is_broken: false,
        });
        disk.names.insert(name.to_owned(), inode);
        disk.durable_names.insert(name.to_owned(), inode);
    }

    pub(crate) fn remove(&self, name: &str) {
        self.lock().names.remove(name);
        self.lock().durable_names.remove(name);
    }

    /// Bytes of all segments.
    pub(crate) fn segment_bytes(&self) -> u64 {
        let disk = self.lock();
        let segments = disk.names.iter().filter(|(name, _)| name.ends_with(".log"));
        segments
            .map(|(_, inode)| disk.inodes[*inode].cached.len() as u64)
            .sum()
    }

    /// A copy that shares nothing with this one.
    pub(crate) fn fork(&self) -> Self {
        self.after_kill()
    }
}

impl Disk {
    fn used(&self) -> u64 {
        self.names
            .values()
            .map(|inode| self.inodes[*inode].cached.len() as u64)
            .sum()
    }

    fn write_fault(&mut self) -> Option<Fault> {
        self.writes += 1;
        let (first, last, fault) = self.faults.writes?;
        (first..=last).contains(&self.writes).then_some(fault)
    }
}

impl Inode {
    fn write(&mut self, bytes: &[u8], offset: usize) {
        let end = offset + bytes.len();
        self.cached.resize(self.cached.len().max(end), 0);
        self.cached[offset..end].copy_from_slice(bytes);
        self.dirty
            .extend(offset / PAGE_BYTES..=end.saturating_sub(1) / PAGE_BYTES);
    }

    fn sync(&mut self) {
        self.durable.resize(self.cached.len(), 0);
        for page in std::mem::take(&mut self.dirty) {
            self.copy_page(page);
        }
    }

    fn copy_page(&mut self, page: usize) {
        let start = (page * PAGE_BYTES).min(self.durable.len());
        let end = (start + PAGE_BYTES)
            .min(self.durable.len())
            .min(self.cached.len());
        if start < end {
            self.durable[start..end].copy_from_slice(&self.cached[start..end]);
        }
    }

    fn lose_pages(&mut self, random: &mut Random) {
        let grown = self.cached.len().saturating_sub(self.durable.len()) as u64;
        let kept = if grown == 0 {
            0
        } else {
            random.below(grown + 1)
        };
        self.durable.resize(self.durable.len() + kept as usize, 0);
        for page in std::mem::take(&mut self.dirty) {
            if random.chance(60) {
                self.copy_page(page);
            }
        }
        self.cached.clone_from(&self.durable);
    }
}

fn error(fault: Fault) -> io::Error {
    match fault {
        Fault::Full => ErrorKind::StorageFull.into(),
        Fault::Broken | Fault::Late => io::Error::from_raw_os_error(5),
        Fault::Interrupted | Fault::Short => ErrorKind::Interrupted.into(),
    }
}

impl FileSystem for ModelDisk {
    type File = ModelFile;
    type Lock = ModelLock;

    fn lock_journal(&self) -> io::Result<ModelLock> {
        if std::mem::replace(&mut self.lock().is_locked, true) {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(ModelLock(self.clone()))
    }

    fn list_files(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().names.keys().cloned().collect())
    }

    fn create_file(&self, name: &str) -> io::Result<ModelFile> {
        let mut disk = self.lock();
        if disk
            .faults
            .capacity
            .is_some_and(|capacity| disk.used() >= capacity)
        {
            return Err(error(Fault::Full));
        }
        let inode = disk.inodes.len();
        disk.inodes.push(Inode::default());
        disk.names.insert(name.to_owned(), inode);
        let disk = self.clone();
        Ok(ModelFile { disk, inode })
    }

    fn open_file(&self, name: &str) -> io::Result<ModelFile> {
        let inode = *self.lock().names.get(name).ok_or(ErrorKind::NotFound)?;
        let disk = self.clone();
        Ok(ModelFile { disk, inode })
    }

    fn rename_file(&self, from: &str, to: &str) -> io::Result<()> {
        let mut disk = self.lock();
        let inode = disk.names.remove(from).ok_or(ErrorKind::NotFound)?;
        disk.names.insert(to.to_owned(), inode);
        Ok(())
    }

    fn remove_file(&self, name: &str) -> io::Result<()> {
        self.lock()
            .names
            .remove(name)
            .map(|_| ())
            .ok_or(ErrorKind::NotFound.into())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut disk = self.lock();
        disk.durable_names = disk.names.clone();
        Ok(())
    }

    fn location(&self) -> String {
        "model".to_owned()
    }
}

impl JournalFile for ModelFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let disk = self.disk.lock();
        let cached = &disk.inodes[self.inode].cached;
        let rest = cached.get(offset as usize..).unwrap_or_default();
        let bytes = rest.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&rest[..bytes]);
        Ok(bytes)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut disk = self.disk.lock();
        let mut bytes = bytes;
        let is_broken = disk.inodes[self.inode].is_broken;
        assert!(!is_broken, "a file is written after a failed sync");
        match disk.write_fault() {
            Some(Fault::Short) => bytes = &bytes[..1.min(bytes.len())],
            Some(fault) => {
                // A part of the bytes may have been written nevertheless.
                let part = match fault {
                    Fault::Broken => bytes.len() / 2,
                    Fault::Late => bytes.len(),
                    _ => 0,
                };
                if part > 0 {
                    disk.inodes[self.inode].write(&bytes[..part], offset as usize);
                }
                return Err(error(fault));
            }
            None => {}
        }
        if let Some(capacity) = disk.faults.capacity {
            let size = disk.inodes[self.inode].cached.len() as u64;
            let free = capacity.saturating_sub(disk.used());
            let possible = (size + free).saturating_sub(offset).min(bytes.len() as u64);
            bytes = &bytes[..possible as usize];
            if bytes.is_empty() {
                return Err(error(Fault::Full));
            }
        }
        disk.inodes[self.inode].write(bytes, offset as usize);
        Ok(bytes.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.disk.lock();
        disk.syncs += 1;
        let is_broken = disk.inodes[self.inode].is_broken;
        assert!(!is_broken, "a file is synced after a failed sync");
        let calls = disk.syncs;
        let inode = self.inode;
        if disk
            .faults
            .syncs
            .is_some_and(|(first, last)| (first..=last).contains(&calls))
        {
            // As on Linux: the pages look clean afterwards and are not written again.
            disk.inodes[inode].dirty.clear();
            disk.inodes[inode].has_failed_sync = true;
            return Err(error(Fault::Broken));
        }
        disk.inodes[inode].sync();
        Ok(())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let mut disk = self.disk.lock();
        if disk.faults.cuts_fail {
            return Err(error(Fault::Broken));
        }
        disk.inodes[self.inode].cached.resize(length as usize, 0);
        Ok(())
    }

    fn byte_length(&self) -> io::Result<u64> {
        Ok(self.disk.lock().inodes[self.inode].cached.len() as u64)
    }
}
