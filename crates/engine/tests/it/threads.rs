//! The engine on its own thread.

use crate::support::{Answer, Bench};
use engine::fake::{FakeConfig, FakeModel, Gate};
use engine::{Engine, EngineConfig, EngineThread, Handle, spawn};
use std::sync::Arc;
use std::time::Instant;
use stream::{End, FailCode, Read};

/// An engine on its thread, and a bench that only makes requests.
fn spawned(model: FakeModel) -> (Handle, EngineThread, Bench) {
    let bench = Bench::new(FakeConfig::default(), EngineConfig::default());
    let engine = Engine::new(Box::new(model), EngineConfig::default(), now()).expect("valid");
    let (handle, joiner) = spawn(engine).expect("a thread");
    (handle, joiner, bench)
}

#[expect(clippy::disallowed_methods, reason = "a deadline for a real thread")]
fn now() -> Instant {
    Instant::now()
}

fn submit(
    handle: &Handle,
    bench: &Bench,
    prompt: &[u32],
    max_tokens: usize,
    window: u64,
) -> Answer {
    let mut request = bench.request(prompt, max_tokens);
    request.credit_window = window;
    let answer = bench.choice(&mut request);
    handle.submit(request).expect("accepted");
    answer
}

/// Reads and accepts tokens until the end.
fn end(answer: &mut Answer) -> (usize, End) {
    let reader = answer.reader.as_mut().expect("a reader");
    let mut buffer = [engine::Token::default(); 8];
    let mut tokens = 0;
    loop {
        match reader.read_blocking(&mut buffer) {
            Read::Items(n) => tokens += n,
            Read::Ended(end) => return (tokens, end),
            Read::Empty => unreachable!("blocking"),
        }
        reader.accept(reader.cursor());
    }
}

#[test]
fn requests_of_many_threads_are_all_served() {
    const THREADS: u32 = 8;
    const ROUNDS: u32 = 40;
    const AT_ONCE: u32 = 10;
    let (handle, joiner, _) = spawned(FakeModel::new(FakeConfig::default()));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let handle = &handle;
            scope.spawn(move || {
                let bench = Bench::new(FakeConfig::default(), EngineConfig::default());
                for round in 0..ROUNDS {
                    let ask = |i| {
                        submit(
                            handle,
                            &bench,
                            &[1 + thread, 1 + round],
                            3,
                            u64::from(i % 3),
                        )
                    };
                    let mut answers: Vec<_> = (0..AT_ONCE).map(ask).collect();
                    for answer in &mut answers {
                        assert_eq!(end(answer), (3, End::Length));
                    }
                }
            });
        }
    });
    let all = u64::from(THREADS * ROUNDS * AT_ONCE);
    assert_eq!(handle.stats().endings().length, all);
    drop(handle);
    joiner
        .join()
        .expect("no panic: the queue was in order whenever the scheduler looked");
}

#[test]
fn engine_without_handles_finishes_and_leaves() {
    let (handle, joiner, bench) = spawned(FakeModel::new(FakeConfig::default()));
    let mut answer = submit(&handle, &bench, &[1, 2], 100, 0);
    let clone = handle.clone();
    drop(handle);
    drop(clone);
    joiner.join().expect("no panic");
    assert_eq!(end(&mut answer), (100, End::Length));
}

#[test]
fn shutdown_ends_requests_of_silent_readers() {
    let (handle, joiner, bench) = spawned(FakeModel::new(FakeConfig::default()));
    let mut answer = submit(&handle, &bench, &[1, 2], 100, 3);
    let reader = answer.reader.as_mut().expect("a reader");
    let mut buffer = [engine::Token::default(); 8];
    while reader.cursor() < 3 {
        reader.read_blocking(&mut buffer);
    }
    handle.shutdown(now());
    joiner.join().expect("no panic");
    assert_eq!(end(&mut answer), (0, End::Failed(FailCode::Shutdown)));
}

#[test]
fn cancel_wakes_an_engine_with_parked_sequences() {
    let (handle, joiner, bench) = spawned(FakeModel::new(FakeConfig::default()));
    let mut request = bench.request(&[1, 2], 100);
    request.credit_window = 3;
    let mut answer = bench.choice(&mut request);
    let id = handle.submit(request).expect("accepted");
    handle.cancel(id);
    assert_eq!(end(&mut answer).1, End::Cancelled);
    drop(handle);
    joiner.join().expect("no panic");
}

#[test]
fn gated_model_gives_one_token_per_permit() {
    let gate = Arc::new(Gate::default());
    let model = FakeModel::gated(FakeConfig::default(), Arc::clone(&gate));
    let (handle, joiner, bench) = spawned(model);
    let mut answer = submit(&handle, &bench, &[1, 2], 5, 0);
    let mut buffer = [engine::Token::default(); 8];
    for _ in 0..5 {
        gate.allow(1);
        let reader = answer.reader.as_mut().expect("a reader");
        assert_eq!(reader.read_blocking(&mut buffer), Read::Items(1));
    }
    assert_eq!(end(&mut answer), (0, End::Length));
    gate.open();
    drop(handle);
    joiner.join().expect("no panic");
}

/// A model that makes the engine panic: its `dims` panic after the start.
struct Broken(FakeModel, bool);

impl model::Forward for Broken {
    fn dims(&self) -> model::Dims {
        assert!(!self.1, "simulated");
        self.0.dims()
    }
    fn forward(&mut self, batch: &model::Batch) -> Result<&mut [f32], model::ForwardError> {
        self.1 = true;
        self.0.forward(batch)
    }
    fn copy_page(&mut self, from: model::PageId, to: model::PageId) {
        self.0.copy_page(from, to);
    }
}

#[test]
fn streams_of_a_panicked_engine_end() {
    crate::support::quiet_expected_panics();
    let bench = Bench::new(FakeConfig::default(), EngineConfig::default());
    let model = Broken(FakeModel::new(FakeConfig::default()), false);
    let engine = Engine::new(Box::new(model), EngineConfig::default(), now()).expect("valid");
    let (handle, joiner) = spawn(engine).expect("a thread");
    let mut answer = submit(&handle, &bench, &[1, 2], 5, 0);
    assert_eq!(end(&mut answer).1, End::Lost);
    assert!(joiner.join().is_err());
    let mut request = bench.request(&[1], 1);
    let _reader = bench.choice(&mut request);
    assert!(matches!(
        handle.submit(request),
        Err(engine::Rejected::Closed(_))
    ));
}
