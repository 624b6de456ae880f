//! Reports of a download's progress, the caller's way to abandon the download, and the bound of one without progress.

use server::{LibraryError, PullNews};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// A download that gets fewer than [`PROGRESS_BYTES_MIN`] in this time is given up.
const PROGRESS_TIME: Duration = Duration::from_secs(180);
/// Bytes that count as progress.
const PROGRESS_BYTES_MIN: u64 = 64 << 10;

/// Takes each report; `Break` abandons the download.
pub(super) type ReportPull<'a> = &'a mut dyn FnMut(PullNews<'_>) -> ControlFlow<()>;

/// An error if the caller abandoned the download.
pub(super) fn expect_continue(flow: ControlFlow<()>) -> Result<(), LibraryError> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(LibraryError::Abandoned),
    }
}

/// The progress of one file. A hub that sends a byte now and then, or one byte for each request, holds no download.
pub(super) struct ProgressWatch {
    bytes: u64,
    since: Instant,
}

impl ProgressWatch {
    /// Of a download that has these bytes.
    pub(super) fn new(bytes: u64, now: Instant) -> Self {
        Self { bytes, since: now }
    }

    /// The download has these bytes now.
    ///
    /// # Errors
    /// There was no progress for too long.
    pub(super) fn note(&mut self, bytes: u64, now: Instant) -> Result<(), LibraryError> {
        if bytes >= self.bytes.saturating_add(PROGRESS_BYTES_MIN) {
            *self = Self::new(bytes, now);
            return Ok(());
        }
        if now.saturating_duration_since(self.since) < PROGRESS_TIME {
            Ok(())
        } else {
            Err(LibraryError::Failed(format!(
                "the download makes no progress: less than {PROGRESS_BYTES_MIN} bytes came in {} s; the partial file is \
                 kept, run `millrace pull` again to resume",
                PROGRESS_TIME.as_secs()
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PROGRESS_BYTES_MIN, PROGRESS_TIME, ProgressWatch};
    use crate::clock::now;
    use std::time::Duration;

    #[test]
    fn download_without_progress_ends() {
        let start = now();
        let at = |s: u64| start + Duration::from_secs(s);
        let bound = PROGRESS_TIME.as_secs();
        let mut slow = ProgressWatch::new(0, start);
        for round in 1..5 {
            let bytes = round * PROGRESS_BYTES_MIN;
            assert!(
                slow.note(bytes, at(round * (bound - 1))).is_ok(),
                "slow, not stuck"
            );
        }
        let mut stuck = ProgressWatch::new(7, start);
        assert!(stuck.note(8, at(bound - 1)).is_ok());
        let why = stuck.note(9, at(bound)).unwrap_err().to_string();
        assert!(
            why.contains("makes no progress") && why.contains("180 s"),
            "{why}"
        );
    }
}
