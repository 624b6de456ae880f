//! `/v1/ai-sdk/chat`: the two requests of the default chat transport of Vercel's AI SDK.

use crate::request::extract::{Authenticated, GenerationRequest, Path};
use crate::response::error_response::Rejected;
use crate::response::stream_response::StreamResponder;
use crate::routes::streams::{ResumeOptions, stream_events};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use gateway::keys::Caller;
use gateway::open::Resumable;
use gateway::streams::{StreamRecord, StreamRegistry, StreamState};
use std::sync::Arc;
use stream::LIST_PAGE_MAX;
use wire::framing::Framing;
use wire::protocol::Protocol;
use wire::query::Query;

/// Streams an answer. The stream is resumable unless the client chooses otherwise: the transport sends no header, and
/// `useChat({ resume: true })` expects to find the stream again.
pub(crate) async fn create_message(
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
