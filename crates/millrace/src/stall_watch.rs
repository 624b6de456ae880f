//! Engines that end no step for too long, for the liveness probe: where no service manager has a watchdog, as in a container,
//! whoever asks the probe replaces the process.

use crate::config::Settings;
use crate::library::{EngineProgress, Library};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Looks at the engines within the time after which one is stuck.
const LOOKS: u32 = 5;

/// Consecutive looks at engines that had made no progress.
pub(crate) struct StallWatch {
    limit: Duration,
    without_progress: AtomicU32,
}

impl StallWatch {
    /// Looks at the engines from now on; `None`: the settings say never. Must be called inside a tokio runtime.
    pub(crate) fn start(settings: &Settings, library: &Arc<Library>) -> Option<Arc<Self>> {
        let limit = Duration::from_secs(settings.server.engine_stall_s);
        if limit.is_zero() {
            return None;
        }
        let watch = Arc::new(Self::new(limit));
        let (noted, library) = (Arc::clone(&watch), Arc::clone(library));
        let mut looks = tokio::time::interval(limit / LOOKS);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        tokio::spawn(async move {
            let mut progress = EngineProgress::default();
            loop {
                looks.tick().await;
                noted.note(library.look_at(&mut progress));
            }
        });
        Some(watch)
    }

    fn new(limit: Duration) -> Self {
        Self {
            limit,
            without_progress: AtomicU32::new(0),
        }
    }

    /// Notes one look.
    fn note(&self, has_progress: bool) {
        if has_progress {
            self.without_progress.store(0, Ordering::Relaxed);
            return;
        }
        let looks = self.without_progress.fetch_add(1, Ordering::Relaxed) + 1;
        if looks == LOOKS {
            tracing::error!("{}: the liveness probe fails", self.words());
        }
    }

    /// What is stuck; `None`: nothing is.
    pub(crate) fn problem(&self) -> Option<String> {
        (self.without_progress.load(Ordering::Relaxed) >= LOOKS).then(|| self.words())
    }

    fn words(&self) -> String {
        let seconds = self.limit.as_secs();
        format!("an engine has ended no step for {seconds} s (server.engine_stall_s)")
    }
}

#[cfg(test)]
mod tests {
    use super::{LOOKS, StallWatch};
    use std::time::Duration;

    #[test]
    fn engine_is_stuck_after_all_looks_of_the_time() {
        let watch = StallWatch::new(Duration::from_secs(300));
        for _ in 1..LOOKS {
            watch.note(false);
            assert_eq!(watch.problem(), None);
        }
        watch.note(true);
        for _ in 1..LOOKS {
            watch.note(false);
        }
        assert_eq!(watch.problem(), None, "a step in between");
        watch.note(false);
        let words = "an engine has ended no step for 300 s (server.engine_stall_s)";
        assert_eq!(watch.problem().as_deref(), Some(words));
        watch.note(true);
        assert_eq!(watch.problem(), None, "it goes on");
    }
}
