//! A model with recurrent layers: a sequence that is cut, forked, preempted, continued or steered anywhere has the tokens of
//! one that was not, and a prompt goes on from the last checkpoint of its beginning.
//!
//! Promise (Engine): a sequence of a model with recurrent layers that is preempted, parked, forked, retried, steered
//! or continued has the bits of one that was not; each sequence has two states, which never change.
//! Also held by `engine/tests/it/simulation`, `millrace/tests/it/recurrent.rs`.

use crate::support::{Answer, Bench, model};
use engine::fake::{FakeConfig, FakeModel};
use engine::{Engine, EngineConfig, Rejected, Request, RequestUpdate, SamplingParams, Speculation};
use model::Dims;
use stream::End;

/// Positions in a page.
const PAGE: u32 = 4;

fn config() -> FakeConfig {
    FakeConfig {
        dims: Dims {
            context_max: 512,
            pages: 256,
            ..model().dims
        },
        ..model()
    }
}

fn bench_with(states: usize, config: FakeConfig, engine: EngineConfig) -> Bench {
    Bench::with(Box::new(FakeModel::recurrent(config, states)), engine)
}

fn bench(states: usize) -> Bench {
    bench_with(states, config(), EngineConfig::default())
}

/// `len` ids from 1 to 59 that begin with the same `shared` ones and depend on `seed` after them.
fn prompt(shared: u32, len: u32, seed: u32) -> Vec<u32> {
    let id = |i: u32| {
        if i < shared {
            1 + (i * 7) % 59
        } else {
            1 + (i * 13 + seed * 17) % 59
        }
    };
    (0..len).map(id).collect()
}

fn ids(bench: &mut Bench, prompt: &[u32], tokens: usize) -> Vec<u32> {
    let request = bench.request(prompt, tokens);
    let answer = bench.answer(request);
    assert_eq!(answer.end, Some(End::Length));
    bench.assert_empty();
    answer.ids()
}

/// The tokens of a prompt in an engine of its own.
fn alone(prompt: &[u32], tokens: usize) -> Vec<u32> {
    ids(&mut bench(8), prompt, tokens)
}

#[test]
fn prompt_goes_on_from_the_last_checkpoint_of_its_beginning() {
    let mut bench = bench(16);
    let mut hits = 0;
    let mut run = |prompt: &[u32], tokens: usize| {
        let found = ids(&mut bench, prompt, tokens);
        assert_eq!(found, alone(prompt, tokens));
        let all = bench.handle.stats().prefix_hit_tokens();
        std::mem::replace(&mut hits, all).abs_diff(all)
    };
    let first = prompt(100, 203, 1);
    assert_eq!(run(&first, 5), 0);
    assert_eq!(run(&first, 5), 200, "the last page boundary of the prompt");
    let longer = [&first[..], &prompt(0, 30, 9)].concat();
    assert_eq!(run(&longer, 5), 200, "a conversation that goes on");
    let other = [&first[..170], &prompt(0, 30, 4)].concat();
    assert_eq!(
        run(&other, 5),
        128,
        "the last regular checkpoint before another question"
    );
    assert_eq!(
        run(&prompt(100, 150, 2), 5),
        0,
        "nothing was kept where beginnings part"
    );
    assert_eq!(
        run(&prompt(100, 150, 3), 5),
        100,
        "until one parts there again"
    );
    assert_eq!(run(&prompt(100, 101, 0), 5), 100);
}

#[test]
fn answer_leaves_checkpoints_at_regular_distances() {
    let mut bench = bench(16);
    let start = prompt(0, 30, 1);
    let said = ids(&mut bench, &start, 250);
    assert_eq!(said, alone(&start, 250));
    let cut = [&start[..], &said[..240]].concat();
    assert_eq!(ids(&mut bench, &cut, 10), said[240..]);
    assert_eq!(bench.handle.stats().prefix_hit_tokens(), 256);
}

#[test]
fn answer_that_is_cut_anywhere_continues_with_the_same_tokens() {
    let start = prompt(0, 17, 2);
    let sampling = |answered| SamplingParams {
        temperature: 1.1,
        seed: 5,
        answered,
        ..SamplingParams::default()
    };
    let mut bench = bench(12);
    let mut run = |prompt: &[u32], tokens: usize, answered: usize| {
        let request = Request {
            sampling: sampling(answered as u32),
            ..bench.request(prompt, tokens)
        };
        bench.answer(request).ids()
    };
    let whole = run(&start, 40, 0);
    for cut in 1..40 {
        let begun = [&start[..], &whole[..cut]].concat();
        assert_eq!(run(&begun, 40 - cut, cut), whole[cut..], "cut at {cut}");
    }
}

