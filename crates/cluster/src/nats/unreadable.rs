//! Messages on this process's subjects that nobody of ours sent: counted by kind of subject, dropped, and logged seldom.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two lines of the log about one kind of subject.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// A kind of subject, or of answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectKind {
    /// Heartbeats.
    Heartbeat,
    /// Usage of API keys.
    Usage,
    /// Notices of claims.
    Claimed,
    /// Tokens for a gateway.
    Tokens,
    /// Requests for an engine.
    Run,
    /// Orders for an engine.
    Control,
    /// Reads of tokens.
    Read,
    /// Questions for streams of an earlier owner.
    Adopt,
    /// Answers to requests of this process.
    Answer,
}

impl SubjectKind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Heartbeat,
        Self::Usage,
        Self::Claimed,
        Self::Tokens,
        Self::Run,
        Self::Control,
        Self::Read,
        Self::Adopt,
        Self::Answer,
    ];

    /// The kind's name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Heartbeat => "heartbeat",
            Self::Usage => "usage",
            Self::Claimed => "claimed",
            Self::Tokens => "tokens",
            Self::Run => "run",
            Self::Control => "control",
            Self::Read => "read",
            Self::Adopt => "adopt",
            Self::Answer => "answer",
        }
    }
}

/// Counts of messages that cannot be read.
#[derive(Debug, Default)]
pub struct UnreadableMessages {
    kinds: Mutex<[KindCount; SubjectKind::ALL.len()]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct KindCount {
    count: u64,
    /// The count when it was logged last.
    told: u64,
    told_at: Option<Instant>,
}

impl UnreadableMessages {
    /// Counts a message, and logs the first one of a while.
    pub fn note(&self, kind: SubjectKind, why: impl Display) {
        let now = tokio::time::Instant::now().into_std();
        if let Some(since) = self.count_one(kind, now) {
            tracing::warn!(
                "{since} messages that cannot be read arrived for {:?}, and were dropped: {why}",
                kind.name()
            );
        }
    }

    /// Messages of this kind since the start.
    pub fn count(&self, kind: SubjectKind) -> u64 {
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        kinds[kind as usize].count
    }

    /// The messages since the last line of the log, if another line is due.
    fn count_one(&self, kind: SubjectKind, now: Instant) -> Option<u64> {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = &mut kinds[kind as usize];
        kind.count += 1;
        let is_early = |at| now.saturating_duration_since(at) < TOLD_EVERY;
        if kind.told_at.is_some_and(is_early) {
            return None;
        }
        let since = kind.count - kind.told;
        (kind.told, kind.told_at) = (kind.count, Some(now));
        Some(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_has_a_line_for_each_kind_and_minute() {
        let start = tokio::time::Instant::now().into_std();
        let messages = UnreadableMessages::default();
        let (run, read) = (SubjectKind::Run, SubjectKind::Read);
        assert_eq!(messages.count_one(run, start), Some(1));
        assert_eq!(messages.count_one(read, start), Some(1));
        let almost = start + TOLD_EVERY - Duration::from_millis(1);
        for _ in 0..1000 {
            assert_eq!(messages.count_one(run, almost), None);
        }
        assert_eq!(messages.count_one(run, start + TOLD_EVERY), Some(1001));
        assert_eq!((messages.count(run), messages.count(read)), (1002, 1));
        assert_eq!(messages.count(SubjectKind::Answer), 0);
    }

    #[test]
    fn kinds_have_their_place() {
        for (i, kind) in SubjectKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, i, "{}", kind.name());
        }
    }
}
