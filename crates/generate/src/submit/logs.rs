//! Logs of choices, gated where the host records them.

use super::{Submission, SubmissionHost};
use crate::error::ApiError;
use crate::output::choice_reader::LogReaders;
use crate::prompt::PreparedPrompt;
use crate::stream_source::ChoiceLog;
use engine::{Token, TopLogprob};
use std::time::Duration;
use stream::{End, Gate, PoolExhausted, Reader, SegmentPool, Writer};

/// Logs of all choices so far, and their first readers.
pub(super) struct OpenedLogs {
    pub(super) logs: Vec<ChoiceLog>,
    pub(super) readers: Vec<LogReaders>,
}

/// Writers of one choice's logs.
pub(super) struct LogWriters {
    pub(super) tokens: Writer<Token>,
    pub(super) top: Option<Writer<TopLogprob>>,
}

impl OpenedLogs {
    pub(super) fn with_capacity(choices: usize) -> Self {
        Self {
            logs: Vec::with_capacity(choices),
            readers: Vec::with_capacity(choices),
        }
    }
}

impl LogWriters {
    /// Appends the alternatives of one token, then the token.
    pub(super) fn append(&mut self, token: Token, top: &[TopLogprob]) -> Result<(), ApiError> {
        let mut append = || {
            if let Some(log) = &mut self.top {
                top.iter()
                    .try_for_each(|&alternative| log.append(alternative))?;
            }
            self.tokens.append(token)
        };
        append().map_err(|_| ApiError::ours("internal_error", "a log has no room"))
    }

    /// Ends both logs, the side log first: a reader that sees the end has all alternatives.
    pub(super) fn finish(self, end: End) {
        if let Some(top) = self.top {
            top.finish(end);
        }
        self.tokens.finish(end);
    }
}

impl Submission<'_> {
    /// Opens the logs of one choice with room for `room` tokens. Returns the writers; the readers go to `opened`.
    pub(super) fn open_logs(
        &self,
        prompt: &PreparedPrompt,
        room: usize,
        host: &dyn SubmissionHost,
        opened: &mut OpenedLogs,
    ) -> Result<LogWriters, ApiError> {
        let top_n = self.params.sampling.top_logprobs as usize;
        let (tokens, reader, gate) = self.open_token_log(room, host)?;
        let top = match top_n {
            0 => None,
            n => Some(open_log(
                &self.model.top_pool,
                room * n,
                host,
                self.retry_after,
            )?),
        };
        let (top, top_reader) = top.unzip();
        let echoed = if self.params.prompt_logprobs {
            prompt.ids.len()
        } else {
            0
        };
        opened.logs.push(ChoiceLog {
            tokens: reader.tap(),
            gate,
            top: top_reader.as_ref().map(Reader::tap),
            at_text_start: prompt.at_text_start || echoed > 0,
            reading: prompt.reading.clone(),
            echoed: echoed as u64,
            echo_text: prompt.echo_text.clone(),
            prompt: self.reports_prompt.then(|| prompt.ids.as_slice().into()),
        });
        opened.readers.push(LogReaders {
            tokens: reader,
            top: top_reader,
        });
        Ok(LogWriters { tokens, top })
    }

    #[expect(clippy::type_complexity, reason = "both sides of a log, and the gate")]
    fn open_token_log(
        &self,
        room: usize,
        host: &dyn SubmissionHost,
    ) -> Result<(Writer<Token>, Reader<Token>, Option<Gate<Token>>), ApiError> {
        let pool = &self.model.token_pool;
        let Some(recorder) = host.recorder() else {
            let (tokens, reader) = open_log(pool, room, host, self.retry_after)?;
            return Ok((tokens, reader, None));
        };
        let open = || stream::open_gated(pool, room, recorder.clone());
        let (tokens, reader, gate) = open_with_host(open, host, self.retry_after)?;
        Ok((tokens, reader, Some(gate)))
    }
}

/// Opens a log with room for `items` items, for which the host may free segments.
///
/// # Errors
/// The pool is used up.
pub fn open_log<T: Copy + Send + Sync + 'static>(
    pool: &SegmentPool<T>,
    items: usize,
    host: &dyn SubmissionHost,
    retry_after: Duration,
) -> Result<(Writer<T>, Reader<T>), ApiError> {
    open_with_host(|| stream::open(pool, items), host, retry_after)
}

/// Opens a log; where the pool is used up, again after the host has freed segments.
fn open_with_host<L>(
    open: impl Fn() -> Result<L, PoolExhausted>,
    host: &dyn SubmissionHost,
    retry_after: Duration,
) -> Result<L, ApiError> {
    loop {
        match open() {
            Ok(log) => return Ok(log),
            Err(_) if host.free_segments() => {}
            Err(_) => {
                let message = "no room for another stream of this length";
                return Err(ApiError::capacity("overloaded", message, retry_after));
            }
        }
    }
}
