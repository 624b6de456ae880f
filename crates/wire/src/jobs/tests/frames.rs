//! Frames of a job.

use super::super::error_response::JobError;
use super::super::outcome::{self, JobOutcome};
use super::driver::{Hand, usage};
use super::frame_order::{Frame, FrameOrder};
use crate::encoder::Encoder;
use crate::status::status_code;
use generate::error::ApiError;
use generate::error::ErrorKind;
use generate::output::collected::{AnswerPart, CollectedAnswer};
use generate::output::event::{Event, Usage};
use generate::output::position::Position;
use serde_json::{Value, json};
use std::time::Duration;
use stream::{Clock, End, FailCode, Stop};
use testing::heap::thread_allocations as allocations;
use testing::small_vocabulary::tokenizer;

const NEVER: Duration = Duration::MAX;

/// Every end of a stream.
const ENDS: [End; 17] = [
    End::Stop(Stop::Eos),
    End::Stop(Stop::StopString(1)),
    End::Stop(Stop::ToolCalls),
    End::Length,
    End::Cancelled,
    End::Deadline,
    End::TimedOut(Clock::Queue),
    End::TimedOut(Clock::FirstToken),
    End::TimedOut(Clock::Idle),
    End::TimedOut(Clock::Total),
    End::TimedOut(Clock::Reader),
    End::Failed(FailCode::Inference),
    End::Failed(FailCode::NotFinite),
    End::Failed(FailCode::Panic),
    End::Failed(FailCode::Shutdown),
    End::Failed(FailCode::Constraint),
    End::Lost,
];

#[test]
fn every_ending_is_told_once() {
    for end in ENDS {
        for tokens in [0, 3] {
            let mut hand = Hand::new(Duration::ZERO);
            hand.queued(2);
            hand.open();
            (0..tokens).for_each(|_| hand.delta("a", 1));
            hand.end(end);
            assert_eq!(
                FrameOrder::of(&hand.frames()),
                FrameOrder::Over,
                "{end:?}: {}",
                hand.told()
            );
        }
    }
}

#[test]
fn every_ending_has_its_words() {
    let code = |end| match outcome::job_outcome(end) {
        JobOutcome::End { reason, .. } => (reason, None),
        JobOutcome::Error(JobError {
            code, retriable, ..
        }) => (code, Some(retriable)),
    };
    let want = [
        ("EOS", None),
        ("STOP_SEQUENCE", None),
        ("EOS", None),
        ("MAX_TOKENS", None),
        ("CANCELLED", None),
        ("TIMEOUT", Some(false)),
        ("TIMEOUT", Some(true)),
        ("TIMEOUT", Some(false)),
        ("TIMEOUT", Some(false)),
        ("TIMEOUT", Some(false)),
        ("TIMEOUT", Some(false)),
        ("INFERENCE_FAILED", Some(true)),
        ("INFERENCE_FAILED", Some(false)),
        ("INTERNAL", Some(true)),
        ("WORKER_UNHEALTHY", Some(true)),
        ("INVALID_REQUEST", Some(false)),
        ("INTERNAL", Some(true)),
    ];
    for (end, want) in ENDS.into_iter().zip(want) {
        assert_eq!(code(end), want, "{end:?}");
    }
}

#[test]
fn endings_before_the_first_byte_have_a_status() {
    let status = |end| status_code(outcome::end_error(end).kind).as_u16();
    let rows = [
        (End::Cancelled, 499),
        (End::Deadline, 504),
        (End::TimedOut(Clock::Queue), 503),
        (End::TimedOut(Clock::Total), 504),
        (End::Failed(FailCode::Inference), 500),
        (End::Failed(FailCode::Shutdown), 503),
        (End::Failed(FailCode::Constraint), 400),
        (End::Lost, 500),
    ];
    for (end, want) in rows {
        assert_eq!(status(end), want, "{end:?}");
        let again = status(end) == 503;
        assert_eq!(
            outcome::end_error(end).retry_after.is_some(),
            again,
            "{end:?}"
        );
    }
}

#[test]
fn a_job_byte_for_byte() {
    let mut hand = Hand::new(NEVER);
    hand.queued(3);
    hand.open();
    hand.delta("he\n", 1);
    hand.delta("llo", 2);
    hand.delta("\u{1F600}", 0);
    hand.end(End::Stop(Stop::StopString(1)));
    let want = concat!(
        "data: {\"type\":\"queued\",\"position\":3}\n\n",
        "data: {\"type\":\"started\",\"job_id\":\"job-1\",\"model\":\"m\",\"started_at\":\"T\"}\n\n",
        "data: {\"type\":\"token\",\"t\":\"he\\n\",\"i\":0}\n\n",
        "data: {\"type\":\"token\",\"t\":\"llo\",\"i\":1,\"n\":2}\n\n",
        "data: {\"type\":\"token\",\"t\":\"\u{1F600}\",\"i\":3,\"n\":0}\n\n",
        "data: {\"type\":\"end\",\"tokens_out\":3,\"decode_time_ms\":40,",
        "\"stop_reason\":\"STOP_SEQUENCE\",\"stop_sequence_matched\":\"STOP\\\"\"}\n\n",
        "data: [DONE]\n\n",
    );
    assert_eq!(hand.told(), want);
}

