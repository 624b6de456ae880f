//! A submitted generation, which attempts share whose choices gateways have adopted one by one.

use engine::{Progress, RequestUpdate, UpdateRejected};
use generate::stream_source::{ChoiceLog, StartedGeneration, Submitted};
use std::sync::atomic::{AtomicU32, Ordering};

/// A generation. The drop, with the last attempt, cancels its requests.
pub(super) struct SharedGeneration {
    started: StartedGeneration,
    /// By request of the engine: updates that the engine got.
    updates: Vec<AtomicU32>,
}

impl SharedGeneration {
    pub(super) fn new(started: StartedGeneration) -> Self {
        let updates = started.requests.iter().map(|_| AtomicU32::new(0));
        Self {
            updates: updates.collect(),
            started,
        }
    }

    pub(super) fn log(&self, number: usize) -> &ChoiceLog {
        &self.started.choices[number]
    }

    /// Indices of the engine's requests that compute one of these logs.
    pub(super) fn requests_of(&self, logs: impl Fn(usize) -> bool) -> Vec<usize> {
        let requests = self.started.requests.iter().enumerate();
        let computes = |request: &Submitted| request.choices.clone().any(&logs);
        requests
            .filter_map(|(at, request)| computes(request).then_some(at))
            .collect()
    }

    pub(super) fn request(&self, at: usize) -> &Submitted {
        &self.started.requests[at]
    }

    /// Progress of the engine's request that computes a log; `None`: the choice had ended.
    pub(super) fn progress_of(&self, log: usize) -> Option<&Progress> {
        let mut requests = self.started.requests.iter();
        let request = requests.find(|request| request.choices.contains(&log))?;
        Some(&request.progress)
    }

    pub(super) fn cancel(&self, at: usize) {
        self.started.engine.cancel(self.request(at).id);
    }

    pub(super) fn set_paused(&self, at: usize, is_paused: bool) {
        let (engine, id) = (&self.started.engine, self.request(at).id);
        match is_paused {
            true => engine.pause(id),
            false => engine.resume(id),
        }
    }

    /// Updates that the engine got for a request.
    pub(super) fn updates(&self, at: usize) -> u32 {
        self.updates[at].load(Ordering::Relaxed)
    }

    /// Gives the engine the update with this number, unless another attempt did. Returns false if the engine has no room.
    pub(super) fn update(&self, at: usize, number: u32, update: &RequestUpdate) -> bool {
        if self.updates(at) >= number {
            return true;
        }
        let given = self
            .started
            .engine
            .update(self.request(at).id, update.clone());
        match given {
            Err(UpdateRejected::Full) => return false,
            Err(why) => tracing::warn!("a control update of a gateway is not applied: {why:?}"),
            Ok(()) => {}
        }
        self.updates[at].store(number, Ordering::Relaxed);
        true
    }
}

impl Drop for SharedGeneration {
    fn drop(&mut self) {
        (0..self.started.requests.len()).for_each(|at| self.cancel(at));
    }
}
