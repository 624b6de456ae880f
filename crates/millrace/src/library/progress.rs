//! Whether engines make progress, for a watchdog.

use engine::Stats;
use std::collections::HashMap;

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
    use super::*;

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
