//! The encoder of `POST /api/generate` and `POST /api/chat`.

use super::ending;
use super::line::{
    Context, Line, OllamaMessage, Output, Summary, ToolCallObject, durations, nanoseconds,
};
use super::refusal::ErrorLine;
use crate::clock;
use crate::cursor::Closing;
use crate::encoder::{Encoder, comment_on_wait};
use crate::frame_writer::{FrameId, FrameWriter};
use crate::framing::Framing;
use crate::json;
use crate::native::rfc3339::Nanos;
use crate::openai;
use crate::openai::chunk::DONE;
use crate::openai::logprobs::TokenLogprobs;
use bytes::BytesMut;
use generate::output::collected::{CollectedAnswer, CollectedCall};
use generate::output::event::{At, Event, Kind, Logprobs, ToolCall, ToolCallPart, Usage};
use generate::stream_source::StreamSource;
use std::sync::Arc;
use stream::End;
use text::Tokenizer;

/// The field that holds the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextField {
    /// `message.content`, in chats.
    Message,
    /// `response`, in completions.
    Response,
}

/// The encoder of one answer.
///
/// A stream of another protocol may have several choices. Each line then names its `choice`, and each choice has a
/// `done` line.
pub(crate) struct OllamaEncoder {
    source: Arc<StreamSource>,
    place: TextField,
    /// The incomplete tool call of each choice: this protocol sends a call in one line.
    calls: Vec<Option<CollectedCall>>,
}

impl OllamaEncoder {
    /// An encoder of this stream.
    pub(crate) fn new(source: &Arc<StreamSource>, place: TextField) -> Self {
        Self {
            source: Arc::clone(source),
            place,
            calls: vec![None; source.meta().choices],
        }
    }

    /// A line with this output and no other optional field.
    fn line<'a>(&'a self, output: &Output<'a>) -> Line<'a> {
        let Output {
            text,
            thinking,
            tool_calls,
        } = *output;
        let is_message = self.place == TextField::Message;
        let message = is_message.then_some(OllamaMessage {
            role: "assistant",
            content: text,
            thinking,
            tool_calls,
        });
        Line {
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

    fn output(&self, output: &Output<'_>, at: &At<'_>, out: &mut FrameWriter<'_>) {
        let line = Line {
            logprobs: self.logprobs(at.logprobs),
            choice: self.choice(at.choice),
            ..self.line(output)
        };
        out.frame(FrameId::Position, None, &line);
    }

    /// Adds a part of a tool call; the complete call at its last part.
    fn complete(&mut self, call: &ToolCall<'_>) -> Option<CollectedCall> {
        let open = &mut self.calls[call.at.choice];
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

    /// Index of the choice, as lines name the choice: only if there are several.
    fn choice(&self, choice: usize) -> Option<usize> {
        (self.source.meta().choices > 1).then_some(choice)
    }

    fn logprobs<'a>(&self, list: Logprobs<'a>) -> Option<TokenLogprobs<'a>> {
        let wanted = self.source.meta().logprobs && !list.entries.is_empty();
        wanted.then_some(TokenLogprobs(list))
    }

    fn summary(&self, choice: usize, end: End, usage: Usage, tokens: u64) -> Summary<'_> {
        let times = durations(self.source.meta().arrived, usage);
        Summary {
            // A failed stream has an error line.
            done_reason: ending::spell(end).unwrap_or("stop"),
            total_duration: nanoseconds(times.total),
            load_duration: nanoseconds(times.load),
            prompt_eval_count: usage.prompt_tokens,
            prompt_eval_duration: nanoseconds(times.prompt),
            eval_count: tokens,
            eval_duration: nanoseconds(times.answer),
            context: self.context(choice),
        }
    }

    fn context(&self, choice: usize) -> Option<Context<'_>> {
        let log = self.source.started()?.choices.get(choice)?;
        let prompt = log.prompt.as_ref()?;
        Some(Context { log, prompt })
    }

    /// Writes the state of a waiting request: a comment, or a line without text where the framing has no comments.
    fn waiting(&self, event: &Event<'_>, out: &mut FrameWriter<'_>) {
        if out.framing() == Framing::Sse {
            return comment_on_wait(event, out);
        }
        let line = self.line(&Output::default());
        let line = match event {
            Event::Queued { position } => Line {
                queued: Some(*position),
                ..line
            },
            Event::Loading { state, percent } => Line {
                state: Some(state),
                percent: Some(*percent),
                ..line
            },
            _ => line,
        };
        out.frame(FrameId::None, None, &line);
    }
}

impl Encoder for OllamaEncoder {
    fn encode(&mut self, event: &Event<'_>, out: &mut FrameWriter<'_>) {
        match event {
            Event::Queued { .. } | Event::Loading { .. } => self.waiting(event, out),
            Event::Delta(delta) => {
                let (text, thinking) = match delta.kind {
                    Kind::Text => (delta.text, ""),
                    Kind::Reasoning => ("", delta.text),
                };
                let output = Output {
                    text,
                    thinking,
                    tool_calls: &[],
                };
                self.output(&output, &delta.at, out);
            }
            Event::ToolCall(call) => {
                if let Some(complete) = self.complete(call) {
                    let tool_calls = [ToolCallObject::new(&complete)];
                    let output = Output {
                        tool_calls: &tool_calls,
                        ..Output::default()
                    };
                    self.output(&output, &call.at, out);
                }
            }
            Event::ChoiceEnded {
                choice,
                end,
                usage,
                tokens,
                ..
            } => {
                let line = Line {
                    choice: self.choice(*choice),
                    done: true,
                    summary: Some(self.summary(*choice, *end, *usage, *tokens)),
                    ..self.line(&Output::default())
                };
                out.frame(FrameId::Position, None, &line);
            }
            Event::Finished { .. } => out.text(FrameId::Terminal(Closing::Done), DONE),
            Event::Failed { end, usage } => {
                let error = openai::ending::error(*end);
                let line = ErrorLine::new(&error, usage.completion_tokens);
                out.frame(FrameId::Terminal(Closing::Done), None, &line);
            }
            Event::Rejected(error) => {
                out.frame(FrameId::None, None, &ErrorLine::new(error, 0));
            }
            Event::Opened { .. }
            | Event::Resumed { .. }
            | Event::Started { .. }
            | Event::StateChanged(_)
            | Event::Usage { .. } => {}
        }
    }

    fn replay(&mut self, event: &Event<'_>) {
        if let Event::ToolCall(call) = event {
            self.complete(call);
        }
    }

    fn collect(
        &self,
        answers: &[CollectedAnswer],
        tokenizer: &Tokenizer,
        usage: Usage,
        out: &mut BytesMut,
    ) {
        // A request of this protocol has one choice.
        let Some(answer) = answers.first() else {
            return;
        };
        let tool_calls: Vec<_> = answer.calls().map(ToolCallObject::new).collect();
        let (text, thinking) = (answer.text(), answer.reasoning());
        let output = Output {
            text: &text,
            thinking: &thinking,
            tool_calls: &tool_calls,
        };
        let end = answer.end.unwrap_or(End::Lost);
        let line = Line {
            logprobs: self.logprobs(answer.logprobs(tokenizer)),
            done: true,
            summary: Some(self.summary(0, end, usage, usage.completion_tokens)),
            ..self.line(&output)
        };
        json::write(&line, out);
    }

    fn keep_alive(&mut self, out: &mut FrameWriter<'_>) {
        match out.framing() {
            Framing::Sse => out.comment(format_args!("ping")),
            _ => out.frame(FrameId::None, None, &self.line(&Output::default())),
        }
    }
}
