//! Tests of the body with a hand-fed token log: bytes, keep-alives, credit, allocations.

pub(crate) mod hand_fed;

use super::StreamBody;
use engine::Token;
use gateway::streams::Subscriber;
use generate::output::choice_reader::LogReaders;
use generate::output::event::Event;
use generate::request::StreamOptions;
use hand_fed::*;
use http_body::Body;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use stream::{End, FailCode, PoolLimits, SegmentPool, Stop};
use testing::heap::thread_allocations as allocations;
use testing::small_vocabulary::WORD;
use wire::protocol::Protocol;

const HEAD: &str =
    r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":7,"model":"m","#;

#[test]
fn stream_byte_for_byte() {
    let runtime = runtime();
    let _inside = runtime.enter();
    let mut fed = HandFedBody::new(
        8,
        &[],
        0,
        &StreamOptions {
            include_usage: true,
            ..StreamOptions::default()
        },
    );
    let role = r#""choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null}"#;
    assert_eq!(fed.read(), format!("{HEAD}{role}\n\n"));
    fed.append(WORD);
    fed.append(WORD + 1);
    let merged = r#""choices":[{"index":0,"delta":{"content":"hello world"},"logprobs":null,"finish_reason":null}],"usage":null}"#;
    assert_eq!(fed.read(), format!("{HEAD}{merged}\n\n"));
    fed.append(WORD + 5);
    assert_eq!(fed.read(), "", "half a character is withheld");
    fed.append(0xac);
    let euro = r#""choices":[{"index":0,"delta":{"content":"€"},"logprobs":null,"finish_reason":null}],"usage":null}"#;
    assert_eq!(fed.read(), format!("{HEAD}{euro}\n\n"));
    fed.writer.tokens.finish(End::Stop(Stop::Eos));
    let text = read_rest(&mut fed.body);
    let finish = r#""choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null}"#;
    let usage = r#""choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}"#;
    assert_eq!(
        text,
        format!("{HEAD}{finish}\n\n{HEAD}{usage}\n\ndata: [DONE]\n\n")
    );
}

fn read_rest(body: &mut StreamBody) -> String {
    let mut text = String::new();
    loop {
        match Pin::new(&mut *body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(Ok(frame))) => {
                text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
            }
            Poll::Ready(None) => return text,
            Poll::Pending => panic!("the stream has ended and nothing more is said"),
        }
    }
}

#[test]
fn stream_that_fails_without_output_fails_before_its_head() {
    let runtime = runtime();
    let _inside = runtime.enter();
    let mut cx = Context::from_waker(Waker::noop());
    let options = StreamOptions::default();
    let mut fed = HandFedBody::new(8, &[], 0, &options);
    assert!(fed.body.poll_first_event(&mut cx).is_pending());
    fed.writer.tokens.finish(End::Failed(FailCode::NoEngine));
    let first = fed.body.poll_first_event(&mut cx);
    assert!(matches!(first, Poll::Ready(Err(error)) if error.code == "no_engine"));
    // What was written before the head is the beginning of the body.
    let bodies = [false, true].map(|waits| {
        let mut fed = HandFedBody::new(8, &[], 0, &options);
        let is_pending = !waits || fed.body.poll_first_event(&mut cx).is_pending();
        assert!(is_pending);
        fed.append(WORD);
        let first = waits.then(|| fed.body.poll_first_event(&mut cx));
        assert!(matches!(first, None | Some(Poll::Ready(Ok(())))));
        fed.writer.tokens.finish(End::Failed(FailCode::NoEngine));
        read_rest(&mut fed.body)
    });
    assert_eq!(
        bodies[0].replace("hello", ""),
        bodies[1].replace("hello", "")
    );
    assert!(bodies[1].contains("hello") && bodies[1].contains("no_engine"));
}

