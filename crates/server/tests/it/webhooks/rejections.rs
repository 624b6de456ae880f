//! Requests whose webhook is not accepted, and the deliveries of other keys.

use super::{DELIVERIES, background, deliveries, gated_rig, post, rig};
use crate::support::Rig;
use crate::support::named::fake;
use crate::support::owners::{call_as, rejection};
use crate::support::wait_until;
use crate::support::webhook_receiver::{Answer, Receiver, config_with, webhook_settings};
use serde_json::{Value, json};
use server::{Key, KeyHash, KeyLimits, Keys, Scope, Scopes, WebhookSettings};
use std::sync::Arc;

#[test]
fn webhook_is_rejected_where_webhooks_are_off() {
    let rig = rig(WebhookSettings::default());
    let reply = post(
        &rig,
        "/v1/responses",
        &background("https://hooks.example.com/"),
    );
    assert_eq!(rejection(&reply), (400, "invalid_webhook".to_owned()));
    assert!(
        reply.body.contains("webhooks.allowed_hosts"),
        "{}",
        reply.body
    );
    let listed = crate::support::named::get(&rig, DELIVERIES, "");
    assert_eq!(listed.head.status, 200);
}

#[test]
fn webhook_that_is_not_allowed_is_rejected() {
    let settings = WebhookSettings {
        allow_http: false,
        allow_private: false,
        ..webhook_settings()
    };
    let rig = rig(settings);
    for url in [
        "http://127.0.0.1:9/",
        "https://127.0.0.1:9/",
        "https://2130706433:9/",
        "https://other.test/",
        "nonsense",
    ] {
        let reply = post(&rig, "/v1/responses", &background(url));
        assert_eq!(
            rejection(&reply),
            (400, "invalid_webhook".to_owned()),
            "{url}"
        );
        assert_eq!(reply.json()["error"]["param"], "webhook", "{url}");
    }
}

#[test]
fn webhook_needs_a_stream_that_continues_without_its_client() {
    let rig = rig(webhook_settings());
    let mut plain = background("http://127.0.0.1:9/");
    plain["background"] = json!(false);
    let reply = post(&rig, "/v1/responses", &plain);
    assert_eq!(reply.head.status, 400);
    assert!(reply.body.contains("background"), "{}", reply.body);
    let job = json!({"prompt": "hi", "stream": false, "webhook": "http://127.0.0.1:9/"});
    let reply = post(&rig, "/v1/inference", &job);
    assert_eq!(reply.head.status, 400, "{}", reply.body);
    for webhook in [json!(7), json!(""), json!("x".repeat(3000))] {
        let mut body = background("");
        body["webhook"] = webhook;
        assert_eq!(post(&rig, "/v1/responses", &body).head.status, 400);
    }
}

#[test]
fn key_without_a_secret_is_rejected() {
    Rig::set_next_secrets(Vec::new());
    let rig = Rig::with(fake(), config_with(webhook_settings()));
    let reply = post(&rig, "/v1/responses", &background("http://127.0.0.1:9/"));
    assert_eq!(
        rejection(&reply),
        (400, "webhook_secret_missing".to_owned())
    );
}

#[test]
fn streams_beyond_the_places_of_a_key_are_rejected() {
    let settings = WebhookSettings {
        waiting_max: 4,
        ..webhook_settings()
    };
    let (receiver, rig) = (Receiver::start([]), gated_rig(settings));
    let open = || post(&rig, "/v1/responses", &background(&receiver.url("/")));
    let statuses = [open(), open(), open()].map(|reply| reply.head.status);
    assert_eq!(statuses, [200, 200, 503], "half of the places for one key");
    rig.gate.open();
    receiver.wait_for(2);
    wait_until("the places are free", || deliveries(&rig, "").is_empty());
    assert_eq!(open().head.status, 200);
}

#[test]
fn deliveries_of_other_keys_are_not_visible() {
    let text = |owner: &str| format!("key_{owner}_0123456789");
    let hash = |owner: &str| KeyHash::of(text(owner).as_bytes());
    let key = |owner: &str, scopes: &[Scope]| Key {
        hash: hash(owner),
        name: owner.to_owned(),
        scopes: Scopes::of(scopes),
        limits: KeyLimits::default(),
        weight: 1,
    };
    let keys = [
        key("one", &[Scope::Inference]),
        key("two", &[Scope::Inference]),
        key("admin", &[Scope::Inference, Scope::Admin]),
    ];
    Rig::set_next_secrets(vec![Some(hash("one"))]);
    let keys = Arc::new(Keys::new(&keys).expect("good keys"));
    let rig = Rig::behind(fake(), config_with(webhook_settings()), keys);
    rig.gate.open();
    let receiver = Receiver::start([Answer::Head("410 Gone\r\n".to_owned())]);
    let body = background(&receiver.url("/"));
    let without = call_as(&rig, "two", "POST", "/v1/responses", &body);
    assert_eq!(rejection(&without).1, "webhook_secret_missing");
    call_as(&rig, "one", "POST", "/v1/responses", &body);
    let list = |owner: &str| {
        let reply = call_as(
            &rig,
            owner,
            "GET",
            &format!("{DELIVERIES}?status=dead"),
            &Value::Null,
        );
        reply.json()["data"].as_array().expect("a list").clone()
    };
    wait_until("the letter is dead", || list("one").len() == 1);
    assert_eq!((list("two").len(), list("admin").len()), (0, 1));
    let path = format!(
        "{DELIVERIES}/{}",
        list("one")[0]["id"].as_str().expect("an id")
    );
    for (method, path) in [
        ("GET", path.clone()),
        ("DELETE", path.clone()),
        ("POST", format!("{path}/redeliver")),
    ] {
        let reply = call_as(&rig, "two", method, &path, &json!({}));
        assert_eq!(
            rejection(&reply),
            (404, "delivery_not_found".to_owned()),
            "{method}"
        );
    }
    assert_eq!(
        call_as(&rig, "admin", "DELETE", &path, &Value::Null)
            .head
            .status,
        200
    );
    assert!(list("one").is_empty());
}
