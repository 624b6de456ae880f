//! Attempts of gateways that are gone, and gateways that continue their streams.

use super::super::{ADOPTION_WAIT, GATEWAY_SILENCE};
use super::calls::{GATEWAY, apply, case, order, step};
use super::engine_process::{Case, EngineProcess, LogBits, decode, epoch};
use crate::messages::{
    AdoptAnswer, AdoptEntry, AdoptRequest, Adoption, Attempt, OrderKind, ReadEntry, ReadRequest,
    Run, RunReply, TokenBatch,
};
use crate::names::InstanceId;
use engine::RequestUpdate;
use engine::remote::StreamChoice;
use std::time::Duration;
use stream::End;

const OTHER: InstanceId = InstanceId(8);
const STREAM: u128 = 0xabc;
const SECOND: Duration = Duration::from_secs(1);

/// A stream of [`GATEWAY`], and what the gateway has of each choice.
struct Bench {
    process: EngineProcess,
    run: Run,
    logs: Vec<LogBits>,
}

impl Bench {
    fn new(case: &Case) -> Self {
        let mut process = EngineProcess::new(epoch(), 16);
        let run = process.stream_of(case, GATEWAY, STREAM);
        assert_eq!(process.submit(run.clone()), Some(RunReply::Accepted));
        let logs = vec![LogBits::default(); case.n];
        Self { process, run, logs }
    }

    /// Steps that the gateway hears of.
    fn step(&mut self, steps: usize) {
        for _ in 0..steps {
            for batch in step(&mut self.process) {
                self.take(&batch, (1, 1), None);
            }
        }
    }

    /// Appends what is new of an attempt, or of one choice that was adopted.
    fn take(&mut self, batch: &TokenBatch, name: (u64, u32), adopted: Option<usize>) {
        let log_of = |choice: u32| adopted.unwrap_or(choice as usize);
        for run in batch.runs() {
            if (run.key.handle, run.key.attempt) == name {
                let log = &mut self.logs[log_of(run.key.choice)];
                assert_eq!(run.key.first as usize, log.tokens.len());
                log.push(run.tokens, run.top);
            }
        }
        for end in batch.ends() {
            if (end.handle, end.attempt) == name {
                self.logs[log_of(end.choice)].end = Some(end.end);
            }
        }
    }

    fn entry(&self, choice: usize) -> AdoptEntry {
        let number = choice as u32;
        AdoptEntry {
            handle: 10 + choice as u64,
            attempt: 3,
            choice: StreamChoice {
                stream: STREAM,
                prompt: 0,
                choice: number,
            },
            generation: 1,
            ids: self.logs[choice].ids(),
            ..AdoptEntry::default()
        }
    }

    fn adopt(&mut self, entry: &AdoptEntry) -> Adoption {
        let request = AdoptRequest {
            gateway: OTHER,
            entries: vec![entry.clone()],
        };
        let request = AdoptRequest::decode(&request.encode().unwrap()).unwrap();
        let now = self.process.now;
        let answers = self.process.attempts.adopt(&request, now);
        let adoption = answers[0].adoption;
        let (handle, attempt) = (entry.handle, entry.attempt);
        let expected = AdoptAnswer {
            handle,
            attempt,
            adoption,
        };
        assert_eq!(answers, [expected]);
        adoption
    }

    /// Steps until the engine is idle, with messages for the other gateway only.
    fn finish(&mut self) {
        for _ in 0..1_000 {
            self.process.step();
            for (gateway, bytes) in self.process.messages() {
                assert_eq!(gateway, OTHER, "the earlier owner gets nothing");
                let batch = decode(&bytes);
                for choice in 0..self.logs.len() {
                    self.take(&batch, (10 + choice as u64, 3), Some(choice));
                }
            }
        }
    }

    fn phase_counts(&self) -> (u64, u64) {
        let stats = self.process.engine.stats();
        (stats.running(), stats.paused())
    }

    fn expire(&mut self, after: Duration) {
        self.process.now += after;
        let now = self.process.now;
        self.process.attempts.expire(now);
        self.process.step();
    }
}

#[test]
fn stream_of_a_dead_gateway_goes_on_and_no_token_is_computed_twice() {
    for n in [1, 3] {
        let case = case(n, 0);
        let mut bench = Bench::new(&case);
        bench.step(30);
        // Messages that nobody gets.
        (0..20).for_each(|_| drop(step(&mut bench.process)));
        for choice in 0..n {
            assert_eq!(bench.adopt(&bench.entry(choice)), Adoption::Adopted);
            assert_eq!(
                bench.adopt(&bench.entry(choice)),
                Adoption::Adopted,
                "again"
            );
        }
        assert_eq!(bench.process.attempts.len(), n, "the owner's is gone");
        bench.finish();
        assert_eq!(bench.logs, EngineProcess::local(&case, epoch()), "{n}");
        let tokens: usize = bench.logs.iter().map(|log| log.tokens.len()).sum();
        let computed = bench.process.engine.stats().tokens_generated();
        assert_eq!(computed, tokens as u64);
    }
}

