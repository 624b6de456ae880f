//! `/v1/chat/completions` with `GET`, and `/v1/chat/completions/{id}`: stored chat completions.

use super::responses::{ResponseInPath, item_list, json_response};
use crate::request::extract::{Authenticated, JsonBody};
use crate::response::error_response::Rejected;
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use gateway::response_store::ResponseStore;
use gateway::stored_completions::StoredChat;
use generate::error::ApiError;
use std::sync::Arc;
use wire::item_page::{ItemOrder, PageQuery, RawItem};
use wire::json;
use wire::metadata;
use wire::openai::stored_completion::{
    CompletionQuery, DeletedCompletion, StoredCompletion, StoredMessage,
};
use wire::query::Query;
use wire::request_body::RequestBody;

impl ResponseInPath {
    fn find_completion(&self) -> Result<StoredChat, ApiError> {
        self.store.find_completion(&self.id, &self.caller)
    }
}

/// Lists the caller's completions, filtered by model and metadata.
pub(crate) async fn list_completions(
    State(store): State<Arc<ResponseStore>>,
    Authenticated(caller): Authenticated,
    uri: Uri,
) -> Result<Response, Rejected> {
    let query = Query::of(&uri)?;
    let list = CompletionQuery::parse(&query)?;
    let completions = store.completions(&caller);
    let page = list.page.page(
        &completions,
        |completion| &completion.record.response_id,
        |completion| list.matches(completion.model(), &completion.metadata),
        |completion| RawItem::<StoredCompletion<'_>>::new(&completion.json()),
    )?;
    Ok(json_response(json::to_vec(&page).freeze()))
}

pub(crate) async fn show_completion(completion: ResponseInPath) -> Result<Response, Rejected> {
    let found = completion.find_completion()?;
    Ok(json_response(found.json().into()))
}

/// Replaces the metadata.
pub(crate) async fn update_completion(
    completion: ResponseInPath,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    let mut found = completion.find_completion()?;
    let body = RequestBody::parse(body)?;
    let metadata = metadata::parse_update(body.fields())?;
    completion.store.set_metadata(&mut found, metadata).await;
    Ok(json_response(found.json().into()))
}

/// Removes a completion with a retained stream.
pub(crate) async fn delete_completion(
    completion: ResponseInPath,
) -> Result<Json<DeletedCompletion>, Rejected> {
    let found = completion.find_completion()?;
    completion.store.remove(&found.record);
    completion.streams.remove_stream(found.record.id);
    Ok(Json(DeletedCompletion::new(completion.id)))
}

pub(crate) async fn list_messages(
    completion: ResponseInPath,
    uri: Uri,
) -> Result<Response, Rejected> {
    let found = completion.find_completion()?;
    let query = Query::of(&uri)?;
    let page = PageQuery::parse(&query, ItemOrder::OldestFirst)?;
    Ok(json_response(item_list::<StoredMessage>(
        &found.record,
        &page,
    )?))
}
