//! Requests as records for another process: cut at every token and continued in a fresh engine from the record and the ids
//! so far, with tokens, log-probabilities, alternatives and ends of the local generation, bit for bit.

use crate::resume::Bits;
use crate::resume::cases::{constrained_cases, params, plain, sampled, sampled_cases};
use crate::support::{Bench, Case, RecordingHost, keep_watched};
use engine::remote::{RelayedRequest, RemoteModel};
use engine::{EngineConfig, RequestUpdate, Token, TopLogprob};
use generate::constraint::compiler::ConstraintCompiler;
use generate::error::ApiError;
use generate::model_handle::ModelHandle;
use generate::remote_request::{ChoiceSoFar, RemoteRequest, Resumption};
use generate::stream_source::StartedGeneration;
use generate::submit::{ResumedChoice, ResumedGeneration, Submission};
use stream::End;

/// The record of the choices from `first` on of one prompt, after its way through bytes.
fn record(bench: &Bench<'_>, prompt: usize, (first, n): (usize, usize)) -> RemoteRequest {
    let prompts = bench.prompts();
    let choices = (first as u32, n);
    let record = bench
        .submission()
        .remote_request(&prompts[prompt], choices, &[]);
    let bytes = record.encode().expect("short");
    let decoded = RemoteRequest::decode(&bytes).expect("a request");
    assert_eq!(decoded, record);
    decoded
}

fn submit(
    bench: &Bench<'_>,
    record: &RemoteRequest,
    resumption: Resumption,
) -> Result<StartedGeneration, ApiError> {
    let compiler = ConstraintCompiler::new(&bench.model);
    let host = RecordingHost::default();
    let started = record.submit(&bench.model, &compiler, resumption, &host);
    started.map(keep_watched)
}

fn cut_choice(choice: &ResumedChoice, cut: usize) -> ChoiceSoFar {
    let ids = choice.tokens.iter().take(cut).map(|token| token.id);
    ChoiceSoFar {
        ids: ids.collect(),
        has_ended: cut > choice.tokens.len(),
    }
}

/// Continues the choices of a record after `cut` tokens each, in a fresh engine.
fn check_cut(
    case: &Case,
    prompt: usize,
    choices: (usize, usize),
    whole: &[ResumedChoice],
    cut: usize,
) {
    let (first, n) = choices;
    let label = format!(
        "{}, prompt {prompt}, choices {first}+{n}, cut at {cut}",
        case.label
    );
    let record = record(&Bench::new(case), prompt, choices);
    let whole = &whole[prompt * case.n + first..][..n];
    let mut bench = Bench::new(case);
    let resumption = Resumption {
        choices: whole.iter().map(|choice| cut_choice(choice, cut)).collect(),
        ..Resumption::default()
    };
    let started = submit(&bench, &record, resumption).expect("room");
    bench.run();
    let top_n = case.params.sampling.top_logprobs as usize;
    for (again, whole) in bench.written(&started).iter().zip(whole) {
        let (again, whole) = (Bits::of(again), Bits::of(whole));
        let ids = |bits: &Bits| bits.tokens.iter().map(|token| token.0).collect::<Vec<_>>();
        assert_eq!(ids(&again), ids(&whole), "{label}");
        if cut > whole.tokens.len() {
            assert_eq!(again.end, Some(End::Lost), "{label}: it had ended");
            continue;
        }
        assert_eq!(again.end, whole.end, "{label}");
        assert_eq!(again.tokens[cut..], whole.tokens[cut..], "{label}");
        assert_eq!(
            again.top[cut * top_n..],
            whole.top[cut * top_n..],
            "{label}"
        );
    }
}

fn check(case: &Case) {
    let mut bench = Bench::new(case);
    let started = bench.start();
    bench.run();
    let whole = bench.written(&started);
    let longest = whole.iter().map(|c| c.tokens.len()).max().unwrap_or(0);
    for prompt in 0..whole.len() / case.n {
        for cut in 0..=longest + 1 {
            check_cut(case, prompt, (0, case.n), &whole, cut);
            // As the requests of a recovered stream, one for each choice.
            let number = cut % case.n;
            check_cut(case, prompt, (number, 1), &whole, cut);
        }
    }
}

#[test]
fn record_of_a_request_continues_it_bit_for_bit() {
    sampled_cases().iter().for_each(check);
}

#[test]
fn record_of_a_constrained_request_continues_it_bit_for_bit() {
    constrained_cases().iter().for_each(check);
}