#[test]
fn what_breaks_and_what_is_refused_byte_for_byte() {
    let mut hand = Hand::new(NEVER);
    hand.open();
    hand.delta("a", 1);
    hand.end(End::TimedOut(Clock::Idle));
    assert!(
        hand.told().ends_with(concat!(
            "data: {\"type\":\"error\",\"code\":\"TIMEOUT\",",
            "\"message\":\"no further token in time (idle)\",\"retriable\":false}\n\n",
            "data: [DONE]\n\n",
        )),
        "{}",
        hand.told()
    );
    let mut hand = Hand::new(NEVER);
    hand.queued(1);
    let full = ApiError::capacity("overloaded", "too many", Duration::from_secs(1));
    hand.refuse(&full);
    let want = concat!(
        "data: {\"type\":\"queued\",\"position\":1}\n\n",
        "data: {\"type\":\"error\",\"code\":\"QUEUE_FULL\",\"message\":\"too many\",\"retriable\":true}\n\n",
        "data: [DONE]\n\n",
    );
    assert_eq!(hand.told(), want);
    assert_eq!(FrameOrder::of(&hand.frames()), FrameOrder::Over);
}

#[test]
fn cancelled_before_it_began_is_an_end_too() {
    let told = |tell: fn(&mut Hand)| {
        let mut hand = Hand::new(NEVER);
        hand.queued(1);
        tell(&mut hand);
        assert_eq!(FrameOrder::of(&hand.frames()), FrameOrder::Over);
        hand.told()
    };
    let in_the_queue = told(|hand| {
        let cancelled = ApiError::caller(ErrorKind::Conflict, "cancelled", "words");
        hand.refuse(&cancelled);
    });
    let in_the_engine = told(|hand| {
        hand.open();
        hand.ended_so(End::Cancelled, Usage::default());
    });
    assert_eq!(in_the_queue, in_the_engine);
    let end = "data: {\"type\":\"end\",\"tokens_out\":0,\"decode_time_ms\":0,\"stop_reason\":\"CANCELLED\"}\n\n";
    assert!(in_the_queue.contains(end), "{in_the_queue}");
}

#[test]
fn figures_come_while_tokens_do() {
    let mut hand = Hand::new(Duration::ZERO);
    hand.open();
    hand.delta("a", 1);
    hand.delta("b", 1);
    hand.end(End::Length);
    let events: Vec<_> = hand
        .frames()
        .into_iter()
        .filter_map(|frame| match frame {
            Frame::Event(event) if event["type"] == "metrics" => Some(event),
            _ => None,
        })
        .collect();
    assert_eq!(events.len(), 2);
    for (event, tokens) in events.iter().zip(1..) {
        assert_eq!(event["tokens_out"], tokens);
        assert!(
            event["decode_time_ms"].is_u64() && event["tokens_per_sec"].is_f64(),
            "{event}"
        );
    }
}

#[test]
fn who_reads_what_is_over_gets_no_figures_in_between() {
    let mut hand = Hand::new(Duration::ZERO);
    hand.open();
    hand.ended = true;
    hand.delta("a", 1);
    hand.end(End::Length);
    assert!(!hand.told().contains("metrics"), "{}", hand.told());
}

#[test]
fn the_whole_is_one_object() {
    let mut hand = Hand::new(NEVER);
    let answer = CollectedAnswer {
        pieces: vec![AnswerPart::Text("hi\"".to_owned())],
        end: Some(End::Length),
        ..CollectedAnswer::default()
    };
    hand.job
        .encode_collected(&[answer], &tokenizer(), usage(2), &mut hand.out);
    let told: Value = serde_json::from_str(&hand.told()).unwrap();
    let want = json!({"job_id": "job-1", "model": "m", "started_at": "T", "text": "hi\"", "tokens_out": 2,
        "decode_time_ms": 40, "stop_reason": "MAX_TOKENS"});
    assert_eq!(told, want);
}

#[test]
fn who_comes_back_is_not_told_of_the_start_again() {
    let mut hand = Hand::new(NEVER);
    let reached = &[Position::whole(1)];
    hand.job.replay_event(&Event::Resumed { reached });
    hand.tokens = 2;
    hand.delta("c", 1);
    assert_eq!(
        hand.told(),
        "data: {\"type\":\"token\",\"t\":\"c\",\"i\":2}\n\n"
    );
}

#[test]
fn several_answers_are_told_apart() {
    let mut hand = Hand::new(NEVER);
    hand.open_choices(2);
    hand.delta("c", 1);
    assert!(
        hand.told()
            .ends_with("\"t\":\"c\",\"i\":0,\"choice\":0}\n\n"),
        "{}",
        hand.told()
    );
}

#[test]
fn tokens_and_figures_cost_no_allocation() {
    let mut hand = Hand::new(Duration::ZERO);
    hand.open();
    hand.delta("the first says that it started", 1);
    hand.out.reserve(1 << 10);
    let before = allocations();
    assert!(before > 0, "the counter counts");
    for _ in 0..100 {
        hand.out.clear();
        hand.delta("a \"quoted\" word", 3);
    }
    assert_eq!(allocations() - before, 0);
    assert!(hand.told().contains("metrics"), "{}", hand.told());
}
