//! The encoder of responses (`POST /v1/responses`).

use super::output_item::{
    self, ErrorFields, ItemContents, ItemEvent, ItemId, LogprobList, Numbered, OutputItem,
    OutputPart, ResponseEvent, WithDelta, WithItem, WithPart, WithResponse,
};
use super::response_object::{self, ResponseObject, ResponseStatus};
use super::sequence_number::{self, ChoiceProgress, ItemKind};
use crate::cursor::TerminalMarker;
use crate::encoder::{Collected, Encoder, FrameId, FrameWriter, write_wait_comment};
use crate::json;
use crate::schema::{self, ResponseSchemas};
use crate::shared::error_response::{ErrorBody, first_invalid_field};
use crate::shared::finish_reason;
use crate::shared::tool_calls::CustomCalls;
use bytes::BytesMut;
use generate::error::ApiError;
use generate::output::choice_reader as refold;
use generate::output::collected::{AnswerPart, CollectedAnswer};
use generate::output::custom_input::input_of;
use generate::output::event::{Event, Logprobs, ToolCallPart, Usage};
use generate::stream_source::StreamSource;
use generate::tools::OfferedTool;
use serde::Serialize;
use std::sync::Arc;
use stream::End;

/// Schemas of the Responses API.
pub(crate) const SCHEMAS: ResponseSchemas = ResponseSchemas {
    collected: schema::of::<ResponseObject<'static>>,
    event: schema::of::<ResponseEvent<'static>>,
    error: schema::of::<ErrorBody<'static>>,
};

/// The encoder of one response. A response of this protocol has one choice; items of further choices, from a stream of
/// another protocol, are interleaved with those of the first.
pub struct ResponsesEncoder {
    source: Arc<StreamSource>,
    /// Progress of each choice.
    progress: Vec<ChoiceProgress>,
    /// Each choice as of its last collection.
    answers: Vec<CollectedAnswer>,
    /// Choices whose end was encoded.
    ended: Vec<bool>,
    custom_calls: CustomCalls,
    /// Sequence number of the last event that the client has received.
    after: Option<u64>,
}

impl ResponsesEncoder {
    /// An encoder of this stream.
    pub fn new(source: &Arc<StreamSource>) -> Self {
        let choices = source.meta().choices;
        Self {
            source: Arc::clone(source),
            progress: vec![ChoiceProgress::default(); choices],
            answers: std::iter::repeat_with(CollectedAnswer::default)
                .take(choices)
                .collect(),
            ended: vec![false; choices],
            custom_calls: CustomCalls::new(choices),
            after: None,
        }
    }

    /// The encoder for a client that has received all events up to this number.
    pub fn resume_after(self, number: Option<u64>) -> Self {
        Self {
            after: number,
            ..self
        }
    }

    /// Writes an event, unless the client has received the event.
    fn write_event<T: Serialize>(
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
        out.write_frame(id, Some(kind), &event);
    }

    /// Output index of a choice's last item. With several choices the indices of their items are disjoint and do not
    /// depend on the order of events.
    fn item_index(&self, choice: usize) -> usize {
        let before = self.progress[choice].items.saturating_sub(1);
        choice + self.progress.len() * before
    }

    fn item_id(&self, choice: usize, item: ItemKind) -> ItemId {
        ItemId {
            item,
            is_custom: item == ItemKind::Call && self.custom_calls.new_input(choice).is_some(),
            stream: self.source.meta().id,
            index: self.item_index(choice),
        }
    }

    /// Writes an event that names a choice's last item.
    fn write_item_event<T: Serialize>(
        &self,
        id: FrameId,
        kind: &'static str,
        (choice, item): (usize, ItemKind),
        fields: T,
        out: &mut FrameWriter<'_>,
    ) {
        let item_id = self.item_id(choice, item);
        let item_event = ItemEvent {
            output_index: item_id.index,
            item_id,
            content_index: (item != ItemKind::Call).then_some(0),
            fields,
        };
        self.write_event(
            id,
            (kind, sequence_number::sequence_number(&self.progress)),
            item_event,
            out,
        );
    }

    /// Writes an event that contains an output item.
    fn write_output_item(
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
        self.write_event(
            id,
            (kind, sequence_number::sequence_number(&self.progress)),
            fields,
            out,
        );
    }

    fn start_item(
        &mut self,
        id: FrameId,
        (choice, item): (usize, ItemKind),
        event: &Event<'_>,
        out: &mut FrameWriter<'_>,
    ) {
        self.progress[choice].start_item(item);
        self.progress[choice].count_event();
        let item_id = self.item_id(choice, item);
        let begun = output_item::started_item(item_id, event, self.offered_tools());
        let added = "response.output_item.added";
        self.write_output_item(id, added, begun, item_id.index, out);
        if item == ItemKind::Call {
            return;
        }
        self.progress[choice].count_event();
        let part = OutputPart::new(item, "", None);
        let added = "response.content_part.added";
        self.write_item_event(FrameId::None, added, (choice, item), WithPart { part }, out);
    }

