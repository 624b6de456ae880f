//! From events to bytes.

use super::object::{self, Status};
use super::place::{self, At};
use crate::dialect::{Answer, Dialect};
use crate::error::ApiError;
use crate::event::{Delta, Event, Usage};
use crate::json;
use crate::openai::{chat_frames, chunk, logprobs};
use crate::refold;
use crate::streams::Entry;
use bytes::BytesMut;
use std::sync::Arc;
use stream::End;
use text::Tokenizer;

/// The writer of one response. Each choice is a message of its output; in this format there is one, but a
/// stream that was opened in another may have several.
pub(crate) struct Frames {
    entry: Arc<Entry>,
    /// How far each choice was told.
    at: Vec<At>,
    /// The answers that have ended, by choice.
    whole: Vec<Option<Answer>>,
    /// Events up to this number were told before.
    after: Option<u64>,
}

impl Frames {
    /// Nothing was told.
    pub(crate) fn new(entry: &Arc<Entry>) -> Self {
        let choices = entry.opening().choices;
        Self {
            entry: Arc::clone(entry),
            at: vec![At::START; choices],
            whole: std::iter::repeat_with(|| None).take(choices).collect(),
            after: None,
        }
    }

    /// For a client that was told everything up to this number.
    pub(super) fn after(self, number: Option<u64>) -> Self {
        Self {
            after: number,
            ..self
        }
    }

    /// Writes an event, unless it was told before.
    fn tell(&self, kind: &str, number: u64, out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
        if self.after.is_some_and(|after| number <= after) {
            return;
        }
        json::raw(out, "event: ");
        json::raw(out, kind);
        json::raw(out, "\ndata: {\"type\":\"");
        json::raw(out, kind);
        json::raw(out, "\",\"sequence_number\":");
        json::integer(out, number);
        write(out);
        json::raw(out, "}\n\n");
    }

    /// An event about the response.
    fn response(
        &self,
        kind: &str,
        number: u64,
        out: &mut BytesMut,
        write: impl FnOnce(&mut BytesMut),
    ) {
        self.tell(kind, number, out, |out| {
            json::raw(out, ",\"response\":");
            write(out);
        });
    }

    /// The next event about a choice's message: its place in the output stands before the rest.
    fn item(
        &mut self,
        kind: &str,
        (choice, at): (usize, At),
        out: &mut BytesMut,
        write: impl FnOnce(&Self, &mut BytesMut),
    ) {
        self.at[choice] = at;
        let this = &*self;
        this.tell(kind, place::number(&this.at), out, |out| {
            json::raw(out, ",\"output_index\":");
            json::integer(out, choice as u64);
            write(this, out);
        });
    }

    /// The same about its one part.
    fn content(
        &mut self,
        kind: &str,
        (choice, at): (usize, At),
        out: &mut BytesMut,
        write: impl FnOnce(&Self, &mut BytesMut),
    ) {
        self.item(kind, (choice, at), out, |this, out| {
            json::raw(out, ",\"item_id\":");
            object::item_id(&this.entry, choice, out);
            json::raw(out, ",\"content_index\":0");
            write(this, out);
        });
    }

    fn begin(&mut self, choice: usize, out: &mut BytesMut) {
        let added = "response.output_item.added";
        self.item(added, (choice, At::ITEM), out, |this, out| {
            json::raw(out, ",\"item\":");
            object::item(&this.entry, choice, "in_progress", out, |_| {});
        });
        let added = "response.content_part.added";
        self.content(added, (choice, At::PART), out, |_, out| {
            json::raw(out, ",\"part\":");
            object::part("", None, out);
        });
    }

    fn delta(&mut self, delta: &Delta<'_>, out: &mut BytesMut) {
        let place = (delta.choice, At::delta(delta.step));
        self.content("response.output_text.delta", place, out, |this, out| {
            json::raw(out, ",\"delta\":");
            json::string(out, delta.text);
            json::raw(out, ",\"logprobs\":");
            match this.entry.opening().logprobs {
                true => logprobs::write_tokens(delta.logprobs, out),
                false => json::raw(out, "[]"),
            }
        });
    }

    /// What the end of a choice's text says once more.
    fn text_done(&mut self, choice: usize, step: u64, out: &mut BytesMut) {
        let [text, part, _] = At::end(step);
        let answer = self.whole[choice].take();
        let answer = answer.unwrap_or_else(|| refold::answer(&self.entry, choice));
        let done = "response.output_text.done";
        let entry = Arc::clone(&self.entry);
        let tokenizer = entry.started().map(|started| &started.tokenizer);
        let list = tokenizer.map(|tokenizer| answer.logprobs(tokenizer));
        self.content(done, (choice, text), out, |_, out| {
            json::raw(out, ",\"text\":");
            json::string(out, &answer.text);
            json::raw(out, ",\"logprobs\":");
            match list {
                Some(list) => logprobs::write_tokens(list, out),
                None => json::raw(out, "[]"),
            }
        });
        let done = "response.content_part.done";
        self.content(done, (choice, part), out, |_, out| {
            json::raw(out, ",\"part\":");
            object::part(&answer.text, list, out);
        });
        self.whole[choice] = Some(answer);
    }

