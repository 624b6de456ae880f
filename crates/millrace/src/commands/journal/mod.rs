//! `millrace journal`: a journal on disk, without a server. `millrace journal verify` prints a line for each damage.
//!
//! ```text
//! inspect  segments and streams      stream   what is shown of a stream
//! ```

mod inspect;

use crate::args::{JournalArgs, JournalCommand};
use crate::failure::Failure;
use inspect::ShownStream;
use journal::{JournalDirectory, Recovered, StartError, read_journal};
use std::fs;
use std::io::Write;
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
        JournalCommand::Verify { directory } => verify_journal(directory),
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

/// Reads every record; an error after the last line if anything is damaged.
fn verify_journal(directory: &Path) -> Result<(), Failure> {
    let (_, found) = read_directory(directory)?;
    let lines = list_damages(&found);
    let mut out = std::io::stdout().lock();
    for line in &lines {
        writeln!(out, "{line}")?;
    }
    let report = &found.report;
    if report.cut_bytes > 0 {
        writeln!(
            out,
            "note: {} bytes after the last frame: being written, or not synced before a power loss; the next start \
             removes them",
            report.cut_bytes
        )?;
    }
    let streams = found.streams.len() + found.refused.len();
    match lines.len() {
        0 => {
            writeln!(out, "intact: {} frames, {streams} streams", report.frames)?;
            Ok(())
        }
        count => Err(Failure::user(format!(
            "journal {}: {count} damages",
            directory.display()
        ))),
    }
}

fn list_damages(found: &Recovered) -> Vec<String> {
    let report = &found.report;
    let counts = [
        (report.damages, "places where synced frames are missing"),
        (
            report.read_errors,
            "segments that cannot be read to the end",
        ),
        (report.lost_beginnings, "streams whose beginning is missing"),
        (
            report.dropped_streams,
            "streams that exceed the memory of this command",
        ),
    ];
    let counted = counts.iter().filter(|(count, _)| *count > 0);
    let mut lines: Vec<_> = counted
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    for stream in &found.streams {
        let shown = ShownStream::new(stream);
        if !stream.integrity.is_intact() {
            lines.push(format!("stream {}: {}", shown.id(), shown.integrity()));
        }
        if let Some(why) = shown.problem() {
            lines.push(format!(
                "stream {}: the description is invalid: {why}",
                shown.id()
            ));
        }
    }
    lines
}
