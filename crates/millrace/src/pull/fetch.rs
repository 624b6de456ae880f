//! Download of one file: resumed, verified, renamed.

use super::attempts::Attempts;
use super::error::{PullError, Unreachable};
use super::hub::{Hub, HubFile, NoContent};
use super::progress::{ProgressWatch, ReportPull, expect_continue};
use super::source::HubSource;
use super::sum::Summing;
use crate::clock::now;
use server::{LibraryError, PullNews};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Bytes of one read, hash and write.
const CHUNK_BYTES: usize = 256 << 10;
/// Digits of the checksum in the name of a partial file.
const NAMED_DIGITS: usize = 16;

/// A file of a repository, and the path to download it to.
pub(super) struct Fetch<'a> {
    pub(super) hub: &'a Hub,
    pub(super) source: &'a HubSource,
    pub(super) file: &'a HubFile,
    pub(super) target: PathBuf,
}

/// The bytes downloaded so far.
struct PartialFile {
    file: File,
    path: PathBuf,
    sum: Summing,
    bytes: u64,
    watch: ProgressWatch,
}

impl Fetch<'_> {
    /// Downloads and verifies the file, unless an earlier pull completed the file.
    pub(super) fn run(&self, report: ReportPull<'_>) -> Result<(), PullError> {
        if self.is_present(report)? {
            return Ok(());
        }
        let mut part = self.open_partial()?;
        let mut attempts = Attempts::default();
        self.report_fetched(&part, report)?;
        while part.bytes < self.file.bytes {
            let before = part.bytes;
            let why = match self.fetch_rest(&mut part, report) {
                Ok(()) => NoContent::Perhaps("the connection was closed early".to_owned()),
                Err(why @ NoContent::Beyond) => {
                    self.restart_part(&mut part)
                        .map_err(|why| disk_error(&why))?;
                    why
                }
                Err(NoContent::Never(why)) => return Err(why.into()),
                Err(why) => why,
            };
            if part.bytes > before {
                attempts.made_progress();
            } else if !attempts.pause(why.asked_pause(), || self.report_fetched(&part, report))? {
                return Err(self.interrupted(&why.to_string()));
            }
        }
        expect_continue(report(PullNews::Verifying))?;
        Ok(self.finish_part(part)?)
    }

    /// Bytes that the disk must have room for.
    pub(super) fn missing_bytes(&self) -> u64 {
        let bytes_of = |path: &Path| path.metadata().map_or(0, |found| found.len());
        match bytes_of(&self.target) {
            whole if whole == self.file.bytes => 0,
            _ => self.file.bytes.saturating_sub(bytes_of(&self.part_path())),
        }
    }

    fn interrupted(&self, why: &str) -> PullError {
        let problem = format!(
            "the download was interrupted: {why}; the partial file is kept, run `millrace pull` again to resume"
        );
        let folder = self.target.parent().map(Path::to_owned);
        Unreachable::error(
            problem,
            (self.hub, self.source),
            Some(&self.file.path),
            folder,
        )
    }

    /// Whether an earlier pull completed the file.
    fn is_present(&self, report: ReportPull<'_>) -> Result<bool, LibraryError> {
        let is_so_long = |found: std::fs::Metadata| found.len() == self.file.bytes;
        if !self.target.metadata().is_ok_and(is_so_long) {
            return Ok(false);
        }
        expect_continue(report(PullNews::Verifying))?;
        let mut file = File::open(&self.target).map_err(|why| disk_error(&why))?;
        let mut sum = self.begin_sum();
        hash_rest(&mut file, &mut sum).map_err(|why| disk_error(&why))?;
        Ok(sum.finish() == self.file.sum.digits())
    }

    fn part_path(&self) -> PathBuf {
        let digits = &self.file.sum.digits()[..NAMED_DIGITS];
        let mut name = self.target.clone().into_os_string();
        name.push(format!(".{digits}.part"));
        PathBuf::from(name)
    }

    /// Opens the partial file with the bytes of earlier pulls.
    fn open_partial(&self) -> Result<PartialFile, LibraryError> {
        let folder = self.target.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder).map_err(|why| disk_error(&why))?;
        let path = self.part_path();
        let options = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let file = options.map_err(|why| disk_error(&why))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let words = "the same file is already being downloaded";
                return Err(LibraryError::Invalid(words.to_owned()));
            }
            Err(TryLockError::Error(why)) => return Err(disk_error(&why)),
        }
        let mut part = PartialFile {
            file,
            path,
            sum: self.begin_sum(),
            bytes: 0,
            watch: ProgressWatch::new(0, now()),
        };
        part.bytes = hash_rest(&mut part.file, &mut part.sum).map_err(|why| disk_error(&why))?;
        part.watch = ProgressWatch::new(part.bytes, now());
        if part.bytes > self.file.bytes {
            self.restart_part(&mut part)
                .map_err(|why| disk_error(&why))?;
        }
        Ok(part)
    }

    /// One request to the hub, from the end of the partial file on.
    fn fetch_rest(&self, part: &mut PartialFile, report: ReportPull<'_>) -> Result<(), NoContent> {
        let mut content = self.hub.content(self.source, self.file, part.bytes)?;
        let disk = |why: io::Error| NoContent::Never(disk_error(&why));
        if content.offset != part.bytes {
            if content.offset != 0 {
                return Err(NoContent::Perhaps(
                    "the response is another byte range than requested".to_owned(),
                ));
            }
            self.restart_part(part).map_err(disk)?;
        }
        let mut chunk = vec![0; CHUNK_BYTES];
        while part.bytes < self.file.bytes {
            let read = match content.bytes.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(why) => return Err(NoContent::Perhaps(why.to_string())),
            };
            let left = usize::try_from(self.file.bytes - part.bytes).unwrap_or(usize::MAX);
            part.append_chunk(&chunk[..read.min(left)]).map_err(disk)?;
            part.watch
                .note(part.bytes, now())
                .map_err(NoContent::Never)?;
            self.report_fetched(part, report)
                .map_err(NoContent::Never)?;
        }
        Ok(())
    }

    fn begin_sum(&self) -> Summing {
        self.file.sum.begin(self.file.bytes)
    }

    /// Empties the partial file.
    fn restart_part(&self, part: &mut PartialFile) -> io::Result<()> {
        part.file.set_len(0)?;
        part.file.seek(SeekFrom::Start(0))?;
        part.sum = self.begin_sum();
        part.bytes = 0;
        part.watch = ProgressWatch::new(0, now());
        Ok(())
    }

    fn report_fetched(
        &self,
        part: &PartialFile,
        report: ReportPull<'_>,
    ) -> Result<(), LibraryError> {
        expect_continue(report(PullNews::Fetching {
            digest: &self.file.sum.digest(),
            total: self.file.bytes,
            completed: part.bytes,
        }))
    }

    /// Renames the partial file, if the checksum is right.
    fn finish_part(&self, part: PartialFile) -> Result<(), LibraryError> {
        let (sum, wanted) = (part.sum.finish(), self.file.sum.digits());
        if sum != wanted {
            std::fs::remove_file(&part.path).map_err(|why| disk_error(&why))?;
            return Err(LibraryError::Failed(format!(
                "what came of {} is damaged: its {} is {sum}, the hub says {wanted}. It was thrown away: pull again; if \
                 that ends the same, a proxy or the hub's copy is at fault",
                self.file.path,
                self.file.sum.kind()
            )));
        }
        part.file.sync_all().map_err(|why| disk_error(&why))?;
        std::fs::rename(&part.path, &self.target).map_err(|why| disk_error(&why))
    }
}

impl PartialFile {
    fn append_chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.sum.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// Hashes the rest of a file; returns the number of bytes.
fn hash_rest(file: &mut File, sum: &mut Summing) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut bytes = 0;
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(bytes),
            read => {
                sum.update(&chunk[..read]);
                bytes += read as u64;
            }
        }
    }
}

/// The error for clients, without the details, which only the log has.
fn disk_error(why: &io::Error) -> LibraryError {
    tracing::error!("model directory: {why}");
    LibraryError::Failed(format!("model directory: {}", why.kind()))
}
