//! Generations that are cut at every token and resumed in a fresh engine: tokens, log-probabilities, alternatives and
//! ends are those of the uninterrupted generation, bit for bit.
//!
//! Promise (Engine): a generation whose choices have all ended is resumed without an engine request; a paused one
//! waits.
//! Also held by `engine/tests/it/resumed.rs`.

pub(crate) mod cases;

use self::cases::{constrained_cases, params, plain, sampled, sampled_cases};
use crate::support::{Bench, Case, RecordingHost};
use engine::RequestUpdate;
use generate::submit::{ResumedChoice, ResumedGeneration};
use stream::{End, Stop};

/// The values of a choice with the bits of their log-probabilities.
#[derive(Debug, PartialEq)]
pub(crate) struct Bits {
    pub(crate) tokens: Vec<(u32, u32)>,
    pub(crate) top: Vec<(u32, u32)>,
    pub(crate) end: Option<End>,
}

impl Bits {
    pub(crate) fn of(choice: &ResumedChoice) -> Self {
        let tokens = choice.tokens.iter().map(|t| (t.id, t.logprob.to_bits()));
        let top = choice.top.iter().map(|t| (t.id, t.logprob.to_bits()));
        Self {
            tokens: tokens.collect(),
            top: top.collect(),
            end: choice.end,
        }
    }
}

/// A choice as the journal has it after the first `cut` tokens.
fn cut_choice(choice: &ResumedChoice, cut: usize, top_n: usize) -> ResumedChoice {
    if cut > choice.tokens.len() {
        return choice.clone();
    }
    ResumedChoice {
        tokens: choice.tokens[..cut].to_vec(),
        top: choice.top[..cut * top_n].to_vec(),
        end: None,
    }
}

/// Resumes the generation after `cut` tokens of each choice. Choices with fewer tokens have ended.
fn check_cut(case: &Case, whole: &[ResumedChoice], cut: usize, updates: &[RequestUpdate]) {
    let label = format!("{} cut at {cut}", case.label);
    let top_n = case.params.sampling.top_logprobs as usize;
    let cut_choices: Vec<_> = whole.iter().map(|c| cut_choice(c, cut, top_n)).collect();
    let mut bench = Bench::new(case);
    let host = RecordingHost::default();
    let resumed = ResumedGeneration {
        choices: cut_choices.clone(),
        cached_tokens: 3,
        paused: false,
        updates: updates.to_vec(),
        ..ResumedGeneration::default()
    };
    let started = bench.resume(resumed, &host);
    assert_eq!(host.requests.get(), Some(started.requests.len()), "{label}");
    assert_eq!(host.asked.get(), started.requests.len(), "{label}");
    let echoed = u64::from(case.params.prompt_logprobs);
    for (log, given) in started.choices.iter().zip(&cut_choices) {
        let (shown, len) = (log.tokens.len(), given.tokens.len() as u64);
        assert_eq!(shown, len.max(echoed), "{label}: given tokens are shown");
        assert_eq!(log.tokens.end(), given.end, "{label}: given ends are shown");
        assert_eq!(
            log.tokens.unaccepted(),
            0,
            "{label}: given tokens count as accepted"
        );
    }
    assert_eq!(started.cached_tokens(), 3, "{label}");
    bench.run();
    assert_eq!(started.cached_tokens(), 3, "{label}");
    if !case.params.prompt_logprobs {
        assert_eq!(started.prompt_done(), started.prompt_tokens, "{label}");
    }
    for (i, (again, whole)) in bench.written(&started).iter().zip(whole).enumerate() {
        assert_eq!(Bits::of(again), Bits::of(whole), "{label}, choice {i}");
    }
}

/// Checks every cut and returns the uninterrupted choices.
fn check(case: &Case) -> Vec<ResumedChoice> {
    let mut bench = Bench::new(case);
    let started = bench.start();
    bench.run();
    let whole = bench.written(&started);
    assert!(whole.iter().all(|c| c.end.is_some()), "{}", case.label);
    let longest = whole.iter().map(|c| c.tokens.len()).max().unwrap_or(0);
    for cut in 0..=longest + 1 {
        check_cut(case, &whole, cut, &[]);
    }
    whole
}

#[test]
fn resumed_answers_equal_uninterrupted_ones_bit_for_bit() {
    for case in sampled_cases() {
        let whole = check(&case);
        let ends = || whole.iter().map(|choice| choice.end);
        let has_stop = ends().any(|end| matches!(end, Some(End::Stop(Stop::StopString(_)))));
        assert_ne!(has_stop, case.params.stops.is_empty(), "{}", case.label);
    }
}

