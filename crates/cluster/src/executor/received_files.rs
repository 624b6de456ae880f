//! Files that gateways have sent for requests: whole ones and parts, until the requests are submitted, and a while longer for
//! the next turn of a conversation. No I/O: `now` is an argument.
//!
//! A file is named by its digest, and is compared with it by the request that uses it. Parts of one file may come from
//! several gateways.

use crate::messages::{FileDigest, FileMessage, FileReply, file_parts};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of all files, and of those that are incomplete.
pub const FILES_BYTES_MAX: usize = 512 << 20;
/// Bytes of files that no request has named for [`FILE_WAIT`].
pub const IDLE_FILES_BYTES_MAX: usize = 64 << 20;
/// Files, whole ones and incomplete ones: they may be empty.
const FILES_COUNT_MAX: usize = 4096;
/// Time that a file is kept for the request that follows, and an incomplete one for its next part.
pub const FILE_WAIT: Duration = Duration::from_secs(20);

/// The files of one engine process.
#[derive(Debug, Default)]
pub struct ReceivedFiles {
    files: BTreeMap<FileDigest, ReceivedFile>,
    /// Bytes that the files have when they are whole.
    bytes: usize,
}

#[derive(Debug)]
struct ReceivedFile {
    content: FileContent,
    bytes: usize,
    used: Instant,
}

#[derive(Debug)]
enum FileContent {
    Whole(Arc<[u8]>),
    /// By number; `None`: missing.
    Parts(Vec<Option<Vec<u8>>>),
}

impl ReceivedFiles {
    /// Takes a message of a gateway, and answers it.
    pub fn take(&mut self, message: FileMessage, now: Instant) -> FileReply {
        match message {
            FileMessage::Lacking(digests) => {
                let places = digests.iter().enumerate();
                let lacking = places.filter(|(_, digest)| self.get(digest, now).is_none());
                let lacking = lacking.map(|(place, _)| u32::try_from(place).unwrap_or(u32::MAX));
                FileReply::Lacks(lacking.collect())
            }
            FileMessage::Part {
                digest,
                bytes,
                part,
                data,
            } => self.take_part(digest, (bytes, part as usize), data, now),
        }
    }

    /// A whole file, which is kept for [`FILE_WAIT`] from now on.
    pub fn get(&mut self, digest: &FileDigest, now: Instant) -> Option<Arc<[u8]>> {
        let file = self.files.get_mut(digest)?;
        match &file.content {
            FileContent::Whole(bytes) => {
                file.used = now;
                Some(Arc::clone(bytes))
            }
            FileContent::Parts(_) => None,
        }
    }

    /// Removes a file: its bytes are not those of the digest.
    pub fn remove(&mut self, digest: &FileDigest) {
        if let Some(file) = self.files.remove(digest) {
            self.bytes -= file.bytes;
        }
    }

    /// Drops incomplete files whose parts did not arrive in time, and the least recently used whole ones beyond
    /// [`IDLE_FILES_BYTES_MAX`].
    pub fn drop_idle(&mut self, now: Instant) {
        let is_idle = |file: &&ReceivedFile| now.saturating_duration_since(file.used) >= FILE_WAIT;
        let mut idle: Vec<_> = self
            .files
            .iter()
            .filter(|(_, file)| is_idle(file))
            .map(|(digest, file)| {
                let is_whole = matches!(file.content, FileContent::Whole(_));
                (is_whole, file.used, file.bytes, *digest)
            })
            .collect();
        idle.sort_unstable();
        let mut kept: usize = idle.iter().filter(|one| one.0).map(|one| one.2).sum();
        for (is_whole, _, bytes, digest) in idle {
            if !is_whole {
                self.remove(&digest);
            } else if kept > IDLE_FILES_BYTES_MAX {
                kept -= bytes;
                self.remove(&digest);
            }
        }
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn take_part(
        &mut self,
        digest: FileDigest,
        (bytes, part): (u64, usize),
        data: Vec<u8>,
        now: Instant,
    ) -> FileReply {
        let Ok(bytes) = usize::try_from(bytes) else {
            return FileReply::Invalid;
        };
        // One digest has one length: the file that came before is another one, or was cut.
        if self
            .files
            .get(&digest)
            .is_some_and(|file| file.bytes != bytes)
        {
            self.remove(&digest);
        }
        if !self.files.contains_key(&digest) && !self.make_room(bytes, now) {
            return FileReply::Full;
        }
        let file = self.files.entry(digest).or_insert_with(|| {
            self.bytes += bytes;
            ReceivedFile {
                content: FileContent::Parts(vec![None; file_parts(bytes)]),
                bytes,
                used: now,
            }
        });
        file.used = now;
        FileReply::Taken {
            is_whole: file.add(part, data),
        }
    }

    /// Whether another file of so many bytes has room, after idle ones were dropped.
    fn make_room(&mut self, bytes: usize, now: Instant) -> bool {
        let is_within = |files: &Self| {
            files.bytes + bytes <= FILES_BYTES_MAX && files.files.len() < FILES_COUNT_MAX
        };
        while !is_within(self) {
            let idle = self
                .files
                .iter()
                .filter(|(_, file)| now.saturating_duration_since(file.used) >= FILE_WAIT);
            let oldest = idle.min_by_key(|(_, file)| file.used);
            let Some(digest) = oldest.map(|(digest, _)| *digest) else {
                return false;
            };
            self.remove(&digest);
        }
        true
    }
}

impl ReceivedFile {
    /// Adds a part; a repeated one is ignored. Returns whether the file is whole.
    fn add(&mut self, part: usize, data: Vec<u8>) -> bool {
        let FileContent::Parts(parts) = &mut self.content else {
            return true;
        };
        if let Some(missing @ None) = parts.get_mut(part) {
            *missing = Some(data);
        }
        if parts.iter().any(Option::is_none) {
            return false;
        }
        let parts = std::mem::take(parts);
        let mut whole = Vec::with_capacity(self.bytes);
        parts
            .into_iter()
            .flatten()
            .for_each(|part| whole.extend(part));
        debug_assert_eq!(
            whole.len(),
            self.bytes,
            "parts have the lengths of their places"
        );
        self.content = FileContent::Whole(whole.into());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::FILE_PART_BYTES;

    #[expect(clippy::disallowed_methods, reason = "a start of virtual time")]
    fn start() -> Instant {
        Instant::now()
    }

    const TAKEN: FileReply = FileReply::Taken { is_whole: false };
    const WHOLE: FileReply = FileReply::Taken { is_whole: true };

    fn digest(number: u64) -> FileDigest {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&number.to_le_bytes());
        digest
    }