    /// Tools that the client gave in another form than the model's.
    fn offered_tools(&self) -> &[OfferedTool] {
        &self.source.meta().stream_options.offered_tools
    }

    /// Follows the calls of custom tools.
    fn follow_call(&mut self, event: &Event<'_>) {
        if let Event::ToolCall(call) = event {
            let tools = &self.source.meta().stream_options.offered_tools;
            self.custom_calls.follow(tools, call);
        }
    }

    /// Writes the input in the last arguments of a custom tool's call, if they had any. The input of arguments in another
    /// form than the decoder's comes with the event that repeats it.
    fn write_input(&self, choice: usize, input: &str, out: &mut FrameWriter<'_>) {
        if !input.is_empty() {
            let delta = WithDelta {
                delta: input,
                logprobs: None,
            };
            let kind = "response.custom_tool_call_input.delta";
            self.write_item_event(
                FrameId::Position,
                kind,
                (choice, ItemKind::Call),
                delta,
                out,
            );
        }
    }

    fn write_delta(&mut self, choice: usize, event: &Event<'_>, out: &mut FrameWriter<'_>) {
        let Some(item) = self.progress[choice].open else {
            return;
        };
        if let Some(position) = event.position() {
            self.progress[choice].count_delta(position);
        }
        if let (ItemKind::Call, Some(input)) = (item, self.custom_calls.new_input(choice)) {
            return self.write_input(choice, input, out);
        }
        let (text, list) = match event {
            Event::Delta(delta) => (delta.text, Some(delta.origin.logprobs)),
            Event::ToolCall(call) => match call.part {
                ToolCallPart::Args(fragment) => (fragment, None),
                ToolCallPart::Start { .. } | ToolCallPart::End => return,
            },
            _ => return,
        };
        let list = list.filter(|_| self.source.meta().logprobs);
        let delta = WithDelta {
            delta: text,
            logprobs: (item == ItemKind::Message).then_some(LogprobList(list)),
        };
        let kind = match item {
            ItemKind::Message => "response.output_text.delta",
            ItemKind::Reasoning => "response.reasoning_text.delta",
            ItemKind::Call => "response.function_call_arguments.delta",
        };
        self.write_item_event(FrameId::Position, kind, (choice, item), delta, out);
    }

    /// Repeats the contents of the open item, before its last event.
    fn write_contents_done(&mut self, choice: usize, out: &mut FrameWriter<'_>) {
        let Some(item) = self.progress[choice].open else {
            return;
        };
        self.collect_last_item(choice);
        self.progress[choice].count_event();
        let is_custom = self.item_id(choice, item).is_custom;
        let kind = match item {
            ItemKind::Message => "response.output_text.done",
            ItemKind::Reasoning => "response.reasoning_text.done",
            ItemKind::Call if is_custom => "response.custom_tool_call_input.done",
            ItemKind::Call => "response.function_call_arguments.done",
        };
        let place = (choice, item);
        let list = || {
            self.item_logprobs(choice)
                .filter(|_| item == ItemKind::Message)
        };
        let contents = match self.last_part(choice) {
            Some(AnswerPart::Call(call)) if is_custom => ItemContents::CustomCall {
                input: input_of(&call.arguments),
            },
            Some(AnswerPart::Call(call)) => ItemContents::Call {
                name: &call.name,
                arguments: &call.arguments,
            },
            part => ItemContents::Text {
                text: output_item::part_text(part),
                logprobs: (item == ItemKind::Message).then(|| LogprobList(list())),
            },
        };
        self.write_item_event(FrameId::None, kind, place, contents, out);
        if item == ItemKind::Call {
            return;
        }
        self.progress[choice].count_event();
        let list = self
            .item_logprobs(choice)
            .filter(|_| item == ItemKind::Message);
        let part = OutputPart::new(item, output_item::part_text(self.last_part(choice)), list);
        let done = "response.content_part.done";
        self.write_item_event(FrameId::None, done, place, WithPart { part }, out);
    }

    fn write_item_done(&mut self, id: FrameId, choice: usize, out: &mut FrameWriter<'_>) {
        let Some(item) = self.progress[choice].open.take() else {
            return;
        };
        self.progress[choice].count_event();
        let at = self.progress[choice].items.saturating_sub(1);
        // An ended item is not in progress.
        let status = match output_item::item_status(&self.answers[choice], at) {
            "in_progress" => "incomplete",
            status => status,
        };
        let item_id = self.item_id(choice, item);
        let done = output_item::output_item(
            item_id,
            self.last_part(choice),
            self.offered_tools(),
            status,
            self.item_logprobs(choice),
        );
        let kind = "response.output_item.done";
        self.write_output_item(id, kind, done, item_id.index, out);
    }

