//! A model that runs ahead: the same tokens, log-probabilities and ends; and what is started for nothing.

use crate::drafting::{large, life};
use crate::embedding::{BOTH, ask as ask_embedding, prompt};
use crate::forced::{Got, got, stretches};
use crate::support::{Asked, Bench, Random, STEPS_MAX, model};
use engine::fake::{FakeConfig, FakeModel, Fault, FaultAt, FaultKind, LateLog};
use engine::{
    AdapterSet, Constraint, EngineConfig, Request, RequestUpdate, SamplingParams, Speculation,
    StopCondition,
};
use model::DeviceFault;
use stream::{End, FailCode, Stop};

/// A bench with a model that runs ahead if there is a log.
fn bench_of(config: FakeConfig, states: usize, log: Option<&LateLog>) -> Bench {
    let model = if states > 0 {
        FakeModel::recurrent(config, states)
    } else {
        FakeModel::new(config)
    };
    let model = match log {
        Some(log) => model.late(log.clone()),
        None => model,
    };
    Bench::with(Box::new(model), EngineConfig::default())
}

/// A bench with a model that runs ahead.
fn late(config: FakeConfig) -> (Bench, LateLog) {
    let log = LateLog::default();
    (bench_of(config, 0, Some(&log)), log)
}

/// Reads what is there, at most a window of it.
fn read_within(asked: &mut Asked, window: u64) {
    for answer in &mut asked.answers {
        let before = answer.tokens.len();
        answer.read();
        let new = (answer.tokens.len() - before) as u64;
        assert!(
            window == 0 || new <= window,
            "{new} tokens ahead of {window}"
        );
    }
}

#[test]
fn answers_are_those_of_a_model_that_does_not_run_ahead() {
    for seed in 0..40 {
        let mut plain = Bench::new(large(), EngineConfig::default());
        let (mut bench, log) = late(large());
        assert_eq!(
            life(&mut plain, seed),
            life(&mut bench, seed),
            "seed {seed}"
        );
        assert!(log.misuse().is_empty(), "{:?}", log.misuse());
    }
}

/// Sampling parameters of which a model can draw with most.
fn sampling(random: &mut Random) -> SamplingParams {
    let mut some = |value: f32, off: f32| if random.chance(30) { value } else { off };
    let mut sampling = SamplingParams {
        temperature: some(0.0, 0.9),
        top_k: some(20.0, 0.0) as u32,
        top_p: some(0.9, 1.0),
        min_p: some(0.05, 0.0),
        repetition_penalty: some(1.2, 1.0),
        presence_penalty: some(0.5, 0.0),
        frequency_penalty: some(0.3, 0.0),
        logit_bias: vec![(2, some(2.0, 0.0))],
        min_tokens: some(10.0, 0.0) as u32,
        top_logprobs: some(3.0, 0.0) as u32,
        ..SamplingParams::default()
    };
    sampling.logprobs = random.chance(50);
    sampling.dry_multiplier = if random.chance(10) { 0.8 } else { 0.0 };
    sampling.seed = random.next();
    sampling
}

/// Requests of all kinds whose readers read now and then: everything that they get.
fn workload(bench: &mut Bench, seed: u64) -> Vec<Got> {
    let mut random = Random(seed);
    let mut all = Vec::new();
    for i in 0..10 {
        let prompt: Vec<u32> = (0..1 + random.below(30))
            .map(|i| 1 + i as u32 % 8)
            .collect();
        let window = random.below(2) * (1 + random.below(8));
        let mut request = Request {
            sampling: sampling(&mut random),
            credit_window: window,
            adapters: AdapterSet::new((i % 3 == 0).then_some((1, 0.5))).expect("one"),
            ..bench.request(&prompt, 11 + random.below(30) as usize)
        };
        let choices = 1 + random.below(4) as usize / 2;
        let constrained = random.chance(40);
        let stretch = 1 + random.below(6) as usize;
        let answers = (0..choices).map(|_| bench.choice(&mut request)).collect();
        for choice in request.choices.iter_mut().filter(|_| constrained) {
            choice.constraint = Some(Box::new(stretches(stretch, 25, stretch.is_multiple_of(2))));
        }
        all.push((bench.submit(request, answers), window));
        bench.steps(random.below(4) as usize);
    }
    for step in 0..STEPS_MAX {
        bench.step();
        for (at, (asked, window)) in all.iter_mut().enumerate() {
            if step % (1 + at % 4) == 0 {
                read_within(asked, *window);
            }
        }
        let answers = all.iter().flat_map(|(asked, _)| &asked.answers);
        if answers.clone().all(|answer| answer.end.is_some()) {
            break;
        }
    }
    bench.run();
    bench.assert_empty();
    let answers = all.iter_mut().flat_map(|(asked, _)| &mut asked.answers);
    answers.map(got).collect()
}

