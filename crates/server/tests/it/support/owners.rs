//! Three callers with keys: two owners and an administrator.

use super::client::Reply;
use super::named::call;
use super::{Rig, config};
use serde_json::Value;
use server::{Key, KeyHash, KeyLimits, Keys, Scope, Scopes};
use std::sync::Arc;

/// A server for the callers `one`, `two` and `admin`.
pub fn owners_rig() -> Rig {
    Rig::keyed(config(), &owners_keys())
}

/// The keys of `one`, `two` and `admin`.
pub fn owners_keys() -> Arc<Keys> {
    let keys = [
        ("one", &[Scope::Inference][..]),
        ("two", &[Scope::Inference]),
        ("admin", &[Scope::Inference, Scope::Admin]),
    ]
    .map(|(owner, scopes)| key(&key_text(owner), &key_text(owner), scopes));
    Arc::new(Keys::new(&keys).expect("good keys"))
}

/// A request of a caller.
pub fn call_as(rig: &Rig, owner: &str, method: &str, path: &str, body: &Value) -> Reply {
    call(rig, method, path, &key_field(owner), body)
}

/// The header field with a caller's key.
pub fn key_field(owner: &str) -> String {
    format!("authorization: Bearer {}\r\n", key_text(owner))
}

/// Status and error code of a rejection.
pub fn rejection(reply: &Reply) -> (u16, String) {
    let code = reply.json()["error"]["code"].as_str().map(str::to_owned);
    (reply.head.status, code.unwrap_or_default())
}

/// A key without limits.
pub fn key(name: &str, secret: &str, scopes: &[Scope]) -> Key {
    Key {
        hash: KeyHash::of(secret.as_bytes()),
        name: name.to_owned(),
        scopes: Scopes::of(scopes),
        limits: KeyLimits::default(),
        weight: 1,
    }
}

/// The secret of a caller's key.
pub fn key_text(owner: &str) -> String {
    format!("key_{owner}_0123456789")
}
