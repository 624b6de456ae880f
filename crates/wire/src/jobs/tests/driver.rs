//! Drives an encoder of jobs event by event.

use super::super::encoder::JobEncoder;
use super::frame_order::Frame;
use crate::clock;
use crate::encoder::Encoder;
use crate::frame_writer::FrameWriter;
use crate::framing::Framing;
use bytes::BytesMut;
use generate::error::ApiError;
use generate::output::event::{Delta, DeltaKind, Event, Logprobs, PartOrigin, Times, Usage};
use generate::output::position::Position;
use generate::stream_source::{StreamMeta, StreamSource};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::End;
use testing::small_vocabulary::tokenizer;
use text::Tokenizer;

#[expect(clippy::disallowed_methods, reason = "some instant")]
pub(super) fn usage(tokens: u64) -> Usage {
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

/// A job whose events a test encodes one by one.
pub(super) struct JobDriver {
    pub(super) job: JobEncoder,
    pub(super) started: bool,
    pub(super) out: BytesMut,
    pub(super) tokens: u64,
    pub(super) tokenizer: Arc<Tokenizer>,
    /// Whether the last event was encoded.
    pub(super) ended: bool,
}

impl JobDriver {
    pub(super) fn new(metrics_each: Duration) -> Self {
        let mut meta = StreamMeta::unopened("m", clock::now());
        meta.stops = vec!["x".to_owned(), "STOP\"".to_owned()];
        meta.response_id = "job-1".to_owned();
        let source = Arc::new(StreamSource::new(meta));
        let job = JobEncoder::new(&source).with_metrics_each(metrics_each);
        Self {
            job,
            started: false,
            out: BytesMut::new(),
            tokens: 0,
            tokenizer: tokenizer(),
            ended: false,
        }
    }

    pub(super) fn encode(&mut self, event: &Event<'_>) {
        let mut out = FrameWriter::new(Framing::Sse, &mut self.out);
        self.job.encode(event, &mut out);
    }

    pub(super) fn open(&mut self) {
        self.open_choices(1);
    }

    pub(super) fn open_choices(&mut self, choices: usize) {
        let usage = Usage::default();
        self.encode(&Event::Opened { choices, usage });
    }

    pub(super) fn queued(&mut self, position: usize) {
        self.encode(&Event::Queued { position });
    }

    pub(super) fn start(&mut self, usage: Usage) {
        if let Some(at) = usage.times.started.filter(|_| !self.started) {
            self.started = true;
            self.encode(&Event::Started { at });
        }
    }

    pub(super) fn delta(&mut self, text: &str, tokens: u64) {
        let (first, tokenizer) = (self.tokens, Arc::clone(&self.tokenizer));
        self.tokens += tokens;
        let mut usage = usage(self.tokens);
        usage.times.ended = self.ended.then_some(usage.times.ended).flatten();
        let at = PartOrigin {
            choice: 0,
            logprobs: Logprobs {
                tokenizer: &tokenizer,
                entries: &[],
                top: &[],
                top_n: 0,
            },
            usage,
            position: Position::whole(self.tokens),
            first,
            tokens,
        };
        let kind = DeltaKind::Text;
        let delta = Delta {
            kind,
            text,
            origin: at,
        };
        self.start(usage);
        self.encode(&Event::Delta(delta));
    }

    /// Ends the job with the events of a generation: `Finished` for a completed stream, `Failed` for any other.
    pub(super) fn end(&mut self, end: End) {
        let usage = usage(self.tokens);
        self.start(usage);
        if matches!(end, End::Stop(_) | End::Length) {
            let position = Position::whole(self.tokens + 2);
            let tokens = self.tokens;
            self.encode(&Event::ChoiceEnded {
                choice: 0,
                end,
                usage,
                tokens,
                position,
            });
            let end = Some(end);
            self.encode(&Event::Finished { end, usage });
        } else {
            if self.tokens > 0 {
                let end = Some(end);
                self.encode(&Event::Usage { end, usage });
            }
            self.fail(end, usage);
        }
    }

    pub(super) fn fail(&mut self, end: End, usage: Usage) {
        self.encode(&Event::Failed { end, usage });
    }

    pub(super) fn reject(&mut self, error: &ApiError) {
        self.encode(&Event::Rejected(error));
    }

    /// The frames so far, with time stamps replaced by `T`.
    pub(super) fn output(&self) -> String {
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

    pub(super) fn frames(&self) -> Vec<Frame> {
        let output = self.output();
        assert!(output.ends_with("\n\n"));
        output.split_terminator("\n\n").map(Frame::parse).collect()
    }
}
