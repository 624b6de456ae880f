//! Options of a speed measurement, and the tests that run.

use super::cost::ModelCost;
use cpu::PAGE_TOKENS;
use kernels::KvKind;
use std::fmt;

/// Tests that run, and tests that are skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestPlan {
    /// Tests in the order of the table.
    pub tests: Vec<SpeedTest>,
    /// Skipped tests with the reason.
    pub left_out: Vec<(SpeedTest, String)>,
}

impl TestPlan {
    pub(super) fn of(options: &SpeedOptions, cost: &ModelCost) -> Result<Self, SpeedError> {
        check_bounds(options)?;
        let (mut tests, mut left_out) = (Vec::new(), Vec::new());
        for test in all_tests(options) {
            match skip_reason(test, options, cost) {
                None => tests.push(test),
                Some(why) => left_out.push((test, why)),
            }
        }
        if tests.is_empty() {
            let why = left_out.first().map(|(test, why)| format!("{test}: {why}"));
            return Err(SpeedError(
                why.unwrap_or_else(|| "prompt and gen are both 0".to_owned()),
            ));
        }
        Ok(Self { tests, left_out })
    }

    pub(super) fn max_of(&self, of: impl Fn(SpeedTest) -> usize) -> usize {
        self.tests.iter().map(|&test| of(test)).max().unwrap_or(0)
    }
}

fn check_bounds(options: &SpeedOptions) -> Result<(), SpeedError> {
    let bound = |name: &str, given: usize, least: usize, most: usize| {
        if (least..=most).contains(&given) {
            return Ok(());
        }
        Err(SpeedError(format!(
            "{name} is {given}: from {least} to {most} is possible"
        )))
    };
    bound("prompt", options.prompt, 0, TOKENS_MAX)?;
    bound("gen", options.generate, 0, TOKENS_MAX)?;
    bound("rounds", options.rounds, 1, ROUNDS_MAX)?;
    for &batch in &options.batches {
        bound("batch", batch, 1, BATCH_MAX)?;
    }
    for &context in &options.contexts {
        bound("context", context, 0, TOKENS_MAX)?;
    }
    Ok(())
}

/// All tests: for each context length the prefill test, then the decode batches, each without and perhaps with running ahead.
fn all_tests(options: &SpeedOptions) -> Vec<SpeedTest> {
    let mut tests = Vec::new();
    for &context in &options.contexts {
        if options.prompt > 0 {
            let tokens = options.prompt;
            tests.push(SpeedTest::Prompt { tokens, context });
        }
        for &batch in options.batches.iter().filter(|_| options.generate > 0) {
            for &ahead in &[false, true][..1 + usize::from(options.ahead)] {
                tests.push(SpeedTest::Decode {
                    tokens: options.generate,
                    batch,
                    context,
                    ahead,
                });
            }
        }
    }
    tests
}

fn skip_reason(test: SpeedTest, options: &SpeedOptions, cost: &ModelCost) -> Option<String> {
    if test.positions() > cost.context_trained() {
        return Some(format!(
            "{} positions, the model has {}",
            test.positions(),
            cost.context_trained()
        ));
    }
    let bytes = (test.batch() * test.pages_each()) as u64 * cost.page_bytes();
    (bytes > options.kv_bytes_max).then(|| {
        let (needed, most) = (bytes.div_ceil(1 << 20), options.kv_bytes_max >> 20);
        format!("{needed} MiB of keys and values, at most {most} are allowed")
    })
}

/// A prefill or decode test: one line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeedTest {
    /// Prefill of `tokens` tokens after `context` positions.
    Prompt {
        /// Tokens computed.
        tokens: usize,
        /// Positions before the prompt.
        context: usize,
    },
    /// `tokens` decode steps of `batch` sequences after `context` positions.
    Decode {
        /// Decode steps.
        tokens: usize,
        /// Batch size.
        batch: usize,
        /// Positions before the first step.
        context: usize,
        /// Whether the device draws the tokens, and begins a step before those of the last one are here; else logits are read back.
        ahead: bool,
    },
}

impl SpeedTest {
    /// Tokens computed in one round.
    pub fn tokens(self) -> usize {
        match self {
            Self::Prompt { tokens, .. } => tokens,
            Self::Decode { tokens, batch, .. } => tokens * batch,
        }
    }

    /// Positions before the test.
    pub fn context(self) -> usize {
        match self {
            Self::Prompt { context, .. } | Self::Decode { context, .. } => context,
        }
    }

    /// Whether the model runs ahead.
    pub(super) fn is_ahead(self) -> bool {
        matches!(self, Self::Decode { ahead: true, .. })
    }

    /// Batch size.
    pub fn batch(self) -> usize {
        match self {
            Self::Prompt { .. } => 1,
            Self::Decode { batch, .. } => batch,
        }
    }

    /// Positions of each sequence at the end.
    pub fn positions(self) -> usize {
        match self {
            Self::Prompt { tokens, context }
            | Self::Decode {
                tokens, context, ..
            } => context + tokens,
        }
    }

    /// KV pages of each sequence.
    pub(super) fn pages_each(self) -> usize {
        self.positions().div_ceil(PAGE_TOKENS)
    }
}

