//! Rejected requests, which are returned with the reason.

use crate::support::{Bench, bench, model};
use engine::{AdapterSet, DRY_SEQUENCES_MAX, DryBreakers, EngineConfig, Rejected, Request};

#[test]
fn full_inbox_returns_the_request() {
    let config = EngineConfig {
        inbox_max: 2,
        sequences_max: 1,
        ..EngineConfig::default()
    };
    let mut bench = Bench::new(model(), config);
    let _running = bench.ask(bench.request(&[1], 50), 1);
    bench.step();
    let _queued = [
        bench.ask(bench.request(&[1], 5), 1),
        bench.ask(bench.request(&[1], 5), 1),
    ];
    bench.step();
    let mut request = bench.request(&[7, 8], 5);
    let _reader = bench.choice(&mut request);
    match bench.handle.submit(request) {
        Err(Rejected::Full(request)) => assert_eq!(request.prompt, [7, 8]),
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.handle.stats().queued(), 2);
}

#[test]
fn queued_tokens_are_bounded() {
    let config = EngineConfig {
        queued_tokens_max: 50,
        sequences_max: 2,
        ..EngineConfig::default()
    };
    let mut bench = Bench::new(model(), config);
    let ask = |bench: &Bench, prompt: usize, choices: usize| {
        let mut request = bench.request(&vec![1; prompt], 10);
        let answers: Vec<_> = (0..choices).map(|_| bench.choice(&mut request)).collect();
        bench.handle.submit(request).map(|_| answers)
    };
    let first = ask(&bench, 60, 1).expect("alone, it may be larger");
    assert!(matches!(ask(&bench, 1, 1), Err(Rejected::Full(_))));
    bench.step();
    let second = ask(&bench, 15, 2).expect("fills the bound");
    assert!(matches!(ask(&bench, 1, 1), Err(Rejected::Full(_))));
    drop((first, second));
    bench.step();
    let _third = ask(&bench, 60, 1).expect("what left unstarted no longer counts");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn invalid_request_is_rejected_with_field_and_bound() {
    type Break = fn(&mut Request);
    let bench = bench();
    let cases: &[(&str, Break)] = &[
        ("prompt is empty; at least one token", |r| r.prompt.clear()),
        ("adapters name adapter 3; the model has 3", |r| {
            r.adapters = AdapterSet::new([(3, 1.0)]).expect("a set");
        }),
        (
            "prompt has 128 tokens; fewer than the context length, 128",
            |r| r.prompt = vec![1; 128],
        ),
        ("prompt names token 64; the vocabulary has 64", |r| {
            r.prompt = vec![1, 64];
        }),
        ("max_tokens is 0; at least 1", |r| r.max_tokens = 0),
        (
            "the log of choice 0 has room for 10 tokens; at least max_tokens, 11",
            |r| r.max_tokens = 11,
        ),
        ("eos names token 99; the vocabulary has 64", |r| {
            r.eos = [99].into();
        }),
        ("choices are 0; from 1 to 128", |r| r.choices.clear()),
        ("choice 0 has a side log exactly when", |r| {
            r.sampling.top_logprobs = 1;
        }),
        ("temperature is NaN; from 0 to 100", |r| {
            r.sampling.temperature = f32::NAN;
        }),
        ("temperature is -1; from 0 to 100", |r| {
            r.sampling.temperature = -1.0;
        }),
        ("top_p is 1.5; from 0 to 1", |r| r.sampling.top_p = 1.5),
        ("min_p is -0.1; from 0 to 1", |r| r.sampling.min_p = -0.1),
        ("typical_p is inf; from 0 to 1", |r| {
            r.sampling.typical_p = f32::INFINITY;
        }),
        ("dry_multiplier is NaN; from 0 to 100", |r| {
            r.sampling.dry_multiplier = f32::NAN;
        }),
        ("dry_base is 0.5; from 1 to 16", |r| {
            r.sampling.dry_base = 0.5;
        }),
        ("dry_allowed_length is 65537; at most 65536", |r| {
            r.sampling.dry_allowed_length = 65_537;
        }),
        ("dry_window is 65537; at most 65536", |r| {
            r.sampling.dry_window = 65_537;
        }),
        ("dry_breakers has 16385 sequences", |r| {
            let pairs = (0..=DRY_SEQUENCES_MAX as u32).map(|id| vec![id, id]);
            r.sampling.dry_breakers = DryBreakers::new(pairs);
        }),
        ("xtc_probability is 2; from 0 to 1", |r| {
            r.sampling.xtc_probability = 2.0;
        }),
        ("xtc_threshold is NaN; from 0 to 1", |r| {
            r.sampling.xtc_threshold = f32::NAN;
        }),
        ("repetition_penalty is 0; from 0.01", |r| {
            r.sampling.repetition_penalty = 0.0;
        }),
        ("presence_penalty is NaN", |r| {
            r.sampling.presence_penalty = f32::NAN;
        }),
        ("frequency_penalty is 101", |r| {
            r.sampling.frequency_penalty = 101.0;
        }),
        ("logit_bias names token 64", |r| {
            r.sampling.logit_bias = vec![(64, 1.0)];
        }),
        ("logit_bias is NaN", |r| {
            r.sampling.logit_bias = vec![(1, f32::NAN)];
        }),
        ("logit_bias has 5000 entries; at most 4096", |r| {
            r.sampling.logit_bias = vec![(1, 0.0); 5000];
        }),
        ("top_logprobs is 65; at most 64", |r| {
            r.sampling.top_logprobs = 65;
        }),
        ("min_tokens is 11; at most max_tokens, 10", |r| {
            r.sampling.min_tokens = 11;
        }),
        ("top_p is 2; from 0 to 1; min_p is 2; from 0 to 1", |r| {
            (r.sampling.top_p, r.sampling.min_p) = (2.0, 2.0);
        }),
    ];
    for (words, spoil) in cases {
        let mut request = bench.request(&[1, 2], 10);
        // The log would round its capacity up; 10 is what it says.
        let _reader = bench.choice(&mut request);
        spoil(&mut request);
        match bench.handle.submit(request) {
            Err(Rejected::Invalid(_, got)) => {
                assert!(got.contains(words), "{got:?} lacks {words:?}");
            }
            other => panic!("{words}: {other:?}"),
        }
    }
}

#[test]
fn request_larger_than_the_kv_cache_is_rejected() {
    let mut small = model();
    small.dims.pages = 10;
    let bench = Bench::new(small, EngineConfig::default());
    let ask = |prompt: usize, max_tokens: usize| {
        let mut request = bench.request(&vec![1; prompt], max_tokens);
        let _reader = bench.choice(&mut request);
        bench.handle.submit(request)
    };
    assert!(ask(31, 10).is_ok(), "the last token needs no page");
    match ask(32, 10) {
        Err(Rejected::Invalid(_, words)) => {
            assert_eq!(
                words,
                "prompt of 32 and 10 more tokens need 11 pages; there are 10"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn too_small_bound_is_named() {
    let config = EngineConfig {
        step_tokens: 1,
        ..EngineConfig::default()
    };
    let model = engine::fake::FakeModel::new(model());
    let error = engine::Engine::new(Box::new(model), config, bench().now)
        .err()
        .expect("too small");
    assert_eq!(error.to_string(), "step_tokens is 1; it must be at least 2");
}
