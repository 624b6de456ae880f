//! Credit of a stream: readers return credit, and a stream whose readers return none is parked.

use super::credit_owner::CreditOwner;
use super::stream_record::StreamRecord;
use generate::stream_source::ChoiceLog;
use std::sync::atomic::Ordering;

impl StreamRecord {
    /// The subscriber whose reading returns credit.
    pub(crate) fn credit_owner(&self) -> &CreditOwner {
        &self.credit_owner
    }

    /// The client has all of `choice` (of every one, if none is named) before token `index`.
    pub fn acknowledge(&self, index: u64, choice: Option<usize>) {
        let Some(started) = self.started() else {
            return;
        };
        let top_n = self.meta().top_n as u64;
        for (i, log) in started.choices.iter().enumerate() {
            if choice.is_none_or(|choice| choice == i) {
                log.tokens.accept(index);
                if let Some(top) = &log.top {
                    top.accept(index.saturating_mul(top_n));
                }
            }
        }
    }

    /// The client has disconnected: grants the detached credit, once.
    pub(crate) fn detach_client(&self) {
        let extra = self.terms().detached_tokens;
        let Some(started) = self.started().filter(|_| extra > 0) else {
            return;
        };
        for log in &started.choices {
            if log.tokens.granted() == 0 {
                log.tokens.grant(extra);
            }
        }
    }

    /// Whether the stream waits for credit that no subscriber returns.
    pub fn is_stranded(&self) -> bool {
        !self.credit_owner.is_taken() && self.is_out_of_credit()
    }

    /// While the stream waits for an attached reader: tokens that the reader has taken. An unchanged number means
    /// that the reader takes nothing.
    pub fn tokens_awaited(&self) -> Option<u64> {
        let taken = |log: &ChoiceLog| log.tokens.len().saturating_sub(log.tokens.unaccepted());
        let waits = self.credit_owner.is_taken() && !self.is_over() && self.is_out_of_credit();
        let started = self.started().filter(|_| waits)?;
        Some(started.choices.iter().map(taken).sum())
    }

    pub(crate) fn is_out_of_credit(&self) -> bool {
        let window = self.terms().credit_window;
        let out_of_credit = |log: &ChoiceLog| {
            log.tokens.end().is_some() || (window > 0 && log.tokens.unaccepted() >= window)
        };
        let started = self.started();
        !self.paused.load(Ordering::Relaxed)
            && started.is_some_and(|started| started.choices.iter().all(out_of_credit))
    }
}
