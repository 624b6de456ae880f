//! What the journal has of one stream: all that a rewriting needs besides the tokens, which the logs have; and the stream
//! once more as records.

use super::stream_logs::{StreamLogs, TokenBuffers};
use super::stream_slot::{Claim, StreamNews};
use super::stream_table::TableEntry;
use crate::records::{ControlState, StreamDescription, unix_us};
use generate::output::generation_reader::is_good;
use journal::{
    Alternatives, AppendError, FileSystem, Record, RecordTap, RecoveredChoice, RecoveredStream,
    StreamKey, Tokens, Writer,
};
use std::sync::Arc;
use stream::End;
use wire::clock;

/// What the journal has of one stream, as the recorder knows it. What each token needs is in the first cache line.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct JournalCopy {
    /// Changes of the handle that were taken.
    pub(crate) changes: u64,
    /// `None` before the beginning was appended, and after the stream was forgotten.
    pub(crate) key: Option<StreamKey>,
    /// Whether the handle was dropped: nothing more is recorded.
    pub(crate) is_released: bool,
    pub(crate) is_paused: bool,
    /// Whether another process has recorded the stream elsewhere, and the journal of this one does not have it yet.
    is_foreign: bool,
    pub(crate) choices: Box<[ChoiceCopy]>,
    /// Records of an earlier process; `None` after the logs were attached.
    pub(crate) recovered: Option<Arc<RecoveredStream>>,
    steering: Option<Box<SteeringCopy>>,
    /// Cached tokens and wall time.
    pub(crate) started: Option<Box<(u64, u64)>>,
    /// The description, with the prompts from the submission on.
    pub(crate) description: Arc<[u8]>,
    pub(crate) claim: Option<Claim>,
    pub(crate) broke: Option<u32>,
    pub(crate) outcome: Option<Arc<[u8]>>,
}

/// Control updates of a stream that was steered.
#[derive(Default)]
struct SteeringCopy {
    recorded: Option<ControlState>,
    /// A control state that is not recorded yet.
    news: Option<ControlState>,
    /// Control updates that were applied by earlier processes.
    applied_before: u64,
}

impl SteeringCopy {
    /// Whether a control state will follow the tokens: `applied` updates of this process are in the logs.
    fn has_news(&self, applied: u64) -> bool {
        let is_behind = |control: &ControlState| {
            !control.pending.is_empty()
                && control.applied < self.applied_before.saturating_add(applied)
        };
        self.news.is_some() || self.recorded.as_ref().is_some_and(is_behind)
    }
}

/// The recorded part of one choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChoiceCopy {
    pub(crate) tokens: u64,
    /// Code of the end, and wall time.
    pub(crate) end: Option<(u32, u64)>,
}

impl JournalCopy {
    /// The state that an earlier process has left.
    pub(crate) fn of_recovered(stream: &Arc<RecoveredStream>) -> Self {
        let claim = stream.claim.map(|claim| Claim {
            generation: claim.generation,
            instance: claim.instance,
            attempt: claim.attempt,
            why: claim.why,
            tokens: claim.tokens,
        });
        let choices = stream.choices.iter().map(|choice| ChoiceCopy {
            tokens: choice.ids.len() as u64,
            end: choice.end,
        });
        let control = stream.sampling.as_deref();
        let control = control.and_then(|bytes| ControlState::decode(bytes).ok());
        Self {
            changes: 0,
            key: (stream.key != StreamKey::NONE).then_some(stream.key),
            is_foreign: stream.key == StreamKey::NONE,
            description: described(stream),
            claim,
            started: stream
                .started
                .map(|s| Box::new((s.cached_tokens, s.at_unix_us))),
            steering: control.map(|control| {
                Box::new(SteeringCopy {
                    applied_before: control.applied,
                    recorded: Some(control),
                    news: None,
                })
            }),
            is_paused: stream.is_paused,
            broke: stream.broke,
            choices: choices.collect(),
            is_released: false,
            outcome: stream.outcome.as_deref().map(Arc::from),
            recovered: Some(Arc::clone(stream)),
        }
    }

    /// Forgets everything but how far the handle's changes were taken.
    pub(crate) fn clear(&mut self) {
        *self = Self {
            changes: self.changes,
            is_released: self.is_released,
            ..Self::default()
        };
    }

