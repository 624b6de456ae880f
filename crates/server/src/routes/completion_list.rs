//! `GET /v1/chat/completions`: stored chat completions of all gateways of a cluster, or of this one.
//!
//! Completions are in the order of their *places*: the time of the request, then the id. A page begins after the completion
//! that the client names; in a cluster the gateway that has it tells its place, and each gateway answers with what it has
//! after that place.

use super::responses::{ResponseInPath, item_list, json_response};
use crate::peers::{
    FORWARDED, FirstHit, ListScope, PassedRequest, PeerAnswer, PeerCalls, PeerReach, Unanswered,
};
use crate::request::extract::{Authenticated, JsonBody};
use crate::response::Rejected;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use gateway::stored::{ResponseStore, StoredChat};
use generate::error::ApiError;
use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::cmp::Ordering;
use std::sync::Arc;
use wire::item_page::{ItemOrder, PageQuery, Query, RawItem, unknown_after};
use wire::openai::stored_completion::{
    CompletionQuery, DeletedCompletion, StoredCompletion, StoredMessage,
};
use wire::request_body::RequestBody;
use wire::stored_request;

/// The place of a completion, in answers to other gateways.
const PLACE: HeaderName = HeaderName::from_static("x-millrace-place");

/// A page of stored chat completions.
#[derive(JsonSchema, Serialize)]
pub(crate) struct CompletionPage<'a> {
    object: &'static str,
    data: Vec<RawItem<StoredCompletion<'a>>>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
    /// Gateways whose completions are missing; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unanswered: Vec<Unanswered>,
    /// Places of the completions; only in answers to other gateways.
    #[serde(skip_serializing_if = "Option::is_none")]
    places: Option<Vec<CompletionPlace>>,
}

/// The place of a completion among those of all gateways.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct CompletionPlace {
    unix_us: u64,
    id: String,
}

impl CompletionPlace {
    fn of(completion: &StoredChat) -> Self {
        Self {
            unix_us: completion.record.note.created_unix_us,
            id: completion.record.response_id.to_string(),
        }
    }

    fn compare(&self, other: &Self, order: ItemOrder) -> Ordering {
        match order {
            ItemOrder::OldestFirst => self.cmp(other),
            ItemOrder::NewestFirst => other.cmp(self),
        }
    }

    fn follows(&self, other: &Self, order: ItemOrder) -> bool {
        self.compare(other, order) == Ordering::Greater
    }

    /// As in the header field and in the query of a gateway.
    fn to_text(&self) -> String {
        format!("{}.{}", self.unix_us, self.id)
    }

    fn parse(text: &str) -> Option<Self> {
        let (unix_us, id) = text.split_once('.')?;
        Some(Self {
            unix_us: unix_us.parse().ok()?,
            id: id.to_owned(),
        })
    }
}

/// Names the place of a completion to another gateway.
fn add_place(headers: &HeaderMap, completion: &StoredChat, response: &mut Response) {
    let place = CompletionPlace::of(completion).to_text();
    if headers.contains_key(FORWARDED)
        && let Ok(value) = HeaderValue::from_str(&place)
    {
        response.headers_mut().insert(PLACE, value);
    }
}

/// Lists the caller's completions, filtered by model and metadata.
pub(crate) async fn list_completions(
    State(calls): State<Arc<PeerCalls>>,
    State(store): State<Arc<ResponseStore>>,
    Authenticated(caller): Authenticated,
    head: Parts,
) -> Result<Response, Rejected> {
    let query = Query::of(&head.uri)?;
    let list = CompletionQuery::parse(&query)?;
    let scope = ListScope::parse(&query, &head.headers, ListScope::Cluster)?;
    let is_passed_on = head.headers.contains_key(FORWARDED);
    let place = if is_passed_on {
        query.get("after_place").and_then(CompletionPlace::parse)
    } else {
        None
    };
    let place = match (place, list.page.after) {
        (None, Some(after)) => {
            let here = store.find_completion(after, &caller).ok();
            let here = here.map(|completion| CompletionPlace::of(&completion));
            Some(match (here, scope) {
                (Some(place), _) => place,
                (None, ListScope::Cluster) => place_elsewhere(&calls, &head, after).await?,
                (None, ListScope::Instance) => return Err(unknown_after().into()),
            })
        }
        (place, _) => place,
    };
    let mut merged = MergedCompletions {
        found: found_here(&store.completions(&caller), &list, place.as_ref()),
        has_more: false,
        unanswered: Vec::new(),
    };
    if scope == ListScope::Cluster {
        let request = PassedRequest::get(&head, passed_path(&head, place.as_ref()));
        let answers = calls.ask_all(PeerReach::Gateways, &request).await;
        merged.unanswered = answers.unanswered;
        for answer in &answers.answers {
            merged.add_answer(answer);
        }
    }
    let page = merged.into_page(place.as_ref(), list.page.order, list.page.limit);
    let places = page.places.filter(|_| is_passed_on);
    Ok(Json(CompletionPage { places, ..page }).into_response())
}

