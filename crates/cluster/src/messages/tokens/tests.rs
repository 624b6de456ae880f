use super::*;
use proptest::prelude::*;
use stream::Stop;

/// A run with its values as bits, since NaN differs from itself.
type RunBits = (RunKey, Vec<(u32, u32)>, Vec<(u32, u32)>);

fn bits(batch: &TokenBatch) -> Vec<RunBits> {
    let runs = batch.runs().map(|run| {
        let tokens = run.tokens.iter().map(|t| (t.id, t.logprob.to_bits()));
        let top = run.top.iter().map(|t| (t.id, t.logprob.to_bits()));
        (run.key, tokens.collect(), top.collect())
    });
    runs.collect()
}

fn runs() -> impl Strategy<Value = Vec<(RunKey, Vec<Token>, Vec<TopLogprob>)>> {
    let key = (any::<u64>(), any::<u32>(), any::<u32>(), 0..u32::MAX - 100).prop_map(
        |(handle, attempt, choice, first)| RunKey {
            handle,
            attempt,
            choice,
            first,
        },
    );
    let ids = proptest::collection::vec(any::<u32>(), 1..6);
    let run = (key, ids, any::<bool>(), 0_usize..4).prop_map(|(key, ids, has_logprobs, top_n)| {
        let logprob = if has_logprobs { -0.25 } else { f32::NAN };
        let top = ids.iter().flat_map(|&id| {
            (0..top_n).map(move |i| TopLogprob {
                id: id ^ i as u32,
                logprob: -1.0,
            })
        });
        let top = top.collect();
        let tokens = ids.iter().map(|&id| Token { id, logprob });
        (key, tokens.collect(), top)
    });
    proptest::collection::vec(run, 0..6)
}

fn batch_of(runs: &[(RunKey, Vec<Token>, Vec<TopLogprob>)]) -> TokenBatch {
    let mut batch = TokenBatch::new(InstanceId(u64::MAX));
    for (key, tokens, top) in runs {
        batch.push_run(*key, tokens, top).unwrap();
        let RunKey {
            handle, attempt, ..
        } = *key;
        let end = ChoiceEnd {
            handle,
            attempt,
            choice: key.choice,
            len: key.first,
            end: End::Stop(Stop::StopString(3)),
        };
        batch.push_end(end).unwrap();
        let progress = RequestProgress {
            handle,
            attempt,
            phase: Phase::Paused,
            prompt_done: handle,
            cached_tokens: 1,
            updates_applied: attempt,
            orders_applied: 9,
        };
        batch.push_progress(progress).unwrap();
        batch.push_unknown(Attempt { handle, attempt }).unwrap();
    }
    batch
}

proptest! {
    #[test]
    fn batches_are_read_back_and_no_prefix_is_accepted(runs in runs()) {
        let batch = batch_of(&runs);
        let mut message = Vec::new();
        batch.encode(&mut message);
        prop_assert!(message.len() <= batch.bytes);
        let mut again = TokenBatch::default();
        again.decode_into(&message).unwrap();
        prop_assert_eq!(again.engine(), batch.engine());
        prop_assert_eq!(bits(&again), bits(&batch));
        prop_assert_eq!(again.ends(), batch.ends());
        prop_assert_eq!(again.progress(), batch.progress());
        prop_assert_eq!(again.unknown(), batch.unknown());
        for cut in 0..message.len() {
            prop_assert!(again.decode_into(&message[..cut]).is_err());
            prop_assert!(again.is_empty() && again.tokens.is_empty());
        }
        message.push(0);
        prop_assert!(again.decode_into(&message).is_err());
    }

    #[test]
    fn any_bytes_are_a_batch_or_an_error(runs in runs(), at: prop::sample::Index, byte: u8) {
        let mut message = Vec::new();
        batch_of(&runs).encode(&mut message);
        let at = at.index(message.len());
        message[at] = byte;
        let mut again = TokenBatch::default();
        if again.decode_into(&message).is_ok() {
            prop_assert!(again.tokens.len() <= message.len());
        }
    }
}

#[test]
fn tokens_beyond_the_room_are_left_out() {
    let mut batch = TokenBatch::new(InstanceId(1));
    let key = RunKey {
        handle: u64::MAX,
        attempt: u32::MAX,
        choice: 0,
        first: 0,
    };
    let token = Token {
        id: u32::MAX,
        logprob: -1.0,
    };
    let top = TopLogprob {
        id: u32::MAX,
        logprob: -1.0,
    };
    let most = batch.tokens_left(2);
    let too_many = batch.push_run(key, &vec![token; most + 1], &vec![top; 2 * (most + 1)]);
    assert_eq!(
        too_many,
        Err(MessageError::TooMany("bytes", MESSAGE_BYTES_MAX))
    );
    assert!(batch.is_empty());
    batch
        .push_run(key, &vec![token; most], &vec![top; 2 * most])
        .unwrap();
    assert_eq!(batch.tokens_left(0), 0);
    let mut message = Vec::new();
    batch.encode(&mut message);
    assert!(message.len() <= MESSAGE_BYTES_MAX);
    assert_eq!(TokenBatch::default().decode_into(&message), Ok(()));
}

