//! `millrace journal`: a journal on disk, without a server.
//!
//! ```text
//! inspect  segments and streams      verify   damage, for scripts
//! stream   what is shown of a stream
//! ```

mod inspect;
mod stream;
mod verify;

use crate::args::{JournalArgs, JournalCommand};
use crate::failure::Failure;
use journal::{JournalDirectory, Recovered, StartError, read_journal};
use std::fs;
use std::path::Path;

/// Memory for the rebuilt streams; further ones are reported as lost.
const MEMORY_BYTES_MAX: usize = 1 << 30;

/// Readings before a journal that a server changes meanwhile is given up.
const READINGS_MAX: usize = 5;

/// Directory entries that are looked at.
const ENTRIES_MAX: usize = 65_536;

/// Runs the subcommand.
pub(crate) fn journal(args: &JournalArgs) -> Result<(), Failure> {
    match &args.command {
        JournalCommand::Inspect(args) => inspect::inspect_journal(args),
        JournalCommand::Verify { directory } => verify::verify_journal(directory),
    }
}

/// Files of a journal.
#[derive(Debug, Default)]
struct JournalFiles {
    segments: u64,
    segment_bytes: u64,
    /// Bytes of all files.
    bytes: u64,
    has_lock: bool,
}

/// Reads a journal without changing files.
fn read_directory(directory: &Path) -> Result<(JournalFiles, Recovered), Failure> {
    let files = find_files(directory)?;
    let source = JournalDirectory::read_only(directory);
    for reading in 1.. {
        match read_journal(&source, MEMORY_BYTES_MAX) {
            // A server deletes segments while the journal is read.
            Err(StartError::Unreadable { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound && reading < READINGS_MAX => {}
            Ok(found) if found.report.read_errors > 0 && reading < READINGS_MAX => {}
            Ok(found) if found.report.segments == 0 && !files.has_lock => {
                return Err(Failure::user(format!(
                    "journal {}: the directory has no journal: neither a lock file nor a segment \
                     (0000000000000001-00000001.log)",
                    directory.display()
                )));
            }
            Ok(found) => return Ok((files, found)),
            Err(why) => return Err(Failure::user(why)),
        }
    }
    Err(Failure::bug("readings of a journal have no end"))
}

/// The files of a directory.
fn find_files(directory: &Path) -> Result<JournalFiles, Failure> {
    let shown = directory.display();
    let failed = |why: std::io::Error| {
        Failure::user(format!(
            "journal {shown}: the directory cannot be read ({why})"
        ))
    };
    let mut files = JournalFiles::default();
    for entry in fs::read_dir(directory).map_err(failed)?.take(ENTRIES_MAX) {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let bytes = entry.metadata().map_or(0, |metadata| metadata.len());
        if name.to_string_lossy().ends_with(".log") {
            files.segments += 1;
            files.segment_bytes += bytes;
        }
        files.has_lock |= name == "lock";
        files.bytes += bytes;
    }
    Ok(files)
}
