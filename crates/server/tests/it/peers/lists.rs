//! Lists of streams and of stored chat completions at any gateway.
//!
//! Promise (Cluster): unread ends of all gateways are listed and acknowledged at each, for their key only; a gateway
//! that does not answer is named; an acknowledged end is not unread at the gateway that takes it over.
//! Also held by `millrace/tests/it/cluster/unread.rs`.
//!
//! Promise (Cluster): streams and stored chat completions of all gateways are listed at each, in pages, in order and
//! once, for the callers that may see them; gateways without an answer are named.
//! Also held by `server/src/routes/stream_list.rs`, `server/src/routes/completion_list.rs`.

use super::{Gateway, start_pair};
use serde_json::{Value, json};

/// The ids in all pages of a list of streams.
fn all_pages(gateway: &Gateway, owner: &str, limit: usize) -> Vec<String> {
    list_pages(gateway, owner, &format!("/v1/streams?limit={limit}"))
}

fn list_pages(gateway: &Gateway, owner: &str, query: &str) -> Vec<String> {
    let (mut ids, mut after) = (Vec::new(), Value::from(0));
    loop {
        let (status, page) = gateway.show(owner, &format!("{query}&after={after}"));
        assert_eq!((status, &page["unanswered"]), (200, &Value::Null), "{page}");
        ids.extend(ids_of(&page));
        assert_eq!(page["has_more"], !page["next"].is_null());
        if page["next"].is_null() {
            return ids;
        } else {
            after = page["next"].clone();
        }
    }
}