#[test]
fn late_messages_of_the_earlier_owner_have_no_effect() {
    let mut bench = Bench::new(&case(1, 0));
    bench.step(10);
    assert_eq!(bench.adopt(&bench.entry(0)), Adoption::Adopted);
    let orders = [
        order(1, OrderKind::Cancel),
        order(0, OrderKind::Forget),
        order(1, OrderKind::Pause),
    ];
    apply(&mut bench.process, &orders);
    let request = ReadRequest {
        gateway: GATEWAY,
        entries: vec![ReadEntry {
            handle: 1,
            attempt: 1,
            have: vec![0],
        }],
    };
    let now = bench.process.now;
    let answer = bench.process.attempts.read(&request, now);
    let (handle, attempt) = (1, 1);
    assert_eq!(answer.unknown(), [Attempt { handle, attempt }]);
    bench.finish();
    assert_eq!(bench.logs, EngineProcess::local(&case(1, 0), epoch()));
}

#[test]
fn answer_that_has_ended_is_adopted() {
    let case = case(1, 0);
    let mut bench = Bench::new(&case);
    bench.step(5);
    bench.process.run_until_idle();
    bench.process.messages();
    assert_eq!(bench.adopt(&bench.entry(0)), Adoption::Adopted);
    bench.finish();
    assert_eq!(bench.logs, EngineProcess::local(&case, epoch()));
}

#[test]
fn what_differs_is_not_adopted() {
    type Change = fn(&mut AdoptEntry);
    let rows: [(&str, Change, Adoption); 6] = [
        ("an id", |e| e.ids[3] ^= 1, Adoption::Differs),
        ("more tokens", |e| e.ids.push(97), Adoption::Differs),
        (
            "another temperature",
            |e| e.in_effect.temperature = Some(0.1),
            Adoption::Differs,
        ),
        ("a stream", |e| e.choice.stream = 9, Adoption::Unknown),
        ("a prompt", |e| e.choice.prompt = 1, Adoption::Unknown),
        ("a choice", |e| e.choice.choice = 1, Adoption::Unknown),
    ];
    for (label, change, expected) in rows {
        let mut bench = Bench::new(&case(1, 0));
        bench.step(10);
        let mut entry = bench.entry(0);
        change(&mut entry);
        assert_eq!(bench.adopt(&entry), expected, "{label}");
        let is_left = expected == Adoption::Unknown;
        assert_eq!(bench.process.attempts.len(), usize::from(is_left));
        bench.process.step();
        let cancelled = bench.process.engine.stats().endings().cancelled;
        assert_eq!(cancelled, u64::from(!is_left), "{label}: dropped");
    }
}

#[test]
fn gateway_that_the_stream_was_taken_from_gets_nothing_back() {
    let mut bench = Bench::new(&case(1, 0));
    bench.step(10);
    let latest = AdoptEntry {
        generation: 2,
        ..bench.entry(0)
    };
    assert_eq!(bench.adopt(&latest), Adoption::Adopted);
    let late = AdoptEntry {
        handle: 77,
        generation: 1,
        ..bench.entry(0)
    };
    assert_eq!(bench.adopt(&late), Adoption::Unknown);
}

#[test]
fn updates_are_compared_by_their_effect() {
    let update = |temperature, inject: &[u32]| RequestUpdate {
        temperature: Some(temperature),
        inject: inject.to_vec(),
        ..RequestUpdate::default()
    };
    let rows = [
        (
            "the last",
            vec![update(0.3, &[]), update(0.5, &[])],
            0.5,
            Adoption::Adopted,
        ),
        (
            "an earlier one",
            vec![update(0.3, &[]), update(0.5, &[])],
            0.3,
            Adoption::Differs,
        ),
        (
            "injected tokens",
            vec![update(0.5, &[104])],
            0.5,
            Adoption::Differs,
        ),
    ];
    for (label, updates, in_effect, expected) in rows {
        let mut bench = Bench::new(&case(1, 0));
        bench.step(10);
        for (sequence, update) in (1..).zip(updates) {
            let update = OrderKind::Update(Box::new(update));
            apply(&mut bench.process, &[order(sequence, update)]);
        }
        bench.step(3);
        let entry = AdoptEntry {
            in_effect: update(in_effect, &[]),
            ..bench.entry(0)
        };
        assert_eq!(bench.adopt(&entry), expected, "{label}");
    }
    let mut bench = Bench::new(&case(1, 0));
    bench.step(10);
    let late = OrderKind::Update(Box::new(update(0.5, &[])));
    apply(&mut bench.process, &[order(1, late)]);
    let entry = AdoptEntry {
        in_effect: update(0.5, &[]),
        ..bench.entry(0)
    };
    assert_eq!(bench.adopt(&entry), Adoption::Differs, "not in effect yet");
}

