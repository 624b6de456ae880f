//! Jobs, responses and streams that another gateway has.
//!
//! Promise (Cluster): a key has one job of a name in a cluster, also where two gateways get the name at one moment,
//! requests are lost or late, and gateways die or stop. It is a 503 while NATS is away, and while the job of a killed
//! gateway has not been taken over (with JetStream).
//! Also held by `cluster/src/job_names/simulation.rs`, `millrace/tests/it/cluster/job_names.rs`.
//!
//! Promise (Cluster): jobs, responses, conversations, chat completions and streams are found, changed and deleted at
//! any gateway, for their owner only; a name of a job is taken at all gateways.
//! Also held by `server/src/request/foreign_id.rs`.

use super::{Gateway, start_pair};
use crate::support::named::call;
use crate::support::owners::{key_field, key_text};
use crate::support::talk::Talk;
use serde_json::{Value, json};

#[test]
fn job_is_found_by_name_at_the_other_gateway_and_its_name_is_taken_there() {
    let Some(mut pair) = start_pair() else { return };
    let (first, second) = (&pair.first, &pair.second);
    let id = first.run_job("one", Some("mine"));
    for name in ["mine", &id] {
        let (status, job) = second.show("one", &format!("/v1/jobs/{name}"));
        assert_eq!((status, &job["stream_id"]), (200, &json!(id)));
        let events = second.show("one", &format!("/v1/jobs/{name}/stream")).0;
        assert_eq!(events, 200);
        assert_eq!(second.show("two", &format!("/v1/jobs/{name}")).0, 404);
    }
    let (status, stream) = second.show("one", &format!("/v1/streams/{id}"));
    assert_eq!((status, &stream["instance"]), (200, &json!(first.id)));
    assert_eq!(second.show("two", &format!("/v1/streams/{id}")).0, 404);
    let body = json!({"prompt": "hi", "job_id": "mine", "max_tokens": 2});
    let (status, error) = second.ask("one", "POST", "/v1/jobs", &body);
    let field = &error["errors"][0]["field"];
    assert_eq!((status, field), (409, &json!("job_id")), "{error}");
    assert_eq!(
        second.ask("two", "POST", "/v1/jobs", &body).0,
        202,
        "another owner"
    );

    // A request that was passed on is answered from what the gateway has itself.
    let passed_on = format!("{}x-millrace-forwarded: 1\r\n", key_field("one"));
    let reply = call(
        second.rig(),
        "GET",
        "/v1/jobs/mine",
        &passed_on,
        &Value::Null,
    );
    assert_eq!(reply.head.status, 404);

    let (status, _) = second.ask("one", "DELETE", "/v1/jobs/mine", &Value::Null);
    assert_eq!(status, 202);
    assert_eq!(first.show("one", &format!("/v1/streams/{id}")).0, 410);
    assert_eq!(second.show("one", "/v1/jobs/never").0, 404);
    drop(pair.first.rig.take());
    let (status, error) = pair.second.show("one", "/v1/jobs/never");
    assert_eq!(status, 503, "nobody knows: {error}");
    let body = json!({"prompt": "hi", "job_id": "new", "max_tokens": 2});
    let (status, error) = pair.second.ask("one", "POST", "/v1/jobs", &body);
    let message = error["error"]["message"].as_str().unwrap_or_default();
    assert_eq!(status, 503, "{error}");
    assert!(message.contains("it is not known whether"), "{error}");
    let body = json!({"prompt": "hi", "max_tokens": 2});
    assert_eq!(
        pair.second.ask("one", "POST", "/v1/jobs", &body).0,
        202,
        "without a name"
    );
}

#[test]
fn web_socket_opens_no_job_with_a_name_that_all_gateways_share() {
    let Some(pair) = start_pair() else { return };
    let rig = pair.second.rig();
    let key = format!("Bearer {}", key_text("one"));
    let mut talk = Talk::try_with(rig.addr, &[("authorization", &key)]).expect("101");
    let mut body = json!({"prompt": "hi", "job_id": "mine", "max_tokens": 2});
    talk.say(&json!({"type": "open", "request": "named", "body": body}));
    let told = talk.answer("named");
    assert_eq!(told["type"], "error", "{told}");
    assert!(told.to_string().contains("body.job_id"), "{told}");
    body.as_object_mut().unwrap().remove("job_id");
    let id = talk.open("unnamed", &json!({}), &body);
    talk.whole(&id);
}

fn respond(gateway: &Gateway, owner: &str, previous: Option<&str>) -> (u16, Value) {
    let mut body = json!({"input": "hi", "max_output_tokens": 16});
    if let Some(previous) = previous {
        body["previous_response_id"] = previous.into();
    }
    gateway.ask(owner, "POST", "/v1/responses", &body)
}

#[test]
fn response_is_continued_and_deleted_at_the_other_gateway() {
    let Some(mut pair) = start_pair() else { return };
    let (first, second) = (&pair.first, &pair.second);
    let (status, begun) = respond(first, "one", None);
    assert_eq!(status, 200, "{begun}");
    let id = begun["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/responses/{id}");
    assert_eq!(second.show("one", &path).1["output"], begun["output"]);
    let (status, items) = second.show("one", &format!("{path}/input_items"));
    assert_eq!((status, items["data"].as_array().unwrap().len()), (200, 1));
    assert_eq!(second.show("two", &path).0, 404);

    let (status, next) = respond(second, "one", Some(&id));
    assert_eq!(status, 200, "{next}");
    assert_eq!(next["previous_response_id"], id.as_str());
    // The prompt has the whole conversation, as at the gateway where it began.
    let at_first = respond(first, "one", Some(&id)).1;
    assert_eq!(
        next["usage"]["input_tokens"],
        at_first["usage"]["input_tokens"]
    );
    assert!(next["usage"]["input_tokens"].as_u64() > begun["usage"]["input_tokens"].as_u64());
    let third = next["id"].as_str().unwrap();
    assert_eq!(respond(second, "one", Some(third)).0, 200);
    let count = json!({"input": "hi", "previous_response_id": id});
    let (status, count) = second.ask("one", "POST", "/v1/responses/input_tokens", &count);
    assert_eq!(
        (status, &count["input_tokens"]),
        (200, &next["usage"]["input_tokens"])
    );
    let (status, error) = respond(second, "two", Some(&id));
    assert_eq!(
        (status, &error["error"]["code"]),
        (400, &json!("previous_response_not_found"))
    );

    let (status, cancelled) = second.ask("one", "POST", &format!("{path}/cancel"), &json!({}));
    assert_eq!((status, &cancelled["id"]), (200, &json!(id)));
    assert_eq!(second.ask("one", "DELETE", &path, &Value::Null).0, 200);
    assert_eq!(first.show("one", &path).0, 404);
    let (status, error) = respond(second, "one", Some(&id));
    assert_eq!(
        (status, &error["error"]["code"]),
        (400, &json!("previous_response_not_found"))
    );
    drop(pair.first.rig.take());
    assert_eq!(respond(&pair.second, "one", Some(&id)).0, 503);
}
