//! Streams without further tokens: those that had ended, and those that cannot be continued. Their tokens become readable
//! again in every wire protocol, with the recorded ends.

use super::attempt::Attempt;
use super::continuation::Continuation;
use super::restored_stream::RestoredStream;
use super::stream_plan;
use super::wall_time::WallTime;
use crate::handles::GenerationHandles;
use crate::launch;
use crate::models::ReadyModel;
use generate::constraint::compiler::OutputConstraints;
use generate::error::ApiError;
use journal::Integrity;
use std::sync::Arc;
use std::time::Instant;
use stream::End;

/// Makes the tokens of a stream readable. Choices without a recorded end get `end`.
pub(crate) async fn settle_stream(
    handles: &GenerationHandles,
    serving: &Arc<ReadyModel>,
    stream: RestoredStream,
    end: End,
) {
    let ended_at = match has_ended(&stream) {
        true => {
            let ended_unix_us = stream_plan::ended_unix_us(&stream.recovered);
            let source = stream.run.record().source();
            source.ended_time().record(ended_unix_us);
            WallTime::now().past_instant(ended_unix_us)
        }
        false => wire::clock::now(),
    };
    let Ok(continuation) =
        Continuation::new(handles, serving, stream, Attempt::Normal { number: 1 })
    else {
        // Only streams with prompts are planned to be readable.
        return;
    };
    match try_settle(&continuation, end, ended_at).await {
        Ok(()) => continuation.into_run().finish_recovered(ended_at),
        Err(error) => {
            tracing::error!(code = error.code, "a recovered stream cannot be read");
            continuation.into_run().reject_recovered(error);
        }
    }
}

async fn try_settle(
    continuation: &Continuation,
    end: End,
    ended_at: Instant,
) -> Result<(), ApiError> {
    let (pending, recovered) = (continuation.pending(), continuation.recovered());
    let mut resumed = continuation.resumed();
    resumed.paused = false;
    resumed.ended = Some(ended_at);
    let is_damaged = matches!(recovered.integrity, Integrity::Lost(_));
    for choice in &mut resumed.choices {
        choice.end = choice.end.filter(|_| !is_damaged).or(Some(end));
    }
    let broke = recovered.broke.map(|choice| choice as usize);
    let broke = broke.and_then(|choice| resumed.choices.get(choice)?.end);
    let prompts = continuation.restore_prompts().await?;
    let constraints = OutputConstraints::default();
    let submission = pending.submission(&constraints);
    let streams = &*pending.handles.streams;
    launch::restore_ended(&submission, (&prompts, resumed), (streams, &pending.run))?;
    if let Some(broke) = broke {
        pending.run.record().record_failure(broke);
    }
    Ok(())
}

fn has_ended(stream: &RestoredStream) -> bool {
    let ended = stream.recovered.choices.iter();
    let ended = ended.filter(|choice| choice.end.is_some()).count();
    ended == stream.run.record().meta().choices
}
