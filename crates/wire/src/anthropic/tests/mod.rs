//! Valid and invalid requests, and the variables of the chat template.

pub(crate) mod conversation;
pub(crate) mod request;

use super::message_request;
use crate::request_parser::tests::parsed_request;
use generate::error::ApiError;
use generate::request::GenerateRequest;
use serde_json::{Value, json};

/// Parses a valid request with some fields replaced.
fn message(over: &Value) -> Result<GenerateRequest, ApiError> {
    let mut body = json!({"max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]});
    for (name, value) in over.as_object().expect("fields") {
        body[name] = value.clone();
    }
    parsed_request(message_request::parse, body.to_string().as_bytes())
}

fn bad_fields(error: &ApiError) -> Vec<&str> {
    error.problems.iter().map(|p| p.field.as_str()).collect()
}
