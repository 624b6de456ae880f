//! `GET /v1/streams`: streams of all gateways of a cluster, or of this one; all, or those with an unread end.

use crate::access::authentication;
use crate::peers::{ListScope, PassedRequest, PeerAnswer, PeerCalls, PeerReach, Unanswered};
use crate::request::extract::Authenticated;
use crate::response::Rejected;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use gateway::owners_slot::OwnersSlot;
use gateway::streams::describe::{Description, describe_stream};
use gateway::streams::{StreamRegistry, StreamState};
use http::request::Parts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::sync::Arc;
use stream::{LIST_PAGE_MAX, ListCursor};
use wire::clock;
use wire::item_page::{Query, RawItem};

/// Streams on a page, if the request has no `limit`.
const LIST_PAGE: usize = 20;

/// A page of streams.
#[derive(JsonSchema, Serialize)]
pub(crate) struct StreamPage<'a> {
    object: &'static str,
    data: Vec<RawItem<Description<'a>>>,
    has_more: bool,
    /// Value of the parameter `after` for the next page; `null` on the last page.
    next: Option<u64>,
    /// Instances whose streams are missing; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unanswered: Vec<Unanswered>,
}

/// The streams that the caller may see, in the order in which they were opened; or those of the caller's key with an
/// unread end, in the order of their ends.
pub(crate) async fn list_streams(
    State(calls): State<Arc<PeerCalls>>,
    State(streams): State<Arc<StreamRegistry>>,
    State(owners): State<Arc<OwnersSlot>>,
    Authenticated(caller): Authenticated,
    head: Parts,
) -> Result<Response, Rejected> {
    let query = Query::of(&head.uri)?;
    let scope = ListScope::parse(&query, &head.headers, ListScope::Cluster)?;
    let unread = query.one_of("unread", [("true", true), ("false", false)])?;
    let unread = unread.unwrap_or(false);
    let after = query.number("after", u64::MAX)?;
    let limit = query.number("limit", LIST_PAGE_MAX as u64)?;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.unwrap_or(LIST_PAGE).max(1);
    let now = clock::now();
    let (page, has_more) = if unread {
        let page = streams.list_unread(caller.owner, ListCursor(after.unwrap_or(0)), limit);
        (page.streams, page.has_more)
    } else {
        let page = streams.list_streams(&caller, after.map(ListCursor), limit);
        let entries = page.entries.into_iter();
        let listed = entries.map(|entry| (entry.cursor, entry)).collect();
        (listed, page.next.is_some())
    };
    let own = calls.peers.own_name();
    let listed = page.iter().map(|(cursor, entry)| {
        let key = authentication::owner_name(&head.extensions, entry.payload.terms().owner);
        let described = describe_stream(entry, &owners, now).of_key(key);
        ListedStream {
            id: entry.id.to_string(),
            cursor: cursor.0,
            has_ended: entry.payload.state() == StreamState::Ended,
            json: to_json(&described.at_cursor(*cursor).at_instance(own.clone())),
        }
    });
    let mut merged = MergedStreams::default();
    merged.add(listed.collect(), has_more);
    if scope == ListScope::Cluster {
        let after = after.unwrap_or(0);
        let path = format!("/v1/streams?limit={limit}&after={after}&unread={unread}");
        let request = PassedRequest::get(&head, path);
        let answers = calls.ask_all(PeerReach::Gateways, &request).await;
        merged.unanswered = answers.unanswered;
        for answer in &answers.answers {
            merged.add_answer(answer);
        }
    }
    Ok(Json(merged.into_page(limit)).into_response())
}

fn to_json(description: &Description<'_>) -> Box<RawValue> {
    serde_json::value::to_raw_value(description).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// A stream in a list of one gateway.
#[derive(Debug)]
struct ListedStream {
    id: String,
    /// Position in the list: about the time of the opening, different for each stream of one gateway.
    cursor: u64,
    has_ended: bool,
    json: Box<RawValue>,
}

/// Streams of several gateways, each a part of that gateway's list from one cursor on.
#[derive(Debug, Default)]
struct MergedStreams {
    streams: Vec<ListedStream>,
    /// Last cursor up to which all lists are complete; `None`: to the end.
    complete_to: Option<u64>,
    unanswered: Vec<Unanswered>,
}

impl MergedStreams {
    fn add(&mut self, listed: Vec<ListedStream>, has_more: bool) {
        if let Some(last) = listed.last().filter(|_| has_more) {
            let before = self.complete_to.unwrap_or(u64::MAX);
            self.complete_to = Some(before.min(last.cursor));
        }
        self.streams.extend(listed);
    }

    fn add_answer(&mut self, answer: &PeerAnswer) {
        match read_page(&answer.body) {
            Ok((listed, has_more)) => self.add(listed, has_more),
            Err(reason) => self.unanswered.push(Unanswered::new(&answer.peer, reason)),
        }
    }

    /// The first `limit` streams. A stream that was taken over can be in two lists: the one that runs is listed. Streams
    /// with one cursor are on one page, which may be longer by these.
    fn into_page(mut self, limit: usize) -> StreamPage<'static> {
        self.streams
            .sort_by_key(|stream| (stream.has_ended, stream.cursor));
        let mut seen = HashSet::new();
        self.streams.retain(|stream| seen.insert(stream.id.clone()));
        self.streams.sort_by_key(|stream| stream.cursor);
        let complete_to = self.complete_to.unwrap_or(u64::MAX);
        let safe = self
            .streams
            .partition_point(|stream| stream.cursor <= complete_to);
        let mut count = limit.min(safe);
        while count > 0 && count < safe && self.cursor_at(count) == self.cursor_at(count - 1) {
            count += 1;
        }
        let has_more = count < self.streams.len() || self.complete_to.is_some();
        let next = count.checked_sub(1).and_then(|last| self.cursor_at(last));
        let data = self.streams.into_iter().take(count);
        StreamPage {
            object: "list",
            data: data.map(|stream| RawItem::of(stream.json)).collect(),
            has_more,
            next: next.filter(|_| has_more),
            unanswered: self.unanswered,
        }
    }

    fn cursor_at(&self, index: usize) -> Option<u64> {
        self.streams.get(index).map(|stream| stream.cursor)
    }
}