#[test]
fn paused_attempt_stays_paused_until_the_new_gateway_resumes_it() {
    let mut bench = Bench::new(&case(1, 0));
    bench.step(10);
    apply(&mut bench.process, &[order(1, OrderKind::Pause)]);
    bench.step(2);
    assert_eq!(bench.adopt(&bench.entry(0)), Adoption::AdoptedPaused);
    bench.process.step();
    assert_eq!(bench.phase_counts(), (0, 1));
    let mut resume = order(1, OrderKind::Resume);
    (resume.handle, resume.attempt) = (10, 3);
    let now = bench.process.now;
    bench.process.attempts.apply_orders(OTHER, &[resume], now);
    bench.finish();
    assert_eq!(bench.logs, EngineProcess::local(&case(1, 0), epoch()));
}

#[test]
fn streams_of_a_silent_gateway_are_paused_and_cancelled_later() {
    let mut bench = Bench::new(&case(1, 0));
    let plain = bench.process.run_of(&case(1, 0), GATEWAY, 2);
    assert_eq!(bench.process.submit(plain), Some(RunReply::Accepted));
    bench.step(5);
    bench.expire(GATEWAY_SILENCE - SECOND);
    assert_eq!(bench.phase_counts(), (2, 0));
    bench.expire(SECOND);
    assert_eq!(bench.phase_counts(), (0, 1), "no stream: cancelled");
    let now = bench.process.now;
    bench.process.attempts.hear(GATEWAY, now);
    bench.process.step();
    assert_eq!(bench.phase_counts(), (1, 0), "the gateway is back");
    bench.expire(ADOPTION_WAIT - SECOND);
    assert_eq!(bench.phase_counts(), (0, 1));
    bench.expire(SECOND);
    assert!(bench.process.attempts.is_empty());
    assert_eq!(bench.process.engine.stats().endings().cancelled, 2);
}

#[test]
fn stream_of_a_silent_gateway_goes_on_when_it_is_adopted() {
    let case = case(2, 0);
    let mut bench = Bench::new(&case);
    bench.step(8);
    bench.expire(GATEWAY_SILENCE);
    assert_eq!(bench.phase_counts(), (0, 2));
    bench.process.messages();
    for choice in 0..2 {
        assert_eq!(bench.adopt(&bench.entry(choice)), Adoption::Adopted);
    }
    bench.finish();
    assert_eq!(bench.logs, EngineProcess::local(&case, epoch()));
    // What is left of an attempt whose other choices were adopted is not kept.
    let mut bench = Bench::new(&case);
    bench.step(8);
    assert_eq!(bench.adopt(&bench.entry(0)), Adoption::Adopted);
    let now = bench.process.now + GATEWAY_SILENCE;
    bench.process.attempts.hear(OTHER, now);
    bench.expire(GATEWAY_SILENCE);
    assert_eq!(
        (bench.process.attempts.len(), bench.phase_counts()),
        (1, (1, 0))
    );
}

#[test]
fn tokens_without_log_probabilities_are_not_handed_over() {
    let mut bench = Bench::new(&case(1, 0));
    bench.step(20);
    let ids = bench.logs[0].ids();
    // Another engine had computed the first tokens.
    let mut again = bench.process.stream_of(&case(1, 0), GATEWAY, STREAM + 1);
    again.handle = 2;
    again.choices[0].ids = ids[..10].to_vec();
    assert_eq!(bench.process.submit(again), Some(RunReply::Accepted));
    bench.step(3);
    for (have, expected) in [(9, Adoption::Differs), (10, Adoption::Adopted)] {
        let mut entry = bench.entry(0);
        entry.choice.stream = STREAM + 1;
        entry.ids = ids[..have].to_vec();
        if expected == Adoption::Adopted {
            entry.choice.stream = STREAM;
        }
        assert_eq!(bench.adopt(&entry), expected);
    }
    assert_eq!(bench.run.attempt, 1);
    assert!(bench.logs[0].end.is_none_or(|end| end == End::Length));
}
