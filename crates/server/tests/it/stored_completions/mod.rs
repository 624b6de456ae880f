//! Stored chat completions: returned, listed, changed, deleted; only those that ended well, and only to their owner.
//!
//! Promise (APIs): chat completions with `store: true` are returned as they were answered, listed by model and
//! metadata, changed and deleted, visible to their owner only and within the limits of responses; failed ones, and
//! those without `store`, are not stored.
//! Also held by `wire/src/openai/stored_completion.rs`, `wire/src/stored_request.rs`.

mod kept;

use crate::support::Rig;
use crate::support::client::{get, post};
use crate::support::named::{CHAT, RESUMABLE, call, chat, set_fields};
use crate::support::owners::rejection as code;
use serde_json::{Map, Value, json};

/// Members of a stored completion that the non-streaming response does not have.
const ADDED: [&str; 10] = [
    "frequency_penalty",
    "input_user",
    "metadata",
    "presence_penalty",
    "response_format",
    "seed",
    "temperature",
    "tool_choice",
    "tools",
    "top_p",
];

/// A chat to post with `store`.
fn stored(over: &Value) -> Value {
    let mut body = chat(&json!({"store": true, "stream": false, "max_tokens": 4}));
    set_fields(&mut body, over);
    body
}

/// Creates a completion; the request must be accepted.
fn create(rig: &Rig, over: &Value) -> Value {
    let reply = post(rig.addr, CHAT, &stored(over));
    assert_eq!(reply.head.status, 200, "{over}: {}", reply.body);
    reply.json()
}

fn path_of(completion: &Value) -> String {
    format!("{CHAT}/{}", completion["id"].as_str().expect("an id"))
}

fn ids(list: &Value) -> Vec<&str> {
    let data = list["data"].as_array().expect("a list").iter();
    data.map(|item| item["id"].as_str().expect("an id"))
        .collect()
}

/// A stored completion, split into the members of the response and the added members.
fn split(stored: &Value) -> (Value, Map<String, Value>) {
    let mut response = stored.as_object().expect("an object").clone();
    let added = ADDED.map(|name| (name.to_owned(), response.remove(name).expect(name)));
    (response.into(), added.into_iter().collect())
}

#[test]
fn stored_completion_equals_the_response() {
    let rig = Rig::start();
    let function = json!({"type": "function", "function": {"name": "f", "parameters": {}}});
    for (label, over) in [
        ("plain", json!({})),
        ("choices", json!({"n": 3})),
        (
            "log-probabilities",
            json!({"logprobs": true, "top_logprobs": 2, "n": 2}),
        ),
        ("tier", json!({"service_tier": "auto", "user": "me"})),
        (
            "tools",
            json!({"tools": [function], "tool_choice": "none", "temperature": 0.7}),
        ),
    ] {
        let response = create(&rig, &over);
        let stored = get(rig.addr, &path_of(&response));
        assert_eq!(stored.head.status, 200, "{label}");
        let (object, added) = split(&stored.json());
        assert_eq!(object, response, "{label}");
        let given = |name: &str| over.get(name).cloned().unwrap_or_default();
        assert_eq!(added["seed"], 7, "{label}");
        assert_eq!(added["input_user"], given("user"), "{label}");
        assert_eq!(added["tools"], given("tools"), "{label}");
        assert_eq!(added["tool_choice"], given("tool_choice"), "{label}");
        assert_eq!(added["metadata"], json!({}), "{label}");
        // The collected stream is the same completion.
        let mut streamed = over.clone();
        (streamed["stream"], streamed["seed"]) = (json!(true), json!(7));
        let reply = post(rig.addr, CHAT, &stored_stream(&streamed));
        let chunk = reply.chunks().into_iter().next().expect("a chunk");
        let (of_stream, _) = split(&get(rig.addr, &path_of(&chunk)).json());
        assert_eq!(of_stream["choices"], response["choices"], "{label}");
        assert_eq!(of_stream["id"], chunk["id"], "{label}");
    }
    rig.wait_until_empty();
}

fn stored_stream(over: &Value) -> Value {
    let mut body = stored(over);
    body["stream"] = json!(true);
    body
}

#[test]
fn completion_without_store_is_not_stored() {
    let rig = Rig::start();
    for store in [json!(false), Value::Null] {
        let response = create(&rig, &json!({"store": store}));
        let unknown = get(rig.addr, &path_of(&response));
        assert_eq!(code(&unknown), (404, "completion_not_found".to_owned()));
    }
    assert_eq!(get(rig.addr, CHAT).json()["data"], json!([]));
    // A response is no chat completion, and the other way round.
    let body = json!({"input": "hi", "max_output_tokens": 2});
    let response = post(rig.addr, "/v1/responses", &body).json();
    assert_eq!(get(rig.addr, &path_of(&response)).head.status, 404);
    let path = path_of(&create(&rig, &json!({})));
    let path = path.replace(CHAT, "/v1/responses");
    assert_eq!(get(rig.addr, &path).head.status, 404);
}

