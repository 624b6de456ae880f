//! `POST /v1/chat/completions`: from events to bytes.

use crate::ask::Delivery;
use crate::dialect::{Answer, Dialect};
use crate::error::ApiError;
use crate::event::{Event, Logprobs, Usage};
use crate::json;
use crate::openai::chunk::{self, Head, Naming, finish_reason};
use crate::openai::{ending, logprobs};
use bytes::BytesMut;
use stream::End;
use text::Tokenizer;

/// The writer of one chat answer.
pub(crate) struct Chat {
    head: Head,
    logprobs: bool,
}

impl Chat {
    /// Renders what is constant.
    pub(crate) fn new(naming: &Naming<'_>, delivery: &Delivery, logprobs: bool) -> Self {
        Self {
            head: Head::new(naming, "chat.completion.chunk", "chat.completion", delivery),
            logprobs,
        }
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
        let usage = match event {
            Event::Delta(delta) => {
                self.head.choice(delta.choice, out);
                json::raw(out, ",\"delta\":{\"content\":");
                json::string(out, delta.text);
                json::raw(out, "}");
                self.logprobs(Some(delta.logprobs), out);
                finish_reason(None, out);
                delta.usage
            }
            Event::End {
                choice, end, usage, ..
            } => {
                self.head.choice(*choice, out);
                json::raw(out, ",\"delta\":{}");
                self.logprobs(None, out);
                finish_reason(Some(*end), out);
                *usage
            }
        };
        self.head.end_choice(usage, out);
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
            json::raw(out, ",\"message\":{\"role\":\"assistant\",\"content\":");
            json::string(out, &answer.text);
            json::raw(out, ",\"refusal\":null}");
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
