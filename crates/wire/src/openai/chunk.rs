//! Chunks, usage and terminal frames, shared by chat completions and completions.

use crate::cursor::TerminalMarker;
use crate::encoder::{DONE, FrameId, FrameWriter, write_wait_comment};
use crate::json;
use crate::shared::error_response::ErrorBody;
use crate::shared::finish_reason;
use crate::shared::timings::Timings;
use crate::shared::vision_proxy::VisionProxyUsage;
use bytes::BytesMut;
use generate::output::event::{Event, Usage};
use generate::stream_source::StreamSource;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use stream::End;

/// Writes the chunks and the non-streaming response of one stream.
pub(super) struct ChunkWriter {
    pub(super) source: Arc<StreamSource>,
    /// `object` of a chunk.
    pub(super) chunk: &'static str,
    /// `object` of a non-streaming response.
    pub(super) collected: &'static str,
}

/// A chunk of a stream, or a non-streaming response.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "{C}Response")]
pub(super) struct CompletionObject<'a, C> {
    id: &'a str,
    object: &'static str,
    created: i64,
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_tier: Option<&'static str>,
    choices: &'a [C],
    /// Ids of the prompt of a chat, with `return_token_ids`; in the first chunk only.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<&'a [u32]>,
    /// Token counts; `null` or absent in chunks without token counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<CompletionUsage<'a>>>,
    /// Counts and times so far in llama.cpp's form, with `timings_per_token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    timings: Option<Timings>,
}

#[derive(JsonSchema, Serialize)]
pub(super) struct CompletionUsage<'a> {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    prompt_tokens_details: PromptDetails,
    completion_tokens_details: CompletionDetails,
    /// The model that described images, where one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    vision_proxy: Option<VisionProxyUsage<'a>>,
}

#[derive(JsonSchema, Serialize)]
struct PromptDetails {
    cached_tokens: u64,
    /// Rows of images, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    image_tokens: Option<u64>,
}

#[derive(JsonSchema, Serialize)]
struct CompletionDetails {
    reasoning_tokens: u64,
}

impl<'a> CompletionUsage<'a> {
    fn new(usage: Usage, source: &'a StreamSource) -> Self {
        Self {
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            total_tokens: usage.prompt_tokens + usage.completion_tokens,
            prompt_tokens_details: PromptDetails {
                cached_tokens: usage.cached_tokens,
                image_tokens: (usage.image_tokens > 0).then_some(usage.image_tokens),
            },
            completion_tokens_details: CompletionDetails {
                reasoning_tokens: usage.reasoning_tokens,
            },
            vision_proxy: VisionProxyUsage::of(source),
        }
    }
}

impl ChunkWriter {
    /// Writes the chunk of one choice.
    pub(super) fn write_choice<C: Serialize>(
        &self,
        id: FrameId,
        choice: C,
        usage: Usage,
        out: &mut FrameWriter<'_>,
    ) {
        self.write_choice_and_prompt(id, (choice, None), usage, out);
    }

    /// Writes the chunk of one choice, with the ids of the prompt.
    pub(super) fn write_choice_and_prompt<C: Serialize>(
        &self,
        id: FrameId,
        (choice, prompt): (C, Option<&[u32]>),
        usage: Usage,
        out: &mut FrameWriter<'_>,
    ) {
        let stream_options = &self.source.meta().stream_options;
        let timings = self.timings(usage);
        let usage = match (
            stream_options.continuous_usage,
            stream_options.include_usage,
        ) {
            (true, _) => Some(Some(CompletionUsage::new(usage, &self.source))),
            (false, true) => Some(None),
            (false, false) => None,
        };
        let choices = [choice];
        let chunk = CompletionObject {
            prompt_token_ids: prompt,
            timings,
            ..self.completion_object(self.chunk, &choices, usage)
        };
        out.write_frame(id, None, &chunk);
    }

    /// Writes the frames of events that do not belong to one choice.
    pub(super) fn write_stream_event(&self, event: &Event<'_>, out: &mut FrameWriter<'_>) {
        match event {
            // Also sent before an error, because clients stop reading at the error.
            Event::Usage { usage, .. } if self.source.meta().stream_options.include_usage => {
                let timings = self.timings(*usage);
                let usage = Some(Some(CompletionUsage::new(*usage, &self.source)));
                let chunk = CompletionObject {
                    timings,
                    ..self.completion_object::<()>(self.chunk, &[], usage)
                };
                out.write_frame(FrameId::Terminal(TerminalMarker::Usage), None, &chunk);
            }
            Event::Finished { .. } => out.write_text(FrameId::Terminal(TerminalMarker::Done), DONE),
            // The error is the last frame: no `[DONE]` follows.
            Event::Failed { end, .. } => {
                let error = finish_reason::end_error(*end);
                let id = FrameId::Terminal(TerminalMarker::Done);
                out.write_frame(id, None, &ErrorBody::new(&error));
            }
            Event::Rejected(error) => out.write_frame(FrameId::None, None, &ErrorBody::new(error)),
            Event::Queued { .. } | Event::Loading { .. } | Event::Image { .. } => {
                write_wait_comment(event, out);
            }
            _ => {}
        }
    }

    /// Writes the non-streaming response.
    pub(super) fn encode_collected<C: Serialize>(
        &self,
        choices: &[C],
        prompt: Option<&[u32]>,
        usage: Usage,
        out: &mut BytesMut,
    ) {
        let timings = self.timings(usage);
        let usage = Some(Some(CompletionUsage::new(usage, &self.source)));
        let response = CompletionObject {
            prompt_token_ids: prompt,
            timings,
            ..self.completion_object(self.collected, choices, usage)
        };
        json::write(&response, out);
    }

    fn completion_object<'a, C>(
        &'a self,
        object: &'static str,
        choices: &'a [C],
        usage: Option<Option<CompletionUsage<'a>>>,
    ) -> CompletionObject<'a, C> {
        let meta = self.source.meta();
        CompletionObject {
            id: &meta.response_id,
            object,
            created: meta.created_unix_s,
            model: &meta.model,
            service_tier: meta.stream_options.service_tier_given.then_some("default"),
            choices,
            prompt_token_ids: None,
            usage,
            timings: None,
        }
    }

    /// Counts and times so far, where the request asks for them.
    fn timings(&self, usage: Usage) -> Option<Timings> {
        let meta = self.source.meta();
        (meta.stream_options.timings).then(|| Timings::of(meta.arrived, usage))
    }
}

/// The `finish_reason` of a choice; `None` for a choice that is running or has failed.
pub(super) fn optional_finish_reason(end: Option<End>) -> Option<&'static str> {
    end.and_then(|end| finish_reason::finish_reason(end).ok())
}
