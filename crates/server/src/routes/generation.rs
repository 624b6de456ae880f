//! `/v1/chat/completions`, `/v1/completions`, and llama.cpp's `/completion` and `/infill`.

use crate::request::extract::{Authenticated, GenerationRequest, MediaBody, Path, RateLimited};
use crate::request::model_lookup::UnadmittedHandles;
use crate::response::Rejected;
use crate::response::stream_response::StreamResponder;
use crate::routes::streams::{ResumeOptions, stream_events};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use gateway::keys::Caller;
use gateway::open::Resumable;
use gateway::requested_images::count_images;
use gateway::streams::{StreamRecord, StreamRegistry, StreamState};
use generate::error::ApiError;
use generate::prompt::PromptEncoder;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use stream::LIST_PAGE_MAX;
use wire::anthropic::message_request;
use wire::clock;
use wire::framing::Framing;
use wire::item_page::Query;
use wire::protocol::Protocol;

/// A generation in a wire protocol that is framed as server-sent events.
pub(crate) async fn generate(
    State(responder): State<StreamResponder>,
    request: GenerationRequest,
    protocol: Protocol,
) -> Result<Response, Rejected> {
    let request = request.in_protocol(protocol, Framing::Sse)?;
    Ok(responder.answer(request).await?)
}

/// The header that clients of Anthropic's API send.
const VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// Whether a request to a path of several APIs comes from a client of Anthropic's.
pub(crate) fn is_anthropic_client(headers: &HeaderMap) -> bool {
    headers.contains_key(VERSION)
}

/// Counts the tokens of the prompt that the request would have, with the text of the chat template.
pub(crate) async fn count_tokens(
    State(unadmitted): State<UnadmittedHandles>,
    RateLimited(caller): RateLimited,
    body: MediaBody,
) -> Result<Json<MessageTokenCount>, Rejected> {
    let (request, long_body) = ((caller, body.bytes), body.long);
    let count = unadmitted.run_request(request, Protocol::Messages, |fields, model, _| {
        let (prompt, images) = message_request::parse_prompt(fields.fetching_images())?;
        let mut prompt =
            prompt.ok_or_else(|| ApiError::field("messages", "invalid_value", "is wrong"))?;
        if let Some(long_body) = &long_body {
            long_body.expect_images(&images)?;
        }
        let prompts = std::slice::from_mut(&mut prompt);
        let counted = count_images(images, prompts, model)?;
        let model = Arc::clone(model);
        Ok(move || {
            let encoder = PromptEncoder::new(&model.handle, clock::unix_s());
            let ids = encoder.with_images(&counted.measured).prompt_ids(prompt)?;
            Ok(ids.len() + counted.described_tokens)
        })
    });
    Ok(Json(MessageTokenCount {
        input_tokens: count.await?,
    }))
}

/// The number of tokens in a prompt.
#[derive(JsonSchema, Serialize)]
pub(crate) struct MessageTokenCount {
    input_tokens: usize,
}

/// Streams an answer. The stream is resumable unless the client chooses otherwise: the transport sends no header, and
/// `useChat({ resume: true })` expects to find the stream again.
pub(crate) async fn answer_chat(
    State(responder): State<StreamResponder>,
    mut request: GenerationRequest,
) -> Result<Response, Rejected> {
    request.delivery.resumable.get_or_insert(Resumable::Yes);
    let request = request.in_protocol(Protocol::AiSdkUi, Framing::Sse)?;
    Ok(responder.answer(request).await?)
}

/// The running stream of a chat from its beginning; 204 for a chat without one.
pub(crate) async fn reconnect_chat(
    State(responder): State<StreamResponder>,
    State(streams): State<Arc<StreamRegistry>>,
    Authenticated(caller): Authenticated,
    Path(chat_id): Path<String>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Rejected> {
    let Some(record) = running_stream(&streams, &caller, &chat_id) else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let resume = ResumeOptions::parse(&headers, &Query::of(&uri)?)?;
    let protocol = Some(Protocol::AiSdkUi);
    let resume = ResumeOptions { protocol, ..resume };
    Ok(stream_events(&responder, &record, resume).await?)
}

/// The caller's latest stream of this chat that has not ended.
fn running_stream(
    streams: &StreamRegistry,
    caller: &Caller,
    chat_id: &str,
) -> Option<Arc<StreamRecord>> {
    let (mut latest, mut after) = (None::<Arc<StreamRecord>>, None);
    loop {
        let page = streams.list_streams(caller, after, LIST_PAGE_MAX);
        for stream in page.entries {
            let record = stream.payload;
            let is_later = |other: &Arc<StreamRecord>| record.meta().arrived > other.meta().arrived;
            if is_running_chat(&record, caller, chat_id) && latest.as_ref().is_none_or(is_later) {
                latest = Some(record);
            }
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return latest,
        }
    }
}

fn is_running_chat(record: &StreamRecord, caller: &Caller, chat_id: &str) -> bool {
    let terms = record.terms();
    terms.protocol == Protocol::AiSdkUi
        && terms.owner == caller.owner
        && record.meta().stream_options.conversation_id.as_deref() == Some(chat_id)
        && record.state() != StreamState::Ended
}