/// The first completions of this gateway after a place, one more than a page has.
fn found_here(
    completions: &[StoredChat],
    list: &CompletionQuery<'_>,
    after: Option<&CompletionPlace>,
) -> Vec<PlacedCompletion> {
    let order = list.page.order;
    let listed = completions
        .iter()
        .filter(|completion| list.matches(completion.model(), &completion.metadata));
    let placed = listed.map(|completion| (CompletionPlace::of(completion), completion));
    let mut placed: Vec<_> = placed
        .filter(|(place, _)| after.is_none_or(|after| place.follows(after, order)))
        .collect();
    placed.sort_by(|(a, _), (b, _)| a.compare(b, order));
    placed.truncate(list.page.limit + 1);
    let found = placed.into_iter();
    found
        .map(|(place, completion)| PlacedCompletion::new(place, completion.json()))
        .collect()
}

/// The place of a completion that this gateway does not have.
async fn place_elsewhere(
    calls: &PeerCalls,
    head: &Parts,
    id: &str,
) -> Result<CompletionPlace, ApiError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if !calls.has_gateways() || id.is_empty() || !id.bytes().all(is_plain) {
        return Err(unknown_after());
    }
    let request = PassedRequest::get(head, format!("/v1/chat/completions/{id}"));
    let is_miss = |status| status == StatusCode::NOT_FOUND;
    match calls.first_hit(&request, is_miss).await {
        FirstHit::Hit(_, response) => {
            let place = response.headers().get(PLACE);
            let place = place.and_then(|place| CompletionPlace::parse(place.to_str().ok()?));
            place.ok_or_else(unknown_after)
        }
        FirstHit::Nowhere => Err(unknown_after()),
        FirstHit::Unknown(unanswered) => Err(Unanswered::error(&unanswered)),
    }
}

/// The request for the other gateways: with the place of the first completion in place of its id.
fn passed_path(head: &Parts, place: Option<&CompletionPlace>) -> String {
    let query = head.uri.query().unwrap_or_default().split('&');
    let is_kept = |field: &&str| !field.is_empty() && !field.starts_with("after");
    let mut fields: Vec<_> = query.filter(is_kept).map(str::to_owned).collect();
    fields.extend(place.map(|place| format!("after_place={}", place.to_text())));
    if fields.is_empty() {
        "/v1/chat/completions".to_owned()
    } else {
        format!("/v1/chat/completions?{}", fields.join("&"))
    }
}

#[derive(Debug)]
struct PlacedCompletion {
    place: CompletionPlace,
    json: Box<RawValue>,
}

impl PlacedCompletion {
    fn new(place: CompletionPlace, json: String) -> Self {
        let json = RawValue::from_string(json).unwrap_or_else(|_| RawValue::NULL.to_owned());
        Self { place, json }
    }
}

/// Completions of several gateways.
#[derive(Debug)]
struct MergedCompletions {
    found: Vec<PlacedCompletion>,
    /// Whether another gateway has more than it told.
    has_more: bool,
    unanswered: Vec<Unanswered>,
}

impl MergedCompletions {
    fn add_answer(&mut self, answer: &PeerAnswer) {
        match read_page(&answer.body) {
            Ok((found, has_more)) => {
                self.found.extend(found);
                self.has_more |= has_more;
            }
            Err(reason) => self.unanswered.push(Unanswered::new(&answer.peer, reason)),
        }
    }

    /// The first `limit` completions after a place. A gateway that has more has told at least as many.
    fn into_page(
        mut self,
        after: Option<&CompletionPlace>,
        order: ItemOrder,
        limit: usize,
    ) -> CompletionPage<'static> {
        let is_after =
            |place: &CompletionPlace| after.is_none_or(|after| place.follows(after, order));
        self.found.retain(|one| is_after(&one.place));
        self.found.sort_by(|a, b| a.place.compare(&b.place, order));
        self.found.dedup_by(|a, b| a.place.id == b.place.id);
        let has_more = self.has_more || self.found.len() > limit;
        self.found.truncate(limit);
        let places: Vec<_> = self.found.iter().map(|one| one.place.clone()).collect();
        let json = self.found.into_iter().map(|one| RawItem::of(one.json));
        CompletionPage {
            object: "list",
            data: json.collect(),
            first_id: places.first().map(|place| place.id.clone()),
            last_id: places.last().map(|place| place.id.clone()),
            has_more,
            unanswered: self.unanswered,
            places: Some(places),
        }
    }
}

