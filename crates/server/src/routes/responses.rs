//! `/v1/responses`: stored responses, and their streams.

use crate::app::App;
use crate::request::extract::{AskedId, GenerationRequest, MediaBody, RateLimited};
use crate::request::model_lookup::{NamedModel, UnadmittedHandles};
use crate::response::Rejected;
use crate::response::stream_response::{self, StreamResponder, with_stream_id};
use crate::routes::streams::SubscribeOptions;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{FromRef, FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Uri, header};
use axum::response::Response;
use gateway::keys::Caller;
use gateway::metrics::MeteredProtocol;
use gateway::requested_images::{count_images, drop_surplus_images};
use gateway::stored::{EndedResponse, ResponseLookup, ResponseRecord, ResponseStore};
use gateway::streams::{StreamRecord, StreamRegistry, StreamState, lost_error};
use generate::error::{ApiError, ErrorKind};
use generate::output::position::Position;
use generate::prompt::PromptEncoder;
use generate::prompt_limit::PromptTruncation;
use schemars::JsonSchema;
use serde::Serialize;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use wire::cursor::{Cursor, EventIds};
use wire::framing::Framing;
use wire::item_page::{ItemOrder, PageQuery, Query, RawItem};
use wire::protocol::{Encoding, FollowState, Protocol};
use wire::request_body::RequestBody;
use wire::request_parser::ParseContext;
use wire::responses::sequence_number::{cursor_after, number_at};
use wire::responses::{ResponsesEncoder, request, response_object};
use wire::stored_request::{History, InputItem, StoredImage, StoredItem};
use wire::{clock, json};

/// Answers a background request with the response in progress, a streamed request with events, and others with the
/// ended response.
pub(crate) async fn create_response(
    State(responder): State<StreamResponder>,
    request: GenerationRequest,
) -> Result<Response, Rejected> {
    let request = request.in_protocol(Protocol::Responses, Framing::Sse)?;
    if NamedModel::of(request.body.fields(), request.protocol).stream {
        return Ok(responder.answer(request).await?);
    }
    let opened = responder.open(request).await?;
    if !opened.record.meta().stream_options.background {
        return Ok(responder.respond(opened).await);
    }
    let entry = opened.record;
    entry.wait_written().await;
    Ok(with_stream_id(json_response(so_far(&entry)), &entry))
}

/// Counts the tokens of the prompt that the request would have, with earlier responses and the chat template's text.
pub(crate) async fn count_input_tokens(
    State(unadmitted): State<UnadmittedHandles>,
    State(store): State<Arc<ResponseStore>>,
    RateLimited(caller): RateLimited,
    body: MediaBody,
) -> Result<Json<InputTokenCount>, Rejected> {
    let previous = RequestBody::parse(body.bytes.clone())?;
    let previous = previous
        .fields()
        .string("previous_response_id")
        .map(Cow::into_owned);
    let seen = store.history_images(previous.as_deref(), &caller).await;
    let (request, long_body) = ((caller, body.bytes), body.long);
    let count = unadmitted.run_request(request, Protocol::Responses, |fields, model, caller| {
        let history = |id: &str| {
            let history = store.history(id, caller, &seen)?;
            Ok(Box::new(history) as Box<dyn History>)
        };
        let context = ParseContext {
            history: &history,
            adapters: &model.handle.adapters,
            ..ParseContext::of_vocab(model.handle.tokenizer.vocab_size())
        };
        let mut request = request::parse(fields.fetching_images(), &context)?.request;
        if let Some(long_body) = &long_body {
            long_body.expect_images(&request.images)?;
        }
        drop_surplus_images(&mut request, model);
        let images = std::mem::take(&mut request.images);
        let counted = count_images(images, &mut request.prompts, model)?;
        let truncation = PromptTruncation::of(&request.params);
        let model = Arc::clone(model);
        Ok(move || {
            let encoder = PromptEncoder::new(&model.handle, clock::unix_s());
            let encoder = encoder.with_images(&counted.measured);
            let encoder = encoder.truncating(truncation);
            let counts = request.prompts.into_iter();
            let counts = counts.map(|prompt| encoder.prompt_ids(prompt).map(|ids| ids.len()));
            let count = counts.sum::<Result<usize, ApiError>>()?;
            Ok(count + counted.described_tokens)
        })
    });
    let tokens = count.await?;
    Ok(Json(InputTokenCount {
        object: "response.input_tokens",
        input_tokens: tokens,
    }))
}

