//! `/v1/webhooks/deliveries`: events that are not delivered yet, and dead letters.

use crate::app::App;
use crate::request::extract::{AskedId, Authenticated};
use crate::response::Rejected;
use crate::routes::responses::json_response;
use axum::Json;
use axum::extract::{FromRef, FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use gateway::keys::Caller;
use gateway::webhooks::{DeliveryDescription, DeliveryStatus, Outbox};
use generate::error::ApiError;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use wire::item_page::{ItemOrder, PageQuery, Query, RawItem};
use wire::json;

/// Lists the caller's deliveries; those of all keys with the scope `admin`.
pub(crate) async fn list_deliveries(
    State(outbox): State<Arc<Outbox>>,
    Authenticated(caller): Authenticated,
    uri: Uri,
) -> Result<Response, Rejected> {
    let query = Query::of(&uri)?;
    let status = match query.get("status") {
        None => None,
        Some("pending") => Some(DeliveryStatus::Pending),
        Some("dead") => Some(DeliveryStatus::Dead),
        Some(_) => {
            let words = "status: must be pending or dead";
            return Err(ApiError::field("status", "invalid_value", words).into());
        }
    };
    let deliveries = outbox.list(&caller, status);
    let page = PageQuery::parse(&query, ItemOrder::OldestFirst)?.page(
        &deliveries,
        |delivery| &delivery.id,
        |_| true,
        |delivery| {
            let text = serde_json::to_string(delivery).unwrap_or_default();
            RawItem::<DeliveryDescription>::new(&text)
        },
    )?;
    Ok(json_response(json::to_vec(&page).freeze()))
}

/// Extractor: the delivery in the path.
pub(crate) struct DeliveryInPath {
    id: String,
    caller: Caller,
    outbox: Arc<Outbox>,
}

impl FromRequestParts<App> for DeliveryInPath {
    type Rejection = Rejected;

    async fn from_request_parts(head: &mut Parts, app: &App) -> Result<Self, Rejected> {
        let AskedId { id, caller } = AskedId::from_request_parts(head, app).await?;
        Ok(Self {
            id,
            caller,
            outbox: FromRef::from_ref(app),
        })
    }
}

pub(crate) async fn show_delivery(
    delivery: DeliveryInPath,
) -> Result<Json<DeliveryDescription>, Rejected> {
    Ok(Json(delivery.outbox.find(&delivery.id, &delivery.caller)?))
}

/// Attempts a delivery again at once.
pub(crate) async fn redeliver_event(delivery: DeliveryInPath) -> Result<Response, Rejected> {
    let description = delivery.outbox.redeliver(&delivery.id, &delivery.caller)?;
    Ok((StatusCode::ACCEPTED, Json(description)).into_response())
}

/// Removes a delivery: there is no further attempt.
pub(crate) async fn delete_delivery(
    delivery: DeliveryInPath,
) -> Result<Json<DeletedDelivery>, Rejected> {
    let forgotten = delivery.outbox.remove(&delivery.id, &delivery.caller)?;
    forgotten.written().await;
    Ok(Json(DeletedDelivery {
        id: delivery.id,
        object: "webhook.delivery",
        deleted: true,
    }))
}

/// A delivery that was deleted.
#[derive(JsonSchema, Serialize)]
pub(crate) struct DeletedDelivery {
    id: String,
    object: &'static str,
    deleted: bool,
}
