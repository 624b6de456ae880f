//! Error responses of the jobs API: `{"errors":[..]}` for invalid fields, `{"error":{..}}` for all other errors.

use crate::json;
use crate::shared::error_response;
use crate::shared::job_error::JobError;
use bytes::Bytes;
use generate::error::{ApiError, Problem};
use http::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// The body of an error response.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobErrorBody<'a> {
    Error(JobError<'a>),
    Errors(Vec<JobFieldError<'a>>),
}

#[derive(JsonSchema, Serialize)]
pub(crate) struct JobFieldError<'a> {
    field: &'a str,
    constraint: &'a str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    value: Option<&'a RawValue>,
}

impl<'a> JobFieldError<'a> {
    fn new(problem: &'a Problem) -> Self {
        let (field, constraint) = (&*problem.field, &*problem.constraint);
        let value = problem.value.as_deref();
        Self {
            field,
            constraint,
            message: format!("{field} {constraint}"),
            value: value.and_then(|value| serde_json::from_str(value).ok()),
        }
    }
}

/// The error response.
pub fn to_response<B: From<Bytes>>(error: &ApiError) -> Response<B> {
    error_response::with_body(error, error_body(error))
}

/// The body of an error response: all rejected fields, or one error.
pub fn error_body(error: &ApiError) -> Bytes {
    let body = if error.problems.is_empty() {
        JobErrorBody::Error(JobError::new(error))
    } else {
        JobErrorBody::Errors(error.problems.iter().map(JobFieldError::new).collect())
    };
    json::to_vec(&body).freeze()
}
