//! Orders to the engine that computes a stream: stop, pause, update.

use super::stream_record::{StreamRecord, StreamStage};
use engine::{Handle, Phase, RequestId, RequestUpdate, UpdateRejected};
use generate::stream_source::Submitted;
use std::sync::atomic::Ordering;

impl StreamRecord {
    /// Ready after a cancellation before the start; pending forever otherwise.
    pub(crate) async fn cancelled_waiting(&self) {
        let mut stage = self.stage.subscribe();
        if stage
            .wait_for(|stage| *stage == StreamStage::Cancelled)
            .await
            .is_err()
        {
            std::future::pending::<()>().await;
        }
    }

    /// Cancels the stream within one step. An ended stream does not change.
    pub fn cancel(&self) {
        self.stage.send_if_modified(|stage| {
            let waits = *stage == StreamStage::Waiting;
            if waits {
                *stage = StreamStage::Cancelled;
            }
            waits
        });
        self.each_open(Handle::cancel);
        self.program().into_iter().for_each(|run| run.cancel());
    }

    /// Pauses or continues the stream; the total timeout and the deadline go on. False: the stream is not started, or
    /// has ended.
    pub fn pause(&self, paused: bool) -> bool {
        if self.started().is_none() || self.is_over() {
            return false;
        }
        self.paused.store(paused, Ordering::Relaxed);
        if let Some(durable) = self.durable() {
            durable.pause(paused);
        }
        self.each_open(if paused {
            Handle::pause
        } else {
            Handle::resume
        });
        self.program().into_iter().for_each(|run| run.pause(paused));
        true
    }

    /// Updates the generation from the engine's next step. `None`: the stream is a workflow run.
    pub(crate) fn update_request(
        &self,
        steer: &RequestUpdate,
    ) -> Option<Result<(), UpdateRejected>> {
        let started = self.started().filter(|_| self.program().is_none())?;
        let requests = started.requests.iter();
        let mut told = requests.map(|r| started.engine.update(r.id, steer.clone()));
        Some(told.find(Result::is_err).unwrap_or(Ok(())))
    }

    fn each_open(&self, tell: impl Fn(&Handle, RequestId)) {
        let Some(started) = self.started() else {
            return;
        };
        let open = |r: &&Submitted| r.progress.phase() != Phase::Ended;
        for request in started.requests.iter().filter(open) {
            tell(&started.engine, request.id);
        }
    }
}
