//! Whatever is done with it in whatever order, its sums are right and its bounds hold.

use super::*;
use crate::streams::{StreamFeed, StreamLimits, StreamRegistry, StreamTerms};
use generate::request::StreamOptions;
use generate::stream_meta::StreamMeta;
use proptest::prelude::*;
use serde_json::{Map, json};
use std::time::Duration;
use wire::framing::Framing;
use wire::protocol::Protocol;

const LIMITS: ResponseLimits = ResponseLimits {
    stored_max: 6,
    stored_bytes: 9000,
};

fn meta(idents: &IdGenerator) -> StreamMeta {
    StreamMeta {
        id: StreamId::from_random(idents.next_random()),
        response_id: String::new(),
        created_unix_s: 0,
        arrived: wire::clock::now(),
        model: String::new(),
        stream_options: StreamOptions::default(),
        prompts: 1,
        choices: 1,
        stops: Vec::new(),
        logprobs: false,
        top_n: 0,
    }
}

fn terms(owner: u64) -> StreamTerms {
    StreamTerms {
        owner: Owner(owner),
        protocol: Protocol::Responses,
        framing: Framing::Sse,
        reasoning_field: wire::openai::chat_encoder::ReasoningField::default(),
        resumable: false,
        detachable: false,
        explicit_acks: false,
        credit_window: 0,
        detached_tokens: 0,
    }
}

/// A record of a stream that waits, whose question has so many bytes.
fn record(
    streams: &StreamRegistry,
    idents: &IdGenerator,
    owner: u64,
    bytes: usize,
) -> Arc<ResponseRecord> {
    let registered = streams.open(meta(idents), terms(owner), wire::clock::now());
    let registration = registered.expect("room");
    let item: Map<_, _> = [("text".to_owned(), json!("x".repeat(bytes)))]
        .into_iter()
        .collect();
    let note = StoredRequest {
        items: vec![item],
        previous: None,
    };
    Arc::new(ResponseRecord::new(registration.payload(), note, || {
        idents.prefixed_id("")
    }))
}

proptest! {
    #[test]
    fn stored_sums_are_exact_and_bounds_hold(
        steps in prop::collection::vec((0u8..5, 0u64..3, 0usize..2000), 1..60),
    ) {
        let streams = StreamRegistry::new(StreamLimits::default(), Duration::from_secs(1), StreamFeed::new());
        let idents = IdGenerator::new();
        let mut kept = StoredResponses::default();
        let (mut running, mut ended) = (Vec::new(), Vec::new());
        for (step, owner, bytes) in steps {
            match step {
                0 | 1 => {
                    let record = record(&streams, &idents, owner, bytes);
                    kept.insert(Arc::clone(&record));
                    if kept.evict_to_fit(&LIMITS) {
                        running.push(record.id);
                    } else {
                        kept.remove(record.id);
                        let all_run = kept.records.values().all(|slot| slot.used.is_none());
                        prop_assert!(all_run, "there was one to make room");
                    }
                }
                2 => if let Some(id) = running.pop() {
                    kept.mark_ended(id, bytes);
                    kept.evict_to_fit(&LIMITS);
                    ended.push(id);
                },
                3 => if let Some(id) = ended.first() {
                    kept.mark_used(*id);
                },
                _ => if let Some(id) = ended.pop() {
                    kept.remove(id);
                },
            }
            kept.check_sums();
            let over = kept.records.len() > LIMITS.stored_max || kept.bytes > LIMITS.stored_bytes;
            let evictable = kept.records.values().any(|slot| slot.used.is_some());
            prop_assert!(!over || !evictable, "what can go is kept within bounds");
        }
    }
}
