//! Submission of an admitted stream.

use crate::streams::{
    DurableStream, PermitHolder, Started, StreamRecord, StreamRegistry, StreamRun,
};
use admission::Permit;
use engine::{Progress, SequencePermits};
use generate::error::ApiError;
use generate::output::choice_reader::LogReaders;
use generate::prompt::PreparedPrompt;
use generate::submit::{ResumedGeneration, Submission, SubmissionHost};
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

impl<'a> StreamHost<'a> {
    fn new(
        submission: &Submission<'_>,
        permit: Permit,
        streams: &'a StreamRegistry,
        record: &Arc<StreamRecord>,
    ) -> Self {
        let undelivered = streams.undelivered_streams();
        Self {
            record: Arc::clone(record),
            streams,
            work: Arc::new(PermitHolder::new(permit, record, undelivered)),
            epoch: submission.model.engine.epoch(),
            owner: record.terms().owner,
        }
    }
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

/// Submits all prompts of a stream, or none, for [`StreamRun::start_stream`]. Returns the first readers of the logs, too.
///
/// # Errors
/// The token pools or the engine have no room.
pub(crate) fn start_stream(
    submission: &Submission<'_>,
    prompts: Vec<PreparedPrompt>,
    permit: Permit,
    (streams, record): (&StreamRegistry, &Arc<StreamRecord>),
) -> Result<(Started, Vec<LogReaders>), ApiError> {
    let host = StreamHost::new(submission, permit, streams, record);
    let (generation, readers) = submission.start(prompts, &host)?;
    Ok((Started::of_generation(generation), readers))
}

/// Submits the rest of a stream of an earlier process, for [`StreamRun::start_stream`]. Returns the first readers of the
/// logs, too.
///
/// # Errors
/// As for [`start_stream`].
pub(crate) fn resume_stream(
    submission: &Submission<'_>,
    (prompts, resumed): (&[PreparedPrompt], ResumedGeneration),
    permit: Permit,
    (streams, record): (&StreamRegistry, &Arc<StreamRecord>),
) -> Result<(Started, Vec<LogReaders>), ApiError> {
    let host = StreamHost::new(submission, permit, streams, record);
    let (generation, readers) = submission.resume(prompts, resumed, &host)?;
    Ok((Started::of_generation(generation), readers))
}

/// Makes the tokens of a stream readable whose choices have all ended.
///
/// # Errors
/// The token pools have no room.
pub(crate) fn restore_ended(
    submission: &Submission<'_>,
    (prompts, resumed): (&[PreparedPrompt], ResumedGeneration),
    (streams, run): (&StreamRegistry, &StreamRun),
) -> Result<(), ApiError> {
    let host = EndedHost {
        record: run.record(),
        streams,
    };
    let (generation, _) = submission.resume(prompts, resumed, &host)?;
    run.record().set_started(Started::of_generation(generation));
    run.record().publish_written_end();
    Ok(())
}

/// The host of a stream without engine requests.
struct EndedHost<'a> {
    record: &'a Arc<StreamRecord>,
    streams: &'a StreamRegistry,
}

impl SubmissionHost for EndedHost<'_> {
    fn recorder(&self) -> Option<Waker> {
        self.record.durable().map(DurableStream::waker)
    }

    fn free_segments(&self) -> bool {
        self.streams.free_segments(self.record.terms().owner)
    }
}