#[test]
fn uneven_alternatives_are_rejected() {
    let mut batch = TokenBatch::new(InstanceId(1));
    let key = RunKey {
        handle: 1,
        attempt: 1,
        choice: 0,
        first: 0,
    };
    let (id, logprob) = (1, 0.0);
    let uneven = batch.push_run(
        key,
        &[Token { id, logprob }; 2],
        &[TopLogprob { id, logprob }],
    );
    assert_eq!(uneven, Err(MessageError::Malformed("alternatives")));
}

fn vectors() -> impl Strategy<Value = Vec<(u64, u32, Vec<f32>)>> {
    let entries = proptest::collection::vec(any::<u32>().prop_map(f32::from_bits), 1..9);
    proptest::collection::vec((any::<u64>(), any::<u32>(), entries), 1..5)
}

fn with_vectors(mut batch: TokenBatch, vectors: &[(u64, u32, Vec<f32>)]) -> TokenBatch {
    for &(handle, attempt, ref vector) in vectors {
        let attempt = Attempt { handle, attempt };
        batch.push_vector(attempt, vector).unwrap();
    }
    batch
}

fn vector_bits(batch: &TokenBatch) -> Vec<(u64, u32, Vec<u32>)> {
    let bits = |vector: &[f32]| vector.iter().map(|entry| entry.to_bits()).collect();
    let vectors = batch.vectors();
    vectors
        .map(|(name, vector)| (name.handle, name.attempt, bits(vector)))
        .collect()
}

proptest! {
    #[test]
    fn vectors_are_read_back_bit_for_bit_and_no_prefix_is_accepted(
        runs in runs(),
        vectors in vectors(),
        engine: u64,
    ) {
        let batch = with_vectors(batch_of(&runs), &vectors);
        let mut message = Vec::new();
        batch.encode(&mut message);
        prop_assert!(message.len() <= batch.bytes);
        let mut again = TokenBatch::new(InstanceId(engine));
        again.decode_into(&message).unwrap();
        prop_assert_eq!(vector_bits(&again), vector_bits(&batch));
        prop_assert_eq!(bits(&again), bits(&batch));
        for cut in 0..message.len() {
            prop_assert!(again.decode_into(&message[..cut]).is_err());
            prop_assert!(again.is_empty());
        }
        for other in [1, 3] {
            message[0] = other;
            prop_assert_eq!(again.decode_into(&message), Err(MessageError::Version(other)));
        }
    }

    #[test]
    fn any_bytes_with_vectors_are_a_batch_or_an_error(
        vectors in vectors(),
        at: prop::sample::Index,
        byte: u8,
    ) {
        let mut message = Vec::new();
        with_vectors(TokenBatch::new(InstanceId(1)), &vectors).encode(&mut message);
        let at = at.index(message.len());
        message[at] = byte;
        let mut again = TokenBatch::default();
        if again.decode_into(&message).is_ok() {
            let entries: usize = again.vectors().map(|(_, vector)| vector.len()).sum();
            prop_assert!(entries * 4 <= message.len());
        }
    }
}

#[test]
fn vectors_beyond_their_bounds_are_neither_written_nor_read() {
    let name = Attempt {
        handle: 1,
        attempt: 1,
    };
    let mut batch = TokenBatch::new(InstanceId(1));
    let empty = batch.push_vector(name, &[]);
    assert_eq!(empty, Err(MessageError::Malformed("vector")));
    let long = vec![1.0; VECTOR_ENTRIES_MAX + 1];
    let too_many = MessageError::TooMany("entries of a vector", VECTOR_ENTRIES_MAX);
    assert_eq!(batch.push_vector(name, &long), Err(too_many));
    for _ in 0..3 {
        batch
            .push_vector(name, &long[..VECTOR_ENTRIES_MAX])
            .unwrap();
    }
    let full = batch.push_vector(name, &long[..VECTOR_ENTRIES_MAX]);
    let no_room = MessageError::TooMany("bytes", MESSAGE_BYTES_MAX);
    assert_eq!(full, Err(no_room));
    let mut message = Vec::new();
    batch.encode(&mut message);
    assert!(message.len() <= MESSAGE_BYTES_MAX);
    let mut again = TokenBatch::default();
    assert_eq!(again.decode_into(&message), Ok(()));
    assert_eq!(again.vectors().count(), 3);
    // One entry more than the bound.
    let mut hostile = vec![2, 1, 0, 0, 0, 0, 1, 1, 1];
    push_varint(&mut hostile, VECTOR_ENTRIES_MAX as u64 + 1);
    hostile.resize(hostile.len() + 4 * (VECTOR_ENTRIES_MAX + 1), 0);
    let malformed = Err(MessageError::Malformed("tokens"));
    assert_eq!(again.decode_into(&hostile), malformed);
    let without = [2, 1, 0, 0, 0, 0];
    assert_eq!(
        again.decode_into(&without),
        malformed,
        "no number of vectors"
    );
}