    fn send(files: &mut ReceivedFiles, number: u64, bytes: usize, now: Instant) -> FileReply {
        let file = vec![number as u8; bytes];
        let parts = 0..file_parts(bytes);
        let take = |part| files.take(FileMessage::part(digest(number), &file, part), now);
        parts.map(take).last().expect("at least one part")
    }

    #[test]
    fn files_are_whole_when_all_parts_are_there_in_any_order() {
        let (mut files, now) = (ReceivedFiles::default(), start());
        let file: Vec<u8> = (0..FILE_PART_BYTES * 2 + 5).map(|i| i as u8).collect();
        let part = |part| FileMessage::part(digest(1), &file, part);
        let lacking = FileMessage::Lacking(vec![digest(2), digest(1)]);
        assert_eq!(files.take(part(2), now), TAKEN);
        assert_eq!(files.take(part(0), now), TAKEN);
        assert_eq!(files.take(part(0), now), TAKEN, "the same again");
        let lacks = files.take(lacking.clone(), now);
        assert_eq!(lacks, FileReply::Lacks(vec![0, 1]));
        assert_eq!(files.take(part(1), now), WHOLE);
        assert_eq!(files.take(part(1), now), WHOLE, "of another gateway");
        assert_eq!(files.take(lacking, now), FileReply::Lacks(vec![0]));
        assert_eq!(files.get(&digest(1), now).as_deref(), Some(&file[..]));
        assert_eq!(files.bytes(), file.len());
        assert_eq!(send(&mut files, 3, 0, now), WHOLE, "an empty file");
        assert_eq!(send(&mut files, 1, 7, now), WHOLE, "another length");
        assert_eq!(files.bytes(), 7);
        files.remove(&digest(1));
        assert_eq!((files.get(&digest(1), now), files.bytes()), (None, 0));
    }

    #[test]
    fn files_are_bounded_and_those_in_use_stay() {
        let (mut files, begun) = (ReceivedFiles::default(), start());
        let size = FILES_BYTES_MAX / 4;
        for number in 0..4 {
            assert_eq!(send(&mut files, number, size, begun), WHOLE);
        }
        assert_eq!(send(&mut files, 9, 1, begun), FileReply::Full);
        let later = begun + FILE_WAIT;
        assert!(files.get(&digest(2), later).is_some(), "used again");
        assert_eq!(send(&mut files, 9, 1, later), WHOLE);
        assert!(files.get(&digest(2), later).is_some());
        files.drop_idle(later);
        assert!(files.bytes() <= size + 1 + IDLE_FILES_BYTES_MAX);
        assert!(files.get(&digest(2), later).is_some());
    }

    #[test]
    fn incomplete_files_are_dropped_and_small_whole_ones_are_kept() {
        let (mut files, begun) = (ReceivedFiles::default(), start());
        let file = vec![1; FILE_PART_BYTES + 1];
        assert_eq!(
            files.take(FileMessage::part(digest(1), &file, 0), begun),
            TAKEN
        );
        assert_eq!(send(&mut files, 2, 100, begun), WHOLE);
        files.drop_idle(begun);
        assert_eq!(files.bytes(), file.len() + 100);
        files.drop_idle(begun + FILE_WAIT);
        assert_eq!(files.bytes(), 100, "for the next turn of a conversation");
        for number in 0..FILES_COUNT_MAX as u64 + 1 {
            send(&mut files, 10 + number, 0, begun);
        }
        assert!(files.files.len() <= FILES_COUNT_MAX);
    }
}
