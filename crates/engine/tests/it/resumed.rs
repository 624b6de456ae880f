//! Resumed answers: one request per choice, whose log begins with the tokens so far.
//!
//! Promise (Engine): a choice that is resumed from its tokens in a fresh engine has the tokens, log-probabilities,
//! alternatives and end of the uninterrupted one bit for bit, cut at every token: sampled, n choices, speculation,
//! stop strings, updates, every kind of constraint.
//! Also held by `generate/tests/it/resume`.

use crate::support::{Answer, Asked, Bench, bench, model};
use engine::fake::FakeConfig;
use engine::{
    Choice, Constraint, EngineConfig, GivenProgress, Phase, Progress, Request, RequestUpdate,
    SamplingParams, Speculation, Token, TopLogprob,
};
use std::sync::Arc;
use stream::End;

const PROMPT: [u32; 6] = [3, 1, 4, 1, 5, 9];
const TOKENS: usize = 20;
const CHOICES: usize = 3;
const TOP: usize = 2;

/// The tokens of one choice with their alternatives.
#[derive(Clone)]
struct Said {
    tokens: Vec<Token>,
    top: Vec<TopLogprob>,
    end: Option<End>,
}

impl Said {
    fn of(answer: &mut Answer) -> Self {
        answer.read();
        Self {
            tokens: answer.tokens.clone(),
            top: answer.alternatives(),
            end: answer.end,
        }
    }

    fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.id).collect()
    }

    /// All values with the bits of their log-probabilities.
    fn bits(&self) -> ([Vec<(u32, u32)>; 2], Option<End>) {
        let tokens = self.tokens.iter().map(|t| (t.id, t.logprob.to_bits()));
        let top = self.top.iter().map(|t| (t.id, t.logprob.to_bits()));
        ([tokens.collect(), top.collect()], self.end)
    }
}

fn sampled() -> SamplingParams {
    SamplingParams {
        temperature: 1.3,
        seed: 11,
        top_k: 30,
        repetition_penalty: 1.2,
        presence_penalty: 0.6,
        frequency_penalty: 0.3,
        penalty_window: 9,
        min_tokens: 12,
        logprobs: true,
        top_logprobs: TOP as u32,
        ..SamplingParams::default()
    }
}

fn greedy() -> SamplingParams {
    SamplingParams {
        temperature: 0.0,
        ..sampled()
    }
}

fn ending() -> FakeConfig {
    FakeConfig {
        eos_probability: 0.2,
        ..model()
    }
}

/// All choices of one request.
fn uninterrupted(config: EngineConfig, sampling: &SamplingParams) -> Vec<Said> {
    let mut bench = Bench::new(ending(), config);
    let request = Request {
        sampling: sampling.clone(),
        ..bench.request(&PROMPT, TOKENS)
    };
    let mut asked = bench.ask(request, CHOICES);
    bench.run();
    asked.answers.iter_mut().map(Said::of).collect()
}

/// The request that resumes choice `number` after the first `cut` tokens.
fn resumed(bench: &Bench, said: &Said, number: usize, cut: usize, s: &SamplingParams) -> Request {
    Request {
        sampling: SamplingParams {
            answered: cut as u32,
            ..s.clone()
        },
        first_choice: number as u32,
        ..bench.request(&[&PROMPT, &said.ids()[..cut]].concat(), TOKENS - cut)
    }
}

/// Submits a request whose log begins with the first `cut` tokens, which count as accepted.
fn resume(bench: &Bench, mut request: Request, said: &Said, cut: usize) -> Asked {
    let (mut tokens, reader) = stream::open(&bench.pool, TOKENS).expect("segments");
    let (mut top, side) = stream::open(&bench.side_pool, TOKENS * TOP).expect("segments");
    for (token, alternatives) in said.tokens[..cut].iter().zip(said.top.chunks(TOP)) {
        for alternative in alternatives {
            top.append(*alternative).expect("room");
        }
        tokens.append(*token).expect("room");
    }
    reader.accept(cut as u64);
    request.choices.push(Choice {
        tokens,
        top: Some(top),
        terminator: None,
        constraint: None,
    });
    let answer = Answer {
        reader: Some(reader),
        side: Some(side),
        tokens: Vec::new(),
        end: None,
    };
    bench.submit(request, vec![answer])
}

/// All choices are cut after `cut` tokens and resumed in one fresh engine.
#[test]
fn resumed_choices_equal_the_uninterrupted_ones_bit_for_bit() {
    let speculating = EngineConfig {
        speculation: Speculation::PromptLookup,
        ..EngineConfig::default()
    };
    for config in [EngineConfig::default(), speculating] {
        for sampling in [greedy(), sampled()] {
            let whole = uninterrupted(config, &sampling);
            assert!(whole.iter().any(|said| said.tokens.len() > 12));
            for cut in 0..TOKENS {
                let mut bench = Bench::new(ending(), config);
                let open = |said: &&Said| said.tokens.len() >= cut && cut < TOKENS;
                let open: Vec<_> = whole.iter().enumerate().filter(|(_, s)| open(s)).collect();
                let asked = open.iter().map(|(number, said)| {
                    let request = resumed(&bench, said, *number, cut, &sampling);
                    resume(&bench, request, said, cut)
                });
                let mut asked: Vec<_> = asked.collect();
                bench.run();
                for ((number, said), asked) in open.into_iter().zip(&mut asked) {
                    let again = Said::of(&mut asked.answers[0]);
                    assert_eq!(again.bits(), said.bits(), "choice {number} cut at {cut}");
                }
                bench.assert_empty();
            }
        }
    }
}

