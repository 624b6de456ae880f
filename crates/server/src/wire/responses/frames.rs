//! From events to bytes.

use super::object::{self, Status};
use super::place::{self, Item, Track};
use crate::wire::dialect::Dialect;
use crate::wire::json;
use crate::wire::openai::{chat_frames, chunk, logprobs};
use bytes::BytesMut;
use generate::error::ApiError;
use generate::output::collected::Answer;
use generate::output::event::{CallPart, Event, Usage};
use generate::output::generation_reader::is_good;
use generate::output::position::Position;
use generate::output::replay;
use generate::stream_source::StreamSource;
use std::sync::Arc;
use stream::End;
use text::Tokenizer;

/// The writer of one response. In this format there is one choice; the items of further ones, of a stream that
/// was opened in another, stand between those of the first.
pub(crate) struct Frames {
    source: Arc<StreamSource>,
    /// How far each choice was told.
    tracks: Vec<Track>,
    /// Each choice as it was when it was looked at last.
    answers: Vec<Answer>,
    /// Choices whose end was told.
    ended: Vec<bool>,
    /// Events up to this number were told before.
    after: Option<u64>,
}

impl Frames {
    /// Nothing was told.
    pub(crate) fn new(source: &Arc<StreamSource>) -> Self {
        let choices = source.meta().choices;
        Self {
            source: Arc::clone(source),
            tracks: vec![Track::default(); choices],
            answers: std::iter::repeat_with(Answer::default)
                .take(choices)
                .collect(),
            ended: vec![false; choices],
            after: None,
        }
    }

    /// For a client that was told everything up to this number.
    pub(crate) fn after(self, number: Option<u64>) -> Self {
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

    /// Where a choice's last item stands in the output. Items of several choices do not get in each
    /// other's way, whichever comes first.
    fn index(&self, choice: usize) -> usize {
        let before = self.tracks[choice].items.saturating_sub(1);
        choice + self.tracks.len() * before
    }

    /// An event about a choice's last item, which it names.
    fn about(
        &self,
        kind: &str,
        (choice, item): (usize, Item),
        out: &mut BytesMut,
        write: impl FnOnce(&mut BytesMut),
    ) {
        let index = self.index(choice);
        self.tell(kind, place::number(&self.tracks), out, |out| {
            json::raw(out, ",\"output_index\":");
            json::integer(out, index as u64);
            json::raw(out, ",\"item_id\":");
            object::item_id(&self.source, item, index, out);
            if item != Item::Call {
                json::raw(out, ",\"content_index\":0");
            }
            write(out);
        });
    }

    /// An event that is a choice's last item itself.
    fn item(
        &self,
        kind: &str,
        choice: usize,
        out: &mut BytesMut,
        write: impl FnOnce(usize, &mut BytesMut),
    ) {
        let index = self.index(choice);
        self.tell(kind, place::number(&self.tracks), out, |out| {
            json::raw(out, ",\"output_index\":");
            json::integer(out, index as u64);
            json::raw(out, ",\"item\":");
            write(index, out);
        });
    }

    fn begin(&mut self, (choice, item): (usize, Item), event: &Event<'_>, out: &mut BytesMut) {
        self.tracks[choice].begin(item);
        self.tracks[choice].next();
        self.item("response.output_item.added", choice, out, |index, out| {
            object::begun(&self.source, item, index, event, out);
        });
        if item == Item::Call {
            return;
        }
        self.tracks[choice].next();
        let added = "response.content_part.added";
        self.about(added, (choice, item), out, |out| {
            json::raw(out, ",\"part\":");
            object::part(item, "", None, out);
        });
    }

    fn delta(&mut self, event: &Event<'_>, out: &mut BytesMut) {
        let choice = event.choice();
        let Some(item) = self.tracks[choice].open else {
            return;
        };
        self.tracks[choice].delta(event.reached());
        let (kind, text) = match event {
            Event::Delta(delta) => (delta_of(item), delta.text),
            Event::Call(call) => match call.said {
                CallPart::Args(fragment) => (delta_of(item), fragment),
                CallPart::Start { .. } | CallPart::End => return,
            },
            Event::End { .. } => return,
        };
        self.about(kind, (choice, item), out, |out| {
            json::raw(out, ",\"delta\":");
            json::string(out, text);
            if let (Item::Message, Event::Delta(delta)) = (item, event) {
                json::raw(out, ",\"logprobs\":");
                match self.source.meta().logprobs {
                    true => logprobs::write_tokens(delta.at.logprobs, out),
                    false => json::raw(out, "[]"),
                }
            }
        });
    }

    /// What is said once more of the item that is open, before its last event.
    fn contents_done(&mut self, choice: usize, out: &mut BytesMut) {
        let Some(item) = self.tracks[choice].open else {
            return;
        };
        self.look(choice);
        self.tracks[choice].next();
        let kind = match item {
            Item::Message => "response.output_text.done",
            Item::Reasoning => "response.reasoning_text.done",
            Item::Call => "response.function_call_arguments.done",
        };
        let list = || self.logprobs(choice).filter(|_| item == Item::Message);
        self.about(kind, (choice, item), out, |out| {
            object::contents(self.piece(choice), item, list(), out);
        });
        if item == Item::Call {
            return;
        }
        self.tracks[choice].next();
        let list = || self.logprobs(choice).filter(|_| item == Item::Message);
        let done = "response.content_part.done";
        self.about(done, (choice, item), out, |out| {
            json::raw(out, ",\"part\":");
            object::part(item, object::text(self.piece(choice)), list(), out);
        });
    }

    fn item_done(&mut self, choice: usize, out: &mut BytesMut) {
        let Some(item) = self.tracks[choice].open.take() else {
            return;
        };
        self.tracks[choice].next();
        let at = self.tracks[choice].items.saturating_sub(1);
        let list = self.logprobs(choice);
        self.item("response.output_item.done", choice, out, |index, out| {
            let (piece, answer) = (self.piece(choice), &self.answers[choice]);
            // Nothing goes on after its end.
            let status = match object::item_status(answer, at) {
                "in_progress" => "incomplete",
                status => status,
            };
            object::item(&self.source, (item, index), (piece, status), list, out);
        });
    }

    /// Sees to it that the choice's last item is known whole: one after it is, or its end.
    fn look(&mut self, choice: usize) {
        let answer = &self.answers[choice];
        if answer.end.is_none() && answer.pieces.len() <= self.tracks[choice].items {
            self.answers[choice] = replay::answer(&self.source, choice);
        }
    }

    /// The choice's last item; `None`: it says nothing.
    fn piece(&self, choice: usize) -> Option<&generate::output::collected::AnswerPart> {
        let at = self.tracks[choice].items.checked_sub(1)?;
        self.answers[choice].pieces.get(at)
    }

    fn logprobs(&self, choice: usize) -> Option<generate::output::event::Logprobs<'_>> {
        let started = self.source.started()?;
        object::logprobs(&self.answers[choice], &started.tokenizer)
    }

