//! `/v1/models`, as OpenAI's API and Anthropic's describe them.

use crate::request::extract::Path;
use crate::response::error_response::Rejected;
use crate::routes::anthropic::is_anthropic_client;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use gateway::models::{ListedModel, ModelRegistry};
use generate::error::ApiError;
use std::sync::Arc;
use wire::anthropic;
use wire::openai::model_list;
use wire::query::Query;

pub(crate) async fn list_models(
    State(served): State<Arc<ModelRegistry>>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let all: Vec<_> = served
        .list_models()
        .await
        .iter()
        .map(ListedModel::model_card)
        .collect();
    if !is_anthropic_client(&headers) {
        return Json(model_list::model_list(&all)).into_response();
    }
    let query = Query::of(&uri);
    match query.and_then(|query| anthropic::model_list::model_page(&all, &query)) {
        Ok(page) => Json(page).into_response(),
        Err(error) => anthropic::error_response::to_response(&error),
    }
}

pub(crate) async fn one_model(
    State(served): State<Arc<ModelRegistry>>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Result<Response, Rejected> {
    let listed = served.listed_model(Some(&id)).await;
    if is_anthropic_client(&headers) {
        return Ok(anthropic_card(listed));
    }
    Ok(Json(model_list::model_object(&listed?.model_card())).into_response())
}

fn anthropic_card(listed: Result<ListedModel, ApiError>) -> Response {
    match listed {
        Ok(listed) => Json(anthropic::model_list::model_info(&listed.model_card())).into_response(),
        Err(error) => anthropic::error_response::to_response(&error),
    }
}
