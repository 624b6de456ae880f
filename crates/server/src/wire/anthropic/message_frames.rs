//! `POST /v1/messages`: from events to bytes.

use super::content::{self, Block};
use super::{ending, refusal};
use crate::wire::dialect::Dialect;
use crate::wire::json;
use crate::wire::openai::chunk::{self, Naming};
use bytes::BytesMut;
use generate::error::ApiError;
use generate::output::collected::Answer;
use generate::output::event::{CallPart, Event, Kind, Usage};
use generate::output::position::Position;
use stream::End;
use text::Tokenizer;

/// The writer of one message.
pub(crate) struct Messages {
    /// `"id":..,"type":"message","role":"assistant","model":..`
    naming: Vec<u8>,
    stops: Vec<String>,
    /// Of each choice.
    blocks: Vec<Blocks>,
    /// How the first choice ended: that is how the message did.
    ended: Option<End>,
}

/// The blocks of a choice.
#[derive(Clone, Copy, Default)]
struct Blocks {
    /// The one that is open.
    open: Option<Block>,
    /// How many have begun.
    begun: usize,
}

impl Blocks {
    /// Whether what comes has to begin another.
    fn needs(self, block: Block) -> bool {
        self.open != Some(block)
    }

    fn begin(&mut self, block: Block) {
        self.open = Some(block);
        self.begun += 1;
    }
}

impl Messages {
    /// Renders what is constant.
    pub(crate) fn new(naming: &Naming<'_>, stops: &[String]) -> Self {
        let mut out = BytesMut::new();
        json::raw(&mut out, "\"id\":");
        json::string(&mut out, naming.id);
        json::raw(
            &mut out,
            ",\"type\":\"message\",\"role\":\"assistant\",\"model\":",
        );
        json::string(&mut out, naming.model);
        Self {
            naming: out.to_vec(),
            stops: stops.to_vec(),
            blocks: vec![Blocks::default()],
            ended: None,
        }
    }

    fn has_several(&self) -> bool {
        self.blocks.len() > 1
    }

    /// Which block an event is of, if any.
    fn block(event: &Event<'_>) -> Option<Block> {
        match event {
            Event::Delta(delta) if delta.text.is_empty() => None,
            Event::Delta(delta) => Some(match delta.kind {
                Kind::Text => Block::Text,
                Kind::Reasoning => Block::Thinking,
            }),
            Event::Call(call) => Some(Block::ToolUse(call.index)),
            Event::End { .. } => None,
        }
    }

    /// The index of a choice's open block. Blocks of several choices do not get in each other's way,
    /// whichever comes first.
    fn index(&self, choice: usize) -> usize {
        let begun = self.blocks[choice].begun;
        choice + self.blocks.len() * begun.saturating_sub(1)
    }

    /// Ends a block of thinking as this format does. In a frame of its own: what has no mark is told again.
    fn sign(&self, choice: usize, out: &mut BytesMut) {
        if self.blocks[choice].open == Some(Block::Thinking) {
            begin_block("content_block_delta", self.index(choice), out);
            content::write_signature(out);
            finish(out);
        }
    }

    fn stop_block(&mut self, choice: usize, reason: Option<End>, out: &mut BytesMut) {
        let index = self.index(choice);
        if self.blocks[choice].open.take().is_some() {
            begin_block("content_block_stop", index, out);
            if reason.is_some() {
                json::raw(out, ",");
                Self::reason(reason, out);
            }
            finish(out);
        }
    }

    /// `"stop_reason":..`, of what ended well.
    fn reason(end: Option<End>, out: &mut BytesMut) {
        json::raw(out, "\"stop_reason\":");
        match end.map(ending::spell) {
            Some(Ok(ending)) => json::string(out, ending.reason),
            Some(Err(_)) | None => json::raw(out, "null"),
        }
    }

    /// `"stop_reason":..,"stop_sequence":..`
    fn stop(&self, end: Option<End>, out: &mut BytesMut) {
        Self::reason(end, out);
        json::raw(out, ",\"stop_sequence\":");
        let index = end
            .and_then(|end| ending::spell(end).ok())
            .and_then(|it| it.stop);
        match index.and_then(|index| self.stops.get(usize::from(index))) {
            Some(stop) => json::string(out, stop),
            None => json::raw(out, "null"),
        }
    }

    /// The end so far, and all counts.
    fn message_delta(&self, end: Option<End>, usage: Usage, out: &mut BytesMut) {
        begin("message_delta", out);
        json::raw(out, ",\"delta\":{");
        self.stop(end, out);
        json::raw(out, "},\"usage\":");
        write_usage(usage, out);
        finish(out);
    }
}

impl Dialect for Messages {
    fn open(&mut self, choices: usize, usage: Usage, out: &mut BytesMut) {
        self.blocks = vec![Blocks::default(); choices];
        begin("message_start", out);
        json::raw(out, ",\"message\":{");
        out.extend_from_slice(&self.naming);
        json::raw(out, ",\"content\":[],");
        self.stop(None, out);
        json::raw(out, ",\"usage\":");
        write_usage(usage, out);
        json::raw(out, "}");
        finish(out);
    }

