//! The encoder of `POST /completion` and `POST /infill`.

use crate::cursor::TerminalMarker;
use crate::encoder::{Collected, Encoder, FrameId, FrameWriter, write_wait_comment};
use crate::json::{self, List, LogProb, Lossy};
use crate::schema::{self, ResponseSchemas, written_as};
use crate::shared::error_response::ErrorBody;
use crate::shared::finish_reason;
use crate::shared::logprobs::{TokenIds, all_ids, prompt_ids, token_bytes};
use crate::shared::timings::Timings;
use crate::shared::vision_proxy::VisionProxyUsage;
use bytes::BytesMut;
use engine::EndingToken;
use generate::model_handle::{DetokenizeOptions, detokenize};
use generate::output::event::{Delta, DeltaKind, Event, Logprobs, Usage};
use generate::sampling::ReportedSampling;
use generate::sampling::SamplingDefaults;
use generate::stream_source::StreamMeta;
use generate::stream_source::StreamSource;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use std::sync::Arc;
use stream::{End, Stop};
use text::Tokenizer;

/// Schemas of `/completion` and `/infill`.
pub(crate) const SCHEMAS: ResponseSchemas = ResponseSchemas {
    collected: schema::of::<ResultObject<'static>>,
    event: llama_event,
    error: schema::of::<ErrorBody<'static>>,
};

fn llama_event(generator: &mut SchemaGenerator) -> Schema {
    schema::any_of([
        schema::of::<TextObject<'static>>(generator),
        schema::of::<ResultObject<'static>>(generator),
        schema::of::<ErrorBody<'static>>(generator),
    ])
}

/// The encoder of one answer. A stream of another protocol may have several choices, which `index` names; its
/// reasoning and its tool calls have no place here.
pub(crate) struct LlamaEncoder {
    source: Arc<StreamSource>,
    /// `None`: no ids of tokens are returned.
    ids: Option<TokenIds>,
    /// Whether the text of each choice has a line end so far.
    has_new_line: Vec<bool>,
}

/// Facts about a choice at its end.
struct EndedChoice<'a> {
    index: usize,
    content: &'a str,
    tokens: &'a [u32],
    has_new_line: bool,
    end: End,
    usage: Usage,
    predicted: u64,
    probabilities: Option<TokenProbabilities<'a>>,
}

impl LlamaEncoder {
    /// An encoder of this stream.
    pub(crate) fn new(source: &Arc<StreamSource>) -> Self {
        Self {
            source: Arc::clone(source),
            ids: TokenIds::new(source),
            has_new_line: vec![false; source.meta().choices],
        }
    }

    fn note_text(&mut self, delta: &Delta<'_>) {
        if let Some(noted) = self.has_new_line.get_mut(delta.origin.choice) {
            *noted |= delta.text.contains('\n');
        }
    }

    fn write_text(&mut self, delta: &Delta<'_>, out: &mut FrameWriter<'_>) {
        let at = &delta.origin;
        self.note_text(delta);
        let (told, meta) = (at.first + at.tokens, self.source.meta());
        let tokens = match &mut self.ids {
            Some(ids) => ids.new_ids(&self.source, at.choice, told),
            None => &[],
        };
        let object = TextObject {
            index: at.choice,
            content: delta.text,
            tokens,
            stop: false,
            id_slot: 0,
            tokens_predicted: told,
            tokens_evaluated: at.usage.prompt_tokens,
            timings: (meta.stream_options.timings).then(|| Timings::of(meta.arrived, at.usage)),
            completion_probabilities: (meta.logprobs)
                .then_some(TokenProbabilities::of_text(at.logprobs)),
        };
        out.write_frame(FrameId::Position, None, &object);
    }