#[test]
fn log_probabilities_grammars_choices_and_credit_are_the_same_to_the_bit() {
    let (mut preemptions, mut void, mut ahead, mut forced) = (0, 0, 0, 0);
    for seed in 0..60 {
        let mut config = FakeConfig {
            eos_probability: 0.02,
            habit: 0.5,
            ..model()
        };
        // From plenty of pages to hardly any.
        config.dims.pages = 24 + 20 * (seed % 3) as usize;
        let states = if seed % 2 == 0 { 0 } else { 40 };
        let log = LateLog::default();
        let mut plain = bench_of(config.clone(), states, None);
        let mut bench = bench_of(config, states, Some(&log));
        let (want, have) = (workload(&mut plain, seed), workload(&mut bench, seed));
        assert_eq!(want, have, "seed {seed}");
        assert!(want.iter().all(|got| got.end.is_some()), "seed {seed}");
        assert!(log.misuse().is_empty(), "seed {seed}: {:?}", log.misuse());
        let stats = bench.handle.stats();
        preemptions += stats.preemptions();
        forced += stats.tokens_forced();
        void += stats.rows_void();
        ahead += log.started_ahead();
    }
    let all = [preemptions, void, ahead, forced];
    assert!(all.iter().all(|&n| n > 100), "{all:?}");
}

/// Ends an answer at a token.
struct StopAt(u32);

impl StopCondition for StopAt {
    fn push(&mut self, token: u32) -> Option<u16> {
        (token == self.0).then_some(0)
    }
}

#[test]
fn batches_are_started_ahead_and_only_an_unforeseen_end_makes_a_row_void() {
    let greedy = |bench: &Bench| bench.request(&[1, 2, 3], 20);
    let (mut bench, log) = late(model());
    let answer = bench.answer(greedy(&bench));
    assert_eq!((answer.tokens.len(), answer.end), (20, Some(End::Length)));
    let stats = bench.handle.stats();
    // The prompt and 19 tokens; all but the first are started before the token before is known.
    let seen = (log.started_ahead(), stats.steps(), stats.rows_void());
    assert_eq!(seen, (19, 20, 0));

    // A stop string, a complete grammar: the one row that was started is void.
    let (mut bench, _) = late(model());
    let mut request = greedy(&bench);
    let mut stopped = bench.choice(&mut request);
    request.choices[0].terminator = Some(Box::new(StopAt(answer.tokens[8].id)));
    let first = answer
        .ids()
        .iter()
        .position(|&id| id == answer.tokens[8].id);
    bench.submit(request, Vec::new());
    bench.run();
    let tokens = first.map(|at| at + 1).expect("it is there");
    assert_eq!(
        stopped.seen(),
        (tokens, Some(End::Stop(Stop::StopString(0))))
    );
    assert_eq!(bench.handle.stats().rows_void(), 1);

    let (mut bench, _) = late(model());
    let mut request = greedy(&bench);
    let mut complete = bench.choice(&mut request);
    request.choices[0].constraint = Some(Box::new(stretches(1, 7, false)));
    bench.submit(request, Vec::new());
    bench.run();
    assert_eq!(complete.seen(), (7, Some(End::Stop(Stop::Eos))));
    assert_eq!(bench.handle.stats().rows_void(), 1);

    // An end-of-sequence token.
    let (mut bench, _) = late(FakeConfig {
        eos_probability: 1.0,
        ..model()
    });
    let ended = bench.answer(greedy(&bench));
    assert_eq!(
        (ended.tokens.len(), ended.end),
        (0, Some(End::Stop(Stop::Eos)))
    );
    assert_eq!(bench.handle.stats().rows_void(), 1);
}