#[test]
fn messages_are_listed_in_pages() {
    let rig = Rig::start();
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    let messages = json!([
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": parts, "name": "me"},
        {"role": "assistant", "content": "yes"},
    ]);
    let completion = create(&rig, &json!({"messages": messages}));
    let (path, id) = (
        path_of(&completion),
        completion["id"].as_str().expect("an id"),
    );
    let page = |query: &str| get(rig.addr, &format!("{path}/messages{query}"));
    let all = page("").json();
    let want: Vec<String> = (0..3).map(|i| format!("{id}-{i}")).collect();
    assert_eq!(ids(&all), want);
    assert_eq!(
        (&all["object"], &all["has_more"]),
        (&json!("list"), &json!(false))
    );
    assert_eq!(
        (&all["first_id"], &all["last_id"]),
        (&json!(want[0]), &json!(want[2]))
    );
    assert_eq!(all["data"][0]["content"], "be brief");
    assert_eq!(all["data"][0]["content_parts"], Value::Null);
    assert_eq!(all["data"][1]["content_parts"], parts);
    assert_eq!(all["data"][1]["name"], "me");
    let newest = page("?order=desc&limit=2").json();
    assert_eq!(
        (ids(&newest), &newest["has_more"]),
        (vec![&*want[2], &*want[1]], &json!(true))
    );
    let rest = page(&format!("?order=desc&limit=2&after={}", want[1])).json();
    assert_eq!(
        (ids(&rest), &rest["has_more"]),
        (vec![&*want[0]], &json!(false))
    );
    for query in ["?limit=101", "?order=up", "?after=none"] {
        assert_eq!(
            code(&page(query)),
            (400, "invalid_value".to_owned()),
            "{query}"
        );
    }
}

#[test]
fn list_is_filtered_and_paged() {
    let rig = Rig::start();
    let metadata = |i: usize| json!({"group": (i % 2).to_string(), "number": i.to_string()});
    let made: Vec<Value> = (0..5)
        .map(|i| create(&rig, &json!({"metadata": metadata(i)})))
        .collect();
    let made: Vec<&str> = made
        .iter()
        .map(|one| one["id"].as_str().expect("an id"))
        .collect();
    let list = |query: &str| get(rig.addr, &format!("{CHAT}?{query}")).json();
    assert_eq!(ids(&list("")), made);
    let all = list("");
    assert_eq!(
        all["data"][1],
        get(rig.addr, &format!("{CHAT}/{}", made[1])).json()
    );
    let odd = list("metadata[group]=1");
    assert_eq!(
        (ids(&odd), &odd["has_more"]),
        (vec![made[1], made[3]], &json!(false))
    );
    assert_eq!(
        ids(&list("metadata%5Bgroup%5D=0&metadata[number]=4")),
        [made[4]]
    );
    assert_eq!(
        ids(&list("model=fake&order=desc&limit=2")),
        [made[4], made[3]]
    );
    assert_eq!(list("model=other")["data"], json!([]));
    let query = format!("order=desc&limit=1&metadata[group]=0&after={}", made[3]);
    let page = list(&query);
    assert_eq!(
        (ids(&page), &page["has_more"]),
        (vec![made[2]], &json!(true))
    );
    let refused = get(rig.addr, &format!("{CHAT}?after=none"));
    assert_eq!(code(&refused), (400, "invalid_value".to_owned()));
}

#[test]
fn metadata_is_replaced() {
    let rig = Rig::start();
    let completion = create(&rig, &json!({"metadata": {"a": "1", "b": "2"}}));
    let path = path_of(&completion);
    let update = |metadata: &Value| post(rig.addr, &path, &json!({"metadata": metadata}));
    for (metadata, want) in [
        (json!({"a": "3"}), json!({"a": "3"})),
        (Value::Null, json!({})),
        (json!({"c": "é".repeat(512)}), json!({"c": "é".repeat(512)})),
    ] {
        let updated = update(&metadata).json();
        assert_eq!(updated["metadata"], want);
        assert_eq!(get(rig.addr, &path).json(), updated);
        assert_eq!(updated["choices"], completion["choices"]);
    }
    let many: Map<String, Value> = (0..17).map(|i| (i.to_string(), json!(""))).collect();
    for metadata in [
        json!({"a": 1}),
        json!("a"),
        json!({"a": "é".repeat(513)}),
        many.into(),
    ] {
        assert_eq!(code(&update(&metadata)), (400, "invalid_value".to_owned()));
    }
    assert_eq!(post(rig.addr, &path, &json!({})).head.status, 400);
    // With the other fields of a request, all problems at once.
    let refused = post(
        rig.addr,
        CHAT,
        &stored(&json!({"metadata": {"a": 1}, "n": 0})),
    );
    let message = refused.json()["error"]["message"].to_string();
    assert!(
        message.contains("metadata: ") && message.contains("n: "),
        "{message}"
    );
}

#[test]
fn deleted_completion_is_gone() {
    let rig = Rig::start();
    let reply = call(&rig, "POST", CHAT, RESUMABLE, &stored(&json!({})));
    let stream = reply.head.get("x-stream-id").expect("a stream").to_owned();
    let path = path_of(&reply.json());
    let stream = format!("/v1/streams/{stream}");
    assert_eq!(get(rig.addr, &stream).head.status, 200);
    let delete = || call(&rig, "DELETE", &path, "", &Value::Null);
    let want =
        json!({"id": reply.json()["id"], "object": "chat.completion.deleted", "deleted": true});
    assert_eq!(delete().json(), want);
    let messages = get(rig.addr, &format!("{path}/messages"));
    for reply in [get(rig.addr, &path), delete(), messages] {
        assert_eq!(code(&reply), (404, "completion_not_found".to_owned()));
    }
    assert_ne!(
        get(rig.addr, &stream).head.status,
        200,
        "the answer is not readable as a stream"
    );
}