/// The completions of another gateway's page, and whether there are more.
fn read_page(body: &[u8]) -> Result<(Vec<PlacedCompletion>, bool), String> {
    #[derive(Deserialize)]
    struct ForeignCompletions {
        data: Vec<Box<RawValue>>,
        places: Vec<CompletionPlace>,
        has_more: bool,
    }
    let page = serde_json::from_slice::<ForeignCompletions>(body);
    let page = page.map_err(|why| format!("its answer cannot be read: {why}"))?;
    if page.data.len() != page.places.len() {
        return Err("its answer has not one place for each completion".to_owned());
    }
    let found = page.places.into_iter().zip(page.data);
    let found = found.map(|(place, json)| PlacedCompletion { place, json });
    Ok((found.collect(), page.has_more))
}

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
    add_place(&headers, &found, &mut response);
    Ok(response)
}

/// Replaces the metadata.
pub(crate) async fn update_completion(
    completion: ResponseInPath,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    let mut found = completion.find_completion()?;
    let body = RequestBody::parse(body)?;
    let metadata = stored_request::parse_update(body.fields())?;
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
    let messages = item_list::<StoredMessage>(&completion.store, &found.record, &page);
    Ok(json_response(messages.await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(unix_us: u64, id: &str) -> PlacedCompletion {
        let place = CompletionPlace {
            unix_us,
            id: id.to_owned(),
        };
        PlacedCompletion::new(place, format!("\"{id}\""))
    }

    /// All pages of two gateways' completions, one after another.
    fn walk(order: ItemOrder, limit: usize) -> Vec<String> {
        let gateways = [
            &[(1, "a"), (3, "c"), (3, "d"), (9, "f")][..],
            &[(2, "b"), (3, "cc"), (9, "e")],
        ];
        let (mut found, mut after) = (Vec::new(), None::<CompletionPlace>);
        loop {
            let mut all = MergedCompletions {
                found: Vec::new(),
                has_more: false,
                unanswered: Vec::new(),
            };
            for list in gateways {
                let own = MergedCompletions {
                    found: list.iter().map(|&(at, id)| placed(at, id)).collect(),
                    has_more: false,
                    unanswered: Vec::new(),
                };
                let page = own.into_page(after.as_ref(), order, limit);
                let (part, more) = read_page(&serde_json::to_vec(&page).unwrap()).unwrap();
                all.found.extend(part);
                all.has_more |= more;
            }
            let page = all.into_page(after.as_ref(), order, limit);
            let places = page.places.unwrap();
            assert!(places.len() <= limit);
            found.extend(places.iter().map(|place| place.id.clone()));
            if page.has_more {
                after = places.last().cloned();
            } else {
                return found;
            }
        }
    }

    #[test]
    fn pages_of_two_gateways_have_each_completion_once_in_order() {
        let oldest = ["a", "b", "c", "cc", "d", "e", "f"];
        let newest: Vec<_> = oldest.iter().rev().copied().collect();
        for limit in 1..9 {
            assert_eq!(walk(ItemOrder::OldestFirst, limit), oldest, "{limit}");
            assert_eq!(walk(ItemOrder::NewestFirst, limit), newest, "{limit}");
        }
    }

    #[test]
    fn request_for_others_has_a_place_instead_of_an_id() {
        let head = |uri: &str| {
            let request = http::Request::builder().uri(uri).body(()).unwrap();
            request.into_parts().0
        };
        let place = CompletionPlace::parse("17.chatcmpl-1").unwrap();
        let path = "/v1/chat/completions?after=chatcmpl-1&limit=2&metadata%5Ba%5D=b";
        assert_eq!(
            passed_path(&head(path), Some(&place)),
            "/v1/chat/completions?limit=2&metadata%5Ba%5D=b&after_place=17.chatcmpl-1"
        );
        assert_eq!(
            passed_path(&head("/v1/chat/completions"), None),
            "/v1/chat/completions"
        );
        for bad in ["", "17", "x.y", "-1.y"] {
            assert_eq!(CompletionPlace::parse(bad), None, "{bad}");
        }
    }
}