    /// Passes the last object of a choice to `write`.
    fn with_result<T>(
        &self,
        choice: &EndedChoice<'_>,
        write: impl FnOnce(&ResultObject<'_>) -> T,
    ) -> T {
        let (meta, usage) = (self.source.meta(), choice.usage);
        let (stop_type, stopping_word) = stop_type(choice.end, &meta.stops);
        let prompt = self.prompt_text(choice.index);
        write(&ResultObject {
            index: choice.index,
            content: choice.content,
            tokens: choice.tokens,
            id_slot: 0,
            stop: true,
            model: &meta.model,
            tokens_predicted: choice.predicted,
            tokens_evaluated: usage.prompt_tokens,
            generation_settings: GenerationSettings::of(meta),
            prompt: &prompt,
            has_new_line: choice.has_new_line,
            truncated: false,
            stop_type,
            stopping_word,
            tokens_cached: usage.prompt_tokens + usage.completion_tokens,
            timings: Timings::of(meta.arrived, usage),
            vision_proxy: VisionProxyUsage::of(&self.source),
            completion_probabilities: choice.probabilities,
        })
    }

    /// The token that ended the answer, if log-probabilities are returned and an end-of-sequence token did.
    fn ending(&self) -> Option<&EndingToken> {
        let request = self.source.started()?.requests.first()?;
        let is_only = self.source.meta().choices == 1;
        request.progress.ending().filter(|_| is_only)
    }

    /// The entry of the token that ended a streamed answer: no text goes with it.
    fn ending_probabilities(&self) -> Option<TokenProbabilities<'_>> {
        let tokenizer = &self.source.started()?.tokenizer;
        let ending = self.ending().filter(|_| self.source.meta().logprobs)?;
        let logprobs = Logprobs {
            tokenizer,
            entries: &[],
            top: &[],
            top_n: 0,
        };
        Some(TokenProbabilities {
            logprobs,
            ending: Some(ending),
        })
    }

    /// The prompt with the texts of control tokens, where its ids are kept.
    fn prompt_text(&self, choice: usize) -> String {
        let ids = prompt_ids(&self.source, choice);
        let (Some(ids), Some(started)) = (ids, self.source.started()) else {
            return String::new();
        };
        let options = DetokenizeOptions {
            at_text_start: true,
            control_texts: true,
            bytes_max: usize::MAX,
        };
        detokenize(&started.tokenizer, ids, options).unwrap_or_default()
    }
}

impl Encoder for LlamaEncoder {
    fn encode(&mut self, event: &Event<'_>, out: &mut FrameWriter<'_>) {
        match event {
            Event::Delta(delta) if delta.kind == DeltaKind::Text => self.write_text(delta, out),
            Event::ChoiceEnded {
                choice,
                end,
                usage,
                tokens,
                ..
            } => {
                let ended = EndedChoice {
                    index: *choice,
                    content: "",
                    tokens: &[],
                    has_new_line: self.has_new_line.get(*choice).copied().unwrap_or(false),
                    end: *end,
                    usage: *usage,
                    predicted: *tokens,
                    probabilities: self.ending_probabilities(),
                };
                self.with_result(&ended, |result| {
                    out.write_frame(FrameId::Position, None, result);
                });
            }
            Event::Failed { end, .. } => {
                let error = finish_reason::end_error(*end);
                let id = FrameId::Terminal(TerminalMarker::Done);
                out.write_frame(id, None, &ErrorBody::new(&error));
            }
            Event::Rejected(error) => out.write_frame(FrameId::None, None, &ErrorBody::new(error)),
            Event::Queued { .. } | Event::Loading { .. } | Event::Image { .. } => {
                write_wait_comment(event, out);
            }
            _ => {
                if let Some(ids) = &mut self.ids {
                    ids.note_resumption(&self.source, event);
                }
            }
        }
    }

    fn replay_event(&mut self, event: &Event<'_>) {
        match event {
            Event::Delta(delta) if delta.kind == DeltaKind::Text => self.note_text(delta),
            _ => {}
        }
    }

