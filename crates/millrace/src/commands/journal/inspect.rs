//! `millrace journal inspect`: segments and streams of a journal.

use super::JournalFiles;
use super::stream::ShownStream;
use crate::args::InspectJournalArgs;
use crate::failure::Failure;
use crate::terminal_text;
use crate::terminal_text::Align;
use journal::{Recovered, RecoveryReport};
use serde_json::{Value, json};
use std::io::Write;

/// Shows the journal of a directory.
pub(super) fn inspect_journal(args: &InspectJournalArgs) -> Result<(), Failure> {
    let (files, found) = super::read_directory(&args.directory)?;
    let mut out = std::io::stdout().lock();
    if args.json {
        let shown = to_json(&files, &found, args.text);
        writeln!(out, "{shown:#}")?;
        return Ok(());
    }
    print_summary(&files, &found, &mut out)?;
    let streams: Vec<_> = found.streams.iter().map(ShownStream::new).collect();
    let rows = streams.iter().map(|stream| {
        let tokens: Vec<_> = stream.tokens().iter().map(usize::to_string).collect();
        [
            stream.id().to_string(),
            stream.state().to_owned(),
            tokens.join("+"),
            stream.model().to_owned(),
            stream.opened_at().unwrap_or_default(),
            stream.integrity().to_owned(),
        ]
    });
    let head = ["STREAM", "STATE", "TOKENS", "MODEL", "OPENED", "RECORDS"];
    let mut align = [Align::Left; 6];
    align[2] = Align::Right;
    if !streams.is_empty() {
        write!(out, "{}", terminal_text::table(head, align, rows))?;
    }
    for refused in &found.refused {
        writeln!(
            out,
            "{:032x}  of version {}: a newer program reads the stream",
            refused.id, refused.version
        )?;
    }
    for stream in streams.iter().filter(|_| args.text) {
        writeln!(out, "\n{}:\n{:#}", stream.id(), stream.prompts())?;
    }
    Ok(())
}

fn print_summary(
    files: &JournalFiles,
    found: &Recovered,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let report = &found.report;
    writeln!(
        out,
        "{} segments of {}, {} frames, {} streams; {} with all files",
        files.segments,
        terminal_text::bytes(files.segment_bytes),
        report.frames,
        found.streams.len() + found.refused.len(),
        terminal_text::bytes(files.bytes)
    )?;
    writeln!(
        out,
        "process {}: {}",
        report.last_boot,
        process_state(report)
    )?;
    Ok(())
}

fn process_state(report: &RecoveryReport) -> &'static str {
    if report.is_sealed {
        "shut down in order"
    } else {
        "is running, or was killed"
    }
}

fn to_json(files: &JournalFiles, found: &Recovered, has_text: bool) -> Value {
    let report = &found.report;
    let streams = found.streams.iter();
    let streams: Value = streams
        .map(|stream| ShownStream::new(stream).to_json(has_text))
        .collect();
    let refused: Value = found
        .refused
        .iter()
        .map(|stream| json!({ "id": format!("{:032x}", stream.id), "version": stream.version }))
        .collect();
    json!({
        "segments": files.segments,
        "segment_bytes": files.segment_bytes,
        "bytes": files.bytes,
        "frames": report.frames,
        "frame_bytes": report.bytes,
        "unsynced_bytes": report.cut_bytes,
        "damages": report.damages,
        "orphan_records": report.orphan_records,
        "lost_beginnings": report.lost_beginnings,
        "unknown_records": report.unknown_records,
        "dropped_streams": report.dropped_streams,
        "read_errors": report.read_errors,
        "process": report.last_boot,
        "is_sealed": report.is_sealed,
        "streams": streams,
        "refused": refused,
    })
}