#[test]
fn window_of_credit_is_never_exceeded_and_no_row_is_void() {
    for window in 1..5 {
        let (mut bench, _) = late(model());
        let request = Request {
            credit_window: window,
            ..bench.request(&[1, 2], 30)
        };
        let mut asked = bench.ask(request, 1);
        for _ in 0..200 {
            bench.steps(1 + window as usize);
            read_within(&mut asked, window);
        }
        assert_eq!(asked.answers[0].seen(), (30, Some(End::Length)), "{window}");
        assert_eq!(bench.handle.stats().rows_void(), 0, "{window}");
    }
}

/// Promise (Engine): next to a sequence that waits for its token (DRY, XTC, `typical_p`, forced tokens), others run
/// ahead; with draft tokens no sequence does.
/// Also held by `engine/tests/it/ahead.rs :: speculation_drains_first`.
#[test]
fn neighbors_of_a_sequence_that_waits_run_ahead() {
    let dry = |bench: &Bench| {
        let mut request = bench.request(&[1, 2], 20);
        request.sampling.dry_multiplier = 0.5;
        request
    };
    let want = Bench::new(model(), EngineConfig::default());
    let want = { want }.answer(dry(&bench_of(model(), 0, None))).ids();
    // Alone it needs a step for each token, as without running ahead.
    let (mut bench, log) = late(model());
    assert_eq!(bench.answer(dry(&bench)).ids(), want);
    assert_eq!((log.started_ahead(), bench.handle.stats().steps()), (0, 20));
    // Next to others, these get a token in each step.
    let (mut bench, log) = late(model());
    let mut waits = bench.ask(dry(&bench), 1);
    let mut runs = bench.ask(bench.request(&[3], 40), 1);
    bench.steps(41);
    assert_eq!(runs.answers[0].seen(), (40, Some(End::Length)));
    assert!(log.started_ahead() >= 39, "{}", log.started_ahead());
    bench.run();
    assert_eq!(waits.answers[0].seen(), (20, Some(End::Length)));
    assert_eq!(waits.answers[0].ids(), want);
}

#[test]
fn speculation_drains_first() {
    for speculation in [Speculation::PromptLookup, Speculation::Mtp] {
        let config = EngineConfig {
            speculation,
            ..EngineConfig::default()
        };
        let habitual = FakeConfig {
            habit: 1.0,
            tokens: 1..9,
            ..model()
        };
        let log = LateLog::default();
        let fake = || FakeModel::new(habitual.clone()).predicting();
        let mut plain = Bench::with(Box::new(fake()), config);
        let mut bench = Bench::with(Box::new(fake().late(log.clone())), config);
        let answers =
            [&mut plain, &mut bench].map(|b| b.answer(b.request(&[1, 2, 1, 2], 60)).ids());
        assert_eq!(answers[0], answers[1], "{speculation:?}");
        let accepted = [&plain, &bench].map(|b| b.handle.stats().tokens_accepted());
        assert_eq!(accepted[0], accepted[1], "{speculation:?}");
        assert!(accepted[1] > 10 && log.started_ahead() == 0, "{accepted:?}");
        assert!(log.misuse().is_empty(), "{:?}", log.misuse());
    }
}

#[test]
fn embeddings_next_to_answers_are_the_same() {
    for kind in BOTH {
        let log = LateLog::default();
        let mut benches = [bench_of(model(), 0, None), bench_of(model(), 0, Some(&log))];
        let results = benches.each_mut().map(|bench| {
            let mut answer = bench.ask(bench.request(&[1, 2], 40), 1);
            bench.steps(3);
            let ask = |i| ask_embedding(bench, &prompt(i, 20 + 9 * i), kind);
            let asked: Vec<_> = (0..3).map(ask).collect();
            bench.run();
            assert_eq!(answer.answers[0].seen(), (40, Some(End::Length)));
            let vectors = asked.iter().map(|(_, vector)| vector.get().cloned());
            let vectors: Vec<_> = vectors.collect();
            bench.assert_empty();
            (answer.answers[0].ids(), vectors)
        });
        assert_eq!(results[0], results[1], "{kind:?}");
        assert!(results[1].1.iter().all(Option::is_some), "{kind:?}");
        assert!(log.misuse().is_empty(), "{:?}", log.misuse());
        assert!(log.started_ahead() > 30, "{}", log.started_ahead());
    }
}

