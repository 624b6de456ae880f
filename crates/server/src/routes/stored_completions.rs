//! `/v1/chat/completions/{id}`: stored chat completions.

use super::completion_list;
use super::responses::{ResponseInPath, item_list, json_response};
use crate::request::extract::JsonBody;
use crate::response::error_response::Rejected;
use axum::Json;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use gateway::stored::StoredChat;
use generate::error::ApiError;
use wire::item_page::{ItemOrder, PageQuery};
use wire::metadata;
use wire::openai::stored_completion::{DeletedCompletion, StoredMessage};
use wire::query::Query;
use wire::request_body::RequestBody;

impl ResponseInPath {
    fn find_completion(&self) -> Result<StoredChat, ApiError> {
        self.store.find_completion(&self.id, &self.caller)
    }
}

pub(crate) async fn show_completion(
    completion: ResponseInPath,
    headers: HeaderMap,
) -> Result<Response, Rejected> {
    let found = completion.find_completion()?;
    let mut response = json_response(found.json().into());
    completion_list::add_place(&headers, &found, &mut response);
    Ok(response)
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
    let mut forgotten = completion.store.remove(&found.record);
    if let Some(stream) = completion.retained_stream(&found.record) {
        forgotten.merge(completion.streams.forget_stream(&stream));
    }
    forgotten.written().await;
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
