//! The encoder of responses (`POST /v1/responses`).

use super::event::{
    AboutItem, Contents, ErrorFields, Numbered, WithDelta, WithItem, WithPart, WithResponse,
};
use super::item::{self, ContentPart, ItemId, LogprobList, OutputItem};
use super::object::{self, Status};
use super::place::{self, Item, Track};
use crate::cursor::Closing;
use crate::encoder::{Encoder, comment_on_wait};
use crate::frame_writer::{FrameId, FrameWriter};
use crate::json;
use crate::openai::ending;
use crate::openai::refusal::param;
use bytes::BytesMut;
use generate::error::ApiError;
use generate::output::collected::{AnswerPart, CollectedAnswer};
use generate::output::event::{Event, Logprobs, ToolCallPart, Usage};
use generate::output::replay as refold;
use generate::stream_source::StreamSource;
use serde::Serialize;
use std::sync::Arc;
use stream::End;
use text::Tokenizer;

/// The encoder of one response. A response of this protocol has one choice; items of further choices, from a stream of
/// another protocol, are interleaved with those of the first.
pub struct ResponsesEncoder {
    source: Arc<StreamSource>,
    /// Progress of each choice.
    tracks: Vec<Track>,
    /// Each choice as of its last collection.
    answers: Vec<CollectedAnswer>,
    /// Choices whose end was encoded.
    ended: Vec<bool>,
    /// Sequence number of the last event that the client has received.
    after: Option<u64>,
}

impl ResponsesEncoder {
    /// An encoder of this stream.
    pub fn new(source: &Arc<StreamSource>) -> Self {
        let choices = source.meta().choices;
        Self {
            source: Arc::clone(source),
            tracks: vec![Track::default(); choices],
            answers: std::iter::repeat_with(CollectedAnswer::default)
                .take(choices)
                .collect(),
            ended: vec![false; choices],
            after: None,
        }
    }

    /// The encoder for a client that has received all events up to this number.
    pub fn after(self, number: Option<u64>) -> Self {
        Self {
            after: number,
            ..self
        }
    }

