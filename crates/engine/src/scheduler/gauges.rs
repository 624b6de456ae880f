//! Gauges and request phases, published after each step for other threads.

use super::Scheduler;
use super::draft_model::DraftModel;
use crate::Phase;
use crate::sequence::{ParkCause, Sequence, SequenceState};
use std::sync::atomic::{AtomicU64, Ordering};

impl Scheduler {
    /// Writes the gauges.
    pub(crate) fn publish_gauges(&self) {
        let stats = &self.inbox.stats;
        let pages = self.kv.counts();
        let (mut running, mut parked, mut paused, mut waiting) = (0, 0, 0, 0);
        for (_, sequence) in self.table.live() {
            match (sequence.state, sequence.park_cause) {
                (SequenceState::Active | SequenceState::Forking, _) => running += 1,
                (SequenceState::Waiting, _) => waiting += 1,
                (SequenceState::Parked, ParkCause::Credit) => parked += 1,
                (SequenceState::Parked, ParkCause::NoPermit) => waiting += 1,
                (SequenceState::Parked, ParkCause::Paused) => paused += 1,
            }
        }
        set_gauge(&stats.queued, self.inbox.queued());
        set_gauge(&stats.running, running);
        set_gauge(&stats.parked, parked);
        set_gauge(&stats.paused, paused);
        set_gauge(&stats.waiting, waiting);
        set_gauge(&stats.pages_free, pages.free);
        set_gauge(&stats.pages_used, pages.used);
        set_gauge(&stats.pages_cached, pages.cached);
        let draft_model = self.speculator.draft_model();
        let draft_pages = draft_model.map_or(0, DraftModel::pages_used);
        set_gauge(&stats.draft_pages_used, draft_pages);
    }

    /// Sets each request's phase to the phase of the busiest choice. Choices of a request are neighbors in the
    /// order.
    pub(crate) fn publish_phases(&self) {
        let mut at = 0;
        while let Some(slot) = self.table.slot_at(at) {
            let mut phase = Phase::Parked;
            while self.table.slot_at(at) == Some(slot) {
                if let Some(sequence) = self.table.get(self.table.key_at(at)) {
                    phase = busier_phase(phase, sequence);
                }
                at += 1;
            }
            if let Some(request) = self.table.request(slot) {
                let is_paused = phase == Phase::Parked && request.paused;
                let phase = if is_paused { Phase::Paused } else { phase };
                request.progress.set_phase(phase);
            }
        }
    }
}

fn busier_phase(phase: Phase, sequence: &Sequence) -> Phase {
    match (phase, sequence.state) {
        (Phase::Running, _) => Phase::Running,
        (_, SequenceState::Active) if sequence.generated() > 0 => Phase::Running,
        (_, SequenceState::Active) => Phase::Prefilling,
        (phase, _) => phase,
    }
}

fn set_gauge(gauge: &AtomicU64, value: usize) {
    gauge.store(value as u64, Ordering::Relaxed);
}
