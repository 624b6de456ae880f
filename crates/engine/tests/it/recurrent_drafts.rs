//! Draft and forced tokens of a model with recurrent layers, and those of an MTP head: they change the number of steps of an
//! answer, and nothing else, and leave no state behind.

use crate::support::{Bench, model, quiet_expected_panics};
use engine::fake::{FakeConfig, FakeModel, Fault, FaultAt, FaultKind};
use engine::{Engine, EngineConfig, Request, SamplingParams, Speculation};
use stream::End;

/// A model whose answers repeat themselves.
fn habitual() -> FakeConfig {
    FakeConfig {
        habit: 0.9,
        tokens: 1..9,
        eos_probability: 0.01,
        ..model()
    }
}

fn bench(states: usize, config: FakeConfig, speculation: Speculation) -> Bench {
    let engine = EngineConfig {
        speculation,
        draft_tokens: 8,
        ..EngineConfig::default()
    };
    let model = match states {
        0 => FakeModel::new(config),
        _ => FakeModel::recurrent(config, states),
    };
    Bench::with(Box::new(model.predicting()), engine)
}

/// Tokens as readers get them: ids, bits of the log-probabilities, and the end.
type Got = (Vec<u32>, Vec<u32>, Option<End>);

/// Answers to requests of several kinds that share batches.
fn answers(bench: &mut Bench, seed: u64) -> Vec<Got> {
    let mut asked = Vec::new();
    for at in 0..3 {
        let prompt: Vec<u32> = (0..3 + at * 6).map(|i| 1 + (i + seed as u32) % 8).collect();
        let sampling = SamplingParams {
            temperature: [0.0, 0.8, 1.1][at as usize],
            seed,
            logprobs: true,
            ..SamplingParams::default()
        };
        let request = Request {
            sampling,
            ..bench.request(&prompt, 60)
        };
        asked.push(bench.ask(request, 1 + at as usize % 2));
    }
    bench.run();
    bench.assert_empty();
    let answers = asked.iter_mut().flat_map(|asked| &mut asked.answers);
    let got = answers.map(|answer| {
        answer.read();
        let logprobs = answer.tokens.iter().map(|token| token.logprob.to_bits());
        (answer.ids(), logprobs.collect(), answer.end)
    });
    got.collect()
}

#[test]
fn answers_are_equal_with_and_without_draft_tokens() {
    for speculation in [Speculation::PromptLookup, Speculation::Mtp] {
        for states in [0, 12, 64] {
            let mut accepted = 0;
            for seed in 0..6 {
                let plain = answers(&mut bench(states, habitual(), Speculation::Off), seed);
                let mut drafting = bench(states, habitual(), speculation);
                assert_eq!(
                    answers(&mut drafting, seed),
                    plain,
                    "{states} states, seed {seed}"
                );
                let stats = drafting.handle.stats();
                accepted += stats.tokens_accepted();
                assert!(stats.tokens_accepted() < stats.tokens_drafted());
            }
            assert!(
                accepted > 60,
                "{speculation:?}, {states} states: {accepted}"
            );
        }
    }
}

/// Rows of each step of an answer of 60 tokens to one prompt, and the draft tokens.
fn rows_of(states: usize, speculation: Speculation) -> (Vec<usize>, u64) {
    let model = FakeConfig {
        eos_probability: 0.0,
        ..habitual()
    };
    let mut bench = bench(states, model, speculation);
    let prompt: Vec<u32> = (0..24).map(|i| 1 + i % 8).collect();
    let mut asked = bench.ask(bench.request(&prompt, 60), 1);
    let mut rows = Vec::new();
    while asked.answers[0].seen().1.is_none() {
        let report = bench.step();
        rows.extend((report.rows_prefill == 0).then_some(report.rows));
    }
    let drafted = bench.handle.stats().tokens_drafted();
    (rows, drafted)
}

#[test]
fn draft_tokens_are_as_many_as_there_are_states() {
    let most = |states, speculation| {
        let (rows, drafted) = rows_of(states, speculation);
        (rows.into_iter().max(), drafted > 0)
    };
    // One sequence has two states; half of what is left is for draft tokens, and three are the most.
    for (states, rows) in [(2, 1), (3, 2), (4, 2), (8, 2), (16, 3), (64, 4)] {
        let wanted = (Some(rows), rows > 1);
        assert_eq!(most(states, Speculation::PromptLookup), wanted, "{states}");
    }
    assert_eq!(most(64, Speculation::Mtp), (Some(2), true));
    assert_eq!(most(0, Speculation::Mtp), (Some(2), true));
}

#[test]
fn checkpoint_within_draft_tokens_is_made() {
    // As without draft tokens: the second prompt goes on from the checkpoint in the first answer.
    let prompt: Vec<u32> = (0..30).map(|i| 1 + i % 8).collect();
    for speculation in [
        Speculation::Off,
        Speculation::PromptLookup,
        Speculation::Mtp,
    ] {
        let config = FakeConfig {
            eos_probability: 0.0,
            dims: model::Dims {
                context_max: 512,
                pages: 256,
                ..model().dims
            },
            ..habitual()
        };
        let mut bench = bench(32, config, speculation);
        let said = bench.answer(bench.request(&prompt, 250)).ids();
        let longer = [&prompt[..], &said[..240]].concat();
        let rest = bench.answer(bench.request(&longer, 10)).ids();
        assert_eq!(rest, said[240..]);
        assert_eq!(
            bench.handle.stats().prefix_hit_tokens(),
            256,
            "{speculation:?}"
        );
    }
}

#[test]
fn failing_mtp_head_costs_draft_tokens_only() {
    quiet_expected_panics();
    let kinds = [FaultKind::Error, FaultKind::Panic];
    let fault = |call| Fault {
        at: FaultAt::Guess(call),
        kind: kinds[call as usize % 2],
    };
    for (failing, given_up) in [(5, false), (1000, true)] {
        let config = FakeConfig {
            faults: (0..failing).map(fault).collect(),
            ..habitual()
        };
        let plain = answers(&mut bench(32, habitual(), Speculation::Off), 3);
        let mut drafting = bench(32, config, Speculation::Mtp);
        assert_eq!(answers(&mut drafting, 3), plain);
        let stats = drafting.handle.stats();
        assert_eq!(stats.draft_faults(), failing.min(8));
        assert_eq!(stats.tokens_drafted() == 0, given_up);
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "where virtual time starts")]
fn speculation_by_an_mtp_head_needs_one() {
    let engine = EngineConfig {
        speculation: Speculation::Mtp,
        ..EngineConfig::default()
    };
    let now = std::time::Instant::now();
    let found = Engine::new(Box::new(FakeModel::new(model())), engine, now);
    let why = found.err().expect("refused").to_string();
    assert_eq!(why, "MTP heads of the model is 0; it must be 1");
}
