//! The encoder of completions (`POST /v1/completions`).

use crate::encoder::Encoder;
use crate::frame_writer::{FrameId, FrameWriter};
use crate::openai::chunk::{ChunkWriter, CompletionObject, optional_finish_reason};
use crate::openai::error_response::ErrorBody;
use crate::openai::logprobs::CompletionLogprobs;
use crate::schema::{self, ResponseSchemas};
use bytes::BytesMut;
use generate::output::collected::CollectedAnswer;
use generate::output::event::{DeltaKind, Event, Logprobs, Usage};
use generate::request::BestOf;
use generate::stream_source::StreamSource;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use stream::End;
use text::Tokenizer;

/// Schemas of completions. Chunks and non-streaming responses have the same fields.
pub(crate) const SCHEMAS: ResponseSchemas = ResponseSchemas {
    collected: schema::of::<CompletionObject<'static, CompletionChoice<'static>>>,
    event: schema::either::<CompletionObject<'static, CompletionChoice<'static>>, ErrorBody<'static>>,
    error: schema::of::<ErrorBody<'static>>,
};

/// The encoder of one completion.
pub(crate) struct CompletionEncoder {
    chunks: ChunkWriter,
    logprobs: bool,
    best: Option<BestOf>,
}

/// A choice of a chunk or of a non-streaming response.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Completion")]
pub(super) struct CompletionChoice<'a> {
    index: usize,
    text: &'a str,
    logprobs: Option<CompletionLogprobs<'a>>,
    finish_reason: Option<&'static str>,
}

impl CompletionEncoder {
    /// An encoder of this stream.
    pub(crate) fn new(source: &Arc<StreamSource>) -> Self {
        let meta = source.meta();
        let best = meta.stream_options.best_of;
        Self {
            chunks: ChunkWriter {
                source: Arc::clone(source),
                chunk: "text_completion",
                collected: "text_completion",
            },
            logprobs: best.map_or(meta.logprobs, |best| best.logprobs),
            best,
        }
    }

    /// The choices of a non-streaming response: all, or the likeliest ones of each prompt.
    fn returned_answers<'a>(&self, answers: &'a [CollectedAnswer]) -> Vec<&'a CollectedAnswer> {
        let Some(best) = self.best else {
            return answers.iter().collect();
        };
        let ranked_per_prompt = answers.chunks(best.generated).map(|answers| {
            let mut ranked: Vec<&CollectedAnswer> = answers.iter().collect();
            ranked.sort_by(|a, b| mean_logprob(b).total_cmp(&mean_logprob(a)));
            ranked.truncate(best.returned);
            ranked
        });
        ranked_per_prompt.flatten().collect()
    }

    fn completion_choice<'a>(
        &self,
        index: usize,
        text: &'a str,
        logprobs: Option<Logprobs<'a>>,
        end: Option<End>,
    ) -> CompletionChoice<'a> {
        let logprobs = logprobs.filter(|_| self.logprobs);
        CompletionChoice {
            index,
            text,
            logprobs: logprobs.map(CompletionLogprobs),
            finish_reason: optional_finish_reason(end),
        }
    }
}

impl Encoder for CompletionEncoder {
    /// This protocol has no opening frame, and no fields for the reasoning and the tool calls of a stream that was
    /// opened as a chat.
    fn encode(&mut self, event: &Event<'_>, out: &mut FrameWriter<'_>) {
        let (choice, usage) = match event {
            Event::Delta(delta) if delta.kind == DeltaKind::Reasoning => return,
            Event::Delta(delta) => {
                let at = &delta.origin;
                let choice = self.completion_choice(at.choice, delta.text, Some(at.logprobs), None);
                (choice, at.usage)
            }
            Event::ChoiceEnded {
                choice, end, usage, ..
            } => (
                self.completion_choice(*choice, "", None, Some(*end)),
                *usage,
            ),
            _ => return self.chunks.write_stream_event(event, out),
        };
        self.chunks
            .write_choice(FrameId::Position, choice, usage, out);
    }

    fn encode_collected(
        &self,
        answers: &[CollectedAnswer],
        tokenizer: &Tokenizer,
        usage: Usage,
        out: &mut BytesMut,
    ) {
        let answers = self.returned_answers(answers);
        let texts: Vec<_> = answers.iter().map(|answer| answer.text()).collect();
        let choices = answers.iter().zip(&texts).enumerate();
        let choices: Vec<_> = choices
            .map(|(index, (answer, text))| {
                self.completion_choice(index, text, Some(answer.logprobs(tokenizer)), answer.end)
            })
            .collect();
        self.chunks.encode_collected(&choices, usage, out);
    }
}

/// Mean log-probability of an answer's tokens. An empty answer ranks last.
fn mean_logprob(answer: &CollectedAnswer) -> f64 {
    let sum: f64 = answer
        .entries
        .iter()
        .map(|e| f64::from(e.token.logprob))
        .sum();
    match answer.entries.len() {
        0 => f64::NEG_INFINITY,
        n => sum / n as f64,
    }
}