#[test]
fn choices_share_the_state_of_the_prompt() {
    for len in [1, 4, 5, 33] {
        let start = prompt(0, len, 3);
        let sampling = SamplingParams {
            temperature: 1.2,
            seed: 9,
            ..SamplingParams::default()
        };
        let run = |states: usize, choices: usize, first_choice: u32| {
            let mut bench = bench(states);
            let request = Request {
                sampling: sampling.clone(),
                first_choice,
                ..bench.request(&start, 20)
            };
            let mut asked = bench.ask(request, choices);
            bench.run();
            bench.assert_empty();
            let ids = |answer: &mut Answer| {
                answer.read();
                answer.ids()
            };
            asked.answers.iter_mut().map(ids).collect::<Vec<_>>()
        };
        let together = run(11, 4, 0);
        for (choice, tokens) in together.iter().enumerate() {
            assert_eq!(run(4, 1, choice as u32)[0], *tokens, "{len}, {choice}");
        }
    }
}

#[test]
fn preempted_and_steered_sequences_give_the_same_tokens() {
    let few_pages = FakeConfig {
        dims: Dims {
            pages: 24,
            ..config().dims
        },
        ..config()
    };
    let mut bench = bench_with(16, few_pages, EngineConfig::default());
    let prompts: Vec<_> = (0..5).map(|seed| prompt(8, 20 + seed, seed)).collect();
    let mut asked: Vec<_> = prompts
        .iter()
        .map(|prompt| bench.ask(bench.request(prompt, 40), 1))
        .collect();
    bench.run();
    assert!(bench.handle.stats().preemptions() > 0);
    for (asked, prompt) in asked.iter_mut().zip(&prompts) {
        asked.answers[0].read();
        assert_eq!(asked.answers[0].ids(), alone(prompt, 40));
    }
    let start = prompt(8, 20, 7);
    let mut steered = bench.ask(bench.request(&start, 40), 1);
    bench.run_until(|bench| bench.handle.stats().tokens_generated() > 210);
    let update = RequestUpdate {
        inject: vec![7, 8, 9],
        ..RequestUpdate::default()
    };
    bench.handle.update(steered.id, update).expect("valid");
    bench.run();
    steered.answers[0].read();
    let said = steered.answers[0].ids();
    let at = said.windows(3).position(|ids| ids == [7, 8, 9]);
    let at = at.expect("injected") + 3;
    let so_far = [&start[..], &said[..at]].concat();
    assert_eq!(alone(&so_far, 40 - at), said[at..]);
}

#[test]
fn states_bound_sequences_and_choices() {
    // A quarter of the states is for checkpoints, and a sequence needs two.
    for (states, sequences) in [(2, 1), (3, 1), (8, 3), (16, 6), (100, 37)] {
        let bench = bench(states);
        assert_eq!(bench.handle.sequences_max(), sequences, "{states}");
    }
    let three = bench(8);
    let mut request = three.request(&[1], 4);
    let _answers: Vec<_> = (0..4).map(|_| three.choice(&mut request)).collect();
    match three.handle.submit(request) {
        Err(Rejected::Invalid(_, why)) => assert!(why.contains("from 1 to 3"), "{why}"),
        other => panic!("{other:?}"),
    }
    // One sequence at a time, with two states.
    let mut bench = bench(2);
    let mut asked: Vec<_> = (0..3)
        .map(|seed| bench.ask(bench.request(&prompt(8, 30, seed), 20), 1))
        .collect();
    bench.run();
    for (seed, asked) in (0..).zip(&mut asked) {
        asked.answers[0].read();
        assert_eq!(asked.answers[0].ids(), alone(&prompt(8, 30, seed), 20));
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "where virtual time starts")]
fn draft_model_with_states_and_too_few_states_are_refused() {
    let now = std::time::Instant::now();
    let engine = |speculation| EngineConfig {
        speculation,
        ..EngineConfig::default()
    };
    let draft = Engine::with_draft(
        Box::new(FakeModel::new(config())),
        Box::new(FakeModel::recurrent(config(), 8)),
        engine(Speculation::Draft),
        now,
    );
    let why = draft.err().expect("refused").to_string();
    assert_eq!(why, "states of the draft model is 8; it must be 0");
    let one = FakeModel::recurrent(config(), 1);
    let few = Engine::new(Box::new(one), engine(Speculation::Off), now);
    let why = few.err().expect("refused").to_string();
    assert_eq!(why, "states is 1; it must be at least 2");
    // A draft model for a model with states is not used.
    let mut both = Engine::with_draft(
        Box::new(FakeModel::recurrent(config(), 8)),
        Box::new(FakeModel::new(config())),
        engine(Speculation::Draft),
        now,
    )
    .expect("valid");
    assert_eq!(both.handle().sequences_max(), 3);
}

#[test]
fn embedding_of_a_long_prompt_needs_no_checkpoint() {
    let mut bench = bench(4);
    let vector = std::sync::Arc::new(std::sync::OnceLock::new());
    let request = Request {
        embedding: Some(engine::Embedding {
            pooling: engine::Pooling::Last,
            vector: std::sync::Arc::clone(&vector),
        }),
        ..bench.request(&prompt(0, 60 * PAGE, 1), 1)
    };
    bench.answer(request);
    assert!(vector.get().is_some());
    bench.assert_empty();
}
