//! What a job tells.

use super::super::ending::{self, Ending};
use super::super::frames::Job;
use super::story::{Frame, Story};
use crate::wire::dialect::Dialect;
use crate::wire::status::status_code;
use bytes::BytesMut;
use generate::error::{ApiError, ErrorKind};
use generate::output::collected::{Answer, AnswerPart};
use generate::output::event::{At, Delta, Event, Kind, Logprobs, Times, Usage};
use generate::output::position::Position;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::{Clock, End, FailCode, Stop};
use testing::heap::thread_allocations as allocations;
use testing::small_vocabulary::tokenizer;
use text::Tokenizer;

const NEVER: Duration = Duration::MAX;

/// Every ending there is.
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

#[expect(clippy::disallowed_methods, reason = "some instant")]
fn usage(tokens: u64) -> Usage {
    let at = Instant::now();
    Usage {
        completion_tokens: tokens,
        times: Times {
            started: Some(at),
            first_token: Some(at),
            ended: Some(at + Duration::from_millis(40)),
        },
        ..Usage::default()
    }
}

/// A job told by hand.
struct Hand {
    job: Job,
    out: BytesMut,
    tokens: u64,
    tokenizer: Arc<Tokenizer>,
    /// What is told is over.
    ended: bool,
}

impl Hand {
    fn new(metrics_each: Duration) -> Self {
        let stops = ["x".to_owned(), "STOP\"".to_owned()];
        let job = Job::new("job-1", "m", &stops).with_metrics_each(metrics_each);
        Self {
            job,
            out: BytesMut::new(),
            tokens: 0,
            tokenizer: tokenizer(),
            ended: false,
        }
    }

    fn open(&mut self) {
        self.job.open(1, Usage::default(), &mut self.out);
    }

    fn delta(&mut self, text: &str, tokens: u64) {
        let first = self.tokens;
        self.tokens += tokens;
        let mut usage = usage(self.tokens);
        usage.times.ended = self.ended.then_some(usage.times.ended).flatten();
        let at = At {
            choice: 0,
            logprobs: Logprobs {
                tokenizer: &self.tokenizer,
                entries: &[],
                top: &[],
                top_n: 0,
            },
            usage,
            reached: Position::whole(self.tokens),
            first,
            tokens,
        };
        let kind = Kind::Text;
        let delta = Delta { kind, text, at };
        self.job.before(usage, &mut self.out);
        self.job.event(&Event::Delta(delta), &mut self.out);
    }

    /// As a generation tells it: good endings as an event, bad ones as a break.
    fn end(&mut self, end: End) {
        let usage = usage(self.tokens);
        self.job.before(usage, &mut self.out);
        if matches!(end, End::Stop(_) | End::Length) {
            let reached = Position::whole(self.tokens + 2);
            self.job.event(
                &Event::End {
                    choice: 0,
                    end,
                    usage,
                    tokens: self.tokens,
                    reached,
                },
                &mut self.out,
            );
            self.job.close(usage, &mut self.out);
        } else {
            if self.tokens > 0 {
                self.job.usage_so_far(end, usage, &mut self.out);
            }
            self.ended_so(end, usage);
        }
    }

    fn ended_so(&mut self, end: End, usage: Usage) {
        self.job.fail(end, usage, &mut self.out);
        self.out.extend_from_slice(self.job.after_fail().as_bytes());
    }

    fn refuse(&mut self, error: &ApiError) {
        self.job.refuse(error, &mut self.out);
        self.out.extend_from_slice(self.job.after_fail().as_bytes());
    }

    /// What was told, times made the same each time.
    fn told(&self) -> String {
        let text = std::str::from_utf8(&self.out).unwrap();
        let (mut fixed, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("\"started_at\":\"") {
            let (time, after) = after.split_once('"').unwrap();
            assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
            fixed += before;
            fixed += "\"started_at\":\"T\"";
            rest = after;
        }
        fixed + rest
    }

    fn frames(&self) -> Vec<Frame> {
        let told = self.told();
        assert!(told.ends_with("\n\n"));
        told.split_terminator("\n\n").map(Frame::parse).collect()
    }
}

#[test]
fn every_ending_is_told_once() {
    for end in ENDS {
        for tokens in [0, 3] {
            let mut hand = Hand::new(Duration::ZERO);
            hand.job.queued(2, &mut hand.out);
            hand.open();
            (0..tokens).for_each(|_| hand.delta("a", 1));
            hand.end(end);
            assert_eq!(
                Story::of(&hand.frames()),
                Story::Over,
                "{end:?}: {}",
                hand.told()
            );
        }
    }
}

#[test]
fn every_ending_has_its_words() {
    let code = |end| match ending::spell(end) {
        Ending::End { reason, .. } => (reason, None),
        Ending::Error {
            code, retriable, ..
        } => (code.name(), Some(retriable)),
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
    let status = |end| status_code(ending::refusal(end).kind).as_u16();
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
        assert_eq!(ending::refusal(end).retry_after.is_some(), again, "{end:?}");
    }
}

#[test]
fn a_job_byte_for_byte() {
    let mut hand = Hand::new(NEVER);
    hand.job.queued(3, &mut hand.out);
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
    hand.job.queued(1, &mut hand.out);
    let full = ApiError::capacity("overloaded", "too many", Duration::from_secs(1));
    hand.refuse(&full);
    let want = concat!(
        "data: {\"type\":\"queued\",\"position\":1}\n\n",
        "data: {\"type\":\"error\",\"code\":\"QUEUE_FULL\",\"message\":\"too many\",\"retriable\":true}\n\n",
        "data: [DONE]\n\n",
    );
    assert_eq!(hand.told(), want);
    assert_eq!(Story::of(&hand.frames()), Story::Over);
}

#[test]
fn cancelled_before_it_began_is_an_end_too() {
    let told = |tell: fn(&mut Hand)| {
        let mut hand = Hand::new(NEVER);
        hand.job.queued(1, &mut hand.out);
        tell(&mut hand);
        assert_eq!(Story::of(&hand.frames()), Story::Over);
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
    let answer = Answer {
        pieces: vec![AnswerPart::Text("hi\"".to_owned())],
        end: Some(End::Length),
        ..Answer::default()
    };
    hand.job
        .whole(&[answer], &tokenizer(), usage(2), &mut hand.out);
    let told: Value = serde_json::from_str(&hand.told()).unwrap();
    let want = json!({"job_id": "job-1", "model": "m", "started_at": "T", "text": "hi\"", "tokens_out": 2,
        "decode_time_ms": 40, "stop_reason": "MAX_TOKENS"});
    assert_eq!(told, want);
}

#[test]
fn who_comes_back_is_not_told_of_the_start_again() {
    let mut hand = Hand::new(NEVER);
    hand.job.resume(&[Position::whole(1)]);
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
    hand.job.open(2, Usage::default(), &mut hand.out);
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
