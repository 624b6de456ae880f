//! `millrace journal inspect`: segments and streams of a journal, with state, times and counts of a stream, and the
//! prompts only on request.

use super::JournalFiles;
use crate::args::InspectJournalArgs;
use crate::failure::Failure;
use crate::terminal_text;
use crate::terminal_text::Align;
use journal::{Integrity, LossReason, Recovered, RecoveredStream, RecoveryReport};
use serde_json::{Value, json};
use server::{
    DescriptionKind, RecordedPrompts, StoredSummary, StreamDescription, end_from_code, end_words,
    is_rejection, is_stored_answer,
};
use std::io::Write;
use stream::StreamId;

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

/// A stream as its records show it.
pub(super) struct ShownStream<'r> {
    recovered: &'r RecoveredStream,
    description: Result<StreamDescription, String>,
    /// Where the object is a stored answer, which has another description.
    stored: Option<StoredSummary>,
}

impl<'r> ShownStream<'r> {
    pub(super) fn new(recovered: &'r RecoveredStream) -> Self {
        let described = StreamDescription::decode(&recovered.description);
        let described = described.and_then(|mut description| {
            if let Some(body) = &recovered.prepared {
                description.set_prepared(body)?;
            }
            Ok(description)
        });
        let description = &recovered.description;
        let stored = is_stored_answer(description).then(|| StoredSummary::decode(description));
        let (stored, problem) = match stored.transpose() {
            Ok(stored) => (stored, None),
            Err(why) => (None, Some(why)),
        };
        let described = problem.map_or(described, Err);
        Self {
            recovered,
            description: described.map_err(|why| why.to_string()),
            stored,
        }
    }

    pub(super) fn id(&self) -> StreamId {
        StreamId::from_bits(self.recovered.id)
    }

    /// Why the description cannot be used.
    pub(super) fn problem(&self) -> Option<&str> {
        let problem = self.description.as_ref().err();
        problem
            .filter(|_| self.stored.is_none() && self.event_state().is_none())
            .map(String::as_str)
    }

