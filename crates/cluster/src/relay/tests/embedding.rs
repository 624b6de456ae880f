//! Requests for embeddings.

use super::bench::*;
use super::*;
use crate::messages::ChoiceEnd;
use crate::names::InstanceId;
use ::engine::{Embedding, Pooling, Token};
use std::sync::{Arc, OnceLock};
use stream::Reader;

type Vector = Arc<OnceLock<Box<[f32]>>>;

const STOPPED: Option<End> = Some(End::Stop(Stop::Eos));
const RIGHT: [f32; HIDDEN_DIM] = [0.5, -0.25, 0.0, 1e-30];

fn submit(bench: &Bench) -> (Reader<Token>, Vector) {
    let vector = Vector::default();
    let mut readers = bench.submit_with(1, |request| {
        request.max_tokens = 1;
        request.embedding = Some(Embedding {
            pooling: Pooling::Last,
            vector: Arc::clone(&vector),
        });
    });
    (readers.remove(0), vector)
}

/// A message with the end of the embedding, and a vector.
fn news(engine: InstanceId, run: &Run, vector: Option<&[f32]>) -> TokenBatch {
    let mut batch = TokenBatch::new(engine);
    let (handle, attempt) = (run.handle, run.attempt);
    if let Some(vector) = vector {
        batch
            .push_vector(Attempt { handle, attempt }, vector)
            .unwrap();
    }
    let end = ChoiceEnd {
        handle,
        attempt,
        choice: 0,
        len: 0,
        end: End::Stop(Stop::Eos),
    };
    batch.push_end(end).unwrap();
    let mut message = Vec::new();
    batch.encode(&mut message);
    let mut received = TokenBatch::default();
    received.decode_into(&message).unwrap();
    received
}

fn publish(bench: &mut Bench, batch: &TokenBatch) {
    bench.relay.on_tokens(batch, false, bench.now);
}

/// Whether the next look asks the engine for what is missing.
fn reads(bench: &mut Bench) -> bool {
    bench.now += Duration::from_millis(1);
    let actions = bench.relay.poll(bench.now);
    let is_read = |action: &Action| matches!(action, Action::Read { .. });
    actions.iter().any(is_read)
}

#[test]
fn vector_comes_beside_the_end_from_an_engine_that_gives_vectors_of_this_length() {
    let mut bench = bench();
    bench.show_dims(&[A], &[0]);
    let (mut reader, vector) = submit(&bench);
    assert!(bench.sent().is_none(), "no embeddings");
    bench.show_dims(&[A, B], &[HIDDEN_DIM as u64 + 1, HIDDEN_DIM as u64]);
    let (engine, run) = bench.sent().expect("placed");
    assert_eq!(engine, B);
    bench.answer(B, &run, RunReply::Accepted);
    assert_eq!(read(&mut reader), (vec![], None));
    publish(&mut bench, &news(B, &run, Some(&RIGHT)));
    assert_eq!(vector.get().unwrap()[..], RIGHT);
    assert_eq!(read(&mut reader), (vec![], STOPPED));
    assert!(bench.relay.is_empty());
}

#[test]
fn end_without_its_vector_is_read_again() {
    let mut bench = bench();
    bench.show(&[A]);
    let (mut reader, vector) = submit(&bench);
    let run = bench.placed();
    publish(&mut bench, &news(A, &run, None));
    assert_eq!(read(&mut reader), (vec![], None));
    assert!(reads(&mut bench));
    let answer = news(A, &run, Some(&RIGHT));
    bench.relay.on_tokens(&answer, true, bench.now);
    assert_eq!(read(&mut reader), (vec![], STOPPED));
    assert_eq!(vector.get().unwrap()[..], RIGHT);
}

#[test]
fn wrong_vector_is_counted_and_dropped_and_its_engine_loses_the_request_in_the_end() {
    let wrongs: [&[f32]; 4] = [
        &RIGHT[1..],
        &[1.0; HIDDEN_DIM + 1],
        &[0.0, 0.0, f32::NAN, 0.0],
        &[f32::NEG_INFINITY; HIDDEN_DIM],
    ];
    for wrong in wrongs {
        let mut bench = bench();
        bench.show(&[A, B]);
        let (mut reader, vector) = submit(&bench);
        let (first, run) = bench.sent().expect("placed");
        bench.answer(first, &run, RunReply::Accepted);
        publish(&mut bench, &news(first, &run, Some(wrong)));
        assert_eq!(bench.relay.counters().wrong_vectors, 1);
        assert!(reads(&mut bench) && vector.get().is_none());
        let answer = news(first, &run, Some(wrong));
        bench.relay.on_tokens(&answer, true, bench.now);
        let (second, again) = bench.sent().expect("placed again");
        assert_ne!(second, first);
        bench.answer(second, &again, RunReply::Accepted);
        publish(&mut bench, &news(first, &run, Some(&[9.0; HIDDEN_DIM])));
        assert!(vector.get().is_none(), "of an earlier attempt");
        publish(&mut bench, &news(second, &again, Some(&RIGHT)));
        assert_eq!(read(&mut reader), (vec![], STOPPED));
        assert_eq!(vector.get().unwrap()[..], RIGHT);
        assert_eq!(bench.relay.counters().wrong_vectors, 2);
    }
}

#[test]
fn embedding_is_computed_again_after_its_engines_death_and_forgotten_after_a_cancel() {
    let mut bench = bench();
    bench.show(&[A]);
    let (mut reader, _) = submit(&bench);
    let run = bench.placed();
    bench.show(&[B]);
    let (engine, again) = bench.sent().expect("placed again");
    assert_eq!((engine, again.attempt), (B, run.attempt + 1));
    assert!(again.choices[0].ids.is_empty() && !again.choices[0].has_ended);
    bench.answer(B, &again, RunReply::Accepted);
    assert_eq!(read(&mut reader), (vec![], None));
    drop(reader);
    let orders = bench.orders();
    assert!(orders.iter().any(|order| order.kind == OrderKind::Forget));
    assert!(bench.relay.is_empty());
}

#[test]
fn vector_and_tokens_of_the_other_kind_of_request_are_refused() {
    let mut bench = bench();
    bench.show(&[A]);
    let (_tokens, run) = bench.running();
    publish(&mut bench, &news(A, &run, Some(&RIGHT)));
    assert_eq!(bench.relay.counters().wrong_vectors, 1);
    let (mut reader, _) = submit(&bench);
    let run = bench.placed();
    bench.tokens(A, &run, 0, &[5]);
    assert_eq!(read(&mut reader), (vec![], Some(End::Lost)));
    assert_eq!(bench.relay.counters().diverged, 1);
}
