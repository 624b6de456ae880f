//! Embeddings: equal for any prefill chunks, in any batch and after a preemption; generations beside them
//! do not change.

use crate::support::{Asked, Bench, bench, model};
use engine::fake::{FakeConfig, FakeModel, Fault, FaultAt, FaultKind, HIDDEN_DIM};
use engine::{Embedding, EngineConfig, Pooling};
use model::{Batch, Dims, Forward, Want};
use std::sync::{Arc, OnceLock};
use stream::{End, FailCode, Stop};

pub(crate) type Vector = Arc<OnceLock<Box<[f32]>>>;

pub(crate) const BOTH: [Pooling; 2] = [Pooling::Last, Pooling::Mean];

pub(crate) fn ask(bench: &Bench, prompt: &[u32], pooling: Pooling) -> (Asked, Vector) {
    let vector = Vector::default();
    let mut request = bench.request(prompt, 1);
    request.embedding = Some(Embedding {
        pooling,
        vector: Arc::clone(&vector),
    });
    (bench.ask(request, 1), vector)
}

pub(crate) fn prompt(seed: u32, len: u32) -> Vec<u32> {
    (0..len).map(|i| 1 + (seed * 31 + i * 7) % 59).collect()
}

/// The expected vector: one pass over the whole prompt, in plain arithmetic.
fn plain(prompt: &[u32], pooling: Pooling) -> Vec<f32> {
    let dims = Dims {
        rows_max: 128,
        ..model().dims
    };
    let mut model = FakeModel::new(FakeConfig { dims, ..model() });
    let pages: Vec<u32> = (0..prompt.len().div_ceil(dims.page_tokens) as u32).collect();
    let mut batch = Batch::default();
    batch.push(prompt, 0, &pages, Want::AllHidden);
    model.forward(&batch).expect("a batch");
    let rows: Vec<&[f32]> = model.hidden().chunks(HIDDEN_DIM).collect();
    assert_eq!(rows.len(), prompt.len());
    let mean = |at: usize| {
        let sum: f64 = rows.iter().map(|row| f64::from(row[at])).sum();
        (sum / rows.len() as f64) as f32
    };
    match pooling {
        Pooling::Last => rows[rows.len() - 1].to_vec(),
        Pooling::Mean => (0..HIDDEN_DIM).map(mean).collect(),
        Pooling::First => rows[0].to_vec(),
    }
}

fn expect(asked: &mut Asked, vector: &Vector, want: &[f32]) {
    assert_eq!(asked.answers[0].seen(), (0, Some(End::Stop(Stop::Eos))));
    let vector = vector.get().expect("before the end");
    assert_eq!(&vector[..], want);
}

#[test]
fn embedding_is_exact_for_any_prefill_chunks() {
    for pooling in BOTH {
        for len in [1, 3, 4, 16, 17, 60, 127] {
            let mut bench = bench();
            let ids = prompt(3, len);
            let (mut asked, vector) = ask(&bench, &ids, pooling);
            bench.run();
            expect(&mut asked, &vector, &plain(&ids, pooling));
            bench.assert_empty();
        }
    }
}

#[test]
fn embeddings_and_generations_do_not_affect_each_other() {
    let alone = bench().answer(bench().request(&prompt(9, 20), 30)).ids();
    for pooling in BOTH {
        let mut bench = bench();
        let mut talks = bench.ask(bench.request(&prompt(9, 20), 30), 1);
        bench.steps(4);
        let mut all: Vec<_> = (0..5)
            .map(|i| ask(&bench, &prompt(i, 40), pooling))
            .collect();
        bench.run();
        for (i, (asked, vector)) in all.iter_mut().enumerate() {
            expect(asked, vector, &plain(&prompt(i as u32, 40), pooling));
        }
        assert_eq!(talks.answers[0].seen().0, 30);
        assert_eq!(talks.answers[0].ids(), alone);
        bench.assert_empty();
    }
}

#[test]
fn embedding_neither_uses_nor_fills_the_prefix_cache() {
    let ids = prompt(5, 40);
    for pooling in BOTH {
        let mut bench = bench();
        bench.answer(bench.request(&ids, 2));
        let (mut asked, vector) = ask(&bench, &ids, pooling);
        bench.run();
        expect(&mut asked, &vector, &plain(&ids, pooling));
        assert_eq!(asked.progress.cached_tokens(), 0);
    }
}

#[test]
fn preempted_embedding_is_computed_again() {
    let mut short = model();
    short.dims.pages = 32;
    let mut bench = Bench::new(short, EngineConfig::default());
    let ids = prompt(2, 60);
    let (mut asked, vector) = ask(&bench, &ids, Pooling::Mean);
    bench.steps(2);
    // It stands still while others, more urgent, need all pages.
    bench.handle.pause(asked.id);
    bench.step();
    let others: Vec<_> = (0..2)
        .map(|i| bench.ask(bench.request(&prompt(20 + i, 50), 10), 1))
        .collect();
    bench.run_until(|bench| bench.handle.stats().preemptions() > 0);
    bench.handle.resume(asked.id);
    drop(others);
    bench.run();
    expect(&mut asked, &vector, &plain(&ids, Pooling::Mean));
}

#[test]
fn failed_embedding_fails_alone() {
    crate::support::quiet_expected_panics();
    for (kind, code) in [
        (FaultKind::Error, FailCode::Inference),
        (FaultKind::NotANumber, FailCode::NotFinite),
        (FaultKind::Panic, FailCode::Panic),
    ] {
        let faults = vec![Fault {
            at: FaultAt::Token(63),
            kind,
        }];
        let mut bench = Bench::new(FakeConfig { faults, ..model() }, EngineConfig::default());
        for pooling in BOTH {
            let (mut good, vector) = ask(&bench, &prompt(1, 9), pooling);
            let (mut bad, none) = ask(&bench, &[5, 63, 7], pooling);
            bench.run();
            expect(&mut good, &vector, &plain(&prompt(1, 9), pooling));
            assert_eq!(
                bad.answers[0].seen(),
                (0, Some(End::Failed(code))),
                "{kind:?}"
            );
            assert!(none.get().is_none());
            bench.assert_empty();
        }
    }
}

#[test]
fn abandoned_embedding_is_not_computed() {
    let mut bench = bench();
    let (asked, vector) = ask(&bench, &prompt(1, 60), Pooling::Mean);
    bench.step();
    drop(asked);
    bench.run();
    assert!(vector.get().is_none());
    assert_eq!(bench.handle.stats().endings().cancelled, 1);
    bench.assert_empty();
}

#[test]
fn embedding_request_has_one_choice() {
    let bench = bench();
    let mut request = bench.request(&[1, 2], 1);
    request.embedding = Some(Embedding {
        pooling: Pooling::Mean,
        vector: Vector::default(),
    });
    bench.choice(&mut request);
    for _ in 0..2 {
        let answer = bench.choice(&mut request);
        drop(answer);
    }
    let refused = bench.handle.submit(request).expect_err("two choices");
    assert!(
        format!("{refused:?}").contains("of an embedding 1"),
        "{refused:?}"
    );
}