/// The streams of another gateway's page, and whether there are more.
fn read_page(body: &[u8]) -> Result<(Vec<ListedStream>, bool), String> {
    #[derive(Deserialize)]
    struct Page {
        data: Vec<Box<RawValue>>,
        has_more: bool,
    }
    #[derive(Deserialize)]
    struct Stream {
        id: String,
        cursor: u64,
        state: String,
    }
    let unreadable = |why: serde_json::Error| format!("its answer cannot be read: {why}");
    let page: Page = serde_json::from_slice(body).map_err(unreadable)?;
    let listed = page.data.into_iter().map(|json| {
        let stream: Stream = serde_json::from_str(json.get())?;
        Ok(ListedStream {
            id: stream.id,
            cursor: stream.cursor,
            has_ended: stream.state == StreamState::Ended.name(),
            json,
        })
    });
    let listed = listed.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    Ok((listed, page.has_more))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(streams: &[(&str, u64, bool)]) -> Vec<ListedStream> {
        let stream = |&(id, cursor, has_ended): &(&str, u64, bool)| ListedStream {
            id: id.to_owned(),
            cursor,
            has_ended,
            json: RawValue::from_string(format!("\"{id}{}\"", u8::from(has_ended))).unwrap(),
        };
        streams.iter().map(stream).collect()
    }

    /// All pages of these gateways' lists, as ids.
    fn pages(lists: &[&[(&str, u64, bool)]], limit: usize) -> Vec<Vec<String>> {
        let (mut pages, mut after) = (Vec::new(), 0);
        loop {
            let mut merged = MergedStreams::default();
            for list in lists {
                let rest: Vec<_> = list.iter().copied().filter(|s| s.1 > after).collect();
                let page = &rest[..rest.len().min(limit)];
                merged.add(listed(page), page.len() < rest.len());
            }
            let page = merged.into_page(limit);
            let ids = serde_json::to_value(&page.data).unwrap();
            pages.push(serde_json::from_value(ids).unwrap());
            assert_eq!(page.has_more, page.next.is_some());
            match page.next {
                Some(next) => after = next,
                None => return pages,
            }
        }
    }

    #[test]
    fn pages_of_several_lists_have_each_stream_once_in_order() {
        let a: &[_] = &[
            ("a", 1, true),
            ("b", 4, true),
            ("c", 5, true),
            ("h", 9, true),
        ];
        let b: &[_] = &[("d", 2, true), ("e", 4, true), ("f", 7, true)];
        let c: &[_] = &[("g", 8, true)];
        let all = ["a", "d", "b", "e", "c", "f", "g", "h"].map(|id| format!("{id}1"));
        for limit in 1..10 {
            for lists in [&[a, b, c][..], &[c, b, a], &[b, a, c]] {
                let pages = pages(lists, limit);
                let mut found = pages.concat();
                found.sort();
                let mut sorted = all.to_vec();
                sorted.sort();
                assert_eq!(found, sorted, "limit {limit}");
                // Two streams were opened in the same microsecond.
                assert!(pages.iter().all(|page| page.len() <= limit + 1));
            }
        }
        assert_eq!(pages(&[a, b, c], 8), [all.to_vec()]);
        assert_eq!(pages(&[], 3), [Vec::<String>::new()]);
    }

    #[test]
    fn stream_in_two_lists_is_the_one_that_runs() {
        let before: &[_] = &[("a", 1, true), ("b", 2, true)];
        let after: &[_] = &[("a", 1, false)];
        for lists in [[before, after], [after, before]] {
            assert_eq!(pages(&lists, 5), [["a0", "b1"]]);
        }
    }

    #[test]
    fn page_of_another_gateway_is_read_or_named() {
        let page = br#"{"object":"list","data":[{"id":"x","cursor":3,"state":"ended","later":1}],"has_more":true}"#;
        let (streams, has_more) = read_page(page).unwrap();
        assert!(has_more && streams[0].has_ended && streams[0].cursor == 3);
        assert!(streams[0].json.get().contains("later"));
        for broken in [&b"{}"[..], b"<html>", br#"{"data":[{}],"has_more":false}"#] {
            assert!(read_page(broken).is_err());
        }
    }
}
