//! The account of a stream, with a clock of the test's own where a time matters.

use super::{GenerationMetrics, MeteredProtocol, MeteredRequest, ResponseOutcome};
use crate::metrics::counters::Counter;
use crate::metrics::histogram::Latency;
use generate::output::generation_reader::Turn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use stream::{End, FailCode};
use wire::protocol::Protocol;

const MS: Duration = Duration::from_millis(1);

fn opened(stream: bool) -> MeteredRequest {
    MeteredRequest {
        protocol: MeteredProtocol::Wire(Protocol::Chat),
        stream,
        attached: false,
        arrived: wire::clock::now(),
    }
}

/// Counts of the protocol: complete, failed, left.
fn outcomes(metrics: &GenerationMetrics) -> [u64; 3] {
    metrics
        .answers
        .value_of(Protocol::Chat.name())
        .each_ref()
        .map(Counter::get)
}

/// First tokens, further frames with tokens, stalls.
fn samples(metrics: &GenerationMetrics) -> [u64; 3] {
    [
        &metrics.first_token,
        &metrics.next_token,
        &metrics.reader_stall,
    ]
    .map(|latency| latency.distribution().sample_count())
}

#[test]
fn frame_counts_when_taken() {
    let metrics = Arc::new(GenerationMetrics::default());
    let mut meter = metrics.open_meter(opened(true));
    assert_eq!(metrics.answers_open.get(), 1);
    meter.frame_taken(true);
    meter.frame_emitted(Poll::Pending, 0);
    meter.frame_taken(true);
    assert_eq!(samples(&metrics)[..2], [0, 0], "nothing was told");
    meter.frame_emitted(Poll::Ready(Turn::Open), 3);
    assert_eq!(samples(&metrics)[..2], [0, 0], "told, not taken");
    meter.frame_taken(true);
    assert_eq!(samples(&metrics)[..2], [1, 0]);
    meter.frame_taken(true);
    meter.frame_emitted(Poll::Ready(Turn::Open), 3);
    meter.frame_taken(true);
    assert_eq!(samples(&metrics)[..2], [1, 0], "a frame without tokens");
    meter.frame_emitted(Poll::Ready(Turn::Open), 4);
    meter.frame_taken(true);
    assert_eq!(samples(&metrics)[..2], [1, 1]);
    meter.frame_emitted(Poll::Ready(Turn::Ended), 5);
    drop(meter);
    assert_eq!(samples(&metrics)[..2], [1, 2], "the last frame counts");
    assert_eq!(outcomes(&metrics), [1, 0, 0]);
    assert_eq!(metrics.answers_open.get(), 0);
    assert_eq!(metrics.answer_time.distribution().sample_count(), 1);
}

#[test]
fn times_run_from_arrival_and_between_frames() {
    let metrics = Arc::new(GenerationMetrics::default());
    let start: Instant = wire::clock::now();
    let mut meter = metrics.open_meter(MeteredRequest {
        arrived: start,
        ..opened(true)
    });
    meter.told_tokens = 1;
    meter.taken_since(start + 90 * MS, start + 90 * MS);
    meter.told_tokens = 3;
    meter.taken_since(start + 100 * MS, start + 130 * MS);
    let read = |latency: &Latency| {
        (
            latency.distribution().sample_count(),
            latency.distribution().sum,
        )
    };
    assert_eq!(read(&metrics.first_token), (1, 0.09));
    assert_eq!(read(&metrics.next_token), (1, 0.04));
    assert_eq!(
        read(&metrics.reader_stall),
        (1, 0.03),
        "what took no time is no stall"
    );
}

#[test]
fn each_outcome_is_counted_once() {
    let failed = Turn::Broken(End::Failed(FailCode::Inference));
    for (last, want) in [
        (Some(Turn::Ended), [1, 0, 0]),
        (Some(failed), [0, 1, 0]),
        (Some(Turn::Open), [0, 0, 1]),
        (None, [0, 0, 1]),
    ] {
        let metrics = Arc::new(GenerationMetrics::default());
        let mut meter = metrics.open_meter(opened(true));
        if let Some(turn) = last {
            meter.frame_emitted(Poll::Ready(turn), 1);
        }
        drop(meter);
        assert_eq!(outcomes(&metrics), want, "{last:?}");
        let first = u64::from(want[ResponseOutcome::Left as usize] == 0);
        assert_eq!(samples(&metrics)[0], first, "what was not taken: {last:?}");
    }
}

#[test]
fn collected_response_has_an_end_and_no_token_times() {
    let metrics = Arc::new(GenerationMetrics::default());
    let mut meter = metrics.open_meter(opened(false));
    meter.frame_emitted(Poll::Ready(Turn::Open), 4);
    meter.frame_taken(true);
    meter.frame_emitted(Poll::Ready(Turn::Ended), 9);
    drop(meter);
    assert_eq!(samples(&metrics), [0, 0, 0]);
    assert_eq!(outcomes(&metrics), [1, 0, 0]);
}

#[test]
fn attached_reader_has_no_first_token_and_no_response_time() {
    let metrics = Arc::new(GenerationMetrics::default());
    let mut meter = metrics.open_meter(MeteredRequest {
        attached: true,
        ..opened(true)
    });
    assert_eq!(
        (metrics.attached_open.get(), metrics.answers_open.get()),
        (1, 0)
    );
    for tokens in [9, 10] {
        meter.frame_emitted(Poll::Ready(Turn::Open), tokens);
        meter.frame_taken(true);
    }
    meter.frame_emitted(Poll::Ready(Turn::Ended), 11);
    drop(meter);
    assert_eq!(samples(&metrics)[..2], [0, 2]);
    assert_eq!(outcomes(&metrics), [0, 0, 0]);
    let attached = metrics
        .attached
        .value_of(Protocol::Chat.name())
        .each_ref()
        .map(Counter::get);
    assert_eq!(attached, [1, 0, 0]);
    assert_eq!(metrics.answer_time.distribution().sample_count(), 0);
    assert_eq!(metrics.attached_open.get(), 0);
}
