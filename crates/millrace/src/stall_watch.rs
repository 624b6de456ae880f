//! Engines that end no step for too long, for the liveness probe: where no service manager has a watchdog, as in a container,
//! the prober replaces the process; and whether engines make progress, for a watchdog.

use crate::config::Settings;
use crate::library::Library;
use engine::Stats;
use std::collections::HashMap;
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

/// What was last seen of each engine.
#[derive(Debug, Default)]
pub(crate) struct EngineProgress {
    /// Number of steps by id of the engine.
    steps: HashMap<u64, u64>,
}

/// What is seen of an engine.
#[derive(Clone, Copy)]
pub(super) struct EngineSight {
    pub(super) id: u64,
    steps: u64,
    /// Sequences that take part in the next step.
    running: u64,
}

impl EngineSight {
    pub(super) fn of(id: u64, stats: &Stats) -> Self {
        Self {
            id,
            steps: stats.steps(),
            running: stats.running(),
        }
    }
}

impl EngineProgress {
    /// Whether each engine has nothing to run, or has ended a step since the last look. An engine that is new gets until the
    /// next look.
    pub(super) fn look(&mut self, engines: &[EngineSight]) -> bool {
        let is_stuck = |engine: &EngineSight| {
            engine.running > 0 && self.steps.get(&engine.id) == Some(&engine.steps)
        };
        let progress = !engines.iter().any(is_stuck);
        self.steps = engines.iter().map(|seen| (seen.id, seen.steps)).collect();
        progress
    }
}

#[cfg(test)]
mod tests {
    use super::{LOOKS, StallWatch, *};
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

    #[test]
    fn engine_with_work_and_without_steps_is_stuck() {
        let sight = |id, steps, running| EngineSight { id, steps, running };
        let mut progress = EngineProgress::default();
        let rows: [(&str, &[EngineSight], bool); 8] = [
            ("no engine", &[], true),
            ("a new one", &[sight(1, 5, 1)], true),
            ("a step", &[sight(1, 6, 1)], true),
            ("no step", &[sight(1, 6, 1)], false),
            ("still none", &[sight(1, 6, 2)], false),
            ("nothing to run", &[sight(1, 6, 0)], true),
            (
                "another one steps",
                &[sight(1, 6, 1), sight(2, 9, 1)],
                false,
            ),
            ("both step", &[sight(1, 7, 1), sight(2, 10, 1)], true),
        ];
        for (case, engines, want) in rows {
            assert_eq!(progress.look(engines), want, "{case}");
        }
        assert_eq!(
            progress.steps.len(),
            2,
            "engines that are gone are forgotten"
        );
    }
}
