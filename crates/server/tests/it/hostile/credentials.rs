//! Requests with more than one key.
//!
//! Promise (Admission and keys): a request carries one key.

use crate::support::client::{Client, Reply};
use crate::support::owners::{key, key_text};
use crate::support::{Rig, config};
use server::{Keys, Scope};
use std::sync::Arc;

fn keys() -> Arc<Keys> {
    let keys = ["a", "b"].map(|name| key(name, &key_text(name), &[Scope::Inference]));
    Arc::new(Keys::new(&keys).unwrap())
}

fn models(rig: &Rig, fields: &str) -> Reply {
    let mut client = Client::connect(rig.addr);
    let head = format!("GET /v1/models HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n");
    client.send(head.as_bytes());
    client.reply()
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn request_with_two_keys_is_rejected() {
    let rig = Rig::keyed(config(), &keys());
    let (a, b) = (key_text("a"), key_text("b"));
    let authorization = |key: &str| format!("authorization: Bearer {key}\r\n");
    let x_api_key = |key: &str| format!("x-api-key: {key}\r\n");
    let rows = [
        ("both, the same", authorization(&a) + &x_api_key(&a), None),
        (
            "both, two keys",
            authorization(&a) + &x_api_key(&b),
            Some("x-api-key"),
        ),
        (
            "both, the second a placeholder",
            authorization(&a) + &x_api_key("none"),
            None,
        ),
        (
            "both, the first a placeholder",
            authorization("none") + &x_api_key(&a),
            None,
        ),
        ("an empty second", authorization(&a) + &x_api_key(""), None),
        ("an empty first", authorization("") + &x_api_key(&a), None),
        (
            "another scheme is no key",
            "authorization: Basic eDp5\r\n".to_owned() + &x_api_key(&a),
            None,
        ),
        (
            "two authorizations",
            authorization(&a) + &authorization(&b),
            Some("authorization"),
        ),
        (
            "the same twice",
            authorization(&a) + &authorization(&a),
            Some("authorization"),
        ),
        (
            "two x-api-keys",
            x_api_key(&a) + &x_api_key(&b),
            Some("x-api-key"),
        ),
    ];
    for (label, fields, named) in rows {
        let reply = models(&rig, &fields);
        let Some(named) = named else {
            assert_eq!(reply.head.status, 200, "{label}: {}", reply.body);
            continue;
        };
        assert_eq!(reply.head.status, 400, "{label}: {}", reply.body);
        let error = &reply.json()["error"];
        assert_eq!(error["code"], "ambiguous_credentials", "{label}");
        assert_eq!(error["param"], named, "{label}: {}", reply.body);
        assert!(!reply.body.contains("mr_"), "{label}: {}", reply.body);
    }
    for fields in [
        authorization("c") + &x_api_key("d"),
        authorization("") + &x_api_key(""),
        x_api_key("c"),
    ] {
        assert_eq!(models(&rig, &fields).head.status, 401, "{fields}");
    }
    // Where no keys are asked for, clients that send two names for nobody are served.
    let open = Rig::start();
    let reply = models(&open, &(authorization("x") + &x_api_key("y")));
    assert_eq!(reply.head.status, 200, "{}", reply.body);
}