    fn item_done(&mut self, choice: usize, step: u64, out: &mut BytesMut) {
        let [.., item] = At::end(step);
        let done = "response.output_item.done";
        self.item(done, (choice, item), out, |this, out| {
            let Some((started, answer)) = this.entry.started().zip(this.whole[choice].as_ref())
            else {
                return;
            };
            json::raw(out, ",\"item\":");
            object::message(&this.entry, choice, answer, &started.tokenizer, out);
        });
    }

    /// All answers, those told of before included.
    fn answers(&mut self) -> Vec<Answer> {
        let whole = std::mem::take(&mut self.whole);
        let entry = &self.entry;
        let answer = |(choice, answer): (usize, Option<Answer>)| {
            answer.unwrap_or_else(|| refold::answer(entry, choice))
        };
        whole.into_iter().enumerate().map(answer).collect()
    }

    /// The response's last event.
    fn last(&mut self, error: Option<&ApiError>, usage: Usage, out: &mut BytesMut) {
        let answers = self.answers();
        let first = answers.first().and_then(|answer| answer.end);
        let status = error.map_or_else(|| Status::of(first), Status::of_error);
        let Some(started) = self.entry.started() else {
            return;
        };
        self.response(status.event(), place::last(&self.entry), out, |out| {
            let told = (&answers[..], usage);
            object::ended(&self.entry, status, told, &started.tokenizer, out);
        });
    }
}

impl Dialect for Frames {
    fn open(&mut self, _choices: usize, _usage: Usage, out: &mut BytesMut) {
        for (number, kind) in (place::CREATED..).zip(["response.created", "response.in_progress"]) {
            self.response(kind, number, out, |out| {
                object::write(&self.entry, Status::InProgress, None, out, |_| {});
            });
        }
    }

    /// Who was told some of a choice has seen its message begin.
    fn resume(&mut self, steps: &[u64]) {
        let logs = self.entry.started().map(|started| &started.choices);
        let log = |choice: usize| logs.and_then(|logs| logs.get(choice));
        let at = |(choice, &step): (usize, &u64)| At::resumed(step, log(choice));
        self.at = steps.iter().enumerate().map(at).collect();
    }

    /// A message begins before its first event, and its text is over before its last.
    fn opening(&mut self, event: &Event<'_>, out: &mut BytesMut) {
        let (Event::Delta(Delta { choice, .. }) | Event::End { choice, .. }) = event;
        if self.at[*choice] == At::START {
            self.begin(*choice, out);
        }
        if let Event::End { choice, step, .. } = event {
            self.text_done(*choice, *step, out);
        }
    }

    fn event(&mut self, event: &Event<'_>, out: &mut BytesMut) {
        match event {
            Event::Delta(delta) => self.delta(delta, out),
            Event::End { choice, step, .. } => self.item_done(*choice, *step, out),
        }
    }

    fn close(&mut self, usage: Usage, out: &mut BytesMut) {
        self.last(None, usage, out);
    }

    fn fail(&mut self, end: End, usage: Usage, out: &mut BytesMut) {
        self.last(Some(&chat_frames::refusal(end)), usage, out);
    }

    fn refuse(&mut self, error: &ApiError, out: &mut BytesMut) {
        self.tell("error", place::CREATED, out, |out| {
            json::raw(out, ",\"code\":");
            json::string(out, error.code);
            json::raw(out, ",\"message\":");
            json::string(out, &error.message);
            json::raw(out, ",\"param\":");
            match error.problems.first() {
                Some(problem) => json::string(out, &problem.field),
                None => json::raw(out, "null"),
            }
        });
    }

    fn queued(&self, position: usize, out: &mut BytesMut) {
        chunk::queued(position, out);
    }

    fn ping(&self, out: &mut BytesMut) {
        json::raw(out, ": ping\n\n");
    }

    fn whole(&self, answers: &[Answer], tokenizer: &Tokenizer, usage: Usage, out: &mut BytesMut) {
        let status = Status::of(answers.first().and_then(|answer| answer.end));
        object::ended(&self.entry, status, (answers, usage), tokenizer, out);
    }

    fn refusal(&self, end: End) -> ApiError {
        chat_frames::refusal(end)
    }
}