    /// Appends what another process has recorded elsewhere.
    fn append_foreign<F: FileSystem>(
        &mut self,
        writer: &mut Writer<F>,
        id: u128,
    ) -> Result<(), AppendError> {
        let key = writer.open_stream(id, &self.description)?;
        self.key = Some(key);
        let mut result = Ok(());
        let mut append = |record: &Record<'_>| {
            if result.is_ok() {
                result = writer.append(key, record);
            }
        };
        self.state_records(&mut append);
        if let Some(recovered) = &self.recovered {
            recovered_tokens(recovered, &mut append);
        }
        self.end_records(&mut append);
        result
    }

    /// Appends the changes of the stream's handle, but for the control state, which stands behind the tokens. An error
    /// means that the journal takes no more of this stream.
    pub(crate) fn append_news<F: FileSystem>(
        &mut self,
        writer: &mut Writer<F>,
        id: u128,
        news: StreamNews,
    ) -> Result<(), AppendError> {
        if let Some(description) = news.open {
            let opened = if news.is_local {
                writer.open_local_stream(id, &description)
            } else {
                writer.open_stream(id, &description)
            };
            self.key = Some(opened?);
            self.description = description;
        } else if std::mem::take(&mut self.is_foreign) {
            self.append_foreign(writer, id)?;
        }
        let Some(key) = self.key else {
            return Ok(());
        };
        if let Some(claim) = news.claim {
            writer.append(key, &claim.to_record())?;
            self.claim = Some(claim);
        }
        if let Some(prepared) = news.prepared {
            let body = &prepared.body;
            writer.append(key, &Record::Prepared { body })?;
            self.description = prepared.description;
        }
        if let Some(on) = news.is_paused.filter(|on| *on != self.is_paused) {
            writer.append(key, &Record::Paused { on })?;
            self.is_paused = on;
        }
        if let Some(outcome) = news.outcome {
            writer.append(key, &Record::Kept { outcome: &outcome })?;
            self.outcome = Some(outcome);
        }
        if news.has_no_tokens {
            self.recovered = None;
        }
        if let Some(control) = news.control {
            self.steering.get_or_insert_default().news = Some(control);
        }
        Ok(())
    }

    /// Gives each of `count` choices an entry.
    pub(crate) fn add_choices(&mut self, count: usize) {
        if self.choices.len() < count {
            let mut choices = std::mem::take(&mut self.choices).into_vec();
            choices.resize(count, ChoiceCopy::default());
            self.choices = choices.into();
        }
    }

    /// Recorded tokens of a choice.
    pub(crate) fn recorded_tokens(&self, choice: usize) -> u64 {
        self.choices.get(choice).map_or(0, |choice| choice.tokens)
    }

    /// Whether there is a control state.
    pub(crate) fn is_steered(&self) -> bool {
        self.steering.is_some()
    }

    /// Whether a control state will follow the tokens: `applied` updates of this process are in the logs.
    pub(crate) fn has_control_news(&self, applied: u64) -> bool {
        let steering = self.steering.as_deref();
        steering.is_some_and(|steering| steering.has_news(applied))
    }

    /// Appends the control state, without the updates that are in the recorded tokens.
    pub(crate) fn append_control<F: FileSystem>(
        &mut self,
        writer: &mut Writer<F>,
        key: StreamKey,
        applied: u64,
    ) -> Result<(), AppendError> {
        let Some(steering) = self.steering.as_deref_mut() else {
            return Ok(());
        };
        let Some(mut control) = steering.news.take().or_else(|| steering.recorded.take()) else {
            return Ok(());
        };
        control.mark_applied(steering.applied_before.saturating_add(applied));
        // The handle has compared the length with the bound.
        if let Ok(sampling) = control.encode() {
            writer.append(
                key,
                &Record::Steered {
                    sampling: &sampling,
                },
            )?;
        }
        steering.recorded = Some(control);
        Ok(())
    }

    /// Appends the start of the stream's requests in this process, once.
    pub(crate) fn append_start<F: FileSystem>(
        &mut self,
        writer: &mut Writer<F>,
        key: StreamKey,
        logs: &StreamLogs,
    ) -> Result<(), AppendError> {
        if self.started.is_some() {
            return Ok(());
        }
        let Some(started) = logs.started_at() else {
            return Ok(());
        };
        let (cached_tokens, at_unix_us) = (started.cached_tokens, unix_us(started.at));
        self.started = Some(Box::new((cached_tokens, at_unix_us)));
        let record = Record::Started {
            cached_tokens,
            at_unix_us,
        };
        writer.append(key, &record)
    }

    /// Appends the end of a choice whose tokens were appended; the first bad end of the stream is recorded, too.
    /// Returns the recorded time, in microseconds since the Unix epoch.
    pub(crate) fn append_end<F: FileSystem>(
        &mut self,
        writer: &mut Writer<F>,
        key: StreamKey,
        choice: usize,
        end: End,
    ) -> Result<u64, AppendError> {
        // The format's bound on choices is below 2^32.
        let number = choice as u32;
        if !is_good(end) && self.broke.is_none() {
            writer.append(key, &Record::Broke { choice: number })?;
            self.broke = Some(number);
        }
        let (end, at_unix_us) = (end.code(), unix_us(clock::now()));
        let record = Record::Ended {
            choice: number,
            end,
            at_unix_us,
        };
        writer.append(key, &record)?;
        if let Some(recorded) = self.choices.get_mut(choice) {
            recorded.end = Some((end, at_unix_us));
        }
        Ok(at_unix_us)
    }

    /// The description and the state before the tokens, as records.
    fn state_records(&self, mut append: impl FnMut(&Record<'_>)) {
        if let Some(claim) = self.claim {
            append(&claim.to_record());
        }
        if let Some((cached_tokens, at_unix_us)) = self.started.as_deref().copied() {
            append(&Record::Started {
                cached_tokens,
                at_unix_us,
            });
        }
        let steering = self.steering.as_deref();
        if let Some(control) = steering.and_then(|steering| steering.recorded.as_ref()) {
            let sampling = control.encode().unwrap_or_default();
            append(&Record::Steered {
                sampling: &sampling,
            });
        }
        if self.is_paused {
            append(&Record::Paused { on: true });
        }
    }

    /// The state after the tokens, as records.
    fn end_records(&self, mut append: impl FnMut(&Record<'_>)) {
        if let Some(choice) = self.broke {
            append(&Record::Broke { choice });
        }
        for (choice, recorded) in self.choices.iter().enumerate() {
            if let Some((end, at_unix_us)) = recorded.end {
                append(&Record::Ended {
                    choice: choice as u32,
                    end,
                    at_unix_us,
                });
            }
        }
        if let Some(outcome) = &self.outcome {
            append(&Record::Kept { outcome });
        }
    }
}

/// The description with the submitted prompts, where they were recorded.
fn described(stream: &RecoveredStream) -> Arc<[u8]> {
    let with_prompts = |body: &[u8]| {
        let mut description = StreamDescription::decode(&stream.description).ok()?;
        description.set_prepared(body).ok()?;
        description.encode().ok()
    };
    let merged = stream.prepared.as_deref().and_then(with_prompts);
    merged.as_deref().unwrap_or(&stream.description).into()
}

/// Rewrites a stream in the journal.
pub(crate) fn rewrite_stream<F: FileSystem>(
    writer: &mut Writer<F>,
    key: StreamKey,
    entry: &TableEntry,
    buffers: &mut TokenBuffers,
) {
    // Descriptions, tokens and choices were within the bounds when they were appended first.
    let _ = writer.rewrite_stream(key, &entry.copy.description, |copy| {
        write_records(entry, buffers, &mut |record| {
            let appended = copy.append(record);
            debug_assert!(appended.is_ok(), "{appended:?}");
        });
    });
}

/// Passes a stream to the journal's tap once more.
pub(crate) fn copy_stream(
    tap: &mut dyn RecordTap,
    id: u128,
    entry: &TableEntry,
    buffers: &mut TokenBuffers,
) {
    tap.copy_stream(id, &entry.copy.description, &mut |append| {
        write_records(entry, buffers, append);
    });
}

/// The records behind the description: tokens from the logs, or as recovered where the logs are not open yet.
fn write_records(
    entry: &TableEntry,
    buffers: &mut TokenBuffers,
    append: &mut dyn FnMut(&Record<'_>),
) {
    let copy = &entry.copy;
    copy.state_records(&mut *append);
    match &copy.recovered {
        Some(recovered) => recovered_tokens(recovered, append),
        None => logged_tokens(entry.logs.as_deref(), copy, buffers, append),
    }
    copy.end_records(append);
}

fn logged_tokens(
    logs: Option<&StreamLogs>,
    copy: &JournalCopy,
    buffers: &mut TokenBuffers,
    append: &mut dyn FnMut(&Record<'_>),
) {
    let Some(logs) = logs else {
        return; // No logs yet, or the stream is about to be forgotten.
    };
    for (choice, end) in copy.choices.iter().enumerate() {
        let mut at = 0;
        while at < end.tokens {
            logs.copy_tokens(choice, at, end.tokens, buffers);
            if buffers.len() == 0 {
                return;
            }
            append(&Record::Tokens(buffers.as_record(choice as u32, at)));
            at += buffers.len() as u64;
        }
    }
}

/// The tokens that another process has recorded.
fn recovered_tokens(recovered: &RecoveredStream, append: &mut dyn FnMut(&Record<'_>)) {
    for (number, choice) in recovered.choices.iter().enumerate() {
        let RecoveredChoice {
            ids,
            logprobs,
            alternative_counts,
            alternatives,
            ..
        } = choice;
        append(&Record::Tokens(Tokens {
            choice: number as u32,
            first: 0,
            ids,
            logprobs,
            alternatives: Alternatives {
                counts: alternative_counts,
                items: alternatives,
            },
        }));
    }
}
