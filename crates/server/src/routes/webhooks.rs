//! `/v1/webhooks/deliveries`: events that are not delivered yet, and dead letters.

use crate::request::extract::{AskedId, Authenticated};
use crate::response::Rejected;
use crate::routes::responses::json_response;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use gateway::webhooks::{DeliveryDescription, DeliveryStatus, Outbox};
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
    let statuses = [
        ("pending", DeliveryStatus::Pending),
        ("dead", DeliveryStatus::Dead),
    ];
    let status = query.one_of("status", statuses)?;
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

/// Describes the delivery in the path.
pub(crate) async fn show_delivery(
    State(outbox): State<Arc<Outbox>>,
    AskedId { id, caller }: AskedId,
) -> Result<Json<DeliveryDescription>, Rejected> {
    Ok(Json(outbox.find(&id, &caller)?))
}

/// Attempts a delivery again at once.
pub(crate) async fn redeliver_event(
    State(outbox): State<Arc<Outbox>>,
    AskedId { id, caller }: AskedId,
) -> Result<Response, Rejected> {
    let description = outbox.redeliver(&id, &caller)?;
    Ok((StatusCode::ACCEPTED, Json(description)).into_response())
}

/// Removes a delivery: there is no further attempt.
pub(crate) async fn delete_delivery(
    State(outbox): State<Arc<Outbox>>,
    AskedId { id, caller }: AskedId,
) -> Result<Json<DeletedDelivery>, Rejected> {
    let forgotten = outbox.remove(&id, &caller)?;
    forgotten.written().await;
    Ok(Json(DeletedDelivery {
        id,
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