    /// Writes an event, unless the client has received the event.
    fn write<T: Serialize>(
        &self,
        id: FrameId,
        (kind, number): (&'static str, u64),
        fields: T,
        out: &mut FrameWriter<'_>,
    ) {
        if self.after.is_some_and(|after| number <= after) {
            return;
        }
        let event = Numbered {
            r#type: kind,
            sequence_number: number,
            fields,
        };
        out.frame(id, Some(kind), &event);
    }

    /// Output index of a choice's last item. With several choices the indices of their items are disjoint and do not
    /// depend on the order of events.
    fn index(&self, choice: usize) -> usize {
        let before = self.tracks[choice].items.saturating_sub(1);
        choice + self.tracks.len() * before
    }

    fn item_id(&self, choice: usize, item: Item) -> ItemId {
        ItemId {
            item,
            stream: self.source.meta().id,
            index: self.index(choice),
        }
    }

    /// Writes an event that names a choice's last item.
    fn about<T: Serialize>(
        &self,
        id: FrameId,
        kind: &'static str,
        (choice, item): (usize, Item),
        fields: T,
        out: &mut FrameWriter<'_>,
    ) {
        let item_id = self.item_id(choice, item);
        let about = AboutItem {
            output_index: item_id.index,
            item_id,
            content_index: (item != Item::Call).then_some(0),
            fields,
        };
        self.write(id, (kind, place::number(&self.tracks)), about, out);
    }

    /// Writes an event that contains an output item.
    fn item(
        &self,
        id: FrameId,
        kind: &'static str,
        item: OutputItem<'_>,
        index: usize,
        out: &mut FrameWriter<'_>,
    ) {
        let fields = WithItem {
            output_index: index,
            item,
        };
        self.write(id, (kind, place::number(&self.tracks)), fields, out);
    }

    fn begin(
        &mut self,
        id: FrameId,
        (choice, item): (usize, Item),
        event: &Event<'_>,
        out: &mut FrameWriter<'_>,
    ) {
        self.tracks[choice].begin(item);
        self.tracks[choice].next();
        let item_id = self.item_id(choice, item);
        let begun = item::begun(item_id, event);
        let added = "response.output_item.added";
        self.item(id, added, begun, item_id.index, out);
        if item == Item::Call {
            return;
        }
        self.tracks[choice].next();
        let part = ContentPart::new(item, "", None);
        let added = "response.content_part.added";
        self.about(FrameId::None, added, (choice, item), WithPart { part }, out);
    }

    fn delta(&mut self, choice: usize, event: &Event<'_>, out: &mut FrameWriter<'_>) {
        let Some(item) = self.tracks[choice].open else {
            return;
        };
        if let Some(reached) = event.reached() {
            self.tracks[choice].delta(reached);
        }
        let (text, list) = match event {
            Event::Delta(delta) => (delta.text, Some(delta.at.logprobs)),
            Event::ToolCall(call) => match call.part {
                ToolCallPart::Args(fragment) => (fragment, None),
                ToolCallPart::Start { .. } | ToolCallPart::End => return,
            },
            _ => return,
        };
        let list = list.filter(|_| self.source.meta().logprobs);
        let delta = WithDelta {
            delta: text,
            logprobs: (item == Item::Message).then_some(LogprobList(list)),
        };
        let kind = match item {
            Item::Message => "response.output_text.delta",
            Item::Reasoning => "response.reasoning_text.delta",
            Item::Call => "response.function_call_arguments.delta",
        };
        self.about(FrameId::Position, kind, (choice, item), delta, out);
    }

    /// Repeats the contents of the open item, before its last event.
    fn contents_done(&mut self, choice: usize, out: &mut FrameWriter<'_>) {
        let Some(item) = self.tracks[choice].open else {
            return;
        };
        self.collect_last_item(choice);
        self.tracks[choice].next();
        let kind = match item {
            Item::Message => "response.output_text.done",
            Item::Reasoning => "response.reasoning_text.done",
            Item::Call => "response.function_call_arguments.done",
        };
        let place = (choice, item);
        let list = || self.logprobs(choice).filter(|_| item == Item::Message);
        let contents = match self.piece(choice) {
            Some(AnswerPart::Call(call)) => Contents::Call {
                name: &call.name,
                arguments: &call.arguments,
            },
            piece => Contents::Text {
                text: item::text(piece),
                logprobs: (item == Item::Message).then(|| LogprobList(list())),
            },
        };
        self.about(FrameId::None, kind, place, contents, out);
        if item == Item::Call {
            return;
        }
        self.tracks[choice].next();
        let list = self.logprobs(choice).filter(|_| item == Item::Message);
        let part = ContentPart::new(item, item::text(self.piece(choice)), list);
        let done = "response.content_part.done";
        self.about(FrameId::None, done, place, WithPart { part }, out);
    }

    fn item_done(&mut self, id: FrameId, choice: usize, out: &mut FrameWriter<'_>) {
        let Some(item) = self.tracks[choice].open.take() else {
            return;
        };
        self.tracks[choice].next();
        let at = self.tracks[choice].items.saturating_sub(1);
        // An ended item is not in progress.
        let status = match item::item_status(&self.answers[choice], at) {
            "in_progress" => "incomplete",
            status => status,
        };
        let item_id = self.item_id(choice, item);
        let done = item::item(item_id, self.piece(choice), status, self.logprobs(choice));
        let kind = "response.output_item.done";
        self.item(id, kind, done, item_id.index, out);
    }

    /// Collects a choice up to its last item, which is complete once a later item or the end of the choice is known.
    fn collect_last_item(&mut self, choice: usize) {
        let answer = &self.answers[choice];
        if answer.end.is_none() && answer.pieces.len() <= self.tracks[choice].items {
            self.answers[choice] = refold::answer(&self.source, choice);
        }
    }

    /// Output of a choice's last item; `None` for an empty item.
    fn piece(&self, choice: usize) -> Option<&AnswerPart> {
        let at = self.tracks[choice].items.checked_sub(1)?;
        self.answers[choice].pieces.get(at)
    }

    fn logprobs(&self, choice: usize) -> Option<Logprobs<'_>> {
        let started = self.source.started()?;
        item::logprobs(&self.answers[choice], &started.tokenizer)
    }