/// The number of tokens in a prompt.
#[derive(JsonSchema, Serialize)]
pub(crate) struct InputTokenCount {
    object: &'static str,
    input_tokens: usize,
}

/// Extractor: the stored response or chat completion in the path, if visible to the caller.
pub(crate) struct ResponseInPath {
    pub(super) id: String,
    pub(super) caller: Caller,
    pub(super) store: Arc<ResponseStore>,
    pub(super) streams: Arc<StreamRegistry>,
}

impl FromRequestParts<App> for ResponseInPath {
    type Rejection = Rejected;

    async fn from_request_parts(head: &mut Parts, app: &App) -> Result<Self, Rejected> {
        let AskedId { id, caller } = AskedId::from_request_parts(head, app).await?;
        Ok(Self {
            id,
            caller,
            store: FromRef::from_ref(app),
            streams: FromRef::from_ref(app),
        })
    }
}

impl ResponseInPath {
    fn find_record(&self) -> Result<Arc<ResponseRecord>, ApiError> {
        self.store.find_response(&self.id, &self.caller)
    }

    /// The stream of the response, while the stream is retained.
    fn find_stream(&self) -> Result<Arc<StreamRecord>, ApiError> {
        let prefix = wire::responses::ID_PREFIX;
        let name = self.id.strip_prefix(prefix).unwrap_or_default();
        let found = self.streams.find_stream(name, &self.caller);
        found.map(|stream| stream.payload).map_err(|_| {
            let message = "the events of this response are no longer kept (streams.retention_s; those of one \
                         without background end with their client); the response itself is: ask without stream";
            ApiError::caller(ErrorKind::Gone, "stream_gone", message)
        })
    }

    /// The events of the response, after those that the client has.
    async fn event_response(
        &self,
        responder: &StreamResponder,
        query: &Query,
    ) -> Result<Response, ApiError> {
        let after = query.number("starting_after", u64::MAX)?;
        let entry = self.find_stream()?;
        let cursor = match after {
            Some(after) => cursor_after_event(&entry, after).await?,
            None => None,
        };
        let positions = cursor.as_ref().map(|cursor| cursor.positions.clone());
        let positions =
            positions.unwrap_or_else(|| vec![Position::default(); entry.meta().choices]);
        let options = SubscribeOptions {
            cursor,
            encoding: Encoding {
                encoder: Box::new(ResponsesEncoder::new(entry.source()).resume_after(after)),
                framing: Framing::Sse,
                header: None,
                follows: FollowState::Never,
            },
            protocol: MeteredProtocol::Wire(Protocol::Responses),
            govern: false,
        };
        let body = options.open_body(responder, &entry)?;
        let body = body.with_ids(EventIds::new(entry.id(), positions));
        Ok(with_stream_id(
            stream_response::streaming_response(body),
            &entry,
        ))
    }

    /// The stream of the response, while the stream runs or is retained.
    pub(super) fn retained_stream(&self, record: &ResponseRecord) -> Option<Arc<StreamRecord>> {
        let registry = self.streams.registry();
        registry.lookup(record.id, stream::Caller::Admin).ok()
    }

    /// Removes the stream after the end.
    fn forget_stream(&self, record: Arc<ResponseRecord>) {
        let (store, streams) = (Arc::clone(&self.store), Arc::clone(&self.streams));
        tokio::spawn(async move {
            if let ResponseLookup::Running(entry) = store.look_up(&record) {
                entry.wait_for_end().await;
            }
            streams.remove_stream(record.id);
        });
    }

    /// Cancels the response within one step, and waits for its end. An ended response stays as it is.
    async fn cancel_and_wait(&self, record: &Arc<ResponseRecord>) -> Arc<EndedResponse> {
        loop {
            match self.store.look_up(record) {
                ResponseLookup::Ended(outcome) => return outcome,
                ResponseLookup::Running(entry) => {
                    entry.cancel();
                    entry.wait_for_end().await;
                }
            }
        }
    }
}