    /// The response's last event.
    fn last(&mut self, error: Option<&ApiError>, usage: Usage, out: &mut BytesMut) {
        let answers = replay::answers(&self.source);
        for (choice, answer) in answers.iter().enumerate() {
            // Its end was told before.
            if answer.end.is_some_and(is_good) && !self.ended[choice] {
                self.tracks[choice].end();
            }
        }
        let number = place::number(&self.tracks) + 1;
        let first = answers.first().and_then(|answer| answer.end);
        let status = error.map_or_else(|| Status::of(first), Status::of_error);
        self.response(status.event(), number, out, |out| {
            object::ended(&self.source, status, (&answers, usage), out);
        });
    }
}

fn delta_of(item: Item) -> &'static str {
    match item {
        Item::Message => "response.output_text.delta",
        Item::Reasoning => "response.reasoning_text.delta",
        Item::Call => "response.function_call_arguments.delta",
    }
}

impl Dialect for Frames {
    fn open(&mut self, _choices: usize, _usage: Usage, out: &mut BytesMut) {
        for (number, kind) in (place::CREATED..).zip(["response.created", "response.in_progress"]) {
            self.response(kind, number, out, |out| {
                object::write(&self.source, Status::InProgress, None, out, |_| {});
            });
        }
    }

    fn resume(&mut self, reached: &[Position]) {
        self.tracks = vec![Track::default(); reached.len()];
    }

    /// What the client has seen begin, it has.
    fn known(&mut self, event: &Event<'_>) {
        self.tracks[event.choice()].pass(event);
    }

    /// An item begins before its first event, and what it says is over before its last.
    fn opening(&mut self, event: &Event<'_>, out: &mut BytesMut) {
        let choice = event.choice();
        let begins = self.tracks[choice].begins(event);
        if begins.is_some() {
            self.contents_done(choice, out);
            self.item_done(choice, out);
        }
        // A call's beginning is an event itself.
        if let Some(item) = begins.filter(|&item| item != Item::Call) {
            self.begin((choice, item), event, out);
        }
        if self.tracks[choice].ends(event) {
            self.contents_done(choice, out);
        }
    }

    fn event(&mut self, event: &Event<'_>, out: &mut BytesMut) {
        let choice = event.choice();
        if let Event::End { .. } = event {
            self.ended[choice] = true;
        }
        if self.tracks[choice].begins(event) == Some(Item::Call) {
            self.begin((choice, Item::Call), event, out);
        }
        if self.tracks[choice].goes_on(event) {
            self.delta(event, out);
        }
        if self.tracks[choice].ends(event) {
            self.item_done(choice, out);
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

    fn whole(&self, answers: &[Answer], _: &Tokenizer, usage: Usage, out: &mut BytesMut) {
        let status = Status::of(answers.first().and_then(|answer| answer.end));
        object::ended(&self.source, status, (answers, usage), out);
    }

    fn refusal(&self, end: End) -> ApiError {
        chat_frames::refusal(end)
    }
}