    /// The state of an object that is an event for a webhook, or of no use to this version.
    fn event_state(&self) -> Option<&'static str> {
        match DescriptionKind::of(&self.recovered.description)? {
            DescriptionKind::WebhookDelivery => Some("webhook"),
            DescriptionKind::Retired => Some("retired"),
            _ => None,
        }
    }

    pub(super) fn model(&self) -> &str {
        if let Some(stored) = &self.stored {
            return &stored.model;
        }
        self.description
            .as_ref()
            .map_or("?", |stream| &stream.model)
    }

    /// Tokens of each choice.
    pub(super) fn tokens(&self) -> Vec<usize> {
        let choices = self.recovered.choices.iter();
        choices.map(|choice| choice.ids.len()).collect()
    }

    /// Fate of the stream at the next start of a server.
    pub(super) fn state(&self) -> &'static str {
        if self.stored.is_some() {
            return "stored";
        }
        if let Some(state) = self.event_state() {
            return state;
        }
        let Ok(description) = &self.description else {
            return "unreadable";
        };
        let choices = description.prompts.len().saturating_mul(description.n);
        let ended = self
            .recovered
            .choices
            .iter()
            .filter(|choice| choice.end.is_some());
        match description.kind {
            DescriptionKind::StoredBlob => "stored",
            DescriptionKind::WebhookDelivery => "webhook",
            DescriptionKind::Retired => "retired",
            _ if self.is_rejected() => "rejected",
            _ if matches!(self.recovered.integrity, Integrity::Lost(_)) => "lost",
            DescriptionKind::WorkflowRun => "workflow",
            DescriptionKind::Generation if ended.count() >= choices => "ended",
            DescriptionKind::Generation if self.recovered.is_paused => "paused",
            DescriptionKind::Generation if self.recovered.started.is_some() => "unfinished",
            DescriptionKind::Generation => "not started",
        }
    }

    fn is_rejected(&self) -> bool {
        self.recovered.outcome.as_deref().is_some_and(is_rejection)
    }

    /// Ends of the choices, in order; `-` for a choice without an end.
    pub(super) fn ends(&self) -> Vec<String> {
        let name = |(code, _): (u32, u64)| end_words(end_from_code(code));
        let choices = self.recovered.choices.iter();
        choices
            .map(|choice| choice.end.map_or_else(|| "-".to_owned(), name))
            .collect()
    }

    pub(super) fn opened_at(&self) -> Option<String> {
        let described = self.description.as_ref().ok();
        let stored = self.stored.as_ref().map(|stored| stored.created_unix_us);
        timestamp(stored.or(described.map(|stream| stream.opened_unix_us))?)
    }

    /// Wall time of the last end, where all choices have ended.
    fn ended_at(&self) -> Option<String> {
        if let Some(stored) = &self.stored {
            return timestamp(stored.ended_unix_us);
        }
        let ends = self.recovered.choices.iter().map(|choice| choice.end);
        let last = ends
            .collect::<Option<Vec<_>>>()?
            .into_iter()
            .map(|(_, at)| at)
            .max()?;
        timestamp(last)
    }

    pub(super) fn integrity(&self) -> &'static str {
        integrity_name(self.recovered.integrity)
    }

    /// The prompts as JSON.
    pub(super) fn prompts(&self) -> Value {
        match self
            .description
            .as_ref()
            .map(|description| &description.prompts)
        {
            Err(_) => Value::Null,
            Ok(RecordedPrompts::Requested(prompts)) => json!(prompts),
            Ok(RecordedPrompts::Prepared(prompts)) => prompts
                .iter()
                .map(|prompt| match &prompt.text {
                    Some(text) => json!(text),
                    None => json!({ "ids": prompt.ids }),
                })
                .collect(),
        }
    }

    /// All that is shown as one object, without prompts and answers.
    pub(super) fn to_json(&self, has_text: bool) -> Value {
        let (description, stored) = (self.description.as_ref().ok(), self.stored.as_ref());
        let claim = self.recovered.claim;
        let mut shown = json!({
            "id": self.id().to_string(),
            "state": self.state(),
            "integrity": self.integrity(),
            "problem": self.problem(),
            "model": stored.map(|stored| &stored.model).or(description.map(|stream| &stream.model)),
            "protocol": description.map(|stream| stream.protocol.name()),
            "response_id": stored
                .map(|stored| &stored.response_id)
                .or(description.map(|stream| &stream.response_id)),
            "job_id": description.and_then(|stream| stream.job_id.as_ref()),
            "choices": description.map(|stream| stream.prompts.len().saturating_mul(stream.n)),
            "tokens": self.tokens(),
            "ends": self.ends(),
            "opened_at": self.opened_at(),
            "ended_at": self.ended_at(),
            "deadline_at": description
                .and_then(|stream| stream.deadline_unix_us)
                .and_then(timestamp),
            "process": self.recovered.boot,
            "attempt": claim.map(|claim| claim.attempt),
            "generation": claim.map(|claim| claim.generation),
            "identity": description.map(|stream| &stream.identity),
        });
        if has_text && let Some(fields) = shown.as_object_mut() {
            fields.insert("prompts".to_owned(), self.prompts());
        }
        shown
    }
}

fn timestamp(unix_us: u64) -> Option<String> {
    let us = i64::try_from(unix_us).ok()?;
    let at = jiff::Timestamp::from_microsecond(us).ok()?;
    Some(at.to_string())
}

fn integrity_name(integrity: Integrity) -> &'static str {
    match integrity {
        Integrity::Intact => "intact",
        Integrity::TailInDoubt => "tail in doubt",
        Integrity::Lost(LossReason::Hole) => "records are missing",
        Integrity::Lost(LossReason::NotWritten) => "records were not written",
        Integrity::Lost(LossReason::Contradiction) => "records contradict each other",
        Integrity::Lost(LossReason::Memory) => "too large to be rebuilt",
    }
}
