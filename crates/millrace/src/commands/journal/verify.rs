//! `millrace journal verify`: a line for each damage of a journal.

use super::stream::ShownStream;
use crate::failure::Failure;
use journal::Recovered;
use std::io::Write;
use std::path::Path;

/// Reads every record; an error after the last line if anything is damaged.
pub(super) fn verify_journal(directory: &Path) -> Result<(), Failure> {
    let (_, found) = super::read_directory(directory)?;
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