#[test]
fn failed_stream_has_an_error_and_no_done_marker() {
    let runtime = runtime();
    let _inside = runtime.enter();
    for (end, code) in [
        (End::Cancelled, "cancelled"),
        (End::Deadline, "timeout"),
        (End::Failed(FailCode::Inference), "inference_failed"),
        (End::Failed(FailCode::Device), "device_failed"),
        (End::Failed(FailCode::Shutdown), "shutting_down"),
        (End::Failed(FailCode::ModelChanged), "model_changed"),
        (End::Failed(FailCode::CrashedEngines), "crashed_engines"),
        (End::Failed(FailCode::NoEngine), "no_engine"),
        (End::Failed(FailCode::Upstream(1)), "upstream_failed"),
    ] {
        let mut fed = HandFedBody::new(
            8,
            &[],
            0,
            &StreamOptions {
                include_usage: true,
                ..StreamOptions::default()
            },
        );
        fed.append(WORD);
        fed.read();
        fed.writer.tokens.finish(end);
        let text = read_rest(&mut fed.body);
        let frames: Vec<&str> = text.split_terminator("\n\n").collect();
        assert_eq!(frames.len(), 2, "{text}");
        assert!(
            frames[0].contains(r#""choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1"#),
            "{text}"
        );
        let error: serde_json::Value =
            serde_json::from_str(frames[1].strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(error["error"]["code"], code);
    }
}

#[test]
fn dropped_writer_is_an_error() {
    let runtime = runtime();
    let _inside = runtime.enter();
    let mut fed = HandFedBody::new(8, &[], 0, &StreamOptions::default());
    fed.read();
    drop(fed.writer);
    let text = read_rest(&mut fed.body);
    assert!(
        text.contains(r#""code":"lost""#) && !text.contains("[DONE]"),
        "{text}"
    );
}

#[test]
fn idle_stream_has_keep_alive_comments() {
    let runtime = runtime();
    runtime.block_on(async {
        let mut fed = HandFedBody::new(8, &[], 0, &StreamOptions::default());
        fed.read();
        tokio::time::advance(KEEP_ALIVE - Duration::from_millis(2)).await;
        assert_eq!(fed.read(), "", "not yet");
        fed.append(WORD);
        assert!(fed.read().contains("hello"));
        tokio::time::advance(KEEP_ALIVE - Duration::from_millis(2)).await;
        assert_eq!(fed.read(), "", "the frame restarted the timer");
        tokio::time::advance(Duration::from_millis(4)).await;
        assert_eq!(fed.read(), ": ping\n\n");
        tokio::time::advance(KEEP_ALIVE + Duration::from_millis(2)).await;
        assert_eq!(fed.read(), ": ping\n\n", "and again");
    });
}

#[test]
fn credit_returns_when_the_next_frame_is_polled() {
    let runtime = runtime();
    let _inside = runtime.enter();
    let mut fed = HandFedBody::new(8, &["STOP"], 0, &StreamOptions::default());
    fed.read();
    fed.append(WORD);
    assert!(matches!(fed.poll_length(), Poll::Ready(Some(_))));
    assert_eq!(
        fed.writer.tokens.unaccepted(),
        1,
        "emitted, but the socket did not take the frame yet"
    );
    assert!(fed.poll_length().is_pending());
    assert_eq!(fed.writer.tokens.unaccepted(), 0);
    fed.append(WORD + 2);
    assert!(
        fed.poll_length().is_pending(),
        "a possible beginning of the stop string is withheld"
    );
    assert_eq!(fed.writer.tokens.unaccepted(), 0, "and costs no credit");
}

#[test]
fn credit_returns_frame_by_frame() {
    let runtime = runtime();
    let _inside = runtime.enter();
    let mut fed = HandFedBody::new(64, &[], 0, &StreamOptions::default());
    fed.read();
    for _ in 0..40 {
        fed.append(WORD);
    }
    let mut unaccepted = Vec::new();
    while let Poll::Ready(Some(_)) = fed.poll_length() {
        unaccepted.push(fed.writer.tokens.unaccepted());
    }
    assert_eq!(
        unaccepted,
        [40, 8],
        "32 tokens share a frame; the next request for one returns them"
    );
    assert_eq!(fed.writer.tokens.unaccepted(), 0);
}

#[test]
fn turn_cut_short_continues_with_the_next_choice() {
    let pool = SegmentPool::new(PoolLimits { segments_max: 8 });
    let (mut writers, mut readers) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let (mut tokens, reader) = stream::open(&pool, 64).unwrap();
        for _ in 0..40 {
            tokens
                .append(Token {
                    id: WORD,
                    logprob: 0.0,
                })
                .unwrap();
        }
        readers.push(LogReaders {
            tokens: reader,
            top: None,
        });
        writers.push(tokens);
    }
    let mut generation = generation(meta(3, &[], 0, &StreamOptions::default()), readers);
    let mut emitted = Vec::new();
    let mut emit = |event: Event<'_>| {
        let Event::Delta(delta) = event else {
            panic!("no choice has ended")
        };
        emitted.push(delta.origin.choice);
        emitted.len() == 2
    };
    for _ in 0..5 {
        let turn = generation.poll_turn(&mut Context::from_waker(Waker::noop()), &mut emit);
        assert!(turn.is_ready());
    }
    assert_eq!(
        emitted,
        [0, 1, 2, 0, 1, 2],
        "in turn, whether a turn was cut short or not"
    );
}

type StreamCase = (
    &'static str,
    &'static [&'static str],
    usize,
    (Protocol, bool),
);
const FEW: &[&str] = &["STOP"];
/// Label, stop strings, number of top log-probabilities; wire protocol, and whether the stream is resumable.
const STREAM_CASES: [StreamCase; 14] = [
    ("plain", &[], 0, (Protocol::Chat, false)),
    (
        "stops",
        &["STOP", "hello hello"],
        0,
        (Protocol::Chat, false),
    ),
    ("logprobs", FEW, 5, (Protocol::Chat, false)),
    ("resumable", FEW, 5, (Protocol::Chat, true)),
    ("completion", &[], 0, (Protocol::Completion, false)),
    ("resumable completion", FEW, 5, (Protocol::Completion, true)),
    ("message", &[], 0, (Protocol::Messages, false)),
    ("resumable message", FEW, 5, (Protocol::Messages, true)),
    ("response", &[], 0, (Protocol::Responses, false)),
    ("resumable response", FEW, 5, (Protocol::Responses, true)),
    ("lines", FEW, 5, (Protocol::OllamaChat, false)),
    ("resumable lines", &[], 0, (Protocol::OllamaGenerate, true)),
    ("job", &[], 0, (Protocol::Job, false)),
    ("resumable job", FEW, 5, (Protocol::Job, true)),
];