    fn encode_collected(&self, collected: Collected<'_>, out: &mut BytesMut) {
        let Collected {
            answers,
            tokenizer,
            usage,
        } = collected;
        // A request of these protocols has one choice.
        let Some(answer) = answers.first() else {
            return;
        };
        let text = answer.text();
        let tokens = all_ids(&self.source, 0).unwrap_or_default();
        let ended = EndedChoice {
            index: 0,
            content: &text,
            tokens: &tokens,
            has_new_line: text.contains('\n'),
            end: answer.end.unwrap_or(End::Lost),
            usage,
            predicted: usage.completion_tokens,
            probabilities: (self.source.meta().logprobs).then(|| TokenProbabilities {
                logprobs: answer.logprobs(tokenizer),
                ending: self.ending(),
            }),
        };
        self.with_result(&ended, |result| json::write(result, out));
    }
}

/// An object of a stream with text.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "LlamaText")]
struct TextObject<'a> {
    index: usize,
    content: &'a str,
    tokens: &'a [u32],
    stop: bool,
    /// Always 0: there are no slots.
    id_slot: u32,
    tokens_predicted: u64,
    tokens_evaluated: u64,
    /// With `timings_per_token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    timings: Option<Timings>,
    /// With `n_probs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    completion_probabilities: Option<TokenProbabilities<'a>>,
}

/// The last object of a stream, or a non-streaming response.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "LlamaResult")]
struct ResultObject<'a> {
    index: usize,
    content: &'a str,
    tokens: &'a [u32],
    /// Always 0: there are no slots.
    id_slot: u32,
    stop: bool,
    model: &'a str,
    tokens_predicted: u64,
    tokens_evaluated: u64,
    generation_settings: GenerationSettings<'a>,
    /// The text of the prompt, where the ids of tokens are returned.
    prompt: &'a str,
    has_new_line: bool,
    truncated: bool,
    stop_type: &'static str,
    stopping_word: &'a str,
    tokens_cached: u64,
    timings: Timings,
    /// The model that described images, where one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    vision_proxy: Option<VisionProxyUsage<'a>>,
    /// With `n_probs`: of a non-streaming response all, of a stream that of the end-of-sequence token.
    #[serde(skip_serializing_if = "Option::is_none")]
    completion_probabilities: Option<TokenProbabilities<'a>>,
}

/// The `stop_type` of an end, and the stop string.
fn stop_type(end: End, stops: &[String]) -> (&'static str, &str) {
    match end {
        End::Length => ("limit", ""),
        End::Stop(Stop::StopString(which)) => {
            let word = stops.get(usize::from(which));
            ("word", word.map_or("", String::as_str))
        }
        End::Stop(Stop::Eos | Stop::ToolCalls) => ("eos", ""),
        _ => ("none", ""),
    }
}

/// A list `[{id, token, bytes, logprob, top_logprobs: [..]}]`.
#[derive(Clone, Copy)]
pub(super) struct TokenProbabilities<'a> {
    pub(super) logprobs: Logprobs<'a>,
    /// The end-of-sequence token, which has an entry although it is no part of the text.
    pub(super) ending: Option<&'a EndingToken>,
}

impl<'a> TokenProbabilities<'a> {
    /// Those of text.
    pub(super) fn of_text(logprobs: Logprobs<'a>) -> Self {
        Self {
            logprobs,
            ending: None,
        }
    }
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "LlamaTopProbability")]
struct TopProbability<'a> {
    id: u32,
    token: Lossy<'a>,
    bytes: &'a [u8],
    logprob: LogProb,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "LlamaProbability")]
struct TokenProbability<'a, T> {
    id: u32,
    token: Lossy<'a>,
    bytes: &'a [u8],
    logprob: LogProb,
    top_logprobs: T,
}

written_as! {
    TokenProbabilities<'_> => Vec<TokenProbability<'static, Vec<TopProbability<'static>>>>,
}