    fn opened(&self, out: &mut FrameWriter<'_>) {
        for (number, kind) in (place::CREATED..).zip(["response.created", "response.in_progress"]) {
            let status = Status::InProgress;
            let response = object::response(&self.source, status, None, Vec::new());
            let fields = WithResponse { response };
            self.write(FrameId::None, (kind, number), fields, out);
        }
    }

    /// Writes the events of one choice. An item starts before its first delta, and its contents are repeated before
    /// its last event.
    fn choice_event(&mut self, choice: usize, event: &Event<'_>, out: &mut FrameWriter<'_>) {
        let begins = self.tracks[choice].begins(event);
        if begins.is_some() {
            self.contents_done(choice, out);
            self.item_done(FrameId::None, choice, out);
        }
        // The start of a tool call has a position of its own.
        if let Some(item) = begins {
            let id = match item {
                Item::Call => FrameId::Position,
                Item::Message | Item::Reasoning => FrameId::None,
            };
            self.begin(id, (choice, item), event, out);
        }
        if self.tracks[choice].goes_on(event) {
            self.delta(choice, event, out);
        }
        if self.tracks[choice].ends(event) {
            self.contents_done(choice, out);
            self.item_done(FrameId::Position, choice, out);
        }
        if let Event::ChoiceEnded { .. } = event {
            self.ended[choice] = true;
        }
    }

    /// Writes the response's last event.
    fn last(&mut self, error: Option<&ApiError>, usage: Usage, out: &mut FrameWriter<'_>) {
        let answers = refold::answers(&self.source);
        for (choice, answer) in answers.iter().enumerate() {
            // The client received the end on an earlier connection.
            let is_over = matches!(answer.end, Some(End::Stop(_) | End::Length));
            if is_over && !self.ended[choice] {
                self.tracks[choice].end();
            }
        }
        let number = place::number(&self.tracks) + 1;
        let first = answers.first().and_then(|answer| answer.end);
        let status = error.map_or_else(|| Status::of(first), Status::of_error);
        let response = object::ended(&self.source, status, &answers, usage);
        let id = FrameId::Terminal(Closing::Done);
        self.write(id, (status.event(), number), WithResponse { response }, out);
    }
}

impl Encoder for ResponsesEncoder {
    fn encode(&mut self, event: &Event<'_>, out: &mut FrameWriter<'_>) {
        match event {
            Event::Queued { .. } | Event::Loading { .. } => comment_on_wait(event, out),
            Event::Opened { .. } => self.opened(out),
            Event::Finished { usage, .. } => self.last(None, *usage, out),
            Event::Failed { end, usage } => self.last(Some(&ending::error(*end)), *usage, out),
            Event::Rejected(error) => {
                let fields = ErrorFields {
                    code: error.code,
                    message: &error.message,
                    param: param(error),
                };
                self.write(FrameId::None, ("error", place::CREATED), fields, out);
            }
            _ => {
                if let Some(choice) = event.choice() {
                    self.choice_event(choice, event, out);
                }
            }
        }
    }

    /// Items that started before the client's position are open.
    fn replay(&mut self, event: &Event<'_>) {
        if let Event::Resumed { reached } = event {
            self.tracks = vec![Track::default(); reached.len()];
        }
        if let Some(choice) = event.choice() {
            self.tracks[choice].pass(event);
        }
    }

    fn collect(
        &self,
        answers: &[CollectedAnswer],
        _: &Tokenizer,
        usage: Usage,
        out: &mut BytesMut,
    ) {
        let status = Status::of(answers.first().and_then(|answer| answer.end));
        json::write(&object::ended(&self.source, status, answers, usage), out);
    }
}
