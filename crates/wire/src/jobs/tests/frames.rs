//! Frames of a job.

use super::driver::{JobDriver, usage};
use super::frame_order::{Frame, FrameOrder};
use crate::encoder::{Collected, Encoder};
use crate::shared::error_response::status_code;
use crate::shared::job_outcome::{self, JobError, JobOutcome};
use generate::error::{ApiError, ErrorKind};
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
const ENDS: [End; 22] = [
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
    End::Failed(FailCode::Device),
    End::Failed(FailCode::Panic),
    End::Failed(FailCode::Shutdown),
    End::Failed(FailCode::Constraint),
    End::Failed(FailCode::ModelChanged),
    End::Failed(FailCode::CrashedEngines),
    End::Failed(FailCode::NoEngine),
    End::Failed(FailCode::Upstream(1)),
    End::Lost,
];

#[test]
fn every_end_has_exactly_one_last_event() {
    for end in ENDS {
        for tokens in [0, 3] {
            let mut driver = JobDriver::new(Duration::ZERO);
            driver.queued(2);
            driver.open();
            (0..tokens).for_each(|_| driver.delta("a", 1));
            driver.end(end);
            assert_eq!(
                FrameOrder::of(&driver.frames()),
                FrameOrder::Over,
                "{end:?}: {}",
                driver.output()
            );
        }
    }
}

#[test]
fn every_end_has_a_stop_reason_or_an_error() {
    let code = |end| match job_outcome::job_outcome(end) {
        JobOutcome::End { reason, .. } => (reason, None),
        JobOutcome::Error(JobError {
            code, retriable, ..
        }) => (code, Some(retriable)),
    };
    let want: [_; ENDS.len()] = [
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
        ("INFERENCE_FAILED", Some(true)),
        ("INTERNAL", Some(true)),
        ("WORKER_UNHEALTHY", Some(true)),
        ("INVALID_REQUEST", Some(false)),
        ("INFERENCE_FAILED", Some(true)),
        ("INFERENCE_FAILED", Some(false)),
        ("WORKER_UNHEALTHY", Some(true)),
        ("UPSTREAM_FAILED", Some(true)),
        ("INTERNAL", Some(true)),
    ];
    for (end, want) in ENDS.into_iter().zip(want) {
        assert_eq!(code(end), want, "{end:?}");
    }
}

#[test]
fn end_before_the_first_byte_has_an_http_status() {
    let status = |end| status_code(job_outcome::end_error(end).kind).as_u16();
    let rows = [
        (End::Cancelled, 499),
        (End::Deadline, 504),
        (End::TimedOut(Clock::Queue), 503),
        (End::TimedOut(Clock::Total), 504),
        (End::Failed(FailCode::Inference), 500),
        (End::Failed(FailCode::Shutdown), 503),
        (End::Failed(FailCode::Constraint), 400),
        (End::Failed(FailCode::ModelChanged), 500),
        (End::Failed(FailCode::CrashedEngines), 500),
        (End::Failed(FailCode::NoEngine), 503),
        (End::Failed(FailCode::Upstream(1)), 502),
        (End::Lost, 500),
    ];
    for (end, want) in rows {
        assert_eq!(status(end), want, "{end:?}");
        let again = status(end) == 503;
        assert_eq!(
            job_outcome::end_error(end).retry_after.is_some(),
            again,
            "{end:?}"
        );
    }
}

#[test]
fn frames_of_a_job_equal_the_golden_bytes() {
    let mut driver = JobDriver::new(NEVER);
    driver.queued(3);
    driver.open();
    driver.delta("he\n", 1);
    driver.delta("llo", 2);
    driver.delta("\u{1F600}", 0);
    driver.end(End::Stop(Stop::StopString(1)));
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
    assert_eq!(driver.output(), want);
}