#[test]
fn update_waits_for_the_token_in_flight() {
    let (mut bench, _) = late(model());
    let mut asked = bench.ask(bench.request(&[1, 2], 20), 1);
    bench.steps(6);
    let (before, _) = asked.answers[0].seen();
    let update = RequestUpdate {
        inject: vec![9, 10, 11],
        ..RequestUpdate::default()
    };
    bench.handle.update(asked.id, update).expect("taken");
    bench.run();
    assert_eq!(asked.answers[0].seen(), (20, Some(End::Length)));
    let ids = asked.answers[0].ids();
    // The token that was in flight, then the injected ones.
    assert_eq!(ids[before + 1..][..3], [9, 10, 11]);
    let begun = [&[1, 2][..], &ids[..before + 4]].concat();
    let rest = bench.answer(bench.request(&begun, 20 - before - 4)).ids();
    assert_eq!(ids[before + 4..], rest);
    assert_eq!(bench.handle.stats().rows_void(), 0);
}

#[test]
fn choice_that_leaves_while_its_prompt_is_in_flight_hands_the_tokens_over() {
    for dry in [0.0, 0.5] {
        let request = |bench: &Bench| {
            let mut request = bench.request(&[1, 2, 3], 12);
            request.sampling.temperature = 1.0;
            request.sampling.dry_multiplier = dry;
            request
        };
        let mut plain = bench_of(model(), 0, None);
        let mut want = plain.ask(request(&plain), 3);
        plain.run();
        for steps in 1..5 {
            let (mut bench, log) = late(model());
            let _neighbor = bench.ask(bench.request(&[9], 40), 1);
            bench.steps(2);
            let mut asked = bench.ask(request(&bench), 3);
            bench.steps(steps);
            asked.answers[0].reader = None;
            bench.run();
            for (answer, want) in asked.answers.iter_mut().zip(&mut want.answers).skip(1) {
                assert_eq!(answer.seen(), (12, Some(End::Length)), "{steps}");
                want.read();
                assert_eq!(answer.ids(), want.ids(), "{steps}");
            }
            bench.assert_empty();
            assert!(log.misuse().is_empty(), "{:?}", log.misuse());
        }
    }
}

#[test]
fn cancelled_and_paused_requests_in_flight_lose_nothing_that_was_read() {
    let want = bench_of(model(), 0, None).answer(bench_of(model(), 0, None).request(&[1, 2], 30));
    for steps in 1..8 {
        let (mut bench, log) = late(model());
        let mut asked = [(); 3].map(|()| bench.ask(bench.request(&[1, 2], 30), 2));
        bench.steps(steps);
        bench.handle.cancel(asked[0].id);
        bench.handle.pause(asked[1].id);
        bench.steps(5);
        bench.handle.resume(asked[1].id);
        bench.run();
        for answer in &mut asked[0].answers {
            answer.read();
            assert_eq!(answer.end, Some(End::Cancelled));
            assert!(want.ids().starts_with(&answer.ids()), "{steps}");
        }
        for answer in asked[1..].iter_mut().flat_map(|asked| &mut asked.answers) {
            assert_eq!(answer.seen(), (30, Some(End::Length)), "{steps}");
            assert_eq!(answer.ids(), want.ids(), "{steps}");
        }
        bench.assert_empty();
        assert!(log.misuse().is_empty(), "{:?}", log.misuse());
    }
}

/// Panics when the mask of a token is wanted.
struct PanicsAt(usize);

impl Constraint for PanicsAt {
    fn mask(&mut self, _: &mut [u32]) -> bool {
        assert!(self.0 > 0, "simulated");
        false
    }
    fn accept(&mut self, _: u32) {
        self.0 -= 1;
    }
    fn is_complete(&self) -> bool {
        false
    }
}

