//! Writing a live stream once more from memory: the description, the state and the recorded tokens.

use super::recorded_stream::RecordedStream;
use super::stream_logs::StreamLogs;
use super::stream_table::TableEntry;
use super::token_buffers::TokenBuffers;
use journal::{
    Alternatives, FileSystem, Record, RecoveredChoice, RecoveredStream, StreamCopy, StreamKey,
    Tokens, Writer,
};

/// Rewrites a stream: tokens from the logs, or as recovered where the logs are not open yet.
pub(crate) fn rewrite_stream<F: FileSystem>(
    writer: &mut Writer<F>,
    key: StreamKey,
    entry: &TableEntry,
    buffers: &mut TokenBuffers,
) {
    let recorded = &entry.recorded;
    // Descriptions, tokens and choices were within the bounds when they were appended first.
    let _ = writer.rewrite_stream(key, &recorded.description, |copy| {
        recorded.state_records(|record| append(copy, record));
        match &recorded.recovered {
            Some(recovered) => copy_recovered(copy, recovered),
            None => copy_logs(copy, entry.logs.as_deref(), recorded, buffers),
        }
        recorded.end_records(|record| append(copy, record));
    });
}

fn append<F: FileSystem>(copy: &mut StreamCopy<'_, F>, record: &Record<'_>) {
    let appended = copy.append(record);
    debug_assert!(appended.is_ok(), "{appended:?}");
}

fn copy_logs<F: FileSystem>(
    copy: &mut StreamCopy<'_, F>,
    logs: Option<&StreamLogs>,
    recorded: &RecordedStream,
    buffers: &mut TokenBuffers,
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
            append(copy, &Record::Tokens(buffers.as_record(choice as u32, at)));
            at += buffers.len() as u64;
        }
    }
}

fn copy_recovered<F: FileSystem>(copy: &mut StreamCopy<'_, F>, recovered: &RecoveredStream) {
    for (number, choice) in recovered.choices.iter().enumerate() {
        let RecoveredChoice {
            ids,
            logprobs,
            alternative_counts,
            alternatives,
            ..
        } = choice;
        append(
            copy,
            &Record::Tokens(Tokens {
                choice: number as u32,
                first: 0,
                ids,
                logprobs,
                alternatives: Alternatives {
                    counts: alternative_counts,
                    items: alternatives,
                },
            }),
        );
    }
}