#[test]
fn record_has_the_updates_in_effect() {
    let case = plain("steered", params(sampled(), 20));
    let update = RequestUpdate {
        temperature: Some(0.2),
        top_k: Some(2),
        inject: vec![104, 105, 106],
        ..RequestUpdate::default()
    };
    let mut bench = Bench::new(&case);
    let started = bench.start();
    while bench.written(&started)[0].tokens.len() < 4 {
        bench.step();
    }
    let sent = started
        .engine
        .update(started.requests[0].id, update.clone());
    sent.expect("a valid update");
    bench.run();
    let whole = bench.written(&started);
    assert_eq!(whole[0].tokens.len(), 20);
    let prompts = bench.prompts();
    for cut in 7..20 {
        let with_updates = |updates: &[RequestUpdate], later: Vec<RequestUpdate>| {
            let record = bench
                .submission()
                .remote_request(&prompts[0], (0, 1), updates);
            let mut bench = Bench::new(&case);
            let resumption = Resumption {
                choices: vec![cut_choice(&whole[0], cut)],
                updates: later,
                ..Resumption::default()
            };
            let started = submit(&bench, &record, resumption).expect("room");
            bench.run();
            Bits::of(&bench.written(&started)[0]).tokens[cut..].to_vec()
        };
        let expected = &Bits::of(&whole[0]).tokens[cut..];
        let updates = std::slice::from_ref(&update);
        assert_eq!(
            with_updates(updates, Vec::new()),
            expected,
            "{cut}: in the record"
        );
        assert_eq!(
            with_updates(&[], updates.to_vec()),
            expected,
            "{cut}: beside the record"
        );
    }
}

/// What a relay takes from a remote handle.
fn relayed(
    bench: &Bench<'_>,
    submit: impl FnOnce(&Submission<'_>) -> Result<StartedGeneration, ApiError>,
) -> Vec<RemoteRequest> {
    let (dims, epoch) = (bench.model.engine.dims(), bench.model.engine.epoch());
    let served = RemoteModel {
        hidden_dim: engine::fake::HIDDEN_DIM,
        ..dims.into()
    };
    let opened = engine::remote::remote_handle(served, EngineConfig::default(), epoch);
    let (engine, mut inbox) = opened.expect("bounds");
    let model = ModelHandle {
        vision: None,
        engine,
        ..bench.model.clone()
    };
    let submission = Submission {
        model: &model,
        ..bench.submission()
    };
    let _started = submit(&submission).expect("room");
    let mut requests = Vec::new();
    assert!(inbox.take_requests(&mut requests, epoch));
    let records = requests.iter().map(RelayedRequest::record);
    records
        .map(|record| RemoteRequest::decode(record).expect("a record"))
        .collect()
}

#[test]
fn remote_handle_gets_the_records() {
    let case = plain("relayed", params(sampled(), 20));
    let case = Case { n: 3, ..case };
    let mut bench = Bench::new(&case);
    let (host, prompts) = (RecordingHost::default(), bench.prompts());
    let started = relayed(&bench, |submission| {
        submission.start(bench.prompts(), &host).map(keep_watched)
    });
    let expected = |choices, updates: &[RequestUpdate]| {
        bench
            .submission()
            .remote_request(&prompts[0], choices, updates)
    };
    assert_eq!(started, [expected((0, 3), &[])]);
    let update = RequestUpdate {
        temperature: Some(0.2),
        ..RequestUpdate::default()
    };
    let choice = |id| ResumedChoice {
        tokens: vec![Token { id, logprob: -1.0 }],
        top: vec![TopLogprob { id, logprob: -1.0 }; 3],
        end: (id == 98).then_some(End::Length),
    };
    let resumed = ResumedGeneration {
        choices: [97, 98, 99].map(choice).into(),
        updates: vec![update.clone()],
        ..ResumedGeneration::default()
    };
    let resumed = relayed(&bench, |submission| {
        submission
            .resume(&prompts, resumed, &host)
            .map(keep_watched)
    });
    let updates = [update];
    let expected = [(0, 1), (2, 1)].map(|choices| expected(choices, &updates));
    assert_eq!(resumed, expected);
    let local = bench.start();
    assert_eq!(local.requests[0].choices, 0..3);
    bench.run();
}

#[test]
fn paused_request_waits_and_foreign_choices_are_rejected() {
    let case = plain("paused", params(sampled(), 8));
    let mut bench = Bench::new(&case);
    let record = record(&bench, 0, (0, 1));
    let one = |ids: Vec<u32>| Resumption {
        choices: vec![ChoiceSoFar {
            ids,
            has_ended: false,
        }],
        is_paused: true,
        ..Resumption::default()
    };
    let started = submit(&bench, &record, one(Vec::new())).expect("room");
    for _ in 0..20 {
        bench.step();
    }
    assert!(bench.written(&started)[0].tokens.is_empty());
    started.engine.resume(started.requests[0].id);
    bench.run();
    assert_eq!(bench.written(&started)[0].end, Some(End::Length));
    let none = submit(&bench, &record, Resumption::default()).err();
    let message = none.expect("no choice of one").message;
    assert!(message.contains("the request has 1"), "{message}");
    let other = submit(&bench, &record, one(vec![1 << 20])).err();
    let message = other.expect("no id of the vocabulary").message;
    assert!(message.contains("vocabulary"), "{message}");
    let mut longer = record;
    longer.context_max = 1 << 16;
    longer.params.max_tokens = None;
    let refused = submit(&bench, &longer, one(Vec::new())).err();
    let message = refused.expect("a shorter context").message;
    assert!(
        message.contains("65536 tokens; the model's context has 256"),
        "{message}"
    );
}
