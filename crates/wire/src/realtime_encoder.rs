//! Streams over a WebSocket: the encoder. Each event is one message, a JSON object.

use crate::cursor::TerminalMarker;
use crate::encoder::{Collected, Encoder, FrameId, FrameWriter};
use crate::shared::event_parts::{TokenRange, ToolCallEvent};
use crate::shared::job_outcome::{self, JobError, JobErrorCode, JobOutcome};
use crate::shared::logprobs::ChatLogprobs;
use crate::shared::vision_proxy::{ImageProgress, VisionProxyUsage};
use crate::{clock, json};
use bytes::BytesMut;
use generate::error::ApiError;
use generate::output::event::{Delta, DeltaKind, Event, PartOrigin, ToolCall, Usage};
use generate::stream_source::{Change, StreamSource};
use serde::Serialize;
use std::sync::Arc;
use stream::End;

/// The encoder of one multiplexed stream of a session.
pub struct RealtimeEncoder {
    source: Arc<StreamSource>,
    /// Id of the stream.
    stream: String,
    /// Whether the client was notified that the stream is parked.
    is_stopped: bool,
    /// End of the choice that ended last.
    last: Option<End>,
}

/// A message about a stream.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum StreamMessage<'a> {
    Queued {
        stream: &'a str,
        position: usize,
    },
    Image {
        stream: &'a str,
        #[serde(flatten)]
        image: ImageProgress,
    },
    Started {
        stream: &'a str,
        started_at: String,
    },
    Token {
        stream: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        kind: Option<&'static str>,
        #[serde(flatten)]
        tokens: TokenRange,
        t: &'a str,
        #[serde(flatten)]
        part: ChoicePart<'a>,
    },
    Backpressure {
        stream: &'a str,
    },
    SlowConsumer {
        stream: &'a str,
    },
    Parked {
        stream: &'a str,
        reason: &'static str,
    },
    Resumed {
        stream: &'a str,
    },
    ChoiceEnded {
        stream: &'a str,
        choice: usize,
        #[serde(flatten)]
        reason: Reason<'a>,
    },
    Ended {
        stream: &'a str,
        #[serde(flatten)]
        reason: Reason<'a>,
        usage: StreamUsage<'a>,
        decode_time_ms: u64,
    },
    /// The `type` is that of the tool-call part.
    #[serde(untagged)]
    ToolCall {
        #[serde(flatten)]
        call: ToolCallEvent<'a>,
        stream: &'a str,
        #[serde(flatten)]
        tokens: TokenRange,
        #[serde(flatten)]
        part: ChoicePart<'a>,
    },
}

/// The choice of a message and its log-probabilities.
#[derive(Serialize)]
struct ChoicePart<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    choice: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<ChatLogprobs<'a>>,
}

/// Why a choice or a stream ended.
#[derive(Serialize)]
struct Reason<'a> {
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_sequence: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<JobError<'a>>,
}

#[derive(Serialize)]
struct StreamUsage<'a> {
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    vision_proxy: Option<VisionProxyUsage<'a>>,
}

impl<'a> Reason<'a> {
    fn from_job_error(error: JobError<'a>) -> Self {
        Self {
            reason: "ERROR",
            stop_sequence: None,
            error: Some(error),
        }
    }

    fn from_api_error(error: &'a ApiError) -> Self {
        if JobErrorCode::from_error(error) == JobErrorCode::Cancelled {
            return Self {
                reason: "CANCELLED",
                stop_sequence: None,
                error: None,
            };
        }
        Self::from_job_error(JobError::new(error))
    }
}

impl RealtimeEncoder {
    /// An encoder of this stream.
    pub fn new(source: &Arc<StreamSource>) -> Self {
        Self {
            stream: source.meta().id.to_string(),
            source: Arc::clone(source),
            is_stopped: false,
            last: None,
        }
    }

    fn has_several_choices(&self) -> bool {
        self.source.meta().choices > 1
    }

