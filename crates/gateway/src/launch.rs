//! Submission of an admitted stream.

use crate::admission::Permit;
use crate::durability::DurableStream;
use crate::streams::{PermitHolder, Started, StreamRecord, StreamRegistry, StreamRun};
use engine::{Progress, SequencePermits};
use generate::error::ApiError;
use generate::output::choice_reader::LogReaders;
use generate::prompt::PreparedPrompt;
use generate::submit::{Submission, SubmissionHost};
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;
use stream::Owner;

/// The stream of a submission: splits the permit among requests, and removes ended streams when segments are short.
struct StreamHost<'a> {
    record: Arc<StreamRecord>,
    streams: &'a StreamRegistry,
    work: Arc<PermitHolder>,
    /// When the engine's timestamps begin.
    epoch: Instant,
    owner: Owner,
}

impl SubmissionHost for StreamHost<'_> {
    fn progress(&self, prompt: usize) -> Progress {
        Progress::followed(self.record.transitions().engine_follower(prompt))
    }

    fn permits(&self, progress: &Arc<Progress>) -> Option<Box<dyn SequencePermits>> {
        Some(self.work.sequence_permit(progress, self.epoch))
    }

    fn recorder(&self) -> Option<Waker> {
        self.record.durable().map(DurableStream::waker)
    }

    fn free_segments(&self) -> bool {
        self.streams.free_segments(self.owner)
    }

    fn set_requests(&self, count: usize) {
        self.record.transitions().set_requests(count);
    }
}

/// Submits all prompts of a stream and starts the stream, or neither. Returns the first readers of the logs.
///
/// # Errors
/// The token pools or the engine have no room.
pub(crate) fn start_stream(
    submission: &Submission<'_>,
    prompts: Vec<PreparedPrompt>,
    permit: Permit,
    (streams, run): (&StreamRegistry, &mut StreamRun),
) -> Result<Vec<LogReaders>, ApiError> {
    let reporter = permit.latency_reporter();
    let host = StreamHost {
        record: Arc::clone(run.record()),
        streams,
        work: Arc::new(PermitHolder::new(
            permit,
            run.record(),
            streams.undelivered_streams(),
        )),
        epoch: submission.model.engine.epoch(),
        owner: run.record().terms().owner,
    };
    let (generation, readers) = submission.start(prompts, &host)?;
    let started = Started {
        generation,
        program: None,
    };
    run.start_stream(started, reporter);
    Ok(readers)
}
