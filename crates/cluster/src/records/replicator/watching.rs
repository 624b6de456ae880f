//! Observations of the replicator beside answers: the connection, the store, notices of other owners.

use super::{Duration, Fenced, Instant, NextAction, ReplicaState, Replicator, ReplicatorCounters};
use crate::names::InstanceId;

impl Replicator {
    /// Whether requests can be sent. After an interruption every stream's last message is read: another instance may have
    /// taken the stream over, and the store may have lost messages.
    pub fn set_connected(&mut self, is_connected: bool, now: Instant) {
        if is_connected && !self.is_connected {
            self.check_all(now);
        }
        self.is_connected = is_connected;
    }

    /// The store's time of creation and highest sequence.
    pub fn note_store(&mut self, created: i128, last_sequence: u64, now: Instant) {
        let before = self.store.replace((created, last_sequence));
        let is_another = |(made, highest)| made != created || highest > last_sequence;
        if before.is_some_and(is_another) {
            tracing::warn!(
                "the records in JetStream are others than before: all streams are checked"
            );
            self.epoch += 1;
            self.purges.clear();
            self.file_purges.clear();
            for stream in self.streams.values_mut() {
                stream.lose_files();
            }
            self.check_all(now);
        }
    }

    /// Another instance says that it owns the stream.
    pub fn note_claimed(&mut self, id: u128, generation: u64, now: Instant) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let is_idle = stream.state == NextAction::Following && stream.flight.is_none();
        if generation > stream.generation && is_idle {
            stream.state = NextAction::Checking;
            self.settle(id, now);
        }
    }

    fn check_all(&mut self, now: Instant) {
        let ids: Vec<u128> = self.streams.keys().copied().collect();
        for id in ids {
            let Some(stream) = self.streams.get_mut(&id) else {
                continue;
            };
            let is_sent = stream.flight.as_ref().is_some_and(|flight| flight.is_sent);
            // The answer to a sent message arrives, or is reported as missing; a stream that was never stored has no other owner.
            let is_new = stream.stored == 0 && stream.flight.is_none();
            if stream.state == NextAction::Following && !is_sent && !is_new {
                self.wanted.remove(&id);
                stream.state = NextAction::Checking;
            }
            if !is_new && !matches!(stream.state, NextAction::Fenced | NextAction::Refused) {
                self.doubtful.insert(id);
            }
            self.settle(id, now);
        }
    }

    /// Whether the owner of a stream is not known since the last interruption.
    pub fn has_doubts(&self) -> bool {
        !self.doubtful.is_empty()
    }

    /// Has streams written once more whose messages JetStream would soon remove for their age.
    pub fn look_at_ages(&mut self, now: Instant) {
        let ids: Vec<u128> = self.streams.keys().copied().collect();
        for id in ids {
            let Some(stream) = self.streams.get_mut(&id) else {
                continue;
            };
            let is_idle = stream.takes_records() && stream.flight.is_none();
            if is_idle && stream.has_worn_copy(self.config.age_max, now) {
                self.held -= stream.pending.len();
                stream.drop_pending();
                self.settle(id, now);
            }
        }
    }

    /// Streams that other instances own, since the last call.
    pub fn take_fenced(&mut self) -> Vec<Fenced> {
        std::mem::take(&mut self.fenced)
    }

    /// Whether a stream's records are stored, or will be. `None`: the stream is unknown.
    pub fn state_of(&self, id: u128) -> Option<ReplicaState> {
        let stream = self.streams.get(&id)?;
        Some(match stream.state {
            NextAction::Fenced => ReplicaState::Fenced,
            NextAction::Refused => ReplicaState::Missing,
            _ if stream.needs_copy => ReplicaState::Missing,
            _ => ReplicaState::Followed,
        })
    }

    /// Whether everything so far is stored of a stream. `None`: the stream is unknown, another instance owns it, or it is
    /// never stored.
    pub fn is_stored(&self, id: u128) -> Option<bool> {
        let stream = self.streams.get(&id)?;
        let is_live = !matches!(stream.state, NextAction::Fenced | NextAction::Refused);
        let is_behind = stream.flight.is_some() || stream.needs_copy || !stream.pending.is_empty();
        is_live.then_some(stream.stored > 0 && !is_behind)
    }

    /// The generation in which this instance owns a stream.
    pub fn generation_of(&self, id: u128) -> Option<u64> {
        let stream = self.streams.get(&id)?;
        (stream.state != NextAction::Fenced).then_some(stream.generation)
    }

    /// Streams in this state.
    pub fn count_in(&self, state: ReplicaState) -> usize {
        let ids = self.streams.keys();
        ids.filter(|id| self.state_of(**id) == Some(state)).count()
    }

    /// Bytes of records that are not stored.
    pub fn behind_bytes(&self) -> usize {
        self.held
    }

    /// Age of the oldest record that is not stored.
    pub fn lag(&self, now: Instant) -> Duration {
        let since = self.streams.values().filter_map(|s| s.behind_since).min();
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// This instance.
    pub fn instance(&self) -> InstanceId {
        self.instance
    }

    /// Counts since the start.
    pub fn counters(&self) -> ReplicatorCounters {
        self.counters
    }

    /// Checks the sums, for tests.
    #[cfg(test)]
    pub(in crate::records) fn check(&self) {
        use super::ReplicatedStream;
        let held: usize = self.streams.values().map(ReplicatedStream::held).sum();
        assert_eq!(held, self.held);
    }
}
