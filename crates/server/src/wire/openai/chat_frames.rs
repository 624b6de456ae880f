//! `POST /v1/chat/completions`: from events to bytes.

use crate::wire::dialect::Dialect;
use crate::wire::json;
use crate::wire::openai::chunk::{self, Head, Naming, finish_reason};
use crate::wire::openai::{ending, logprobs};
use bytes::BytesMut;
use generate::error::ApiError;
use generate::output::collected::Answer;
use generate::output::event::{Call, CallPart, Delta, Event, Kind, Logprobs, Usage};
use generate::request::Delivery;
use stream::End;
use text::Tokenizer;

/// The writer of one chat answer.
pub(crate) struct Chat {
    head: Head,
    logprobs: bool,
    reasoning: ReasoningField,
}

/// In which field of a message its reasoning is told: there is no standard, and clients know one or
/// the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningField {
    /// `reasoning_content`.
    #[default]
    ReasoningContent,
    /// `reasoning`.
    Reasoning,
    /// Both.
    Both,
}

impl ReasoningField {
    /// Their names, as fields that follow one another, without a comma before the first.
    fn write(self, text: &str, out: &mut BytesMut) {
        let (first, second) = match self {
            Self::ReasoningContent => ("\"reasoning_content\":", None),
            Self::Reasoning => ("\"reasoning\":", None),
            Self::Both => ("\"reasoning_content\":", Some(",\"reasoning\":")),
        };
        json::raw(out, first);
        json::string(out, text);
        if let Some(second) = second {
            json::raw(out, second);
            json::string(out, text);
        }
    }
}

impl Chat {
    /// Renders what is constant.
    pub(crate) fn new(
        naming: &Naming<'_>,
        delivery: &Delivery,
        logprobs: bool,
        reasoning: ReasoningField,
    ) -> Self {
        Self {
            head: Head::new(naming, "chat.completion.chunk", "chat.completion", delivery),
            logprobs,
            reasoning,
        }
    }

    fn delta(&self, delta: &Delta<'_>, out: &mut BytesMut) {
        self.head.choice(delta.at.choice, out);
        json::raw(out, ",\"delta\":{");
        match delta.kind {
            Kind::Text => {
                json::raw(out, "\"content\":");
                json::string(out, delta.text);
            }
            Kind::Reasoning => self.reasoning.write(delta.text, out),
        }
        json::raw(out, "}");
        self.end_delta(delta.at.logprobs, delta.at.usage, out);
    }

    /// A call's end is not said here, but where it brings log-probabilities.
    fn call(&self, call: &Call<'_>, out: &mut BytesMut) {
        let silent = !self.logprobs || call.at.logprobs.entries.is_empty();
        if call.said == CallPart::End && silent {
            return;
        }
        self.head.choice(call.at.choice, out);
        json::raw(out, ",\"delta\":{");
        if call.said != CallPart::End {
            json::raw(out, "\"tool_calls\":[{\"index\":");
            json::integer(out, u64::from(call.index));
        }
        match call.said {
            CallPart::Start { id, name } => {
                json::raw(out, ",\"id\":");
                json::string(out, id);
                json::raw(out, ",\"type\":\"function\",\"function\":{\"name\":");
                json::string(out, name);
                json::raw(out, ",\"arguments\":\"\"}}]");
            }
            CallPart::Args(fragment) => {
                json::raw(out, ",\"function\":{\"arguments\":");
                json::string(out, fragment);
                json::raw(out, "}}]");
            }
            CallPart::End => {}
        }
        json::raw(out, "}");
        self.end_delta(call.at.logprobs, call.at.usage, out);
    }

    fn end_delta(&self, logprobs: Logprobs<'_>, usage: Usage, out: &mut BytesMut) {
        self.logprobs(Some(logprobs), out);
        finish_reason(None, out);
        self.head.end_choice(usage, out);
    }

    fn message(&self, answer: &Answer, out: &mut BytesMut) {
        json::raw(out, ",\"message\":{\"role\":\"assistant\",\"content\":");
        let (text, reasoning) = (answer.text(), answer.reasoning());
        match text.is_empty() && answer.calls().next().is_some() {
            true => json::raw(out, "null"),
            false => json::string(out, &text),
        }
        json::raw(out, ",\"refusal\":null");
        if !reasoning.is_empty() {
            json::raw(out, ",");
            self.reasoning.write(&reasoning, out);
        }
        for (i, call) in answer.calls().enumerate() {
            json::raw(out, if i == 0 { ",\"tool_calls\":[" } else { "," });
            json::raw(out, "{\"id\":");
            json::string(out, &call.id);
            json::raw(out, ",\"type\":\"function\",\"function\":{\"name\":");
            json::string(out, &call.name);
            json::raw(out, ",\"arguments\":");
            json::string(out, &call.arguments);
            json::raw(out, "}}");
        }
        if answer.calls().next().is_some() {
            json::raw(out, "]");
        }
        json::raw(out, "}");
    }

    fn logprobs(&self, logprobs: Option<Logprobs<'_>>, out: &mut BytesMut) {
        json::raw(out, ",\"logprobs\":");
        match logprobs {
            Some(list) if self.logprobs => logprobs::write_chat(list, out),
            _ => json::raw(out, "null"),
        }
    }
}

impl Dialect for Chat {
    fn open(&mut self, choices: usize, usage: Usage, out: &mut BytesMut) {
        for choice in 0..choices {
            self.head.choice(choice, out);
            json::raw(out, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"}");
            self.logprobs(None, out);
            finish_reason(None, out);
            self.head.end_choice(usage, out);
        }
    }

    fn event(&mut self, event: &Event<'_>, out: &mut BytesMut) {
        match event {
            Event::Delta(delta) => self.delta(delta, out),
            Event::Call(call) => self.call(call, out),
            Event::End {
                choice, end, usage, ..
            } => {
                self.head.choice(*choice, out);
                json::raw(out, ",\"delta\":{}");
                self.logprobs(None, out);
                finish_reason(Some(*end), out);
                self.head.end_choice(*usage, out);
            }
        }
    }

    fn usage(&mut self, usage: Usage, out: &mut BytesMut) {
        self.head.usage_chunk(usage, out);
    }

    fn close(&mut self, _usage: Usage, out: &mut BytesMut) {
        chunk::done(out);
    }

    fn fail(&mut self, end: End, _usage: Usage, out: &mut BytesMut) {
        chunk::fail(end, out);
    }

    fn refuse(&mut self, error: &ApiError, out: &mut BytesMut) {
        chunk::refuse(error, out);
    }

    fn queued(&self, position: usize, out: &mut BytesMut) {
        chunk::queued(position, out);
    }

    fn ping(&self, out: &mut BytesMut) {
        json::raw(out, ": ping\n\n");
    }

    fn whole(&self, answers: &[Answer], tokenizer: &Tokenizer, usage: Usage, out: &mut BytesMut) {
        self.head.open_whole(out);
        for (index, answer) in answers.iter().enumerate() {
            chunk::open_choice(index, out);
            self.message(answer, out);
            self.logprobs(Some(answer.logprobs(tokenizer)), out);
            finish_reason(answer.end, out);
            json::raw(out, "}");
        }
        self.head.close_whole(usage, out);
    }

    fn refusal(&self, end: End) -> ApiError {
        refusal(end)
    }
}

/// The error of a bad ending; a good one is not refused by anybody.
pub(crate) fn refusal(end: End) -> ApiError {
    ending::spell(end)
        .err()
        .unwrap_or_else(|| ApiError::ours("lost", "the stream ended twice"))
}