/// Law: after warm-up, neither the output pipeline nor the encoder allocates per token.
#[test]
fn tokens_cost_no_allocation() {
    const WARM: usize = 300;
    const TOKENS: usize = 2000;
    let runtime = runtime();
    let _inside = runtime.enter();
    for (label, stops, top_n, kind) in STREAM_CASES {
        let limits = PoolLimits {
            segments_max: 1 << 10,
        };
        let (pool, top_pool) = (SegmentPool::new(limits), SegmentPool::new(limits));
        let mut spent = 0;
        // The first stream warms the segment pools, as in a running server.
        for _ in 0..2 {
            let stream_options = StreamOptions {
                include_usage: true,
                continuous_usage: true,
                ..StreamOptions::default()
            };
            let mut fed = HandFedBody::in_pools(
                &pool,
                &top_pool,
                WARM + TOKENS,
                stops,
                top_n,
                &stream_options,
                kind,
            );
            let mut before = 0;
            for i in 0..WARM + TOKENS {
                if i == WARM {
                    before = allocations();
                }
                fed.append([WORD, WORD + 1, WORD + 2, 97, WORD + 4][i % 5]);
                if i % 3 == 0 {
                    while let Poll::Ready(Some(length)) = fed.poll_length() {
                        assert!(length > 0);
                    }
                }
            }
            assert!(before > 0, "the counter counts: making a stream allocates");
            spent = allocations() - before;
        }
        assert_eq!(spent, 0, "{label}: allocations for {TOKENS} tokens");
    }
}

/// The token limit of a detached stream does not apply while the client is attached and has not read yet: neither
/// while the request waits for admission, nor between the start of the generation and the first poll.
#[test]
fn client_that_has_not_read_yet_is_attached() {
    const WINDOW: u64 = 2;
    const ALONE: u64 = 50;
    let meta = meta(1, &[], 0, &StreamOptions::default());
    let mut terms = stream_terms();
    (terms.resumable, terms.credit_window) = (true, WINDOW);
    terms.detached_tokens = ALONE;
    let mut run = registered(meta, terms);
    let record = Arc::clone(run.record());
    let client = Subscriber::opening(&record);
    let pool = SegmentPool::new(PoolLimits { segments_max: 8 });
    let (mut tokens, reader) = stream::open(&pool, 8).unwrap();
    let readers = [LogReaders {
        tokens: reader,
        top: None,
    }];
    start(&mut run, &readers);
    for _ in 0..WINDOW {
        let token = Token {
            id: WORD,
            logprob: -0.5,
        };
        tokens.append(token).unwrap();
    }
    assert!(!record.is_stranded() && record.tokens_awaited() == Some(0));
    let other = Subscriber::joining(&record);
    drop(other);
    assert_eq!(readers[0].tokens.tap().unaccepted(), WINDOW);
    drop(client);
    assert_eq!(
        readers[0].tokens.tap().unaccepted(),
        0,
        "it continues detached"
    );
}