#[test]
fn min_tokens_counts_answered_tokens_in_the_validation() {
    let bench = bench();
    let said = &uninterrupted(EngineConfig::default(), &greedy())[0];
    let request = |min_tokens| {
        let sampling = SamplingParams {
            min_tokens,
            ..greedy()
        };
        resumed(&bench, said, 0, 8, &sampling)
    };
    resume(&bench, request(TOKENS as u32), said, 8);
    let mut refused = request(TOKENS as u32 + 1);
    let _answer = bench.choice(&mut refused);
    let Err(engine::Rejected::Invalid(_, why)) = bench.handle.submit(refused) else {
        panic!("accepted");
    };
    let words = "min_tokens is 21; at most max_tokens and answered together, 20";
    assert_eq!(why, words);
}

#[test]
fn paused_request_starts_only_when_resumed() {
    let whole = uninterrupted(EngineConfig::default(), &sampled());
    let mut bench = Bench::new(ending(), EngineConfig::default());
    let request = Request {
        paused: true,
        ..resumed(&bench, &whole[1], 1, 5, &sampled())
    };
    let mut asked = resume(&bench, request, &whole[1], 5);
    bench.steps(20);
    assert_eq!(asked.progress.phase(), Phase::Paused);
    assert_eq!(asked.answers[0].seen(), (5, None));
    bench.handle.resume(asked.id);
    bench.run();
    assert_eq!(Said::of(&mut asked.answers[0]).bits(), whole[1].bits());
    bench.assert_empty();
}

#[test]
fn given_cached_tokens_are_not_replaced() {
    let said = &uninterrupted(EngineConfig::default(), &greedy())[0];
    for (given, cached) in [(None, 12), (Some(3), 3)] {
        let mut bench = bench();
        let long = [&PROMPT[..], &said.ids()].concat();
        let first = bench.answer(bench.request(&long[..14], 1));
        assert_eq!(first.tokens.len(), 1);
        let given = given.map(|cached_tokens| GivenProgress { cached_tokens });
        let progress = match given {
            Some(given) => Progress::default().with_given(given),
            None => Progress::default(),
        };
        let request = Request {
            progress: Arc::new(progress),
            ..resumed(&bench, said, 0, 8, &greedy())
        };
        let asked = resume(&bench, request, said, 8);
        bench.run();
        assert_eq!(asked.progress.cached_tokens(), cached, "{given:?}");
    }
}

#[test]
fn tokens_so_far_do_not_use_up_credit() {
    let said = &uninterrupted(EngineConfig::default(), &greedy())[0];
    let mut bench = bench();
    let request = Request {
        credit_window: 2,
        ..resumed(&bench, said, 0, 8, &greedy())
    };
    let asked = resume(&bench, request, said, 8);
    bench.steps(30);
    let log = asked.answers[0].reader.as_ref().expect("a reader").tap();
    assert_eq!((log.len(), log.unaccepted()), (10, 2), "one window more");
    assert_eq!(asked.progress.phase(), Phase::Parked);
}

#[test]
fn deadline_that_passed_before_the_restart_ends_the_answer() {
    let said = &uninterrupted(EngineConfig::default(), &greedy())[0];
    let mut bench = bench();
    let request = Request {
        deadline: Some(bench.now),
        ..resumed(&bench, said, 0, 8, &greedy())
    };
    let mut asked = resume(&bench, request, said, 8);
    bench.run();
    assert_eq!(asked.answers[0].seen(), (8, Some(End::Deadline)));
    assert_eq!(asked.answers[0].ids(), said.ids()[..8]);
    bench.assert_empty();
}

#[test]
fn updates_are_counted_when_they_are_in_effect() {
    let mut bench = bench();
    let mut asked = bench.ask(bench.request(&PROMPT, 12), 2);
    let counts = |progress: &Progress| (progress.updates_begun(), progress.updates_applied());
    let update = |inject: &[u32]| RequestUpdate {
        temperature: Some(0.5),
        inject: inject.to_vec(),
        ..RequestUpdate::default()
    };
    bench
        .handle
        .update(asked.id, update(&[7, 8]))
        .expect("taken");
    assert_eq!(counts(&asked.progress), (0, 0));
    bench.step();
    assert_eq!(counts(&asked.progress), (0, 0), "before the first token");
    bench.step();
    assert_eq!(counts(&asked.progress), (1, 1));
    for answer in &mut asked.answers {
        answer.read();
        assert_eq!(answer.ids()[1..3], [7, 8], "the injected tokens are there");
    }
    bench.handle.update(asked.id, update(&[])).expect("taken");
    bench
        .handle
        .update(asked.id, update(&[9; 20]))
        .expect("taken");
    bench.step();
    assert_eq!(counts(&asked.progress), (3, 3), "the last ends the answers");
    bench.run();
    bench.handle.update(asked.id, update(&[])).expect("taken");
    bench.run();
    assert_eq!(counts(&asked.progress), (3, 3), "after the end");
    bench.assert_empty();
}

/// Records what it accepted.
struct Recording(Vec<u32>);

impl Constraint for Recording {
    fn mask(&mut self, _: &mut [u32]) -> bool {
        false
    }

    fn accept(&mut self, token: u32) {
        self.0.push(token);
    }

    fn is_complete(&self) -> bool {
        false
    }
}

#[test]
fn replay_accepts_each_token_by_default() {
    let mut constraint = Recording(Vec::new());
    constraint.replay(&PROMPT);
    assert_eq!(constraint.0, PROMPT);
}
