//! Embeddings for gateways.

use super::calls::{GATEWAY, case, code, read, step};
use super::engine_process::{EngineProcess, epoch};
use crate::messages::{Rejection, Run, RunReply, TokenBatch};
use engine::fake::HIDDEN_DIM;
use engine::{Embedding, Pooling, Terms};
use generate::embedding::{EmbeddingRequest, EmbeddingVector};
use generate::remote_request::{RecordPooling, RemoteRequest};
use std::sync::Arc;
use stream::{End, Stop};

const POOLINGS: [(Pooling, RecordPooling); 2] = [
    (Pooling::Last, RecordPooling::Last),
    (Pooling::Mean, RecordPooling::Mean),
];

/// A request for the embedding of the case's prompt.
fn run_of(process: &EngineProcess, pooling: RecordPooling) -> Run {
    let run = process.run_of(&case(1, 0), GATEWAY, 1);
    let mut record = RemoteRequest::decode(&run.request).unwrap();
    record.embedding = Some(pooling);
    Run {
        request: record.encode().unwrap(),
        ..run
    }
}

/// The vector that the engine gives to a caller of its own process.
fn local(pooling: Pooling) -> Vec<u32> {
    let mut process = EngineProcess::new(epoch(), 16);
    let prompt = process.prompts(&case(1, 0)).remove(0).ids;
    let vector = EmbeddingVector::default();
    let request = EmbeddingRequest {
        prompt,
        embedding: Embedding {
            pooling,
            vector: Arc::clone(&vector),
        },
        deadline: None,
        lora: Vec::new(),
        terms: Terms::default(),
    };
    let model = &process.models[0].handle;
    let (tokens, _reader) = stream::open(&model.token_pool, 1).unwrap();
    let request = request.into_request(model, tokens).unwrap();
    model.engine.submit(request).unwrap();
    process.run_until_idle();
    bits(vector.get().expect("a vector"))
}

fn bits(vector: &[f32]) -> Vec<u32> {
    vector.iter().map(|entry| entry.to_bits()).collect()
}

fn vectors(batch: &TokenBatch) -> Vec<Vec<u32>> {
    batch.vectors().map(|(_, vector)| bits(vector)).collect()
}

#[test]
fn vector_is_that_of_a_local_request_bit_for_bit_and_comes_beside_the_end() {
    for (pooling, recorded) in POOLINGS {
        let expected = local(pooling);
        assert_eq!(expected.len(), HIDDEN_DIM);
        let mut process = EngineProcess::new(epoch(), 16);
        let run = run_of(&process, recorded);
        assert_eq!(process.submit(run), Some(RunReply::Accepted));
        let batch = (0..100).find_map(|_| {
            let mut messages = step(&mut process).into_iter();
            messages.find(|batch| !batch.ends().is_empty())
        });
        let batch = batch.expect("an end");
        assert_eq!(batch.ends()[0].end, End::Stop(Stop::Eos));
        assert_eq!((batch.ends()[0].len, batch.runs().count()), (0, 0));
        assert_eq!(vectors(&batch), std::slice::from_ref(&expected));
        // The message was lost.
        let again = read(&mut process, &[(1, 1, 0)]);
        assert_eq!(again.ends(), batch.ends());
        assert_eq!(vectors(&again), [expected]);
    }
}

#[test]
fn embedding_with_tokens_so_far_is_invalid() {
    let mut process = EngineProcess::new(epoch(), 16);
    let mut run = run_of(&process, RecordPooling::Mean);
    run.choices[0].ids = vec![97];
    assert_eq!(code(process.submit(run)), Rejection::Invalid);
    let mut run = run_of(&process, RecordPooling::Mean);
    (run.choices[0].has_ended, run.attempt) = (true, 2);
    assert_eq!(code(process.submit(run)), Rejection::Invalid);
}