fn top_probability(tokenizer: &Tokenizer, id: u32, logprob: f32) -> TopProbability<'_> {
    let bytes = token_bytes(tokenizer, id);
    TopProbability {
        id,
        token: Lossy(bytes),
        bytes,
        logprob: LogProb(logprob),
    }
}

impl Serialize for TokenProbabilities<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tokenizer = self.logprobs.tokenizer;
        let text = self.logprobs.iter().map(|(entry, top)| (entry.token, top));
        let ending = self.ending.iter().map(|end| (end.token, &end.top[..]));
        serializer.collect_seq(text.chain(ending).map(|(token, top)| {
            let token = top_probability(tokenizer, token.id, token.logprob);
            let top = top
                .iter()
                .map(|top| top_probability(tokenizer, top.id, top.logprob));
            TokenProbability {
                id: token.id,
                token: token.token,
                bytes: token.bytes,
                logprob: token.logprob,
                top_logprobs: List(top),
            }
        }))
    }
}

/// Parameters of a generation, without its grammar and logit bias.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "LlamaGenerationSettings")]
pub struct GenerationSettings<'a> {
    seed: u64,
    temperature: f32,
    top_k: u32,
    top_p: f32,
    min_p: f32,
    typical_p: f32,
    xtc_probability: f32,
    xtc_threshold: f32,
    repeat_last_n: i64,
    repeat_penalty: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
    dry_multiplier: f32,
    dry_base: f32,
    dry_allowed_length: u32,
    /// -1: as many tokens as are accepted.
    dry_penalty_last_n: i64,
    stop: &'a [String],
    /// -1: as many tokens as the context has room for.
    max_tokens: i64,
    n_predict: i64,
    ignore_eos: bool,
    stream: bool,
    n_probs: u32,
    timings_per_token: bool,
}

impl<'a> GenerationSettings<'a> {
    /// Of a stream.
    pub(super) fn of(meta: &'a StreamMeta) -> Self {
        Self {
            stop: &meta.stops,
            ..GenerationSettings::of_stream(meta)
        }
    }
}

impl GenerationSettings<'static> {
    /// Of a stream, without stop strings.
    pub fn of_stream(meta: &StreamMeta) -> Self {
        let options = &meta.stream_options;
        Self {
            stream: options.stream,
            timings_per_token: options.timings,
            ..Self::new(&meta.sampling)
        }
    }

    /// Of a request that sets none.
    pub fn defaults(sampling: SamplingDefaults) -> Self {
        Self::new(&ReportedSampling::of(&sampling.options().resolve()))
    }

    fn new(sampling: &ReportedSampling) -> Self {
        let max_tokens = sampling.max_tokens.map_or(-1, i64::from);
        Self {
            seed: sampling.seed,
            temperature: sampling.temperature,
            top_k: sampling.top_k,
            top_p: sampling.top_p,
            min_p: sampling.min_p,
            typical_p: sampling.typical_p,
            xtc_probability: sampling.xtc_probability,
            xtc_threshold: sampling.xtc_threshold,
            repeat_last_n: window(sampling.penalty_window),
            repeat_penalty: sampling.repetition_penalty,
            presence_penalty: sampling.presence_penalty,
            frequency_penalty: sampling.frequency_penalty,
            dry_multiplier: sampling.dry_multiplier,
            dry_base: sampling.dry_base,
            dry_allowed_length: sampling.dry_allowed_length,
            dry_penalty_last_n: window(sampling.dry_window),
            stop: &[],
            max_tokens,
            n_predict: max_tokens,
            ignore_eos: sampling.ignore_eos,
            stream: true,
            n_probs: sampling.top_logprobs,
            timings_per_token: false,
        }
    }
}

/// A number of tokens in llama.cpp's form: 0 is all tokens in the engine, and off in llama.cpp.
fn window(tokens: u32) -> i64 {
    match tokens {
        0 => -1,
        tokens => i64::from(tokens),
    }
}
