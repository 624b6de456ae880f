//! A live stream once more from memory: the description, the state and the recorded tokens.

use super::recorded_stream::RecordedStream;
use super::stream_logs::StreamLogs;
use super::stream_table::TableEntry;
use super::token_buffers::TokenBuffers;
use journal::{
    Alternatives, FileSystem, Record, RecordTap, RecoveredChoice, RecoveredStream, StreamKey,
    Tokens, Writer,
};

/// Rewrites a stream in the journal.
pub(crate) fn rewrite_stream<F: FileSystem>(
    writer: &mut Writer<F>,
    key: StreamKey,
    entry: &TableEntry,
    buffers: &mut TokenBuffers,
) {
    // Descriptions, tokens and choices were within the bounds when they were appended first.
    let _ = writer.rewrite_stream(key, &entry.recorded.description, |copy| {
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
    tap.copy_stream(id, &entry.recorded.description, &mut |append| {
        write_records(entry, buffers, append);
    });
}

/// The records behind the description: tokens from the logs, or as recovered where the logs are not open yet.
fn write_records(
    entry: &TableEntry,
    buffers: &mut TokenBuffers,
    append: &mut dyn FnMut(&Record<'_>),
) {
    let recorded = &entry.recorded;
    recorded.state_records(&mut *append);
    match &recorded.recovered {
        Some(recovered) => recovered_tokens(recovered, append),
        None => logged_tokens(entry.logs.as_deref(), recorded, buffers, append),
    }
    recorded.end_records(append);
}

fn logged_tokens(
    logs: Option<&StreamLogs>,
    recorded: &RecordedStream,
    buffers: &mut TokenBuffers,
    append: &mut dyn FnMut(&Record<'_>),
) {
    let Some(logs) = logs else {
        return; // No logs yet, or the stream is about to be forgotten.
    };
    for (choice, end) in recorded.choices.iter().enumerate() {
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
pub(crate) fn recovered_tokens(recovered: &RecoveredStream, append: &mut dyn FnMut(&Record<'_>)) {
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
