//! A file into its place.

use super::hub::{Hub, HubFile, NoContent};
use super::progress::{ReportPull, expect_continue};
use super::source::Source;
use super::sum::Summing;
use server::{LibraryError, PullNews};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Attempts in a row that bring nothing.
const FRUITLESS_MAX: u32 = 5;
/// Pause after the first of them; longer after each.
const PAUSE: Duration = Duration::from_millis(500);
/// Bytes that are read, hashed and written at one time.
const CHUNK_BYTES: usize = 256 << 10;
/// Digits of the sum in the name of what is not whole.
const NAMED_DIGITS: usize = 16;

/// What is to come, and where it goes.
pub(super) struct Fetch<'a> {
    pub(super) hub: &'a Hub,
    pub(super) source: &'a Source,
    pub(super) file: &'a HubFile,
    pub(super) target: PathBuf,
}

/// What came so far.
struct Part {
    file: File,
    path: PathBuf,
    sum: Summing,
    bytes: u64,
}

impl Fetch<'_> {
    /// Has the file there, whole and verified.
    pub(super) fn run(&self, report: ReportPull<'_>) -> Result<(), LibraryError> {
        if self.is_present(report)? {
            return Ok(());
        }
        let mut part = self.open()?;
        let mut fruitless = 0;
        self.report_fetched(&part, report)?;
        while part.bytes < self.file.bytes {
            let before = part.bytes;
            let why = match self.attempt(&mut part, report) {
                Ok(()) => "the connection was closed early".to_owned(),
                Err(NoContent::Perhaps(why)) => why,
                Err(NoContent::Beyond) => {
                    self.restart(&mut part).map_err(|why| disk(&why))?;
                    "the response was shorter than its Content-Length".to_owned()
                }
                Err(NoContent::Never(why)) => return Err(why),
            };
            fruitless = if part.bytes > before {
                0
            } else {
                fruitless + 1
            };
            if fruitless == FRUITLESS_MAX {
                return Err(LibraryError::Failed(format!(
                    "the download was interrupted: {why}; the partial file is kept, run `millrace pull` again to resume"
                )));
            }
            if fruitless > 0 {
                std::thread::park_timeout(PAUSE * fruitless);
                self.report_fetched(&part, report)?;
            }
        }
        expect_continue(report(PullNews::Verifying))?;
        self.finish(part)
    }

    /// Whether it came before.
    fn is_present(&self, report: ReportPull<'_>) -> Result<bool, LibraryError> {
        let is_so_long = |found: std::fs::Metadata| found.len() == self.file.bytes;
        if !self.target.metadata().is_ok_and(is_so_long) {
            return Ok(false);
        }
        expect_continue(report(PullNews::Verifying))?;
        let mut file = File::open(&self.target).map_err(|why| disk(&why))?;
        let mut sum = self.begin();
        hash(&mut file, &mut sum).map_err(|why| disk(&why))?;
        Ok(sum.finish() == self.file.sum.digits())
    }

    /// What came in earlier pulls.
    fn open(&self) -> Result<Part, LibraryError> {
        let folder = self.target.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder).map_err(|why| disk(&why))?;
        let digits = &self.file.sum.digits()[..NAMED_DIGITS];
        let mut name = self.target.clone().into_os_string();
        name.push(format!(".{digits}.part"));
        let path = PathBuf::from(name);
        let options = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let file = options.map_err(|why| disk(&why))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let words = "the same file is already being downloaded";
                return Err(LibraryError::Invalid(words.to_owned()));
            }
            Err(TryLockError::Error(why)) => return Err(disk(&why)),
        }
        let mut part = Part {
            file,
            path,
            sum: self.begin(),
            bytes: 0,
        };
        part.bytes = hash(&mut part.file, &mut part.sum).map_err(|why| disk(&why))?;
        if part.bytes > self.file.bytes {
            self.restart(&mut part).map_err(|why| disk(&why))?;
        }
        Ok(part)
    }

    /// As much as one answer of the hub brings.
    fn attempt(&self, part: &mut Part, report: ReportPull<'_>) -> Result<(), NoContent> {
        let mut content = self.hub.content(self.source, self.file, part.bytes)?;
        let disk = |why: io::Error| NoContent::Never(disk(&why));
        if content.offset != part.bytes {
            if content.offset != 0 {
                return Err(NoContent::Perhaps(
                    "the response is another byte range than requested".to_owned(),
                ));
            }
            self.restart(part).map_err(disk)?;
        }
        let mut chunk = vec![0; CHUNK_BYTES];
        while part.bytes < self.file.bytes {
            let read = match content.bytes.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(why) => return Err(NoContent::Perhaps(why.to_string())),
            };
            let left = usize::try_from(self.file.bytes - part.bytes).unwrap_or(usize::MAX);
            part.take(&chunk[..read.min(left)]).map_err(disk)?;
            self.report_fetched(part, report)
                .map_err(NoContent::Never)?;
        }
        Ok(())
    }

    fn begin(&self) -> Summing {
        self.file.sum.begin(self.file.bytes)
    }

    /// From the beginning again.
    fn restart(&self, part: &mut Part) -> io::Result<()> {
        part.file.set_len(0)?;
        part.file.seek(SeekFrom::Start(0))?;
        part.sum = self.begin();
        part.bytes = 0;
        Ok(())
    }

    fn report_fetched(&self, part: &Part, report: ReportPull<'_>) -> Result<(), LibraryError> {
        expect_continue(report(PullNews::Fetching {
            digest: &self.file.sum.digest(),
            total: self.file.bytes,
            completed: part.bytes,
        }))
    }

    /// Gives it its name, if it is what it should be.
    fn finish(&self, part: Part) -> Result<(), LibraryError> {
        let (sum, wanted) = (part.sum.finish(), self.file.sum.digits());
        if sum != wanted {
            std::fs::remove_file(&part.path).map_err(|why| disk(&why))?;
            return Err(LibraryError::Failed(format!(
                "what came of {} is damaged: its {} is {sum}, the hub says {wanted}. It was thrown away: pull again; if \
                 that ends the same, a proxy or the hub's copy is at fault",
                self.file.path,
                self.file.sum.kind()
            )));
        }
        part.file.sync_all().map_err(|why| disk(&why))?;
        std::fs::rename(&part.path, &self.target).map_err(|why| disk(&why))
    }
}

impl Part {
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.sum.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// All that is left of a file; how many bytes that was.
fn hash(file: &mut File, sum: &mut Summing) -> io::Result<u64> {
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

/// The log has the rest.
fn disk(why: &io::Error) -> LibraryError {
    tracing::error!("model directory: {why}");
    LibraryError::Failed(format!("model directory: {}", why.kind()))
}