#[test]
fn fault_of_one_request_ends_no_other() {
    crate::support::quiet_expected_panics();
    let fault = |at, kind| Fault { at, kind };
    let config = FakeConfig {
        faults: vec![
            fault(FaultAt::Token(61), FaultKind::Error),
            fault(FaultAt::Token(62), FaultKind::Panic),
            fault(FaultAt::Token(63), FaultKind::NotANumber),
            fault(FaultAt::Call(9), FaultKind::Error),
            fault(FaultAt::Call(13), FaultKind::Panic),
        ],
        ..model()
    };
    let (mut bench, log) = late(config);
    let mut good: Vec<_> = (0..6)
        .map(|i| bench.ask(bench.request(&[i + 1, 9], 20), 1))
        .collect();
    bench.steps(3);
    let mut panics = bench.request(&[7], 20);
    let mut panicking = bench.choice(&mut panics);
    panics.choices[0].constraint = Some(Box::new(PanicsAt(3)));
    bench.submit(panics, Vec::new());
    for (token, code) in [
        (61, FailCode::Inference),
        (62, FailCode::Panic),
        (63, FailCode::NotFinite),
    ] {
        let mut culprit = bench.ask(bench.request(&[5, token, 7], 20), 2);
        bench.steps(4);
        for answer in &mut culprit.answers {
            assert_eq!(answer.seen(), (0, Some(End::Failed(code))));
        }
    }
    bench.run();
    assert_eq!(panicking.seen(), (3, Some(End::Failed(FailCode::Panic))));
    for (i, asked) in (0..).zip(&mut good) {
        let mut alone = bench_of(model(), 0, None);
        let want = alone.answer(alone.request(&[i + 1, 9], 20)).ids();
        assert_eq!(asked.answers[0].seen(), (20, Some(End::Length)));
        assert_eq!(asked.answers[0].ids(), want, "{i}");
    }
    assert!(log.misuse().is_empty(), "{:?}", log.misuse());
    bench.assert_empty();
}

#[test]
fn streams_continue_after_a_device_failed_in_flight() {
    for states in [0, 40] {
        let prompts = || (0..6).map(|i| vec![i % 3 + 1; 9]);
        let alone = |prompt: Vec<u32>| {
            let mut bench = bench_of(model(), states, None);
            bench.answer(bench.request(&prompt, 15)).ids()
        };
        let want: Vec<_> = prompts().map(alone).collect();
        for kind in [FaultKind::Device, FaultKind::LateDevice] {
            for call in 0..12 {
                let fault = kind(DeviceFault::Lost);
                let at = FaultAt::Call(call);
                let log = LateLog::default();
                let config = FakeConfig {
                    faults: vec![Fault { at, kind: fault }],
                    ..model()
                };
                let mut bench = bench_of(config, states, Some(&log));
                let ask = |prompt: Vec<u32>| bench.ask(bench.request(&prompt, 15), 1);
                let mut asked: Vec<_> = prompts().map(ask).collect();
                bench.run();
                for (asked, want) in asked.iter_mut().zip(&want) {
                    assert_eq!(asked.answers[0].seen(), (15, Some(End::Length)), "{call}");
                    assert_eq!(&asked.answers[0].ids(), want, "{fault:?} {call}");
                }
                let stats = bench.handle.stats();
                assert_eq!((stats.device_faults(), stats.retries()), (1, 0));
                assert!(log.misuse().is_empty(), "{:?}", log.misuse());
                bench.assert_empty();
            }
        }
    }
}

#[test]
fn device_lost_for_good_ends_what_is_in_flight() {
    let faults = [5, 8, 11].map(|call| Fault {
        at: FaultAt::Call(call),
        kind: FaultKind::LateDevice(DeviceFault::Failed),
    });
    let (mut bench, _) = late(FakeConfig {
        faults: faults.to_vec(),
        ..model()
    });
    let mut asked = bench.ask(bench.request(&[1, 2], 30), 2);
    bench.run();
    let want = bench_of(model(), 0, None).answer(bench_of(model(), 0, None).request(&[1, 2], 30));
    for answer in &mut asked.answers {
        answer.read();
        assert_eq!(answer.end, Some(End::Failed(FailCode::Device)));
        assert!(!answer.tokens.is_empty() && want.ids().starts_with(&answer.ids()));
    }
    assert_eq!(bench.handle.stats().device_faults(), 3);
    bench.assert_empty();
}
