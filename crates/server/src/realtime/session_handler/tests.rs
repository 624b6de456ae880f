//! Tests of multiplexed streams with hand-fed token logs.

use super::MultiplexedStreams;
use crate::response::stream_body::tests::hand_fed::{HandFedBody, HandFedWriter, meta, runtime};
use bytes::Bytes;
use generate::output::position::Position;
use generate::request::StreamOptions;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use stream::{PoolLimits, SegmentPool};
use testing::heap::thread_allocations as allocations;
use testing::small_vocabulary::WORD;
use wire::cursor::EventIds;
use wire::framing::Framing;
use wire::protocol::{Encoding, FollowState};
use wire::realtime_encoder::RealtimeEncoder;

fn next(streams: &mut MultiplexedStreams) -> Poll<Bytes> {
    streams.poll_next(&mut Context::from_waker(Waker::noop()))
}

/// Law: after warm-up, neither the output pipeline nor the messages allocate per token, with several streams in turn.
#[test]
fn tokens_cost_no_allocation() {
    const STREAMS: usize = 3;
    const WARM: usize = 300;
    const TOKENS: usize = 1000;
    let runtime = runtime();
    let _inside = runtime.enter();
    for top_n in [0, 5] {
        let limits = PoolLimits {
            segments_max: 1 << 10,
        };
        let pools = (SegmentPool::new(limits), SegmentPool::new(limits));
        let mut spent = 0;
        // The first streams warm the segment pools, as in a running server.
        for _ in 0..2 {
            let mut streams = MultiplexedStreams::default();
            let mut writers: Vec<HandFedWriter> = Vec::new();
            for _ in 0..STREAMS {
                let meta = meta(1, &["STOP"], top_n, &StreamOptions::default());
                let pools = (&pools.0, &pools.1);
                let fed = HandFedBody::encoded(pools, WARM + TOKENS, meta, |source| Encoding {
                    encoder: Box::new(RealtimeEncoder::new(source)),
                    framing: Framing::WebSocket,
                    header: None,
                    follows: FollowState::Always,
                });
                let ids = EventIds::new(fed.record.id(), vec![Position::default()]);
                streams.push(Arc::clone(&fed.record), fed.body.with_ids(ids));
                writers.push(fed.writer);
            }
            let (mut before, mut messages) = (0, 0);
            for i in 0..WARM + TOKENS {
                if i == WARM {
                    (before, messages) = (allocations(), 0);
                }
                let id = [WORD, WORD + 1, WORD + 2, 97, WORD + 4][i % 5];
                writers.iter_mut().for_each(|writer| writer.append(id));
                while let Poll::Ready(message) = next(&mut streams) {
                    messages += 1;
                    assert!(message.starts_with(b"{\"type\":"), "{message:?}");
                }
            }
            assert!(before > 0, "the counter counts: making a stream allocates");
            // A possible beginning of a stop string is withheld, and emitted with later text.
            assert!(messages > TOKENS, "{messages} messages");
            spent = allocations() - before;
        }
        assert_eq!(spent, 0, "{top_n} alternatives: for {TOKENS} tokens each");
    }
}