pub(crate) async fn show_response(
    State(responder): State<StreamResponder>,
    response: ResponseInPath,
    uri: Uri,
) -> Result<Response, Rejected> {
    let record = response.find_record()?;
    let query = Query::of(&uri)?;
    if query.one_of("stream", [("true", true), ("false", false)])? == Some(true) {
        return Ok(response.event_response(&responder, &query).await?);
    }
    Ok(match response.store.look_up(&record) {
        ResponseLookup::Running(entry) => with_stream_id(json_response(so_far(&entry)), &entry),
        ResponseLookup::Ended(outcome) => json_response(outcome.body.clone()),
    })
}

/// Removes a stored response; one that runs is cancelled.
pub(crate) async fn delete_response(
    response: ResponseInPath,
) -> Result<Json<DeletedResponse>, Rejected> {
    let record = response.find_record()?;
    let mut forgotten = response.store.remove(&record);
    if let Some(stream) = response.retained_stream(&record) {
        stream.cancel();
        forgotten.merge(stream.forget_records());
    }
    response.forget_stream(record);
    forgotten.written().await;
    Ok(Json(DeletedResponse {
        id: response.id,
        object: "response",
        deleted: true,
    }))
}

/// A stored response that was deleted.
#[derive(JsonSchema, Serialize)]
pub(crate) struct DeletedResponse {
    id: String,
    object: &'static str,
    deleted: bool,
}

pub(crate) async fn cancel_response(response: ResponseInPath) -> Result<Response, Rejected> {
    let record = response.find_record()?;
    let outcome = response.cancel_and_wait(&record).await;
    Ok(json_response(outcome.body.clone()))
}

pub(crate) async fn input_items(response: ResponseInPath, uri: Uri) -> Result<Response, Rejected> {
    let record = response.find_record()?;
    let query = Query::of(&uri)?;
    let page = PageQuery::parse(&query, ItemOrder::NewestFirst)?;
    let items = item_list::<InputItem>(&response.store, &record, &page);
    Ok(json_response(items.await?))
}

/// A page of the items of a stored request as they were sent, with their images, as JSON.
pub(super) async fn item_list<S>(
    store: &ResponseStore,
    record: &Arc<ResponseRecord>,
    page: &PageQuery<'_>,
) -> Result<Bytes, ApiError> {
    let images = store.images_of(record).await;
    let find = |image: &StoredImage| images.find(image);
    let json = |item: &StoredItem| RawItem::<S>::new(&item.as_sent(&find));
    let page = page.page(&record.note.items, |item| &item.id, |_| true, json)?;
    Ok(json::to_vec(&page).freeze())
}

/// A response that has not ended.
fn so_far(entry: &StreamRecord) -> Bytes {
    response_object::response_so_far(entry.source(), entry.state() == StreamState::Queued)
}

pub(crate) fn json_response(body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Time that a client waits for the events that it has, where the owner before had not stored their tokens.
const COMPUTED_WAIT: Duration = Duration::from_secs(30);
/// Time between two looks at the tokens.
const LOOK: Duration = Duration::from_millis(50);
/// When the client is to ask again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The cursor of a client that has all events up to the number `after`; `None`: before the first delta.
///
/// # Errors
/// A number that no event has; the stream was taken over, and has ended before the event of this number.
async fn cursor_after_event(
    entry: &Arc<StreamRecord>,
    after: u64,
) -> Result<Option<Cursor>, ApiError> {
    let deadline = Instant::now() + COMPUTED_WAIT;
    while entry.may_be_behind() && cursor_after(entry.source(), after).is_err() {
        if Instant::now() >= deadline {
            let message = "the events up to starting_after are computed again";
            return Err(ApiError::capacity("recovering", message, RETRY_AFTER));
        }
        sleep(LOOK).await;
    }
    if let Some(steps) = entry.lost_after(0) {
        let last = number_at(entry.source(), steps);
        if after > last {
            return Err(lost_error(last.to_string()));
        }
    }
    cursor_after(entry.source(), after)
}