impl fmt::Display for SpeedTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prompt { tokens, .. } => write!(f, "prompt {tokens}")?,
            Self::Decode { tokens, batch, .. } => write!(f, "decode {tokens} x {batch}")?,
        }
        if self.context() > 0 {
            write!(f, " @ {}", self.context())?;
        }
        if self.is_ahead() {
            f.write_str(", ahead")?;
        }
        Ok(())
    }
}

/// Largest prompt and context of a test. This and the next bounds keep a typing error from requesting hours or
/// all memory.
pub const TOKENS_MAX: usize = 1 << 20;
/// Most sequences of a decode batch.
pub const BATCH_MAX: usize = 4096;
/// Most rounds.
pub const ROUNDS_MAX: usize = 1000;

/// Options of a speed measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeedOptions {
    /// Prompt tokens of a prefill test; 0 for no prefill tests.
    pub prompt: usize,
    /// Decode steps of a decode test; 0 for no decode tests.
    pub generate: usize,
    /// Batch sizes of decode tests.
    pub batches: Vec<usize>,
    /// Context lengths before a test begins.
    pub contexts: Vec<usize>,
    /// Whether each decode test is run once more with the model running ahead.
    pub ahead: bool,
    /// Repetitions of all tests; medians are reported.
    pub rounds: usize,
    /// Kernel threads.
    pub threads: usize,
    /// Storage format of the KV cache.
    pub kv: KvKind,
    /// Limit of the KV cache in bytes; tests that need more are skipped and reported.
    pub kv_bytes_max: u64,
}

/// The measurement could not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpeedError(pub String);

impl SpeedError {
    pub(super) fn of(why: impl fmt::Display) -> Self {
        Self(why.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> SpeedOptions {
        SpeedOptions {
            prompt: 64,
            generate: 8,
            batches: vec![1, 4],
            contexts: vec![0, 100],
            ahead: false,
            rounds: 1,
            threads: 1,
            kv: kernels::KvKind::F16,
            kv_bytes_max: 1 << 30,
        }
    }

    fn cost() -> ModelCost {
        super::super::cost::tests::tiny()
    }

    fn names(plan: &TestPlan) -> Vec<String> {
        plan.tests.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_context_has_prefill_and_decode_tests() {
        let plan = TestPlan::of(&options(), &cost()).unwrap();
        let wanted = [
            "prompt 64",
            "decode 8 x 1",
            "decode 8 x 4",
            "prompt 64 @ 100",
            "decode 8 x 1 @ 100",
            "decode 8 x 4 @ 100",
        ];
        assert_eq!(names(&plan), wanted);
        assert_eq!(plan.max_of(SpeedTest::positions), 164);
        let ahead = SpeedOptions {
            ahead: true,
            prompt: 0,
            batches: vec![4],
            ..options()
        };
        let wanted = [
            "decode 8 x 4",
            "decode 8 x 4, ahead",
            "decode 8 x 4 @ 100",
            "decode 8 x 4 @ 100, ahead",
        ];
        assert_eq!(names(&TestPlan::of(&ahead, &cost()).unwrap()), wanted);
        let prompts = SpeedOptions {
            generate: 0,
            ..options()
        };
        assert_eq!(
            names(&TestPlan::of(&prompts, &cost()).unwrap()),
            ["prompt 64", "prompt 64 @ 100"]
        );
    }

    #[test]
    fn tests_without_memory_are_skipped_with_a_reason() {
        let cost = cost();
        let page = cost.page_bytes();
        let options = SpeedOptions {
            kv_bytes_max: 4 * page,
            contexts: vec![0, 100, 250],
            ..options()
        };
        let plan = TestPlan::of(&options, &cost).unwrap();
        assert_eq!(
            names(&plan),
            [
                "prompt 64",
                "decode 8 x 1",
                "decode 8 x 4",
                "decode 8 x 1 @ 100"
            ]
        );
        let why: Vec<&str> = plan.left_out.iter().map(|(_, why)| why.as_str()).collect();
        assert!(why[0].contains("MiB"), "{why:?}");
        assert!(why[2].contains("256"), "{why:?}");
    }

    #[test]
    fn speed_options_out_of_bounds_are_errors() {
        let rows = [
            (
                SpeedOptions {
                    rounds: 0,
                    ..options()
                },
                "rounds is 0",
            ),
            (
                SpeedOptions {
                    batches: vec![0],
                    ..options()
                },
                "batch is 0",
            ),
            (
                SpeedOptions {
                    prompt: TOKENS_MAX + 1,
                    ..options()
                },
                "prompt is",
            ),
            (
                SpeedOptions {
                    contexts: vec![TOKENS_MAX + 1],
                    ..options()
                },
                "context is",
            ),
            (
                SpeedOptions {
                    prompt: 0,
                    generate: 0,
                    ..options()
                },
                "both 0",
            ),
            (
                SpeedOptions {
                    kv_bytes_max: 0,
                    ..options()
                },
                "at most 0",
            ),
        ];
        for (options, named) in rows {
            let error = TestPlan::of(&options, &cost()).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