#[test]
fn resumed_answers_under_constraints_equal_uninterrupted_ones_bit_for_bit() {
    for case in constrained_cases() {
        let whole = check(&case);
        let ends: Vec<_> = whole.iter().map(|choice| choice.end).collect();
        let is_complete = ends.iter().any(|end| matches!(end, Some(End::Stop(_))));
        assert!(is_complete, "{}: {ends:?}", case.label);
    }
}

#[test]
fn steered_answer_continues_with_the_updates_in_effect() {
    let case = plain("steered", params(sampled(), 20));
    let updates = [
        RequestUpdate {
            temperature: Some(0.2),
            inject: vec![104, 105, 106],
            ..RequestUpdate::default()
        },
        RequestUpdate {
            top_k: Some(2),
            presence_penalty: Some(-1.0),
            ..RequestUpdate::default()
        },
    ];
    let mut bench = Bench::new(&case);
    let started = bench.start();
    let mut places = Vec::new();
    for (i, update) in updates.iter().enumerate() {
        while bench.written(&started)[0].tokens.len() < 4 + 6 * i {
            bench.step();
        }
        let place = bench.written(&started)[0].tokens.len();
        let request = &started.requests[0];
        let sent = started.engine.update(request.id, update.clone());
        sent.expect("a valid update");
        bench.step();
        assert_eq!(request.progress.updates_applied(), i as u64 + 1);
        places.push(place + update.inject.len());
    }
    bench.run();
    let whole = bench.written(&started);
    assert_eq!(whole[0].tokens.len(), 20);
    assert!(
        whole[0].tokens[4..7]
            .iter()
            .all(|token| token.logprob.is_nan())
    );
    for cut in places[0]..=20 {
        let in_effect = places.iter().filter(|&&place| place <= cut).count();
        // Between a recorded update and its place nothing is known of later updates.
        if in_effect == updates.len() {
            check_cut(&case, &whole, cut, &updates[..in_effect]);
        }
    }
}

#[test]
fn ended_generation_needs_no_request_and_paused_one_waits() {
    let case = Case {
        n: 2,
        ..plain("ended", params(sampled(), 8))
    };
    let mut bench = Bench::new(&case);
    let started = bench.start();
    bench.run();
    let whole = bench.written(&started);
    let resumed = |cut| ResumedGeneration {
        choices: whole.iter().map(|c| cut_choice(c, cut, 3)).collect(),
        cached_tokens: 0,
        paused: true,
        ..ResumedGeneration::default()
    };
    for (cut, requests) in [(9, 0), (8, 0), (7, 2)] {
        let mut bench = Bench::new(&case);
        let host = RecordingHost::default();
        let started = bench.resume(resumed(cut), &host);
        assert_eq!(started.requests.len(), requests, "cut at {cut}");
        assert_eq!(host.requests.get(), Some(requests), "cut at {cut}");
        for _ in 0..20 {
            bench.step();
        }
        let ends = bench.written(&started).into_iter().map(|choice| choice.end);
        let end = (requests == 0).then_some(End::Length);
        assert!(ends.into_iter().all(|is| is == end), "cut at {cut}");
        let shown = started.choices.iter().map(|log| log.tokens.end());
        let shown_end = end.filter(|_| cut == 9);
        assert!(
            shown.into_iter().all(|is| is == shown_end),
            "a replayed end waits for its record"
        );
        for request in &started.requests {
            started.engine.resume(request.id);
        }
        bench.run();
        for (again, whole) in bench.written(&started).iter().zip(&whole) {
            assert_eq!(Bits::of(again), Bits::of(whole), "cut at {cut}");
        }
    }
}

#[test]
fn choices_that_do_not_belong_to_the_request_are_rejected() {
    let case = plain("other", params(sampled(), 8));
    let bench = Bench::new(&case);
    let host = RecordingHost::default();
    let started = bench.try_resume(ResumedGeneration::default(), &host);
    assert!(started.is_err(), "no choice of one");
    let without_top = ResumedChoice {
        tokens: vec![engine::Token {
            id: 97,
            logprob: -1.0,
        }],
        ..ResumedChoice::default()
    };
    let resumed = ResumedGeneration {
        choices: vec![without_top],
        ..ResumedGeneration::default()
    };
    assert!(
        bench.try_resume(resumed, &host).is_err(),
        "alternatives are missing"
    );
}