    fn resume(&mut self, reached: &[Position]) {
        self.blocks = vec![Blocks::default(); reached.len()];
    }

    /// What the client has seen begin, it has.
    fn known(&mut self, event: &Event<'_>) {
        let blocks = &mut self.blocks[event.choice()];
        if let Some(block) = Self::block(event).filter(|&block| blocks.needs(block)) {
            blocks.begin(block);
        }
        if matches!(event, Event::Call(call) if call.said == CallPart::End) {
            blocks.open = None;
        }
    }

    fn opening(&mut self, event: &Event<'_>, out: &mut BytesMut) {
        let choice = event.choice();
        let several = self.has_several();
        let block = match event {
            // One of several choices has a block, whatever it says.
            Event::End { .. } => {
                Some(Block::Text).filter(|_| several && self.blocks[choice].begun == 0)
            }
            _ => Self::block(event),
        };
        if matches!(event, Event::End { .. }) {
            self.sign(choice, out);
        }
        let Some(block) = block.filter(|&block| self.blocks[choice].needs(block)) else {
            return;
        };
        self.sign(choice, out);
        self.stop_block(choice, None, out);
        self.blocks[choice].begin(block);
        begin_block("content_block_start", self.index(choice), out);
        json::raw(out, ",\"content_block\":");
        content::write_start(event, out);
        finish(out);
    }

    fn event(&mut self, event: &Event<'_>, out: &mut BytesMut) {
        let choice = event.choice();
        match event {
            Event::Delta(delta) if delta.text.is_empty() => {}
            Event::Delta(delta) => {
                begin_block("content_block_delta", self.index(choice), out);
                content::write_text(delta.kind, delta.text, out);
                finish(out);
            }
            Event::Call(call) => match call.said {
                CallPart::Start { .. } | CallPart::Args(_) => {
                    begin_block("content_block_delta", self.index(choice), out);
                    content::write_input(call.said, out);
                    finish(out);
                }
                CallPart::End => self.stop_block(choice, None, out),
            },
            Event::End { end, .. } => {
                let reason = Some(*end).filter(|_| self.has_several());
                self.stop_block(choice, reason, out);
            }
        }
    }

    fn ended_well(&mut self, first: End) {
        self.ended = Some(first);
    }

    fn usage(&mut self, usage: Usage, out: &mut BytesMut) {
        self.message_delta(self.ended, usage, out);
    }

    fn usage_so_far(&mut self, _end: End, usage: Usage, out: &mut BytesMut) {
        self.message_delta(None, usage, out);
    }

    fn close(&mut self, _usage: Usage, out: &mut BytesMut) {
        begin("message_stop", out);
        finish(out);
    }

    fn fail(&mut self, end: End, _usage: Usage, out: &mut BytesMut) {
        self.refuse(&ending::refusal(end), out);
    }

    fn refuse(&mut self, error: &ApiError, out: &mut BytesMut) {
        json::raw(out, "event: error\ndata: ");
        refusal::write(error, out);
        json::raw(out, "\n\n");
    }

    fn queued(&self, position: usize, out: &mut BytesMut) {
        chunk::queued(position, out);
    }

    fn ping(&self, out: &mut BytesMut) {
        begin("ping", out);
        finish(out);
    }

    fn whole(&self, answers: &[Answer], _: &Tokenizer, usage: Usage, out: &mut BytesMut) {
        json::raw(out, "{");
        out.extend_from_slice(&self.naming);
        json::raw(out, ",\"content\":[");
        let pieces = answers.iter().flat_map(|answer| &answer.pieces);
        for (i, piece) in pieces.enumerate() {
            json::raw(out, if i == 0 { "" } else { "," });
            content::write_whole(piece, out);
        }
        json::raw(out, "],");
        self.stop(answers.first().and_then(|answer| answer.end), out);
        json::raw(out, ",\"usage\":");
        write_usage(usage, out);
        json::raw(out, "}");
    }

    fn refusal(&self, end: End) -> ApiError {
        ending::refusal(end)
    }
}

/// Begins an event: its name, twice, as clients want it.
fn begin(kind: &str, out: &mut BytesMut) {
    json::raw(out, "event: ");
    json::raw(out, kind);
    json::raw(out, "\ndata: {\"type\":\"");
    json::raw(out, kind);
    json::raw(out, "\"");
}

fn begin_block(kind: &str, index: usize, out: &mut BytesMut) {
    begin(kind, out);
    json::raw(out, ",\"index\":");
    json::integer(out, index as u64);
}

fn finish(out: &mut BytesMut) {
    json::raw(out, "}\n\n");
}

/// `input_tokens` are those that were computed: what was found in the cache is counted by itself.
fn write_usage(usage: Usage, out: &mut BytesMut) {
    let counts = [
        (
            "{\"input_tokens\":",
            usage.prompt_tokens.saturating_sub(usage.cached_tokens),
        ),
        (",\"cache_creation_input_tokens\":", 0),
        (",\"cache_read_input_tokens\":", usage.cached_tokens),
        (",\"output_tokens\":", usage.completion_tokens),
    ];
    for (name, count) in counts {
        json::raw(out, name);
        json::integer(out, count);
    }
    json::raw(out, ",\"service_tier\":\"standard\"}");
}