    fn choice_part<'a>(&self, at: &PartOrigin<'a>) -> ChoicePart<'a> {
        let has_logprobs = !at.logprobs.entries.is_empty();
        ChoicePart {
            choice: self.has_several_choices().then_some(at.choice),
            logprobs: has_logprobs.then_some(ChatLogprobs(at.logprobs)),
        }
    }

    fn write_token(&mut self, delta: &Delta<'_>, out: &mut FrameWriter<'_>) {
        self.write_resumed(out);
        let message = StreamMessage::Token {
            stream: &self.stream,
            kind: (delta.kind == DeltaKind::Reasoning).then_some("reasoning"),
            tokens: TokenRange::new(&delta.origin),
            t: delta.text,
            part: self.choice_part(&delta.origin),
        };
        out.write_frame(FrameId::Position, None, &message);
    }

    fn write_tool_call(&mut self, call: &ToolCall<'_>, out: &mut FrameWriter<'_>) {
        self.write_resumed(out);
        let message = StreamMessage::ToolCall {
            call: ToolCallEvent::new(call),
            stream: &self.stream,
            tokens: TokenRange::new(&call.origin),
            part: self.choice_part(&call.origin),
        };
        out.write_frame(FrameId::Position, None, &message);
    }

    fn write_change(&mut self, change: Change, out: &mut FrameWriter<'_>) {
        let stream = &self.stream;
        let message = match change {
            Change::Resumed => return self.write_resumed(out),
            Change::Backpressure => StreamMessage::Backpressure { stream },
            Change::SlowConsumer => StreamMessage::SlowConsumer { stream },
            Change::Parked { reason } => StreamMessage::Parked { stream, reason },
            // These changes have events of their own.
            Change::Opened
            | Change::Recovered
            | Change::Claimed
            | Change::Moved
            | Change::Started
            | Change::Ended { .. } => return,
        };
        out.write_frame(FrameId::None, None, &message);
        self.is_stopped = true;
    }

    /// Ends the parked state: a client that was notified of a parked stream is sent `resumed` before any other
    /// message.
    fn write_resumed(&mut self, out: &mut FrameWriter<'_>) {
        if std::mem::take(&mut self.is_stopped) {
            let stream = &self.stream;
            out.write_frame(FrameId::None, None, &StreamMessage::Resumed { stream });
        }
    }

    fn write_choice_ended(&mut self, choice: usize, end: End, out: &mut FrameWriter<'_>) {
        self.last = Some(end);
        // The end of an only choice is reported as the end of the stream.
        if self.has_several_choices() {
            let message = StreamMessage::ChoiceEnded {
                stream: &self.stream,
                choice,
                reason: self.end_reason(end),
            };
            out.write_frame(FrameId::Position, None, &message);
        }
    }

    fn end_reason(&self, end: End) -> Reason<'_> {
        match job_outcome::job_outcome(end) {
            JobOutcome::End { reason, stop } => {
                let stops = &self.source.meta().stops;
                let stop = stop.and_then(|index| stops.get(usize::from(index)));
                Reason {
                    reason,
                    stop_sequence: stop.map(String::as_str),
                    error: None,
                }
            }
            JobOutcome::Error(error) => Reason::from_job_error(error),
        }
    }

    fn ended_message<'a>(&'a self, reason: Reason<'a>, usage: Usage) -> StreamMessage<'a> {
        let ms = usage.times.decoding().as_millis();
        StreamMessage::Ended {
            stream: &self.stream,
            reason,
            usage: StreamUsage {
                prompt_tokens: usage.prompt_tokens,
                cached_tokens: usage.cached_tokens,
                completion_tokens: usage.completion_tokens,
                vision_proxy: VisionProxyUsage::of(&self.source),
            },
            decode_time_ms: u64::try_from(ms).unwrap_or(u64::MAX),
        }
    }
}

impl Encoder for RealtimeEncoder {
    fn encode(&mut self, event: &Event<'_>, out: &mut FrameWriter<'_>) {
        let done = FrameId::Terminal(TerminalMarker::Done);
        match event {
            Event::Queued { position } => {
                let message = StreamMessage::Queued {
                    stream: &self.stream,
                    position: *position,
                };
                out.write_frame(FrameId::None, None, &message);
            }
            Event::Image { index, state, .. } => {
                let message = StreamMessage::Image {
                    stream: &self.stream,
                    image: ImageProgress::new(*index, *state),
                };
                out.write_frame(FrameId::None, None, &message);
            }
            Event::Started { at } => {
                let message = StreamMessage::Started {
                    stream: &self.stream,
                    started_at: clock::utc_millis(clock::wall(*at)),
                };
                out.write_frame(FrameId::None, None, &message);
            }
            Event::StateChanged(change) => self.write_change(*change, out),
            Event::Delta(delta) => self.write_token(delta, out),
            Event::ToolCall(call) => self.write_tool_call(call, out),
            Event::ChoiceEnded { choice, end, .. } => self.write_choice_ended(*choice, *end, out),
            Event::Finished { end, usage } => {
                // A client that has received the ends of all choices gets none of them again.
                let end = self.last.or(*end).unwrap_or(End::Lost);
                out.write_frame(
                    done,
                    None,
                    &self.ended_message(self.end_reason(end), *usage),
                );
            }
            Event::Failed { end, usage } => {
                out.write_frame(
                    done,
                    None,
                    &self.ended_message(self.end_reason(*end), *usage),
                );
            }
            Event::Rejected(error) => {
                let message = self.ended_message(Reason::from_api_error(error), Usage::default());
                out.write_frame(done, None, &message);
            }
            // The session reports `opened` and the loading of a model.
            Event::Opened { .. }
            | Event::Resumed { .. }
            | Event::Loading { .. }
            | Event::Usage { .. } => {}
        }
    }

    /// Writes the last message. A session has no non-streaming responses.
    fn encode_collected(&self, collected: Collected<'_>, out: &mut BytesMut) {
        let Collected { answers, usage, .. } = collected;
        let end = answers.iter().find_map(|answer| answer.end);
        let reason = self.end_reason(end.unwrap_or(End::Lost));
        json::write(&self.ended_message(reason, usage), out);
    }

    fn end_error(&self, end: End) -> ApiError {
        job_outcome::end_error(end)
    }

    /// The connection has its own pings.
    fn keep_alive(&mut self, _out: &mut FrameWriter<'_>) {}
}
