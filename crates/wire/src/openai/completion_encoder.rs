//! The encoder of completions (`POST /v1/completions`).

use crate::encoder::{Collected, Encoder, FrameId, FrameWriter};
use crate::openai::chunk::{ChunkWriter, CompletionObject, optional_finish_reason};
use crate::schema::{self, ResponseSchemas};
use crate::shared::error_response::ErrorBody;
use crate::shared::logprobs::{CompletionLogprobs, TokenIds, all_ids, prompt_ids};
use bytes::BytesMut;
use generate::output::collected::CollectedAnswer;
use generate::output::event::{DeltaKind, Event, Logprobs, Usage};
use generate::request::BestOf;
use generate::stream_source::StreamSource;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use stream::End;

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
    /// `None`: the request does not want ids.
    ids: Option<TokenIds>,
}

/// A choice of a chunk or of a non-streaming response.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Completion")]
pub(super) struct CompletionChoice<'a> {
    index: usize,
    text: &'a str,
    logprobs: Option<CompletionLogprobs<'a>>,
    finish_reason: Option<&'static str>,
    /// Ids of the tokens, with `return_token_ids`; in a chunk those that are new.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<&'a [u32]>,
    /// Ids of the prompt, with `return_token_ids`; in the first chunk of the choice only.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<&'a [u32]>,
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
            ids: TokenIds::new(source),
        }
    }

    /// The choices of a non-streaming response with their numbers: all, or the likeliest ones of each prompt.
    fn returned_answers<'a>(
        &self,
        answers: &'a [CollectedAnswer],
    ) -> Vec<(usize, &'a CollectedAnswer)> {
        let numbered: Vec<_> = answers.iter().enumerate().collect();
        let Some(best) = self.best else {
            return numbered;
        };
        let ranked_per_prompt = numbered.chunks(best.generated).map(|answers| {
            let mut ranked = answers.to_vec();
            ranked.sort_by(|(_, a), (_, b)| mean_logprob(b).total_cmp(&mean_logprob(a)));
            ranked.truncate(best.returned);
            ranked
        });
        ranked_per_prompt.flatten().collect()
    }

    /// The choice of a chunk, of which the client then has the log up to item `read`.
    fn write_choice(
        &mut self,
        choice: CompletionChoice<'_>,
        read: u64,
        usage: Usage,
        out: &mut FrameWriter<'_>,
    ) {
        let mut choice: CompletionChoice<'_> = choice;
        let source = &self.chunks.source;
        if let Some(ids) = &mut self.ids {
            let is_first = ids.tells_prompt(choice.index);
            choice.prompt_token_ids = prompt_ids(source, choice.index).filter(|_| is_first);
            choice.token_ids = Some(ids.new_ids(source, choice.index, read));
        }
        self.chunks
            .write_choice(FrameId::Position, choice, usage, out);
    }
}

/// A choice without token ids.
fn completion_choice<'a>(
    index: usize,
    text: &'a str,
    logprobs: Option<Logprobs<'a>>,
    end: Option<End>,
) -> CompletionChoice<'a> {
    CompletionChoice {
        index,
        text,
        logprobs: logprobs.map(CompletionLogprobs),
        finish_reason: optional_finish_reason(end),
        token_ids: None,
        prompt_token_ids: None,
    }
}

impl Encoder for CompletionEncoder {
    /// This protocol has no opening frame, and no fields for the reasoning and the tool calls of a stream that was
    /// opened as a chat.
    fn encode(&mut self, event: &Event<'_>, out: &mut FrameWriter<'_>) {
        match event {
            Event::Delta(delta) if delta.kind == DeltaKind::Reasoning => {}
            Event::Delta(delta) => {
                let at = &delta.origin;
                let logprobs = self.logprobs.then_some(at.logprobs);
                let choice = completion_choice(at.choice, delta.text, logprobs, None);
                self.write_choice(choice, at.first + at.tokens, at.usage, out);
            }
            Event::ChoiceEnded {
                choice, end, usage, ..
            } => {
                let choice = completion_choice(*choice, "", None, Some(*end));
                self.write_choice(choice, u64::MAX, *usage, out);
            }
            _ => {
                if let Some(ids) = &mut self.ids {
                    ids.note_resumption(&self.chunks.source, event);
                }
                self.chunks.write_stream_event(event, out);
            }
        }
    }

    fn encode_collected(&self, collected: Collected<'_>, out: &mut BytesMut) {
        let Collected {
            answers,
            tokenizer,
            usage,
        } = collected;
        let answers = self.returned_answers(answers);
        let source = &self.chunks.source;
        let texts = answers.iter().map(|(number, answer)| {
            let ids = all_ids(source, *number);
            (answer.text(), ids)
        });
        let texts: Vec<_> = texts.collect();
        let choices = answers.iter().zip(&texts).enumerate();
        let choices: Vec<_> = choices
            .map(|(index, ((number, answer), (text, ids)))| {
                let logprobs = self.logprobs.then(|| answer.logprobs(tokenizer));
                CompletionChoice {
                    token_ids: ids.as_deref(),
                    prompt_token_ids: prompt_ids(source, *number),
                    ..completion_choice(index, text, logprobs, answer.end)
                }
            })
            .collect();
        self.chunks.encode_collected(&choices, None, usage, out);
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
