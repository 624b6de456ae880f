//! The encoder of `POST /api/generate` and `POST /api/chat`.

use super::response_line::{
    ContextIds, ErrorLine, LineOutput, LineSummary, OllamaMessage, ResponseLine, ToolCallObject,
    done_reason, nanoseconds,
};
use crate::clock::{self, Nanos};
use crate::cursor::TerminalMarker;
use crate::encoder::{Collected, DONE, Encoder, FrameId, FrameWriter, write_wait_comment};
use crate::framing::Framing;
use crate::json;
use crate::schema::{self, ResponseSchemas};
use crate::shared::event_parts::choice_index;
use crate::shared::finish_reason;
use crate::shared::logprobs::TokenLogprobs;
use crate::shared::timings::request_durations;
use crate::shared::vision_proxy::VisionProxyUsage;
use bytes::BytesMut;
use generate::output::collected::CollectedCall;
use generate::output::event::{
    DeltaKind, Event, Logprobs, PartOrigin, ToolCall, ToolCallPart, Usage,
};
use generate::stream_source::StreamSource;
use std::sync::Arc;
use stream::End;

/// The field that holds the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextField {
    /// `message.content`, in chats.
    Message,
    /// `response`, in completions.
    Response,
}

/// Schemas of Ollama's API.
pub(crate) const SCHEMAS: ResponseSchemas = ResponseSchemas {
    collected: schema::of::<ResponseLine<'static>>,
    event: schema::either::<ResponseLine<'static>, ErrorLine<'static>>,
    error: schema::of::<ErrorLine<'static>>,
};

/// The encoder of one answer.
///
/// A stream of another protocol may have several choices. Each line then names its `choice`, and each choice has a
/// `done` line.
pub(crate) struct OllamaEncoder {
    source: Arc<StreamSource>,
    text_field: TextField,
    /// The incomplete tool call of each choice: this protocol sends a call in one line.
    calls: Vec<Option<CollectedCall>>,
}

impl OllamaEncoder {
    /// An encoder of this stream.
    pub(crate) fn new(source: &Arc<StreamSource>, text_field: TextField) -> Self {
        Self {
            source: Arc::clone(source),
            text_field,
            calls: vec![None; source.meta().choices],
        }
    }

    /// A line with this output and no other optional field.
    fn empty_line<'a>(&'a self, output: &LineOutput<'a>) -> ResponseLine<'a> {
        let LineOutput {
            text,
            thinking,
            tool_calls,
        } = *output;
        let is_message = self.text_field == TextField::Message;
        let message = is_message.then_some(OllamaMessage {
            role: "assistant",
            content: text,
            thinking,
            tool_calls,
        });
        ResponseLine {
            model: &self.source.meta().model,
            created_at: Nanos(clock::wall(clock::now())),
            message,
            response: (!is_message).then_some(text),
            thinking: if is_message { "" } else { thinking },
            tool_calls: if is_message { &[] } else { tool_calls },
            logprobs: None,
            choice: None,
            queued: None,
            done: false,
            state: None,
            percent: None,
            summary: None,
        }
    }

    fn write_output(
        &self,
        output: &LineOutput<'_>,
        at: &PartOrigin<'_>,
        out: &mut FrameWriter<'_>,
    ) {
        let line = ResponseLine {
            logprobs: self.token_logprobs(at.logprobs),
            choice: choice_index(at.choice, self.calls.len()),
            ..self.empty_line(output)
        };
        out.write_frame(FrameId::Position, None, &line);
    }

    /// Adds a part of a tool call; the complete call at its last part.
    fn add_call_part(&mut self, call: &ToolCall<'_>) -> Option<CollectedCall> {
        let open = &mut self.calls[call.origin.choice];
        match call.part {
            ToolCallPart::Start { id, name } => {
                *open = Some(CollectedCall {
                    id: id.to_owned(),
                    name: name.to_owned(),
                    arguments: String::new(),
                });
            }
            ToolCallPart::Args(more) => {
                if let Some(open) = open {
                    open.arguments.push_str(more);
                }
            }
            ToolCallPart::End => return open.take(),
        }
        None
    }

