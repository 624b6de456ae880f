use super::*;
use crate::{Embedding, Pooling};
use std::sync::OnceLock;

/// A model that generates text, and gives embeddings.
pub(super) fn decoder() -> RemoteModel {
    RemoteModel {
        hidden_dim: HIDDEN_DIM,
        ..DIMS.into()
    }
}

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

#[test]
fn encoder_takes_texts_of_the_whole_context_and_no_request_for_text() {
    let mut bench = bench(EngineConfig::default());
    assert!(bench.handle.generates());
    assert_eq!(bench.handle.prompt_tokens_max(), DIMS.context_max - 1);
    let model = RemoteModel {
        is_causal: false,
        ..decoder()
    };
    (bench.handle, bench.inbox) = remote_handle(model, EngineConfig::default(), bench.now).unwrap();
    assert!(!bench.handle.generates());
    let longest = DIMS.context_max;
    assert_eq!(bench.handle.prompt_tokens_max(), longest);
    let (text, _readers) = bench.request(1, &[]);
    let refused = bench.handle.submit(text).map(|_| ());
    assert!(matches!(&refused, Err(Rejected::Invalid(_, why)) if why.contains("is an encoder")));
    for (tokens, fits) in [(longest, true), (longest + 1, false)] {
        let (mut request, _readers) = bench.request(1, &[]);
        request.prompt = vec![1; tokens];
        request.embedding = Some(Embedding {
            pooling: Pooling::First,
            vector: Vector::default(),
        });
        assert_eq!(bench.handle.submit(request).is_ok(), fits, "{tokens}");
    }
}
