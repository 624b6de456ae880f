use super::*;
use crate::{Embedding, Pooling};
use std::sync::OnceLock;

type Vector = Arc<OnceLock<Box<[f32]>>>;

fn relayed(bench: &mut Bench, is_embedding: bool) -> (RelayedRequest, Reader<Token>, Vector) {
    let vector = Vector::default();
    let (mut request, mut readers) = bench.request(1, &[]);
    request.embedding = is_embedding.then(|| Embedding {
        pooling: Pooling::Mean,
        vector: Arc::clone(&vector),
    });
    bench.handle.submit(request).unwrap();
    (bench.take(), readers.remove(0), vector)
}

#[test]
fn vector_is_there_before_the_end_and_the_first_one_counts() {
    let mut bench = bench(EngineConfig::default());
    assert_eq!(bench.handle.hidden_dim(), HIDDEN_DIM);
    let (mut relayed, mut reader, vector) = relayed(&mut bench, true);
    assert_eq!(relayed.vector_len(), Some(HIDDEN_DIM));
    assert!(relayed.lacks_vector());
    for wrong in [
        &[][..],
        &[1.0; HIDDEN_DIM - 1],
        &[1.0; HIDDEN_DIM + 1],
        &[f32::NAN; HIDDEN_DIM],
        &[f32::INFINITY; HIDDEN_DIM],
    ] {
        assert_eq!(relayed.set_vector(wrong), Err(AppendError::Vector));
    }
    let no_token = relayed.append(0, token(1), &[], bench.now);
    assert_eq!(no_token, Err(AppendError::Embedding));
    assert!(relayed.lacks_vector() && vector.get().is_none());
    assert_eq!(relayed.set_vector(&[0.5; HIDDEN_DIM]), Ok(()));
    assert_eq!(relayed.set_vector(&[0.25; HIDDEN_DIM]), Ok(()));
    assert!(!relayed.lacks_vector());
    assert_eq!(vector.get().unwrap()[..], [0.5; HIDDEN_DIM]);
    relayed.finish(0, End::Stop(Stop::Eos), bench.now);
    assert_eq!(read(&mut reader), (vec![], Some(End::Stop(Stop::Eos))));
    let late = relayed.set_vector(&[0.5; HIDDEN_DIM]);
    assert_eq!(late, Err(AppendError::NoChoice));
}

#[test]
fn request_for_tokens_takes_no_vector() {
    let mut bench = bench(EngineConfig::default());
    let (mut relayed, _reader, _) = relayed(&mut bench, false);
    assert_eq!(relayed.vector_len(), None);
    assert!(!relayed.lacks_vector());
    let wrong = relayed.set_vector(&[0.5; HIDDEN_DIM]);
    assert_eq!(wrong, Err(AppendError::NoChoice));
}
