//! Lessons of the replicator from answers.

use super::{
    CHECK_AGAIN, Fenced, FileState, FilesOutcome, Instant, LastMessage, NextAction, PURGES_MAX,
    PublishOutcome, Replicator,
};

impl Replicator {
    /// The answer to a publication.
    pub fn on_published(&mut self, id: u128, serial: u64, outcome: PublishOutcome, now: Instant) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let flight = stream.flight.as_ref().filter(|flight| flight.is_sent);
        let is_waiting = flight.is_some_and(|flight| flight.serial == serial);
        if !is_waiting || stream.state != NextAction::Following {
            return;
        }
        match outcome {
            PublishOutcome::Stored(sequence) => self.take_stored(id, sequence, now),
            PublishOutcome::WrongSequence | PublishOutcome::Unknown => {
                stream.state = NextAction::Checking;
                self.settle(id, now);
            }
            PublishOutcome::Busy(wait) => {
                if let Some(flight) = &mut stream.flight {
                    flight.is_sent = false;
                }
                self.schedule.set(&mut stream.due, id, now + wait);
            }
        }
    }

    fn take_stored(&mut self, id: u128, sequence: u64, now: Instant) {
        // Stored after the message that was the last one: nobody else has claimed the stream.
        self.doubtful.remove(&id);
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let bytes = stream.flight.as_ref().map_or(0, |f| f.payload.len());
        self.held -= bytes;
        self.counters.stored_messages += 1;
        self.counters.stored_bytes += bytes as u64;
        if let Some((_, highest)) = &mut self.store {
            *highest = sequence.max(*highest);
        }
        if let Some(first) = stream.take_stored(sequence)
            && self.purges.len() < PURGES_MAX
        {
            self.purges.push_back((id, first));
        }
        if stream.takes_records() && stream.has_worn_copy(self.config.age_max, now) {
            self.held -= stream.pending.len();
            stream.drop_pending();
        }
        self.settle(id, now);
    }

    /// A purge that was not answered is tried again, unless the store is another one.
    pub fn on_purge_failed(&mut self, id: u128, below: u64, epoch: u64) {
        if epoch == self.epoch && self.purges.len() < PURGES_MAX {
            self.purges.push_back((id, below));
        }
    }

    /// The answer to a request to store files.
    pub fn on_files(&mut self, id: u128, outcome: FilesOutcome, now: Instant) {
        self.sending = self.sending.saturating_sub(1);
        let Some(stream) = self.streams.get_mut(&id) else {
            // Another owner has the stream, and its files.
            return;
        };
        if stream.file_state != FileState::Sending {
            return;
        }
        match outcome {
            FilesOutcome::Stored => stream.file_state = FileState::Stored(Some(now)),
            FilesOutcome::Missing => {
                tracing::warn!("an image of a stream is missing: no other gateway can continue it");
                stream.file_state = FileState::Stored(Some(now));
            }
            FilesOutcome::Busy(wait) => {
                stream.file_state = FileState::Wanted { renews: false };
                if !stream.is_forgotten && stream.state == NextAction::Following {
                    return self.schedule.set(&mut stream.due, id, now + wait);
                }
            }
        }
        self.settle(id, now);
    }

    /// A removal of files that was not answered is tried again.
    pub fn on_file_purge_failed(&mut self, id: u128) {
        if self.file_purges.len() < PURGES_MAX {
            self.file_purges.push_back(id);
        }
    }

    /// The answer to a check; `Err` if there was none.
    pub fn on_checked(&mut self, id: u128, last: Result<Option<LastMessage>, ()>, now: Instant) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.state != NextAction::CheckSent {
            return;
        }
        let Ok(last) = last else {
            stream.state = NextAction::Checking;
            return self.schedule.set(&mut stream.due, id, now + CHECK_AGAIN);
        };
        stream.state = NextAction::Following;
        self.doubtful.remove(&id);
        let own = (stream.generation, self.instance);
        let (stored, flies) = (stream.stored, stream.flight.is_some());
        match last {
            Some(last) if (last.head.generation, last.head.instance) == own => {
                let number = last.head.number;
                if flies && number == stored + 1 {
                    return self.take_stored(id, last.sequence, now);
                } else if number == stored {
                    self.send_again(id, last.sequence);
                } else {
                    self.take_regress(id, Some(last));
                }
            }
            Some(last) if last.head.generation >= own.0 => self.fence(id, last),
            None if stored == 0 => self.send_again(id, 0),
            last => self.take_regress(id, last),
        }
        self.settle(id, now);
    }

    fn send_again(&mut self, id: u128, sequence: u64) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.last_sequence = sequence;
            if let Some(flight) = &mut stream.flight {
                flight.is_sent = false;
            }
        }
    }

    fn take_regress(&mut self, id: u128, last: Option<LastMessage>) {
        if let Some(stream) = self.streams.get_mut(&id) {
            self.held -= stream.held();
            stream.take_regress(last);
            self.purges.retain(|(purged, _)| *purged != id);
            self.counters.regressions += 1;
        }
    }

    fn fence(&mut self, id: u128, last: LastMessage) {
        if let Some(stream) = self.streams.get_mut(&id) {
            self.held -= stream.held();
            stream.pending = Vec::new();
            stream.flight = None;
            stream.state = NextAction::Fenced;
            stream.behind_since = None;
            self.wanted.remove(&id);
            self.counters.fenced += 1;
            self.fenced.push(Fenced {
                id,
                by: last.head.instance,
                generation: last.head.generation,
            });
        }
    }
}