#[test]
fn frames_of_failed_and_rejected_jobs_equal_the_golden_bytes() {
    let mut driver = JobDriver::new(NEVER);
    driver.open();
    driver.delta("a", 1);
    driver.end(End::TimedOut(Clock::Idle));
    assert!(
        driver.output().ends_with(concat!(
            "data: {\"type\":\"error\",\"code\":\"TIMEOUT\",",
            "\"message\":\"no further token in time (idle)\",\"retriable\":false}\n\n",
            "data: [DONE]\n\n",
        )),
        "{}",
        driver.output()
    );
    let mut driver = JobDriver::new(NEVER);
    driver.queued(1);
    let full = ApiError::capacity("overloaded", "too many", Duration::from_secs(1));
    driver.reject(&full);
    let want = concat!(
        "data: {\"type\":\"queued\",\"position\":1}\n\n",
        "data: {\"type\":\"error\",\"code\":\"QUEUE_FULL\",\"message\":\"too many\",\"retriable\":true}\n\n",
        "data: [DONE]\n\n",
    );
    assert_eq!(driver.output(), want);
    assert_eq!(FrameOrder::of(&driver.frames()), FrameOrder::Over);
}

#[test]
fn job_cancelled_before_its_start_has_an_end() {
    let output = |steps: fn(&mut JobDriver)| {
        let mut driver = JobDriver::new(NEVER);
        driver.queued(1);
        steps(&mut driver);
        assert_eq!(FrameOrder::of(&driver.frames()), FrameOrder::Over);
        driver.output()
    };
    let in_the_queue = output(|driver| {
        let cancelled = ApiError::caller(ErrorKind::Conflict, "cancelled", "words");
        driver.reject(&cancelled);
    });
    let in_the_engine = output(|driver| {
        driver.open();
        driver.fail(End::Cancelled, Usage::default());
    });
    assert_eq!(in_the_queue, in_the_engine);
    let end = "data: {\"type\":\"end\",\"tokens_out\":0,\"decode_time_ms\":0,\"stop_reason\":\"CANCELLED\"}\n\n";
    assert!(in_the_queue.contains(end), "{in_the_queue}");
}

#[test]
fn metrics_are_sent_between_tokens() {
    let mut driver = JobDriver::new(Duration::ZERO);
    driver.open();
    driver.delta("a", 1);
    driver.delta("b", 1);
    driver.end(End::Length);
    let events: Vec<_> = driver
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
fn ended_job_has_no_metrics_between_tokens() {
    let mut driver = JobDriver::new(Duration::ZERO);
    driver.open();
    driver.ended = true;
    driver.delta("a", 1);
    driver.end(End::Length);
    assert!(!driver.output().contains("metrics"), "{}", driver.output());
}

#[test]
fn non_streaming_response_is_one_object() {
    let mut driver = JobDriver::new(NEVER);
    let answer = CollectedAnswer {
        parts: vec![AnswerPart::Text("hi\"".to_owned())],
        end: Some(End::Length),
        ..CollectedAnswer::default()
    };
    let collected = Collected {
        answers: &[answer],
        tokenizer: &tokenizer(),
        usage: usage(2),
    };
    driver.job.encode_collected(collected, &mut driver.out);
    let output: Value = serde_json::from_str(&driver.output()).unwrap();
    let want = json!({"job_id": "job-1", "model": "m", "started_at": "T", "text": "hi\"", "tokens_out": 2,
        "decode_time_ms": 40, "stop_reason": "MAX_TOKENS"});
    assert_eq!(output, want);
}

#[test]
fn resumed_client_gets_no_second_started() {
    let mut driver = JobDriver::new(NEVER);
    let positions = &[Position::whole(1)];
    driver.job.replay_event(&Event::Resumed { positions });
    driver.tokens = 2;
    driver.delta("c", 1);
    assert_eq!(
        driver.output(),
        "data: {\"type\":\"token\",\"t\":\"c\",\"i\":2}\n\n"
    );
}

#[test]
fn token_of_several_choices_names_its_choice() {
    let mut driver = JobDriver::new(NEVER);
    driver.open_choices(2);
    driver.delta("c", 1);
    assert!(
        driver
            .output()
            .ends_with("\"t\":\"c\",\"i\":0,\"choice\":0}\n\n"),
        "{}",
        driver.output()
    );
}

#[test]
fn token_and_metrics_allocate_nothing() {
    let mut driver = JobDriver::new(Duration::ZERO);
    driver.open();
    driver.delta("the first says that it started", 1);
    driver.out.reserve(1 << 10);
    let before = allocations();
    assert!(before > 0, "the counter counts");
    for _ in 0..100 {
        driver.out.clear();
        driver.delta("a \"quoted\" word", 3);
    }
    assert_eq!(allocations() - before, 0);
    assert!(driver.output().contains("metrics"), "{}", driver.output());
}
