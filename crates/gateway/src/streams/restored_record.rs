//! State of a stream that an earlier process has left.

use super::end_name::end_name;
use super::stream_record::{Started, StreamRecord};
use crate::durability::ControlState;
use generate::error::ApiError;
use generate::output::generation_reader::is_good;
use generate::stream_source::{ChoiceLog, StartedGeneration};
use std::sync::atomic::Ordering;
use stream::End;
use wire::clock;

impl StreamRecord {
    /// The control updates and the pause of an earlier process. To be called before the stream is started.
    pub(crate) fn restore_control(&self, control: &ControlState) {
        let now = clock::now();
        let history = (control.count, control.history.clone());
        self.control_history()
            .restore_updates(history, now, clock::unix_us());
        self.steering().restore(control);
        let note = self.recovery_state().note();
        let is_paused = note.is_some_and(|note| note.is_paused);
        self.paused.store(is_paused, Ordering::Relaxed);
    }

    /// This process owns the stream, which was undecided ([`super::RecoveryNote::is_undecided`]).
    pub(crate) fn note_owned(&self) {
        self.transitions().publish_restored(false, clock::now());
    }

    /// The stream never starts, as an earlier process has decided, or because this process cannot: without a record.
    pub(crate) fn restore_rejection(&self, error: ApiError) {
        let code = error.code;
        if self.source().settle(Err(error)) {
            self.transitions()
                .publish_ended("refused", Some(code), clock::now());
            self.settle_stage();
        }
    }

    /// Publishes the end of a stream that no engine request will end. The first bad end of a choice is the stream's.
    pub(crate) fn publish_written_end(&self) {
        let written = |log: &ChoiceLog| match &log.gate {
            Some(gate) => gate.written_end(),
            None => log.tokens.end(),
        };
        let ends = self.started().into_iter().flat_map(|s| &s.choices);
        let ends: Vec<End> = ends.filter_map(written).collect();
        let bad = ends.iter().find(|end| !is_good(**end));
        if let Some(end) = bad.or(ends.first()) {
            let (how, detail) = end_name(*end);
            self.transitions().publish_ended(how, detail, clock::now());
        }
    }
}

impl Started {
    /// A generation that is no run of a program.
    pub(crate) fn of_generation(generation: StartedGeneration) -> Self {
        Self {
            generation,
            program: None,
        }
    }
}