fn ids_of(page: &Value) -> Vec<String> {
    let ids = page["data"].as_array().unwrap().iter();
    ids.map(|one| one["id"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn streams_of_both_gateways_are_listed_at_each_for_their_owner() {
    let Some(mut pair) = start_pair() else { return };
    let (first, second) = (&pair.first, &pair.second);
    let mut own = Vec::new();
    for round in 0..3 {
        own.push(first.run_job("one", None));
        own.push(second.run_job("one", None));
        if round == 1 {
            second.run_job("two", None);
        }
    }
    for gateway in [first, second] {
        for limit in [1, 2, 4, 100] {
            assert_eq!(all_pages(gateway, "one", limit), own, "{limit}");
        }
        assert_eq!(all_pages(gateway, "two", 3).len(), 1);
        assert_eq!(all_pages(gateway, "admin", 3).len(), 7);
        let (_, here) = gateway.show("one", "/v1/streams?scope=instance");
        assert_eq!(ids_of(&here).len(), 3);
        let instances = here["data"].as_array().unwrap().iter();
        assert!({ instances }.all(|stream| stream["instance"] == gateway.id.as_str()));
        assert_eq!(gateway.show("one", "/v1/streams?scope=all").0, 400);
        assert_eq!(gateway.show("nobody", "/v1/streams").0, 401);
    }
    let (_, all) = first.show("one", "/v1/streams");
    let instances: Vec<_> = all["data"].as_array().unwrap().iter().collect();
    let of = |gateway: &Gateway| {
        let here = instances.iter();
        here.filter(|stream| stream["instance"] == gateway.id.as_str())
            .count()
    };
    assert_eq!((of(first), of(second)), (3, 3));

    // The second gateway is there and does not answer.
    let id = pair.second.id.clone();
    drop(pair.second.rig.take());
    let (status, page) = pair.first.show("one", "/v1/streams");
    assert_eq!((status, ids_of(&page).len()), (200, 3));
    assert_eq!(page["unanswered"][0]["instance"], id.as_str(), "{page}");
    assert!(page["unanswered"][0]["reason"].is_string());
}

#[test]
fn unread_streams_of_both_gateways_are_listed_and_acknowledged_at_each() {
    let Some(mut pair) = start_pair() else { return };
    let (first, second) = (&pair.first, &pair.second);
    let own = [first, second, second, first].map(|gateway| gateway.run_job("one", None));
    let foreign = second.run_job("two", None);
    let pages = |gateway, owner, limit| {
        list_pages(
            gateway,
            owner,
            &format!("/v1/streams?unread=true&limit={limit}"),
        )
    };
    for gateway in [first, second] {
        for limit in [1, 3, 100] {
            assert_eq!(pages(gateway, "one", limit), own, "{limit}");
        }
        assert_eq!(pages(gateway, "two", 1), std::slice::from_ref(&foreign));
        assert!(pages(gateway, "admin", 1).is_empty(), "of other keys");
        let (_, here) = gateway.show("one", "/v1/streams?unread=true&scope=instance");
        assert_eq!(ids_of(&here).len(), 2);
    }
    for (gateway, id) in [(first, &own[1]), (second, &own[0])] {
        let path = format!("/v1/streams/{id}/ack");
        let (status, reply) = gateway.ask("one", "POST", &path, &json!({"end": true}));
        assert_eq!(status, 200, "{reply}");
    }
    for gateway in [first, second] {
        assert_eq!(pages(gateway, "one", 1), own[2..]);
        assert_eq!(pages(gateway, "two", 1), std::slice::from_ref(&foreign));
    }

    // The second gateway is there and does not answer.
    let id = pair.second.id.clone();
    drop(pair.second.rig.take());
    let (_, page) = pair.first.show("one", "/v1/streams?unread=true");
    assert_eq!(ids_of(&page), own[3..]);
    assert_eq!(page["unanswered"][0]["instance"], id.as_str(), "{page}");
}

/// The ids in all pages of a list of chat completions.
fn completion_pages(gateway: &Gateway, query: &str) -> Vec<String> {
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let (status, page) = gateway.show("one", &format!("{query}{after}"));
        assert_eq!((status, &page["places"]), (200, &Value::Null), "{page}");
        let ids = ids_of(&page);
        let last = ids.last().cloned().unwrap_or_default();
        assert_eq!(page["last_id"], last.as_str());
        after = format!("&after={last}");
        found.extend(ids);
        if page["has_more"] == false {
            return found;
        }
    }
}

#[test]
fn stored_chat_completions_of_both_gateways_are_listed_and_found_at_each() {
    let Some(pair) = start_pair() else { return };
    let (first, second) = (&pair.first, &pair.second);
    let path = "/v1/chat/completions";
    let mut stored = Vec::new();
    for (round, gateway) in [first, second, second, first, second]
        .into_iter()
        .enumerate()
    {
        let body = json!({
            "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "ignore_eos": true,
            "store": true, "metadata": {"part": if round % 2 == 0 { "even" } else { "odd" }},
        });
        let (status, answer) = gateway.ask("one", "POST", path, &body);
        assert_eq!(status, 200, "{answer}");
        stored.push(answer["id"].as_str().unwrap().to_owned());
    }
    let newest: Vec<_> = stored.iter().rev().cloned().collect();
    let even: Vec<_> = stored.iter().step_by(2).cloned().collect();
    for gateway in [first, second] {
        let rows = [
            ("", &stored),
            ("&order=desc", &newest),
            ("&metadata%5Bpart%5D=even", &even),
        ];
        for (more, expected) in rows {
            for limit in 1..7 {
                let found = completion_pages(gateway, &format!("{path}?limit={limit}{more}"));
                assert_eq!(&found, expected, "{more} {limit}");
            }
        }
        assert_eq!(gateway.show("two", path).1["data"], json!([]));
        assert_eq!(
            gateway.show("one", &format!("{path}?after=chatcmpl-0")).0,
            400
        );
        for id in &stored {
            let found = gateway.show("one", &format!("{path}/{id}"));
            assert_eq!((found.0, &found.1["id"]), (200, &json!(id)));
            assert_eq!(gateway.show("two", &format!("{path}/{id}")).0, 404);
        }
    }
    let changed = format!("{path}/{}", stored[0]);
    let (status, _) = second.ask(
        "one",
        "POST",
        &changed,
        &json!({"metadata": {"part": "new"}}),
    );
    assert_eq!(status, 200);
    assert_eq!(first.show("one", &changed).1["metadata"]["part"], "new");
    assert_eq!(second.ask("two", "DELETE", &changed, &Value::Null).0, 404);
    assert_eq!(second.ask("one", "DELETE", &changed, &Value::Null).0, 200);
    assert_eq!(first.show("one", &changed).0, 404);
}
