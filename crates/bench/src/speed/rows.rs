//! From what was asked for to the tests that are run.

use super::cost::Cost;
use super::options::{BATCH_MAX, ROUNDS_MAX, SpeedError, TOKENS_MAX, Wish};
use super::test::Test;

/// The tests that are run, and those for which there is no room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// In the order of the table.
    pub tests: Vec<Test>,
    /// Left out, each with why.
    pub left_out: Vec<(Test, String)>,
}

impl Rows {
    pub(super) fn of(wish: &Wish, cost: &Cost) -> Result<Self, SpeedError> {
        check(wish)?;
        let (mut tests, mut left_out) = (Vec::new(), Vec::new());
        for test in all(wish) {
            match refusal(test, wish, cost) {
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

    pub(super) fn most(&self, of: impl Fn(Test) -> usize) -> usize {
        self.tests.iter().map(|&test| of(test)).max().unwrap_or(0)
    }
}

fn check(wish: &Wish) -> Result<(), SpeedError> {
    let bound = |name: &str, given: usize, least: usize, most: usize| {
        if (least..=most).contains(&given) {
            return Ok(());
        }
        Err(SpeedError(format!(
            "{name} is {given}: from {least} to {most} is possible"
        )))
    };
    bound("prompt", wish.prompt, 0, TOKENS_MAX)?;
    bound("gen", wish.generate, 0, TOKENS_MAX)?;
    bound("rounds", wish.rounds, 1, ROUNDS_MAX)?;
    for &batch in &wish.batches {
        bound("batch", batch, 1, BATCH_MAX)?;
    }
    for &context in &wish.contexts {
        bound("context", context, 0, TOKENS_MAX)?;
    }
    Ok(())
}

/// Each context's prompt, then its batches.
fn all(wish: &Wish) -> Vec<Test> {
    let mut tests = Vec::new();
    for &context in &wish.contexts {
        if wish.prompt > 0 {
            let tokens = wish.prompt;
            tests.push(Test::Prompt { tokens, context });
        }
        for &batch in wish.batches.iter().filter(|_| wish.generate > 0) {
            let tokens = wish.generate;
            tests.push(Test::Decode {
                tokens,
                batch,
                context,
            });
        }
    }
    tests
}

fn refusal(test: Test, wish: &Wish, cost: &Cost) -> Option<String> {
    if test.positions() > cost.context_trained() {
        return Some(format!(
            "{} positions, the model has {}",
            test.positions(),
            cost.context_trained()
        ));
    }
    let bytes = (test.batch() * test.pages_each()) as u64 * cost.page_bytes();
    (bytes > wish.kv_bytes_max).then(|| {
        let (needed, most) = (bytes.div_ceil(1 << 20), wish.kv_bytes_max >> 20);
        format!("{needed} MiB of keys and values, at most {most} are allowed")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish() -> Wish {
        Wish {
            prompt: 64,
            generate: 8,
            batches: vec![1, 4],
            contexts: vec![0, 100],
            rounds: 1,
            threads: 1,
            kv: kernels::KvKind::F16,
            kv_bytes_max: 1 << 30,
        }
    }

    fn cost() -> Cost {
        super::super::cost::tests::tiny()
    }

    fn names(rows: &Rows) -> Vec<String> {
        rows.tests.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_context_has_its_prompt_and_its_batches() {
        let rows = Rows::of(&wish(), &cost()).unwrap();
        let wanted = [
            "prompt 64",
            "decode 8 x 1",
            "decode 8 x 4",
            "prompt 64 @ 100",
            "decode 8 x 1 @ 100",
            "decode 8 x 4 @ 100",
        ];
        assert_eq!(names(&rows), wanted);
        assert_eq!(rows.most(Test::positions), 164);
        let prompts = Wish {
            generate: 0,
            ..wish()
        };
        assert_eq!(
            names(&Rows::of(&prompts, &cost()).unwrap()),
            ["prompt 64", "prompt 64 @ 100"]
        );
    }

    #[test]
    fn what_has_no_room_is_left_out_and_named() {
        let cost = cost();
        let page = cost.page_bytes();
        let wish = Wish {
            kv_bytes_max: 4 * page,
            contexts: vec![0, 100, 250],
            ..wish()
        };
        let rows = Rows::of(&wish, &cost).unwrap();
        assert_eq!(
            names(&rows),
            [
                "prompt 64",
                "decode 8 x 1",
                "decode 8 x 4",
                "decode 8 x 1 @ 100"
            ]
        );
        let why: Vec<&str> = rows.left_out.iter().map(|(_, why)| why.as_str()).collect();
        assert!(why[0].contains("MiB"), "{why:?}");
        assert!(why[2].contains("256"), "{why:?}");
    }

    #[test]
    fn wishes_out_of_bounds_are_named() {
        let rows = [
            (
                Wish {
                    rounds: 0,
                    ..wish()
                },
                "rounds is 0",
            ),
            (
                Wish {
                    batches: vec![0],
                    ..wish()
                },
                "batch is 0",
            ),
            (
                Wish {
                    prompt: TOKENS_MAX + 1,
                    ..wish()
                },
                "prompt is",
            ),
            (
                Wish {
                    contexts: vec![TOKENS_MAX + 1],
                    ..wish()
                },
                "context is",
            ),
            (
                Wish {
                    prompt: 0,
                    generate: 0,
                    ..wish()
                },
                "both 0",
            ),
            (
                Wish {
                    kv_bytes_max: 0,
                    ..wish()
                },
                "at most 0",
            ),
        ];
        for (wish, named) in rows {
            let error = Rows::of(&wish, &cost()).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