    /// Collects a choice up to its last item, which is complete once a later item or the end of the choice is known.
    fn collect_last_item(&mut self, choice: usize) {
        let answer = &self.answers[choice];
        if answer.end.is_none() && answer.parts.len() <= self.progress[choice].items {
            self.answers[choice] = refold::answer(&self.source, choice);
        }
    }

    /// Output of a choice's last item; `None` for an empty item.
    fn last_part(&self, choice: usize) -> Option<&AnswerPart> {
        let at = self.progress[choice].items.checked_sub(1)?;
        self.answers[choice].parts.get(at)
    }

    fn item_logprobs(&self, choice: usize) -> Option<Logprobs<'_>> {
        let started = self.source.started()?;
        let at = self.progress[choice].items.checked_sub(1)?;
        output_item::message_logprobs(&self.answers[choice], at, &started.tokenizer)
    }

    fn write_opened(&self, out: &mut FrameWriter<'_>) {
        for (number, kind) in
            (sequence_number::CREATED..).zip(["response.created", "response.in_progress"])
        {
            let status = ResponseStatus::InProgress;
            let response = response_object::response_object(&self.source, status, None, Vec::new());
            let fields = WithResponse { response };
            self.write_event(FrameId::None, (kind, number), fields, out);
        }
    }

    /// Writes the events of one choice. An item starts before its first delta, and its contents are repeated before
    /// its last event.
    fn write_choice_event(&mut self, choice: usize, event: &Event<'_>, out: &mut FrameWriter<'_>) {
        let begins = self.progress[choice].starting_item(event);
        if begins.is_some() {
            self.write_contents_done(choice, out);
            self.write_item_done(FrameId::None, choice, out);
        }
        self.follow_call(event);
        // The start of a tool call has a position of its own.
        if let Some(item) = begins {
            let id = match item {
                ItemKind::Call => FrameId::Position,
                ItemKind::Message | ItemKind::Reasoning => FrameId::None,
            };
            self.start_item(id, (choice, item), event, out);
        }
        if self.progress[choice].continues_item(event) {
            self.write_delta(choice, event, out);
        }
        if self.progress[choice].ends_item(event) {
            self.write_contents_done(choice, out);
            self.write_item_done(FrameId::Position, choice, out);
        }
        if let Event::ChoiceEnded { .. } = event {
            self.ended[choice] = true;
        }
    }

    /// Writes the response's last event.
    fn write_last(&mut self, error: Option<&ApiError>, usage: Usage, out: &mut FrameWriter<'_>) {
        let answers = refold::answers(&self.source);
        for (choice, answer) in answers.iter().enumerate() {
            // The client received the end on an earlier connection.
            let is_over = matches!(answer.end, Some(End::Stop(_) | End::Length));
            if is_over && !self.ended[choice] {
                self.progress[choice].count_end();
            }
        }
        let number = sequence_number::sequence_number(&self.progress) + 1;
        let first = answers.first().and_then(|answer| answer.end);
        let status = error.map_or_else(|| ResponseStatus::of(first), ResponseStatus::of_error);
        let response = response_object::ended_response(&self.source, status, &answers, usage);
        let id = FrameId::Terminal(TerminalMarker::Done);
        self.write_event(
            id,
            (status.end_event(), number),
            WithResponse { response },
            out,
        );
    }
}

impl Encoder for ResponsesEncoder {
    fn encode(&mut self, event: &Event<'_>, out: &mut FrameWriter<'_>) {
        match event {
            Event::Queued { .. } | Event::Loading { .. } | Event::Image { .. } => {
                write_wait_comment(event, out);
            }
            Event::Opened { .. } => self.write_opened(out),
            Event::Finished { usage, .. } => self.write_last(None, *usage, out),
            Event::Failed { end, usage } => {
                self.write_last(Some(&finish_reason::end_error(*end)), *usage, out);
            }
            Event::Rejected(error) => {
                let fields = ErrorFields {
                    code: error.code,
                    message: &error.message,
                    param: first_invalid_field(error),
                };
                self.write_event(
                    FrameId::None,
                    ("error", sequence_number::CREATED),
                    fields,
                    out,
                );
            }
            _ => {
                if let Some(choice) = event.choice() {
                    self.write_choice_event(choice, event, out);
                }
            }
        }
    }

    /// Items that started before the client's position are open.
    fn replay_event(&mut self, event: &Event<'_>) {
        if let Event::Resumed { positions } = event {
            self.progress = vec![ChoiceProgress::default(); positions.len()];
        }
        if let Some(choice) = event.choice() {
            self.progress[choice].count_frames(event);
            self.follow_call(event);
        }
    }

    fn encode_collected(&self, collected: Collected<'_>, out: &mut BytesMut) {
        let Collected { answers, usage, .. } = collected;
        let status = ResponseStatus::of(answers.first().and_then(|answer| answer.end));
        json::write(
            &response_object::ended_response(&self.source, status, answers, usage),
            out,
        );
    }
}