    fn token_logprobs<'a>(&self, list: Logprobs<'a>) -> Option<TokenLogprobs<'a>> {
        let is_requested = self.source.meta().logprobs && !list.entries.is_empty();
        is_requested.then_some(TokenLogprobs(list))
    }

    fn line_summary(&self, choice: usize, end: End, usage: Usage, tokens: u64) -> LineSummary<'_> {
        let times = request_durations(self.source.meta().arrived, usage);
        LineSummary {
            // A failed stream has an error line.
            done_reason: done_reason(end).unwrap_or("stop"),
            total_duration: nanoseconds(times.total),
            load_duration: nanoseconds(times.load),
            prompt_eval_count: usage.prompt_tokens,
            prompt_eval_duration: nanoseconds(times.prompt),
            eval_count: tokens,
            eval_duration: nanoseconds(times.answer),
            vision_proxy: VisionProxyUsage::of(&self.source),
            context: self.context_ids(choice),
        }
    }

    fn context_ids(&self, choice: usize) -> Option<ContextIds<'_>> {
        let log = self.source.started()?.choices.get(choice)?;
        let prompt = log.prompt.as_ref()?;
        Some(ContextIds { log, prompt })
    }

    /// Writes the state of a waiting request: a comment, or a line without text where the framing has no comments.
    fn write_waiting(&self, event: &Event<'_>, out: &mut FrameWriter<'_>) {
        if out.framing() == Framing::Sse {
            return write_wait_comment(event, out);
        }
        let line = self.empty_line(&LineOutput::default());
        let line = match event {
            Event::Queued { position } => ResponseLine {
                queued: Some(*position),
                ..line
            },
            Event::Loading { state, percent } => ResponseLine {
                state: Some(state),
                percent: Some(*percent),
                ..line
            },
            _ => line,
        };
        out.write_frame(FrameId::None, None, &line);
    }
}

impl Encoder for OllamaEncoder {
    fn encode(&mut self, event: &Event<'_>, out: &mut FrameWriter<'_>) {
        match event {
            Event::Queued { .. } | Event::Loading { .. } => self.write_waiting(event, out),
            Event::Delta(delta) => {
                let (text, thinking) = match delta.kind {
                    DeltaKind::Text => (delta.text, ""),
                    DeltaKind::Reasoning => ("", delta.text),
                };
                let output = LineOutput {
                    text,
                    thinking,
                    tool_calls: &[],
                };
                self.write_output(&output, &delta.origin, out);
            }
            Event::ToolCall(call) => {
                if let Some(complete) = self.add_call_part(call) {
                    let tool_calls = [ToolCallObject::new(&complete)];
                    let output = LineOutput {
                        tool_calls: &tool_calls,
                        ..LineOutput::default()
                    };
                    self.write_output(&output, &call.origin, out);
                }
            }
            Event::ChoiceEnded {
                choice,
                end,
                usage,
                tokens,
                ..
            } => {
                let line = ResponseLine {
                    choice: choice_index(*choice, self.calls.len()),
                    done: true,
                    summary: Some(self.line_summary(*choice, *end, *usage, *tokens)),
                    ..self.empty_line(&LineOutput::default())
                };
                out.write_frame(FrameId::Position, None, &line);
            }
            Event::Finished { .. } => out.write_text(FrameId::Terminal(TerminalMarker::Done), DONE),
            Event::Failed { end, usage } => {
                let error = finish_reason::end_error(*end);
                let line = ErrorLine::new(&error, usage.completion_tokens);
                out.write_frame(FrameId::Terminal(TerminalMarker::Done), None, &line);
            }
            Event::Rejected(error) => {
                out.write_frame(FrameId::None, None, &ErrorLine::new(error, 0));
            }
            Event::Opened { .. }
            | Event::Resumed { .. }
            | Event::Started { .. }
            | Event::StateChanged(_)
            | Event::Image { .. }
            | Event::Usage { .. } => {}
        }
    }

    fn replay_event(&mut self, event: &Event<'_>) {
        if let Event::ToolCall(call) = event {
            self.add_call_part(call);
        }
    }

    fn encode_collected(&self, collected: Collected<'_>, out: &mut BytesMut) {
        let Collected {
            answers,
            tokenizer,
            usage,
        } = collected;
        // A request of this protocol has one choice.
        let Some(answer) = answers.first() else {
            return;
        };
        let tool_calls: Vec<_> = answer.calls().map(ToolCallObject::new).collect();
        let (text, thinking) = (answer.text(), answer.reasoning());
        let output = LineOutput {
            text: &text,
            thinking: &thinking,
            tool_calls: &tool_calls,
        };
        let end = answer.end.unwrap_or(End::Lost);
        let line = ResponseLine {
            logprobs: self.token_logprobs(answer.logprobs(tokenizer)),
            done: true,
            summary: Some(self.line_summary(0, end, usage, usage.completion_tokens)),
            ..self.empty_line(&output)
        };
        json::write(&line, out);
    }

    fn keep_alive(&mut self, out: &mut FrameWriter<'_>) {
        match out.framing() {
            Framing::Sse => out.write_comment(format_args!("ping")),
            _ => out.write_frame(
                FrameId::None,
                None,
                &self.empty_line(&LineOutput::default()),
            ),
        }
    }
}
